"""Convolutions and their gradients: Conv2D, Conv2DBackpropInput, Conv2DBackpropFilter.

Source: TensorFlow's ops of the same names. The windows of the input are copied into rows of a matrix, a block of
`BLOCK` bytes at a time, and multiplied by the filter, which lies in memory as a matrix anyway ("im2col": Chellapilla,
Puri, Simard, "High Performance Convolutional Neural Networks for Document Processing", 2006). Half precision is
computed in float32. TensorFlow's CPU kernels refuse the layout NCHW and the gradients of dilated and of grouped
convolutions; these compute them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from headrace import dtypes, shapes
from headrace.dtypes import FLOATING, DType, int32
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ir.arrays import check_size, shape_from
from headrace.ir.arrays import dims as dims_of
from headrace.ir.elementwise import HALF
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, list_attr, op, string_attr
from headrace.ir.samples import draw
from headrace.ir.tangents import multilinear
from headrace.ir.window_samples import windows_of_axis
from headrace.ir.windows import Axis, Sliding, sliding, taps
from headrace.shapes import Dim, Shape, merge_dim, show, with_rank

BLOCK = 2**20  # bytes of columns that are copied at a time: as much as stays in the cache beside the filter

Array: TypeAlias = np.ndarray
Axes: TypeAlias = tuple[Axis, ...]

# *** Arrays, channels last: images are [batch, *spatial, channels], filters [*window, channels, outputs] ***


def _blocks(images: int, rows: int, row_bytes: int) -> Iterator[tuple[slice, slice]]:
    """Images and rows of the output of which together at most `BLOCK` bytes are made, or one row."""
    step = max(1, BLOCK // max(1, row_bytes))
    if step >= rows:
        many = max(1, step // max(1, rows))
        for i in range(0, images, many):
            yield slice(i, min(i + many, images)), slice(0, rows)
        return
    for i in range(images):
        for r in range(0, rows, step):
            yield slice(i, i + 1), slice(r, min(r + step, rows))


def _framed(x: Array, axes: Axes) -> Array:
    """`x` from the first element of the first windows to the last of the last, with zeros where that is padding."""
    pairs = [a.overlap() for a in axes]
    inner = x[:, *(elements for _, elements in pairs)]
    if all(a.is_inside for a in axes):
        return inner
    shape = (x.shape[0], *(a.extent for a in axes), x.shape[-1])
    check_size(shape, dtypes.from_numpy(x.dtype))
    frame = np.zeros(shape, x.dtype)
    frame[:, *(place for place, _ in pairs)] = inner
    return frame


def _columns(x: Array, axes: Axes) -> Iterator[tuple[slice, slice, Array]]:
    """The windows as rows of matrices: images, rows of the output, and the matrix, which is good until the next."""
    channels = x.shape[-1]
    if all(a.is_plain for a in axes):
        yield slice(None), slice(None), x.reshape(-1, channels)
        return
    counts, sizes = [a.count for a in axes], [a.size for a in axes]
    width = math.prod(sizes) * channels
    columns = np.empty(0, x.dtype)
    for images, rows in _blocks(len(x), counts[0], math.prod(counts[1:]) * width * x.itemsize):
        parts = (axes[0].part(rows), *axes[1:])
        frame = _framed(x[images], parts)
        first, *between, last = frame.strides
        windows = as_strided(
            frame,
            (len(frame), *(a.count for a in parts), *sizes, channels),
            (
                first,
                *(s * a.stride for s, a in zip(between, parts, strict=True)),
                *(s * a.dilation for s, a in zip(between, parts, strict=True)),
                last,
            ),
            writeable=False,
        )
        if columns.shape != windows.shape:
            columns = np.empty(windows.shape, x.dtype)
        np.copyto(columns, windows)
        yield images, rows, columns.reshape(-1, width)


def _convolved(x: Array, w: Array, axes: Axes) -> Array:
    """The convolution (the correlation, as mathematicians say) of `x` with the filter `w`."""
    outputs = w.shape[-1]
    y = np.empty((len(x), *(a.count for a in axes), outputs), x.dtype)
    if y.size:
        matrix = w.reshape(-1, outputs)
        for images, rows, columns in _columns(x, axes):
            np.matmul(columns, matrix, out=y[images, rows].reshape(-1, outputs))
    return y


def _by_filter(x: Array, dy: Array, axes: Axes) -> Array:
    """The gradient by the filter."""
    channels, outputs = x.shape[-1], dy.shape[-1]
    sizes = [a.size for a in axes]
    dw = np.zeros((math.prod(sizes) * channels, outputs), x.dtype)
    if dy.size:
        for images, rows, columns in _columns(x, axes):
            dw += np.dot(columns.T, dy[images, rows].reshape(-1, outputs))
    return dw.reshape(*sizes, channels, outputs)


def _by_input(w: Array, dy: Array, axes: Axes) -> Array:
    """The gradient by the input.

    Windows at every element: a convolution of `dy` with the filter turned round. Otherwise, or if that would copy much
    more than there is to add: what each element of the windows gets, added up.
    """
    channels, outputs = w.shape[-2:]
    if outputs <= 2 * channels and all(a.stride == 1 and a.reach > a.before for a in axes):
        turned = np.flip(w, tuple(range(len(axes)))).swapaxes(-1, -2)
        back = [Axis(a.count, a.length, a.size, 1, a.dilation, a.reach - 1 - a.before) for a in axes]
        return _convolved(dy, turned, tuple(back))
    counts = [a.count for a in axes]
    dx = np.zeros((len(dy), *(a.length for a in axes), channels), dy.dtype)
    part_of_row = math.prod(counts[1:]) * channels * dy.itemsize
    for images, rows in _blocks(len(dy), counts[0], part_of_row) if dy.size else ():
        parts = (axes[0].part(rows), *axes[1:])
        block, into = dy[images, rows], dx[images]
        matrix = block.reshape(-1, outputs)
        product = np.empty((*block.shape[:-1], channels), dy.dtype)
        for weights, (windows, elements) in zip(w.reshape(-1, channels, outputs), taps(parts), strict=True):
            np.matmul(matrix, weights.T, out=product.reshape(-1, channels))
            into[:, *elements] += product[:, *windows]
    return dx


def _in_groups(f: Callable[[Array, Array, Axes], Array], a: Array, b: Array, groups: int, axes: Axes) -> Array:
    """`f(a, b, axes)` for each group of channels by itself, the results side by side."""
    t = a.dtype
    if dtypes.from_numpy(t) in HALF:
        return _in_groups(f, a.astype(np.float32), b.astype(np.float32), groups, axes).astype(t)
    if groups == 1:
        return f(a, b, axes)
    both = zip(np.split(a, groups, -1), np.split(b, groups, -1), strict=True)
    return np.concatenate([f(p, q, axes) for p, q in both], -1)


# *** Shapes ***


def _refuse_others(s: Sliding) -> None:
    """Raises unless strides and dilations are those of the spatial axes."""
    for what, values in (("strides", s.strides), ("dilations", s.dilations)):
        if any(values[i] != 1 for i in s.others):
            raise UnimplementedError(
                f"Current implementation does not yet support {what} in the batch and depth dimensions, "
                f"got {list(values)}"
            )


def _groups(inputs: Dim, channels: Dim, outputs: Dim) -> int | None:
    """Into how many groups a filter's `channels` part those of the input; `ValueError` if that cannot be."""
    if channels == 0:
        raise ValueError("Depth of filter must not be 0")
    if inputs is None or channels is None:
        return None
    if inputs % channels:
        raise ValueError(
            f"Depth of input ({inputs}) is not a multiple of input depth of filter ({channels}): "
            "input depth must be evenly divisible by filter depth"
        )
    groups = inputs // channels
    if outputs is not None and groups and outputs % groups:
        raise ValueError(
            f"Depth of output ({outputs}) is not a multiple of the number of groups ({groups}): "
            "output depth must be evenly divisible by number of groups"
        )
    return groups


