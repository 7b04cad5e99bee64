"""Interprocedural constant propagation: clones constants into branches, loop bodies and functions.

    While(i, n=Const)      condition: i < n         becomes         condition: i < Const

An argument of a conditional, loop or call is a parameter inside, and nothing is known of its value there. While graphs
are built, integers and booleans are cloned into nested graphs. Floats are not, because a gradient with respect to one
may follow. When the passes run, all gradients exist. A clone shares its array with the original, so it needs no memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.ir.edit.editor import Editor
from headrace.ir.function import owned, param_offset
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import forget
from headrace.ir.order import is_constant
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.queries import const, owns_graphs

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class PropagateConstants(Pass):
    """Pass that clones constants into nested graphs. Each graph gets a clone of its own."""

    name = "push_constants"
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in graph.operations:
            if owns_graphs(op):
                changed |= _push_into(op, context)
        return changed


def _push_into(op: Operation, context: PassContext) -> bool:
    graphs = owned(op)
    offset = param_offset(op)
    is_loop = op.opdef.structured == "While"
    edits = [Editor(g) for g in graphs]
    pushed = []
    for k, t in enumerate(op.inputs[offset:]):
        if const(t) is None or t.op.control_inputs:
            continue
        if is_loop and not is_constant(op.attrs["body"], k):
            continue
        # the result of a loop constant is its parameter, so in a body only the other readers get the clone
        cloned = [_clone(e, g, k, t, not is_loop or g is op.attrs["cond"]) for e, g in zip(edits, graphs, strict=True)]
        if any(cloned):
            pushed.append(t.op.name)
    if pushed:
        context.fired("push_constants", op, f"constant parameters: {', '.join(pushed)}")
    return bool(pushed)


def _clone(edit: Editor, graph: FuncGraph, k: int, t: Tensor, with_results: bool) -> bool:
    """Makes the readers of parameter `k` read a clone of the constant `t`."""
    param = graph.params[k]
    if not edit.uses.get(param) and not (with_results and param in graph.results):
        return False
    new = graph.copy_op(t.op, (), (), graph.unique_name(t.op.name)).outputs[0]
    edit.replace(param, new, with_results)
    edit.put_first(new.op)
    for op in graph.operations:
        forget(op)
    return True
