"""What nobody needs goes: operations, and the inputs, results and variables of conditionals, loops and calls.

A step's graph begins with what the fetches need. Inside, and after other passes, there is more that is not needed:
results of a branch that nobody reads, values that a loop was made to keep for a gradient that was not asked for. A
graph is there for its results, for what must run (`control_results`) and for what the step names; all else goes.

**Loop variables** are needed in circles: `i` is read by the body to make the next `i`. So one asks the other way round.
A variable is *live* if the loop's output is read, if the condition reads it, if what must run reads it, or if the next
value of a live variable is made of it (`liveness`). All others go, be it that they feed one another for ever.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from headrace.ir import shrinking, walk
from headrace.ir.editing import Editor, unneeded
from headrace.ir.function import FuncGraph, owned
from headrace.optimize.base import Context, Pass
from headrace.optimize.liveness import Parts
from headrace.optimize.reading import has_effect, in_order, owns_graphs, primitives

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation


class Prune(Pass):
    """See the module's text."""

    name = "prune"

    def call(self, graph: Graph, context: Context) -> bool:
        return _prune(graph, context)


def _prune(graph: Graph, context: Context) -> bool:
    structured = [op for op in graph.operations if op.opdef.structured]
    kept = context.kept_of(graph)
    if not structured and not unneeded(graph, kept):
        return False
    edit = Editor(graph, kept)
    changed = bool(edit.sweep())
    structured = [op for op in structured if op.name in graph]
    if structured and not primitives(graph):
        # those that read before those that are read, so that what the former no longer read the latter need not make
        shrunk = False
        for op in _readers_first(structured):
            if graph.find(op.name) is not op:
                continue
            before = [t.op for t in op.inputs]
            if _shrink(edit, op, context):
                shrunk = True
                edit.let_go(dict.fromkeys(before))  # so that what is no longer read is seen to be that
        if shrunk:
            changed = True
            edit.sweep()
    if isinstance(graph, FuncGraph):
        _forget_captures(graph)
    return changed


def _readers_first(ops: list[Operation]) -> list[Operation]:
    wanted = set(ops)
    return [op for op in reversed(in_order(ops[0].graph)) if op in wanted]


def _forget_captures(graph: FuncGraph) -> None:
    """Lets what the graph knows of its making be only of what is still there."""
    for known in (graph.captures, graph.originals):
        for t in [t for t, mine in known.items() if graph.find(mine.op.name) is not mine.op]:
            del known[t]


def _shrink(edit: Editor, op: Operation, context: Context) -> bool:
    if not owns_graphs(op):
        return False
    graphs = owned(op)
    if op.opdef.structured == "While":
        return _shrink_loop(edit, op, context)
    changed = False
    unread = [k for k, t in enumerate(op.outputs) if not edit.is_used(t)]
    if _is_waited_for(edit, op):
        wanted = set().union(*(_with_effects(g, unread) for g in graphs))
        if wanted:
            context.refused("prune", op, f"who waits for it wants {_some(len(wanted), 'result')} that nobody reads")
        unread = [k for k in unread if k not in wanted]
    if unread:
        shrinking.remove_results(edit, op, unread)
        for g in graphs:
            _prune(g, context)
        context.fired("prune", op, f"{_some(len(unread), 'result')} that nobody reads")
        changed = True
    offset = len(op.inputs) - len(graphs[0].params)
    read = set().union(*(_params_read(g) for g in graphs))
    unused = [k + offset for k in range(len(graphs[0].params)) if k not in read]
    if unused:
        shrinking.remove_inputs(edit, op, unused)
        context.fired("prune", op, f"{_some(len(unused), 'input')} that nothing in it reads")
        changed = True
    return changed


def _is_waited_for(edit: Editor, op: Operation) -> bool:
    """Whether anybody wants all of `op` done, not just what it gives."""
    graph = edit.graph
    return bool(edit.waits.get(op)) or op in edit.kept or (isinstance(graph, FuncGraph) and op in graph.control_results)


def _with_effects(graph: FuncGraph, results: list[int]) -> set[int]:
    """Those of `results` that something with effects is done for, and for no control result."""
    done = walk.reachable(graph.control_results)
    wanted = set()
    for k in results:
        if any(op not in done and has_effect(op) for op in walk.reachable([graph.results[k].op])):
            wanted.add(k)
    return wanted


def _params_read(graph: FuncGraph) -> set[int]:
    """The numbers of the parameters that are read, or are results."""
    read = {t for op in graph.operations for t in op.inputs}
    read.update(graph.results)
    return {k for k, p in enumerate(graph.params) if p in read}


def _shrink_loop(edit: Editor, op: Operation, context: Context) -> bool:
    if len(op.attrs["body"].results) != len(op.inputs):  # whoever runs it says that they do not fit
        return False
    live = _live(edit, op)
    gone = [k for k in range(len(op.inputs)) if k not in live]
    if not gone:
        return False
    names = ", ".join(op.attrs["body"].params[k].op.name for k in gone[:4]) + (", ..." if len(gone) > 4 else "")
    body: FuncGraph = op.attrs["body"]
    # their next values first, so that the body no longer reads their parameters; constants stay so until they go
    kept = [t if k in live else body.params[k] for k, t in enumerate(body.results)]
    body.results, all_results = [t for k, t in enumerate(kept) if k in live], kept
    _prune(body, context)
    body.results = all_results
    shrinking.remove_variables(edit, op, gone)
    context.fired("prune", op, f"{_some(len(gone), 'variable')} that nobody needs: {names}")
    return True


def _live(edit: Editor, op: Operation) -> Collection[int]:
    """The numbers of the variables of a loop that are needed."""
    body: FuncGraph = op.attrs["body"]
    parts = Parts(op)
    parts.need(None)
    wanted = [k for k, t in enumerate(op.outputs) if edit.is_used(t)]
    if _is_waited_for(edit, op):
        wanted += _with_effects(body, list(range(len(op.inputs))))
    for k in wanted:
        parts.need(k)
    return parts.live


def _some(n: int, what: str) -> str:
    return f"{n} {what}{'s' if n > 1 else ''}"
