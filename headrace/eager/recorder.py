"""The recorder of eager ops that is active in a context.

The eager builder passes each op to it. `eager.recording.Recording` computes gradients from them.
"""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from headrace.eager.tensor import EagerTensor


class Recorder(Protocol):
    """The receiver of eager ops that have run."""

    def note(
        self,
        type: str,
        groups: list[list[EagerTensor]],
        is_list: list[bool],
        attrs: Mapping[str, Any],
        outputs: tuple[EagerTensor, ...],
    ) -> None:
        """Records that an op has run.

        Args:
          type: the op's type.
          groups: the tensors of each argument.
          is_list: for each argument whether it takes a list.
          attrs: the attributes that the call gave.
          outputs: the outputs of the op.
        """


active: Final[contextvars.ContextVar[Recorder | None]] = contextvars.ContextVar("headrace_recorder", default=None)
