"""Operators that read and write elements at computed positions."""

from __future__ import annotations

from typing import Any

from headrace.api import arrays, gathering, math, tensors
from headrace.api.reductions import range as range_of
from headrace.dtypes import int64
from headrace.ir.tensor_type import Tensor
from headrace.onnx.operators import Call, operator


def _positions(indices: Tensor, size: Any) -> Tensor:
    """Indices, which may be negative, as positions along an axis."""
    indices = math.cast(indices, int64)
    return gathering.where(indices < 0, indices + size, indices)


@operator("Gather")
def gather(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    """Returns the slices of an axis at some positions."""
    axis = call.axis(x)
    return gathering.gather(x, _positions(indices, arrays.shape(x, int64)[axis]), axis=axis)


def _coordinates(call: Call, x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """Coordinates in `x` of the elements that `indices` chooses along an axis, [*indices, rank]."""
    rank = call.rank(x)
    dims = arrays.shape(indices, int64)
    parts: list[Any] = []
    for k in range(rank):
        if k == axis:
            parts.append(_positions(indices, arrays.shape(x, int64)[axis]))
        else:
            line = arrays.reshape(range_of(dims[k]), [-1 if j == k else 1 for j in range(rank)])
            parts.append(arrays.broadcast_to(line, dims))
    return arrays.stack(parts, axis=-1)


@operator("GatherElements", since=11)
def gather_elements(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    """Returns elements at positions along an axis."""
    return gathering.gather_nd(x, _coordinates(call, x, indices, call.axis(x)))


def _points(call: Call, x: Tensor, indices: Tensor, batch: int) -> Tensor:
    """Indices of points, which may be negative, as positions."""
    depth = indices.shape[-1] if indices.shape is not None else None
    sizes = arrays.shape(x, int64)[batch:] if depth is None else arrays.shape(x, int64)[batch : batch + depth]
    return _positions(indices, sizes)


@operator("GatherND", since=11)
def gather_nd(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    """Returns the slices at some points."""
    batch = call.get("batch_dims", 0)
    return gathering.gather_nd(x, _points(call, x, indices, batch), batch_dims=batch)


_SCATTERED = {
    "none": gathering.tensor_scatter_nd_update,
    "add": gathering.tensor_scatter_nd_add,
    "max": gathering.tensor_scatter_nd_max,
    "min": gathering.tensor_scatter_nd_min,
}


def _scattered(call: Call, x: Tensor, points: Tensor, updates: Tensor) -> Tensor:
    how = call.get("reduction", "none")
    if how == "mul":
        rank = int(points.shape[-1])
        from headrace.api.reductions import unsorted_segment_prod

        dims = arrays.shape(x, int64)
        flat = tensors.constant(0, int64)
        total = tensors.constant(1, int64)
        for k in range(rank):
            flat = flat * dims[k] + points[..., k]
            total = total * dims[k]
        inner = dims[rank:]
        rows = arrays.reshape(updates, arrays.concat([tensors.constant([-1], int64), inner], 0))
        factors = unsorted_segment_prod(rows, arrays.reshape(flat, (-1,)), total)
        return x * arrays.reshape(factors, dims)
    return _SCATTERED[how](x, points, updates)


@operator("Scatter", since=9)
@operator("ScatterElements", since=11)
def scatter_elements(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Writes elements at positions along an axis."""
    return _scattered(call, x, _coordinates(call, x, indices, call.axis(x)), updates)


@operator("ScatterND", since=11)
def scatter_nd(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Writes slices at some points."""
    return _scattered(call, x, _points(call, x, indices, 0), updates)


@operator("NonZero", since=9)
def non_zero(call: Call, x: Tensor) -> Tensor:
    """Returns the coordinates of the elements that are not zero, one column each."""
    return arrays.transpose(gathering.where(math.not_equal(x, arrays.zeros_like(x))))


@operator("Compress", since=9)
def compress(call: Call, x: Tensor, condition: Tensor) -> Tensor:
    """Returns the slices of an axis for which a condition is true."""
    if call.get("axis") is None:
        x, axis = arrays.reshape(x, (-1,)), 0
    else:
        axis = call.axis(x)
    chosen = arrays.reshape(gathering.where(condition), (-1,))
    return gathering.gather(x, chosen, axis=axis)


@operator("OneHot", since=9)
def one_hot(call: Call, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    """Returns vectors with one element that differs from the others."""
    n = math.cast(arrays.reshape(depth, ()), int64)
    places = _positions(indices, n)
    axis = call["axis"]
    line = range_of(n)
    rank = call.rank(indices) + 1
    at = axis % rank
    line = arrays.reshape(line, [-1 if k == at else 1 for k in range(rank)])
    return gathering.where(math.equal(line, arrays.expand_dims(places, at)), values[1], values[0])
