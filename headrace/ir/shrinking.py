"""How an `If`, `While` or call shrinks: inputs, variables and results go, and the rest moves up.

The counterpart of `ir.growing`. A user's operation only grows, since others know its outputs by their numbers; here it
is the operations of private graphs (`ir.editing`) that lose what nobody reads. The tensors that stay are the same
objects as before, under new numbers.

All of it is for operations that own their graphs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

from headrace.errors import GraphError
from headrace.ir.function import owned

if TYPE_CHECKING:
    from headrace.ir.editing import Editor
    from headrace.ir.function import FuncGraph
    from headrace.ir.graph import Operation

V = TypeVar("V")


def remove_inputs(edit: Editor, op: Operation, gone: Collection[int]) -> None:
    """Takes inputs from a conditional or call, and from its graphs the parameters that stand for them.

    Args:
      edit: the editor of the graph that `op` stands in.
      op: an If, Case or call.
      gone: numbers of inputs; of a conditional not 0, which says what is done.

    Raises:
      GraphError: a parameter is in use.
    """
    offset = len(op.inputs) - len(op.attrs["Tin"])
    for graph in owned(op):
        _remove_params(graph, {k - offset for k in gone})
    edit.set_inputs(op, _without(op.inputs, gone))
    op.attrs = {**op.attrs, "Tin": tuple(_without(op.attrs["Tin"], {k - offset for k in gone}))}


def remove_results(edit: Editor, op: Operation, gone: Collection[int]) -> None:
    """Takes results from a conditional or call, and from its graphs.

    Args:
      edit: the editor of the graph that `op` stands in.
      op: an If, Case or call.
      gone: numbers of outputs.

    Raises:
      GraphError: an output is in use.
    """
    _check_unread(edit, op, gone)
    for graph in owned(op):
        graph.results = _without(graph.results, gone)
    op.attrs = {**op.attrs, "Tout": tuple(_without(op.attrs["Tout"], gone)), **_shapes(op, gone)}
    _remove_outputs(op, gone)


def remove_variables(edit: Editor, op: Operation, gone: Collection[int]) -> None:
    """Takes variables from a While: inputs, outputs, parameters and next values.

    Args:
      edit: the editor of the graph that `op` stands in.
      op: a While.
      gone: numbers of variables. What makes their next values stays in the body, where a sweep finds it.

    Raises:
      GraphError: an output is in use, or a parameter is, other than by what is gone itself.
    """
    _check_unread(edit, op, gone)
    body: FuncGraph = op.attrs["body"]
    body.results = _without(body.results, gone)
    for graph in owned(op):
        _remove_params(graph, gone)
    edit.set_inputs(op, _without(op.inputs, gone))
    op.attrs = {**op.attrs, "T": tuple(_without(op.attrs["T"], gone)), **_shapes(op, gone)}
    _remove_outputs(op, gone)


def _without(items: Sequence[V], gone: Collection[int]) -> list[V]:
    return [v for k, v in enumerate(items) if k not in gone]


def _shapes(op: Operation, gone: Collection[int]) -> dict[str, object]:
    stated = op.attrs.get("output_shapes")
    return {"output_shapes": tuple(_without(stated, gone))} if stated else {}


def _check_unread(edit: Editor, op: Operation, gone: Collection[int]) -> None:
    for k in gone:
        if edit.is_used(op.outputs[k]):
            raise GraphError(f"output {k} of '{op.name}' cannot be taken away: it is read")


def _remove_outputs(op: Operation, gone: Collection[int]) -> None:
    op.outputs = tuple(_without(op.outputs, gone))
    for k, t in enumerate(op.outputs):
        t.index = k


def _remove_params(graph: FuncGraph, gone: Collection[int]) -> None:
    mine = {graph.params[k] for k in gone}
    if not mine:
        return
    for op in graph.operations:
        if not mine.isdisjoint(op.inputs):
            t = next(t for t in op.inputs if t in mine)
            raise GraphError(f"the parameter {t.op.name!r} of {graph.title} cannot be taken away: '{op.name}' reads it")
    if not mine.isdisjoint(graph.results):
        raise GraphError(f"a parameter of {graph.title} that is to be taken away is one of its results")
    makers = {t.op for t in mine}
    for op in graph.operations:
        if not makers.isdisjoint(op.control_inputs):
            op.control_inputs = [c for c in op.control_inputs if c not in makers]
    graph.params = [p for p in graph.params if p not in mine]
    for k, p in enumerate(graph.params):
        p.op.attrs = {**p.op.attrs, "index": k}
    for known in (graph.captures, graph.originals):
        for t in [t for t, p in known.items() if p in mine]:
            del known[t]
    graph.take_back(makers)
