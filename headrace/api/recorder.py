"""Recorders of eager computations: the contract between eager ops, jitted calls and tapes.

Several recorders can be active in a context, one inside of the other. Each computation outside of graphs that has
outputs passes an `Entry` to all of them (`record`): the eager builder for each op, a jitted function for each call. The
entry can create the computation again in a graph, where `eager.tape` differentiates it. An eager variable reports its
reads (`accessed`), so that a recorder can follow it without being told.

The active recorders are those of the context (`contextvars`): a thread or task that starts has none.
"""

from __future__ import annotations

import contextvars
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from typing import Self

    from headrace.ir.builder import Builder
    from headrace.ir.graph import Tensor


class Entry(Protocol):
    """A computation of eager tensors, which can be created again in a graph.

    Attributes:
      inputs: the eager tensors that it read, captured ones and handles of variables included.
      outputs: the eager tensors that it made.
      structure: a key; entries with equal keys, and inputs of equal dtypes and shapes, create equal operations. It
        keeps everything alive that the key identifies by its `id`.
    """

    @property
    def inputs(self) -> tuple[Any, ...]: ...

    @property
    def outputs(self) -> tuple[Any, ...]: ...

    @property
    def structure(self) -> Hashable: ...

    def create(self, b: Builder, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Creates the operations of the entry.

        Args:
          b: the builder of the graph.
          inputs: a tensor of the graph for each of `self.inputs`.

        Returns:
          A tensor of the graph for each of `self.outputs`.
        """
        ...


class Recorder:
    """Receives the entries of a `with` block in this context."""

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop()

    def record(self, entry: Entry) -> None:
        """Receives a computation that has run."""
        raise NotImplementedError

    def accessed(self, variable: Any) -> None:
        """Receives an eager variable that is about to be read."""

    @property
    def is_active(self) -> bool:
        """Whether the recorder receives the entries of this context."""
        return self in active.get()

    def _start(self) -> None:
        active.set((*active.get(), self))

    def _stop(self) -> None:
        """Removes the recorder; others that were started after it stay."""
        active.set(tuple([r for r in active.get() if r is not self]))


# the recorders of this context, the outermost first; a caller that has to be fast tests `active.get()` before it makes
# an entry
active: Final[contextvars.ContextVar[tuple[Recorder, ...]]] = contextvars.ContextVar("headrace_recorders", default=())


def record(entry: Entry) -> None:
    """Passes an entry to each active recorder."""
    for recorder in active.get():
        recorder.record(entry)


def accessed(variable: Any) -> None:
    """Reports the read of an eager variable to each active recorder."""
    for recorder in active.get():
        recorder.accessed(variable)
