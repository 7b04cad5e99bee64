"""Replaces the final value of a loop's counter by a constant, if it is known.

    i, h = While(0, h)    condition: i < 500        last = i - 1

makes `i` after the loop the number 500. The gradient of such a loop counts to `last`, so its trip count becomes known,
too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.ir import graph as graphs
from headrace.ir.infer import constant_value
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.loop_editor import LoopEditor, loops_of

if TYPE_CHECKING:
    from headrace.ir.graph import Graph


class CountLoops(Pass):
    """Pass that replaces final values of counters by constants."""

    name = "loop_counts"
    grows = True  # by the constants

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph, context, replaces_results=True):
            loop = LoopEditor(op, context)
            if loop.trip_count is None or (n := loop.trip_count.count) is None:
                continue
            for k in dict.fromkeys(bound.counter for bound in loop.trip_count.bounds):
                first, last = constant_value(op.inputs[k]), op.outputs[k]
                if first is None or not loop.outer.is_used(last):
                    continue
                b = loop.before(op)
                number = b.const(np.asarray(int(first) + n, last.dtype.base.numpy), last.dtype.base, f"{op.name}/count")
                loop.outer.replace(last, number)
                context.fired("loop_counts", op, f"its trip count is {n}: its counter is a constant after the loop")
                changed = True
        if changed:
            look_again(graph)
        return changed


def look_again(graph: Graph) -> None:
    """Drops cached results of inference that say "no constant", because some tensors now have one."""
    for op in graph.operations:
        for t in op.outputs:
            if t._constant is None:
                t._constant = graphs._unset
