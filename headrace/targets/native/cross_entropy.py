"""Printing of the cross entropy of rows of logits with labels that are indices.

The kernel's formula, in its order: the exponentials of the differences from the greatest logit of a row, their sum, and
quotients by it. Larger arrays are left to the kernel, whose library has a function for any number of rows (`row_maps`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.schedule.scalar_expressions import Apply, Input
from headrace.targets.native import scalars, state
from headrace.targets.native.held import Array
from headrace.targets.native.plan import row_major
from headrace.targets.native.reductions import reduce
from headrace.targets.native.registers import of_host

if TYPE_CHECKING:
    from headrace.schedule.program import Compute
    from headrace.targets.native.arrays import ArrayPrinter

_INT64 = np.dtype(np.int64)


def print_cross_entropy(p: ArrayPrinter, instr: Compute) -> None:
    """Prints a `SparseSoftmaxCrossEntropyWithLogits`; its labels are tested first."""
    f = p.f
    logits, labels = map(p.array, instr.inputs)
    loss, backprop = instr.outputs
    rows, classes = logits.dims
    dtype = logits.dtype
    kind = scalars.register_type(dtype)

    def memory(shape: tuple[int, ...]) -> Array:
        size = int(np.prod(shape)) * dtype.itemsize
        pointer = state.allocate_block(f, size, "no_memory", "rows")
        p.own_block(pointer, str(size))
        return Array(pointer, dtype, shape, row_major(shape))

    def applied(ufunc: np.ufunc, *texts: str) -> str:
        node = Apply(ufunc, tuple(Input(k) for k in range(len(texts))), dtype, ())
        return scalars.expression(f, node, texts, [dtype] * len(texts))

    def reduced(ufunc: np.ufunc, source: Array) -> Array:
        out = memory((rows, 1))
        name = reduce(p.module, ufunc, source.dims, [1], dtype, vector_bytes=of_host().bytes)
        f.line(f"call void {name}(ptr {out.pointer}, ptr {source.pointer})")
        return out

    def each_row(array: Array) -> tuple[int, int]:
        return array.strides[0], 0

    with f.loop("0", str(rows)) as row:
        label = scalars.convert(f, p.load(labels, p.offset(labels, row)), labels.dtype, _INT64)
        p.fail_if(f.op(f"icmp uge i64 {label}, {classes}"), instr, "label", label, str(classes), row)
    powers = memory((rows, classes)) if backprop is None else p.place_of(backprop)
    if not logits.is_contiguous:
        logits = p.copied_block(logits)
    greatest = reduced(np.maximum, logits)

    def power(at: Sequence[str]) -> None:
        x = p.load(logits, at[0])
        p.store(powers, applied(np.exp, applied(np.subtract, x, p.load(greatest, at[1]))), at[2])

    p.each((rows, classes), (logits.strides, each_row(greatest), powers.strides), power)
    sums = reduced(np.add, powers)
    if loss is not None:
        losses = p.values[loss] = p.place_of(loss)
        assert isinstance(losses, Array)
        with f.loop("0", str(rows)) as row:
            label = scalars.convert(f, p.load(labels, p.offset(labels, row)), labels.dtype, _INT64)
            at = f.op(f"add nsw i64 {f.op(f'mul nsw i64 {row}, {classes}')}, {label}")
            difference = applied(np.subtract, p.load(logits, at), p.load(greatest, row))
            p.store(losses, applied(np.subtract, applied(np.log, p.load(sums, row)), difference), row)
    if backprop is not None:

        def quotient(at: Sequence[str]) -> None:
            p.store(powers, applied(np.divide, p.load(powers, at[0]), p.load(sums, at[1])), at[0])

        p.each((rows, classes), (powers.strides, each_row(sums)), quotient)
        with f.loop("0", str(rows)) as row:
            label = scalars.convert(f, p.load(labels, p.offset(labels, row)), labels.dtype, _INT64)
            at = f.op(f"add nsw i64 {f.op(f'mul nsw i64 {row}, {classes}')}, {label}")
            p.store(powers, f.op(f"fsub {kind} {p.load(powers, at)}, {scalars.literal(1, dtype)}"), at)
        p.values[backprop] = powers
