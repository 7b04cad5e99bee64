"""The gradient of a function as a function: the graph of a `SymbolicGradient` operation.

Source: TensorFlow's SymbolicGradient, the gradients of its first functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.grad.sums import dense
from headrace.grad.zeros import zeros_for
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.edit.copying import copied
from headrace.ir.function import body
from headrace.ir.graph import FuncGraph, Graph

if TYPE_CHECKING:
    from headrace.grad.walks import Backward
    from headrace.ir.graph import Operation, Tensor


def gradient_graph(op: Operation, backward: Backward) -> FuncGraph:
    """Returns the graph that computes `op`, a SymbolicGradient.

    Its parameters are those of the function, then one gradient for each result of the function. Its results are the
    gradients of the function's parameters. If the library names a gradient function for the function, that one is
    returned.

    Args:
      op: the operation.
      backward: the reverse walk.

    Raises:
      NotFoundError: the library does not have the function, or its gradient function.
      LookupError: an operation of the function has no gradient.
      InvalidArgumentError: the inputs of `op` are not as many as the function's parameters and results.
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
    moved: dict[Tensor, Tensor] = {}
    out = copied(graph, _Aside(graph.outer), moved, f"{graph.name}_gradient")
    for p, given in zip(out.params, op.inputs, strict=False):
        if p.shape is None:
            p.refine(given.shape)
    out.set_control_results(())
    ys = [moved[r] for r in graph.results]
    dys = [out.add_param(t.dtype, t.shape, f"d{i}") for i, t in enumerate(op.inputs[n:])]
    b = Builder(out, source=op.source)
    xs = out.params[:n]
    grads = backward(b, ys, dys, xs)
    out.set_results(zeros_for(b, x) if g is None else dense(b, g) for x, g in zip(xs, grads, strict=True))
    return out


class _Aside(Graph):
    """Outer graph of a graph that replaces another.

    It lies between the replacement and the real outer graph, so changes of the replacement do not change the version of
    the real outer graph.
    """

    is_part = False

    def __init__(self, outer: Graph | None) -> None:
        super().__init__()
        self.outer = outer


def _gradient_function(graph: Graph, name: str) -> FuncGraph | None:
    around: Graph | None = graph
    while around is not None:
        gradient = around.gradient_functions.get(name)
        if gradient is not None:
            try:
                return around.function(gradient)
            except NotFoundError as e:
                e.add_note(f"it is registered as the gradient of {name!r}")
                raise
        around = around.outer
    return None
