"""Sums of complex numbers, as those of their parts.

An array of complex numbers is one of reals whose last axis has two elements, and its sums over other axes are
reductions of that array. If the axis before is summed, vectors would have two lanes. So neighboring numbers are the
lanes of a vector of sums, which are added at the end.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.targets.native.complex_scalars import PARTS
from headrace.targets.native.reductions import reduce

if TYPE_CHECKING:
    from headrace.targets.native.held import Array
    from headrace.targets.native.llvm_text import Module


def as_parts(array: Array) -> Array:
    """The parts of complex numbers, along one more axis; other arrays as they are."""
    if array.dtype not in PARTS:
        return array
    strides = (*(2 * s for s in array.strides), 1)
    return dataclasses.replace(array, dtype=PARTS[array.dtype], shape=(*array.shape, 2), strides=strides)


def sum_of_parts(
    module: Module,
    shape: Sequence[int],
    axes: Sequence[int],
    dtype: np.dtype,
    *,
    accumulate: bool = False,
    vector_bytes: int = 64,
) -> str:
    """Adds the function that `reduce` adds for `np.add`, for parts of complex numbers.

    Args:
      module: The module; a function of the same signature is added once.
      shape: The shape of the parts, which ends in 2.
      axes: The axes, without the last one.
      dtype: The dtype of the parts.
      accumulate: Whether the sums are added to the elements of the result.
      vector_bytes: The size of the processor's vectors.

    Returns:
      The name of the function, with `@`.
    """
    kept = len(shape) - 1 - len(axes)
    n, lanes = math.prod(shape[kept:-1]), vector_bytes // (2 * dtype.itemsize)
    if sorted(axes) != list(range(kept, len(shape) - 1)) or n < 2 * lanes:
        return reduce(module, np.add, shape, axes, dtype, accumulate=accumulate, vector_bytes=vector_bytes)
    rows = math.prod(shape[:kept])
    name = f"sum_{dtype.name}_{rows}x{n}_in_pairs{'_into' if accumulate else ''}_{vector_bytes}"
    if module.has(name):
        return f"@{name}"

    def add(size: Sequence[int], is_added: bool) -> str:
        return reduce(module, np.add, size, [0], dtype, accumulate=is_added, vector_bytes=vector_bytes)

    wide, narrow = add((n // lanes, 2 * lanes), False), add((lanes, 2), accumulate)
    rest = add((n % lanes, 2), True) if n % lanes else ""
    f = module.function(name, "void", [("ptr noalias", "out"), ("ptr", "x")], "nounwind", "internal")
    sums = f.alloca(f"[{vector_bytes} x i8]", vector_bytes)
    with f.loop("0", str(rows)) as row:
        at = f.op(f"mul nuw nsw i64 {row}, {2 * n * dtype.itemsize}")
        x = f.op(f"getelementptr inbounds i8, ptr %x, i64 {at}")
        out = f.op(f"getelementptr inbounds i8, ptr %out, i64 {f.op(f'mul nuw nsw i64 {row}, {2 * dtype.itemsize}')}")
        f.line(f"call void {wide}(ptr {sums}, ptr {x})")
        f.line(f"call void {narrow}(ptr {out}, ptr {sums})")
        if rest:
            tail = f.op(f"getelementptr inbounds i8, ptr {x}, i64 {(n - n % lanes) * 2 * dtype.itemsize}")
            f.line(f"call void {rest}(ptr {out}, ptr {tail})")
    f.line("ret void")
    return f"@{name}"
