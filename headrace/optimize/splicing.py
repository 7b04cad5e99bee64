"""Putting the operations of a graph that an operation owns where the operation stands.

That is what becomes of a call whose function is inlined, and of a conditional of which it is known which branch it
takes. The operation goes, and its graph with it: what is put in its place has the names it would have had if the
operation had been lowered (so that a random operation goes on with its stream).

Waiting is kept as lowering keeps it. What waited for the operation waits for its results and for what had to run; what
the operation waited for, all that is put in its place waits for, and results that are mere parameters pass through an
Identity that does.
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
    """Puts `graph`, of which `op` is the private owner, in the place of `op`.

    Args:
      walking: a walk over the graph that `op` stands in, which has come to it.
      op: a call or conditional.
      graph: one of its graphs.
      args: what stands for its parameters.
      part: what names of its operations have between the name of `op` and their own ("then_branch").
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
    gated: set[Operation] = set()  # they wait for what `op` waited for
    for each in walk.in_order(needed):
        inputs = [moved[t] for t in each.inputs]
        controls = list(dict.fromkeys(copies[c] for c in each.control_inputs))
        if each.type != "Const":
            if gated.isdisjoint(walk.predecessors(each)):
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
    """`t`, when `before` is done."""
    name = walking.graph.unique_name(f"{op.name}/Identity")
    new = walking.graph.add_op("Identity", name, [t], {"T": t.dtype.base}, before, op.device, op.source)
    new.outputs[0].copy_static(t)
    walking.insert(new)
    return new.outputs[0]
