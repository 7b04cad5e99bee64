"""Copies of large transposed arrays into row-major order, for kernels."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from headrace import thresholds
from headrace.opkit.kernel_library import KernelLibrary
from headrace.targets.native import engine
from headrace.targets.native.arrays import collapsed
from headrace.targets.native.loops import Loops, compiled
from headrace.targets.native.plan import row_major
from headrace.targets.native.transposes import transpose, turned_matrix

Array: TypeAlias = np.ndarray


class NativeCopies(KernelLibrary):
    """Copies by native code."""

    def contiguous(self, x: Array) -> Array | None:
        """The copy; None if numpy is to make it, or if none is needed."""
        size = x.itemsize
        if x.size < thresholds.NATIVE_TRANSPOSE or x.dtype.hasobject or x.dtype.alignment != size:
            return None
        if not x.flags.aligned or any(s % size for s in x.strides) or engine.available():
            return None
        sizes, (source, target) = collapsed(x.shape, ([s // size for s in x.strides], row_major(x.shape)))
        shape = [n for n, _ in sizes]
        found = turned_matrix(shape, source, target, size)
        if found is None or len(shape) > 3:
            return None
        outer = next((k for k in range(len(shape)) if k not in found), None)
        out = np.empty(x.shape, x.dtype)
        each = (1, 0, 0) if outer is None else (shape[outer], target[outer], source[outer])
        matrix = shape[found.target], shape[found.source], target[found.source], source[found.target]
        compiled(("transpose", size), lambda: _transposes(size))(out, x, *each, *matrix)
        return out


def _transposes(size: int) -> Loops:
    """The function that transposes several matrices."""
    dtype = np.dtype(f"i{size}")
    loops = Loops([dtype, dtype], ["count", "out_step", "x_step", "rows", "columns", "out_row", "x_row"])
    count, *steps = loops.sizes[:3]
    with loops.each(0, count) as k:
        parts = [f"ptr {a.part(k * step).pointer}" for a, step in zip(loops.arrays, steps, strict=True)]
        args = ", ".join([*parts, *(f"i64 {n.name}" for n in loops.sizes[3:])])
        loops.f.line(f"call void {transpose(loops.f.module, size)}({args})")
    return loops
