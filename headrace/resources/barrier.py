"""Barriers: tuples whose components arrive one by one, by key, and are taken when complete."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes, forking, shapes
from headrace.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from headrace.resources import values
from headrace.resources.account import size
from headrace.resources.queue import Cancel, Done
from headrace.resources.queue_kinds import PriorityQueue
from headrace.resources.values import numpy_dtype_of, shape_of

if TYPE_CHECKING:
    import numpy as np

    from headrace.dtypes import DType
    from headrace.resources.account import Account
    from headrace.resources.queue import Element
    from headrace.resources.values import Value
    from headrace.shapes import Shape

_FIRST = -(2**63)  # the index of the first insertion


class _Ready(PriorityQueue):
    """Queue of the complete tuples, ordered by the insertion of their first component."""

    def describe(self) -> str:
        return f"Barrier '{self.name}'"

    def _admit(self, of: Account, element: Element) -> None:
        pass  # the barrier has already counted it


class Barrier:
    """Barrier behind the op Barrier. Thread safe; no call waits.

    Attributes:
      name: The name, for messages.
      component_types: The dtype of each component.
      shapes: The shape of each component.
      account: The account of the components in the device's memory; None if they are not counted.
    """

    def __init__(self, name: str, component_types: Sequence[DType], component_shapes: Sequence[Shape]) -> None:
        """Makes an empty barrier.

        Raises:
          InvalidArgumentError: A component has no shape, or a shape is not fully known.
        """
        if len(component_shapes) != len(component_types):
            raise InvalidArgumentError(
                f"All of the component shapes must be specified: there are {len(component_types)} component types and "
                f"{len(component_shapes)} shapes"
            )
        self.name = name
        self.component_types = tuple(component_types)
        # an unknown rank is treated as rank 0, as in TensorFlow
        self.shapes = tuple(s or () for s in component_shapes)
        self._ready = _Ready(name, (dtypes.string, *self.component_types), ((), *self.shapes))
        self._lock = threading.Lock()
        self._incomplete: dict[bytes, tuple[int, dict[int, Value]]] = {}  # the index and the components so far
        self._index = _FIRST
        self._arriving = 0  # insertions that are about to reach `_ready`
        self._closed = False
        self._cancelled = False
        self.account: Account | None = None
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock after a fork; see `forking`."""
        self._lock = threading.Lock()

    def ready_size(self) -> int:
        """Number of complete tuples."""
        return self._ready.size()

    def incomplete_size(self) -> int:
        """Number of keys with missing components."""
        return len(self._incomplete)

    def insert_many(self, keys: np.ndarray, component: int, batch: Value) -> None:
        """Sets one component of the tuples of `keys` to the rows of `batch`.

        Raises:
          InvalidArgumentError: The component does not exist, the batch does not fit it, or a key already has it.
          CancelledError: The barrier is closed, and a key is new or all keys are complete or cancelled.
        """
        wanted = keys.reshape(-1).tolist()
        rows = self._rows(len(wanted), component, batch)
        ready: list[tuple[Value, ...]] = []
        with self._lock:
            if self._closed and (self._cancelled or (wanted and not self._incomplete)):
                raise CancelledError(
                    f"Barrier {self.name} is closed.  Pending enqueues cancelled: {int(self._cancelled)}.  "
                    f"Number of new insertions: {len(wanted)}.  Number of incomplete keys: {len(self._incomplete)}."
                )
            new = False
            for key, row in zip(wanted, rows, strict=True):
                new |= self._insert(key, component, row, ready)
            self._index += new
            self._arriving += 1
        for element in ready:
            self._ready.enqueue(element, lambda result: None)  # its capacity is unlimited
        with self._lock:
            self._arriving -= 1
            over = self._is_over()
        if over:
            self._ready.close(lambda result: None)

    def take_many(self, n: int, done: Done, may_be_fewer: bool = False) -> Cancel | None:
        """Takes `n` complete tuples.

        Args:
          n: The number of tuples.
          done: Receives `(indices, keys, *components)`, each stacked, or an OutOfRangeError if the barrier is closed
            and too few tuples remain.
          may_be_fewer: Whether to take fewer tuples, at least one, if the barrier is closed.

        Returns:
          A function that cancels the request if it still waits; None if it failed at once.

        Raises:
          InvalidArgumentError: `n` is negative.
        """
        with self._lock:
            if self._closed:
                there = self._ready.size()
                if may_be_fewer:
                    n = min(n, there)
                else:
                    there += len(self._incomplete)
                if there < max(n, 1):
                    done(
                        OutOfRangeError(
                            f"Barrier '{self.name}' is closed and has insufficient elements (requested {n}, total size "
                            f"{there})"
                        )
                    )
                    return None
        return self._ready.dequeue_many(n, done, may_be_fewer)

    def close(self, cancel_pending: bool = False) -> None:
        """Closes the barrier to new keys, and with `cancel_pending` also to further components.

        Raises:
          CancelledError: The barrier was closed before, except for the first call with `cancel_pending`.
        """
        with self._lock:
            if self._closed and (self._cancelled or not cancel_pending):
                raise CancelledError(f"Barrier '{self.name}' is already closed.")
            self._closed = True
            self._cancelled = cancel_pending
            if cancel_pending:
                if self.account is not None:
                    self.account.remove(sum(size(c.values()) for _, c in self._incomplete.values()))
                self._incomplete.clear()
            over = self._is_over() and not self._ready.is_closed
        if over:
            self._ready.close(lambda result: None)

    def release(self) -> None:
        """Closes the barrier and cancels all waiting requests."""
        with self._lock:
            self._closed = self._cancelled = True
            self._incomplete.clear()
        self._ready.release()
        if self.account is not None:
            self.account.clear()

    def check_same(self, other: Barrier) -> None:
        """Checks an op that shares this barrier by name but declares `other`.

        Raises:
          InvalidArgumentError: They differ in component types or shapes.
        """
        for what, mine, wanted in (
            ("types", self.component_types, other.component_types),
            ("shapes", self.shapes, other.shapes),
        ):
            if mine != wanted:
                raise InvalidArgumentError(
                    f"Shared barrier '{self.name}' has component {what} {_show(mine)} but requested component {what} "
                    f"were {_show(wanted)}"
                )

    def __repr__(self) -> str:
        notes = f"{self.ready_size()} ready, {self.incomplete_size()} incomplete"
        return f"Barrier({self.name!r}, {notes}{', closed' if self._closed else ''})"

    def _rows(self, n: int, component: int, batch: Value) -> list[Value]:
        """The `n` values of a component in `batch`."""
        if not 0 <= component < len(self.component_types):
            raise InvalidArgumentError(
                f"The component ID is out of range {component} > num_components (= {len(self.component_types)})"
            )
        dtype, wanted = self.component_types[component], self.shapes[component]
        if numpy_dtype_of(batch) != dtype.numpy:
            raise InvalidArgumentError(
                f"Signature mismatch, have: {numpy_dtype_of(batch)} expected: {dtype.name}, component {component} of "
                f"{self._ready.describe()}"
            )
        shape = shape_of(batch)
        if n and 0 in shape:
            raise InvalidArgumentError(
                f"Tensors with no elements are not supported {self.name}: received shape {shapes.show(shape)}"
            )
        if n == 1 and shape == wanted == ():
            return [batch]
        if shape != (n, *wanted):
            raise InvalidArgumentError(
                f"Shape mismatch in tuple component {component}. Expected {shapes.show((n, *wanted))}, got "
                f"{shapes.show(shape)}"
            )
        return values.rows(batch, dtype)

    def _insert(self, key: bytes, component: int, row: Value, ready: list[tuple[Value, ...]]) -> bool:
        """Sets a component; moves a complete tuple to `ready`; returns whether the key is new."""
        new = key not in self._incomplete
        if new and self._closed:
            raise CancelledError(
                f"Barrier {self.name} is closed, but attempted to insert a brand new key: "
                f"{key.decode('utf-8', 'replace')}.  Number of incomplete keys: {len(self._incomplete)}."
            )
        index, components = self._incomplete.get(key, (self._index, {}))
        if component in components:
            raise InvalidArgumentError(
                f"Key {key.decode('utf-8', 'replace')} already has a value for component {component} in barrier "
                f"{self.name}"
            )
        if self.account is not None:
            is_whole = len(components) + 1 == len(self.component_types)
            self.account.add(size([row, *((_int64(index), _text(key)) if is_whole else ())]))
            self._ready.account = self.account
        components[component] = row
        self._incomplete[key] = index, components
        if len(components) == len(self.component_types):
            del self._incomplete[key]
            ready.append((_int64(index), _text(key), *(components[i] for i in range(len(components)))))
        return new

    def _is_over(self) -> bool:
        return self._closed and not self._incomplete and not self._arriving


def _int64(value: int) -> Any:
    return dtypes.int64.numpy.type(value)


def _text(value: bytes) -> np.ndarray:
    out: np.ndarray = values.zeros(dtypes.string, ())
    out[()] = value
    return out


def _show(what: Sequence[Any]) -> str:
    return "[" + ", ".join(shapes.show(w) if isinstance(w, tuple) else w.name for w in what) + "]"
