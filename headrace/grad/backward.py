"""The reverse walk: from what is known of a function's results to what that means for its inputs.

Each operation's record says how a gradient of its outputs becomes one of its inputs. The walk goes over the operations
between xs and ys against the edges, those nearest to ys first, and asks each record; where a tensor is used more than
once the contributions add up. So far for graphs without conditionals and loops.

Source: reverse-mode differentiation as in TensorFlow's `gradients_impl`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.ir import walk
from headrace.ir.opdef import GradNode, apply_gradient

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Operation, Tensor


def backward(
    b: Builder, ys: Sequence[Tensor], dys: Sequence[Tensor | None], xs: Sequence[Tensor]
) -> list[Tensor | None]:
    """The gradients of `ys`, whose own are `dys`, with respect to `xs`; None where nothing leads from one to the other.

    Args:
      b: makes the operations, in the graph that the tensors are of.
      ys, dys: what is differentiated, and the gradient of each (None: none).
      xs: what it is differentiated by.

    Raises:
      LookupError: an operation on the way has no gradient; the text says why.
    """
    parts: dict[Tensor, list[Tensor]] = {}
    for y, dy in zip(ys, dys, strict=True):
        if dy is not None:
            parts.setdefault(y, []).append(dy)
    needed = walk.reachable([y.op for y in ys], set(xs))
    reached = _reached(walk.in_order(needed), set(xs))
    for op in reversed(reached):
        grads = [_total(b, parts.get(t)) for t in op.outputs]
        if all(g is None for g in grads):
            continue
        full = [b.ZerosLike(t) if g is None else g for t, g in zip(op.outputs, grads, strict=True)]
        for t, g in zip(op.inputs, apply_gradient(op.opdef, b, GradNode(op), *full), strict=True):
            if g is not None:
                parts.setdefault(t, []).append(g)
    return [_total(b, parts.get(x)) for x in xs]


def _reached(order: Sequence[Operation], xs: set[Tensor]) -> list[Operation]:
    """The operations of `order` that something leads to from `xs`."""
    seen = set(xs)
    out = []
    for op in order:
        if any(t in seen for t in op.inputs):
            out.append(op)
            seen.update(op.outputs)
    return out


def _total(b: Builder, parts: list[Tensor] | None) -> Tensor | None:
    if not parts:
        return None
    if len(parts) > 1:
        parts[:] = [b.AddN(list(parts))]
    return parts[0]
