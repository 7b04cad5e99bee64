"""Shape and gradient rules that many records share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.grad_node import GradEntry
    from headrace.ir.graph import Tensor
    from headrace.ir.infer import Inference
    from headrace.shapes import Dim, Shape


@functools.cache  # one rule for each input, which records have in common
def same_as(i: int = 0) -> Any:
    """Returns a rule: the output has the shape of input `i`."""

    def rule(c: Inference) -> Sequence[Shape]:
        return [c.shapes[i]]

    return rule


def fixed(*dims: Dim) -> Any:
    """Returns a rule: the output always has this shape.

    Example:
      >>> import headrace as hr
      >>> hr.extend.fixed(2, None)(None)
      [(2, None)]
    """

    def rule(c: Inference) -> Sequence[Shape]:
        return [dims]

    return rule


def unknown(c: Inference) -> Sequence[Shape]:
    """Infers nothing: the shapes of all outputs are unknown."""
    return [None] * len(c.op.outputs)


def nothing(c: Inference) -> Sequence[Shape]:
    """Infers no shapes, for an op without outputs."""
    return []


def scalars(c: Inference) -> Sequence[Shape]:
    """Infers scalar shapes for all outputs."""
    return [()] * len(c.op.outputs)


def broadcast(c: Inference) -> Sequence[Shape]:
    """Infers the shape of an elementwise op by numpy's broadcasting rule."""
    out: Shape = ()
    for s in c.shapes:
        out = shapes.broadcast(out, s)
    return [out]


def unbroadcast(b: Builder, x: Tensor, y: Tensor, gx: GradEntry, gy: GradEntry) -> list[GradEntry]:
    """Sums gradients of a broadcasting op over the dimensions that were broadcast.

    Args:
      b: the builder.
      x, y: the inputs of the op.
      gx, gy: their gradients in the shape of the op's output, or functions that make them; None for no gradient.

    Returns:
      The gradients in the shapes of `x` and `y`; for a function, a function that makes the gradient.
    """
    if x.static_shape is not None and x.static_shape == y.static_shape and shapes.is_full(x.static_shape):
        return [gx, gy]
    if shapes.is_full(x.static_shape) and shapes.is_full(y.static_shape):
        whole = shapes.broadcast(x.static_shape, y.static_shape)
        return [then(gx, lambda g: _sum_over(b, g, x, whole)), then(gy, lambda g: _sum_over(b, g, y, whole))]

    @functools.cache
    def axes() -> Sequence[Tensor]:
        found: Sequence[Tensor] = b.BroadcastGradientArgs(b.Shape(x), b.Shape(y))
        return found

    return [then(gx, lambda g: _sum_to(b, g, x, axes()[0])), then(gy, lambda g: _sum_to(b, g, y, axes()[1]))]


def then(g: GradEntry, f: Callable[[Tensor], Tensor]) -> GradEntry:
    """Applies `f` to an entry of a gradient rule.

    For a function that makes the gradient, the result is a function; for None, it is None. `f` is called after the
    functions of all entries, because it may read the shape of a tensor whose value they read: then the value is the
    only residual.
    """
    if g is None:
        return None
    if not callable(g):
        return f(g)
    make = g
    return lambda: functools.partial(then, make(), f)


def _sum_over(b: Builder, g: Tensor, x: Tensor, whole: Shape) -> Tensor:
    """Sums `g`, of the static shape `whole`, over the dimensions in which `x` was broadcast."""
    mine = x.static_shape
    if mine == whole:
        return g
    assert mine is not None
    assert whole is not None
    missing = len(whole) - len(mine)
    stretched = [missing + i for i, d in enumerate(mine) if d == 1 and whole[missing + i] != 1]
    axes = np.array([*range(missing), *stretched], np.int32)
    out: Tensor = b.Sum(g, axes, keep_dims=False)
    return b.Reshape(out, np.array(mine, np.int32)) if 1 in mine else out


def _sum_to(b: Builder, g: Tensor, x: Tensor, axes: Tensor) -> Tensor:
    out: Tensor = b.Reshape(b.Sum(g, axes, keep_dims=False), b.Shape(x))
    return out
