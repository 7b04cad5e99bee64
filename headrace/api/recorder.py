"""Recorders of eager computations: the contract between eager ops, jitted calls and tapes.

Several recorders can be active in a context, one inside of the other. Each computation outside of graphs that has
outputs passes an `Entry` to all of them (`record`): the eager builder for each op, a jitted function for each call. The
entry can create the computation again in a graph, where `eager.tape` differentiates it; a `CustomEntry` has a gradient
of its own. An eager variable reports its
reads (`accessed`), so that a recorder can follow it without being told.

The active recorders are those of the context (`contextvars`): a thread or task that starts has none.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
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


class CustomEntry(NamedTuple):
    """A computation of eager tensors whose gradient is a Python function.

    Attributes:
      inputs: the eager tensors that it read, handles of variables included.
      outputs: the eager tensors that it made; they are new objects.
      pull_back: a function from the gradient of each output to that of each input. Gradients are eager tensors,
        `IndexedSlices` of them, or None. Its ops are recorded by the recorders that are active when it is called.
    """

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    pull_back: Callable[[list[Any]], Sequence[Any]]


class Recorder:
    """Receives the entries of the computations in this context while it is active."""

    def record(self, entry: Entry | CustomEntry) -> None:
        """Receives a computation that has run."""
        raise NotImplementedError

    def accessed(self, variable: Any) -> None:
        """Receives an eager variable that is about to be read."""

    def left(self, x: Any) -> None:
        """Receives an eager tensor whose value becomes a Python number or an array."""

    @property
    def is_active(self) -> bool:
        """Whether the recorder receives the entries of this context."""
        return self in active.get()

    def start(self) -> None:
        """Makes the recorder active in this context."""
        active.set((*active.get(), self))

    def stop(self) -> None:
        """Ends the activity in this context; recorders that were started later stay active."""
        active.set(tuple([r for r in active.get() if r is not self]))


# the recorders of this context, the outermost first; a caller that has to be fast tests `active.get()` before it makes
# an entry
active: Final[contextvars.ContextVar[tuple[Recorder, ...]]] = contextvars.ContextVar("headrace_recorders", default=())


def record(entry: Entry | CustomEntry) -> None:
    """Passes an entry to each active recorder."""
    for recorder in active.get():
        recorder.record(entry)


def accessed(variable: Any) -> None:
    """Reports the read of an eager variable to each active recorder."""
    for recorder in active.get():
        recorder.accessed(variable)


def left(x: Any) -> None:
    """Reports an eager tensor whose value becomes a Python number or an array."""
    for recorder in active.get():
        recorder.left(x)


@contextlib.contextmanager
def set_to(recorders: tuple[Recorder, ...]) -> Iterator[None]:
    """Returns a context in which exactly these recorders are active."""
    token = active.set(recorders)
    try:
        yield
    finally:
        active.reset(token)


class VariableReads(Recorder):
    """Collects the trainable variables that a function reads outside of graphs.

    Attributes:
      found: the variables, in the order of their first read.
    """

    def __init__(self) -> None:
        self.found: list[Any] = []

    def record(self, entry: Entry | CustomEntry) -> None:
        pass

    def accessed(self, variable: Any) -> None:
        if variable.trainable and not any(v is variable for v in self.found):
            self.found.append(variable)
