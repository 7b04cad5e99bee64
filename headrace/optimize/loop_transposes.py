"""A loop constant that a product turns around in each iteration is turned around once, before the loop.

    While(d)   body: d @ wT               becomes        v = wT        While(d)   body: d @ v

To the eye nothing is gained, a transpose is free; but how a matrix lies in memory matters. The library of matrix
products takes 1.3 to 1.5 times as long for one that lies the wrong way around if the other has 2 or 4 rows, 1.25 if 8,
1.2 if 16, 1.06 if 64; for a single row it is as well as the other. (That is in float32; in float64 it is 1.2 for 16x64,
and for large matrices nothing that can be told.) So the new matrix is laid out in order, which costs as much as one
product with 8 rows does if it is 16x64, as three if 64x256, and as eight if 256x1024. The last bits of floats may
differ.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from headrace import shapes
from headrace.ir import walk
from headrace.ir.function import base_name
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.loop_editor import LoopEditor, loops_of, names

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class TurnConstants(Pass):
    """See the module's text."""

    name = "loop_transposes"
    is_exact = False
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph, having=lambda op: op.type == "MatMul"):  # mutate: no
            changed |= _turn(LoopEditor(op, context), context)
        return changed


def _turn(loop: LoopEditor, context: PassContext) -> bool:
    n = loop.trip_count.most if loop.trip_count is not None else None
    turned: list[Operation] = []
    made: dict[Tensor, Tensor] = {}
    for op in walk.in_order(loop.body.operations):
        if op.type != "MatMul" or not op.attrs["transpose_b"] or not loop.is_movable(op):
            continue
        x, w = op.inputs
        if x.shape is not None and x.shape[0] == 1:
            continue
        if loop.is_invariant(x) or not loop.is_invariant(w):
            continue
        if w.shape is None or {None, 1} & set(w.shape):  # a vector lies in order either way
            continue
        if n is not None and n <= _few(shapes.size(w.shape) or 0):
            context.refused("loop_transposes", op, f"it goes round {n} times at most")
            continue
        if w not in made:
            name = f"{base_name(w)}_turned"
            attrs = {"_in_order": True}
            full_name = f"{loop.op.name}/{name}"
            args = (loop.outside(w), np.array([1, 0], np.int32))
            outside = loop.before(op).make("Transpose", args, attrs, full_name)
            made[w] = loop.constant(outside, name)
        attrs = {**op.attrs, "transpose_b": False}
        product = loop.within(op).make("MatMul", (x, made[w]), attrs, op.name)
        loop.inner.replace(op.outputs[0], product)
        turned.append(op)
    if not turned:
        return False
    loop.sweep()
    context.fired("loop_transposes", loop.op, f"a constant factor turned around before the loop: {names(turned)}")
    return True


def _few(size: int) -> int:
    """How many iterations do not pay for the copy of a matrix with `size` elements.

    Measured in float32, with 2 to 16 rows, it is paid for after 3 to 6 iterations if the matrix is 16x16 to 64x64, 7 to
    14 if 64x256, 12 to 20 if 256x256, 18 to 28 if 256x1024, and 40 to 63 if 1024x1024. (Powers of two are the worst:
    there the copy misses the cache at each step. Of 1000x1000 it is paid for after 16.)
    """
    return max(6, math.isqrt(size) // 16)
