"""Ops that create or forward values: constants, placeholders, identities, and `_Arg` and `_Retval`.

Source: TensorFlow's ops of the same names; pruning replaces feeds and fetches by `_Arg` and `_Retval`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.errors import HeadraceError, InvalidArgumentError
from headrace.ir.indexed_slices import forwarded
from headrace.ir.infer import Inference
from headrace.ir.kernel_errors import place
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    case,
    int_attr,
    list_attr,
    op,
    shape_attr,
    string_attr,
    tensor_attr,
    type_attr,
)
from headrace.opkit import arrays
from headrace.opkit.arrays import values_only
from headrace.opkit.batch_rules import in_step
from headrace.opkit.jvp_rules import passed
from headrace.opkit.namespaces import converter, is_standard
from headrace.opkit.shape_rules import nothing
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape


def pass_through(c: Inference) -> Sequence[Shape]:
    """The shape of input 0; the output shares its handle, if it has one."""
    h = c.handle(0)
    if h is not None:
        c.set_handle(0, *h)
    return [c.shapes[0]]


def _const_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    value = attrs["value"]
    if not isinstance(value, np.ndarray):  # an imported constant that could not be decoded

        def fail() -> Any:
            raise InvalidArgumentError(str(value))

        return fail
    if value.nbytes > arrays.max_bytes:  # a broadcast view of one element, whose copies would exceed the limit

        def too_large() -> Any:
            arrays.check_size(value.shape, attrs["dtype"])

        return too_large
    if is_standard(xp):
        # other namespaces read no arrays of bfloat16 and shorter floats
        plain = value if value.dtype.isbuiltin == 1 else value.astype(np.float32)
        there = converter(xp, attrs["dtype"])(xp.asarray(plain, copy=True))
        return lambda: there
    if value.ndim == 0 and value.dtype != object:
        value = value[()]  # a numpy scalar: the cheapest form of a rank-0 value
    return lambda: value


def _const_shape(c: Inference) -> Sequence[Shape]:
    value = c.attrs["value"]
    return [value.shape if isinstance(value, np.ndarray) else None]


@values_only
def _constants(rng: np.random.Generator, dtype: Any) -> list[Any]:
    return [case(value=np.broadcast_to(draw(rng, dtype, ()), (2,)), dtype=dtype)]


op(
    "Const",
    outs="output: dtype",
    attrs={"value": tensor_attr(), "dtype": type_attr()},
    shape=_const_shape,
    kernel=_const_kernel,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    oracle=lambda value, dtype: value,
    sample=_constants,
    doc="A constant tensor.",
)
op(
    "HostConst",
    outs="output: dtype",
    attrs={"value": tensor_attr(), "dtype": type_attr()},
    shape=_const_shape,
    kernel=lambda attrs: _const_kernel(np, attrs),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    oracle=lambda value, dtype: value,
    sample=_constants,
    doc="A constant tensor in the memory of the host.",
)


def _not_fed(ctx: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel() -> Any:
        dtype, shape = attrs["dtype"], attrs["shape"]
        known = f" and shape {shapes.show(shape)}" if shape is not None else ""
        name = {"float32": "float", "float64": "double", "float16": "half"}.get(dtype.name, dtype.name)
        raise InvalidArgumentError(
            f"You must feed a value for placeholder tensor '{ctx.node}' with dtype {name}{known}: "
            f"run(..., feed_dict={{'{ctx.node}:0': value}})",
            ctx.node,
        )

    return kernel


op(
    "Placeholder",
    outs="output: dtype",
    attrs={"dtype": type_attr(), "shape": shape_attr(None)},
    shape=lambda c: [c.attrs["shape"]],
    stateful=_not_fed,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(placeholder=True),
    doc="A value that must be fed.",
)
op(
    "PlaceholderV2",
    outs="output: dtype",
    attrs={"dtype": type_attr(), "shape": shape_attr()},
    shape=lambda c: [c.attrs["shape"]],
    stateful=_not_fed,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(placeholder=True),
    doc="A value that must be fed.",
)


def _default_shape(c: Inference) -> Sequence[Shape]:
    shapes.merge(c.shapes[0], c.attrs["shape"])  # the default must be one of the values that could be fed
    return [c.attrs["shape"]]


def _same(xp: Any, attrs: Mapping[str, Any]) -> Any:
    return lambda x: x


_TWO = (dtypes.float32, dtypes.string)


@values_only
def _any_case(rng: np.random.Generator, dtype: Any) -> list[Any]:
    return [case(draw(rng, dtype, s)) for s in ((2, 3), ())]


op(
    "PlaceholderWithDefault",
    "input: dtype",
    "output: dtype",
    {"dtype": type_attr(), "shape": shape_attr()},
    shape=_default_shape,
    kernel=_same,
    xp=True,
    grad=forwarded,
    jvp=passed,
    facts=Facts(forwards=0, no_fold=True, placeholder=True),
    oracle=lambda x, **_: x,
    sample=values_only(lambda rng, dtype: [case(draw(rng, dtype, s), shape=s) for s in ((2, 3), ())]),
    doc="The input, unless a value is fed.",
)
op(
    "Identity",
    "input: T",
    "output: T",
    {"T": type_attr()},
    shape=pass_through,
    kernel=_same,
    xp=True,
    grad=forwarded,
    jvp=passed,
    batch=in_step,
    facts=Facts(forwards=0, total=()),
    shape_value=lambda c: c.shape_value(0),
    oracle=lambda x: x,
    sample=_any_case,
    doc="The input.",
)
op(
    "RefIdentity",
    "input: Ref(T)",
    "output: Ref(T)",
    {"T": type_attr()},
    shape=pass_through,
    stateful=lambda ctx, attrs: lambda x: x,
    grad=forwarded,
    jvp=passed,
    facts=Facts(forwards=0),
    doc="The input reference.",
)
op(
    "IdentityN",
    "input: T",
    "output: T",
    {"T": list_attr("type", minimum=1)},
    shape=lambda c: c.shapes,
    kernel=lambda xp, attrs: (lambda x: x) if len(attrs["T"]) == 1 else (lambda *xs: xs),
    xp=True,
    grad=forwarded,
    jvp=passed,
    batch=in_step,
    oracle=lambda xs: tuple(xs),
    sample=lambda rng, dtype: [case([draw(rng, d, (2,)) for d in ds]) for ds in (_TWO, _TWO[:1])],
    doc="The inputs.",
)
op(
    "Snapshot",
    "input: T",
    "output: T",
    {"T": type_attr()},
    shape=pass_through,
    kernel=_same,
    xp=True,
    grad=lambda b, n, dy: [dy],
    jvp=passed,
    batch=in_step,
    facts=Facts(forwards=0, total=()),
    oracle=lambda x: x,
    sample=_any_case,
    doc="The input; arrays never change here, so no copy is needed.",
)
op(
    "GuaranteeConst",
    "input: T",
    "output: T",
    {"T": type_attr(dtypes.ALL - {dtypes.resource})},
    shape=pass_through,
    kernel=_same,
    xp=True,
    grad=lambda b, n, dy: [dy],
    jvp=passed,
    batch=in_step,
    facts=Facts(forwards=0),
    oracle=lambda x: x,
    sample=_any_case,
    doc="The input, which the program promises to be constant.",
)
op(
    "StopGradient",
    "input: T",
    "output: T",
    {"T": type_attr()},
    shape=pass_through,
    kernel=_same,
    xp=True,
    grad=lambda b, n, dy: [None],
    batch=in_step,
    facts=Facts(forwards=0, total=()),
    oracle=lambda x: x,
    sample=_any_case,
    doc="The input; its gradient is None.",
)


def _prevent(b: Any, n: Any, dy: Any) -> Any:
    raise LookupError(f"Gradient explicitly disabled. Reason: {n.attrs['message']!r} (at {place(n.op)})")


op(
    "PreventGradient",
    "input: T",
    "output: T",
    {"T": type_attr(), "message": ""},
    shape=pass_through,
    kernel=_same,
    xp=True,
    grad=_prevent,
    batch=in_step,
    facts=Facts(forwards=0),
    oracle=lambda x, **_: x,
    sample=_any_case,
    doc="The input; asking for its gradient is an error.",
)
op(
    "NoOp",
    shape=nothing,
    kernel=lambda xp, attrs: lambda: None,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    sample=lambda rng, dtype: [case(want=())],
    doc="Does nothing; it serves as a target of control edges.",
)

_END = {"T": type_attr(), "index": int_attr(minimum=0)}


def _unfed(ctx: Any, attrs: Mapping[str, Any]) -> Any:
    raise HeadraceError(f"{ctx.node}: an argument is supplied by the step and never computed")


op(
    "_Arg",
    outs="output: T",
    attrs={**_END, "shape": shape_attr(None), "of": string_attr("")},
    shape=lambda c: [c.attrs["shape"]],
    stateful=_unfed,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(graph_end=True),
    doc="The value fed for the tensor `of`.",
)
op(
    "_Retval",
    "input: T",
    attrs=_END,
    shape=nothing,
    stateful=_unfed,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(graph_end=True),
    doc="The value fetched as result `index`.",
)
