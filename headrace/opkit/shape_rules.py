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
    """Returns a rule: the output has the shape of input `i`.

    Example:
      >>> import headrace as hr
      >>> cube = hr.register_op(
      ...     "DocCube", "x: T", "y: T", {"T": {hr.float32}}, shape=hr.extend.same_as(0),
      ...     kernel=lambda xp, attrs: lambda x: x * x * x, grad=hr.extend.missing("not needed"))
      >>> with hr.Graph():
      ...     cube(hr.placeholder(hr.float32, (None, 2))).shape
      (None, 2)
    """

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
    """Infers nothing: the shapes of all outputs are unknown.

    Example:
      >>> import headrace as hr
      >>> odd = hr.register_op(
      ...     "DocOdd", "x: T", "y: T", {"T": {hr.int32}}, shape=hr.extend.unknown,
      ...     kernel=lambda xp, attrs: lambda x: x[x % 2 == 1], grad=hr.extend.NOT_DIFFERENTIABLE)
      >>> with hr.Graph():
      ...     print(odd(hr.constant([1, 2, 3])).shape)
      None
    """
    return [None] * len(c.op.outputs)


def nothing(c: Inference) -> Sequence[Shape]:
    """Infers no shapes, for an op without outputs.

    Example:
      >>> import headrace as hr
      >>> hr.extend.nothing(None)
      []
    """
    return []


def scalars(c: Inference) -> Sequence[Shape]:
    """Infers scalar shapes for all outputs.

    Example:
      >>> import headrace as hr
      >>> total = hr.register_op(
      ...     "DocTotal", "x: T", "y: T", {"T": {hr.float32}}, shape=hr.extend.scalars,
      ...     kernel=lambda xp, attrs: xp.sum, grad=hr.extend.missing("not needed"))
      >>> with hr.Graph():
      ...     total(hr.zeros((2, 3))).shape
      ()
    """
    return [()] * len(c.op.outputs)


def broadcast(c: Inference) -> Sequence[Shape]:
    """Infers the shape of an elementwise op by numpy's broadcasting rule.

    Example:
      >>> import headrace as hr
      >>> hypot = hr.register_op(
      ...     "DocHypot", "x: T, y: T", "z: T", {"T": {hr.float32}}, shape=hr.extend.broadcast,
      ...     kernel=lambda xp, attrs: xp.hypot, grad=hr.extend.missing("not needed"))
      >>> with hr.Graph():
      ...     hypot(hr.zeros((2, 1)), hr.zeros((3,))).shape
      (2, 3)
    """
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

    Example:
      >>> import headrace as hr
      >>> plus = hr.register_op(
      ...     "DocPlus", "x: T, y: T", "z: T", {"T": {hr.float32}}, shape=hr.extend.broadcast,
      ...     kernel=lambda xp, attrs: xp.add,
      ...     grad=lambda b, n, dz: hr.extend.unbroadcast(b, n.x, n.y, dz, dz))
      >>> hr.grad(lambda y: hr.reduce_sum(plus(hr.zeros((3, 2)), y)))(hr.zeros((2,))).numpy()
      array([3., 3.], dtype=float32)
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