@functools.lru_cache(1024)
def _geometry(s: Sliding, x: tuple[int, ...], w: tuple[int, ...]) -> tuple[Axes, int, tuple[int, ...]]:
    """The axes and the number of groups of the convolution of arrays of the shapes `x` and `w`, and its result's shape.

    Raises:
      InvalidArgumentError: there is no such convolution.
      UnimplementedError: its windows move along the batch or the channels.
    """
    rank = len(s.strides)
    for what, shape in (("input", x), ("filter", w)):
        if len(shape) != rank:
            raise InvalidArgumentError(f"convolution {what} must be {rank}-dimensional: {show(shape)}")
    _refuse_others(s)
    try:
        groups = _groups(x[s.channels], w[-2], w[-1])
    except ValueError as e:
        raise InvalidArgumentError(f"{e}; input {show(x)}, filter {show(w)}") from None
    if not math.prod(w[:-2]):
        raise InvalidArgumentError(
            f"filter must not have zero elements (i.e. all dimensions must be non-zero): {show(w)}"
        )
    axes = tuple(s.axis(i, x[i], size) for i, size in zip(s.spatial, w, strict=False))
    y = [x[0]] * rank
    y[s.channels] = w[-1]
    for i, a in zip(s.spatial, axes, strict=True):
        y[i] = a.count
    return axes, groups or 1, tuple(y)


