"""Constants go into branches, bodies and functions, so that they are known there.

    While(i, n=Const)      condition: i < n         becomes         condition: i < Const

What a conditional, loop or call is given is a parameter inside, of which nothing is known. Integers and booleans are
cloned into a sub-graph when it is made; floats are not, since a gradient may be asked for with respect to one. When the
passes run the gradients are there. A clone shares its array with the original, so it costs no memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.ir.edit.editor import Editor
from headrace.ir.function import owned, param_offset
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import forget
from headrace.ir.order import is_constant
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.queries import const, owns_graphs, primitives

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class PropagateConstants(Pass):
    """See the module's text. Each graph gets a clone of its own."""

    name = "push_constants"
    grows = True

    def requires(self, graph: Graph) -> str:
        return primitives(graph)

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
        # a loop constant's result is its parameter; so of a loop only those who read it get the clone
        cloned = [_clone(e, g, k, t, not is_loop or g is op.attrs["cond"]) for e, g in zip(edits, graphs, strict=True)]
        if any(cloned):
            pushed.append(t.op.name)
    if pushed:
        context.fired("push_constants", op, f"known inside: {', '.join(pushed)}")
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
