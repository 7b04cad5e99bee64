"""Inlining: replaces calls by the operations of their functions.

After it, the other passes work across the boundary of a function.

Two kinds of calls stay. A call of a recursive function stays. A call that rematerializes values for its gradient
(`hr.recompute`) stays too: after inlining, its operations would be merged with equal forward operations, whose values
would then be stored. Library functions that a conditional or loop names as branches or bodies become graphs that the
operation owns, for the same reason. A limit on the number of operations holds for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import thresholds
from headrace.errors import HeadraceError
from headrace.ir.edit import add_values
from headrace.ir.function import bodies, called_names, nested, owned, recursive_functions
from headrace.ir.graph import FuncGraph
from headrace.ir.notes import RematerializedCall
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.queries import primitives
from headrace.optimize.rewriter import Rewriter
from headrace.optimize.splicing import splice

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation


class Inline(Pass):
    """Pass that inlines calls; see the head of the module."""

    name = "inline"
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        calls = [op for op in graph.operations if op.opdef.structured]
        if not any(op.opdef.structured == "Call" or called_names(op) for op in calls):
            return False
        recursive = recursive_functions(calls) if any(map(called_names, calls)) else frozenset()
        walking = Rewriter(graph, context)
        changed, made = False, len(graph)
        for op in walking:
            kind = op.opdef.structured
            if kind not in ("If", "Case", "While", "Call"):
                continue
            why = _why_not(op, recursive, made)
            if why:
                context.refused("inline", op, why)
                continue
            if called_names(op):
                add_values.own_graphs(op)
                made += sum(map(_size, owned(op)))
                context.fired("inline", op, "library functions became owned graphs")
                changed = True
            if kind == "Call":
                context.fired("inline", op, f"replaced by the body of {owned(op)[0].name!r}")
                splice(walking, op, owned(op)[0], op.inputs)
        return walking.finish() or changed


def _why_not(op: Operation, recursive: frozenset[str], made: int) -> str:
    """Reason why the functions of `op` cannot be expanded, or ""."""
    for name in called_names(op):
        if name in recursive:
            return f"{name!r} calls itself"
    if RematerializedCall in op.notes:
        return "it is marked for rematerialization"
    try:
        graphs = [g for _, g in bodies(op)]
    except HeadraceError as e:
        return str(e)
    if made + sum(map(_size, graphs)) > thresholds.EXPANDED_OPERATIONS:
        return f"inlining would add more than {thresholds.EXPANDED_OPERATIONS} operations"
    if op.opdef.structured == "Call":
        (graph,) = graphs
        if (len(graph.params), len(graph.results)) != (len(op.inputs), len(op.outputs)):
            return (
                f"{graph.name!r} has {len(graph.params)} parameters and {len(graph.results)} results, "
                f"expected {len(op.inputs)} and {len(op.outputs)}"
            )
        if reason := primitives(graph):
            return reason
    return ""


def _size(graph: FuncGraph) -> int:
    return len(graph) + sum(len(g) for _, g in nested(graph.operations))