def _meant(sizes: Array, w: tuple[int, ...], dy: tuple[int, ...], s: Sliding, type: str) -> tuple[int, ...]:
    """The shape of the input that `input_sizes` says, all of it or only the spatial axes."""
    given, rank = dims_of(sizes), len(s.strides)
    if len(given) == rank - 2:
        whole = list(dy)
        whole[s.channels] = w[-2]
        for i, size in zip(s.spatial, given, strict=True):
            whole[i] = size
        given = tuple(whole)
    if len(given) != rank:
        raise InvalidArgumentError(
            f"{type} requires input_sizes to contain {rank} values or {rank - 2} values, but got: {len(given)}"
        )
    return given


def _require(dy: tuple[int, ...], y: tuple[int, ...], type: str) -> None:
    if dy != y:
        raise InvalidArgumentError(
            f"{type}: Size of out_backprop doesn't match computed: actual = {show(dy)}, computed = {show(y)}"
        )


def _last(x: Array, s: Sliding) -> Array:
    """`x` with the channels last."""
    return x if s.channels == x.ndim - 1 else np.moveaxis(x, s.channels, -1)


def _back(x: Array, s: Sliding) -> Array:
    """`x`, channels last, in the layout of `s`; a view, so that a chain of convolutions moves nothing about."""
    return x if s.channels == x.ndim - 1 else np.moveaxis(x, -1, s.channels)


# *** Kernels ***


def _kernel(type: str) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        s, t = sliding(type, attrs), attrs["T"]

        def kernel(x: Array, w: Array) -> Array:
            axes, groups, y = _geometry(s, x.shape, w.shape)
            check_size(y, t)
            return _back(_in_groups(_convolved, _last(x, s), w, groups, axes), s)

        return kernel

    return factory


def _by_input_kernel(type: str) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        s, t = sliding(type, attrs), attrs["T"]

        def kernel(sizes: Array, w: Array, dy: Array) -> Array:
            _same_rank(type, s, filter=w, out_backprop=dy)
            x = _meant(sizes, w.shape, dy.shape, s, type)
            check_size(x, t)
            axes, groups, y = _geometry(s, x, w.shape)
            _require(dy.shape, y, type)
            return _back(_in_groups(_by_input, w, _last(dy, s), groups, axes), s)

        return kernel

    return factory


def _by_filter_kernel(type: str) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        s, t = sliding(type, attrs), attrs["T"]

        def kernel(x: Array, sizes: Array, dy: Array) -> Array:
            _same_rank(type, s, input=x, out_backprop=dy)
            w = dims_of(sizes)
            if len(w) != x.ndim:
                raise InvalidArgumentError(f"{type}: filter must be {x.ndim}-dimensional, got filter_sizes {list(w)}")
            check_size(w, t)
            axes, groups, y = _geometry(s, x.shape, w)
            _require(dy.shape, y, type)
            return _in_groups(_by_filter, _last(x, s), _last(dy, s), groups, axes)

        return kernel

    return factory


