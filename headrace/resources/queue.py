"""Queues between steps: FIFO queues, and the requests of all kinds of queues.

No call blocks and no thread is started. A request (enqueue, dequeue, close) is an *attempt* in one of two lines, one
for enqueues and closes, one for dequeues. A call that changes the queue runs both lines from the front until neither
can proceed. Then it calls the `done` functions of the finished attempts, with the lock released:

    enqueue line    e1 (3 of 5 elements in) → close → e2        each waits until the previous one is finished;
    dequeue line    d1 (has 2 of 4) → d2                        an attempt that does a part stays in front
    elements        [ ... ]                                     stored by the subclass

A request that finds the queue full (or too empty) stays in its line, and is finished by a later call, on the thread of
that call. It can be cancelled while it waits. Then the elements that it has taken return to the queue, so a cancelled
step loses nothing. (TensorFlow drops them.)
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
Done: TypeAlias = Callable[[Any], None]  # receives the result, or the exception
Cancel: TypeAlias = Callable[[], bool]  # returns whether the request was still waiting


class _Attempt(abc.ABC):
    """Unfinished request.

    Attributes:
      done: The function that receives the result.
      result: The result, or an exception.
    """

    __slots__ = ("done", "result")

    def __init__(self, done: Done) -> None:
        self.done = done
        self.result: Any = None

    @abc.abstractmethod
    def run(self, queue: Queue) -> bool:
        """Proceeds as far as possible; returns whether `result` is set. The lock is held."""

    def undo(self, queue: Queue) -> None:  # noqa: B027 - most attempts have nothing to return
        """Returns what it has taken, and ends the attempt. The queue's lock is held."""


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
                except ResourceExhaustedError as e:  # elements that were already added stay
                    self.result = e
                    return True
            queue._put(self.elements.popleft())
        return not self.elements


class _Close(_Attempt):
    """Close request in the enqueue line, so that earlier enqueues are completed first."""

    __slots__ = ()

    def run(self, queue: Queue) -> bool:
        if queue._closed:
            self.result = CancelledError(f"{queue.describe()} is already closed.")
        queue._closed = True
        return True


