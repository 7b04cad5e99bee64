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
      ...     kernel=lambda attrs: lambda x: x * x * x, grad=hr.extend.missing("not needed"))
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
      ...     kernel=lambda attrs: lambda x: x[x % 2 == 1], grad=hr.extend.NOT_DIFFERENTIABLE)
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
      ...     kernel=lambda xp, attrs: xp.sum, xp=True, grad=hr.extend.missing("not needed"))
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
      ...     kernel=lambda xp, attrs: xp.hypot, xp=True, grad=hr.extend.missing("not needed"))
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
      ...     kernel=lambda xp, attrs: xp.add, xp=True,
      ...     grad=lambda b, n, dz: hr.extend.unbroadcast(b, n.x, n.y, dz, dz))
      >>> hr.grad(lambda y: hr.reduce_sum(plus(hr.zeros((3, 2)), y)))(hr.zeros((2,))).numpy()
      array([3., 3.], dtype=float32)
    """
    if x.static_shape is not None and x.static_shape == y.static_shape and shapes.is_full(x.static_shape):
        return [gx, gy]

    @functools.cache
    def axes() -> Sequence[Tensor]:
        found: Sequence[Tensor] = b.BroadcastGradientArgs(b.Shape(x), b.Shape(y))
        return found

    def entry(g: GradEntry, mine: Tensor, other: Tensor, i: int) -> GradEntry:
        known = _broadcast_axes(mine.static_shape, other.static_shape)
        if known is None:
            return then(g, lambda g: _sum_to(b, g, mine, axes()[i]))
        return then(g, lambda g: _sum_over(b, g, mine, known)) if known else g

    return [entry(gx, x, y, 0), entry(gy, y, x, 1)]


def _broadcast_axes(mine: Shape, other: Shape) -> list[int] | None:
    """Dimensions of the result in which an operand was broadcast; None if they are unknown.

    Dimensions of size 1 are among them if the other operand may have another size there: a sum over one element is
    that element.
    """
    if mine is None or other is None:
        return None
    missing = max(len(other) - len(mine), 0)
    found = list(range(missing))
    for k, d in enumerate(mine):
        at = k + len(other) - len(mine)
        e = other[at] if at >= 0 else 1
        if d is None and e != 1:
            return None
        if d == 1 and e != 1:
            found.append(missing + k)
    return found


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


def _sum_over(b: Builder, g: Tensor, x: Tensor, axes: list[int]) -> Tensor:
    """Sums `g` over the dimensions in which `x` was broadcast."""
    out: Tensor = b.Sum(g, np.array(axes, np.int32), keep_dims=False)
    mine = x.static_shape
    if mine is not None and 1 in mine:
        out = b.Reshape(out, np.array(mine, np.int32) if shapes.is_full(mine) else b.Shape(x))
    return out


def _sum_to(b: Builder, g: Tensor, x: Tensor, axes: Tensor) -> Tensor:
    out: Tensor = b.Reshape(b.Sum(g, axes, keep_dims=False), b.Shape(x))
    return out
