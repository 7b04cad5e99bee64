"""Operators on shapes and on the arrangement of elements."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from headrace.api import arrays as a
from headrace.api import gathering, linalg, math, tensors
from headrace.api.reductions import range as range_of
from headrace.api.reductions import reduce_prod
from headrace.dtypes import bool_, int64
from headrace.ir.tensor_type import Tensor
from headrace.onnx.element_types import dtype_of
from headrace.onnx.operators import Call, operator


@operator("Shape")
def shape(call: Call, x: Tensor) -> Any:
    """Returns the shape, or a part of it."""
    full: Any = a.shape(x, int64)
    if x.shape is not None and None not in x.shape:
        full = tensors.constant(np.asarray(x.shape, np.int64))
    start, end = call.get("start", 0), call.get("end")
    if not start and end is None:
        return full
    rank = call.rank(x)
    low = min(max(start + rank if start < 0 else start, 0), rank)
    high = rank if end is None else min(max(end + rank if end < 0 else end, 0), rank)
    return full[low : max(low, high)]


@operator("Size")
def size(call: Call, x: Tensor) -> Tensor:
    """Returns the number of elements."""
    return a.size(x, int64)


@operator("Reshape")
def reshape(call: Call, x: Tensor, target: Tensor | None = None) -> Tensor:
    """Returns the elements in another shape; 0 stands for the size of the input's axis."""
    if target is None:
        given: Any = np.asarray(call["shape"], np.int64)
    else:
        given = tensors.constant_value(target)
        if given is None:
            if call.get("allowzero"):
                return a.reshape(x, target)
            n = None if target.shape is None else target.shape[0]
            if n is None or x.shape is None:
                return a.reshape(x, target)
            own = a.shape(x, int64)[:n]
            own = a.concat([own, a.ones([max(n - len(x.shape), 0)], int64)], 0)
            return a.reshape(x, gathering.where(math.equal(target, a.zeros_like(target)), own, target))
    if call.get("allowzero"):
        return a.reshape(x, given)
    if (given == 0).any():
        own = a.shape(x, int64)
        parts = [own[i] if d == 0 else tensors.constant(d, int64) for i, d in enumerate(given.tolist())]
        if x.shape is not None and all(d or x.shape[i] is not None for i, d in enumerate(given.tolist())):
            return a.reshape(x, [d or x.shape[i] for i, d in enumerate(given.tolist())])
        return a.reshape(x, a.stack(parts))
    return a.reshape(x, given)


@operator("Transpose")
def transpose(call: Call, x: Tensor) -> Tensor:
    """Permutes axes; without a permutation their order is reversed."""
    return a.transpose(x, call.get("perm"))


@operator("Concat")
def concat(call: Call, *values: Tensor) -> Tensor:
    """Joins tensors along an axis."""
    return a.concat(list(values), call.get("axis", 1))


@operator("Squeeze")
def squeeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Removes axes of size 1."""
    return a.squeeze(x, call.ints("axes", axes))


@operator("Unsqueeze")
def unsqueeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Adds axes of size 1."""
    given = call.ints("axes", axes) or []
    rank = call.rank(x) + len(given)
    for axis in sorted([i % rank for i in given]):
        x = a.expand_dims(x, axis)
    return x


@operator("Flatten")
def flatten(call: Call, x: Tensor) -> Tensor:
    """Returns a matrix whose rows are the axes before an axis."""
    axis = call.axis(x)
    if x.shape is not None and None not in x.shape:
        return a.reshape(x, [prod(x.shape[:axis]), prod(x.shape[axis:])])
    dims = a.shape(x, int64)
    return a.reshape(x, a.stack([reduce_prod(dims[:axis]), reduce_prod(dims[axis:])]))


@operator("Expand", since=8)
def expand(call: Call, x: Tensor, target: Tensor) -> Tensor:
    """Broadcasts a tensor to a shape, which may have fewer axes or sizes of 1."""
    return a.broadcast_to(x, a.broadcast_dynamic_shape(a.shape(x, int64), target))


