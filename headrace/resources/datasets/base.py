"""Datasets and iterators: their protocol, and the pass that iterators belong to."""

from __future__ import annotations

import abc
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from headrace import thresholds
from headrace.errors import CancelledError, InvalidArgumentError, UnimplementedError
from headrace.resources.datasets.state import Saved, State
from headrace.resources.shared import SessionResources

if TYPE_CHECKING:
    from headrace.resources.manager import ResourceManager
    from headrace.resources.values import Value

Element: TypeAlias = "tuple[Value, ...]"
# A function of a dataset, such as that of a map: from components, in a pass, to components.
Call: TypeAlias = "Callable[[Sequence[Value], Pass], Sequence[Value]]"

INFINITE: Final = -1  # cardinality of a dataset without an end
UNKNOWN: Final = -2  # cardinality that only a pass finds


class Cancellable(Protocol):
    """Step that a function of a dataset runs in."""

    def cancel(self, error: BaseException) -> None:
        """Makes the step fail with `error` at its next check."""


class Pass:
    """State that all iterators of one pass over a dataset share. Thread-safe.

    Attributes:
      deadline: the time of `time.monotonic` at which the present request fails; None: no deadline.
      keeps_order: whether parallel functions return results in order, unless their dataset says.
    """

    def __init__(self) -> None:
        self.keeps_order = True
        self.deadline: float | None = None
        self._look: Callable[[], None] | None = None
        self._asks = 0  # the thread of the present request
        self._ended: BaseException | None = None
        self._steps: set[Cancellable] = set()
        self._wakers: weakref.WeakSet[threading.Condition] = weakref.WeakSet()
        self._resources: dict[object, SessionResources] = {}

    def resources_of(self, function: object, shared: ResourceManager) -> SessionResources:
        """Returns the resources of a function's steps; its random ops restart in each pass.

        Args:
          function: the key of the function.
          shared: the resources of the session.
        """
        found = self._resources.get(function)
        return self._resources.setdefault(function, SessionResources(shared)) if found is None else found

    def check(self) -> None:
        """Raises if the pass has ended, or the step that waits was cancelled."""
        if self._ended is not None:
            raise self._ended
        if self._look is not None and threading.get_ident() == self._asks:
            self._look()

    def ask(self, look: Callable[[], None] | None, deadline: float | None = None) -> None:
        """Begins a request of this thread, or ends it with None.

        Args:
          look: raises if the step of the request was cancelled; None: no step.
          deadline: the time of `time.monotonic` at which the request fails; None: no deadline.
        """
        self._asks, self._look, self.deadline = threading.get_ident(), look, deadline

    @property
    def is_over(self) -> bool:
        """Whether `end` was called."""
        return self._ended is not None

    def end(self) -> None:
        """Ends the pass: waits and functions that run fail with CancelledError, and its threads end."""
        self._ended = CancelledError("the iterator was dropped, or its session closed, during this request")
        for step in list(self._steps):
            step.cancel(self._ended)
        for condition in list(self._wakers):
            with condition:
                condition.notify_all()

    def condition(self) -> threading.Condition:
        """Returns a new condition, which `end` notifies."""
        made = threading.Condition()
        self._wakers.add(made)
        return made

    def wait(self, condition: threading.Condition, is_ready: Callable[[], bool]) -> None:
        """Waits until `is_ready()`; the caller holds `condition`.

        Raises:
          CancelledError, DeadlineExceededError: the pass or the step of the request ends before.
        """
        while not is_ready():
            self.check()
            condition.wait(thresholds.DATASET_POLL)

    def enter(self, step: Cancellable) -> None:
        """Records a step of a function, which `end` cancels."""
        self._steps.add(step)
        if self._ended is not None:
            step.cancel(self._ended)

    def leave(self, step: Cancellable) -> None:
        """Forgets a step that has ended."""
        self._steps.discard(step)


class Iterator(abc.ABC):
    """Position in one pass over a dataset. One thread at a time may use it.

    Args:
      run: the pass.

    Attributes:
      run: the pass.
    """

    __slots__ = ("__weakref__", "run")

    def __init__(self, run: Pass) -> None:
        self.run = run

    @abc.abstractmethod
    def next(self) -> Element | None:
        """Returns the next element; None at the end, and in further calls."""

    @abc.abstractmethod
    def save(self) -> State:
        """Returns the position as plain data and arrays."""

    @abc.abstractmethod
    def restore(self, saved: Saved) -> None:
        """Moves a new iterator to the position that `save` returned.

        Raises:
          DataLossError: the data are not the state of such an iterator.
        """


class Dataset(abc.ABC):
    """Sequence of elements; immutable.

    Attributes:
      inputs: the datasets of which it is made.
    """

    inputs: tuple[Dataset, ...] = ()

    @abc.abstractmethod
    def iterator(self, run: Pass) -> Iterator:
        """Returns a new iterator, at the first element."""

    def cardinality(self) -> int:
        """Returns the number of elements, `INFINITE` or `UNKNOWN`. Computes no element."""
        return UNKNOWN


class Through(Iterator):
    """Base of iterators over one other iterator, which alone has a state.

    Args:
      run: the pass.
      input: the other iterator.
    """

    __slots__ = ("_input",)

    def __init__(self, run: Pass, input: Iterator) -> None:
        super().__init__(run)
        self._input = input

    def save(self) -> State:
        return {"input": self._input.save()}

    def restore(self, saved: Saved) -> None:
        self._input.restore(saved.inner("input"))


def scaled(n: int, change: Callable[[int], int]) -> int:
    """Returns the cardinality `change(n)`; infinite and unknown ones stay."""
    return n if n < 0 else change(n)


def ceil_div(n: int, d: int) -> int:
    """Returns n / d, rounded up."""
    return -(-n // d)


def no_state(what: str) -> UnimplementedError:
    """Returns the error of an iterator whose position cannot be saved."""
    return UnimplementedError(
        f"the position in {what} cannot be saved: its elements come from outside of the pipeline. Save the iterator of "
        "a dataset of tensors, files or ranges"
    )


def as_count(value: Any, what: str, least: int) -> int:
    """Returns an argument of a dataset as an int.

    Raises:
      InvalidArgumentError: it is less than `least`.
    """
    n = int(value)
    if n < least:
        kind = "greater than zero" if least == 1 else f"at least {least}"
        raise InvalidArgumentError(f"{what} must be {kind}, got {n}")
    return n


def as_dataset(value: object, what: str) -> Dataset:
    """Returns an input of an operation, which must be a dataset.

    Raises:
      InvalidArgumentError: it is something else.
    """
    if not isinstance(value, Dataset):
        raise InvalidArgumentError(f"{what} takes a dataset (the result of a dataset op), got {value!r}")
    return value


class WithOptions(Dataset):
    """Dataset of the elements of another one, with options.

    Args:
      input: the other dataset.
      options: the serialized options.
      keeps_order: whether parallel functions return results in order; None: the options do not say.

    Attributes:
      options: the serialized options.
    """

    def __init__(self, input: Dataset, options: str, keeps_order: bool | None) -> None:
        self.inputs = (input,)
        self.options = options
        self._keeps_order = keeps_order

    def iterator(self, run: Pass) -> Iterator:
        if self._keeps_order is not None:
            run.keeps_order = self._keeps_order
        return self.inputs[0].iterator(run)

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()
