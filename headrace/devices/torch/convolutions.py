"""Convolutions and their gradients: Conv2D, Conv3D, Conv, DepthwiseConv2dNative.

PyTorch's arrays have the channels second. A TensorFlow array with the channels last is such an array in the memory
format `channels_last`, so it is permuted without a copy, and so is the result. PyTorch pads both ends of an axis alike.
Where TensorFlow's padding is longer behind than before, the array is padded first. If there is a window at every
element, one more element of padding before makes one window more, which is dropped.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from headrace.devices.torch.registering import FLOATS, Factory, Kernel, Tensor, Unsuited, for_torch
from headrace.dtypes import DType
from headrace.memo import cached
from headrace.opkit.arrays import check_size, dims
from headrace.opkit.windows import Axis, Sliding, sliding

Ints = tuple[int, ...]

_FORWARD = {4: torch.nn.functional.conv2d, 5: torch.nn.functional.conv3d}


class Plan(NamedTuple):
    """A convolution of known shapes, in the terms of PyTorch.

    Attributes:
      strides, padding, dilations: arguments of PyTorch's function, for each spatial axis.
      margins: the padding in front of the function, for `torch.nn.functional.pad`; empty if none is needed.
      skipped: the number of windows of each spatial axis, at the front, that TensorFlow has not.
      groups: the number of groups of channels.
      x, w, y: the shapes of input, filter and output in PyTorch's order of axes, the input without margins.
      is_empty: whether the output or the input has no elements.
    """

    strides: Ints
    padding: Ints
    dilations: Ints
    margins: Ints
    skipped: Ints
    groups: int
    x: Ints
    w: Ints
    y: Ints
    is_empty: bool

    @property
    def padded(self) -> Ints:
        """Shape of the input with margins."""
        if not self.margins:
            return self.x
        pairs = zip(self.margins[::2], self.margins[1::2], strict=True)
        return (*self.x[:2], *(n + sum(p) for n, p in zip(self.x[2:], reversed(list(pairs)), strict=True)))


def _behind(a: Axis) -> int:
    """The number of padding elements behind the last element of an axis; at least 0."""
    return max(0, a.extent - a.before - a.length)


def _spread(a: Axis) -> tuple[int, int] | None:
    """The symmetric padding of an axis, and the number of windows to skip.

    None: the axis needs padding that is not symmetric.
    """

    def windows(padding: int) -> int:
        return (a.length + 2 * padding - a.reach) // a.stride + 1

    if windows(a.before) == a.count:
        return a.before, 0
    if a.stride == 1 and windows(a.before + 1) == a.count + 1:
        return a.before + 1, 1
    return None


@cached(1024, "convolutions of PyTorch")
def plan(s: Sliding, x: Ints, w: Ints, depthwise: bool) -> Plan:
    """Returns the plan of a convolution of the shapes `x` and `w`, in TensorFlow's order.

    Raises:
      Unsuited: there is no such convolution.
      InvalidArgumentError: the input is smaller than a window.
    """
    rank = len(s.strides)
    if len(x) != rank or len(w) != rank or not all(w[:-2]):
        raise Unsuited
    if any(v[i] != 1 for v in (s.strides, s.dilations) for i in s.others):
        raise Unsuited
    channels, outputs = x[s.channels], w[-1]
    if depthwise:
        groups, each, outputs = channels, 1, w[2] * w[3]
        if channels != w[2]:
            raise Unsuited
    else:
        each = w[-2]
        if not each or channels % each:
            raise Unsuited
        groups = channels // each or 1
        if outputs % groups:
            raise Unsuited
    axes = tuple(s.axis(i, x[i], size) for i, size in zip(s.spatial, w, strict=False))
    found = [_spread(a) for a in axes]
    pairs = [p for p in found if p is not None]
    margins: Ints = ()
    if len(pairs) < len(axes):
        pairs = [(0, 0)] * len(axes)
        margins = tuple(n for a in reversed(axes) for n in (a.before, _behind(a)))
    images = (x[0], channels, *(a.length for a in axes))
    result = (x[0], outputs, *(a.count for a in axes))
    return Plan(
        strides=tuple(a.stride for a in axes),
        padding=tuple(p for p, _ in pairs),
        dilations=tuple(a.dilation for a in axes),
        margins=margins,
        skipped=tuple(n for _, n in pairs),
        groups=groups,
        x=images,
        w=(outputs, each, *w[:-2]),
        y=result,
        is_empty=not math.prod(images) or not math.prod(result),
    )


# *** Views: channels second, and back ***


def second(x: Tensor, s: Sliding) -> Tensor:
    """Returns an array of images as a view with the channels second."""
    if s.channels == 1:
        return x
    return x.permute(0, x.ndim - 1, *range(1, x.ndim - 1))


def laid_out(x: Tensor, s: Sliding) -> Tensor:
    """Inverse of `second`."""
    return x if s.channels == 1 else x.permute(0, *range(2, x.ndim), 1)


def shape_in(s: Sliding, shape: Ints) -> Ints:
    """Returns a shape with the channels second, in the layout of the operation."""
    return tuple(shape) if s.channels == 1 else (shape[0], *shape[2:], shape[1])


def _filter(w: Tensor, p: Plan, depthwise: bool) -> Tensor:
    """A filter of TensorFlow, [*window, inputs, outputs], as [outputs, inputs, *window]."""
    if depthwise:
        return w.permute(2, 3, 0, 1).reshape(p.w)
    return w.permute(w.ndim - 1, w.ndim - 2, *range(w.ndim - 2))


def _back(w: Tensor, shape: Ints, depthwise: bool) -> Tensor:
    """Inverse of `_filter`; `shape` is that of TensorFlow's filter."""
    if depthwise:
        return w.reshape(*shape[2:], *shape[:2]).permute(2, 3, 0, 1)
    return w.permute(*range(2, w.ndim), 1, 0)


