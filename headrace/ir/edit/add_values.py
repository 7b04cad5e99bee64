"""Growth of an existing `If`, `While` or call: more inputs, loop variables and results.

A gradient needs values that a conditional or loop did not return: intermediate values of a branch, or a list of such
values of all iterations. So the operation gets new inputs and outputs, at the end. The old ones keep their positions
and meanings, and old fetches return the same values. Lowering drops results that no operation reads, so unused ones
cost nothing.

An operation can grow only if it owns its graphs. If it names functions of a library, it first gets copies of them
(`own_graphs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace import shapes
from headrace.errors import GraphError
from headrace.ir.attr_values import Func
from headrace.ir.edit.copying import copied
from headrace.ir.function import bodies, body
from headrace.ir.graph import FuncGraph

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor


def own_graphs(op: Operation) -> list[FuncGraph]:
    """Returns the graphs of the structured operation `op`, after making `op` their owner.

    Functions of the library that `op` names are replaced by copies. The order is that of `bodies`.

    Raises:
      NotFoundError: the library lacks a function that `op` names.
    """
    for name, spec in op.opdef.attrs.items():
        if spec.kind != "func":
            continue
        value = op.attrs[name]
        many = value if isinstance(value, tuple) else (value,)
        if any(isinstance(f, Func) for f in many):
            mine = []
            for f in many:
                graph = body(op, f)
                copy = graph if isinstance(f, FuncGraph) else copied(graph, op.graph)
                copy.captures_from_outer = True
                mine.append(copy)
            op.attrs[name] = tuple(mine) if isinstance(value, tuple) else mine[0]
    return [graph for _, graph in bodies(op)]


def add_input(op: Operation, t: Tensor, name: str = "") -> list[Tensor]:
    """Adds the input `t` to a conditional or call.

    Args:
      op: an If, Case or call.
      t: a tensor of the graph of `op`, or one that this graph may capture; it must not depend on `op`.
      name: the name of the new parameters; "": that of `t`.

    Returns:
      The new parameter of each graph.
    """
    graphs = own_graphs(op)
    t = op.graph.capture(t)
    op.graph.extend_op(op, [t], {"Tin": (*op.attrs["Tin"], t.dtype.base)})
    return [_add_param(g, t, name) for g in graphs]


def add_result(op: Operation, ends: Sequence[Tensor]) -> Tensor:
    """Adds a result to a conditional or call.

    Args:
      op: an If, Case or call.
      ends: a tensor of each graph, in the order of `bodies`.

    Returns:
      The new output.
    """
    for g, end in zip(own_graphs(op), ends, strict=True):
        g.add_results([g.capture(end)])
    op.graph.extend_op(op, (), _with_output(op, ends))
    out = op.outputs[-1]
    shape = ends[0].shape
    for t in ends[1:]:
        shape = shapes.join(shape, t.shape)
    handles = {t.handle for t in ends}
    out.replace_static(shape, handles.pop() if len(handles) == 1 else None)
    return out


def _with_output(op: Operation, ends: Sequence[Tensor]) -> dict[str, object]:
    attrs: dict[str, object] = {"Tout": (*op.attrs["Tout"], ends[0].dtype.base)}
    if op.attrs.get("output_shapes"):
        attrs["output_shapes"] = (*op.attrs["output_shapes"], None)
    return attrs


def add_variable(op: Operation, init: Tensor, name: str = "") -> tuple[Tensor, Tensor]:
    """Adds a loop variable to a While: a loop constant until `set_result` is called.

    Args:
      op: the loop.
      init: the initial value, a tensor of the graph of `op`, which must not depend on `op`.
      name: the name of the new parameters; "": that of `init`.

    Returns:
      The body's parameter, and the loop's new output.
    """
    graphs = own_graphs(op)
    init = op.graph.capture(init)
    attrs: dict[str, object] = {"T": (*op.attrs["T"], init.dtype.base)}
    if op.attrs.get("output_shapes"):
        attrs["output_shapes"] = (*op.attrs["output_shapes"], None)
    op.graph.extend_op(op, [init], attrs)
    loop_body: FuncGraph = op.attrs["body"]
    param = init
    for g in graphs:
        p = _add_param(g, init, name)
        if g is loop_body:
            param = p
            g.add_results([p])
    out = op.outputs[-1]
    out.copy_static(init)
    return param, out


def set_result(op: Operation, k: int, value: Tensor) -> None:
    """Makes `value`, a tensor of the body, the next value of loop variable `k`.

    The static shape of the variable is widened to cover both shapes.

    Args:
      op: the While.
      k: the position of the variable.
      value: the next value.

    Raises:
      GraphError: the variable is not a loop constant: it has a next value, on which other operations rely.
    """
    graph: FuncGraph = op.attrs["body"]
    param = graph.params[k]
    if graph.results[k] is not param:
        raise GraphError(f"variable {k} of '{op.name}' has a next value already: {graph.results[k].name!r}")
    graph.set_results([*graph.results[:k], graph.capture(value), *graph.results[k + 1 :]])
    shape = shapes.join(param.shape, value.shape)
    if shape != param.shape:
        for _, g in bodies(op):
            g.describe_param(g.params[k], shape, g.params[k].handle)
    op.outputs[k].replace_static(shape, op.outputs[k].handle if param.handle == value.handle else None)


def _add_param(graph: FuncGraph, t: Tensor, name: str) -> Tensor:
    return graph.add_param(t.dtype, t.shape, name or t.op.name.removeprefix("arg."), t.name, t.op.source, t.handle)
