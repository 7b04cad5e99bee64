"""The gradient of a function as a function: what a `SymbolicGradient` operation stands for.

Source: TensorFlow's SymbolicGradient, the gradients of its first functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.grad.backward import backward
from headrace.ir import walk
from headrace.ir.builder import Builder
from headrace.ir.function import FuncGraph, body
from headrace.ir.opdef import Func

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


def differentiate(op: Operation) -> FuncGraph:
    """The graph that computes what `op`, a SymbolicGradient, stands for.

    It takes what the function takes, then a gradient for each of the function's results, and gives a gradient for each
    of its arguments. A function whose library names its gradient has that one.

    Raises:
      NotFoundError: the function is not there. LookupError: something in it has no gradient.
      InvalidArgumentError: the operation's types are not those of the function.
    """
    f = op.attrs["f"]
    if isinstance(f, Func):
        named = _gradient_function(op.graph, f.name)
        if named is not None:
            return named
    graph = body(op, f)
    n = len(graph.params)
    if len(op.inputs) != n + len(graph.results):
        raise InvalidArgumentError(
            f"SymbolicGradient '{op.name}' of {graph.name!r} needs {n} arguments and {len(graph.results)} gradients, "
            f"got {len(op.inputs)} inputs",
            op.name,
            op,
        )
    out = FuncGraph(f"{graph.name}_gradient", graph.outer, captures_from_outer=False)
    moved: dict[Tensor, Tensor] = {}
    for p, given in zip(graph.params, op.inputs, strict=False):
        moved[p] = out.add_param(p.dtype, p.shape if p.shape is not None else given.shape, p.op.name)
    order = walk.in_order(walk.reachable([r.op for r in graph.results]))
    copies: dict[Operation, Operation] = {}
    for o in order:
        if o.outputs and o.outputs[0] in moved:
            continue
        controls = [copies[c] for c in o.control_inputs if c in copies]
        copies[o] = copy = out.copy_op(o, [moved[t] for t in o.inputs], controls, out.unique_name(o.name))
        moved.update(zip(o.outputs, copy.outputs, strict=True))
    ys = [moved[r] for r in graph.results]
    dys = [out.add_param(t.dtype, t.shape, f"d{i}") for i, t in enumerate(op.inputs[n:])]
    b = Builder(out, source=op.source)
    xs = out.params[:n]
    grads = backward(b, ys, dys, xs)
    out.results = [b.ZerosLike(x) if g is None else g for x, g in zip(xs, grads, strict=True)]
    return out


def _gradient_function(graph: Graph, name: str) -> FuncGraph | None:
    around: Graph | None = graph
    while around is not None:
        gradient = around.gradient_functions.get(name)
        if gradient is not None:
            try:
                return around.function(gradient)
            except NotFoundError as e:
                e.add_note(f"it is named as the gradient of {name!r}")
                raise
        around = around.outer
    return None