class _Dequeue(_Attempt):
    """Dequeue request for several elements.

    Attributes:
      wanted: The number of elements.
      may_be_fewer: Whether to take the remaining elements if the queue is closed.
      pack: Makes the result of the elements.
      taken: The elements taken so far.
    """

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
        except Exception as e:  # for example out of memory: the request fails, and the elements stay
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
    """Queue of elements, each a tuple of component tensors. Thread safe; no call waits.

    A subclass implements the storage of elements: `_put`, `_take`, `_put_back`, `size` and, if some elements may not be
    taken, `_available`. If shapes may differ, it also implements the checks and batches: `_check_shape`, `_batch`.

    Attributes:
      partial_shapes: Whether shapes with unknown dimensions are allowed.
      in_parts: Whether a request for several elements may take some now and the rest later.
      name: The name, for messages.
      component_types: The dtype of each component.
      shapes: The shape of each component, or () for any shapes.
      capacity: The largest number of elements; None for any number.
      account: The account of the elements in the device's memory; None if they are not counted. An enqueue without
        room fails.
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
        """Makes an empty queue.

        Raises:
          InvalidArgumentError: The number of shapes is neither 0 nor that of the components, or a shape is not fully
            known.
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
        """Replaces the locks after a fork and drops requests of the parent; see `forking`."""
        self._lock = threading.Lock()
        self._enqueues.clear()
        self._dequeues.clear()

    # *** requests; each calls `done` exactly once, at once or later ***

    def enqueue(self, element: Sequence[Value], done: Done) -> Cancel:
        """Adds one element.

        Args:
          element: The components.
          done: Receives None, a CancelledError if the queue is closed, or a ResourceExhaustedError if the device has no
            memory for the element.

        Returns:
          A function that cancels the request if it still waits.

        Raises:
          InvalidArgumentError: The element does not match the components.
        """
        self._check_tuple(element)
        for i, v in enumerate(element):
            if self.shapes:
                self._check_shape(i, shape_of(v), self.shapes[i])
        return self._submit(_Enqueue([tuple(element)], done), self._enqueues)

    def enqueue_many(self, batch: Sequence[Value], done: Done) -> Cancel:
        """Adds the rows of `batch`, one element each, as room becomes available.

        Args:
          batch: The batch of each component.
          done: As for `enqueue`.

        Returns:
          A function that cancels the request if it still waits.

        Raises:
          InvalidArgumentError: The batch does not match the components.
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
        """Takes one element; `done` receives it, or an OutOfRangeError if closed and empty."""
        return self._submit(_Dequeue(1, False, lambda taken: taken[0], done), self._dequeues)

    def dequeue_many(self, n: int, done: Done, may_be_fewer: bool = False) -> Cancel:
        """Takes `n` elements, as they become available, as one tuple of batches.

        Args:
          n: The number of elements.
          done: Receives the tuple, or an OutOfRangeError if the queue is closed and has too few elements.
          may_be_fewer: Whether to take the remaining elements, at least one, if the queue is closed
            (QueueDequeueUpTo).

        Returns:
          A function that cancels the request if it still waits.

        Raises:
          InvalidArgumentError: `n` is negative, or the shapes of the components are unknown.
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
        """Closes the queue to further elements.

        Args:
          done: Receives None when the queue is closed, or a CancelledError if it was closed before (not with
            `cancel_pending`).
          cancel_pending: Whether to cancel waiting enqueues and close at once, instead of after them.
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
        """Closes the queue and cancels all waiting requests."""
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
        """Number of elements."""

    @property
    def is_closed(self) -> bool:
        """Whether further enqueues fail."""
        return self._closed

    def check_same(self, other: Queue) -> None:
        """Checks an op that shares this queue by name but declares `other`.

        Raises:
          InvalidArgumentError: They differ in kind, capacity, component types, shapes or another declared property.
        """
        mine = self._declaration()
        for what, wanted in other._declaration().items():
            if mine.get(what) != wanted:
                raise InvalidArgumentError(
                    f"Shared queue '{self.name}' has {what} {mine.get(what)} but requested {what} was {wanted}"
                )

    def describe(self) -> str:
        """Kind and name of the queue, for messages."""
        return f"{type(self).__name__} '{self.name}'"

    def __repr__(self) -> str:
        waiting = len(self._enqueues) + len(self._dequeues)
        notes = f"{self.size()} elements" + (f", {waiting} waiting" if waiting else "")
        return f"{type(self).__name__}({self.name!r}, {notes}{', closed' if self._closed else ''})"

    # *** for subclasses; the lock is held ***

    @abc.abstractmethod
    def _put(self, element: Element) -> None:
        """Adds an element."""

    @abc.abstractmethod
    def _take(self) -> Element:
        """Removes the next element; called only if `_available()`."""

    @abc.abstractmethod
    def _put_back(self, elements: Sequence[Element]) -> None:
        """Undoes the `_take`s that returned these elements, in that order."""

    def _declaration(self) -> dict[str, object]:
        """Properties that ops that share this queue must declare equally; the kind comes first."""
        return {
            "type": type(self).__name__,
            "capacity": self.capacity,
            "component types": self.component_types,
            "component shapes": self.shapes,
        }

    def _available(self) -> int:
        """Number of elements that may be taken now."""
        return self.size()

    def _admit(self, of: Account, element: Element) -> None:
        """Counts an element before it is added; `ResourceExhaustedError` without room."""
        of.add(account.size(element))

    def _is_full(self) -> bool:
        return self.capacity is not None and self.size() >= self.capacity

    def _check_shape(self, i: int, shape: tuple[int, ...], wanted: Shape) -> None:
        if not shapes.fits(shape, wanted):
            raise InvalidArgumentError(
                f"Shape mismatch in tuple component {i}. Expected {shapes.show(wanted)}, got {shapes.show(shape)}"
            )

    def _batch(self, elements: list[Element]) -> Element:
        """Components of the elements, each stacked along a new first dimension."""
        columns: Sequence[Sequence[Value]] = list(zip(*elements, strict=True)) or [()] * len(self.shapes)
        return tuple(
            values.stack(column, dtype, tuple(d or 0 for d in shape or ()))
            for column, dtype, shape in zip(columns, self.component_types, self.shapes, strict=True)
        )

    # *** internal ***

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
            self._flush()  # the attempt may have blocked others
            return True

        return cancel

    def _flush(self) -> None:
        """Runs both lines as far as possible."""
        finished: list[_Attempt] = []
        with self._lock:
            while self._run(self._enqueues, finished) | self._run(self._dequeues, finished):
                pass
        _finish(finished)

    def _run(self, line: deque[_Attempt], finished: list[_Attempt]) -> bool:
        """Runs one line; returns True if the other line may proceed because of it."""
        before = self.size(), self._closed, len(finished)
        while line and line[0].run(self):
            finished.append(line.popleft())
        return before != (self.size(), self._closed, len(finished))


class FIFOQueue(Queue):
    """First-in-first-out queue behind FIFOQueueV2."""

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
        """Number of elements."""
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