def _same_rank(type: str, s: Sliding, **arrays: Array) -> None:
    for name, a in arrays.items():
        if a.ndim != len(s.strides):
            raise InvalidArgumentError(f"{type}: {name} must be {len(s.strides)}-dimensional: {show(a.shape)}")


# *** Shape rules ***


def _shape(type: str) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        s = sliding(type, c.attrs)
        x, w = (with_rank(shape, len(s.strides)) for shape in c.shapes)
        _groups(x[s.channels], w[-2], w[-1])
        y = [x[0]] * len(x)
        y[s.channels] = w[-1]
        for i, size in zip(s.spatial, w, strict=False):
            y[i] = s.dim(i, x[i], size)
        return [tuple(y)]

    return rule


def _by_input_shape(type: str) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        s = sliding(type, c.attrs)
        rank = len(s.strides)
        w, dy = (with_rank(shape, rank) for shape in c.shapes[1:])
        merge_dim(dy[s.channels], w[-1])
        sizes = shape_from(c, 0)
        if sizes is None:
            return [(dy[0], *[None] * (rank - 1))]
        if len(sizes) == rank - 2:
            whole = list(dy)
            whole[s.channels] = w[-2]
            for i, size in zip(s.spatial, sizes, strict=True):
                whole[i] = size
            return [tuple(whole)]
        if len(sizes) != rank:
            raise ValueError(
                f"{type} requires input_sizes to contain {rank} values or {rank - 2} values, but got: {len(sizes)}"
            )
        return [(merge_dim(sizes[0], dy[0]), *sizes[1:])]

    return rule


def _by_filter_shape(type: str) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        rank = len(sliding(type, c.attrs).strides)
        for i in (0, 2):
            with_rank(c.shapes[i], rank)
        return [with_rank(shape_from(c, 1), rank)]

    return rule


# *** Gradients ***

_SLIDING = ("strides", "use_cudnn_on_gpu", "padding", "explicit_paddings", "data_format", "dilations")


def _same(n: Any) -> dict[str, Any]:
    return {k: n.attrs[k] for k in _SLIDING}


def _grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [
        b.Conv2DBackpropInput(b.Shape(n.input), n.filter, dy, **_same(n)),
        b.Conv2DBackpropFilter(n.input, b.Shape(n.filter), dy, **_same(n)),
    ]


def _by_input_grad(b: Any, n: Any, g: Any) -> list[Any]:
    by_filter = b.Conv2DBackpropFilter(g, b.Shape(n.filter), n.out_backprop, **_same(n))
    return [None, by_filter, b.Conv2D(g, n.filter, **_same(n))]


def _by_filter_grad(b: Any, n: Any, g: Any) -> list[Any]:
    by_input = b.Conv2DBackpropInput(b.Shape(n.input), g, n.out_backprop, **_same(n))
    return [by_input, None, b.Conv2D(n.input, g, **_same(n))]


def _cost(image: int, filter: int) -> Any:
    """Flops, from the shapes of the result of the convolution and of the filter, by their place among inputs and
    outputs."""

    def cost(ins: Sequence[Shape], outs: Sequence[Shape]) -> float | None:
        every = [*ins, *outs]
        y, w = shapes.size(every[image]), every[filter]
        each = None if w is None else shapes.size(w[:-1])
        return None if y is None or each is None else 2.0 * y * each

    return cost


# *** How the tests exercise them ***


def _meetings(x: Sequence[int], w: Sequence[int], attrs: Mapping[str, Any]) -> tuple[list[int], list[Any]]:
    """The definition: how many windows there are along the two axes, and which place of the result, element of the
    window and place of the input meet."""
    counts, found = [], []
    first = 2 if attrs.get("data_format") == "NCHW" else 1
    for i in (first, first + 1):
        dilation, margins = attrs.get("dilations", (1, 1, 1, 1))[i], attrs.get("explicit_paddings", ())
        windows = windows_of_axis(
            x[i], w[i - first], attrs["strides"][i], dilation, attrs["padding"], margins[2 * i : 2 * i + 2]
        )
        counts.append(len(windows))
        found.append([(o, k, e) for o, places in enumerate(windows) for k, e in places])
    return counts, [tuple(zip(a, b, strict=True)) for a in found[0] for b in found[1]]


