"""Pooling: the greatest element or the mean of each window (MaxPool, AvgPool), and their gradients.

Source: TensorFlow's ops of the same names, whose conventions these follow: NaN is never the greatest element, a window
without any other has the lowest finite number; the gradient goes to the first of the greatest elements, and to a NaN
only where that is the first of its window. A mean is over the elements that are not padding.

Greatest elements and sums are found along one axis after the other, each from as many slices as a window has elements
along it; gradients of the greatest go through all elements of the windows, a slice for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from headrace.dtypes import FLOATING, INTEGER, REAL, DType, float32, uint32, uint64
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ir.arrays import check_size, dims, shape_from
from headrace.ir.elementwise import HALF, kept
from headrace.ir.opdef import Facts, flops_per_input, list_attr, op, string_attr, type_attr
from headrace.ir.pools import (
    axes_of,
    counted,
    counts,
    expect,
    grad_shape,
    pooled_shape,
    pooling,
    reduced,
    spread,
    windows_attrs,
)
from headrace.ir.tangents import linear
from headrace.ir.window_samples import DEPTHWISE, MARGINS, pool_samples, pool_windows, pooled
from headrace.ir.windows import Axis, Sliding, taps
from headrace.shapes import with_rank

Array: TypeAlias = np.ndarray
Axes: TypeAlias = tuple[Axis, ...]


def _lowest(t: DType) -> Any:
    """The lowest finite number of a dtype."""
    return np.iinfo(t.numpy).min if t in INTEGER else float(ml_dtypes.finfo(t.numpy).min)


# *** The greatest elements ***


def _greatest(x: Array, axes: Axes, t: DType) -> Array:
    if t in INTEGER:
        return reduced(np.maximum, x, axes, _lowest(t))
    wide = x.astype(np.float32) if t in HALF else x
    out = np.fmax(reduced(np.fmax, wide, axes, -np.inf), wide.dtype.type(_lowest(t)))
    return out.astype(t.numpy) if t in HALF else out


def _first_hits(x: Array, y: Array, axes: Axes, same: Any) -> Iterator[tuple[Any, Any, Array]]:
    """For each element of the windows: windows, elements, and where these are the first that are the `same` as `y`.

    Each of the last is good until the next.
    """
    is_open, hits = np.ones(y.shape, np.bool_), np.empty(y.shape, np.bool_)
    for windows, elements in taps(axes):
        some, hit = is_open[*windows], hits[*windows]
        same(x[*elements], y[*windows], out=hit)
        hit &= some
        some ^= hit
        yield windows, elements, hit


def _equal_or_nan(a: Array, b: Array, out: Array) -> None:
    np.equal(a, b, out=out)
    out |= np.isnan(a) & np.isnan(b)


def _with_first_nans(x: Array, axes: Axes) -> Array:
    """The greatest element of each window, and NaN where that is the first."""
    out = reduced(np.fmax, x, axes, -np.inf)
    first = np.zeros(out.shape, x.dtype)
    for windows, elements in reversed(list(taps(axes))):
        first[*windows] = x[*elements]
    return np.where(np.isnan(first), first, out)


def _to_greatest(x: Array, g: Array, axes: Axes) -> Array:
    """The gradient by the input: each element of `g` goes to the first of the greatest elements of its window."""
    is_real = x.dtype.kind not in "iu"
    y = reduced(np.maximum, x, axes, -np.inf if is_real else np.iinfo(x.dtype).min)
    same: Any = np.equal
    if is_real and np.isnan(y).any():
        y, same = _with_first_nans(x, axes), _equal_or_nan
    dx, buffer = np.zeros(x.shape, g.dtype), _integers(y.shape, g)
    alone = all(a.is_disjoint for a in axes)
    for windows, elements, hit in _first_hits(x, y, axes, same):
        part = kept(hit, g[*windows], buffer[*windows])
        if alone:
            dx[*elements] = part
        else:
            dx[*elements] += part
    return dx


def _integers(shape: tuple[int, ...], x: Array) -> Array:
    """A buffer for `kept`, of elements of `x`."""
    return np.empty(shape, f"i{x.itemsize}")


def _of_greatest(x: Array, y: Array, g: Array, axes: Axes) -> Array:
    """The elements of `g` that lie where the first of the greatest elements of `x` do; 0 where none is equal to `y`."""
    out, buffer = np.zeros(y.shape, g.dtype), _integers(y.shape, g)
    for windows, elements, hit in _first_hits(x, y, axes, np.equal):
        out[*windows] += kept(hit, g[*elements], buffer[*windows])
    return out


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


def _max_pool(t: DType) -> Callable[..., Array]:
    def compute(s: Sliding, ksize: tuple[int, ...], x: Array) -> Array:
        axes = axes_of(s, x.shape, ksize)
        _refuse_depth(s, x.shape, ksize)
        check_size(counted(axes), t)
        return _greatest(x, axes, t)

    return compute


def _max_pool_grad(t: DType) -> Callable[..., Array]:
    def compute(s: Sliding, ksize: tuple[int, ...], x: Array, y: Array, g: Array) -> Array:
        axes = axes_of(s, x.shape, ksize)
        expect("orig_output", y.shape, counted(axes))
        expect("grad", g.shape, counted(axes))
        if t in HALF and not all(a.is_disjoint for a in axes):  # there are sums
            return _to_greatest(x.astype(np.float32), g.astype(np.float32), axes).astype(t.numpy)
        return _to_greatest(x, g, axes)

    return compute


def _max_pool_grad_grad(t: DType) -> Callable[..., Array]:
    def compute(s: Sliding, ksize: tuple[int, ...], x: Array, y: Array, g: Array) -> Array:
        axes = axes_of(s, x.shape, ksize)
        expect("orig_output", y.shape, counted(axes))
        expect("grad", g.shape, x.shape)
        return _of_greatest(x, y, g, axes)

    return compute


def _means(s: Sliding, x: tuple[int, ...], ksize: tuple[int, ...]) -> Axes:
    axes = axes_of(s, x, ksize)
    if ksize[s.channels] != 1 or s.strides[s.channels] != 1:
        raise UnimplementedError(f"Non-spatial pooling is not yet supported, got the windows {list(ksize)}")
    return axes


def _avg_pool(t: DType) -> Callable[..., Array]:
    def compute(s: Sliding, ksize: tuple[int, ...], x: Array) -> Array:
        axes = _means(s, x.shape, ksize)
        check_size(counted(axes), t)
        wide = x.astype(np.float32) if t in HALF else x
        out = reduced(np.add, wide, axes, 0) / counts(axes, wide.dtype)
        return out.astype(t.numpy) if t in HALF else out

    return compute


def _avg_pool_grad(t: DType) -> Callable[..., Array]:
    def compute(s: Sliding, ksize: tuple[int, ...], shape: Array, g: Array) -> Array:
        x = dims(shape)
        if len(x) != len(s.strides):
            raise InvalidArgumentError(
                f"orig_input_shape must be 1-dimensional and {len(s.strides)} elements, got {list(x)}"
            )
        check_size(x, t)
        axes = _means(s, x, ksize)
        expect("grad", g.shape, counted(axes))
        wide = g.astype(np.float32) if t in HALF else g
        return spread(wide / counts(axes, wide.dtype), axes).astype(t.numpy, copy=False)

    return compute


# *** Gradients ***


def _sizes(n: Any) -> list[Any]:
    """The last two inputs of the V2 forms; nothing for the others."""
    return [] if "ksize" in n.attrs else [n.ksize, n.strides]


def _moved(b: Any, n: Any, x: Any, y: Any, dx: Any) -> Any:
    """What moves in `y` if `dx` does in `x`. MaxPoolGradGrad has no explicit paddings, for which arrays are padded."""
    type = "MaxPoolGradGrad" if "ksize" in n.attrs else "MaxPoolGradGradV2"
    attrs = windows_attrs(n)
    if attrs.pop("explicit_paddings", ()):
        attrs["padding"] = "VALID"
        margins = np.array(n.attrs["explicit_paddings"], np.int32).reshape(-1, 2)
        t = n.attrs["T"]
        x = b.PadV2(x, margins, b.const(np.array(_lowest(t), t.numpy)))
        dx = b.Pad(dx, margins)
    return b.make(type, [x, y, dx, *_sizes(n)], attrs)


def _max_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    type = "MaxPoolGrad" if "ksize" in n.attrs else "MaxPoolGradV2"
    rest = _sizes(n)
    return [b.make(type, [n.input, n.output, dy, *rest], windows_attrs(n)), *[None] * len(rest)]


def _max_jvp(b: Any, n: Any, dx: Any, *rest: Any) -> list[Any]:
    return [None if dx is None else _moved(b, n, n.input, n.output, dx)]


def _max_grad_grad(b: Any, n: Any, g: Any) -> list[Any]:
    return [None, None, _moved(b, n, n.orig_input, n.orig_output, g), *[None] * len(_sizes(n))]


def _max_grad_grad_grad(b: Any, n: Any, g: Any) -> list[Any]:
    type = "MaxPoolGrad" if "ksize" in n.attrs else "MaxPoolGradV2"
    rest = _sizes(n)
    return [None, None, b.make(type, [n.orig_input, n.orig_output, g, *rest], windows_attrs(n)), *[None] * len(rest)]


def _avg_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [b.AvgPoolGrad(b.Shape(n.value), dy, **windows_attrs(n))]


def _avg_grad_grad(b: Any, n: Any, g: Any) -> list[Any]:
    return [None, b.AvgPool(g, **windows_attrs(n))]


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
_FACTS = Facts(cost=flops_per_input(3), fresh=True)
_GRAD_FACTS = Facts(cost=flops_per_input(8), fresh=True)

op(
    "MaxPool",
    "input: T",
    "output: T",
    {"T": type_attr(_SHORT, float32)} | _SIZES | _PADDINGS | _VECTORS,
    shape=pooled_shape("MaxPool"),
    kernel=pooling("MaxPool", _max_pool),
    grad=_max_grad,
    jvp=_max_jvp,
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
    grad=_max_grad,
    jvp=_max_jvp,
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
    grad=_max_grad_grad,
    jvp=linear("grad"),
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
    grad=_max_grad_grad,
    jvp=linear("grad"),
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
    grad=_max_grad_grad_grad,
    jvp=linear("grad"),
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
    grad=_max_grad_grad_grad,
    jvp=linear("grad"),
    facts=_GRAD_FACTS,
    oracle=_of_inputs(_max_grad_grad_oracle),
    sample=pool_samples(_forth, v2=True),
    doc="The gradient of MaxPoolGradV2.",
)
op(
    "AvgPool",
    "value: T",
    "output: T",
    {"T": FLOATING} | _SIZES | _ONE_PADDING | _LAYOUT,
    shape=pooled_shape("AvgPool"),
    kernel=pooling("AvgPool", _avg_pool),
    grad=_avg_grad,
    jvp=linear("value"),
    facts=_FACTS,
    oracle=_avg_oracle,
    sample=pool_samples(_images),
    doc="The mean of each window, without its padding.",
)
op(
    "AvgPoolGrad",
    "orig_input_shape: int32, grad: T",
    "output: T",
    {"T": FLOATING} | _SIZES | _ONE_PADDING | _LAYOUT,
    shape=lambda c: [with_rank(shape_from(c, 0), len(c.attrs["data_format"]))],
    kernel=pooling("AvgPoolGrad", _avg_pool_grad),
    grad=_avg_grad_grad,
    jvp=linear("grad"),
    facts=_FACTS,
    oracle=_avg_grad_oracle,
    sample=pool_samples(_shape_and_grad),
    doc="The gradient of AvgPool, whose input has the shape `orig_input_shape`.",
)
