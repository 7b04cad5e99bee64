"""The recorder of eager ops that is active in a context.

The eager builder passes each op to it. `eager.recording` computes gradients from the entries.
"""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from typing import Self


class Entry(NamedTuple):
    """An eager op that has run.

    Attributes:
      type: the op type.
      groups: the tensors of each argument.
      is_list: for each argument whether it takes a list.
      attrs: the attributes that the call gave.
      outputs: the outputs of the op.
    """

    type: str
    groups: list[list[Any]]
    is_list: list[bool]
    attrs: Mapping[str, Any]
    outputs: tuple[Any, ...]


class Recorder:
    """Records the eager ops of a `with` block in this context.

    Attributes:
      entries: the ops in the order of their runs.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._token: contextvars.Token[Recorder | None] | None = None

    def __enter__(self) -> Self:
        self._token = active.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._token is not None
        active.reset(self._token)


active: Final[contextvars.ContextVar[Recorder | None]] = contextvars.ContextVar("headrace_recorder", default=None)