def _wide(*arrays: Array) -> list[Array]:
    return [a.astype(np.int64 if a.dtype.kind == "i" else np.float64) for a in arrays]


def _oracle(which: str) -> Any:
    def oracle(a: Array, b: Array, c: Array | None = None, **attrs: Any) -> Array:
        """Of x, w and y the two that are given, and the third made of them, by the definition."""
        nchw = attrs.get("data_format") == "NCHW"
        last = [a, b] if c is None else [a, b, c]
        x, w, y = _oracle_arrays(which, last, attrs, nchw)
        shape = x.shape if not nchw else (x.shape[0], x.shape[3], *x.shape[1:3])
        groups = x.shape[3] // w.shape[2]
        some = w.shape[3] // groups
        for (p, q), (k, m), (i, j) in _meetings(shape, w.shape, attrs)[1]:
            for g in range(groups):
                ins, outs = slice(g * w.shape[2], (g + 1) * w.shape[2]), slice(g * some, (g + 1) * some)
                if which == "y":
                    y[:, p, q, outs] += x[:, i, j, ins] @ w[k, m, :, outs]
                elif which == "x":
                    x[:, i, j, ins] += y[:, p, q, outs] @ w[k, m, :, outs].T
                else:
                    w[k, m, :, outs] += x[:, i, j, ins].T @ y[:, p, q, outs]
        made = {"x": x, "w": w, "y": y}[which].astype((a if which != "x" else b).dtype)
        return np.moveaxis(made, -1, 1) if nchw and which != "w" else made

    return oracle


def _oracle_arrays(which: str, given: Sequence[Array], attrs: Mapping[str, Any], nchw: bool) -> list[Array]:
    """x, w and y, wide and channels last, of which one is zeros."""

    def last(a: Array) -> Array:
        return np.moveaxis(a, 1, -1) if nchw else a

    if which == "x":
        sizes, w, dy = given
        kind = w.dtype
        x, y = last(np.zeros(tuple(sizes), kind)), last(dy)
    elif which == "w":
        x, y, w = last(given[0]), last(given[2]), np.zeros(tuple(given[1]), given[0].dtype)
    else:
        x, w = last(given[0]), given[1]
        counts, _ = _meetings(given[0].shape, w.shape, attrs)
        y = np.zeros((len(x), *counts, w.shape[3]), x.dtype)
    return _wide(x, w, y)


# of the input, of the filter, strides, dilations, padding (or margins of the two axes)
_CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, int], tuple[int, int], Any], ...] = (
    ((2, 4, 5, 2), (3, 3, 2, 3), (1, 1), (1, 1), "SAME"),
    ((1, 4, 5, 3), (2, 3, 3, 2), (1, 1), (1, 1), "VALID"),
    ((2, 5, 6, 1), (3, 2, 1, 2), (2, 3), (1, 1), "SAME"),
    ((1, 7, 6, 2), (3, 2, 2, 1), (1, 1), (2, 3), "VALID"),
    ((1, 6, 7, 1), (3, 3, 1, 8), (2, 1), (1, 2), "SAME"),
    ((2, 3, 4, 3), (1, 1, 3, 2), (1, 1), (1, 1), "SAME"),
    ((1, 5, 4, 2), (1, 1, 2, 2), (2, 2), (1, 1), "VALID"),
    ((1, 4, 3, 1), (2, 3, 1, 2), (2, 1), (1, 1), (1, 2, 0, 3)),
    ((1, 3, 3, 2), (2, 2, 2, 2), (1, 1), (1, 1), (2, 0, 3, 1)),
    ((1, 3, 4, 4), (2, 2, 2, 6), (1, 1), (1, 1), "SAME"),
    ((0, 4, 4, 2), (3, 3, 2, 2), (1, 1), (1, 1), "SAME"),
)


