"""Staging areas: tuples of tensors that one step passes to another.

Entries are taken in order (`StagingArea`) or by key (`MapStagingArea`). An area may limit the number of entries and
their bytes. A put waits for room, and a get or peek for its entry.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import InvalidArgumentError, ResourceExhaustedError
from headrace.resources import hash_order
from headrace.resources.values import nbytes_of, numpy_dtype_of
from headrace.resources.waiting import NOT_YET, Cancel, Done, Waiting

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.resources.account import Account
    from headrace.resources.values import Value

T = TypeVar("T")


class _Area(Waiting):
    """Base of both kinds of staging areas.

    Args:
      name: The name, for messages.
      capacity: The largest number of entries; 0 for any number.
      memory_limit: The largest number of bytes; 0 for any number.
    """

    def __init__(self, name: str, capacity: int = 0, memory_limit: int = 0) -> None:
        super().__init__(name)
        self._capacity = capacity
        self._memory_limit = memory_limit
        self._bytes = 0
        self.account: Account | None = None  # the account on a device with a memory limit

    def _check_fits(self, tensors: Sequence[Value]) -> int:
        """The bytes of an entry; `ResourceExhaustedError` if they exceed the memory limit."""
        n = sum(map(nbytes_of, tensors))
        if self._memory_limit and n > self._memory_limit:
            raise ResourceExhaustedError(
                f"Attempted to insert tensors with combined size of '{n}' bytes into Staging Area with a memory limit "
                f"of '{self._memory_limit}'."
            )
        return n

    def _hold(self, n: int) -> None:
        """Adds `n` bytes, possibly negative; `ResourceExhaustedError` if the device has no room."""
        if self.account is not None:
            self.account.add(n)
        self._bytes += n

    def release(self) -> None:
        """Cancels all waiting requests and drops all entries."""
        super().release()
        if self.account is not None:
            self.account.clear()

    def _has_bytes(self, n: int) -> bool:
        return not self._memory_limit or self._bytes + n <= self._memory_limit

    def _locked(self, f: Callable[[], T]) -> T:
        """Runs `f` with the lock held, and then serves requests that waited for its changes."""
        with self._lock:
            result = f()
        self._serve()
        return result


class StagingArea(_Area):
    """First-in-first-out staging area behind Stage, Unstage and StagePeek."""

    def __init__(self, name: str, capacity: int = 0, memory_limit: int = 0) -> None:
        super().__init__(name, capacity, memory_limit)
        self._entries: deque[tuple[Value, ...]] = deque()

    def put(self, tensors: Sequence[Value], done: Done) -> Cancel:
        """Adds an entry when there is room.

        Args:
          tensors: The entry.
          done: Receives None after the addition, or an exception.

        Returns:
          A function that cancels the request if it still waits.

        Raises:
          ResourceExhaustedError: The entry exceeds the memory limit.
        """
        n = self._check_fits(tensors)

        def attempt() -> Any:
            if (self._capacity and len(self._entries) >= self._capacity) or not self._has_bytes(n):
                return NOT_YET
            self._hold(n)
            self._entries.append(tuple(tensors))
            return None

        return self._ask(attempt, done, "Stage")

    def get(self, types: Sequence[DType], done: Done) -> Cancel:
        """Takes the oldest entry, which must have the dtypes `types`; `done` receives it."""

        def attempt() -> Any:
            if not self._entries:
                return NOT_YET
            _check_types(self._entries[0], types)
            entry = self._entries.popleft()
            self._hold(-sum(map(nbytes_of, entry)))
            return entry

        return self._ask(attempt, done, "Unstage")

    def peek(self, index: int, types: Sequence[DType], done: Done) -> Cancel:
        """Reads the entry at position `index` without removing it; `done` receives it.

        Args:
          index: The number of older entries.
          types: The dtypes that the entry must have.
          done: Receives the entry, or an exception.

        Returns:
          A function that cancels the request if it still waits.

        Raises:
          InvalidArgumentError: `index` is negative.
        """
        if index < 0:
            raise InvalidArgumentError(f"index must be at least 0, got {index}")

        def attempt() -> Any:
            if index >= len(self._entries):
                return NOT_YET
            _check_types(self._entries[index], types)
            return self._entries[index]

        return self._ask(attempt, done, "StagePeek")

    def size(self) -> int:
        """Number of entries."""
        return len(self._entries)

    def clear(self) -> None:
        """Drops all entries."""

        def drop() -> None:
            self._entries.clear()
            self._hold(-self._bytes)

        self._locked(drop)


class MapStagingArea(_Area):
    """Staging area with integer keys, behind MapStage and MapUnstage.

    An entry may be put in parts, and be taken in parts when it is complete.

    Args:
      name: The name, for messages.
      width: The number of tensors of a complete entry.
      ordered: Whether a get without a key takes the entry of the smallest key (OrderedMapStage). Otherwise it takes the
        first in the order of a C++ hash table, which is usually the entry that was completed last.
      capacity: The largest number of complete entries; 0 for any number.
      memory_limit: The largest number of bytes; 0 for any number.
    """

    def __init__(self, name: str, width: int, ordered: bool, capacity: int = 0, memory_limit: int = 0) -> None:
        super().__init__(name, capacity, memory_limit)
        self._width = width
        self._ordered = ordered
        self._whole: dict[int, dict[int, Value]] = {}
        self._parts: dict[int, dict[int, Value]] = {}

    def put(self, key: int, indices: Sequence[int], tensors: Sequence[Value], done: Done) -> Cancel:
        """Adds an entry or parts of one when there is room.

        An entry whose key already exists is dropped.

        Args:
          key: The key of the entry.
          indices: The positions of the tensors in the entry.
          tensors: The tensors.
          done: Receives None after the addition, or an exception.

        Returns:
          A function that cancels the request if it still waits.

        Raises:
          InvalidArgumentError: `indices` are not ascending, out of range, or not as many as `tensors`.
          ResourceExhaustedError: The tensors exceed the memory limit.
        """
        self._check_indices(key, indices)
        if len(indices) != len(tensors):
            raise InvalidArgumentError(f"{len(indices)} indices for {len(tensors)} tensors; give one for each")
        n = self._check_fits(tensors)
        given = dict(zip(indices, tensors, strict=True))

        def attempt_whole() -> Any:
            if (self._capacity and len(self._whole) >= self._capacity) or not self._has_bytes(n):
                return NOT_YET
            if key not in self._whole:
                self._hold(n)
                self._whole[key] = given
            return None

        def attempt_part() -> Any:
            there = self._parts.get(key, {})
            for i in indices:
                if i in there:
                    raise InvalidArgumentError(
                        f"The tensor for index '{i}' for key '{key}' was already initialized '{self._width}'."
                    )
            if not self._has_bytes(n):
                return NOT_YET
            self._hold(n)
            there = self._parts[key] = {**there, **given}
            if len(there) == self._width:
                del self._parts[key]
                if self._whole.setdefault(key, there) is not there:
                    self._hold(-sum(map(nbytes_of, there.values())))
            return None

        return self._ask(attempt_whole if len(indices) == self._width else attempt_part, done, "MapStage")

    def get(self, key: int | None, indices: Sequence[int], types: Sequence[DType], done: Done) -> Cancel:
        """Takes parts of an entry.

        Args:
          key: The key of the entry; None for any entry.
          indices: The positions of the parts.
          types: The dtypes that the parts must have.
          done: Receives `(key, tensors)`, or an exception.

        Returns:
          A function that cancels the request if it still waits.

        Raises:
          InvalidArgumentError: `indices` are not ascending or out of range.
        """
        self._check_indices(key, indices)

        def attempt() -> Any:
            if not self._whole or (key is not None and key not in self._whole):
                return NOT_YET
            found = self._first() if key is None else key
            tensors = self._taken(found, indices, types)
            entry = self._whole[found]
            for i in indices:
                del entry[i]
            if not entry:
                del self._whole[found]
            self._hold(-sum(map(nbytes_of, tensors)))
            return found, tensors

        return self._ask(attempt, done, "MapUnstage")

    def peek(self, key: int, indices: Sequence[int], types: Sequence[DType], done: Done) -> Cancel:
        """Reads parts of an entry without removing them.

        Args:
          key: The key of the entry.
          indices: The positions of the parts.
          types: The dtypes that the parts must have.
          done: Receives the tensors, or an exception.

        Returns:
          A function that cancels the request if it still waits.

        Raises:
          InvalidArgumentError: `indices` are not ascending or out of range.
        """
        self._check_indices(key, indices)

        def attempt() -> Any:
            return self._taken(key, indices, types) if key in self._whole else NOT_YET

        return self._ask(attempt, done, "MapPeek")

    def size(self) -> int:
        """Number of complete entries."""
        return len(self._whole)

    def incomplete_size(self) -> int:
        """Number of entries with missing parts."""
        return len(self._parts)

    def clear(self) -> None:
        """Drops all entries."""

        def drop() -> None:
            self._whole.clear()
            self._parts.clear()
            self._hold(-self._bytes)

        self._locked(drop)

    def _check_indices(self, key: int | None, indices: Sequence[int]) -> None:
        for a, b in itertools.pairwise(indices):
            if a >= b:
                raise InvalidArgumentError(f"Indices are not strictly ordered: {list(indices)}")
        for i in indices:
            if not 0 <= i < self._width:
                raise InvalidArgumentError(f"Index '{i}' for key '{key}' was out of bounds '{self._width}'.")

    def _first(self) -> int:
        if self._ordered:
            return min(self._whole)
        keys = list(self._whole)
        return keys[hash_order.unordered(list(map(hash_order.hash_of, keys)))[0]]

    def _taken(self, key: int, indices: Sequence[int], types: Sequence[DType]) -> tuple[Value, ...]:
        entry = self._whole[key]
        for i in indices:
            if i not in entry:
                raise InvalidArgumentError(f"Tensor at index '{i}' for key '{key}' has already been removed.")
        tensors = tuple(entry[i] for i in indices)
        _check_types(tensors, types)
        return tensors


def _check_types(tensors: Sequence[Value], types: Sequence[DType]) -> None:
    """Raises `InvalidArgumentError` unless the dtypes of `tensors` are `types`."""
    if len(tensors) != len(types):
        raise InvalidArgumentError(f"Mismatch stage/unstage: {len(tensors)} vs. {len(types)}")
    for i, (tensor, dtype) in enumerate(zip(tensors, types, strict=True)):
        if numpy_dtype_of(tensor) != dtype.numpy:
            raise InvalidArgumentError(
                f"Mismatch stage/unstage: tensor {i} has dtype {numpy_dtype_of(tensor)}, and {dtype.name} is asked for"
            )