def _trimmed(y: Tensor, skipped: Ints, counts: Ints) -> Tensor:
    """`y` without the first windows."""
    for i, (n, count) in enumerate(zip(skipped, counts, strict=True), 2):
        if n:
            y = y.narrow(i, n, count)
    return y


def _extended(dy: Tensor, skipped: Ints) -> Tensor:
    """`dy` with zeros for the windows that are skipped."""
    if not any(skipped):
        return dy
    return torch.nn.functional.pad(dy, [n for first in reversed(skipped) for n in (first, 0)])


def shaped_like(x: Tensor, shape: Ints, is_second: bool) -> Tensor:
    """Returns a tensor, for functions that ask only for its shape, dtype and memory format.

    It is a view of the memory of `x` if that is large enough: a large allocation may cost a tenth of a convolution.

    Args:
      x: a tensor with the wanted dtype and device.
      shape: the shape, with the channels second.
      is_second: whether the channels are second in memory too.
    """
    if is_second:
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    else:
        inner = [math.prod(shape[i + 1 :]) * shape[1] for i in range(2, len(shape))]
        strides = [math.prod(shape[1:]), 1, *inner]
    if x.untyped_storage().nbytes() >= math.prod(shape) * x.element_size():
        return x.as_strided(shape, strides, 0)
    return torch.empty_strided(shape, strides, dtype=x.dtype, device=x.device)


# *** Kernels ***


def _convolved(s: Sliding, x: Tensor, w: Tensor, t: DType, depthwise: bool) -> Tensor:
    p = plan(s, tuple(x.shape), tuple(w.shape), depthwise)
    if p.is_empty:
        shape = shape_in(s, p.y)
        check_size(shape, t)
        return x.new_zeros(shape)
    images = second(x, s)
    if p.margins:
        images = torch.nn.functional.pad(images, p.margins)
    f = _FORWARD[x.ndim]
    y = f(images, _filter(w, p, depthwise), None, p.strides, p.padding, p.dilations, p.groups)
    return laid_out(_trimmed(y, p.skipped, p.y[2:]), s)


def _gradient(p: Plan, dy: Tensor, x: Tensor, w: Tensor, which: int) -> Tensor:
    """The gradient by the input (`which` = 0) or by the filter (1)."""
    mask = [which == 0, which == 1, False]
    zeros = [0] * len(p.strides)
    out: Tensor = torch.ops.aten.convolution_backward(
        _extended(dy, p.skipped), x, w, None, p.strides, p.padding, p.dilations, False, zeros, p.groups, mask
    )[which]
    return out


def _by_input(s: Sliding, x: Ints, w: Tensor, dy: Tensor, t: DType, depthwise: bool) -> Tensor:
    check_size(x, t)
    p = plan(s, x, tuple(w.shape), depthwise)
    if tuple(dy.shape) != shape_in(s, p.y):
        raise Unsuited
    if p.is_empty:
        return dy.new_zeros(x)
    like = shaped_like(dy, p.padded, s.channels == 1)
    dx = _gradient(p, second(dy, s), like, _filter(w, p, depthwise), 0)
    if p.margins:
        for i, n in enumerate(p.x[2:], 2):
            dx = dx.narrow(i, p.margins[2 * (len(p.x) - 1 - i)], n)
    return laid_out(dx, s)


