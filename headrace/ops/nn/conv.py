"""Convolutions of images and volumes, and their gradients: Conv2D, Conv3D, Conv and derived ops.

Source: TensorFlow's ops of the same names. In addition to TensorFlow's CPU kernels, these support layouts with the
channels first, gradients of dilated and of grouped convolutions, and dilated and grouped convolutions of volumes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from headrace import shapes
from headrace.dtypes import FLOATING, INDEX, DType, bfloat16, int32
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, list_attr, op, string_attr, type_attr
from headrace.opkit import batch_windows
from headrace.opkit.arrays import check_size, shape_from
from headrace.opkit.arrays import dims as dims_of
from headrace.opkit.jvp_rules import multilinear
from headrace.opkit.windows import Sliding, sliding
from headrace.ops.nn.conv_samples import drawn, oracle, samples
from headrace.ops.nn.conv_samples import in_groups as by_groups
from headrace.ops.nn.convolving import (
    channels_last,
    convolution,
    geometry,
    groups_of,
    laid_out,
    products,
    refuse_others,
)
from headrace.ops.nn.window_forms import convolution_form
from headrace.records import record
from headrace.shapes import Dim, Shape, merge_dim, show, with_rank

Array: TypeAlias = np.ndarray


@record(frozen=True, slots=True)
class _Family:
    """The ops of convolutions with windows over so many axes.

    Attributes:
      conv, by_input, by_filter: the types of the convolution and of its gradients.
      error: class of the error for windows that move along the batch or the channels.
    """

    conv: str
    by_input: str
    by_filter: str
    error: Any


_IMAGES = _Family("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", UnimplementedError)
_VOLUMES = _Family("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2", InvalidArgumentError)

# *** Kernels ***


def _meant(sizes: Array, w: tuple[int, ...], dy: tuple[int, ...], s: Sliding, type: str) -> tuple[int, ...]:
    """Shape of the input that `input_sizes` gives.

    It has all axes or, for images, only the spatial ones.
    """
    given, rank = dims_of(sizes), len(s.strides)
    if len(given) == rank - 2 == 2:
        whole = list(dy)
        whole[s.channels] = w[-2]
        for i, size in zip(s.spatial, given, strict=True):
            whole[i] = size
        given = tuple(whole)
    if len(given) != rank:
        raise InvalidArgumentError(_wrong_sizes(type, rank, len(given)))
    return given


def _wrong_sizes(type: str, rank: int, got: int) -> str:
    or_spatial = " or 2 values" if rank == 4 else ""
    return f"{type} requires input_sizes to contain {rank} values{or_spatial}, but got: {got}"


def _require(dy: tuple[int, ...], y: tuple[int, ...], type: str) -> None:
    if dy != y:
        raise InvalidArgumentError(
            f"{type}: Size of out_backprop doesn't match computed: actual = {show(dy)}, computed = {show(y)}"
        )


def _same_rank(type: str, s: Sliding, **arrays: Array) -> None:
    what = f"{type}:" if "Backprop" in type else "convolution"
    for name, a in arrays.items():
        if a.ndim != len(s.strides):
            raise InvalidArgumentError(f"{what} {name} must be {len(s.strides)}-dimensional: {show(a.shape)}")


def _kernel(f: _Family) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        s, of = sliding(f.conv, attrs), products(xp, attrs["T"])

        def kernel(x: Array, w: Array) -> Array:
            _same_rank(f.conv, s, input=x, filter=w)
            refuse_others(s, f.error)
            return convolution(s, x, w, of)

        return kernel

    return factory


def _by_input_kernel(type: str, f: _Family, like: bool) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        s, t = sliding(type, _with_layout(attrs)), attrs["T"]
        by_input = products(xp, t).by_input

        def kernel(shape: Array, w: Array, dy: Array) -> Array:
            _same_rank(type, s, filter=w, out_backprop=dy)
            refuse_others(s, f.error)
            x = shape.shape if like else _meant(shape, w.shape, dy.shape, s, type)
            check_size(x, t)
            axes, groups, y = geometry(s, x, w.shape)
            _require(dy.shape, y, type)
            return laid_out(by_input(w, channels_last(dy, s, xp), axes, groups), s, xp)

        return kernel

    return factory


def _by_filter_kernel(type: str, f: _Family, like: bool) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        s, t = sliding(type, _with_layout(attrs)), attrs["T"]
        by_filter = products(xp, t).by_filter

        def kernel(x: Array, shape: Array, dy: Array) -> Array:
            _same_rank(type, s, input=x, out_backprop=dy)
            refuse_others(s, f.error)
            w = shape.shape if like else dims_of(shape)
            if len(w) != x.ndim:
                raise InvalidArgumentError(f"{type}: filter must be {x.ndim}-dimensional, got filter_sizes {list(w)}")
            check_size(w, t)
            axes, groups, y = geometry(s, x.shape, w)
            _require(dy.shape, y, type)
            return by_filter(channels_last(x, s, xp), channels_last(dy, s, xp), axes, groups)

        return kernel

    return factory


def _with_layout(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes of an op that may be older than layouts."""
    return {"data_format": "NDHWC", **attrs}


