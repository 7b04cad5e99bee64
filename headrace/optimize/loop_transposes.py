"""Transposes a constant factor of a matrix product once, before the loop.

    While(d)   body: d @ wT               becomes        v = wT        While(d)   body: d @ v

Formally nothing is gained, because a product reads a transposed operand at no cost. But the layout in memory matters.
The library of matrix products takes longer for a transposed factor: 1.3 to 1.5 times as long if the other factor has 2
or 4 rows, 1.25 times for 8 rows, 1.2 times for 16, 1.06 times for 64, and equally long for a single row. (This is for
float32. For float64 it is 1.2 times for 16x64, and no measurable difference for large matrices.) So the new matrix is
copied into row-major order. The copy costs as much as one product with 8 rows for a matrix of 16x64, as three for
64x256, and as eight for 256x1024. The last bits of floats may differ.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from headrace import shapes
from headrace.ir import walk
from headrace.ir.function import base_name
from headrace.ir.notes import ContiguousResult
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.loop_editor import LoopEditor, loops_of, names

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class TurnConstants(Pass):
    """Pass that transposes constant factors before the loop."""

    name = "loop_transposes"
    is_exact = False
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph, context, having=lambda op: op.type == "MatMul"):  # mutate: no
            changed |= _turn(LoopEditor(op, context), context)
        return changed


def _turn(loop: LoopEditor, context: PassContext) -> bool:
    n = loop.trip_count.most if loop.trip_count is not None else None
    turned: list[Operation] = []
    made: dict[tuple[Tensor, str], Tensor] = {}
    for op in walk.in_order(loop.body.operations):
        if op.type != "MatMul" or not op.attrs["transpose_b"] or not loop.is_movable(op):
            continue
        x, w = op.inputs
        if x.shape is not None and x.shape[0] == 1:
            continue
        if loop.is_invariant(x) or not loop.is_invariant(w):
            continue
        if w.shape is None or {None, 1} & set(w.shape):  # both layouts of a vector are the same
            continue
        if n is not None and n <= _few(shapes.size(w.shape) or 0):
            context.refused("loop_transposes", op, f"its trip count is at most {n}, too few to pay for the transpose")
            continue
        key = w, op.device
        if key not in made:
            name = f"{base_name(w)}_turned"
            full_name = f"{loop.op.name}/{name}"
            args = (loop.outside(w), np.array([1, 0], np.int32))
            outside = loop.before(op).make("Transpose", args, {}, full_name, [ContiguousResult()])
            made[key] = loop.constant(outside, name)
        attrs = {**op.attrs, "transpose_b": False}
        product = loop.within(op).make("MatMul", (x, made[key]), attrs, op.name, op.notes)
        loop.inner.replace(op.outputs[0], product)
        turned.append(op)
    if not turned:
        return False
    loop.sweep()
    context.fired("loop_transposes", loop.op, f"loop-invariant factors transposed before the loop: {names(turned)}")
    return True


def _few(size: int) -> int:
    """Number of iterations up to which copying a matrix of `size` elements does not pay.

    Measured in float32, with 2 to 16 rows, the copy pays after 3 to 6 iterations for matrices of 16x16 to 64x64, 7 to
    14 for 64x256, 12 to 20 for 256x256, 18 to 28 for 256x1024, and 40 to 63 for 1024x1024. (Powers of two are the worst
    case, because the copy misses the cache at each step. For 1000x1000 it pays after 16.)
    """
    return max(6, math.isqrt(size) // 16)
