"""Iteration orders of C++ hash tables, in which TensorFlow's tables are exported.

* `murmur`: TensorFlow's hash of strings, MurmurHash64A (Austin Appleby) with a seed of its own.
* `unordered`: the order of a `std::unordered_map` of GCC's library. It has one list of all elements, in which those of
  a bucket are adjacent. An element of an empty bucket is inserted at the front of the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

MASK: Final = 2**64 - 1
_FACTOR = 0xC6A4A7935BD1E995
_SEED = 0xDECAFCAFFE
_FIRST = 13  # buckets of a map after its first insertion
# the next numbers of buckets: each is the smallest of the library's primes that is at least twice the previous one
_MORE: Final = (29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933, 351061, 712697, 1447153)
_MORE_STILL: Final = (2938679, 5967347, 12117689, 24607243, 49969847, 101473717, 206062531, 418458173, 849780131)


def murmur(text: bytes) -> int:
    """64-bit hash of a string."""
    whole = len(text) // 8 * 8
    h = _SEED ^ (len(text) * _FACTOR & MASK)
    for i in range(0, whole, 8):
        k = int.from_bytes(text[i : i + 8], "little") * _FACTOR & MASK
        k = (k ^ k >> 47) * _FACTOR & MASK
        h = (h ^ k) * _FACTOR & MASK
    if text[whole:]:
        h = (h ^ int.from_bytes(text[whole:], "little")) * _FACTOR & MASK
    h = (h ^ h >> 47) * _FACTOR & MASK
    return h ^ h >> 47


def hash_of(key: int | bytes) -> int:
    """Hash of a key; a number is its own hash."""
    return murmur(key) if isinstance(key, bytes) else key & MASK


def unordered(hashes: Sequence[int]) -> list[int]:
    """Iteration order of a `std::unordered_map` after insertions one by one.

    Args:
      hashes: The hashes of the elements, in the order of insertion.

    Returns:
      The indices of the elements, in iteration order.
    """
    order = _Order(hashes)
    sizes = iter((*_MORE, *_MORE_STILL))
    for i in range(len(hashes)):
        if i == order.buckets:
            order.rehash(next(sizes))
        order.put(i)
    return list(order)


class _Order:
    """Linked list of the elements' indices, with the start of each bucket."""

    def __init__(self, hashes: Sequence[int]) -> None:
        self.buckets = _FIRST
        self._hashes = hashes
        self._next: dict[int, int | None] = {-1: None}
        self._before: dict[int, int] = {}  # by bucket: the element before the first one of the bucket

    def put(self, i: int) -> None:
        bucket = self._hashes[i] % self.buckets
        before = self._before.get(bucket)
        if before is None:
            follower = self._next[-1]
            if follower is not None:
                self._before[self._hashes[follower] % self.buckets] = i
            before = self._before[bucket] = -1
        self._next[i] = self._next[before]
        self._next[before] = i

    def rehash(self, buckets: int) -> None:
        elements = list(self)
        self.buckets = buckets
        self._next, self._before = {-1: None}, {}
        for i in elements:
            self.put(i)

    def __iter__(self) -> Iterator[int]:
        at = self._next[-1]
        while at is not None:
            yield at
            at = self._next[at]