# *** Shape rules ***


def _convolved_shape(s: Sliding, x: Any, w: Any) -> tuple[Dim, ...]:
    y = [x[0]] * len(x)
    y[s.channels] = w[-1]
    for i, size in zip(s.spatial, w, strict=False):
        y[i] = s.dim(i, x[i], size)
    return tuple(y)


def _shape(f: _Family) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        s = sliding(f.conv, c.attrs)
        x, w = (with_rank(shape, len(s.strides)) for shape in c.shapes)
        groups_of(x[s.channels], w[-2], w[-1])
        return [_convolved_shape(s, x, w)]

    return rule


def _by_input_shape(type: str, like: bool) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        s = sliding(type, _with_layout(c.attrs))
        rank = len(s.strides)
        w, dy = (with_rank(shape, rank) for shape in c.shapes[1:])
        merge_dim(dy[s.channels], w[-1])
        sizes = c.shapes[0] if like else shape_from(c, 0)
        if sizes is None:
            return [(dy[0], *[None] * (rank - 1))]
        if len(sizes) == rank - 2 == 2:
            whole = list(dy)
            whole[s.channels] = w[-2]
            for i, size in zip(s.spatial, sizes, strict=True):
                whole[i] = size
            return [tuple(whole)]
        if len(sizes) != rank:
            raise ValueError(_wrong_sizes(type, rank, len(sizes)))
        return [(merge_dim(sizes[0], dy[0]), *sizes[1:])]

    return rule


def _by_filter_shape(type: str, like: bool) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        rank = len(sliding(type, _with_layout(c.attrs)).strides)
        for i in (0, 2):
            with_rank(c.shapes[i], rank)
        return [with_rank(c.shapes[1] if like else shape_from(c, 1), rank)]

    return rule


# *** Gradients ***

_SLIDING = ("strides", "use_cudnn_on_gpu", "padding", "explicit_paddings", "data_format", "dilations")


def _same(n: Any) -> dict[str, Any]:
    return {k: n.attrs[k] for k in _SLIDING if k in n.attrs}


def _grad(f: _Family) -> Any:
    return lambda b, n, dy: [
        lambda: b.make(f.by_input, [b.Shape(n.input), n.filter, dy], _same(n)),
        lambda: b.make(f.by_filter, [n.input, b.Shape(n.filter), dy], _same(n)),
    ]


def _by_input_grad(f: _Family) -> Any:
    return lambda b, n, g: [
        None,
        lambda: b.make(f.by_filter, [g, b.Shape(n.filter), n.out_backprop], _same(n)),
        lambda: b.make(f.conv, [g, n.filter], _same(n)),
    ]


def _by_filter_grad(f: _Family) -> Any:
    return lambda b, n, g: [
        lambda: b.make(f.by_input, [b.Shape(n.input), g, n.out_backprop], _same(n)),
        None,
        lambda: b.make(f.conv, [n.input, g], _same(n)),
    ]


def _cost(image: int, filter: int) -> Any:
    """Cost function: the floating-point operations of a convolution.

    `image` and `filter` are the indices of the result of the convolution and of the filter among inputs and outputs.
    """

    def cost(ins: Sequence[Shape], outs: Sequence[Shape]) -> float | None:
        every = [*ins, *outs]
        y, w = shapes.size(every[image]), every[filter]
        each = None if w is None else shapes.size(w[:-1])
        return None if y is None or each is None else 2.0 * y * each

    return cost


