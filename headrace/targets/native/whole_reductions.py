"""Reductions of large arrays over axes, by the functions of `reductions`.

Neighboring axes of one kind, reduced or kept, are one axis. The size of the first one is an argument of the function,
so a batch of another size needs no compilation. Several threads take rows of the first axis. If that is reduced, its
parts are reduced to a result each, and these at the end; their number depends on the shape alone.

Sums of half-precision floats are those of their float32, and their maxima are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from headrace import thresholds
from headrace.dtypes import bfloat16, float16
from headrace.opkit.kernel_library import KernelLibrary
from headrace.targets.native import engine
from headrace.targets.native.loops import Loops, compiled, rows_of_part
from headrace.targets.native.maps import converted
from headrace.targets.native.reductions import reduce
from headrace.targets.native.registers import of_host

Array: TypeAlias = np.ndarray

_HALF: Final = (float16.numpy, bfloat16.numpy)
_WIDE: Final = (np.dtype(np.float32), np.dtype(np.float64))


class NativeReductions(KernelLibrary):
    """Reductions by native code."""

    def reduced(self, ufunc: np.ufunc, x: Array, axes: Sequence[int]) -> Array | None:
        """The reduction; None if numpy is to compute it."""
        if not axes or x.size < thresholds.NATIVE_REDUCTION or x.dtype not in (*_HALF, *_WIDE) or engine.available():
            return None
        merged = _merged(x.shape, axes)
        is_sum, (last, is_reduced) = ufunc is np.add, merged[-1]
        is_quick = x.dtype in _WIDE or (x.dtype == bfloat16.numpy and is_sum)  # in numpy
        if is_quick and last >= thresholds.WIDE_REDUCTION and not (is_sum and is_reduced):
            return None
        kept = [d for k, d in enumerate(x.shape) if k not in axes]
        if x.dtype in _HALF:
            x = converted(x, np.dtype(np.float32))
        return _reduced(ufunc, np.ascontiguousarray(x), merged).reshape(kept)


def _merged(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[int, bool]]:
    """The sizes of the merged axes, and whether each is reduced."""
    out: list[tuple[int, bool]] = []
    for k, size in enumerate(shape):
        is_reduced = k in axes
        if out and out[-1][1] == is_reduced:
            out[-1] = (out[-1][0] * size, is_reduced)
        elif size != 1:
            out.append((size, is_reduced))
    return out


def _reduced(ufunc: np.ufunc, x: Array, merged: list[tuple[int, bool]]) -> Array:
    """The reduction of a contiguous array, flat."""
    (size, is_reduced), rest = merged[0], merged[1:]
    if len(merged) > 2 and merged[-1][1]:  # the rows first, in the order of memory
        rows = math.prod(d for d, _ in merged[:-1])
        return _reduced(ufunc, _reduced(ufunc, x, [(rows, False), merged[-1]]), merged[:-1])
    cost = thresholds.NATIVE_ELEMENT * x.size / size
    if not is_reduced:
        out = np.empty((size, *(d for d, r in rest if not r)), x.dtype)
        function = compiled(("reduce", ufunc, x.dtype, *rest), lambda: _of_rows(ufunc, x.dtype, rest))
        function(out, x, *rows_of_part(size, cost))
        return out
    each = 1 << max(0, int(thresholds.NATIVE_PART / cost).bit_length() - 1)  # independent of the size
    parts, left = divmod(size, each)
    if parts < 2:
        out = np.empty([d for d, r in rest if not r], x.dtype)
        function = compiled(("reduce all", ufunc, x.dtype, *rest), lambda: _of_all(ufunc, x.dtype, rest))
        function(out, x, size)
        return out
    numbers = x.reshape(size, -1)
    found = [_reduced(ufunc, numbers[: each * parts], [(parts, False), (each, True), *rest])]
    if left:
        found.append(_reduced(ufunc, numbers[each * parts :], [(left, True), *rest])[None])
    total: Array = ufunc.reduce(np.concatenate(found), axis=0)
    return total


def _of_rows(ufunc: np.ufunc, dtype: np.dtype, rest: Sequence[tuple[int, bool]]) -> Loops:
    """The function of arrays whose first axis is kept."""
    loops = Loops([dtype, dtype], [], divided=True)
    steps = math.prod(d for d, is_reduced in rest if not is_reduced), math.prod(d for d, _ in rest)
    axes = [k for k, (_, is_reduced) in enumerate(rest, 1) if is_reduced]
    name = reduce(loops.f.module, ufunc, (None, *(d for d, _ in rest)), axes, dtype, vector_bytes=of_host().bytes)
    first, count = loops.rows
    out, x = (a.part(first * step).pointer for a, step in zip(loops.arrays, steps, strict=True))
    loops.f.line(f"call void {name}(ptr {out}, ptr {x}, i64 {count.name})")
    return loops


def _of_all(ufunc: np.ufunc, dtype: np.dtype, rest: Sequence[tuple[int, bool]]) -> Loops:
    """The function of arrays whose first axis is reduced."""
    loops = Loops([dtype, dtype], ["n"])
    axes = [0, *(k for k, (_, is_reduced) in enumerate(rest, 1) if is_reduced)]
    name = reduce(loops.f.module, ufunc, (None, *(d for d, _ in rest)), axes, dtype, vector_bytes=of_host().bytes)
    out, x = (a.pointer for a in loops.arrays)
    loops.f.line(f"call void {name}(ptr {out}, ptr {x}, i64 {loops.sizes[0].name})")
    return loops
