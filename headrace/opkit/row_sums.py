"""Sums of the rows that belong to one place, in any namespace of the array API standard.

The standard has no function that adds to given places. Sorted by place, the rows of a place are neighbours. They are
added in pairs, then in fours and so on, so that the number of steps is the logarithm of the greatest number of rows of a
place. (Hillis and Steele, "Data Parallel Algorithms", 1986.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.dtypes import int64
from headrace.opkit.namespaces import converter, dtype_in


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


def by_place(xp: Any, f: Callable[[Any, Any], Any], rows: Any, places: Any, n: int, empty: Any) -> Any:
    """Returns the rows of each place combined by `f`, [n, *shape of a row], in their order.

    Args:
      xp: the namespace.
      f: an associative function of two arrays of rows.
      rows: the rows, [count, *shape of a row].
      places: the place of each row, [count], all in [0, n).
      n: the number of places.
      empty: the number for places without rows.
    """
    count, width = rows.shape[0], (1,) * (rows.ndim - 1)
    out = xp.full((n, *rows.shape[1:]), empty, dtype=rows.dtype, device=rows.device)
    if not count or not n:
        return out
    places = converter(xp, int64)(places)
    order = xp.argsort(places, stable=True)
    ids, rows = xp.take(places, order, axis=0), xp.take(rows, order, axis=0)
    every = xp.arange(n, dtype=dtype_in(xp, int64), device=rows.device)
    first = xp.searchsorted(ids, every, side="left")
    counts = xp.searchsorted(ids, every, side="right") - first
    step, longest = 1, int(xp.max(counts))
    while step < longest:  # each row is combined with the next `step` - 1 of its place
        same = xp.reshape(ids[:-step] == ids[step:], (-1, *width))
        front = rows[:-step, ...]
        rows = xp.concat([xp.where(same, f(front, rows[step:, ...]), front), rows[-step:, ...]])
        step *= 2
    first = xp.minimum(first, xp.full_like(first, count - 1))
    return xp.where(xp.reshape(counts > 0, (-1, *width)), xp.take(rows, first, axis=0), out)