# *** Conv: images or volumes, with any number of batch dimensions ***


def _general(attrs: Mapping[str, Any]) -> Sliding:
    """The windows of a Conv, whose number of axes its strides tell."""
    rank = len(attrs["strides"])
    if attrs["batch_dims"] < 0:
        raise ValueError(f"Batch dims must be non-negative, got {attrs['batch_dims']}")
    if rank not in (4, 5):
        raise ValueError(f"The input must have 2 or 3 spatial dimensions but got {rank - 2}, from the strides")
    if rank == 5 and attrs["padding"] == "EXPLICIT":
        raise ValueError("Explicit padding not supported for 3D Convolution")
    axes = "DHW"[5 - rank :]
    layout = f"N{axes}C" if attrs["data_format"] == "CHANNELS_LAST" else f"NC{axes}"
    return sliding("Conv", {**attrs, "data_format": layout, "dilations": attrs["dilations"] or (1,) * rank})


def _require_groups(groups: int | None, wanted: int) -> None:
    if groups is not None and groups != wanted:
        raise ValueError(
            f"Input depth divided by filter input depth does not match with groups parameter ({wanted}): got {groups}"
        )


def _general_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    s, batch, groups = _general(attrs), attrs["batch_dims"], attrs["groups"]
    of, rank = products(xp, attrs["T"]), len(s.strides)

    def kernel(x: Array, w: Array) -> Array:
        if x.ndim != rank - 1 + batch:
            raise InvalidArgumentError(
                f"Input tensor must have {rank - 1} dimensions behind its {batch} of the batch, got {show(x.shape)}"
            )
        _same_rank("Conv", s, filter=w)
        refuse_others(s)
        _require_groups(groups_of(x.shape[s.channels - 1 + batch], w.shape[-2], w.shape[-1]), groups)
        y = convolution(s, xp.reshape(x, (math.prod(x.shape[:batch]), *x.shape[batch:])), w, of)
        return xp.reshape(y, (*x.shape[:batch], *y.shape[1:]))

    return kernel


def _general_shape(c: Inference) -> Sequence[Shape]:
    s, batch = _general(c.attrs), c.attrs["batch_dims"]
    rank = len(s.strides)
    w = with_rank(c.shapes[1], rank)
    if c.shapes[0] is None:
        return [None]
    x = with_rank(c.shapes[0], rank - 1 + batch)
    assert x is not None
    assert w is not None
    image = (None, *x[batch:])
    _require_groups(groups_of(image[s.channels], w[-2], w[-1]), c.attrs["groups"])
    return [(*x[:batch], *_convolved_shape(s, image, w)[1:])]


def _general_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """Gradient rule of Conv, by those of Conv2D or Conv3D."""
    s, batch = _general(n.attrs), n.attrs["batch_dims"]
    f = _IMAGES if len(s.strides) == 4 else _VOLUMES
    attrs = {"strides": s.strides, "dilations": s.dilations, "padding": n.attrs["padding"]}
    if s.margins:
        attrs["explicit_paddings"] = n.attrs["explicit_paddings"]
    if s.channels == 1:
        attrs["data_format"] = "NCHW" if f is _IMAGES else "NCDHW"

    def one_batch(x: Any) -> Any:
        if batch == 1:
            return x
        inner = b.StridedSlice(b.Shape(x), [batch], [0], [1], end_mask=1)
        return b.Reshape(x, b.ConcatV2([[-1], inner], 0))

    x, dy = one_batch(n.input), one_batch(dy)
    return [
        lambda: b.Reshape(b.make(f.by_input, [b.Shape(x), n.filter, dy], attrs), b.Shape(n.input)),
        lambda: b.make(f.by_filter, [x, b.Shape(n.filter), dy], attrs),
    ]


def _general_oracle(x: Array, w: Array, **attrs: Any) -> Array:
    batch = attrs.get("batch_dims", 1)
    y: Array = oracle("y", by_groups, lambda w: w[-1])(x.reshape(-1, *x.shape[batch:]), w, **attrs)
    return y.reshape(*x.shape[:batch], *y.shape[1:])


