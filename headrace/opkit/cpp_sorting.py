"""C++'s `std::sort` and TensorFlow's top-N heap, for keys without a total order: NaN.

A comparison with NaN is false in both directions. So the places of such keys depend on which pairs are compared. This
module has the algorithms of GNU's libstdc++ and TensorFlow's `TopN`, comparison by comparison. They are used only for
rows that contain NaN.

Source: libstdc++'s `bits/stl_algo.h` and `bits/stl_heap.h`; TensorFlow's `tensorflow/core/lib/gtl/top_n.h`.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence
from typing import Final, TypeAlias

Items: TypeAlias = MutableSequence[int]
Before: TypeAlias = Callable[[int, int], bool]  # whether the first argument precedes the second

#: Length of the longest part that is sorted by insertion.
FEW: Final = 16


def sort(items: Items, before: Before) -> None:
    """Sorts `items` in place as `std::sort` does.

    NaN can make that algorithm leave the range; here it stops at the end of the range.
    """
    _partition_all(items, 0, len(items), 2 * max(len(items).bit_length() - 1, 0), before)
    few = min(len(items), FEW)
    for i in range(1, few):
        if before(items[i], items[0]):
            items.insert(0, items.pop(i))
        else:
            _insert(items, i, before)
    for i in range(few, len(items)):
        _insert(items, i, before)


def _insert(items: Items, i: int, before: Before) -> None:
    """Moves item `i` forward past the items that it precedes."""
    x = items[i]
    while i > 0 and before(x, items[i - 1]):
        items[i] = items[i - 1]
        i -= 1
    items[i] = x


def _partition_all(items: Items, first: int, last: int, depth: int, before: Before) -> None:
    """Partitions the items into parts of at most `FEW`, as an introsort does.

    A part that is still longer after `depth` partitions is sorted by a heap.
    """
    while last - first > FEW:
        if depth == 0:
            part = list(items[first:last])
            make_heap(part, before)
            sort_heap(part, before)
            items[first:last] = part
            return
        depth -= 1
        cut = _partition(items, first, last, before)
        _partition_all(items, cut, last, depth, before)
        last = cut


def _partition(items: Items, first: int, last: int, before: Before) -> int:
    """Partitions the items by the median of three; returns the start of the second part."""
    a, b, c = first + 1, first + (last - first) // 2, last - 1
    if before(items[a], items[b]):
        pivot = b if before(items[b], items[c]) else c if before(items[a], items[c]) else a
    else:
        pivot = a if before(items[a], items[c]) else c if before(items[b], items[c]) else b
    items[first], items[pivot] = items[pivot], items[first]
    low, high, x = first + 1, last, items[first]
    while True:
        while low < len(items) - 1 and before(items[low], x):
            low += 1
        high -= 1
        while high > 0 and before(x, items[high]):
            high -= 1
        if low >= high:
            return low
        items[low], items[high] = items[high], items[low]
        low += 1


# *** heaps, with the last item in order at the front ***


def make_heap(items: Items, before: Before) -> None:
    """Orders the items as a heap (`std::make_heap`)."""
    for parent in range((len(items) - 2) // 2, -1, -1):
        _sink(items, parent, len(items), items[parent], before)


def pop_heap(items: Items, before: Before, size: int | None = None) -> None:
    """Moves the front of a heap of the first `size` items to their end (`std::pop_heap`)."""
    last = (len(items) if size is None else size) - 1
    if last > 0:
        x, items[last] = items[last], items[0]
        _sink(items, 0, last, x, before)


def sort_heap(items: Items, before: Before) -> None:
    """Sorts a heap (`std::sort_heap`)."""
    for size in range(len(items), 1, -1):
        pop_heap(items, before, size)


def _sink(items: Items, hole: int, size: int, x: int, before: Before) -> None:
    top, child = hole, hole
    while child < (size - 1) // 2:
        child = 2 * (child + 1)
        if before(items[child], items[child - 1]):
            child -= 1
        items[hole] = items[child]
        hole = child
    if size % 2 == 0 and child == (size - 2) // 2:
        child = 2 * (child + 1)
        items[hole] = items[child - 1]
        hole = child - 1
    parent = (hole - 1) // 2
    while hole > top and before(items[parent], x):
        items[hole] = items[parent]
        hole, parent = parent, (parent - 1) // 2
    items[hole] = x


def first(count: int, limit: int, before: Before) -> list[int]:
    """Returns the `limit` first of the numbers below `count`, in order, as TensorFlow's `TopN`.

    `limit` is less than `count`.
    """
    kept: list[int] = []
    if limit == 0:
        return kept
    for x in range(count):
        if len(kept) <= limit:
            kept.append(x)
            if len(kept) == limit + 1:
                make_heap(kept, before)
                pop_heap(kept, before)
        elif before(x, kept[0]):
            kept[-1] = x  # this place contains no kept item
            pop_heap(kept, before)
    kept.pop()
    sort_heap(kept, before)
    return kept


def largest(keys: list[float], k: int) -> list[int]:
    """Returns the indices of the `k` largest keys, in the order of TensorFlow's TopK."""
    if k == 1 < len(keys):
        top = keys[0]
        for x in keys[1:]:
            top = top if top > x else x
        return [keys.index(top) if top == top else 0]
    if k < len(keys):
        return first(len(keys), k, lambda a, b: keys[b] < keys[a] or (not keys[b] > keys[a] and a < b))
    order = list(range(k))
    sort(order, lambda a, b: keys[b] < keys[a])
    i = 0
    while i < k - 1:  # of equal neighbouring keys the first index comes first
        j = i + 1
        while j < k and keys[order[i]] == keys[order[j]]:
            j += 1
        order[i:j] = sorted(order[i:j])
        i = j
    return order
