"""Depthwise convolutions, with separate filters for each channel: DepthwiseConv2dNative and its gradients.

Source: TensorFlow's ops of the same names. The kernel sums over the elements of the window, with a slice of the images
for each. A matrix of windows (im2col) would need their memory for a product with few elements. On numpy's arrays it
iterates over blocks that fit into the cache.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headrace import shapes
from headrace.dtypes import FLOATING, DType, float32, from_numpy
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, list_attr, op, string_attr
from headrace.opkit.arrays import check_size, dims, shape_from
from headrace.opkit.batch_windows import depthwise
from headrace.opkit.elementwise import HALF, widened
from headrace.opkit.jvp_rules import multilinear
from headrace.opkit.kernel_library import KernelLibrary, kernel_library
from headrace.opkit.namespaces import converter
from headrace.opkit.window_arrays import frame_taps, framed, full, plain, unframed
from headrace.opkit.windows import Axis, Sliding, sliding, taps
from headrace.ops.nn.conv_samples import attributes, channels_first, drawn, oracle
from headrace.ops.nn.convolving import blocks, channels_last, laid_out, refuse_others, rounded, shape_of
from headrace.ops.nn.window_forms import depthwise_form
from headrace.shapes import Shape, merge_dim, show, with_rank

Array: TypeAlias = np.ndarray
Axes: TypeAlias = tuple[Axis, ...]

# *** Arrays: x [batch, rows, columns, channels], w [rows, columns, channels, filters], y [..., channels, filters] ***


def _parts(y: Array, axes: Axes) -> Any:
    """Yields blocks of images and rows that fit into the cache, and their windows."""
    for images, rows in blocks(len(y), axes[0].count, y[0, 0].nbytes) if y.size else ():
        yield images, rows, (axes[0].part(rows), axes[1])


def _products(w: Array, axes: Axes) -> Any:
    """Yields the terms of the convolution: windows, elements, filter number and weights [channels].

    There is one for each element of the window and each filter of the channels.
    """
    for weights, (windows, elements) in zip(w.reshape(-1, *w.shape[2:]), taps(axes), strict=True):
        for m in range(w.shape[3]):
            yield windows, elements, m, weights[:, m]


def _grouped(a: Array) -> Array:
    """A filter of a convolution with groups, [rows, columns, 1, channels * filters]."""
    return a.reshape(*a.shape[:2], 1, -1)


def _convolved(x: Array, w: Array, axes: Axes, library: KernelLibrary, t: DType) -> Array:
    found = None if t in HALF else library.convolved(x, _grouped(w), axes, w.shape[2])
    if found is not None:
        return found.reshape(*found.shape[:3], *w.shape[2:])
    y = np.zeros((len(x), *(a.count for a in axes), *w.shape[2:]), x.dtype)
    for images, rows, parts in _parts(y, axes):
        into, image = y[images, rows], x[images]
        for windows, elements, m, weights in _products(w, parts):
            some = into[:, *windows, :, m]
            some += image[:, *elements] * weights
            if t in HALF:  # as TensorFlow does; of so few bits each counts
                some[...] = rounded(some, t)
    return y


def _by_input(w: Array, dy: Array, axes: Axes, library: KernelLibrary) -> Array:
    found = library.by_input(_grouped(w), dy.reshape(*dy.shape[:3], -1), axes, w.shape[2])
    if found is not None:
        return found
    dx = np.zeros((len(dy), *(a.length for a in axes), w.shape[2]), dy.dtype)
    for images, rows, parts in _parts(dy, axes):
        into, block = dx[images], dy[images, rows]
        for windows, elements, m, weights in _products(w, parts):
            into[:, *elements] += block[:, *windows, :, m] * weights
    return dx


def _by_filter(x: Array, dy: Array, axes: Axes, library: KernelLibrary) -> Array:
    channels, multiplier = dy.shape[3:]
    found = library.by_filter(x, dy.reshape(*dy.shape[:3], -1), axes, channels)
    if found is not None:
        return found.reshape(*found.shape[:2], channels, multiplier)
    dw = np.zeros((*(a.size for a in axes), channels, multiplier), x.dtype)
    for images, rows, parts in _parts(dy, axes):
        image, block = x[images], dy[images, rows]
        for windows, elements, m, weights in _products(dw, parts):
            product = image[:, *elements] * block[:, *windows, :, m]
            matrix = product.reshape(-1, channels)
            weights += np.dot(np.ones(len(matrix), x.dtype), matrix)
    return dw


# *** The same of any namespace of the array API standard ***


class _Portable:
    """Depthwise convolutions of arrays of a namespace, and their gradients."""

    def __init__(self, xp: Any, t: DType) -> None:
        self.xp, self.half = xp, t in HALF
        if self.half:
            self.to_half, self.to_float = converter(xp, t), converter(xp, float32)

    def convolved(self, x: Any, w: Any, axes: Axes) -> Any:
        frame, weights = framed(self.xp, x, _all(axes, x), 0), self._each(w)
        y = full(self.xp, (x.shape[0], *(a.count for a in axes), *w.shape[2:]), 0, x)
        for k, tap in enumerate(frame_taps(_all(axes, x))):
            y = y + frame[*tap, None] * weights[k, ...]
            if self.half:  # as in `_convolved`
                y = self.to_float(self.to_half(y))
        return y

    def by_input(self, w: Any, dy: Any, axes: Axes) -> Any:
        whole, weights = _all(axes, dy[..., 0]), self._each(w)
        frame = full(self.xp, [a.extent for a in whole], 0, dy)
        for k, tap in enumerate(frame_taps(whole)):
            frame[*tap] += self.xp.sum(dy * weights[k, ...], axis=-1)
        return unframed(self.xp, frame, whole)

    def by_filter(self, x: Any, dy: Any, axes: Axes) -> Any:
        frame = framed(self.xp, x, _all(axes, x), 0)
        sums = [self.xp.sum(frame[*tap, None] * dy, axis=(0, 1, 2)) for tap in frame_taps(_all(axes, x))]
        return self.xp.reshape(self.xp.stack(sums), (*(a.size for a in axes), *dy.shape[3:]))

    def _each(self, w: Any) -> Any:
        """The weights of each element of the window, [elements, channels, filters]."""
        return self.xp.reshape(w, (w.shape[0] * w.shape[1], *w.shape[2:]))


def _all(axes: Axes, x: Any) -> Axes:
    """The axes with those of batch and channels."""
    return (plain(x.shape[0]), *axes, plain(x.shape[-1]))


class _Functions(NamedTuple):
    """The convolution and its gradients, of two arrays and axes."""

    convolved: Callable[[Any, Any, Axes], Any]
    by_input: Callable[[Any, Any, Axes], Any]
    by_filter: Callable[[Any, Any, Axes], Any]


def _functions(xp: Any, t: DType) -> _Functions:
    if xp is np:
        library = kernel_library()
        every: Any = (functools.partial(_convolved, t=t), _by_input, _by_filter)
        return _Functions(*[functools.partial(_computed, f, library=library) for f in every])
    portable = _Portable(xp, t)

    def wide(f: Callable[[Any, Any, Axes], Any]) -> Callable[[Any, Any, Axes], Any]:
        return lambda a, b, axes: widened(lambda a, b: f(a, b, axes), t, xp)(a, b)

    return _Functions(wide(portable.convolved), wide(portable.by_input), wide(portable.by_filter))


# *** Shapes ***


def _geometry(s: Sliding, x: tuple[int, ...], w: tuple[int, ...], type: str) -> Axes:
    for what, shape in (("input", x), ("filter", w)):
        if len(shape) != 4:
            raise InvalidArgumentError(f"{type}: {what} must be 4-dimensional: {show(shape)}")
    refuse_others(s)
    if x[s.channels] != w[2]:
        raise InvalidArgumentError(f"{type}: input and filter must have the same depth: {x[s.channels]} vs {w[2]}")
    return tuple(s.axis(i, x[i], size) for i, size in zip(s.spatial, w, strict=False))


def _parted(xp: Any, dy: Any, s: Sliding, x: tuple[int, ...], w: tuple[int, ...], axes: Axes, type: str) -> Any:
    """`dy`, checked to have the shape of the result, with an axis for the filters."""
    y = shape_of(s, x[0], axes, w[2] * w[3])
    if dy.shape != y:
        raise InvalidArgumentError(
            f"{type}: out_backprop doesn't match computed: actual = {show(dy.shape)}, computed = {show(y)}"
        )
    last = channels_last(dy, s, xp)
    return xp.reshape(last, (*last.shape[:3], *w[2:]))


def _sizes(type: str, what: str, sizes: Array, t: DType) -> tuple[int, ...]:
    given = dims(sizes)
    if len(given) != 4:
        raise InvalidArgumentError(f"{type}: {what} must be 4-dimensional, got the sizes {list(given)}")
    check_size(given, t)
    return given


def _computed(f: Callable[..., Array], a: Array, b: Array, axes: Axes, library: KernelLibrary) -> Array:
    """`f(a, b, axes, library)`, in float32 where the arrays have half precision."""
    if from_numpy(a.dtype) in HALF:
        return f(a.astype(np.float32), b.astype(np.float32), axes, library).astype(a.dtype)
    return f(a, b, axes, library)


# *** Kernels ***

_FORWARD = "DepthwiseConv2dNative"
_BY_INPUT = "DepthwiseConv2dNativeBackpropInput"
_BY_FILTER = "DepthwiseConv2dNativeBackpropFilter"


def _kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    s, t = sliding(_FORWARD, attrs), attrs["T"]
    convolved = _functions(xp, t).convolved

    def kernel(x: Array, w: Array) -> Array:
        axes = _geometry(s, x.shape, w.shape, _FORWARD)
        check_size(shape_of(s, x.shape[0], axes, w.shape[2] * w.shape[3]), t)
        y = convolved(channels_last(x, s, xp), w, axes)
        return laid_out(xp.reshape(y, (*y.shape[:3], w.shape[2] * w.shape[3])), s, xp)

    return kernel


def _by_input_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    s, t = sliding(_BY_INPUT, attrs), attrs["T"]
    by_input = _functions(xp, t).by_input

    def kernel(sizes: Array, w: Array, dy: Array) -> Array:
        x = _sizes(_BY_INPUT, "input", sizes, t)
        axes = _geometry(s, x, w.shape, _BY_INPUT)
        parted = _parted(xp, dy, s, x, w.shape, axes, _BY_INPUT)
        return laid_out(by_input(w, parted, axes), s, xp)

    return kernel


def _by_filter_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    s, t = sliding(_BY_FILTER, attrs), attrs["T"]
    by_filter = _functions(xp, t).by_filter

    def kernel(x: Array, sizes: Array, dy: Array) -> Array:
        w = _sizes(_BY_FILTER, "filter", sizes, t)
        axes = _geometry(s, x.shape, w, _BY_FILTER)
        parted = _parted(xp, dy, s, x.shape, w, axes, _BY_FILTER)
        return by_filter(channels_last(x, s, xp), parted, axes)

    return kernel


# *** Shape rules ***


def _shape(c: Inference) -> Sequence[Shape]:
    s = sliding(_FORWARD, c.attrs)
    x, w = (with_rank(shape, 4) for shape in c.shapes)
    channels = merge_dim(x[s.channels], w[2])
    y = [x[0]] * 4
    y[s.channels] = None if channels is None or w[3] is None else channels * w[3]
    for i, size in zip(s.spatial, w, strict=False):
        y[i] = s.dim(i, x[i], size)
    return [tuple(y)]


def _sizes_shape(type: str, sizes: int, others: tuple[int, int]) -> Any:
    """The shape that the input `sizes` says; the inputs `others` are arrays of four axes."""

    def rule(c: Inference) -> Sequence[Shape]:
        sliding(type, c.attrs)
        for i in others:
            with_rank(c.shapes[i], 4)
        return [with_rank(shape_from(c, sizes), 4)]

    return rule


# *** Gradients ***

_SLIDING = ("strides", "padding", "explicit_paddings", "data_format", "dilations")


def _same(n: Any) -> dict[str, Any]:
    return {k: n.attrs[k] for k in _SLIDING}


def _grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [
        lambda: b.make(_BY_INPUT, [b.Shape(n.input), n.filter, dy], _same(n)),
        lambda: b.make(_BY_FILTER, [n.input, b.Shape(n.filter), dy], _same(n)),
    ]


def _by_input_grad(b: Any, n: Any, g: Any) -> list[Any]:
    return [
        None,
        lambda: b.make(_BY_FILTER, [g, b.Shape(n.filter), n.out_backprop], _same(n)),
        lambda: b.make(_FORWARD, [g, n.filter], _same(n)),
    ]


def _by_filter_grad(b: Any, n: Any, g: Any) -> list[Any]:
    return [
        lambda: b.make(_BY_INPUT, [b.Shape(n.input), g, n.out_backprop], _same(n)),
        None,
        lambda: b.make(_FORWARD, [n.input, g], _same(n)),
    ]


def _cost(images: int, filter: int) -> Any:
    """Cost function: the floating-point operations of a depthwise convolution.

    `images` and `filter` are the indices of the result of the convolution and of the filter among inputs and outputs.
    """

    def cost(ins: Sequence[Shape], outs: Sequence[Shape]) -> float | None:
        every = [*ins, *outs]
        y, w = shapes.size(every[images]), every[filter]
        window = None if w is None else shapes.size(w[:2])
        return None if y is None or window is None else 2.0 * y * window

    return cost


# *** How the tests exercise them ***

# of the input, of the filter, strides, dilations, padding (or margins before and behind each axis)
_CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, int], tuple[int, int], Any], ...] = (
    ((2, 4, 5, 2), (3, 3, 2, 1), (1, 1), (1, 1), "SAME"),
    ((1, 5, 4, 2), (2, 3, 2, 2), (2, 1), (1, 1), "VALID"),
    ((1, 5, 6, 1), (2, 2, 1, 3), (1, 1), (2, 3), (1, 0, 2, 1)),
)


def _step(x: Array, w: Array, y: Array, which: str) -> None:
    """See `conv_samples.oracle`."""
    parted = y.reshape(len(y), *w.shape)  # a view
    if which == "y":
        parted += x[:, :, None] * w
    elif which == "x":
        x += (parted * w).sum(2)
    else:
        w += (x[:, :, None] * parted).sum(0)


def _samples(which: str) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        out = []
        for number, (x, w, strides, dilations, padding) in enumerate(_CASES):
            for first in (False, True) if number == 1 else (False,):
                rates = dilations if which == "y" else (1, 1)  # TensorFlow's gradients do not know them
                attrs = attributes(strides, rates, padding, first, ("NHWC", "NCHW"))
                shape = channels_first(x) if first else x
                images, weights = drawn(rng, dtype, shape), drawn(rng, dtype, w)
                if which == "y":
                    out.append(case(images, weights, **attrs))
                    continue
                s = sliding(_FORWARD, {"data_format": "NHWC", **attrs})
                axes = _geometry(s, shape, w, _FORWARD)
                dy = drawn(rng, dtype, shape_of(s, x[0], axes, math.prod(w[2:])))
                sizes = np.array(shape if which == "x" else w, np.int32)
                out.append(case(*((sizes, weights) if which == "x" else (images, sizes)), dy, **attrs))
        return out

    return sample


# *** Records ***

_ATTRS: dict[str, Any] = {
    "strides": list_attr("int"),
    "padding": string_attr(allowed=("SAME", "VALID", "EXPLICIT")),
    "explicit_paddings": list_attr("int", default=()),
    "data_format": string_attr("NHWC", ("NHWC", "NCHW")),
    "dilations": list_attr("int", default=(1, 1, 1, 1)),
}
_REFUSED = "Computes the layout NCHW, dilations, and strides that are not equal, which TensorFlow refuses on the CPU."
_BATCHED = {"y": depthwise(None, (0,), (1,)), "x": depthwise(0, (2,), (1,)), "w": depthwise(1, (0, 2), ())}

for _type, _inputs, _rule, _factory, _gradient, _linear, _places, _which, _doc in (
    (
        _FORWARD,
        "input: T, filter: T",
        _shape,
        _kernel,
        _grad,
        ("input", "filter"),
        (2, 1),
        "y",
        "The convolution of each channel of images with filters of its own, [height, width, channels, filters].",
    ),
    (
        _BY_INPUT,
        "input_sizes: int32, filter: T, out_backprop: T",
        _sizes_shape(_BY_INPUT, 0, (1, 2)),
        _by_input_kernel,
        _by_input_grad,
        ("filter", "out_backprop"),
        (2, 1),
        "x",
        "The gradient of DepthwiseConv2dNative by its input, which has the shape `input_sizes`.",
    ),
    (
        _BY_FILTER,
        "input: T, filter_sizes: int32, out_backprop: T",
        _sizes_shape(_BY_FILTER, 1, (0, 2)),
        _by_filter_kernel,
        _by_filter_grad,
        ("input", "out_backprop"),
        (2, 3),
        "w",
        "The gradient of DepthwiseConv2dNative by its filter, which has the shape `filter_sizes`.",
    ),
):
    op(
        _type,
        _inputs,
        "output: T",
        {"T": FLOATING} | _ATTRS,
        shape=_rule,
        kernel=_factory,
        xp=True,
        host=tuple(a for a in ("input_sizes", "filter_sizes") if a in _inputs),
        grad=_gradient,
        jvp=multilinear(*_linear),
        batch=_BATCHED[_which],
        form=depthwise_form(_type, {"y": "forward", "x": "by_input", "w": "by_filter"}[_which]),
        facts=Facts(cost=_cost(*_places), fresh=True),
        oracle=oracle(_which, _step, lambda w: w[2] * w[3]),
        sample=_samples(_which),
        doc=_doc,
        differs=_REFUSED,
    )
