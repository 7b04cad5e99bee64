"""Pooling and its gradients: MaxPool, AvgPool, MaxPool3D, AvgPool3D.

PyTorch pads both ends of an axis alike, by at most half a window. With `ceil_mode` the last window may reach beyond the
array, which is most of what TensorFlow's padding needs. Other arrays are padded first.

NaN is never the greatest element of a window; on a CPU, arrays with NaN are left to the kernels for numpy. On a GPU a
window with NaN has the result NaN, as in TensorFlow.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from headrace import dtypes
from headrace.devices.torch.convolutions import Ints, laid_out, second, shape_in, shaped_like
from headrace.devices.torch.registering import (
    FLOATS,
    Factory,
    Kernel,
    Tensor,
    Unsuited,
    for_torch,
    has_nan,
    type_of,
)
from headrace.dtypes import DType
from headrace.memo import cached
from headrace.opkit.arrays import check_size, dims
from headrace.opkit.elementwise import HALF
from headrace.opkit.pooling import axes_of, counts
from headrace.opkit.windows import Axis, Sliding, sliding, taps

aten = torch.ops.aten

# How far an element of a volume may be below the maximum to get a share of the gradient: TensorFlow's number.
NEAR = 1e-5

_MAX_WITH_INDICES = {2: aten.max_pool2d_with_indices, 3: aten.max_pool3d_with_indices}
_MAX_BACKWARD = {2: aten.max_pool2d_with_indices_backward, 3: aten.max_pool3d_with_indices_backward}
_AVG = {2: aten.avg_pool2d, 3: aten.avg_pool3d}
_AVG_BACKWARD = {2: aten.avg_pool2d_backward, 3: aten.avg_pool3d_backward}


class Plan(NamedTuple):
    """A pooling of known shapes, in the terms of PyTorch.

    Attributes:
      axes: the windows over the axes of the array, in the order of the operation.
      sizes, strides, padding: arguments of PyTorch's function, for each spatial axis.
      ceil: its argument `ceil_mode`.
      margins: the padding in front of the function, for `torch.nn.functional.pad`; empty if none is needed.
      x, y: the shapes of input and output with the channels second, the input without margins.
      is_disjoint: whether no element is in two windows.
      is_empty: whether the output or the input has no elements.
    """

    axes: tuple[Axis, ...]
    sizes: Ints
    strides: Ints
    padding: Ints
    ceil: bool
    margins: Ints
    x: Ints
    y: Ints
    is_disjoint: bool
    is_empty: bool

    @property
    def n(self) -> int:
        """The number of spatial axes."""
        return len(self.sizes)

    @property
    def padded(self) -> Ints:
        """Shape of the input with margins."""
        if not self.margins:
            return self.x
        ends = zip(self.margins[::2], self.margins[1::2], strict=True)
        return (*self.x[:2], *(n + sum(e) for n, e in zip(self.x[2:], reversed(list(ends)), strict=True)))


def _is_counted(a: Axis, ceil: bool) -> bool:
    """Whether PyTorch has as many windows over an axis as the operation.

    PyTorch's padding is then that before the axis, on both ends.
    """
    room = a.length + 2 * a.before - a.size
    if room < 0 or a.before < 0 or a.before > a.size // 2:
        return False
    found = -(-room // a.stride) if ceil else room // a.stride
    if ceil and found * a.stride >= a.length + a.before:
        found -= 1
    return found + 1 == a.count


@cached(1024, "poolings of PyTorch")
def plan(s: Sliding, x: Ints, ksize: Ints) -> Plan:
    """Returns the plan of a pooling of an array of the shape `x`.

    Raises:
      Unsuited: it is along the batch or the channels.
      InvalidArgumentError, UnimplementedError: there is no such pooling.
    """
    every = axes_of(s, x, ksize)
    if ksize[s.channels] != 1 or s.strides[s.channels] != 1:
        raise Unsuited
    axes = [every[i] for i in s.spatial]
    images = (x[0], x[s.channels], *(a.length for a in axes))
    result = (x[0], x[s.channels], *(a.count for a in axes))
    modes = [ceil for ceil in (False, True) if all(_is_counted(a, ceil) for a in axes)]
    margins: Ints = ()
    if not modes:
        ends = [(a.before, max(a.extent - a.before - a.length, 0)) for a in reversed(axes)]
        margins = tuple(n for pair in ends for n in pair)
    return Plan(
        axes=every,
        sizes=tuple(a.size for a in axes),
        strides=tuple(a.stride for a in axes),
        padding=tuple(a.before for a in axes) if modes else (0,) * len(axes),
        ceil=bool(modes and modes[0]),
        margins=margins,
        x=images,
        y=result,
        is_disjoint=all(a.is_disjoint for a in axes),
        is_empty=not math.prod(images) or not math.prod(result),
    )


def _require(x: Tensor, shape: Ints) -> None:
    if tuple(x.shape) != shape:
        raise Unsuited


def _framed(x: Tensor, p: Plan, value: float) -> Tensor:
    return functional.pad(x, p.margins, value=value) if p.margins else x


def _unframed(x: Tensor, p: Plan) -> Tensor:
    """The part of an array with margins without them."""
    for i, n in enumerate(p.x[2:], 2) if p.margins else ():
        x = x.narrow(i, p.margins[2 * (len(p.x) - 1 - i)], n)
    return x


# *** Maxima ***


class _Places(NamedTuple):
    """Places of maxima, which the result of a pooling carries for its gradient.

    PyTorch finds them in any case, and its own results keep them too.

    Attributes:
      x: the array that was pooled.
      plan: the pooling.
      places: the places, as PyTorch counts them.
    """

    x: weakref.ref[Tensor]
    plan: Plan
    places: Tensor


def _pooled(x: Tensor, s: Sliding, p: Plan) -> tuple[Tensor, Tensor]:
    """The greatest elements of the windows of `x`, and their places, with the channels second.

    The place is that of the first one of equal elements.
    """
    y, places = _MAX_WITH_INDICES[p.n](_framed(second(x, s), p, -math.inf), p.sizes, p.strides, p.padding, 1, p.ceil)
    if has_nan(y):
        raise Unsuited
    return y, places


def _places(x: Tensor, y: Tensor, s: Sliding, p: Plan) -> Tensor:
    """The places of the maxima of `x`, which its pooled array `y` may carry."""
    found = getattr(y, "_places", None)
    if found is not None and found.x() is x and found.plan == p:
        kept: Tensor = found.places
        return kept
    return _pooled(x, s, p)[1]


def _max_pool(t: DType) -> Kernel:
    lowest = torch.finfo(type_of(t)).min

    def compute(s: Sliding, ksize: Ints, x: Tensor) -> Tensor:
        p = plan(s, tuple(x.shape), ksize)
        shape = shape_in(s, p.y)
        check_size(shape, t)
        if p.is_empty:
            return torch.full(shape, lowest, dtype=x.dtype, device=x.device)
        y, places = _pooled(x, s, p)
        if p.n == 3:
            return laid_out(y, s)
        out = laid_out(y.clamp_(min=lowest), s)
        out._places = _Places(weakref.ref(x), p, places)
        return out

    return compute


def _max_pool_grad(t: DType) -> Kernel:
    def compute(s: Sliding, ksize: Ints, x: Tensor, y: Tensor, g: Tensor) -> Tensor:
        p = plan(s, tuple(x.shape), ksize)
        for a in (y, g):
            _require(a, shape_in(s, p.y))
        if p.is_empty:
            return torch.zeros_like(x)
        places = _places(x, y, s, p)
        if t in HALF and not p.is_disjoint:  # there are sums
            g = g.float()
        images = shaped_like(x if x.dtype == g.dtype else g, p.padded, s.channels == 1)
        dx = _MAX_BACKWARD[p.n](second(g, s), images, p.sizes, p.strides, p.padding, (1,) * p.n, p.ceil, places)
        return laid_out(_unframed(dx, p), s).to(type_of(t))

    return compute


def _max_pool_grad_grad(t: DType) -> Kernel:
    def compute(s: Sliding, ksize: Ints, x: Tensor, y: Tensor, g: Tensor) -> Tensor:
        p = plan(s, tuple(x.shape), ksize)
        _require(y, shape_in(s, p.y))
        _require(g, tuple(x.shape))
        if p.is_empty:
            return torch.zeros_like(y)
        found, places = _pooled(x, s, p)
        chosen = _framed(second(g, s), p, 0).flatten(2).gather(2, places.flatten(2)).reshape(places.shape)
        return laid_out(torch.where(found == second(y, s), chosen, torch.zeros_like(chosen)), s)

    return compute


def _max_pool_grad_of_volumes(t: DType) -> Kernel:
    """The gradient goes to all elements that are as great as the maximum."""

    def compute(s: Sliding, ksize: Ints, x: Tensor, y: Tensor, g: Tensor) -> Tensor:
        p = plan(s, tuple(x.shape), ksize)
        for a in (y, g):
            _require(a, shape_in(s, p.y))
        x, y, g = x.float(), y.float(), g.float()
        dx = torch.zeros_like(x)
        nothing = g.new_zeros(())
        for windows, elements in taps(p.axes):
            near = (x[elements] - y[windows]).abs() < NEAR
            dx[elements] += torch.where(near, g[windows], nothing)
        return dx.to(type_of(t))

    return compute


# *** Means ***


def _counts(p: Plan, s: Sliding, like: Tensor) -> Tensor:
    """The number of elements in each window without padding, with the channels second."""
    found = np.broadcast_to(counts(p.axes, np.dtype(np.float64)), shape_in(s, (1, 1, *p.y[2:])))
    return second(torch.from_numpy(np.array(found)).to(like), s)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _avg_pool(t: DType) -> Kernel:
    def compute(s: Sliding, ksize: Ints, x: Tensor) -> Tensor:
        p = plan(s, tuple(x.shape), ksize)
        shape = shape_in(s, p.y)
        check_size(shape, t)
        if p.is_empty:
            return x.new_zeros(shape)
        images = _framed(_wide(second(x, s)), p, 0)
        whole = 1 if p.margins else None
        y = _AVG[p.n](images, p.sizes, p.strides, p.padding, p.ceil, False, whole)
        if p.margins:
            y = y / _counts(p, s, y)
        return laid_out(y, s).to(x.dtype)

    return compute


def _avg_pool_grad(t: DType) -> Kernel:
    def compute(s: Sliding, ksize: Ints, sizes: Any, g: Tensor) -> Tensor:
        shape = dims(sizes)
        if len(shape) != len(s.strides):
            raise Unsuited
        check_size(shape, t)
        p = plan(s, shape, ksize)
        _require(g, shape_in(s, p.y))
        if p.is_empty:
            return g.new_zeros(shape)
        dy = _wide(second(g, s))
        whole = None
        if p.margins:
            dy, whole = dy / _counts(p, s, dy), 1
        like = shaped_like(dy, p.padded, s.channels == 1)
        dx = _AVG_BACKWARD[p.n](dy, like, p.sizes, p.strides, p.padding, p.ceil, False, whole)
        return laid_out(_unframed(dx, p), s).to(g.dtype)

    return compute


# *** Registration ***


def _kernel(type: str, make: Callable[[DType], Kernel]) -> Factory:
    """The kernel factory; ksize and strides are attributes, or the last two inputs."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        compute = make(attrs["T"])
        if "ksize" in attrs:
            s, ksize = sliding(type, attrs), tuple(attrs["ksize"])
            return lambda *tensors: compute(s, ksize, *tensors)

        def kernel(*tensors: Any) -> Any:
            *arrays, ksize, strides = tensors
            return compute(sliding(type, {**attrs, "strides": dims(strides)}), dims(ksize), *arrays)

        return kernel

    return factory


_SINGLE = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.float32})

for _type, _make in (
    ("MaxPool", _max_pool),
    ("MaxPoolV2", _max_pool),
    ("MaxPoolGrad", _max_pool_grad),
    ("MaxPoolGradV2", _max_pool_grad),
    ("MaxPoolGradGrad", _max_pool_grad_grad),
    ("MaxPoolGradGradV2", _max_pool_grad_grad),
    ("MaxPool3D", _max_pool),
    ("MaxPool3DGradGrad", _max_pool_grad_grad),
    ("AvgPool", _avg_pool),
    ("AvgPoolGrad", _avg_pool_grad),
    ("AvgPool3D", _avg_pool),
    ("AvgPool3DGrad", _avg_pool_grad),
):
    for_torch(_type, {"T": FLOATS})(_kernel(_type, _make))
for_torch("MaxPool3DGrad", {"T": _SINGLE, "TInput": _SINGLE})(_kernel("MaxPool3DGrad", _max_pool_grad_of_volumes))
