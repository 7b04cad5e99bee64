"""Queues between steps: FIFO, and the waiting machinery that every kind of queue shares.

Nothing here blocks and no thread is started. A request (enqueue, dequeue, close) is an *attempt* in one of two lines,
one for those that put elements in and one for those that take them out. Whoever changes something runs both lines from
the front until neither gets further, then, with the lock released, tells the finished attempts' `done`:

    enqueue line    e1 (3 of 5 elements in) → close → e2        each waits until the one before it is finished;
    dequeue line    d1 (has 2 of 4) → d2                        one that can do a part does it and stays in front
    elements        [ ... ]                                     how they are kept is the subclass's business

A request that finds the queue full (or too empty) simply stays, and is finished later by whichever thread makes it
possible. It can be cancelled while it waits; elements it has already taken go back to where they came from, so a step
that is given up loses nothing. (TensorFlow drops those.)
"""

from __future__ import annotations

import abc
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from headrace import forking, shapes
from headrace.errors import (
    CancelledError,
    InvalidArgumentError,
    OutOfRangeError,
    ResourceExhaustedError,
)
from headrace.resources import account, values
from headrace.resources.values import numpy_dtype_of, shape_of

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.resources.account import Account
    from headrace.resources.values import Value
    from headrace.shapes import Shape

Element: TypeAlias = "tuple[Value, ...]"
Done: TypeAlias = Callable[[Any], None]  # takes the result, or the exception
Cancel: TypeAlias = Callable[[], bool]  # whether the request was still waiting


class _Attempt(abc.ABC):
    """A request that has not finished.

    Attributes:
      done: what to tell when it has.
      result: what to tell it.
    """

    __slots__ = ("done", "result")

    def __init__(self, done: Done) -> None:
        self.done = done
        self.result: Any = None

    @abc.abstractmethod
    def run(self, queue: Queue) -> bool:
        """Does as much as it can; True when it is finished and `result` is set. The queue's lock is held."""

    def undo(self, queue: Queue) -> None:  # noqa: B027 - most have nothing to give back
        """Gives back what it has taken; it will not run again. The queue's lock is held."""


class _Enqueue(_Attempt):
    __slots__ = ("elements",)

    def __init__(self, elements: Sequence[Element], done: Done) -> None:
        super().__init__(done)
        self.elements = deque(elements)

    def run(self, queue: Queue) -> bool:
        if queue._closed:
            self.result = CancelledError(f"{queue.describe()} is closed.")
            return True
        while self.elements and not queue._is_full():
            if queue.account is not None:
                try:
                    queue._admit(queue.account, self.elements[0])
                except ResourceExhaustedError as e:  # what has gone in stays
                    self.result = e
                    return True
            queue._put(self.elements.popleft())
        return not self.elements


class _Close(_Attempt):
    """In the enqueue line, so that what was asked for before it still goes in."""

    __slots__ = ()

    def run(self, queue: Queue) -> bool:
        if queue._closed:
            self.result = CancelledError(f"{queue.describe()} is already closed.")
        queue._closed = True
        return True


class _Dequeue(_Attempt):
    """Takes `wanted` elements, or the rest if it `may_be_fewer` and the queue is closed; gives them to `pack`."""

    __slots__ = ("may_be_fewer", "pack", "taken", "wanted")

    def __init__(self, wanted: int, may_be_fewer: bool, pack: Callable[[list[Element]], Any], done: Done) -> None:
        super().__init__(done)
        self.wanted = wanted
        self.may_be_fewer = may_be_fewer
        self.pack = pack
        self.taken: list[Element] = []

    def run(self, queue: Queue) -> bool:
        if not queue.in_parts and queue._available() < self.wanted and not queue._closed:
            return False
        while len(self.taken) < self.wanted and queue._available():
            self.taken.append(queue._take())
        short = len(self.taken) < self.wanted
        if short and not queue._closed:
            return False
        if short and not (self.may_be_fewer and self.taken):
            self.undo(queue)
            self.result = OutOfRangeError(
                f"{queue.describe()} is closed and has insufficient elements "
                f"(requested {self.wanted}, current size {queue.size()})"
            )
            return True
        try:
            self.result = self.pack(self.taken)
        except Exception as e:  # out of memory, say: whoever asked is told, and the elements stay
            self.undo(queue)
            self.result = e
        else:
            if queue.account is not None:
                queue.account.remove(sum(map(account.size, self.taken)))
        return True

    def undo(self, queue: Queue) -> None:
        queue._put_back(self.taken)
        self.taken = []


