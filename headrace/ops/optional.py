"""Optionals: scalar variants with a tuple of tensors, or empty.

Source: TensorFlow's OptionalFromValue, OptionalNone, OptionalHasValue, OptionalGetValue. The gradients of its
conditionals use them for values that only one branch computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, list_attr, op
from headrace.opkit.jvp_rules import linear
from headrace.opkit.shape_rules import scalars
from headrace.resources.optional import Optional
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.grad_node import GradNode
    from headrace.ir.graph import Tensor


def _optional(value: Any, op_type: str) -> Optional:
    if not isinstance(value, Optional):
        raise InvalidArgumentError(
            f"Input to {op_type} must be an optional (a scalar that OptionalFromValue or OptionalNone made), "
            f"got {type(value).__name__}"
        )
    return value


def _from_value(attrs: Mapping[str, Any]) -> Callable[..., Optional]:
    types = attrs["Toutput_types"]
    return lambda *components: Optional(components, types)


def _from_value_shape(c: Inference) -> Sequence[Shape]:
    if len(c.shapes) == 1:
        c.set_handle(0, c.dtypes[0].base, c.shapes[0])
    return [()]


def _get_value(attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
    types, wanted = attrs["output_types"], attrs["output_shapes"]

    def kernel(value: Any) -> Any:
        got = _optional(value, "OptionalGetValue").get(types, wanted)
        return got[0] if len(got) == 1 else got

    return kernel


def _get_value_shape(c: Inference) -> Sequence[Shape]:
    types, wanted = c.attrs["output_types"], c.attrs["output_shapes"]
    shapes.with_rank(c.shapes[0], 0)
    if len(types) != len(wanted):
        raise ValueError(f"`output_shapes` must be the same length as `output_types` ({len(wanted)} vs. {len(types)})")
    return list(wanted)


def _from_value_grad(b: Builder, n: GradNode, dy: Tensor) -> list[Tensor | None]:
    types = n.attrs["Toutput_types"]
    got = b.OptionalGetValue(dy, output_types=types, output_shapes=tuple(t.shape for t in n.op.inputs))
    return [got] if len(types) == 1 else list(got)


def _get_value_grad(b: Builder, n: GradNode, *dys: Tensor | None) -> list[Tensor | None]:
    return [b.OptionalFromValue(_filled_up(b, n.op.outputs, dys))]


def _from_value_jvp(b: Builder, n: GradNode, *dxs: Tensor | None) -> list[Tensor | None]:
    if all(dx is None for dx in dxs):
        return [None]
    return [b.OptionalFromValue(_filled_up(b, n.op.inputs, dxs))]


def _filled_up(b: Builder, values: Sequence[Tensor], derivatives: Sequence[Tensor | None]) -> list[Tensor]:
    """`derivatives`, with zeros in place of None (for components of integers or strings)."""
    out = []
    for x, d in zip(values, derivatives, strict=True):
        if d is None:
            d = b.Fill(b.Shape(x), b.const(b"")) if x.dtype.base is dtypes.string else b.ZerosLike(x)
        out.append(d)
    return out


op(
    "OptionalFromValue",
    "components: Toutput_types",
    "optional: variant",
    {"Toutput_types": list_attr("type", minimum=1)},
    shape=_from_value_shape,
    kernel=_from_value,
    xp=False,
    grad=_from_value_grad,
    jvp=_from_value_jvp,
    doc="An optional that contains `components`.",
)
op(
    "OptionalNone",
    "",
    "optional: variant",
    shape=scalars,
    kernel=lambda attrs: Optional,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    doc="An empty optional.",
)
op(
    "OptionalHasValue",
    "optional: variant",
    "has_value: bool",
    shape=scalars,
    kernel=lambda attrs: lambda value: np.bool_(_optional(value, "OptionalHasValue").components is not None),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    doc="Whether an optional has a value.",
)
op(
    "OptionalGetValue",
    "optional: variant",
    "components: output_types",
    {"output_types": list_attr("type", minimum=1), "output_shapes": list_attr("shape", minimum=1)},
    shape=_get_value_shape,
    kernel=_get_value,
    xp=False,
    grad=_get_value_grad,
    jvp=linear("optional"),
    doc="What is in an optional.",
)
