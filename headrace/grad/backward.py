"""The reverse walk: from what is known of a function's results to what that means for its inputs.

Each operation's record says how a gradient of its outputs becomes one of its inputs. The walk goes over the operations
between xs and ys against the edges, those nearest to ys first, and asks each record; where a tensor is used more than
once the contributions add up. Conditionals, loops and calls own graphs: their gradients are made by walks through those
(`conditionals`, `loops`), which this walk hands itself to.

ys and xs are of one graph, the *forward* graph. The gradient goes into that graph, or into one that is the gradient of
it (`grad.graph`); the walk need not know which.

Source: reverse-mode differentiation as in TensorFlow's `gradients_impl`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeAlias

from headrace import shapes
from headrace.errors import GraphError
from headrace.grad import conditionals, loops, registered
from headrace.grad.activity import Activity, carries
from headrace.grad.calls import grad_call, grad_for, grad_symbolic
from headrace.grad.graph import GradGraph
from headrace.grad.sums import dense, total
from headrace.grad.zeros import gradient_dtype, gradient_shape, zeros_for
from headrace.ir import walk
from headrace.ir.grad_node import GradNode
from headrace.ir.graph import Tensor
from headrace.ir.indexed_slices import IndexedSlices, forwarded

if TYPE_CHECKING:
    from headrace.grad.sums import Gradient
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Operation

# A kind of structured operation -> what makes its gradient; see `conditionals.grad_branches`.
_Rule: TypeAlias = "Callable[..., list[Gradient | None]]"
_STRUCTURED: dict[str, _Rule] = {
    "If": conditionals.grad_branches,
    "Case": conditionals.grad_branches,
    "RemoteCall": conditionals.grad_branches,
    "While": loops.grad_loop,
    "Call": grad_call,
    "For": grad_for,
    "SymbolicGradient": grad_symbolic,
}


def backward(
    b: Builder,
    ys: Sequence[Tensor],
    dys: Sequence[Gradient | None],
    xs: Sequence[Tensor],
    stop: Collection[Tensor] = (),
    flow: Activity | None = None,
) -> list[Gradient | None]:
    """The gradients of `ys`, whose own are `dys`, with respect to `xs`; None where nothing leads from one to the other.

    Args:
      b: makes the operations, in the graph of the tensors or in the gradient of that.
      ys, dys: what is differentiated, and the gradient of each (None: none).
      xs: what it is differentiated by. The gradient of one that lies on the way from another goes on to that.
      stop: tensors beyond which nothing is differentiated.
      flow: what the walk that this one is a part of has found out about functions.

    Raises:
      LookupError: an operation on the way has no gradient; the text says why, and what to do.
      GraphError: a rule gave what does not fit.
    """
    start = len(b.graph)
    parts: dict[Tensor, list[Gradient]] = {}
    for y, dy in zip(ys, dys, strict=True):
        if dy is not None:
            parts.setdefault(y, []).append(dy)
    fixed, sources = frozenset(stop), frozenset(xs)
    order = walk.in_order(_needed(parts, fixed))
    reached = {x: 1 for x in xs if carries(x.dtype)}
    flow = flow or Activity()
    flow.from_sources((op for op in order if not fixed.issuperset(op.outputs) or not op.outputs), reached)
    inside = functools.partial(backward, flow=flow)
    for op in reversed(order):
        wanted = [t in reached and (t not in fixed or t in sources) and carries(t.dtype) for t in op.inputs]
        if not any(wanted) or not any(t in parts and t not in fixed for t in op.outputs):
            continue
        grads = [None if t in fixed else total(b, parts.get(t, [])) for t in op.outputs]
        # a gradient is computed where the operation is whose gradient it is
        at = b.within(f"{op.name}_grad", op.source, op.device)
        since = len(b.graph)
        found = []
        for t, g, want in zip(op.inputs, _of_operation(at, op, grads, wanted, inside), wanted, strict=True):
            if g is not None and want:
                found.append((t, _fitting(at, op, t, g)))
        if isinstance(b.graph, GradGraph):
            b.graph.settle(since, [end for _, g in found for end in _ends(g)])
        for t, g in found:
            parts.setdefault(t, []).append(g)
    results = [total(b, parts.get(x, [])) for x in xs]
    if isinstance(b.graph, GradGraph):
        b.graph.remove_dead(start, [end for g in results if g is not None for end in _ends(g)])
    return results


def _ends(g: Gradient) -> list[Tensor]:
    if isinstance(g, Tensor):
        return [g]
    return [t for t in (g.values, g.indices, g.dense_shape) if t is not None]


def _needed(parts: Collection[Tensor], stop: frozenset[Tensor]) -> set[Operation]:
    """The operations that the tensors of `parts` are computed by, not beyond `stop`."""
    seen: set[Operation] = set()
    todo = [t.op for t in parts if t not in stop]
    while todo:
        op = todo.pop()
        if op not in seen:
            seen.add(op)
            todo += [t.op for t in op.inputs if t not in stop and carries(t.dtype)]
    return seen


def _of_operation(
    b: Builder, op: Operation, grads: list[Gradient | None], wanted: Sequence[bool], inside: conditionals.Backward
) -> Sequence[Gradient | None]:
    """The gradient of each input of `op`, those of its outputs being `grads`; `inside` walks the graphs it owns."""
    structured = _STRUCTURED.get(op.opdef.structured)
    if structured is not None:
        return structured(b, op, grads, wanted, inside)
    rule = registered.lookup(op)
    sparse = rule is forwarded
    full = [
        (zeros_for(b, t) if carries(t.dtype) else None) if g is None else g if sparse else dense(b, g)
        for t, g in zip(op.outputs, grads, strict=True)
    ]
    out = rule(b, GradNode(op), *full)
    if len(out) != len(op.inputs):
        title = registered.title(op)
        raise GraphError(f"the gradient of {title} gave {len(out)} entries for {len(op.inputs)} inputs")
    return out


def _fitting(b: Builder, op: Operation, x: Tensor, g: Gradient) -> Gradient:
    """What a rule gave as gradient of input `x` of `op`, had in the graph of `b`.

    Raises:
      GraphError: it is of another dtype or shape.
    """
    if isinstance(g, IndexedSlices):
        return IndexedSlices(*map(b.tensor, _ends(g)))
    g = b.tensor(g)
    got = g.static_shape
    want, static = gradient_dtype(x), gradient_shape(x)
    if g.dtype.base is not want or not shapes.compatible(got, static):
        made = f" ({op.source})" if op.source is not None else ""
        raise GraphError(
            f"the gradient of '{op.name}' ({op.type}){made} with respect to its input '{x.name}', which is "
            f"{want.name}{shapes.show(static)}, is {g.dtype.base.name}{shapes.show(got)}; a gradient has the dtype and "
            "shape of what it is the gradient of"
        )
    g.refine(static)
    return g
