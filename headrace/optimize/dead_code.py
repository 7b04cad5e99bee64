"""Dead code elimination: removes operations, and inputs, results and variables of structured operations.

The graph of a step begins with the operations that the fetches need. In nested graphs, and after other passes, some
operations are not needed: results of a branch without readers, values that a loop keeps for a gradient that is not
fetched. A graph is run for its results, for its control results (`control_results`) and for the operations that the
step names. `liveness` finds everything that these reach. All else is removed, also loop variables that only feed each
other.

A differentiated call of a recursive function calls the variant with residuals (`grad.calls`). Where no operation reads
the residuals, it calls the function itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.ir.attr_values import Func
from headrace.ir.edit import remove_values
from headrace.ir.edit.editor import Editor
from headrace.ir.function import called_names, nested_operations, owned
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.liveness import Reached
from headrace.optimize.queries import primitives

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation


class EliminateDeadCode(Pass):
    """Pass that removes dead code; see the head of the module."""

    name = "prune"
    whole = True

    def requires(self, graph: Graph) -> str:
        return ""

    def call(self, graph: Graph, context: PassContext) -> bool:
        return remove_dead(graph, context) | _drop_residuals(graph, context)


def remove_dead(graph: Graph, context: PassContext) -> bool:
    """Removes all that the ends of `graph` do not reach, also in nested graphs.

    Returns:
      Whether anything was removed.
    """
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


def _drop_residuals(graph: Graph, context: PassContext) -> bool:
    """Makes calls whose residuals have no reader call the function without them."""
    plain = {f.with_residuals: f for f in graph.functions.values() if f.with_residuals}
    changed = False
    for op in list(nested_operations(graph.operations)) if plain else ():
        if op.opdef.structured != "Call" or not (names := called_names(op)):
            continue
        function, last = plain.get(names[0]), len(op.outputs) - 1
        if function is None or len(function.results) != last or len(function.params) != len(op.inputs):
            continue
        edit = Editor(op.graph)
        if not edit.is_used(op.outputs[last]):
            remove_values.remove_all_but(op, range(len(op.inputs)), range(last))
            edit.set_attr(op, "f", Func(function.name))
            context.fired("prune", op, f"{function.name!r} is called without residuals, which no operation reads")
            changed = True
    return changed


def _sweep(graph: Graph, reached: Reached) -> bool:
    """Removes unreached operations, except parameters, from `graph` and nested graphs."""
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
        context.fired("prune", op, f"{_some(len(names), 'variable')} without live uses: {some}")
        return
    if unread:
        context.fired("prune", op, f"{_some(len(unread), 'result')} without consumers")
    if unused:
        context.fired("prune", op, f"{_some(len(unused), 'input')} that its graphs do not read")


def _missing(n: int, there: Iterable[int]) -> list[int]:
    return [k for k in range(n) if k not in there]


def _some(n: int, what: str) -> str:
    return f"{n} {what}{'s' if n > 1 else ''}"