class Queue(abc.ABC):
    """A queue of elements, each a tuple of component tensors. Thread safe; no call waits.

    A subclass says how elements are kept: `_put`, `_take`, `_put_back`, `size` and, if not every element may be taken,
    `_available`; and how they are checked and batched, if shapes may differ: `_check_shape`, `_batch`.

    Attributes:
      partial_shapes: whether shapes with unknown dimensions are allowed.
      in_parts: whether a request for many may take some now and the rest later.
      name: for messages.
      component_types: the dtype of each component.
      shapes: the shape of each component, or () if they may be anything.
      capacity: how many elements it holds; None for any number.
      account: counts what the elements hold of a device's memory; None: they are not counted. An enqueue for which
        there is no room fails.
    """

    partial_shapes: ClassVar[bool] = False
    in_parts: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        component_types: Sequence[DType],
        component_shapes: Sequence[Shape] = (),
        capacity: int | None = None,
    ) -> None:
        """An empty queue.

        Raises:
          InvalidArgumentError: there are shapes, but not one for each component, or one that is not fully known.
        """
        if component_shapes and len(component_shapes) != len(component_types):
            raise InvalidArgumentError(
                f"Different number of component types.  Queue {name!r} has {len(component_types)} component types, "
                f"but {len(component_shapes)} shapes; give one shape for each, or none"
            )
        for shape in component_shapes:
            if not self.partial_shapes and not shapes.is_full(shape):
                raise InvalidArgumentError(
                    f"Shape {shapes.show(shape)} is not fully defined: elements of a {type(self).__name__} are all of "
                    "one shape (PaddingFIFOQueue takes partly known ones)"
                )
        self.name = name
        self.component_types = tuple(component_types)
        self.shapes = tuple(component_shapes)
        self.capacity = capacity
        self._lock = threading.Lock()
        self._enqueues: deque[_Attempt] = deque()
        self._dequeues: deque[_Attempt] = deque()
        self._closed = False
        self.account: Account | None = None
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """See `forking`: who waits does so in the parent."""
        self._lock = threading.Lock()
        self._enqueues.clear()
        self._dequeues.clear()

    # *** requests; each calls `done` once, at once or later ***

    def enqueue(self, element: Sequence[Value], done: Done) -> Cancel:
        """Puts one element in; `done(None)`, `done(CancelledError)` if the queue is closed, or
        `done(ResourceExhaustedError)` if the device has no memory for it.

        Returns:
          A function that gives the request up if it still waits.

        Raises:
          InvalidArgumentError: the element does not fit the components.
        """
        self._check_tuple(element)
        for i, v in enumerate(element):
            if self.shapes:
                self._check_shape(i, shape_of(v), self.shapes[i])
        return self._submit(_Enqueue([tuple(element)], done), self._enqueues)

    def enqueue_many(self, batch: Sequence[Value], done: Done) -> Cancel:
        """Puts the rows of `batch` in, one element each, as room for them appears; `done` as for `enqueue`.

        Raises:
          InvalidArgumentError: the batch does not fit the components.
        """
        self._check_tuple(batch)
        n = None
        for i, v in enumerate(batch):
            shape = shape_of(v)
            if not shape:
                raise InvalidArgumentError(
                    f"Shape mismatch in tuple component {i}. Expected at least a vector of elements to enqueue, got []"
                )
            n = shape[0] if n is None else n
            if shape[0] != n:
                raise InvalidArgumentError(
                    "All input tensors must have the same size in the 0th dimension. "
                    f"Component {i} has {shape[0]}, and should have {n}"
                )
            if self.shapes:
                wanted = self.shapes[i]
                self._check_shape(i, shape, None if wanted is None else (n, *wanted))
        if not n:
            done(None)
            return _nothing_to_cancel
        rows = [values.rows(v, d) for v, d in zip(batch, self.component_types, strict=True)]
        return self._submit(_Enqueue(list(zip(*rows, strict=True)), done), self._enqueues)

    def dequeue(self, done: Done) -> Cancel:
        """Takes one element; `done(tuple)`, or `done(OutOfRangeError)` if the queue is closed and empty."""
        return self._submit(_Dequeue(1, False, lambda taken: taken[0], done), self._dequeues)

    def dequeue_many(self, n: int, done: Done, may_be_fewer: bool = False) -> Cancel:
        """Takes `n` elements, as they come, and gives them as one tuple of batches.

        Args:
          n: how many.
          done: takes the tuple, or an OutOfRangeError if the queue is closed and has too few.
          may_be_fewer: take what is left, at least one, if the queue is closed (QueueDequeueUpTo).

        Raises:
          InvalidArgumentError: `n` is negative, or the shapes of the components are not known.
        """
        if n < 0:
            raise InvalidArgumentError(f"Dequeue of many requested {n} < 0 elements from {self.describe()}")
        if not self.shapes:
            raise InvalidArgumentError(
                f"{self.describe()}: DequeueMany and DequeueUpTo require the components to have specified shapes."
            )
        if n == 0:
            done(self._batch([]))
            return _nothing_to_cancel
        return self._submit(_Dequeue(n, may_be_fewer, self._batch, done), self._dequeues)

    def close(self, done: Done, cancel_pending: bool = False) -> None:
        """Lets no further element in, once the enqueues that wait are through, or with `cancel_pending` at once.

        `done(None)` when it is closed, or `done(CancelledError)` if it was already (not with `cancel_pending`).
        """
        if not cancel_pending:
            self._submit(_Close(done), self._enqueues)
            return
        with self._lock:
            self._closed = True
            gone = list(self._enqueues)
            self._enqueues.clear()
            for attempt in gone:
                attempt.undo(self)
                attempt.result = _cancelled("Enqueue", self)
        _finish(gone)
        self._flush()
        done(None)

    def release(self) -> None:
        """Closes the queue and cancels everything that waits."""
        with self._lock:
            self._closed = True
            gone = [*self._enqueues, *self._dequeues]
            for attempt in gone:
                attempt.undo(self)
                attempt.result = _cancelled("Dequeue" if attempt in self._dequeues else "Enqueue", self)
            self._enqueues.clear()
            self._dequeues.clear()
            if self.account is not None:
                while self.size():
                    self._take()
                self.account.clear()
        _finish(gone)

    # *** state ***

    @abc.abstractmethod
    def size(self) -> int:
        """How many elements are in it."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be enqueued."""
        return self._closed

    def check_same(self, other: Queue) -> None:
        """For an op that shares this queue by name, but declares `other`.

        Raises:
          InvalidArgumentError: they differ in kind, capacity, component types, shapes or what else their kind declares.
        """
        mine = self._declaration()
        for what, wanted in other._declaration().items():
            if mine.get(what) != wanted:
                raise InvalidArgumentError(
                    f"Shared queue '{self.name}' has {what} {mine.get(what)} but requested {what} was {wanted}"
                )

    def describe(self) -> str:
        """Its kind and name, as messages show them."""
        return f"{type(self).__name__} '{self.name}'"

    def __repr__(self) -> str:
        waiting = len(self._enqueues) + len(self._dequeues)
        notes = f"{self.size()} elements" + (f", {waiting} waiting" if waiting else "")
        return f"{type(self).__name__}({self.name!r}, {notes}{', closed' if self._closed else ''})"

    # *** what a subclass says; the lock is held ***

    @abc.abstractmethod
    def _put(self, element: Element) -> None:
        """Adds an element."""

    @abc.abstractmethod
    def _take(self) -> Element:
        """Removes the element whose turn it is; only called if `_available()`."""

    @abc.abstractmethod
    def _put_back(self, elements: Sequence[Element]) -> None:
        """Undoes the `_take`s that gave these elements, in that order."""

    def _declaration(self) -> dict[str, object]:
        """What ops that share this queue must declare alike; the kind first."""
        return {
            "type": type(self).__name__,
            "capacity": self.capacity,
            "component types": self.component_types,
            "component shapes": self.shapes,
        }

    def _available(self) -> int:
        """How many elements may be taken now."""
        return self.size()

    def _admit(self, of: Account, element: Element) -> None:
        """Counts an element that is about to be put in; `ResourceExhaustedError` if there is no room."""
        of.add(account.size(element))

    def _is_full(self) -> bool:
        return self.capacity is not None and self.size() >= self.capacity

    def _check_shape(self, i: int, shape: tuple[int, ...], wanted: Shape) -> None:
        if not shapes.fits(shape, wanted):
            raise InvalidArgumentError(
                f"Shape mismatch in tuple component {i}. Expected {shapes.show(wanted)}, got {shapes.show(shape)}"
            )

    def _batch(self, elements: list[Element]) -> Element:
        """The elements' components, each stacked along a new first dimension."""
        columns: Sequence[Sequence[Value]] = list(zip(*elements, strict=True)) or [()] * len(self.shapes)
        return tuple(
            values.stack(column, dtype, tuple(d or 0 for d in shape or ()))
            for column, dtype, shape in zip(columns, self.component_types, self.shapes, strict=True)
        )

    # *** the machinery ***

    def _check_tuple(self, element: Sequence[Value]) -> None:
        if len(element) != len(self.component_types):
            raise InvalidArgumentError(
                f"Wrong number of components in tuple. Expected {len(self.component_types)}, got {len(element)}"
            )
        for i, (v, d) in enumerate(zip(element, self.component_types, strict=True)):
            if numpy_dtype_of(v) != d.numpy:
                raise InvalidArgumentError(
                    f"Type mismatch in tuple component {i}. Expected {d.name}, got {numpy_dtype_of(v)}"
                )

    def _submit(self, attempt: _Attempt, line: deque[_Attempt]) -> Cancel:
        with self._lock:
            line.append(attempt)
        self._flush()

        def cancel() -> bool:
            with self._lock:
                if attempt not in line:
                    return False
                line.remove(attempt)
                attempt.undo(self)
            attempt.result = _cancelled("Dequeue" if line is self._dequeues else "Enqueue", self)
            _finish([attempt])
            self._flush()  # it may have stood before others
            return True

        return cancel

    def _flush(self) -> None:
        """Runs both lines as far as they get."""
        finished: list[_Attempt] = []
        with self._lock:
            while self._run(self._enqueues, finished) | self._run(self._dequeues, finished):
                pass
        _finish(finished)

    def _run(self, line: deque[_Attempt], finished: list[_Attempt]) -> bool:
        """Runs one line; True if that may let the other get further."""
        before = self.size(), self._closed, len(finished)
        while line and line[0].run(self):
            finished.append(line.popleft())
        return before != (self.size(), self._closed, len(finished))


class FIFOQueue(Queue):
    """First in, first out. Serves FIFOQueueV2."""

    def __init__(
        self,
        name: str,
        component_types: Sequence[DType],
        component_shapes: Sequence[Shape] = (),
        capacity: int | None = None,
    ) -> None:
        super().__init__(name, component_types, component_shapes, capacity)
        self._elements: deque[Element] = deque()

    def size(self) -> int:
        """How many elements are in it."""
        return len(self._elements)

    def _put(self, element: Element) -> None:
        self._elements.append(element)

    def _take(self) -> Element:
        return self._elements.popleft()

    def _put_back(self, elements: Sequence[Element]) -> None:
        self._elements.extendleft(reversed(elements))


def _finish(attempts: Sequence[_Attempt]) -> None:
    for attempt in attempts:
        attempt.done(attempt.result)


def _cancelled(verb: str, queue: Queue) -> CancelledError:
    return CancelledError(f"{verb} operation was cancelled: it waited on {queue.describe()}")


def _nothing_to_cancel() -> bool:
    return False
