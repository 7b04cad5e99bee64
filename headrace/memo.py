"""Bounded memos: caches with a limit that `hr.report()` lists.

A `Memo` keeps values by key up to a limit of their number, or of their size, and drops those that were used least
recently (LRU). Every memo is known
to this module by a weak reference, so `statistics` can count entries, hits and misses of all memos of the process.
`cached` does the same for a pure function, with the speed of `functools.lru_cache`.

A look-up takes no lock: it reads a dictionary and writes the time of the last use into the entry, where the time is
the number of hits so far. If several threads look up at once, a hit may be left uncounted, which changes no result.
Additions and removals take the memo's lock. A forked process gets new locks (`forking`).
"""

from __future__ import annotations

import functools
import heapq
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from headrace.forking import run_after_fork
from headrace.records import record

K = TypeVar("K")
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])

# An addition to a full memo drops limit / _PORTION entries, at least one: finding them takes a pass over all entries.
_PORTION: Final = 64


class Memo(Generic[K, V]):
    """A mapping of bounded size that drops the entries used least recently. Thread-safe.

    Args:
      name: The name in `hr.report()`, which memos of one kind share.
      limit: the greatest size of all values together.
      size_of: The size of a value, in any unit; by default each value counts 1.

    Attributes:
      name: the argument.
      limit: the argument. A value that is larger stays until the next one is added.
      size: the size of all values together.
      hits: look-ups that found a value.
      misses: look-ups that found none.

    Example:
      >>> squares = Memo("squares", 2)
      >>> for i in range(3):
      ...     squares.put(i, i * i)
      >>> squares.get(2), squares.get(0), len(squares)
      (4, None, 2)
    """

    __slots__ = ("__weakref__", "_entries", "_lock", "_size_of", "hits", "limit", "misses", "name", "size")

    def __init__(self, name: str, limit: int, size_of: Callable[[V], int] = lambda value: 1) -> None:
        if limit < 1:
            raise ValueError(f"the memo {name!r} must have room for at least 1 entry, got the limit {limit}")
        self.name = name
        self.limit = limit
        self.size = 0
        self.hits = 0
        self.misses = 0
        self._size_of = size_of
        self._entries: dict[K, list[Any]] = {}  # [value, hits at its last use, size]
        self._lock = threading.RLock()  # the collector may free, inside of `put`, an object that calls `clear`
        with _registering:
            _memos.add(self)

    def get(self, key: K) -> V | None:
        """The value of `key`, which becomes the most recently used; None if there is none.

        Raises:
          TypeError: `key` cannot be hashed.
        """
        try:
            entry = self._entries[key]  # faster than `dict.get` where the key is there
        except KeyError:
            self.misses += 1
            return None
        entry[1] = self.hits = self.hits + 1
        value: V = entry[0]
        return value

    def put(self, key: K, value: V) -> None:
        """Keeps `value`, which replaces an older one of `key`; drops entries that become too many.

        Raises:
          TypeError: `key` cannot be hashed.
        """
        size = self._size_of(value)
        with self._lock:
            dropped = [self._remove(key)]  # freed after the lock is
            self._entries[key] = [value, self.hits, size]
            self.size += size
            if self.size > self.limit:
                until = min(self.limit, self.size - self.limit // _PORTION)
                oldest = [(entry[1], i, old) for i, (old, entry) in enumerate(self._entries.items())][:-1]
                heapq.heapify(oldest)
                while oldest and self.size > until:
                    dropped.append(self._remove(heapq.heappop(oldest)[2]))

    def _remove(self, key: K) -> list[Any] | None:
        """Removes an entry and returns it; the caller holds the lock."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= entry[2]
        return entry

    def pop(self, key: K) -> V | None:
        """Removes `key` and returns its value; None if there is none. Counts as a look-up."""
        with self._lock:
            value = self.get(key)
            self._remove(key)
        return value

    def clear(self) -> None:
        """Removes all entries."""
        with self._lock:
            old, self._entries, self.size = self._entries, {}, 0
        del old  # its values are freed without the lock

    def values(self) -> list[V]:
        """The values, in the order of their addition."""
        with self._lock:
            return [entry[0] for entry in self._entries.values()]

    def items(self) -> list[tuple[K, V]]:
        """The keys with their values, in the order of their addition."""
        with self._lock:
            return [(key, entry[0]) for key, entry in self._entries.items()]

    def __contains__(self, key: K) -> bool:
        """Whether there is a value of `key`. Does not count as a look-up."""
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        of_size = f" entries of size {self.size}" if self.size != len(self) else ""
        return f"<Memo {self.name!r}: {len(self)}{of_size} of {self.limit}, {self.hits} hits, {self.misses} misses>"


def cached(limit: int, name: str) -> Callable[[F], F]:
    """Decorator that keeps the results of a pure function by its arguments.

    The arguments must be hashable.

    Args:
      limit: the greatest number of results.
      name: The name in `hr.report()`.

    Example:
      >>> @cached(16, "squares")
      ... def square(x: int) -> int:
      ...     return x * x
      >>> square(3), square(3)
      (9, 9)
    """

    def decorate(f: F) -> F:
        made: Any = functools.lru_cache(limit)(f)
        with _registering:
            _functions.append((name, weakref.ref(made)))
        out: F = made
        return out

    return decorate


@record(frozen=True, slots=True)
class MemoStatistics:
    """Use of all memos of one name.

    Attributes:
      name: their name.
      memos: their number.
      entries: of all of them together.
      size: of all values together: their number, where the memos have no other measure.
      limit: the greatest size of each.
      hits: look-ups that found a value.
      misses: look-ups that found none.
    """

    name: str
    memos: int
    entries: int
    size: int
    limit: int
    hits: int
    misses: int


def statistics() -> list[MemoStatistics]:
    """Use of the memos of this process, sorted by name."""
    out: dict[str, MemoStatistics] = {}
    for one in _each():
        known = out.get(one.name)
        if known is not None:
            one = MemoStatistics(
                one.name,
                known.memos + 1,
                known.entries + one.entries,
                known.size + one.size,
                max(known.limit, one.limit),
                known.hits + one.hits,
                known.misses + one.misses,
            )
        out[one.name] = one
    return [out[name] for name in sorted(out)]


def _each() -> Iterator[MemoStatistics]:
    with _registering:
        memos, functions = list(_memos), list(_functions)
    for memo in memos:
        yield MemoStatistics(memo.name, 1, len(memo), memo.size, memo.limit, memo.hits, memo.misses)
    for name, reference in functions:
        function = reference()
        if function is not None:
            info = function.cache_info()
            yield MemoStatistics(name, 1, info.currsize, info.currsize, info.maxsize, info.hits, info.misses)


_registering = threading.RLock()
_memos: Final[weakref.WeakSet[Memo[Any, Any]]] = weakref.WeakSet()
_functions: Final[list[tuple[str, weakref.ref[Any]]]] = []


def _forked() -> None:
    global _registering
    _registering = threading.RLock()
    for memo in list(_memos):
        memo._lock = threading.RLock()


run_after_fork(_forked)
