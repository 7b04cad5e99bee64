"""Loop fusion: merges two independent loops with equal trip counts.

    While(i = 0, x)  i < n  body: i + 1, f(x)            While(i = 0, x, j = 0, y)  i < n
    While(j = 0, y)  j < n  body: j + 1, g(y)               body: i + 1, f(x), j + 1, g(y)

This saves the evaluation of a condition and of a counter in each iteration (`loop_variables` merges the two counters),
so it pays for small bodies only. Neither loop may depend on an output of the other, directly or not. Neither may have
effects, because their order would change. In a step that waits, both must wait for the same events (`waiting`): the
iterations of one loop would wait for the values of the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import thresholds
from headrace.ir import walk
from headrace.ir.analysis.trip_count import trip_count
from headrace.ir.edit.copying import copy_into
from headrace.ir.function import base_name
from headrace.ir.infer import constant_value
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.colocation import entries_of
from headrace.optimize.loop_editor import LoopEditor, loops_of
from headrace.optimize.waiting import have_equal_waits

if TYPE_CHECKING:
    from headrace.ir.analysis.trip_count import Bound
    from headrace.ir.graph import Graph, Operation, Tensor


class FuseLoops(Pass):
    """Pass that fuses loops with equal trip counts."""

    name = "loop_merging"

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        while _merge_two(graph, context):
            changed = True
        return changed


def _merge_two(graph: Graph, context: PassContext) -> bool:
    loops = [(op, bound) for op in loops_of(graph, context, replaces_results=True) if (bound := _bound(op)) is not None]
    for n, (second, other) in enumerate(loops):
        for first, bound in loops[max(0, n - thresholds.FUSED_LOOP_DISTANCE) : n]:
            if not _alike(first, bound, second, other):
                continue
            size = len(first.attrs["body"]) + len(second.attrs["body"])
            if size > thresholds.FUSED_LOOP_OPS:
                context.refused(
                    "loop_merging",
                    second,
                    f"fused with '{first.name}' it has {size} operations; the limit is {thresholds.FUSED_LOOP_OPS}",
                )
            elif second in context.preserved or any(second in op.control_inputs for op in graph.operations):
                context.refused("loop_merging", second, "it is a target or has outgoing control edges")
            elif not _wait_for_the_same(first, bound, second, other, context):
                context.refused("loop_merging", second, f"it and '{first.name}' wait for different events")
            elif first in walk.reachable([second]) or second in walk.reachable([first]):
                context.refused("loop_merging", second, f"it and '{first.name}' depend on one another")
            else:
                _merge(first, second, context)
                return True
    return False


def _bound(op: Operation) -> Bound | None:
    """The only bound of the loop `op`, if it has one and no effects."""
    found = trip_count(op)
    if found is None or not found.is_exact or len(found.bounds) != 1 or op.control_inputs:
        return None
    graphs = op.attrs["cond"], op.attrs["body"]
    if any(not (each.opdef.is_pure or each.type == "_Arg") for g in graphs for each in g.operations):
        return None
    return found.bounds[0]


def _alike(x: Operation, a: Bound, y: Operation, b: Bound) -> bool:
    """Whether two loops have equal trip counts, devices and `parallel_iterations`."""
    if x.type != y.type or x.device != y.device or entries_of(x) != entries_of(y) or a.is_inclusive != b.is_inclusive:
        return False
    if x.attrs.get("parallel_iterations") != y.attrs.get("parallel_iterations"):
        return False
    return _same(a.first, b.first) and _same(a.limit, b.limit)


def _wait_for_the_same(x: Operation, a: Bound, y: Operation, b: Bound, context: PassContext) -> bool:
    """Whether no result of either loop waits for more events after the fusion."""

    def limits(op: Operation, bound: Bound) -> list[Tensor]:
        return [op.inputs[k] for k in (bound.counter, bound.position) if k is not None]

    graph = x.graph
    return have_equal_waits(graph, context, x.inputs, y.inputs) and have_equal_waits(
        graph, context, limits(x, a), limits(y, b)
    )


def _same(x: Tensor, y: Tensor) -> bool:
    if x is y:
        return True
    a, b = constant_value(x), constant_value(y)
    return a is not None and bool(a == b)  # an unknown value equals no number


def _merge(first: Operation, second: Operation, context: PassContext) -> None:
    """Moves the variables and operations of the loop `second` into the loop `first`."""
    loop = LoopEditor(first, context)
    other = second.attrs["body"]
    moved: dict[Tensor, Tensor] = {}
    at = len(first.inputs)
    for init, param in zip(second.inputs, other.params, strict=True):
        mine, _ = loop.variable(init, base_name(param))
        for g in (loop.body, loop.cond):
            g.describe_param(g.params[mine.op.attrs["index"]], param.shape, param.handle)
        moved[param] = mine
    params = {p.op for p in other.params}
    copy_into(loop.body, walk.in_order(op for op in other.operations if op not in params), moved)
    for k, (result, out) in enumerate(zip(other.results, second.outputs, strict=True), at):
        loop.inner.set_result(k, moved[result])
        first.outputs[k].copy_static(out)
        loop.outer.replace(out, first.outputs[k])
    loop.outer.remove([second])
    context.fired("loop_merging", first, f"fused with '{second.name}'")
