"""What compiling a step gave."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.compile import Compiled
    from headrace.optimize.base import PassContext


@dataclasses.dataclass(frozen=True, slots=True)
class CompileResult:
    """See the module's text.

    Attributes:
      compiled: the step as one Python function; None: the token machine runs it.
      reasons: why it is not compiled, a line for each operation that stands against it.
      report: what the passes did before it was compiled.
    """

    compiled: Compiled | None = None
    reasons: tuple[str, ...] = ()
    report: PassContext | None = None


def not_compiled(reasons: Sequence[str]) -> str:
    """Text of the error of a step that the compiled engine must run and cannot."""
    return f'this step cannot be compiled: {"; ".join(reasons)}. engine="auto" runs it by the token machine'
