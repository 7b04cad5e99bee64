"""The reverse walk: gradients of a graph's inputs from those of its outputs.

The record of each operation has a rule that makes the gradients of its inputs from those of its outputs. The walk
visits the operations between xs and ys in reverse topological order, and calls the rule of each. The contributions to a
tensor with several uses are added. Conditionals, loops and calls own graphs. Their gradients are made by walks through
these graphs (`grad.structured`), to which this walk passes itself as an argument.

ys and xs are tensors of one graph, the *forward* graph. The gradient goes into that graph, or into its gradient graph
(`grad.graph`); the walk is the same for both.

Source: reverse-mode differentiation as in TensorFlow's `gradients_impl`.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from headrace import shapes
from headrace.errors import GraphError
from headrace.grad import registered
from headrace.grad.activity import Activity
from headrace.grad.graph import GradGraph
from headrace.grad.structured import STRUCTURED
from headrace.grad.sums import dense, total
from headrace.grad.walks import Walks
from headrace.grad.zeros import carries, gradient_dtype, gradient_shape, zeros_for
from headrace.ir import walk
from headrace.ir.graph import Tensor
from headrace.ir.indexed_slices import IndexedSlices, forwarded

if TYPE_CHECKING:
    from headrace.grad.sums import Gradient
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Operation


def backward(
    b: Builder,
    ys: Sequence[Tensor],
    dys: Sequence[Gradient | None],
    xs: Sequence[Tensor],
    stop: Collection[Tensor] = (),
    flow: Activity | None = None,
) -> list[Gradient | None]:
    """Returns the gradients of `ys` with respect to `xs`; None without a path.

    Args:
      b: the builder of the gradient, in the graph of the tensors or in its gradient graph.
      ys: the tensors to differentiate.
      dys: the gradient of each y, or None.
      xs: the tensors to differentiate by. If one of them lies on the path of another, its gradient also flows on to
        that.
      stop: tensors that are treated as constants.
      flow: the activity analysis of an enclosing walk, or None.

    Raises:
      LookupError: an operation on a path has no gradient; the text says why, and how to continue.
      GraphError: a rule returned a gradient of another dtype or shape.
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
    walks = Walks(flow, functools.partial(backward, flow=flow))
    for op in reversed(order):
        inputs = tuple(op.inputs)  # the gradient of a loop may add inputs to it
        wanted = [t in reached and (t not in fixed or t in sources) and carries(t.dtype) for t in inputs]
        if not any(wanted) or not any(t in parts and t not in fixed for t in op.outputs):
            continue
        grads = [None if t in fixed else total(b, parts.get(t, [])) for t in op.outputs]
        # the gradient of an operation is computed on the device of the operation
        at = b.within(f"{op.name}_grad", op.source, op.device)
        since = len(b.graph)
        entries = _of_operation(at, op, grads, wanted, walks)
        found = [
            (t, _fitting(at, op, t, g))
            for t, g, want in zip(inputs, entries, wanted, strict=True)
            if g is not None and want
        ]
        if isinstance(b.graph, GradGraph):
            # zeros for outputs, unwanted gradients of users, and captures of owned graphs may be needed by no result
            is_exact = (
                not op.opdef.structured
                and all(g is not None for g in grads)
                and all(want or g is None for g, want in zip(entries, wanted, strict=True))
            )
            if not is_exact or b.graph.has_dormant:
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
    return [t for t in (g.values, g.indices, g.dense_shape) if isinstance(t, Tensor)]


def _needed(parts: Collection[Tensor], stop: frozenset[Tensor]) -> set[Operation]:
    """Operations from which the tensors of `parts` are computed, up to the tensors of `stop`."""
    seen: set[Operation] = set()
    todo = [t.op for t in parts if t not in stop]
    while todo:
        op = todo.pop()
        if op not in seen:
            seen.add(op)
            todo += [t.op for t in op.inputs if t not in stop and carries(t.dtype)]
    return seen


def _of_operation(
    b: Builder, op: Operation, grads: list[Gradient | None], wanted: Sequence[bool], walks: Walks
) -> Sequence[Gradient | None]:
    """Returns the gradients of the inputs of `op`.

    Args:
      b: the builder of the gradient.
      op: an operation of the forward graph.
      grads: the gradients of its outputs.
      wanted: for each input, whether its gradient is needed.
      walks: the walks through the graphs that `op` owns.
    """
    structured = STRUCTURED.get(op.opdef.structured)
    if structured is not None:
        return structured.gradients(b, op, grads, wanted, walks)
    sparse = registered.lookup(op) is forwarded
    full = [
        (zeros_for(b, t) if carries(t.dtype) else None) if g is None else g if sparse else dense(b, g)
        for t, g in zip(op.outputs, grads, strict=True)
    ]
    return registered.input_gradients(b, op, full, wanted, [g is not None for g in grads])


def _fitting(b: Builder, op: Operation, x: Tensor, g: Gradient) -> Gradient:
    """Returns gradient `g` of input `x` of `op`, in the graph of `b`.

    Raises:
      GraphError: it has another dtype or shape than `x`.
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
