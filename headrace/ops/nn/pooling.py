"""Pooling: maximum or mean of each window (MaxPool, AvgPool, MaxPool3D, AvgPool3D), and gradients.

Source: TensorFlow's ops of the same names, with their conventions. NaN is never the maximum; in images, a window with
NaN only has the lowest finite number. The gradient flows to the first maximum, and to a NaN only if it is the first
element of its window. In volumes, it flows to all elements that differ from the maximum by at most `NEAR`. A mean is
over the elements without padding.

Maxima and sums are computed along one axis after the other, with one slice for each element of a window along the axis.
Gradients of maxima iterate over all elements of the windows, with one slice for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headrace.dtypes import FLOATING, REAL, DType, bfloat16, float16, float32, uint32, uint64
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ir.opdef import Facts, flops_per_input, list_attr, op, string_attr, type_attr
from headrace.opkit.arrays import check_size, dims, shape_from
from headrace.opkit.batch_rules import folding
from headrace.opkit.batch_windows import of_sizes
from headrace.opkit.elementwise import HALF, widened
from headrace.opkit.jvp_rules import linear
from headrace.opkit.kernel_library import kernel_library
from headrace.opkit.namespaces import converter
from headrace.opkit.pooling import (
    axes_of,
    counted,
    counts,
    expect,
    grad_shape,
    pooled_shape,
    pooling,
    rank_of,
    reduced,
    spread,
    windows_attrs,
)
from headrace.opkit.testing.window_samples import DEPTHWISE, MARGINS, pool_samples, pool_windows, pooled
from headrace.opkit.window_arrays import full, kept_in
from headrace.opkit.windows import Axis, Sliding, taps
from headrace.ops.nn.greatest import greatest, greatest_number, lowest, of_greatest, to_greatest
from headrace.ops.nn.window_forms import pooling_form
from headrace.shapes import with_rank

Array: TypeAlias = np.ndarray
Axes: TypeAlias = tuple[Axis, ...]

NEAR = 1e-5

# *** Shapes ***


def _refuse_depth(s: Sliding, x: tuple[int, ...], ksize: tuple[int, ...]) -> None:
    """Raises for the poolings along the channels that TensorFlow has not."""
    k = ksize[s.channels]
    if k == 1:
        return
    if any(ksize[i] != 1 for i in s.spatial):
        raise UnimplementedError(
            "MaxPooling supports exactly one of pooling across depth or pooling across width/height, "
            f"got the windows {list(ksize)}"
        )
    if k != s.strides[s.channels]:
        raise UnimplementedError(
            f"Depthwise max pooling requires the depth window to equal the depth stride, got {k} and "
            f"{s.strides[s.channels]}"
        )
    if x[s.channels] % k:
        raise UnimplementedError(
            f"Depthwise max pooling requires the depth window to evenly divide the input depth, got {k} and "
            f"{x[s.channels]}"
        )


# *** Kernels ***


def _max_pool(t: DType, xp: Any) -> Callable[..., Array]:
    library = kernel_library(xp)

    def compute(s: Sliding, ksize: tuple[int, ...], x: Array) -> Array:
        axes = axes_of(s, x.shape, ksize)
        _refuse_depth(s, x.shape, ksize)
        check_size(counted(axes), t)
        found = library.pooled("maximum", x, None, axes)
        return greatest(x, axes, t, xp) if found is None else found

    return compute


def _max_pool_grad(t: DType, xp: Any) -> Callable[..., Array]:
    library = kernel_library(xp)

    def compute(s: Sliding, ksize: tuple[int, ...], x: Array, y: Array, g: Array) -> Array:
        axes = axes_of(s, x.shape, ksize)
        expect("orig_output", y.shape, counted(axes))
        expect("grad", g.shape, counted(axes))
        if t in HALF and not all(a.is_disjoint for a in axes):  # there are sums
            return widened(lambda x, g: to_greatest(x, g, axes, xp), t, xp)(x, g)
        found = library.pooled("maximum_gradient", x, g, axes)
        return to_greatest(x, g, axes, xp) if found is None else found

    return compute


def _max_pool_grad_grad(t: DType, xp: Any) -> Callable[..., Array]:
    def compute(s: Sliding, ksize: tuple[int, ...], x: Array, y: Array, g: Array) -> Array:
        axes = axes_of(s, x.shape, ksize)
        expect("orig_output", y.shape, counted(axes))
        expect("grad", g.shape, x.shape)
        return of_greatest(x, y, g, axes, xp)

    return compute


def _spatial(s: Sliding, x: tuple[int, ...], ksize: tuple[int, ...]) -> Axes:
    """The axes of a pooling that must not be along the channels."""
    axes = axes_of(s, x, ksize)
    if ksize[s.channels] != 1 or s.strides[s.channels] != 1:
        raise UnimplementedError(
            "Non-spatial pooling is not yet supported, on the depth dimension or the batch, "
            f"got the windows {list(ksize)}"
        )
    return axes


def _avg_pool(t: DType, xp: Any) -> Callable[..., Array]:
    library, wide = kernel_library(xp), float32.numpy if t in HALF else t.numpy

    def mean(x: Array, axes: Axes) -> Array:
        found = library.pooled("mean", x, None, axes)
        return reduced(xp.add, x, axes, 0, xp) / counts(axes, wide, xp, x) if found is None else found

    def compute(s: Sliding, ksize: tuple[int, ...], x: Array) -> Array:
        axes = _spatial(s, x.shape, ksize)
        check_size(counted(axes), t)
        return widened(lambda x: mean(x, axes), t, xp)(x)

    return compute


def _avg_pool_grad(t: DType, xp: Any) -> Callable[..., Array]:
    library, wide = kernel_library(xp), float32.numpy if t in HALF else t.numpy

    def gradient(g: Array, axes: Axes) -> Array:
        found = library.pooled("mean_gradient", None, g, axes)
        return spread(g / counts(axes, wide, xp, g), axes, xp) if found is None else found

    def compute(s: Sliding, ksize: tuple[int, ...], shape: Array, g: Array) -> Array:
        x = dims(shape)
        if len(x) != len(s.strides):
            raise InvalidArgumentError(
                f"orig_input_shape must be 1-dimensional and {len(s.strides)} elements, got {list(x)}"
            )
        check_size(x, t)
        axes = _spatial(s, x, ksize)
        expect("grad", g.shape, counted(axes))
        return widened(lambda g: gradient(g, axes), t, xp)(g)

    return compute


def _max_pool_of_volumes(t: DType, xp: Any) -> Callable[..., Array]:
    def compute(s: Sliding, ksize: tuple[int, ...], x: Array) -> Array:
        axes = _spatial(s, x.shape, ksize)
        check_size(counted(axes), t)
        return widened(lambda x: greatest_number(x, axes, xp), t, xp)(x)

    return compute


def _max_pool_grad_of_volumes(t: DType, xp: Any) -> Callable[..., Array]:
    to_float, back = converter(xp, float32), converter(xp, t)

    def compute(s: Sliding, ksize: tuple[int, ...], x: Array, y: Array, g: Array) -> Array:
        axes = _spatial(s, x.shape, ksize)
        expect("orig_output", y.shape, counted(axes))
        expect("grad", g.shape, counted(axes))
        x, y, g = to_float(x), to_float(y), to_float(g)
        dx = full(xp, x.shape, 0, x)
        for windows, elements in taps(axes):
            near = xp.abs(x[*elements] - y[*windows]) < NEAR
            dx[*elements] += kept_in(xp, near, g[*windows])
        return back(dx)

    return compute


def _max_pool_grad_grad_of_volumes(t: DType, xp: Any) -> Callable[..., Array]:
    def compute(s: Sliding, ksize: tuple[int, ...], x: Array, y: Array, g: Array) -> Array:
        _spatial(s, x.shape, ksize)
        return _max_pool_grad_grad(t, xp)(s, ksize, x, y, g)

    return compute


# *** Gradients ***


class _Family(NamedTuple):
    """Types of a max pooling op, of its gradient and of its second gradient."""

    pool: str
    grad: str
    second: str


_IMAGES = _Family("MaxPool", "MaxPoolGrad", "MaxPoolGradGrad")
_V2 = _Family("MaxPoolV2", "MaxPoolGradV2", "MaxPoolGradGradV2")
_VOLUMES = _Family("MaxPool3D", "MaxPool3DGrad", "MaxPool3DGradGrad")


def _sizes(n: Any) -> list[Any]:
    """The last two inputs of the V2 forms; nothing for the others."""
    return [] if "ksize" in n.attrs else [n.ksize, n.strides]


def _moved(f: _Family, b: Any, n: Any, x: Any, y: Any, dx: Any) -> Any:
    """Tangent of `y` for the tangent `dx` of `x`.

    MaxPoolGradGrad has no explicit paddings, so arrays are padded before it.
    """
    attrs = windows_attrs(n)
    if attrs.pop("explicit_paddings", ()):
        attrs["padding"] = "VALID"
        margins = np.array(n.attrs["explicit_paddings"], np.int32).reshape(-1, 2)
        t = n.attrs["T"]
        x = b.PadV2(x, margins, b.const(np.array(lowest(t), t.numpy)))
        dx = b.Pad(dx, margins)
    return b.make(f.second, [x, y, dx, *_sizes(n)], attrs)


def _max_grad(f: _Family) -> Any:
    def rule(b: Any, n: Any, dy: Any) -> list[Any]:
        rest = _sizes(n)
        return [b.make(f.grad, [n.input, n.output, dy, *rest], windows_attrs(n)), *[None] * len(rest)]

    return rule


def _max_jvp(f: _Family) -> Any:
    return lambda b, n, dx, *rest: [None if dx is None else _moved(f, b, n, n.input, n.output, dx)]


def _max_grad_grad(f: _Family) -> Any:
    def rule(b: Any, n: Any, g: Any) -> list[Any]:
        return [None, None, lambda: _moved(f, b, n, n.orig_input, n.orig_output, g), *[None] * len(_sizes(n))]

    return rule


def _max_grad_grad_grad(f: _Family) -> Any:
    def rule(b: Any, n: Any, g: Any) -> list[Any]:
        rest = _sizes(n)
        return [
            None,
            None,
            lambda: b.make(f.grad, [n.orig_input, n.orig_output, g, *rest], windows_attrs(n)),
            *[None] * len(rest),
        ]

    return rule


def _avg_grad(type: str) -> Any:
    def rule(b: Any, n: Any, dy: Any) -> list[Any]:
        return [b.make(type, [b.Shape(n.inputs[0]), dy], windows_attrs(n))]

    return rule


def _avg_grad_grad(type: str) -> Any:
    return lambda b, n, g: [None, b.make(type, [g], windows_attrs(n))]


# *** How the tests exercise them ***


def _first_greatest(x: Array, places: Sequence[Any]) -> Any:
    best = places[0]
    for p in places:
        if x[p] > x[best]:
            best = p
    return best


def _max_oracle(x: Array, **attrs: Any) -> Array:
    out = np.empty(pooled(x.shape, attrs), x.dtype)
    for o, places in pool_windows(x.shape, attrs):
        out[o] = x[_first_greatest(x, places)]
    return out


def _max_grad_oracle(x: Array, y: Array, g: Array, **attrs: Any) -> Array:
    out = np.zeros(x.shape, np.float64 if x.dtype.kind not in "iu" else x.dtype)
    for o, places in pool_windows(x.shape, attrs):
        out[_first_greatest(x, places)] += g[o]
    return out.astype(g.dtype)


def _max_grad_grad_oracle(x: Array, y: Array, g: Array, **attrs: Any) -> Array:
    out = np.zeros(y.shape, g.dtype)
    for o, places in pool_windows(x.shape, attrs):
        out[o] = g[_first_greatest(x, places)]
    return out


def _avg_oracle(x: Array, **attrs: Any) -> Array:
    out = np.empty(pooled(x.shape, attrs), x.dtype)
    for o, places in pool_windows(x.shape, attrs):
        out[o] = math.fsum(float(x[p]) for p in places) / len(places)
    return out


def _avg_grad_oracle(shape: Array, g: Array, **attrs: Any) -> Array:
    out = np.zeros(tuple(shape), np.float64)
    for o, places in pool_windows(out.shape, attrs):
        for p in places:
            out[p] += float(g[o]) / len(places)
    return out.astype(g.dtype)


def _of_inputs(oracle: Any) -> Any:
    """The oracle of the V2 form, whose windows are inputs."""
    return lambda *args, **attrs: oracle(*args[:-2], ksize=args[-2].tolist(), strides=args[-1].tolist(), **attrs)


def _images(x: Any, y: Any, attrs: Any, drawn: Any) -> list[Array]:
    return [drawn(x)]


def _back(x: Any, y: Any, attrs: Any, drawn: Any) -> list[Array]:
    images = drawn(x)
    return [images, _max_oracle(images, **attrs), drawn(y)]


def _forth(x: Any, y: Any, attrs: Any, drawn: Any) -> list[Array]:
    images = drawn(x)
    return [images, _max_oracle(images, **attrs), drawn(x)]


def _shape_and_grad(x: Any, y: Any, attrs: Any, drawn: Any) -> list[Array]:
    return [np.array(x, np.int32), drawn(y)]


# *** Records ***

_ONE_PADDING = {"padding": string_attr(allowed=("SAME", "VALID"))}
_PADDINGS = {
    "padding": string_attr(allowed=("SAME", "VALID", "EXPLICIT")),
    "explicit_paddings": list_attr("int", default=()),
}
_SIZES = {"ksize": list_attr("int", minimum=4), "strides": list_attr("int", minimum=4)}
_LAYOUT = {"data_format": string_attr("NHWC", ("NHWC", "NCHW"))}
_VECTORS = {"data_format": string_attr("NHWC", ("NHWC", "NCHW", "NCHW_VECT_C"))}
_SHORT = REAL - {uint32, uint64}
# None is total: as TensorFlow has it, what a kernel cannot do (pooling along the batch, say) is an error when it runs.
_FACTS = Facts(cost=flops_per_input(3), fresh=True, rounds_once=True)
_GRAD_FACTS = Facts(cost=flops_per_input(8), fresh=True, rounds_once=True)

op(
    "MaxPool",
    "input: T",
    "output: T",
    {"T": type_attr(_SHORT, float32)} | _SIZES | _PADDINGS | _VECTORS,
    shape=pooled_shape("MaxPool"),
    kernel=pooling("MaxPool", _max_pool),
    xp=True,
    grad=_max_grad(_IMAGES),
    jvp=_max_jvp(_IMAGES),
    batch=folding(0),
    form=pooling_form("MaxPool", "maximum"),
    facts=_FACTS,
    oracle=_max_oracle,
    sample=pool_samples(_images, DEPTHWISE, MARGINS),
    doc="The greatest element of each window.",
)
op(
    "MaxPoolV2",
    "input: T, ksize: int32, strides: int32",
    "output: T",
    {"T": type_attr(_SHORT, float32)} | _ONE_PADDING | _VECTORS,
    shape=pooled_shape("MaxPoolV2"),
    kernel=pooling("MaxPoolV2", _max_pool),
    xp=True,
    host=("ksize", "strides"),
    grad=_max_grad(_V2),
    jvp=_max_jvp(_V2),
    batch=folding(0),
    facts=_FACTS,
    oracle=_of_inputs(_max_oracle),
    sample=pool_samples(_images, DEPTHWISE, v2=True),
    doc="The greatest element of each window, whose size and strides are inputs.",
)
op(
    "MaxPoolGrad",
    "orig_input: T, orig_output: T, grad: T",
    "output: T",
    {"T": type_attr(REAL, float32)} | _SIZES | _PADDINGS | _LAYOUT,
    shape=grad_shape(0, (1, 2)),
    kernel=pooling("MaxPoolGrad", _max_pool_grad),
    xp=True,
    grad=_max_grad_grad(_IMAGES),
    jvp=linear("grad"),
    batch=folding(0, 1, 2),
    form=pooling_form("MaxPoolGrad", "maximum_gradient"),
    facts=_GRAD_FACTS,
    oracle=_max_grad_oracle,
    sample=pool_samples(_back, MARGINS),
    doc="The gradient of MaxPool: that of each window goes to the first of its greatest elements.",
)
op(
    "MaxPoolGradV2",
    "orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32",
    "output: T",
    {"T": type_attr(REAL, float32)} | _ONE_PADDING | _LAYOUT,
    shape=grad_shape(0, (1, 2)),
    kernel=pooling("MaxPoolGradV2", _max_pool_grad),
    xp=True,
    host=("ksize", "strides"),
    grad=_max_grad_grad(_V2),
    jvp=linear("grad"),
    batch=folding(0, 1, 2),
    facts=_GRAD_FACTS,
    oracle=_of_inputs(_max_grad_oracle),
    sample=pool_samples(_back, v2=True),
    doc="The gradient of MaxPoolV2.",
)
op(
    "MaxPoolGradGrad",
    "orig_input: T, orig_output: T, grad: T",
    "output: T",
    {"T": REAL} | _SIZES | _ONE_PADDING | _LAYOUT,
    shape=grad_shape(1, (0, 2)),
    kernel=pooling("MaxPoolGradGrad", _max_pool_grad_grad),
    xp=True,
    grad=_max_grad_grad_grad(_IMAGES),
    jvp=linear("grad"),
    batch=folding(0, 1, 2),
    facts=_GRAD_FACTS,
    oracle=_max_grad_grad_oracle,
    sample=pool_samples(_forth),
    doc="The gradient of MaxPoolGrad: for each window, what `grad` has at the first of its greatest elements.",
)
op(
    "MaxPoolGradGradV2",
    "orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32",
    "output: T",
    {"T": REAL} | _ONE_PADDING | _LAYOUT,
    shape=grad_shape(1, (0, 2)),
    kernel=pooling("MaxPoolGradGradV2", _max_pool_grad_grad),
    xp=True,
    host=("ksize", "strides"),
    grad=_max_grad_grad_grad(_V2),
    jvp=linear("grad"),
    batch=folding(0, 1, 2),
    facts=_GRAD_FACTS,
    oracle=_of_inputs(_max_grad_grad_oracle),
    sample=pool_samples(_forth, v2=True),
    doc="The gradient of MaxPoolGradV2.",
)

# *** Records of volumes, and of means ***

_FIVE = {"ksize": list_attr("int", minimum=5), "strides": list_attr("int", minimum=5)}
_VOLUME_LAYOUT = {"data_format": string_attr("NDHWC", ("NDHWC", "NCDHW"))}
_SINGLE = frozenset({float16, bfloat16, float32})
_WHERE_VOLUMES_DIFFER = "Computes the layout NCDHW, which TensorFlow refuses on the CPU."

op(
    _VOLUMES.pool,
    "input: T",
    "output: T",
    {"T": _SINGLE} | _FIVE | _ONE_PADDING | _VOLUME_LAYOUT,
    shape=pooled_shape(_VOLUMES.pool),
    kernel=pooling(_VOLUMES.pool, _max_pool_of_volumes),
    xp=True,
    grad=_max_grad(_VOLUMES),
    jvp=_max_jvp(_VOLUMES),
    batch=folding(0),
    facts=_FACTS,
    oracle=_max_oracle,
    sample=pool_samples(_images, volumes=True),
    doc="The greatest element of each window of volumes.",
    differs=f"{_WHERE_VOLUMES_DIFFER} NaN is never the greatest element; in TensorFlow that depends on the channels.",
)
op(
    _VOLUMES.grad,
    "orig_input: TInput, orig_output: TInput, grad: T",
    "output: T",
    {"T": type_attr(_SINGLE, float32), "TInput": type_attr(_SINGLE, float32)} | _FIVE | _ONE_PADDING | _VOLUME_LAYOUT,
    shape=grad_shape(0, (1, 2)),
    kernel=pooling(_VOLUMES.grad, _max_pool_grad_of_volumes),
    xp=True,
    grad=_max_grad_grad(_VOLUMES),
    jvp=linear("grad"),
    batch=folding(0, 1, 2),
    facts=_GRAD_FACTS,
    oracle=_max_grad_oracle,
    sample=pool_samples(_back, volumes=True),
    doc="The gradient of MaxPool3D: that of each window goes to all its elements that are as great as `orig_output`.",
    differs=_WHERE_VOLUMES_DIFFER,
)
op(
    _VOLUMES.second,
    "orig_input: T, orig_output: T, grad: T",
    "output: T",
    {"T": _SINGLE} | _FIVE | _ONE_PADDING | _VOLUME_LAYOUT,
    shape=grad_shape(1, (0, 2)),
    kernel=pooling(_VOLUMES.second, _max_pool_grad_grad_of_volumes),
    xp=True,
    grad=_max_grad_grad_grad(_VOLUMES),
    jvp=linear("grad"),
    batch=folding(0, 1, 2),
    facts=_GRAD_FACTS,
    oracle=_max_grad_grad_oracle,
    sample=pool_samples(_forth, volumes=True),
    doc="The gradient of MaxPool3DGrad: for each window, what `grad` has at the first element equal to `orig_output`.",
    differs=_WHERE_VOLUMES_DIFFER,
)

for _pool, _value, _attrs, _volumes, _differs in (
    ("AvgPool", "value", _SIZES | _ONE_PADDING | _LAYOUT, False, ""),
    ("AvgPool3D", "input", _FIVE | _ONE_PADDING | _VOLUME_LAYOUT, True, _WHERE_VOLUMES_DIFFER),
):
    op(
        _pool,
        f"{_value}: T",
        "output: T",
        {"T": FLOATING} | _attrs,
        shape=pooled_shape(_pool),
        kernel=pooling(_pool, _avg_pool),
        xp=True,
        grad=_avg_grad(f"{_pool}Grad"),
        jvp=linear(_value),
        batch=folding(0),
        form=pooling_form(_pool, "mean"),
        facts=_FACTS,
        oracle=_avg_oracle,
        sample=pool_samples(_images, volumes=_volumes),
        doc="The mean of each window, without its padding.",
        differs=_differs,
    )
    op(
        f"{_pool}Grad",
        "orig_input_shape: int32, grad: T",
        "output: T",
        {"T": FLOATING} | _attrs,
        shape=lambda c: [with_rank(shape_from(c, 0), rank_of(c.attrs))],
        kernel=pooling(f"{_pool}Grad", _avg_pool_grad),
        xp=True,
        host=("orig_input_shape",),
        grad=_avg_grad_grad(_pool),
        jvp=linear("grad"),
        batch=of_sizes,
        form=pooling_form(f"{_pool}Grad", "mean_gradient"),
        facts=_FACTS,
        oracle=_avg_grad_oracle,
        sample=pool_samples(_shape_and_grad, volumes=_volumes),
        doc=f"The gradient of {_pool}, whose input has the shape `orig_input_shape`.",
        differs=_differs,
    )
