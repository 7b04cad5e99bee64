"""Gradients of calls.

A call of an ordinary function is a conditional with one branch (`conditionals`). A *recursive* function needs another
method. The residuals of a forward call contain those of the inner calls, and so on, as deep as the recursion goes at
run time. So the residuals of one call are one value: a tuple with those of the inner calls as components (an Optional,
a variant that holds tensors of several dtypes). For a recursive function f two functions are made:

* `f_residuals` computes f and returns the residuals of its gradient as one more result, the last. Where f calls f, it
  calls `f_residuals`.
* `f_grad` takes the gradients of f's results and that tuple, and returns the gradients of f's arguments. Where f calls
  f, it calls `f_grad`, with the tuple that the inner call of `f_residuals` returned.

The same method is used for a function whose nested calls would expand to very many operations: the gradient of each
function is made once, for all its calls.

Both functions go into the library. The differentiated call becomes a call of `f_residuals`. A second derivative finds
two recursive functions, `f_residuals` and `f_grad`, and treats them in the same way.

A `For` or a `SymbolicGradient` is differentiated as a call of the graph that it stands for (`call_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace import dtypes, nest, thresholds
from headrace.api import tracing
from headrace.api.rematerialization import unrepeatable
from headrace.errors import UnimplementedError
from headrace.grad.conditionals import grad_branches
from headrace.grad.graph import GradBuilder, GradGraph
from headrace.grad.registered import title
from headrace.grad.sums import dense
from headrace.grad.zeros import carries, gradient_dtype, gradient_shape, zeros_for
from headrace.ir.analysis.graph_size import graph_size
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.edit.copying import copied
from headrace.ir.function import called, free_function_name, recursive_functions
from headrace.ir.graph import FuncGraph, Graph, Tensor

if TYPE_CHECKING:
    from headrace.grad.sums import Gradient
    from headrace.grad.walks import Backward, Walks
    from headrace.ir.graph import Operation


def grad_call(
    b: Builder, op: Operation, dys: Sequence[Gradient | None], wanted: Sequence[bool], walks: Walks
) -> list[Gradient | None]:
    """Returns the gradients of a call; see `conditionals.grad_branches`."""
    f = op.attrs["f"]
    if isinstance(f, FuncGraph):
        return grad_branches(b, op, dys, wanted, walks)
    graph = op.graph.function(f.name)
    if not graph.gradient and not is_by_name(op):
        return grad_branches(b, op, dys, wanted, walks)
    if not graph.gradient or dys[-1] is not None:
        _call_forward(op, _with_residuals(_home(op.graph, f.name), f.name, walks.backward))
        graph = op.graph.function(op.attrs["f"].name)
    given = [
        zeros_for(b, t) if dy is None else dense(b, dy)
        for t, dy in zip(op.outputs, [*dys, None], strict=False)
        if carries(t.dtype) and t is not op.outputs[-1]
    ]
    ends = [k for k, p in enumerate(graph.params) if carries(p.dtype)]
    attrs = {"f": Func(graph.gradient), "Tout": tuple(gradient_dtype(graph.params[k]) for k in ends)}
    made = tracing.operation_of(b.make("StatefulPartitionedCall", ([*given, op.outputs[-1]],), attrs, "call"))
    grads: list[Gradient | None] = [None] * len(op.inputs)
    for k, t in zip(ends, made.outputs, strict=True):
        t.replace_static(gradient_shape(graph.params[k]), graph.params[k].handle)
        grads[k] = t
    return grads


def is_by_name(op: Operation) -> bool:
    """Whether the gradient of the call `op` is a call of a library function, too.

    It is if the function is recursive, or if gradient graphs of all nested calls would be too large or nested too
    deeply. Otherwise each call has a gradient graph of its own.
    """
    size = graph_size([op], reads=True)
    return (
        size.repeated > thresholds.GRADIENT_REPEATED_OPS
        or size.levels > thresholds.GRADIENT_CALL_LEVELS
        or op.attrs["f"].name in recursive_functions([op])
    )


class _GradCall(GradGraph):
    """Gradient of a recursive function, whose residuals are parameters.

    Attributes:
      items: the residuals, in the order of their parameters.
    """

    def __init__(self, name: str, outer: Graph, op: Operation, forward: FuncGraph) -> None:
        super().__init__(name, outer, op, forward)
        self.items: list[Tensor] = []

    def passes(self, k: int) -> bool:
        return False

    def drop(self, dead: set[Operation]) -> None:
        gone = {t for t, got in self.have.items() if got.op in dead}
        super().drop(dead)
        self.items = [t for t in self.items if t not in gone]

    def residual(self, t: Tensor) -> Tensor:
        self.items.append(t)
        return self.add_param(t.dtype, t.shape, t.op.name, t.name, t.op.source, t.handle)


def _home(graph: Graph, name: str) -> Graph:
    """Returns `graph` or the outer graph of it whose library has the function `name`."""
    graph.function(name)
    while name not in graph.functions:
        assert graph.outer is not None
        graph = graph.outer
    return graph


def _call_forward(op: Operation, forward: FuncGraph) -> None:
    """Makes `op` a call of `forward`, which returns the residuals as one more result."""
    op.graph.extend_op(op, (), {"f": Func(forward.name), "Tout": (*op.attrs["Tout"], dtypes.variant)})
    op.outputs[-1].refine(())


def _with_residuals(home: Graph, name: str, backward: Backward) -> FuncGraph:
    """Returns the variant of a recursive function that also returns its residuals.

    The variant and the gradient function are made on the first call.

    Args:
      home: the graph whose library has the function.
      name: the name of the function.
      backward: the reverse walk.
    """
    graph = home.function(name)
    if graph.with_residuals:
        return home.function(graph.with_residuals)
    graph.with_residuals = free_function_name(home, f"{name}_residuals")
    forward = home.functions[graph.with_residuals] = copied(graph, home, name=graph.with_residuals)
    forward.gradient = free_function_name(home, f"{name}_grad")
    out = home.functions[forward.gradient] = FuncGraph(forward.gradient, home, captures_from_outer=False)

    carried = [r for r in forward.results if carries(r.dtype)]
    given = [out.add_param(r.dtype, r.shape, f"d{i}", handle=r.handle) for i, r in enumerate(carried)]
    tape = out.add_param(dtypes.variant, (), "residuals")
    ends = [p for p in forward.params if carries(p.dtype)]
    for call in list(_calls(forward)):
        f = call.attrs["f"]
        if is_by_name(call):
            _call_forward(call, _with_residuals(home, f.name, backward))

    inner = _GradCall(f"{forward.gradient}_inner", home, next(iter(forward.params)).op, forward)
    dys = [inner.add_param(r.dtype, r.shape, f"d{i}", handle=r.handle) for i, r in enumerate(carried)]
    at = GradBuilder(inner, "")
    found = backward(at, carried, dys, ends)
    tracing.finish(inner, [zeros_for(at, p) if g is None else dense(at, g) for p, g in zip(ends, found, strict=True)])

    b = Builder(forward, source=graph.source)
    values = inner.items or [b.const(False, dtypes.bool_, "nothing")]  # an Optional needs at least one component
    forward.add_results([b.OptionalFromValue(values, name="residuals")])
    b = Builder(out, source=graph.source)
    types = tuple(t.dtype.base for t in values)
    items = b.make(
        "OptionalGetValue", (tape,), {"output_types": types, "output_shapes": tuple(t.shape for t in values)}
    )
    items = nest.as_list(items)[: len(inner.items)]
    type = "StatefulPartitionedCall" if tracing.is_stateful(inner) else "PartitionedCall"
    tout = tuple(r.dtype.base for r in inner.results)
    made = tracing.operation_of(b.make(type, ([*given, *items],), {"f": inner, "Tout": tout}, "call"))
    tracing.finish(out, made.outputs)
    return forward


def _calls(graph: FuncGraph) -> list[Operation]:
    """Calls of library functions in `graph` and its nested graphs."""
    return [op for op, _ in called(graph.operations) if op.opdef.structured == "Call"]


def call_of(op: Operation, graph: FuncGraph, home: Graph, lacks: str, advice: str) -> Operation:
    """Makes a call of a copy of `graph` on the inputs of `op`.

    The call computes the same as `op`, and can be extended.

    Args:
      op: an operation that stands for a graph, such as a For.
      graph: the graph that computes it.
      home: the graph of the call, that of `op` or a nested one.
      lacks: see `check_repeatable`.
      advice: see `check_repeatable`.
    """
    check_repeatable(op, graph, lacks, advice)
    b = Builder(home, source=op.source, device=op.device)
    attrs = {"f": copied(graph, home), "Tout": tuple(t.dtype.base for t in op.outputs)}
    type = "StatefulPartitionedCall" if tracing.is_stateful(graph) else "PartitionedCall"
    return tracing.operation_of(b.make(type, (list(op.inputs),), attrs, f"{op.name}/call"))


def check_repeatable(op: Operation, graph: FuncGraph, lacks: str, advice: str) -> None:
    """Raises an error if `graph`, which computes `op`, cannot run twice.

    Args:
      op: the operation.
      graph: a graph that it owns or stands for.
      lacks: the kind of derivative that `op` then does not have, for the error message.
      advice: the way to continue, for the error message.

    Raises:
      UnimplementedError: an operation of the graph would have another result the second time.
    """
    found = unrepeatable(graph)
    if found is not None:
        raise UnimplementedError(
            f"operation {title(op)} has no {lacks}, because it would have to run twice, and {title(found)} in it would "
            f"have another result the second time. {advice}",
            op.name,
            op,
        )