def _general_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    margins = {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 0, 0, 2, 0, 0]}
    return [
        case(drawn(rng, dtype, x), drawn(rng, dtype, w), **{"padding": "SAME", **attrs})
        for x, w, attrs in (
            ((2, 3, 4, 2), (2, 2, 2, 3), {"strides": [1, 2, 1, 1]}),
            ((1, 4, 4, 4), (2, 3, 2, 2), {"strides": [1] * 4, "groups": 2, "dilations": [1, 2, 1, 1]}),
            ((2, 3, 2, 3, 4), (2, 2, 2, 3), {"strides": [1] * 4, "batch_dims": 2, "data_format": "CHANNELS_FIRST"}),
            ((3, 4, 2), (2, 2, 2, 1), {"strides": [1] * 4, "batch_dims": 0, "padding": "VALID"}),
            ((1, 2, 3, 1), (2, 2, 1, 2), {"strides": [1, 1, 2, 1], **margins}),
            ((1, 2, 3, 2, 1), (2, 2, 2, 1, 2), {"strides": [1, 1, 2, 1, 1]}),
        )
    ]


# *** Records ***

_LISTS = {"strides": list_attr("int"), "dilations": list_attr("int", default=(1, 1, 1, 1))}
_EXPLICIT = {
    "padding": string_attr(allowed=("SAME", "VALID", "EXPLICIT")),
    "explicit_paddings": list_attr("int", default=()),
}
_IMAGE_ATTRS: dict[str, Any] = {
    **_LISTS,
    "use_cudnn_on_gpu": True,
    **_EXPLICIT,
    "data_format": string_attr("NHWC", ("NHWC", "NCHW")),
}
_OLD_VOLUME_ATTRS: dict[str, Any] = {
    "strides": list_attr("int", minimum=5),
    "padding": string_attr(allowed=("SAME", "VALID")),
    "dilations": list_attr("int", default=(1, 1, 1, 1, 1)),
}
_VOLUME_ATTRS = _OLD_VOLUME_ATTRS | {"data_format": string_attr("NDHWC", ("NDHWC", "NCDHW"))}
_REFUSED_OF_IMAGES = "Computes the layout NCHW, which TensorFlow refuses on the CPU."
_REFUSED_OF_GRADIENTS = "Computes the layout NCHW, dilations and groups, which TensorFlow refuses on the CPU."
_REFUSED_OF_VOLUMES = "Computes the layout NCDHW, dilations and groups, which TensorFlow refuses on the CPU."
_NO_KERNEL = "TensorFlow has no kernel for it on the CPU."
_IS_OLD = "TensorFlow refuses it in graphs of today."

_SIZES = {_IMAGES: {}, _VOLUMES: {"Tshape": type_attr(INDEX, int32)}}
for _f, _attrs, _types, _what, _refused in (
    (_IMAGES, _IMAGE_ATTRS, FLOATING | {int32}, "images with a filter [height, width", _REFUSED_OF_IMAGES),
    (_VOLUMES, _VOLUME_ATTRS, FLOATING, "volumes with a filter [depth, height, width", _REFUSED_OF_VOLUMES),
):
    op(
        _f.conv,
        "input: T, filter: T",
        "output: T",
        {"T": _types} | _attrs,
        shape=_shape(_f),
        kernel=_kernel(_f),
        xp=True,
        grad=_grad(_f),
        jvp=multilinear("input", "filter"),
        batch=batch_windows.convolution,
        form=convolution_form(_f.conv, "forward"),
        # None of these is total: strides along the batch are an error when it runs.
        facts=Facts(cost=_cost(2, 1), blas=True, fresh=True, rounds_once=True),
        oracle=oracle("y", by_groups, lambda w: w[-1]),
        sample=samples("y", _f is _VOLUMES),
        doc=f"The convolution of {_what}, channels, outputs]; fewer channels than the input has make groups.",
        differs=_refused,
    )

