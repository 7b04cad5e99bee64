"""A loop constant that a product turns around in each iteration is turned around once, before the loop.

    While(d)   body: d @ wT               becomes        v = wT        While(d)   body: d @ v

To the eye nothing is gained, a transpose is free; but how a matrix lies in memory matters. The library of matrix
products takes 1.5 times as long for one that lies the wrong way around if the other has 2 or 4 rows, 1.3 if 8, 1.1 if
64; for a single row it is as well as the other. So the new matrix is laid out in order, which costs as much as one
product with 8 rows does if it is 16x64, as two if 64x256, and as seven if 256x1024. The last bits of floats may differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.ir import walk
from headrace.optimize.base import Context, Pass
from headrace.optimize.loop_edits import Loop, loops_of, names

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor

_FEW: Final = 4  # iterations that do not pay for the copy


class TurnConstants(Pass):
    """See the module's text."""

    name = "loop_transposes"
    is_exact = False
    grows = True

    def call(self, graph: Graph, context: Context) -> bool:
        changed = False
        for op in loops_of(graph):
            # mostly there is none, and to look is cheaper than to make an editor
            if any(each.type == "MatMul" for each in op.attrs["body"].operations):  # mutate: no
                changed |= _turn(Loop(op, context), context)
        return changed


def _turn(loop: Loop, context: Context) -> bool:
    n = loop.trips.most if loop.trips is not None else None
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
        if n is not None and n <= _FEW:
            context.refused("loop_transposes", op, f"it goes round {n} times at most")
            continue
        if w not in made:
            name = f"{w.op.name.rpartition('/')[2].removeprefix('arg.')}_turned"
            attrs = {"_in_order": True}
            full_name = f"{loop.op.name}/{name}"
            args = (loop.outside(w), np.array([1, 0], np.int32))
            outside = loop.before(op).make("Transpose", args, attrs, full_name)
            loop.note()
            made[w] = loop.constant(outside, name)
        attrs = {**op.attrs, "transpose_b": False}
        product = loop.within(op).make("MatMul", (x, made[w]), attrs, op.name)
        loop.note()
        loop.inner.replace(op.outputs[0], product)
        turned.append(op)
    if not turned:
        return False
    loop.sweep()
    context.fired("loop_transposes", loop.op, f"a constant factor turned around before the loop: {names(turned)}")
    return True