@operator("Tile", since=6)
def tile(call: Call, x: Tensor, repeats: Tensor) -> Tensor:
    """Repeats a tensor along its axes."""
    return a.tile(x, repeats)


@operator("Split")
def split(call: Call, x: Tensor, sizes: Tensor | None = None) -> Any:
    """Divides a tensor along an axis."""
    axis = call.axis(x)
    n = call.get("num_outputs") or len(call.outputs)
    given = call.ints("split", sizes)
    if given is None:
        total = int(call.static(a.shape(x)[axis], "shape"))
        step = -(-total // n)
        given = [min(step, total - i * step) for i in range(n)]
    return tuple(a.split(x, given, axis))


@operator("Slice")
def slice_(
    call: Call,
    x: Tensor,
    starts: Tensor | None = None,
    ends: Tensor | None = None,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    """Returns a part of a tensor, with steps."""
    rank = call.rank(x)
    n_axes = call.ints("axes", axes)
    if (
        starts is not None
        and ends is not None
        and (tensors.constant_value(starts) is None or tensors.constant_value(ends) is None)
    ):
        count = starts.shape[0] if starts.shape is not None else len(n_axes or ())
        chosen = n_axes or list(range(count))
        strides = call.ints("steps", steps) or [1] * count
        for k, axis in enumerate(chosen):
            x = _slice_at(x, axis % rank, rank, starts[k], ends[k], strides[k])
        return x
    low, high = call.ints("starts", starts) or [], call.ints("ends", ends) or []
    chosen = n_axes or list(range(len(low)))
    strides = call.ints("steps", steps) or [1] * len(low)
    index: list[Any] = [slice(None)] * rank
    for axis, i, j, step in zip(chosen, low, high, strides, strict=True):
        size = x.shape[axis % rank] if x.shape is not None else None
        index[axis % rank] = _python_slice(i, j, step, size)
    return x[tuple(index)]


def _python_slice(low: int, high: int, step: int, size: int | None) -> slice:
    if size is not None:  # Python's rules for indices outside of the axis are those of the standard
        low, high, step = slice(low, high, step).indices(size)
        return slice(low, None if high < 0 else high, step)
    return slice(low, None if abs(high) >= 2**31 - 1 else high, step)


def _slice_at(x: Tensor, axis: int, rank: int, low: Any, high: Any, step: int) -> Tensor:
    """A part along one axis, with bounds that only the running graph knows."""
    size = a.shape(x, int64)[axis]
    low, high = [gathering.where(v < 0, v + size, v) for v in (math.cast(low, int64), math.cast(high, int64))]
    zero = tensors.constant(0, int64)
    if step > 0:
        low, high = [math.minimum(math.maximum(v, zero), size) for v in (low, high)]
    else:
        low = math.minimum(math.maximum(low, zero), size - 1)
        high = math.minimum(math.maximum(high, zero - 1), size - 1)
    return gathering.gather(x, range_of(low, high, tensors.constant(step, int64)), axis=axis)


@operator("Pad")
def pad(
    call: Call, x: Tensor, pads: Tensor | None = None, value: Tensor | None = None, axes: Tensor | None = None
) -> Tensor:
    """Adds elements at the ends of axes, or removes them where the number is negative."""
    rank = call.rank(x)
    given = call.ints("pads", pads) or call.ints("paddings") or [0] * (2 * rank)
    chosen = [i % rank for i in (call.ints("axes", axes) or range(rank))]
    pairs = [[0, 0] for _ in range(rank)]
    for k, axis in enumerate(chosen):
        pairs[axis] = [given[k], given[k + len(chosen)]]
    index = []
    for before, after in pairs:
        index.append(slice(max(-before, 0), after if after < 0 else None))
    x = x[tuple(index)]
    pairs = [[max(b, 0), max(e, 0)] for b, e in pairs]
    mode = call["mode"]
    if mode == "constant":
        fill = value if value is not None else tensors.constant(call.get("value", 0), x.dtype.base)
        return a.pad(x, pairs, constant_values=a.reshape(fill, ()))
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            size = int(call.static(a.shape(x)[axis], "shape"))
            places = np.arange(-before, size + after)
            if mode == "edge":
                places = places.clip(0, size - 1)
            elif mode == "wrap":
                places = places % size
            else:
                period = max(2 * (size - 1), 1)
                places = np.abs((places + size - 1) % period - (size - 1)) if size > 1 else places * 0
            x = gathering.gather(x, places, axis=axis)
    return x


@operator("ConstantOfShape", since=9)
def constant_of_shape(call: Call, target: Tensor) -> Tensor:
    """Returns a tensor of one value."""
    value = call.get("value")
    value = np.zeros(1, np.float32) if value is None else value
    return a.fill(target, tensors.convert_to_tensor(value.reshape(-1)[0], dtype=tensors.convert_to_tensor(value).dtype))


@operator("Range", since=11)
def range_(call: Call, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    """Returns equidistant numbers."""
    return range_of(a.reshape(start, ()), a.reshape(limit, ()), a.reshape(delta, ()))


@operator("EyeLike", since=9)
def eye_like(call: Call, x: Tensor) -> Tensor:
    """Returns a matrix with ones on a diagonal."""
    number = call.get("dtype")
    dtype = x.dtype.base if number is None else dtype_of(number, call.node)
    dims = a.shape(x, int64)
    rows = a.reshape(range_of(dims[0]), (-1, 1))
    columns = range_of(dims[1]) - tensors.constant(call["k"], int64)
    return math.cast(math.equal(rows, columns), dtype)


@operator("Trilu", since=14)
def trilu(call: Call, x: Tensor, k: Tensor | None = None) -> Tensor:
    """Returns the upper or lower triangle of matrices."""
    dims = a.shape(x, int64)
    rows = a.reshape(range_of(dims[-2]), (-1, 1))
    columns = range_of(dims[-1])
    shift = tensors.constant(0, int64) if k is None else a.reshape(k, ())
    kept = columns - rows >= shift if call["upper"] else columns - rows <= shift
    zero = tensors.constant(False, bool_) if x.dtype.base == bool_ else tensors.constant(0, x.dtype.base)
    return gathering.where(kept, x, zero)


@operator("DepthToSpace")
def depth_to_space(call: Call, x: Tensor) -> Tensor:
    """Moves channels into blocks of pixels."""
    n, c, h, w = [int(d) for d in call.static(a.shape(x), "shape")]
    s = call["blocksize"]
    if call.get("mode", "DCR") == "DCR":
        y = a.transpose(a.reshape(x, (n, s, s, c // s**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = a.transpose(a.reshape(x, (n, c // s**2, s, s, h, w)), (0, 1, 4, 2, 5, 3))
    return a.reshape(y, (n, c // s**2, h * s, w * s))


@operator("SpaceToDepth")
def space_to_depth(call: Call, x: Tensor) -> Tensor:
    """Moves blocks of pixels into channels."""
    n, c, h, w = [int(d) for d in call.static(a.shape(x), "shape")]
    s = call["blocksize"]
    if call.get("mode", "DCR") == "DCR":
        y = a.transpose(a.reshape(x, (n, c, h // s, s, w // s, s)), (0, 3, 5, 1, 2, 4))
    else:
        y = a.transpose(a.reshape(x, (n, c, h // s, s, w // s, s)), (0, 1, 3, 5, 2, 4))
    return a.reshape(y, (n, c * s * s, h // s, w // s))


@operator("ReverseSequence", since=10)
def reverse_sequence(call: Call, x: Tensor, lengths: Tensor) -> Tensor:
    """Reverses the first elements of each sequence."""
    return a.reverse_sequence(x, lengths, seq_axis=call["time_axis"], batch_axis=call["batch_axis"])


@operator("Det", since=11)
def det(call: Call, x: Tensor) -> Tensor:
    """Returns determinants."""
    return linalg.det(x)
