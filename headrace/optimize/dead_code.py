"""Dead code goes: operations, and the inputs, results and variables of conditionals, loops and calls.

A step's graph begins with what the fetches need. Inside, and after other passes, there is more that is not needed:
results of a branch that nothing reads, values that a loop was made to keep for a gradient that was not asked for. A
graph is there for its results, for what must run (`control_results`) and for what the step names. `liveness` says what
these reach; all else goes, be it loop variables that feed one another for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.ir.edit import remove_values
from headrace.ir.edit.editor import Editor
from headrace.ir.function import owned
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.liveness import Reached
from headrace.optimize.queries import primitives

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation


class EliminateDeadCode(Pass):
    """See the module's text."""

    name = "prune"
    whole = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        return remove_dead(graph, context)


def remove_dead(graph: Graph, context: PassContext) -> bool:
    """Removes what the ends of `graph` do not reach, in it and in all graphs in it; returns whether there was any."""
    preserved = context.preserved_of(graph)
    if primitives(graph) or not any(op.opdef.structured for op in graph.operations):
        return bool(Editor(graph, preserved).sweep())
    reached = Reached(graph, preserved, not context.explicit)
    changed = _sweep(graph, reached)
    for op, inputs in reached.inputs.items():
        outputs = reached.outputs[op]
        if len(inputs) == len(op.inputs) and (op.opdef.structured == "While" or len(outputs) == len(op.outputs)):
            continue
        _tell(op, inputs, outputs, context)
        remove_values.remove_all_but(op, inputs, outputs)
        changed = True
    return changed


def _sweep(graph: Graph, reached: Reached) -> bool:
    """Takes unreached operations, parameters aside, out of `graph` and the graphs of those that stay."""
    changed = False
    todo = [graph]
    for g in todo:
        changed |= bool(Editor(g).sweep(reached.ops))
        todo += [f for op in g.operations if op in reached.inputs for f in owned(op)]
    return changed


def _tell(op: Operation, inputs: set[int], outputs: set[int], context: PassContext) -> None:
    unread, unused = _missing(len(op.outputs), outputs), _missing(len(op.inputs), inputs)
    if op.opdef.structured == "While":
        names = [op.attrs["body"].params[k].op.name for k in unused]
        some = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        context.fired("prune", op, f"{_some(len(names), 'variable')} that nothing needs: {some}")
        return
    if unread:
        context.fired("prune", op, f"{_some(len(unread), 'result')} that nothing reads")
    if unused:
        context.fired("prune", op, f"{_some(len(unused), 'input')} that nothing in it reads")


def _missing(n: int, there: Iterable[int]) -> list[int]:
    return [k for k in range(n) if k not in there]


def _some(n: int, what: str) -> str:
    return f"{n} {what}{'s' if n > 1 else ''}"
