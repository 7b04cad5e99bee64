"""Conversion of a `For` to a `While` with a counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import dtypes
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.function import body
from headrace.ir.graph import FuncGraph

if TYPE_CHECKING:
    from headrace.ir.graph import Operation


def counting(op: Operation) -> FuncGraph:
    """Returns a function that computes the For `op` by a While."""
    types = list(op.attrs["T"])
    outer = FuncGraph(op.name, op.graph, captures_from_outer=False)
    kinds = [dtypes.int32] * 3 + types
    given = zip(kinds, op.inputs, strict=True)
    start, limit, delta, *state = [outer.add_param(d, t.shape, f"x{i}") for i, (d, t) in enumerate(given)]

    b = Builder(outer, source=op.source)
    distance = b.Sub(limit, start)
    towards = b.GreaterEqual(b.Mul(b.Sign(distance), b.Sign(delta)), 0)
    reaches = b.LogicalAnd(towards, b.LogicalOr(b.NotEqual(delta, 0), b.Equal(distance, 0)))
    valid = b.Assert(reaches, [b.const("Invalid start/limit/delta:"), start, limit, delta])

    cond = FuncGraph("cond", outer, captures_from_outer=False)
    b = Builder(cond, source=op.source)
    i, n, step, *_ = [cond.add_param(d, () if k < 3 else None, f"x{k}") for k, d in enumerate(kinds)]
    up = b.LogicalAnd(b.Greater(step, 0), b.Less(i, n))
    cond.set_results([b.LogicalOr(up, b.LogicalAnd(b.Less(step, 0), b.Greater(i, n)))])

    inner = FuncGraph("body", outer, captures_from_outer=False)
    b = Builder(inner, source=op.source)
    i, n, step, *values = [inner.add_param(d, None, f"x{k}") for k, d in enumerate(kinds)]
    f = op.attrs["body"]
    graph = body(op, f)
    call = inner.add_op(
        "StatefulPartitionedCall",
        "call",
        [i, *values],
        {"Tin": (dtypes.int32, *types), "Tout": tuple(types), "f": f if isinstance(f, Func) else graph},
        source=op.source,
    )
    controls = [call] if graph.control_results else []
    inner.set_results([b.AddV2(i, step), n, step, *call.outputs], controls, graph.is_ordered)

    loop = outer.add_op(
        "While",
        "while",
        [start, limit, delta, *state],
        {"T": tuple(kinds), "cond": cond, "body": inner, "output_shapes": (), "parallel_iterations": 10},
        control_inputs=[valid],
        source=op.source,
    )
    for t, old in zip(loop.outputs[3:], op.outputs, strict=True):
        t.refine(old.shape)
    outer.set_results(loop.outputs[3:], [loop] if inner.control_results else [])
    return outer
