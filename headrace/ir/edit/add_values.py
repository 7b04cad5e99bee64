"""How an `If`, `While` or call grows, once it is made: more inputs, variables, results.

Gradients need of a conditional or loop what it did not return: the values its branch computed on the way, a list of
those of all iterations. So the operation grows, at the end: what it has keeps its position and meaning, and whoever
fetched it before fetches the same. What nobody reads of it does not run (lowering leaves it away), so to have grown
costs nothing.

An operation can grow only if it owns its graphs. One that names functions of a library first gets copies of them
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
    """The graphs of the structured operation `op`, in the order of `bodies`, all its own: those that it named in the
    library become copies.

    Raises:
      NotFoundError: a function that it names is not in the library.
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
    """Gives a conditional or call one more input, `t`.

    Args:
      op: an If, Case or call.
      t: a tensor of the graph that `op` stands in (or one that it may capture), which must not depend on `op`.
      name: what the new parameters are called; as `t` if empty.

    Returns:
      The parameter that stands for it in each of its graphs.
    """
    graphs = own_graphs(op)
    t = op.graph.capture(t)
    op.graph.extend_op(op, [t], {"Tin": (*op.attrs["Tin"], t.dtype.base)})
    return [_add_param(g, t, name) for g in graphs]


def add_result(op: Operation, ends: Sequence[Tensor]) -> Tensor:
    """Gives a conditional or call one more result: `ends`, a tensor of each of its graphs. Returns the new output."""
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
    """Gives a While one more variable, which is a loop constant until `set_result` says otherwise.

    Args:
      op: the loop.
      init: the variable's first value, a tensor of the graph that the loop stands in, which must not depend on it.
      name: what its parameters are called; as `init` if empty.

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
    """Makes `value`, a tensor of the body, what variable `k` of a While becomes in the next iteration.

    The variable's static shape is widened to what covers both.

    Raises:
      GraphError: the variable is no loop constant: it has a next value, on which others rely.
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
