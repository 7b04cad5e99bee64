"""Sums of the rows of each place, and places of elements, in any namespace.

The array API standard has no function that adds to given places. Sorted by place, the rows of a place are neighbours.
They are added in pairs, then in fours and so on, so that the number of steps is the logarithm of the greatest number of
rows of a place. (Hillis and Steele, "Data Parallel Algorithms", 1986.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.dtypes import int64
from headrace.opkit.namespaces import converter, dtype_in, is_near


def row_sums(xp: Any, rows: Any, places: Any, n: int) -> Any:
    """Returns the sum of the rows of each place, [n, *shape of a row].

    Args:
      xp: the namespace.
      rows: the rows, [count, *shape of a row].
      places: the place of each row, [count], all in [0, n).
      n: the number of places.
    """
    if xp is np:
        out = np.zeros((n, *rows.shape[1:]), rows.dtype)
        np.add.at(out, places, rows)
        return out
    return by_place(xp, xp.add, rows, places, n, 0)


def last_rows(xp: Any, rows: Any, places: Any, n: int, empty: Any) -> Any:
    """Returns the last row of each place, [n, *shape of a row]; see `by_place`."""
    if xp is np:
        out = np.empty((n, *rows.shape[1:]), rows.dtype)  # `np.full` takes a microsecond more
        out[...] = empty
        out[places] = rows
        return out
    return by_place(xp, lambda old, new: new, rows, places, n, empty)


def by_place(xp: Any, f: Callable[[Any, Any], Any], rows: Any, places: Any, n: int, empty: Any) -> Any:
    """Returns the rows of each place combined by `f`, [n, *shape of a row].

    Args:
      xp: the namespace.
      f: an associative function of two arrays of rows, the earlier ones first.
      rows: the rows, [count, *shape of a row].
      places: the place of each row, [count]; rows of places outside of [0, n) are dropped.
      n: the number of places.
      empty: the number for places without rows, or an array of it.
    """
    count, width = rows.shape[0], (1,) * (rows.ndim - 1)
    shape = (n, *rows.shape[1:])
    if isinstance(empty, (int, float)):
        out = xp.full(shape, empty, dtype=rows.dtype, device=rows.device)
    else:
        out = xp.asarray(xp.broadcast_to(empty, shape), copy=True)
    if not count or not n:
        return out
    places = converter(xp, int64)(places)
    order = xp.argsort(places, stable=True)
    ids, rows = xp.take(places, order, axis=0), xp.take(rows, order, axis=0)
    every = xp.arange(n, dtype=dtype_in(xp, int64), device=rows.device)
    first = xp.searchsorted(ids, every, side="left")
    counts = xp.searchsorted(ids, every, side="right") - first
    step, longest = 1, int(xp.max(counts)) if is_near(counts) else count
    while step < longest:  # each row is combined with the next `step` - 1 of its place
        same = xp.reshape(ids[:-step] == ids[step:], (-1, *width))
        front = rows[:-step, ...]
        rows = xp.concat([xp.where(same, f(front, rows[step:, ...]), front), rows[-step:, ...]])
        step *= 2
    first = xp.minimum(first, xp.full_like(first, count - 1))
    return xp.where(xp.reshape(counts > 0, (-1, *width)), xp.take(rows, first, axis=0), out)


# *** Places ***


def any_true(xp: Any, x: Any) -> bool:
    """Whether an element is true; numpy's method is faster than its function."""
    return bool(x.any() if xp is np else xp.any(x))


def first_true(xp: Any, x: Any) -> int | None:
    """Returns the place of the first true element of a vector, or None."""
    if not any_true(xp, x):
        return None
    return int(x.argmax() if xp is np else xp.argmax(xp.astype(x, xp.int8)))


def distinct(xp: Any, x: Any) -> tuple[Any, Any]:
    """Returns the distinct elements of a vector of integers, and the place of each element.

    The distinct elements ascend. The places are numbers of them.
    """
    if xp is np:
        found, places = np.unique(x, return_inverse=True)
        return found, places
    if not x.shape[0]:
        return x, converter(xp, int64)(x)
    ascending = xp.sort(x)
    is_first = xp.concat([xp.ones_like(x[:1], dtype=xp.bool), ascending[1:] != ascending[:-1]])
    found = ascending[is_first]
    return found, xp.searchsorted(found, x, side="left")


def firsts(xp: Any, numbers: Any, n: int) -> Any:
    """Returns where each number below `n` occurs first in a vector."""
    if xp is np:
        return np.unique(numbers, return_index=True)[1]
    order = xp.argsort(numbers, stable=True)
    every = xp.arange(n, dtype=numbers.dtype, device=numbers.device)
    return xp.take(order, xp.searchsorted(xp.take(numbers, order, axis=0), every, side="left"), axis=0)
