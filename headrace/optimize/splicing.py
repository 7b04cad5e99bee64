"""Replaces an operation by the operations of a graph that it owns.

This happens to a call whose function is inlined, and to a conditional whose branch is known. The operation is removed
together with its graph. The operations in its place have the names that lowering would have given them, so a random
operation keeps its stream.

Control dependencies are kept as lowering keeps them. Operations that waited for the replaced operation wait for its
results and for its control results. All operations in its place wait for its control inputs. A result that is a mere
parameter passes through an Identity that waits for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.ir import walk
from headrace.ir.edit import lowered_names
from headrace.ir.graph import FuncGraph

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.optimize.rewriter import Rewriter


def splice(walking: Rewriter, op: Operation, graph: FuncGraph, args: Sequence[Tensor], part: str = "") -> None:
    """Replaces `op` by the operations of `graph`, which `op` alone owns.

    Args:
      walking: a walk over the graph of `op`, at the position of `op`.
      op: a call or conditional.
      graph: one of its graphs.
      args: the tensors that replace its parameters.
      part: a name between the name of `op` and the names of the operations of `graph`, such as "then_branch".
    """
    outer = walking.graph
    prefix = "" if graph.shares_names else f"{op.name}/{part and part + '/'}"
    before = op.control_inputs
    moved: dict[Tensor, Tensor] = dict(zip(graph.params, args, strict=True))
    for p, t in moved.items():
        if t.shape != p.shape or t.op.type == "Const":
            walking.knows_more(t)
    params = {p.op for p in graph.params}
    needed = walk.reachable([*(t.op for t in graph.results), *graph.control_results]) - params
    copies: dict[Operation, Operation] = {p.op: t.op for p, t in moved.items()}
    waited = {c for each in needed for c in each.control_inputs}
    for p, t in moved.items():
        if p.op in waited and t.op.opdef.structured:  # the end of this result alone
            copies[p.op] = _settled(walking, op, t, ()).op
    gated: set[Operation] = set()  # copies that wait for the control inputs of `op`, directly or not
    for each in walk.in_order(needed):
        inputs = [moved[t] for t in each.inputs]
        controls = list(dict.fromkeys(copies[c] for c in each.control_inputs))
        if each.type != "Const":
            # in lowered form an operation in a structured one waits for some of its inputs only
            if each.opdef.structured or gated.isdisjoint(walk.predecessors(each)):
                controls = list(dict.fromkeys([*controls, *before]))
            gated.add(each)
        copy = outer.copy_op(each, inputs, controls, _free(outer, prefix + each.name))
        lowered_names.adopt(copy, prefix)
        copies[each] = copy
        moved.update(zip(each.outputs, copy.outputs, strict=True))
        walking.insert(copy)
    results = [moved[r] for r in graph.results]
    if before:
        for k, r in enumerate(graph.results):
            if r.op not in gated:
                results[k] = _settled(walking, op, moved[r], before)
    must = list(dict.fromkeys(copies[c] for c in graph.control_results))
    ends = list(dict.fromkeys([*(t.op for t in results), *must])) or list(before)
    walking.dissolve(op, results, ends, must)


def _free(graph: Graph, name: str) -> str:
    return name if name not in graph else graph.unique_name(name)


def _settled(walking: Rewriter, op: Operation, t: Tensor, before: Sequence[Operation]) -> Tensor:
    """Returns an Identity of `t` that waits for `before`."""
    name = walking.graph.unique_name(f"{op.name}/Identity")
    new = walking.graph.add_op("Identity", name, [t], {"T": t.dtype.base}, before, op.device, op.source)
    new.outputs[0].copy_static(t)
    walking.insert(new)
    return new.outputs[0]