def _by_filter(s: Sliding, x: Tensor, w: Ints, dy: Tensor, t: DType, depthwise: bool) -> Tensor:
    check_size(w, t)
    p = plan(s, tuple(x.shape), w, depthwise)
    if tuple(dy.shape) != shape_in(s, p.y):
        raise Unsuited
    if p.is_empty:
        return dy.new_zeros(w)
    images = second(x, s)
    if p.margins:
        images = torch.nn.functional.pad(images, p.margins)
    like = shaped_like(x, p.w, s.channels == 1)
    return _back(_gradient(p, second(dy, s), images, like, 1), w, depthwise)


def _forward(type: str, depthwise: bool = False) -> Factory:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        s, t = sliding(type, attrs), attrs["T"]
        return lambda x, w: _convolved(s, x, w, t, depthwise)

    return factory


def _with_layout(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes of an op that may be older than layouts."""
    return {"data_format": "NDHWC", **attrs}


def _backward_input(type: str, like: bool, depthwise: bool = False) -> Factory:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        s, t = sliding(type, _with_layout(attrs)), attrs["T"]
        rank = len(s.strides)

        def kernel(sizes: Any, w: Tensor, dy: Tensor) -> Tensor:
            if w.ndim != rank or dy.ndim != rank:
                raise Unsuited
            x = tuple(sizes.shape) if like else dims(sizes)
            if len(x) == rank - 2 == 2 and not depthwise:  # without batch and channels
                x = shape_in(s, (dy.shape[0], w.shape[-2], *x))
            return _by_input(s, x, w, dy, t, depthwise)

        return kernel

    return factory


def _backward_filter(type: str, like: bool, depthwise: bool = False) -> Factory:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        s, t = sliding(type, _with_layout(attrs)), attrs["T"]

        def kernel(x: Tensor, sizes: Any, dy: Tensor) -> Tensor:
            w = tuple(sizes.shape) if like else dims(sizes)
            return _by_filter(s, x, w, dy, t, depthwise)

        return kernel

    return factory


_T = {"T": FLOATS}
for _type in ("Conv2D", "Conv3D"):
    for_torch(_type, _T)(_forward(_type))
for _type, _like in (
    ("Conv2DBackpropInput", False),
    ("Conv2DBackpropInputV2", True),
    ("Conv3DBackpropInput", True),
    ("Conv3DBackpropInputV2", False),
):
    for_torch(_type, _T)(_backward_input(_type, _like))
for _type, _like in (
    ("Conv2DBackpropFilter", False),
    ("Conv2DBackpropFilterV2", True),
    ("Conv3DBackpropFilter", True),
    ("Conv3DBackpropFilterV2", False),
):
    for_torch(_type, _T)(_backward_filter(_type, _like))

for_torch("DepthwiseConv2dNative", _T)(_forward("DepthwiseConv2dNative", depthwise=True))
for_torch("DepthwiseConv2dNativeBackpropInput", _T)(
    _backward_input("DepthwiseConv2dNativeBackpropInput", like=False, depthwise=True)
)
for_torch("DepthwiseConv2dNativeBackpropFilter", _T)(
    _backward_filter("DepthwiseConv2dNativeBackpropFilter", like=False, depthwise=True)
)


@for_torch("Conv", _T)
def _general(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    rank, batch, groups, t = len(attrs["strides"]), attrs["batch_dims"], attrs["groups"], attrs["T"]
    if rank not in (4, 5) or batch < 0 or (rank == 5 and attrs["padding"] == "EXPLICIT"):
        return _refused
    axes = "DHW"[5 - rank :]
    layout = f"N{axes}C" if attrs["data_format"] == "CHANNELS_LAST" else f"NC{axes}"
    s = sliding("Conv", {**attrs, "data_format": layout, "dilations": attrs["dilations"] or (1,) * rank})

    def kernel(x: Tensor, w: Tensor) -> Tensor:
        if x.ndim != rank - 1 + batch or w.ndim != rank:
            raise Unsuited
        if x.shape[s.channels - 1 + batch] != groups * w.shape[-2]:
            raise Unsuited
        y = _convolved(s, x.reshape(math.prod(x.shape[:batch]), *x.shape[batch:]), w, t, depthwise=False)
        return y.reshape(*x.shape[:batch], *y.shape[1:])

    return kernel


def _refused(*inputs: Any) -> Any:
    raise Unsuited
