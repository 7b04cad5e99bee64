"""Order of C++'s `std::sort`, and of TensorFlow's heap of the N first, for keys that no order is defined for: NaN.

A comparison with NaN is false either way, so where such keys end up depends on which pairs are compared. These are the
algorithms of GNU's libstdc++ and TensorFlow's `TopN`, comparison by comparison. They are for the rare row that has NaN.

Source: libstdc++'s `bits/stl_algo.h` and `bits/stl_heap.h`; TensorFlow's `tensorflow/core/lib/gtl/top_n.h`.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence
from typing import Final, TypeAlias

Items: TypeAlias = MutableSequence[int]
Before: TypeAlias = Callable[[int, int], bool]  # whether the first comes before the second

_FEW: Final = 16  # so many are sorted by insertion


def sort(items: Items, before: Before) -> None:
    """Sorts `items` in place as `std::sort` does. Where that would leave the range, which NaN can cause, it stops."""
    _partition_all(items, 0, len(items), 2 * max(len(items).bit_length() - 1, 0), before)
    few = min(len(items), _FEW)
    for i in range(1, few):
        if before(items[i], items[0]):
            items.insert(0, items.pop(i))
        else:
            _insert(items, i, before)
    for i in range(few, len(items)):
        _insert(items, i, before)


def _insert(items: Items, i: int, before: Before) -> None:
    """Moves item `i` forward past those that it comes before."""
    x = items[i]
    while i > 0 and before(x, items[i - 1]):
        items[i] = items[i - 1]
        i -= 1
    items[i] = x


def _partition_all(items: Items, first: int, last: int, depth: int, before: Before) -> None:
    """Divides until no part is longer than `_FEW`; what is divided `depth` times is sorted by a heap."""
    while last - first > _FEW:
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
    """Divides the items by the median of three of them, and gives where the second part begins."""
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


# *** heaps: what comes last is at the front ***


def make_heap(items: Items, before: Before) -> None:
    """`std::make_heap`."""
    for parent in range((len(items) - 2) // 2, -1, -1):
        _sink(items, parent, len(items), items[parent], before)


def pop_heap(items: Items, before: Before, size: int | None = None) -> None:
    """`std::pop_heap` of the first `size` items: the front goes to the end, and the end into the heap."""
    last = (len(items) if size is None else size) - 1
    if last > 0:
        x, items[last] = items[last], items[0]
        _sink(items, 0, last, x, before)


def sort_heap(items: Items, before: Before) -> None:
    """`std::sort_heap`."""
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
    """The `limit` first of the numbers below `count`, fewer than all, in order, as TensorFlow's `TopN` finds them."""
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
            kept[-1] = x  # the place that holds none
            pop_heap(kept, before)
    kept.pop()
    sort_heap(kept, before)
    return kept


def largest(keys: list[float], k: int) -> list[int]:
    """The indices of the `k` largest keys, the largest first, where TensorFlow's TopK has them."""
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
    while i < k - 1:  # of equal keys that stand together the first one ranks first
        j = i + 1
        while j < k and keys[order[i]] == keys[order[j]]:
            j += 1
        order[i:j] = sorted(order[i:j])
        i = j
    return order
