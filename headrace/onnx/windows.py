"""Convolutions and poolings."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.api import arrays, math, reductions, tensors
from headrace.api.gathering import gather
from headrace.api.nn.convolution import conv1d, conv2d, conv3d
from headrace.api.nn.pooling import max_pool2d
from headrace.errors import UnimplementedError
from headrace.ir.tensor_type import Tensor
from headrace.onnx.operators import Call, operator


def _last(x: Tensor, rank: int) -> Tensor:
    return arrays.transpose(x, [0, *range(2, rank), 1])


def _first(x: Tensor, rank: int) -> Tensor:
    return arrays.transpose(x, [0, rank - 1, *range(1, rank - 1)])


def _pads(call: Call, x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[Any]:
    """Numbers of elements before and after each spatial axis."""
    n = len(kernel)
    auto = call.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        flat = call.get("pads") or [0] * (2 * n)
        return [[flat[k], flat[k + n]] for k in range(n)]
    if auto == "VALID":
        return [[0, 0]] * n
    sizes = [int(d) for d in call.static(arrays.shape(x)[2:], "shape")]
    out = []
    for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        small, large = total // 2, total - total // 2
        out.append([small, large] if auto == "SAME_UPPER" else [large, small])
    return out


def convolved(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """Returns the convolution of channels-first input with filters of the standard."""
    rank = call.rank(x)
    n = rank - 2
    if w.shape is None or None in w.shape:
        raise UnimplementedError(f"the {call.node} needs filters of known shape")
    kernel = [int(d) for d in w.shape[2:]]
    strides, dilations = call.get("strides") or [1] * n, call.get("dilations") or [1] * n
    pads = _pads(call, x, kernel, strides, dilations)
    if any(map(any, pads)):
        x = arrays.pad(x, [[0, 0], [0, 0], *pads])
    filters = arrays.transpose(w, [*range(2, rank), 1, 0])
    y = _last(x, rank)
    groups = call["group"]
    of: Any = (conv1d, conv2d, conv3d)[n - 1]
    step: Any = strides[0] if n == 1 else strides
    dilation: Any = dilations[0] if n == 1 else dilations
    if n == 3 and groups > 1:
        parts = zip(arrays.split(y, groups, -1), arrays.split(filters, groups, -1), strict=True)
        out = arrays.concat([of(p, f, step, "VALID", dilations=dilation) for p, f in parts], -1)
    else:
        out = of(y, filters, step, "VALID", dilations=dilation)
    if b is not None:
        out = out + b
    return _first(out, rank)


@operator("Conv")
def conv(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """Convolves sequences, images and volumes."""
    return convolved(call, x, w, b)


@operator("ConvTranspose")
def conv_transpose(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """Convolves with transposed filters: the gradient of a convolution with respect to its input."""
    rank = call.rank(x)
    n = rank - 2
    kernel = [int(d) for d in w.shape[2:]]
    strides, dilations = call.get("strides") or [1] * n, call.get("dilations") or [1] * n
    extra = call.get("output_padding") or [0] * n
    sizes = [int(d) for d in call.static(arrays.shape(x)[2:], "shape")]
    full = [(s - 1) * t + (k - 1) * d + 1 for s, t, k, d in zip(sizes, strides, kernel, dilations, strict=True)]
    flat = call.get("pads") or [0] * (2 * n)
    pads = [[flat[k], flat[k + n]] for k in range(n)]
    wanted, auto = call.get("output_shape"), call.get("auto_pad", "NOTSET")
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [s * t for s, t in zip(sizes, strides, strict=True)]
    if wanted is not None:
        pads = []
        for f, e, o in zip(full, extra, wanted[-n:], strict=True):
            total = f + e - o
            half = total // 2
            pads.append([half, total - half] if auto == "SAME_UPPER" else [total - half, half])
    # the input with zeros between its elements, convolved with the reversed filters
    y = _last(x, rank)
    for axis, stride in enumerate(strides, 1):
        if stride > 1:
            y = arrays.expand_dims(y, axis + 1)
            pairs = [[0, 0]] * (rank + 1)
            pairs[axis + 1] = [0, stride - 1]
            y = arrays.pad(y, pairs)
            dims = arrays.shape(y)
            y = arrays.reshape(y, arrays.concat([dims[:axis], [-1], dims[axis + 2 :]], 0))
            y = y[tuple([slice(None)] * axis + [slice(0, 1 - stride)])]
    around = []
    for (before, after), k, d, e in zip(pads, kernel, dilations, extra, strict=True):
        around.append([(k - 1) * d - before, (k - 1) * d - after + e])
    y = arrays.pad(y, [[0, 0], *[[max(b_, 0), max(a_, 0)] for b_, a_ in around], [0, 0]])
    y = y[(slice(None), *[slice(max(-b_, 0), min(a_, 0) or None) for b_, a_ in around])]
    flipped = arrays.reverse(w, list(range(2, rank)))
    groups = call["group"]
    of: Any = (conv1d, conv2d, conv3d)[n - 1]
    one: Any = 1 if n == 1 else [1] * n
    dilation: Any = dilations[0] if n == 1 else dilations
    parts = []
    for xs, ws in zip(arrays.split(y, groups, -1), arrays.split(flipped, groups, 0), strict=True):
        parts.append(of(xs, arrays.transpose(ws, [*range(2, rank), 0, 1]), one, "VALID", dilations=dilation))
    out = arrays.concat(parts, -1)
    return _first(out if b is None else out + b, rank)


def _windows(call: Call, x: Tensor) -> tuple[list[int], list[int], list[int], list[list[int]]]:
    kernel = call["kernel_shape"]
    strides, dilations = call.get("strides") or [1] * len(kernel), call.get("dilations") or [1] * len(kernel)
    pads = [list(p) for p in _pads(call, x, kernel, strides, dilations)]
    if call.get("ceil_mode"):
        sizes = [int(d) for d in call.static(arrays.shape(x)[2:], "shape")]
        for k, (size, w, s, d) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
            whole = size + sum(pads[k]) - (w - 1) * d - 1
            count = -(-whole // s)
            if count * s >= size + pads[k][0]:  # a window that begins in the padding at the end does not count
                count -= 1
            pads[k][1] += max(count * s - whole, 0)
    return kernel, strides, dilations, pads


def _slices(x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[Tensor]:
    """Elements of all windows at each position of a window."""
    dims = [int(d) for d in x.shape[2:]]
    counts = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(dims, kernel, strides, dilations, strict=True)]
    out = []
    for place in np.ndindex(*kernel):
        index = [
            slice(p * d, p * d + (c - 1) * s + 1, s)
            for p, d, c, s in zip(place, dilations, counts, strides, strict=True)
        ]
        out.append(x[(slice(None), slice(None), *index)])
    return out


def _lowest(dtype: Any) -> Any:
    return tensors.constant(-np.inf if dtype.is_floating else dtype.min, dtype)


@operator("MaxPool")
def max_pool(call: Call, x: Tensor) -> Any:
    """Returns the largest elements of windows, and perhaps their positions."""
    kernel, strides, dilations, pads = _windows(call, x)
    rank = call.rank(x)
    padded = arrays.pad(x, [[0, 0], [0, 0], *pads], constant_values=_lowest(x.dtype.base))
    if len(call.outputs) == 1 and rank == 4 and set(dilations) == {1} and x.dtype.base.is_floating:
        return _first(max_pool2d(_last(padded, rank), kernel, strides, "VALID"), rank)
    values = _slices(padded, kernel, strides, dilations)
    out = functools.reduce(math.maximum, values)
    if len(call.outputs) == 1:
        return out
    shape = [int(d) for d in call.static(arrays.shape(x), "shape")]
    numbers = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    if call["storage_order"]:
        flat = np.arange(int(np.prod(shape[2:])), dtype=np.int64).reshape(shape[2:][::-1]).transpose()
        numbers = np.arange(shape[0] * shape[1]).reshape(*shape[:2], *[1] * len(kernel)) * flat.size + flat
    placed = tensors.constant(np.pad(numbers, [(0, 0), (0, 0), *map(tuple, pads)]))
    chosen = reductions.argmax(arrays.stack(values, -1), -1)
    places = arrays.stack(_slices(placed, kernel, strides, dilations), -1)
    return out, gather(places, chosen, batch_dims=rank)


@operator("AveragePool")
def average_pool(call: Call, x: Tensor) -> Tensor:
    """Returns the means of windows, with or without the padding."""
    kernel, strides, dilations, pads = _windows(call, x)
    total = _summed(arrays.pad(x, [[0, 0], [0, 0], *pads]), kernel, strides, dilations)
    sizes = [int(d) for d in call.static(arrays.shape(x)[2:], "shape")]
    asked = _pads(call, x, kernel, strides, dilations)
    if not call.get("count_include_pad"):
        asked = [[0, 0]] * len(kernel)
    # the elements that count are the input's and those of the padding asked for, not those that complete a last window
    counted = np.zeros([1, 1, *[n + b + e for n, (b, e) in zip(sizes, pads, strict=True)]], np.float32)
    inside = [slice(b - c, b + n + d) for n, (b, _), (c, d) in zip(sizes, pads, asked, strict=True)]
    counted[(slice(None), slice(None), *inside)] = 1
    count = _summed(tensors.constant(counted), kernel, strides, dilations)
    return total / math.cast(count, x.dtype.base)


def _summed(x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Tensor:
    return functools.reduce(math.add, _slices(x, kernel, strides, dilations))


@operator("LpPool")
def lp_pool(call: Call, x: Tensor) -> Tensor:
    """Returns the norms of windows."""
    kernel, strides, dilations, pads = _windows(call, x)
    p = tensors.constant(call["p"], x.dtype.base)
    powers = arrays.pad(math.pow(math.abs(x), p), [[0, 0], [0, 0], *pads])
    return math.pow(_summed(powers, kernel, strides, dilations), 1 / p)


@operator("GlobalAveragePool")
def global_average_pool(call: Call, x: Tensor) -> Tensor:
    """Returns the means of channels."""
    return reductions.reduce_mean(x, list(range(2, call.rank(x))), True)


@operator("GlobalMaxPool")
def global_max_pool(call: Call, x: Tensor) -> Tensor:
    """Returns the largest elements of channels."""
    return reductions.reduce_max(x, list(range(2, call.rank(x))), True)