def _samples(which: str) -> Any:
    """Cases of a convolution (`which` is "y") or of its gradient by input ("x") or filter ("w"), in both layouts."""

    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        out = []
        for number, (x, w, strides, dilations, padding) in enumerate(_CASES):
            how = strides, dilations, padding
            layouts = (False, True) if number in (0, 2, 4, 7) else (False,)
            out += [_sample(rng, dtype, which, x, w, how, nchw) for nchw in layouts]
        return out

    return sample


def _sample(
    rng: np.random.Generator,
    dtype: DType,
    which: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    how: tuple[tuple[int, int], tuple[int, int], Any],
    nchw: bool,
) -> Any:
    def placed(pair: Sequence[Any], fill: Any) -> tuple[Any, ...]:
        return (fill, fill, *pair) if nchw else (fill, *pair, fill)

    strides, dilations, padding = how
    attrs: dict[str, Any] = {"strides": placed(strides, 1), "padding": padding}
    if dilations != (1, 1):
        attrs["dilations"] = placed(dilations, 1)
    if nchw:
        attrs["data_format"] = "NCHW"
        x = (x[0], x[3], *x[1:3])
    if isinstance(padding, tuple):
        pairs = placed((padding[:2], padding[2:]), (0, 0))
        attrs |= {"padding": "EXPLICIT", "explicit_paddings": tuple(m for pair in pairs for m in pair)}
    images, weights = draw(rng, dtype, x), draw(rng, dtype, w)
    if which == "y":
        return case(images, weights, **attrs)
    full = {"data_format": "NHWC", **attrs}
    dy = draw(rng, dtype, _geometry(sliding("Conv2D", full), x, w)[2])
    if which == "x":
        return case(np.array(x, np.int32), weights, dy, **attrs)
    return case(images, np.array(w, np.int32), dy, **attrs)


# *** Records ***

_ATTRS: dict[str, Any] = {
    "strides": list_attr("int"),
    "use_cudnn_on_gpu": True,
    "padding": string_attr(allowed=("SAME", "VALID", "EXPLICIT")),
    "explicit_paddings": list_attr("int", default=()),
    "data_format": string_attr("NHWC", ("NHWC", "NCHW")),
    "dilations": list_attr("int", default=(1, 1, 1, 1)),
}

op(
    "Conv2D",
    "input: T, filter: T",
    "output: T",
    {"T": FLOATING | {int32}} | _ATTRS,
    shape=_shape("Conv2D"),
    kernel=_kernel("Conv2D"),
    grad=_grad,
    jvp=multilinear("input", "filter"),
    facts=Facts(
        cost=_cost(2, 1), blas=True, fresh=True
    ),  # not total: strides along the batch are an error when it runs
    oracle=_oracle("y"),
    sample=_samples("y"),
    doc="The convolution of images with a filter [height, width, channels, outputs]; fewer channels than the images "
    "have make groups.",
)
op(
    "Conv2DBackpropInput",
    "input_sizes: int32, filter: T, out_backprop: T",
    "output: T",
    {"T": FLOATING | {int32}} | _ATTRS,
    shape=_by_input_shape("Conv2DBackpropInput"),
    kernel=_by_input_kernel("Conv2DBackpropInput"),
    grad=_by_input_grad,
    jvp=multilinear("filter", "out_backprop"),
    facts=Facts(cost=_cost(2, 1), blas=True, fresh=True),
    oracle=_oracle("x"),
    sample=_samples("x"),
    doc="The gradient of Conv2D by its input, which has the shape `input_sizes`; also called transposed convolution.",
)
op(
    "Conv2DBackpropFilter",
    "input: T, filter_sizes: int32, out_backprop: T",
    "output: T",
    {"T": FLOATING} | _ATTRS,
    shape=_by_filter_shape("Conv2DBackpropFilter"),
    kernel=_by_filter_kernel("Conv2DBackpropFilter"),
    grad=_by_filter_grad,
    jvp=multilinear("input", "out_backprop"),
    facts=Facts(cost=_cost(2, 3), blas=True, fresh=True),
    oracle=_oracle("w"),
    sample=_samples("w"),
    doc="The gradient of Conv2D by its filter, which has the shape `filter_sizes`.",
)
