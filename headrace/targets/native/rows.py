"""Sums of rows by index: scatters that add or subtract, and sums of segments.

Updates are added in their order. Consecutive updates of a row are added up in blocks of `ROW_UPDATES_TOGETHER` before.
If a row may occur more than `ROW_UPDATES_UNSORTED` times, updates are sorted by row, and long sums are sums of blocks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from headrace import thresholds
from headrace.opkit.kernel_library import KernelLibrary
from headrace.targets.native import engine
from headrace.targets.native.loops import Loops, compiled

if TYPE_CHECKING:
    from headrace.targets.native.values import Value

Array: TypeAlias = np.ndarray

_INDICES: Final = (np.dtype(np.int32), np.dtype(np.int64))


class NativeRows(KernelLibrary):
    """Sums of rows by native code."""

    def accumulated(self, how: Literal["add", "subtract"], out: Array, rows: Array, updates: Array) -> Array | None:
        """The changed array `out`; None if numpy is to change it."""
        dtype = out.dtype
        is_number = dtype in (np.float32, np.float64) or (dtype.kind in "iu" and dtype.isnative)
        if updates.size < thresholds.NATIVE_ROWS or not is_number or updates.dtype != dtype or engine.available():
            return None
        if rows.dtype not in _INDICES or not out.flags.c_contiguous:
            return None
        if dtype.kind == "f" and _most(rows, len(out)) > thresholds.ROW_UPDATES_UNSORTED:
            order = np.argsort(rows, kind="stable")
            rows, updates = rows[order], updates[order]
        function = compiled((how, dtype, rows.dtype), lambda: _accumulate(how, dtype, rows.dtype))
        width = updates.shape[1]
        part = np.empty(width, dtype)
        function(out, part, np.ascontiguousarray(rows), np.ascontiguousarray(updates), len(rows), width)
        return out


def _most(rows: Array, n: int) -> int:
    """A number that no row of `n` occurs more often than."""
    if len(rows) <= thresholds.ROW_UPDATES_UNSORTED:
        return len(rows)
    few = (1 << len(rows).bit_length()) - 1
    return int(np.bincount(rows if n <= few else rows & few).max())


def _accumulate(how: str, dtype: np.dtype, index: np.dtype) -> Loops:
    loops = Loops([dtype, dtype, index, dtype], ["count", "width"])
    (table, part, rows, updates), (count, width) = loops.arrays, loops.sizes
    none, one = loops.constant(0), loops.constant(1)
    open_ = loops.variable(none)  # 1 if `part` has a sum
    combined: Callable[[Value, Value], Value] = operator.add if how == "add" else operator.sub
    with loops.each(0, count) as i:
        row = loops.converted(rows[i], index, np.int64)
        following = loops.converted(rows[loops.least(i + 1, count - 1)], index, np.int64)
        is_same = following.compare("eq", row) & (i + 1).compare("ult", count)
        goes_on = is_same & (i % thresholds.ROW_UPDATES_TOGETHER).compare("ne", thresholds.ROW_UPDATES_TOGETHER - 1)
        before, after = open_.get(), goes_on.choose(one, none)
        into, update = table.part(row * width), updates.part(i * width)
        with loops.when((before | after).compare("ne", 0)):
            with loops.when(before.compare("eq", 0)), loops.each(0, width) as k:
                part[k] = update[k]
            with loops.when(before.compare("ne", 0)), loops.each(0, width) as k:
                part[k] = part[k] + update[k]
            with loops.when(after.compare("eq", 0)), loops.each(0, width) as k:
                into[k] = combined(into[k], part[k])
        with loops.when((before | after).compare("eq", 0)), loops.each(0, width) as k:
            into[k] = combined(into[k], update[k])
        open_.set(after)
    return loops