# type, family, dtypes, attributes, whether the shape of the result is that of an input, and where TensorFlow differs
_Gradients: TypeAlias = tuple[tuple[str, _Family, Any, dict[str, Any], bool, str], ...]
_BY_INPUT: _Gradients = (
    ("Conv2DBackpropInput", _IMAGES, FLOATING | {int32}, _IMAGE_ATTRS, False, _REFUSED_OF_GRADIENTS),
    ("Conv2DBackpropInputV2", _IMAGES, FLOATING | {int32}, _IMAGE_ATTRS, True, _NO_KERNEL),
    ("Conv3DBackpropInputV2", _VOLUMES, FLOATING, _VOLUME_ATTRS, False, _REFUSED_OF_VOLUMES),
    ("Conv3DBackpropInput", _VOLUMES, FLOATING - {bfloat16}, _OLD_VOLUME_ATTRS, True, _IS_OLD),
)
_BY_FILTER: _Gradients = (
    ("Conv2DBackpropFilter", _IMAGES, FLOATING, _IMAGE_ATTRS, False, _REFUSED_OF_GRADIENTS),
    ("Conv2DBackpropFilterV2", _IMAGES, FLOATING, _IMAGE_ATTRS, True, _NO_KERNEL),
    ("Conv3DBackpropFilterV2", _VOLUMES, FLOATING, _VOLUME_ATTRS, False, _REFUSED_OF_VOLUMES),
    ("Conv3DBackpropFilter", _VOLUMES, FLOATING - {bfloat16}, _OLD_VOLUME_ATTRS, True, _IS_OLD),
)
for _type, _f, _floats, _attrs, _like, _refused in _BY_INPUT:
    _sizes = "input: T" if _like else "input_sizes: Tshape" if _f is _VOLUMES else "input_sizes: int32"
    op(
        _type,
        f"{_sizes}, filter: T, out_backprop: T",
        "output: T",
        {"T": _floats} | _attrs | ({} if _like else _SIZES[_f]),
        shape=_by_input_shape(_type, _like),
        kernel=_by_input_kernel(_type, _f, _like),
        xp=True,
        host=() if _like else ("input_sizes",),
        grad=_by_input_grad(_f),
        jvp=multilinear("filter", "out_backprop"),
        batch=batch_windows.by_input,
        form=convolution_form(_type, "by_input"),
        facts=Facts(cost=_cost(2, 1), blas=True, fresh=True, rounds_once=True),
        oracle=oracle("x", by_groups, lambda w: w[-1]),
        sample=samples("x", _f is _VOLUMES, _like),
        doc=f"The gradient of {_f.conv} by its input, which has the shape "
        + ("of `input`." if _like else "`input_sizes`; also called transposed convolution."),
        differs=_refused,
    )
for _type, _f, _floats, _attrs, _like, _refused in _BY_FILTER:
    op(
        _type,
        f"input: T, {'filter: T' if _like else 'filter_sizes: int32'}, out_backprop: T",
        "output: T",
        {"T": _floats} | _attrs,
        shape=_by_filter_shape(_type, _like),
        kernel=_by_filter_kernel(_type, _f, _like),
        xp=True,
        host=() if _like else ("filter_sizes",),
        grad=_by_filter_grad(_f),
        jvp=multilinear("input", "out_backprop"),
        batch=batch_windows.by_filter if _f is _IMAGES else None,
        form=convolution_form(_type, "by_filter"),
        facts=Facts(cost=_cost(2, 3), blas=True, fresh=True, rounds_once=True),
        oracle=oracle("w", by_groups, lambda w: w[-1]),
        sample=samples("w", _f is _VOLUMES, _like),
        doc=f"The gradient of {_f.conv} by its filter, which has the shape "
        + ("of `filter`." if _like else "`filter_sizes`."),
        differs=_refused,
    )

op(
    "Conv",
    "input: T, filter: T",
    "output: T",
    {"T": FLOATING | {int32}}
    | {"strides": list_attr("int"), "dilations": list_attr("int", default=())}
    | _EXPLICIT
    | {"data_format": string_attr("CHANNELS_LAST", ("CHANNELS_FIRST", "CHANNELS_LAST")), "batch_dims": 1, "groups": 1},
    shape=_general_shape,
    kernel=_general_kernel,
    xp=True,
    grad=_general_grad,
    jvp=multilinear("input", "filter"),
    facts=Facts(cost=_cost(2, 1), blas=True, fresh=True, rounds_once=True),
    oracle=_general_oracle,
    sample=_general_samples,
    doc="The convolution of images or volumes, whichever the strides are for, with any number of batch dimensions.",
    differs="Computes groups and the layout CHANNELS_FIRST, which TensorFlow refuses on the CPU.",
)
