"""Softmax and normalizations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.api import arrays, math, reductions, tensors
from headrace.api.nn import activations
from headrace.dtypes import float32
from headrace.ir.tensor_type import Tensor
from headrace.onnx.operators import Call, operator


def _over_rows(call: Call, x: Tensor, f: Callable[..., Any]) -> Tensor:
    """`f` along all axes from an axis on together, as before version 13."""
    axis = call.axis(x)
    rank = call.rank(x)
    if axis == rank - 1:
        whole: Tensor = f(x, axis=-1)
        return whole
    dims = arrays.shape(x)
    rows = arrays.reshape(x, arrays.concat([dims[:axis], [-1]], 0))
    return arrays.reshape(f(rows, axis=-1), dims)


@operator("Softmax")
def softmax_of_rows(call: Call, x: Tensor) -> Tensor:
    """Returns the softmax of rows of a matrix."""
    return _over_rows(call, x, activations.softmax)


@operator("LogSoftmax")
def log_softmax_of_rows(call: Call, x: Tensor) -> Tensor:
    """Returns the logarithm of the softmax of rows of a matrix."""
    return _over_rows(call, x, activations.log_softmax)


@operator("Softmax", since=13)
def softmax(call: Call, x: Tensor) -> Tensor:
    """Returns the softmax along an axis."""
    return activations.softmax(x, axis=call["axis"])


@operator("LogSoftmax", since=13)
def log_softmax(call: Call, x: Tensor) -> Tensor:
    """Returns the logarithm of the softmax along an axis."""
    return activations.log_softmax(x, axis=call["axis"])


@operator("Hardmax")
def hardmax(call: Call, x: Tensor) -> Tensor:
    """Returns 1 at the first largest element along an axis, and 0 elsewhere."""

    def f(x: Tensor, axis: int) -> Tensor:
        depth = arrays.shape(x)[axis]
        return arrays.one_hot(reductions.argmax(x, axis), depth, axis=axis, dtype=x.dtype.base)

    return f(x, call["axis"]) if call.version >= 13 else _over_rows(call, x, f)


def by_channel(x: Tensor, rank: int) -> Tensor:
    """Returns a vector with one number for each channel in a shape that broadcasts."""
    return arrays.reshape(x, [1, -1, *[1] * (rank - 2)])


@operator("BatchNormalization")
def batch_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Any:
    """Normalizes channels by given or computed means and variances."""
    rank = max(call.rank(x), 2)
    training = call.version >= 14 and call["training_mode"]
    results: tuple[Any, ...] = ()
    if training:
        axes = [a for a in range(rank) if a != 1]
        momentum = tensors.constant(call["momentum"], mean.dtype.base)
        own_mean = reductions.reduce_mean(x, axes)
        own_variance = reductions.reduce_mean(math.square(x - by_channel(own_mean, rank)), axes)
        results = (mean * momentum + own_mean * (1 - momentum), variance * momentum + own_variance * (1 - momentum))
        mean, variance = own_mean, own_variance
    factor = scale * math.rsqrt(variance + tensors.constant(call["epsilon"], variance.dtype.base))
    y = (x - by_channel(mean, rank)) * by_channel(factor, rank) + by_channel(bias, rank)
    return (y, *results)


@operator("InstanceNormalization")
def instance_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Normalizes each channel of each example."""
    rank = call.rank(x)
    axes = list(range(2, rank))
    centered = x - reductions.reduce_mean(x, axes, True)
    variance = reductions.reduce_mean(math.square(centered), axes, True)
    epsilon = tensors.constant(call["epsilon"], x.dtype.base)
    return centered * math.rsqrt(variance + epsilon) * by_channel(scale, rank) + by_channel(bias, rank)


@operator("LayerNormalization", since=17)
def layer_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
    """Normalizes all axes from an axis on."""
    axes = list(range(call.axis(x), call.rank(x)))
    given = x.dtype.base
    wide = math.cast(x, float32) if given.size < 4 else x
    mean = reductions.reduce_mean(wide, axes, True)
    centered = wide - mean
    variance = reductions.reduce_mean(math.square(centered), axes, True)
    inverse = math.rsqrt(variance + tensors.constant(call["epsilon"], wide.dtype.base))
    y = math.cast(centered * inverse, given) * scale
    return (y if bias is None else y + bias), mean, inverse


@operator("LpNormalization")
def lp_normalization(call: Call, x: Tensor) -> Tensor:
    """Divides by the norm along an axis, and returns 0 where the norm is 0."""
    axis = call["axis"]
    if call["p"] == 1:
        norm = reductions.reduce_sum(math.abs(x), axis, True)
    else:
        norm = math.sqrt(reductions.reduce_sum(math.square(x), axis, True))
    return math.divide_no_nan(x, norm)


@operator("LRN")
def lrn(call: Call, x: Tensor) -> Tensor:
    """Divides by a power of the sum of squares over neighboring channels."""
    size = call["size"]
    rank = call.rank(x)
    before = (size - 1) // 2
    pairs = [[0, 0] for _ in range(rank)]
    pairs[1] = [before, size - 1 - before]
    squares = arrays.pad(math.square(x), pairs)
    channels = int(call.static(arrays.shape(x)[1], "shape"))
    total = squares[:, :channels]
    for k in range(1, size):
        total = total + squares[:, k : k + channels]
    alpha, beta, bias = [tensors.constant(v, x.dtype.base) for v in (call["alpha"] / size, call["beta"], call["bias"])]
    return x / math.pow(bias + alpha * total, beta)
