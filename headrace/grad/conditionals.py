"""Gradients of conditionals and calls.

    y = If(p, x)      then: sin(x)      else: x * x

has the gradient

    dx = If(p, dy, x)      then: dy * cos(x)      else: dy * x + dy * x

This is an If on the same predicate, whose branches are the gradients of the branches. If such a branch needs a value of
the forward branch that is not available otherwise, the forward If returns it as one more result
(`GradGraph.residual`). The other branch has no such value and returns a `FakeParam`. Nothing reads this one, because
the gradient takes the same branch.

If one branch does not use an input and the other one does, its gradient in the first one is zeros. A call is a
conditional with one branch.

**Rematerialization.** A call with the note `RematerializedCall` stores only its arguments for its gradient. The
gradient is a call that computes all forward values again and then the gradients; it has the note, too. To save memory
it starts only when the gradients of its outputs have arrived, not as soon as its other inputs have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.api import tracing
from headrace.grad.graph import GradBuilder, GradGraph
from headrace.grad.sums import dense
from headrace.grad.zeros import no_slices, shape_of_gradient, zeros_for
from headrace.ir.builder import Builder
from headrace.ir.edit import add_values
from headrace.ir.edit.copying import copied
from headrace.ir.function import bodies, param_offset, unify
from headrace.ir.graph import FuncGraph, Tensor
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.notes import RematerializedCall

if TYPE_CHECKING:
    from headrace.grad.sums import Gradient
    from headrace.grad.walks import Flow, Walks
    from headrace.ir.graph import Graph, Operation


class GradBranch(GradGraph):
    """Gradient of a branch, or of a called function."""

    def __init__(self, name: str, outer: Graph, op: Operation, forward: FuncGraph) -> None:
        super().__init__(name, outer, op, forward)
        self._returned: dict[Tensor, Tensor] = {}  # a result of the forward graph -> the operation's output for it
        self._read = 0  # number of results that are in `_returned`

    def residual(self, t: Tensor) -> Tensor:
        op = self.op
        graphs = add_values.own_graphs(op)
        for k in range(self._read, len(op.outputs)):
            self._returned.setdefault(self.forward.results[k], op.outputs[k])
        self._read = len(op.outputs)
        if t in self._returned:
            return self.capture_outer(self._returned[t])
        ends = [t if g is self.forward else _nothing(g, t) for g in graphs]
        return self.capture_outer(add_values.add_result(op, ends))


def _nothing(graph: FuncGraph, like: Tensor) -> Tensor:
    """Returns a placeholder value for a result that only another branch has.

    Args:
      graph: the branch.
      like: the result of the other branch.
    """
    b = Builder(graph, source=like.op.source)
    dtype = like.dtype.base
    out: Tensor
    if dtype is dtypes.variant:
        of = like.handle[0] if like.handle is not None else dtypes.float32
        out = b.EmptyTensorList(-1, -1, element_dtype=of)
    else:
        out = b.FakeParam(dtype=dtype, shape=like.shape)
    out.refine(handle=like.handle)
    return out


def flow_of_branches(flow: Flow, op: Operation, ins: Sequence[int]) -> list[int]:
    """Returns the sets of sources of the outputs of an If, Case or call.

    They are unions over the branches.

    Args:
      flow: the activity analysis.
      op: the operation.
      ins: the sets of its inputs.
    """
    outs = [0] * len(op.outputs)
    for _, graph in bodies(op):
        found = flow.through_graph(graph, ins[len(ins) - len(graph.params) :])
        for i, sources in enumerate(found[: len(outs)]):  # a call of an unfinished recursive function has more outputs
            outs[i] |= sources
    return outs


def grad_branches(
    b: Builder, op: Operation, dys: Sequence[Gradient | None], wanted: Sequence[bool], walks: Walks
) -> list[Gradient | None]:
    """Returns the gradients of an If, Case or call.

    Args:
      b: the builder of the gradient.
      op: the operation, in the graph of `b` or in its forward graph.
      dys: the gradient of each output, or None.
      wanted: for each input, whether its gradient is needed.
      walks: the walks through the graphs of `op`.

    Returns:
      The gradient of each input, or None.
    """
    since = len(b.graph)
    graphs = add_values.own_graphs(op)
    offset = param_offset(op)
    outs = [k for k, dy in enumerate(dys) if dy is not None]
    given = [dense(b, dy) for dy in dys if dy is not None]
    ins = [k for k in range(offset, len(op.inputs)) if wanted[k]]
    make = _again if RematerializedCall in op.notes else _back
    builders, found = [], []
    for graph in graphs:
        inner, moved = make(b, op, graph)
        mine: FuncGraph = inner.graph  # type: ignore[assignment]
        ys, xs = [moved(graph.results[k]) for k in outs], [moved(graph.params[k - offset]) for k in ins]
        found.append(walks.backward(inner, ys, [mine.capture(dy) for dy in given], xs))
        builders.append(inner)
    backs: list[FuncGraph] = [inner.graph for inner in builders]  # type: ignore[misc]
    ends: list[list[Tensor]] = [[] for _ in backs]
    widths = []
    for i, k in enumerate(ins):
        parts = _alike(builders, [g[i] for g in found], op.inputs[k])
        for end, part in zip(ends, parts, strict=True):
            end += part
        widths.append(len(parts[0]))
    for back, results in zip(backs, ends, strict=True):
        tracing.finish(back, results)
    if isinstance(b.graph, GradGraph):  # before the predicate is captured, which must not be computed from dead values
        b.graph.settle(since, [*given, *(t for back in backs for t, _ in back.captured)])
    grads: list[Gradient | None] = [None] * len(op.inputs)
    outputs = list(_owner(b, op, backs, given).outputs) if ends[0] else []
    for k, width in zip(ins, widths, strict=True):
        part, outputs = outputs[:width], outputs[width:]
        if width == 1:
            grads[k] = part[0]
        elif width:
            grads[k] = IndexedSlices(part[0], part[1], shape_of_gradient(b, op.inputs[k]))
    return grads


def _back(b: Builder, op: Operation, forward: FuncGraph) -> tuple[Builder, Callable[[Tensor], Tensor]]:
    """Returns the builder for the gradient of `forward`, and the identity.

    The function maps forward tensors to those that the reverse walk differentiates.
    """
    part = forward.name.rpartition("_")[2]
    return GradBuilder(GradBranch(f"{op.name}_{part}_grad", b.graph, op, forward), b.scope), lambda t: t


def _again(b: Builder, op: Operation, forward: FuncGraph) -> tuple[Builder, Callable[[Tensor], Tensor]]:
    """Returns the same as `_back` for a rematerializing call.

    Its gradient begins with a copy of `forward`, and the function maps forward tensors to the copies.
    """
    moved: dict[Tensor, Tensor] = {}
    graph = copied(forward, b.graph, moved, f"{forward.name}_grad", captures=False)
    graph.captures_from_outer = True
    graph.set_control_results(())
    graph.role = f"the gradient of {forward.role or repr(forward.name)}"
    return Builder(graph, b.scope), moved.__getitem__


def _alike(builders: Sequence[Builder], parts: Sequence[Gradient | None], x: Tensor) -> list[list[Tensor]]:
    """Returns the results of each gradient branch for the gradient with respect to `x`.

    All branches return equally many: none, a tensor, or values and indices.

    Args:
      builders: the builders of the gradient branches.
      parts: the gradient that each of them computes, or None.
      x: the input of the operation.
    """
    some = [p for p in parts if p is not None]
    if not some:
        return [[] for _ in parts]
    slices = [p for p in some if isinstance(p, IndexedSlices)]
    out = []
    for b, part in zip(builders, parts, strict=True):
        if len(slices) == len(some):
            s = part if isinstance(part, IndexedSlices) else no_slices(b, x, slices[0])
            out.append([s.values, b.Cast(s.indices, DstT=dtypes.int64)])
        else:
            out.append([zeros_for(b, x) if part is None else dense(b, part)])
    return [[b.graph.capture(t) for t in ends] for b, ends in zip(builders, out, strict=True)]


def _owner(b: Builder, op: Operation, backs: Sequence[FuncGraph], dys: Sequence[Tensor]) -> Operation:
    """Makes the operation that owns `backs`, the gradients of the graphs of `op`.

    Args:
      b: the builder of the gradient.
      op: the forward operation.
      backs: the gradients of its graphs.
      dys: the gradients of its outputs, for which a rematerializing call waits.
    """
    attrs: dict[str, Any] = {"Tout": tuple(t.dtype.base for t in backs[0].results)}
    kind = op.opdef.structured
    if kind in ("If", "Case"):
        selector = b.graph.capture(op.inputs[0])
        attrs.update({"branches": tuple(backs)} if kind == "Case" else zip(("then_branch", "else_branch"), backs))
        return tracing.make(kind, b, kind, backs, [selector], [], attrs)
    (back,) = backs
    attrs["f"] = back
    args: list[Tensor] = []
    if RematerializedCall in op.notes:
        args = [b.graph.capture(t) for t in op.inputs]
        b = b.after(*dys)
    inputs = [*args, *unify(backs, len(args))]
    type = "StatefulPartitionedCall" if tracing.is_stateful(back) else "PartitionedCall"
    return tracing.operation_of(b.after(*back.outer_controls).make(type, (inputs,), attrs, "call", op.notes))
