"""Tangent rules (`op(jvp=...)`) that many records share.

Most ops are linear in some of their arguments, and a linear function maps a tangent as it maps a value. So the rule of
such an op is the op itself, and its record only states the arguments in which it is linear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace import nest, shapes

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.grad_node import GradNode
    from headrace.ir.graph import Tensor

Rule: TypeAlias = "Callable[..., Sequence[Tensor | None]]"


def passed(b: Builder, n: GradNode, *dxs: Tensor | None) -> Sequence[Tensor | None]:
    """Returns the tangents of the first inputs, for ops whose outputs are these inputs.

    Example:
      >>> import headrace as hr
      >>> keep = hr.register_op(
      ...     "DocKeep", "x: T", "y: T", {"T": {hr.float32}}, shape=hr.extend.same_as(0), jvp=hr.extend.passed,
      ...     kernel=lambda attrs: lambda x: x, grad=lambda b, n, dy: [dy])
      >>> value, tangent = hr.jvp(keep, [hr.constant(6.0)], [hr.constant(1.0)])
      >>> float(value), float(tangent)
      (6.0, 1.0)
    """
    return dxs[: len(n.outputs)]


def linear(*names: str) -> Rule:
    """Returns the rule of an op that is linear in the arguments `names` together.

    The rule applies the op to their tangents (zeros for None) and to the values of its other arguments.

    Example:
      >>> import headrace as hr
      >>> half = hr.register_op(
      ...     "DocHalf", "x: T", "y: T", {"T": {hr.float32}}, shape=hr.extend.same_as(0), jvp=hr.extend.linear("x"),
      ...     kernel=lambda attrs: lambda x: x / 2, grad=lambda b, n, dy: [b.DocHalf(dy)])
      >>> value, tangent = hr.jvp(half, [hr.constant(6.0)], [hr.constant(1.0)])
      >>> float(value), float(tangent)
      (3.0, 0.5)
    """

    def rule(b: Builder, n: GradNode, *dxs: Tensor | None) -> Sequence[Tensor | None]:
        moved = set(_positions(n, names))
        if all(dxs[i] is None for i in moved):
            return [None] * len(n.outputs)
        inputs: list[Any] = []
        for i, dx in enumerate(dxs):
            if i not in moved:
                inputs.append(n.inputs[i])
            else:
                inputs.append(b.ZerosLike(n.inputs[i]) if dx is None else dx)
        return _applied(b, n, inputs)

    return rule


def multilinear(*names: str) -> Rule:
    """Returns the rule of an op that is linear in each argument of `names`.

    Such an op is a product. The tangent is a sum over these arguments: each summand is the op with the tangent of one
    argument and the values of the others.

    Example:
      >>> import headrace as hr
      >>> times = hr.register_op(
      ...     "DocTimes", "x: T, y: T", "z: T", {"T": {hr.float32}}, shape=hr.extend.broadcast,
      ...     kernel=lambda xp, attrs: xp.multiply, xp=True, jvp=hr.extend.multilinear("x", "y"),
      ...     grad=hr.extend.missing("not needed"))
      >>> value, tangent = hr.jvp(times, [hr.constant(3.0), hr.constant(5.0)], [hr.constant(1.0), hr.constant(1.0)])
      >>> float(value), float(tangent)
      (15.0, 8.0)
    """

    def rule(b: Builder, n: GradNode, *dxs: Tensor | None) -> Sequence[Tensor | None]:
        terms: list[Tensor] = []
        for i in _positions(n, names):
            dx = dxs[i]
            if dx is not None:
                terms += _applied(b, n, [dx if k == i else n.inputs[k] for k in range(len(dxs))])
        if not terms:
            return [None]
        return terms if len(terms) == 1 else [b.AddN([stretched(b, t, n.outputs[0]) for t in terms])]

    return rule


def stretched(b: Builder, t: Tensor, like: Tensor) -> Tensor:
    """Returns `t`, broadcast to the shape of `like`."""
    if t.shape is not None and t.shape == like.shape and shapes.is_full(t.shape):
        return t
    out: Tensor = b.BroadcastTo(t, b.Shape(like))
    return out


def _positions(n: GradNode, names: Sequence[str]) -> list[int]:
    """Returns the positions of the tensors of some arguments among the flat inputs."""
    spans = n.op.opdef.spans(n.attrs)
    return [i for name in names for i in range(spans[name].start, spans[name].stop)]


def _applied(b: Builder, n: GradNode, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Returns the outputs of the op of `n`, with its attributes, for `inputs`."""
    record = n.op.opdef
    spans = record.spans(n.attrs)
    args = [list(inputs[spans[a.name]]) if a.is_list else inputs[spans[a.name].start] for a in record.ins]
    made = b.make(record.type, args, {k: v for k, v in n.attrs.items() if k in record.attrs})
    return nest.as_list(made)
