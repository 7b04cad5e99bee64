"""Gradients of conditionals and calls.

    y = If(p, x)      then: sin(x)      else: x * x

has the gradient

    dx = If(p, dy, x)      then: dy * cos(x)      else: dy * x + dy * x

an If on the same predicate, whose branches are the gradients of the branches. What such a branch needs of the forward
branch and cannot have otherwise, the forward If returns as one result more (`GradGraph.residual`); the other branch has
nothing to return there and returns a `FakeParam`, which nobody reads: the gradient takes the same branch.

Where a branch does not use an input, its gradient there is zeros, if the other one's is not. A call is a conditional
with one branch.

**Calls that compute again.** A call with the attribute `_recompute` keeps nothing for its gradient but its arguments:
the gradient is a call that does all of it again and then goes back (and is such a call, too). It starts when its own
gradients have come, not as soon as it could, for the sake of what it then holds in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace import dtypes
from headrace.api import tracing
from headrace.grad.graph import GradBuilder, GradGraph
from headrace.grad.sums import dense
from headrace.grad.zeros import no_slices, shape_of_gradient, zeros_for
from headrace.ir.builder import Builder
from headrace.ir.edit import add_values
from headrace.ir.edit.copying import copied
from headrace.ir.function import param_offset, unify
from headrace.ir.graph import FuncGraph, Tensor
from headrace.ir.indexed_slices import IndexedSlices

if TYPE_CHECKING:
    from headrace.grad.sums import Gradient
    from headrace.ir.graph import Graph, Operation

# The reverse walk: backward(b, ys, dys, xs) -> the gradient of each x.
Backward: TypeAlias = "Callable[..., list[Gradient | None]]"


class GradBranch(GradGraph):
    """The gradient of a branch, or of a called function."""

    def __init__(self, name: str, outer: Graph, op: Operation, forward: FuncGraph) -> None:
        super().__init__(name, outer, op, forward)
        self._returned: dict[Tensor, Tensor] = {}  # a result of the branch -> what the operation has for it
        self._read = 0  # so many results are in it

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
    """What a branch returns where only the other one has a value, which is like `like`."""
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


def grad_branches(
    b: Builder, op: Operation, dys: Sequence[Gradient | None], wanted: Sequence[bool], backward: Backward
) -> list[Gradient | None]:
    """The gradients of an If, Case or call with respect to the inputs that are `wanted`.

    Args:
      b: makes operations where the gradient goes.
      op: the operation, of that graph or of the one whose gradient that is.
      dys: the gradient of each output, or None.
      wanted: for each input whether its gradient is asked for.
      backward: the reverse walk.
    """
    since = len(b.graph)
    graphs = add_values.own_graphs(op)
    offset = param_offset(op)
    outs = [k for k, dy in enumerate(dys) if dy is not None]
    given = [dense(b, dy) for dy in dys if dy is not None]
    ins = [k for k in range(offset, len(op.inputs)) if wanted[k]]
    make = _again if op.attrs.get("_recompute") else _back
    builders, found = [], []
    for graph in graphs:
        inner, moved = make(b, op, graph)
        mine: FuncGraph = inner.graph  # type: ignore[assignment]
        ys, xs = [moved(graph.results[k]) for k in outs], [moved(graph.params[k - offset]) for k in ins]
        found.append(backward(inner, ys, [mine.capture(dy) for dy in given], xs))
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
    if isinstance(b.graph, GradGraph):  # before the predicate is asked for: it must not be computed from what is dead
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
    """Where the gradient of `forward` is made, and what its tensors are called for the walk: themselves."""
    part = forward.name.rpartition("_")[2]
    return GradBuilder(GradBranch(f"{op.name}_{part}_grad", b.graph, op, forward), b.scope), lambda t: t


def _again(b: Builder, op: Operation, forward: FuncGraph) -> tuple[Builder, Callable[[Tensor], Tensor]]:
    """The same for a call that computes again: its gradient begins with a copy of `forward`, which the walk is in."""
    moved: dict[Tensor, Tensor] = {}
    graph = copied(forward, b.graph, moved, f"{forward.name}_grad", captures=False)
    graph.captures_from_outer = True
    graph.set_control_results(())
    graph.role = f"the gradient of {forward.role or repr(forward.name)}"
    return Builder(graph, b.scope), moved.__getitem__


def _alike(builders: Sequence[Builder], parts: Sequence[Gradient | None], x: Tensor) -> list[list[Tensor]]:
    """What each branch returns for the gradient with respect to `x`: nothing, a tensor, or values and indices.

    Args:
      builders: of the gradients of the branches.
      parts: what was found in each of them.
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
    """The operation that owns `backs`, the gradients of the graphs of `op`."""
    attrs: dict[str, Any] = {"Tout": tuple(t.dtype.base for t in backs[0].results)}
    kind = op.opdef.structured
    if kind in ("If", "Case"):
        selector = b.graph.capture(op.inputs[0])
        attrs.update({"branches": tuple(backs)} if kind == "Case" else zip(("then_branch", "else_branch"), backs))
        return tracing.make(kind, b, kind, backs, [selector], [], attrs)
    (back,) = backs
    attrs["f"] = back
    args: list[Tensor] = []
    if op.attrs.get("_recompute"):
        attrs["_recompute"] = True
        args = [b.graph.capture(t) for t in op.inputs]
        b = b.after(*dys)
    inputs = [*args, *unify(backs, len(args))]
    type = "StatefulPartitionedCall" if tracing.is_stateful(back) else "PartitionedCall"
    return tracing.operation_of(b.after(*back.outer_controls).make(type, (inputs,), attrs, "call"))
