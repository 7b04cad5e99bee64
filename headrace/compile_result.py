"""Result of compiling a step."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.compile import Compiled
    from headrace.optimize.base import PassContext


@dataclasses.dataclass(frozen=True, slots=True)
class CompileResult:
    """Result of compiling a step.

    Attributes:
      compiled: the step as one Python function; None: the token machine runs it.
      reasons: reasons against compiling it, a line for each operation that prevents it.
      report: notes of the passes that ran before it was compiled; None if it is not compiled.
    """

    compiled: Compiled | None = None
    reasons: tuple[str, ...] = ()
    report: PassContext | None = None


def not_compiled(reasons: Sequence[str]) -> str:
    """Text of the error of a step that the compiled engine must run but cannot."""
    return f'this step cannot be compiled: {"; ".join(reasons)}. engine="auto" runs it by the token machine'
