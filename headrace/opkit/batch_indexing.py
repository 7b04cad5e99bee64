"""Batching rules of ops that read and write elements at positions: gathers, scatters, slices, segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes
from headrace.ir.infer import constant_value
from headrace.opkit.batch_node import BatchNode, NoBatchRule, with_ones
from headrace.opkit.batch_rules import example_numbers, moved, numbered

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Tensor

# *** gathers ***


def gather(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Gather(params, indices)`, along the first axis."""
    return [gathered(b, n, 0, 0)]


def gather_v2(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `GatherV2(params, indices, axis)`."""
    if n.batched[2]:
        raise NoBatchRule("the axis differs between examples")
    axis = n.constant(2)
    if axis is None:
        raise NoBatchRule("the axis is no constant")
    k = n.attrs["batch_dims"]
    k = k + n.rank(1) if k < 0 else k
    return [gathered(b, n, int(axis), k)]


def gathered(b: Builder, n: BatchNode, axis: int, k: int) -> Tensor:
    """Returns the rows of input 0 at the positions of input 1, for all examples.

    Args:
      b: the builder.
      n: the node.
      axis: the axis of the rows in one example.
      k: the number of common leading dimensions of the two inputs in one example.
    """
    axis = axis + n.rank(0) if axis < 0 else axis
    out: Tensor
    if n.batched[0] and not n.batched[1] and k == 0:
        out = b.GatherV2(n.inputs[0], n.inputs[1], np.int32(axis + 1))
    elif n.batched[1] and not n.batched[0] and k == 0:
        out = moved(b, b.GatherV2(n.inputs[0], n.inputs[1], np.int32(axis)), axis, 0, n.out_rank() + 1)
    else:
        out = b.GatherV2(n.spread(0), n.spread(1), np.int32(axis + 1), batch_dims=k + 1)
    return out


def gather_nd(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `GatherNd(params, indices)`."""
    if not n.batched[0]:
        return n.make(*n.inputs)
    return n.make(n.inputs[0], numbered(b, n, n.spread(1), n.rank(1)))


# *** scatters ***


def scatter_nd(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `ScatterNd(indices, updates, shape)`."""
    n.only(0, 1)
    return n.make(numbered(b, n, n.spread(0), n.rank(0)), n.spread(1), n.prefixed(n.inputs[2]))


def tensor_scatter(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `TensorScatterUpdate(tensor, indices, updates)` and its relatives."""
    n.only(0, 1, 2)
    return n.make(n.spread(0), numbered(b, n, n.spread(1), n.rank(1)), n.spread(2))


def unsorted_segments(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `UnsortedSegmentSum(data, segment_ids, num_segments)` and its relatives.

    Each example gets segments of its own; negative ids, which are dropped, stay negative.
    """
    n.only(0, 1)
    ids, count = n.spread(1), n.inputs[2]
    dtype = ids.dtype.base
    each = count if count.dtype.base is dtype else b.Cast(count, DstT=dtype)
    first = b.Mul(example_numbers(b, n, dtype, n.rank(1)), each)
    total = b.Mul(each, n.scalar(dtype))
    zero = np.array(0, dtype.numpy)
    inside = b.SelectV2(b.Less(ids, each), b.AddV2(ids, first), total)  # one that is too large stays so
    own = b.SelectV2(b.Less(ids, zero), np.array(-1, dtype.numpy), inside)
    whole = b.Mul(count, n.scalar(count.dtype.base))
    (made,) = n.make(n.spread(0), own, whole)
    rest = n.op.outputs[0].shape
    if rest is None:
        raise NoBatchRule("the rank of the result is unknown")
    return [n.unfolded(made)]


# *** slices ***


def slices(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Slice(input, begin, size)`."""
    if n.batched[2]:
        raise NoBatchRule("the size of the slice differs between examples")
    if not n.batched[1]:
        return n.make(n.inputs[0], n.prefixed(n.inputs[1], 0), n.prefixed(n.inputs[2], -1))
    size = n.constant(2)
    if size is None or (size < 0).any():
        raise NoBatchRule("the size of the slice is no constant")
    x, begin = n.spread(0), n.inputs[1]
    for axis, length in enumerate(size.tolist()):
        first = _column(b, begin, axis)
        positions = b.AddV2(b.ExpandDims(first, np.int32(1)), np.arange(length, dtype=begin.dtype.base.numpy))
        x = b.GatherV2(x, positions, np.int32(axis + 1), batch_dims=1)
    return [x]


def _column(b: Builder, matrix: Tensor, k: int) -> Tensor:
    """Returns column `k` of the matrix with a row for each example."""
    out: Tensor = b.StridedSlice(
        matrix, np.array([0, k], np.int32), np.array([0, k + 1], np.int32), np.array([1, 1], np.int32),
        begin_mask=1, end_mask=1, shrink_axis_mask=2,
    )  # fmt: skip
    return out


_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def _with_batch(n: BatchNode) -> dict[str, Any]:
    """Returns the masks of a slice behind the batch dimension, which is taken whole."""
    masks = {name: n.attrs[name] << 1 for name in _MASKS}
    masks["begin_mask"] |= 1
    masks["end_mask"] |= 1
    return masks


def _ends(n: BatchNode, i: int) -> list[Any]:
    """Returns begin, end and strides, inputs `i`, `i + 1`, `i + 2`, with entries for the batch dimension."""
    if any(n.batched[i : i + 3]):
        raise NoBatchRule("the ends of the slice differ between examples")
    return [n.prefixed(n.inputs[i], 0), n.prefixed(n.inputs[i + 1], 0), n.prefixed(n.inputs[i + 2], 1)]


def strided_slice(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `StridedSlice(input, begin, end, strides)`: also elements at positions that differ between examples."""
    if not any(n.batched[1:]):
        is_row = n.attrs["shrink_axis_mask"] == 1 and not n.attrs["new_axis_mask"] and not n.attrs["ellipsis_mask"]
        if is_row and n.op.inputs[1].shape == (1,) and n.shape(0):  # the passes on loops know a row at the front
            return n.make(moved(b, n.inputs[0], 0, 1, n.rank(0) + 1), *n.inputs[1:])
        return n.make(n.inputs[0], *_ends(n, 1), **_with_batch(n))
    places = _Places(b, n, 1, n.rank(0))
    x, is_batch = n.inputs[0], n.batched[0]
    for axis in reversed(places.axes):
        index = places.index(axis, x, is_batch)
        if is_batch:
            x = b.GatherV2(x, index, np.int32(axis + 1), batch_dims=1)
        else:
            x, is_batch = moved(b, b.GatherV2(x, index, np.int32(axis)), axis, 0, n.rank(0)), True
    begin, end, strides, masks = places.rest()
    if len(begin) > 1:
        x = b.StridedSlice(x, begin, end, strides, **masks)
    return [x]


def strided_slice_grad(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `StridedSliceGrad(shape, begin, end, strides, dy)`."""
    if n.batched[0]:
        raise NoBatchRule("the shape differs between examples")
    dy = n.spread(4)
    if not any(n.batched[1:4]):
        return n.make(n.prefixed(n.inputs[0]), *_ends(n, 1), dy, **_with_batch(n))
    places = _Places(b, n, 1, n.out_rank())
    numbers = places.leading()
    shape = n.prefixed(n.inputs[0])
    if shape.dtype is not np.dtype(np.int32):
        shape = b.Cast(shape, DstT=numbers.dtype.base)
    out: Tensor = b.ScatterNd(numbers, dy, shape)
    return [out]


def strided_slice_update(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `TensorStridedSliceUpdate(input, begin, end, strides, value)`."""
    x, value = n.spread(0), n.inputs[4]
    if not any(n.batched[1:4]):
        if n.batched[4]:
            value = with_ones(b, value, _rank_of_slice(n) - n.rank(4))
        return n.make(x, *_ends(n, 1), value, **_with_batch(n))
    places = _Places(b, n, 1, n.rank(0))
    numbers = places.leading()
    known = n.shape(0)
    if known is None or not shapes.is_full(known) or n.static_size is None:
        raise NoBatchRule("the shape of the tensor is unknown")
    rest = known[len(places.axes) :]
    value = n.lifted(4, len(rest))
    whole = b.BroadcastTo(value, np.array([n.static_size, *rest], np.int32))
    out: Tensor = b.TensorScatterUpdate(x, numbers, whole)
    return [out]


def _rank_of_slice(n: BatchNode) -> int:
    """Returns the rank of the selected part of input 0 of one example."""
    spec = n.op.inputs[1].shape
    if spec is None or spec[0] is None:
        raise NoBatchRule("the number of entries of the slice is unknown")
    bits = (1 << spec[0]) - 1
    ellipsis = n.attrs["ellipsis_mask"] & bits
    added = n.attrs["new_axis_mask"] & bits & ~ellipsis
    removed = n.attrs["shrink_axis_mask"] & bits & ~added & ~ellipsis
    rank: int = n.rank(0) + added.bit_count() - removed.bit_count()
    return rank


class _Places:
    """Slice with single positions that differ between examples: `x[i, 2:4]` with a batch of numbers i.

    Args:
      b: the builder.
      n: the node.
      i: the position of the input `begin`; `end` and `strides` follow.
      rank: the rank of the tensor in one example.

    Attributes:
      axes: the axes with single positions.

    Raises:
      NoBatchRule: another part of the slice differs between examples, or is no constant.
    """

    def __init__(self, b: Builder, n: BatchNode, i: int, rank: int) -> None:
        self.b, self.n, self.begin, self.rank = b, n, n.spread(i), rank
        if n.attrs["new_axis_mask"] or n.attrs["ellipsis_mask"]:
            raise NoBatchRule("a slice with positions that differ between examples has an ellipsis or a new axis")
        (size,) = n.op.inputs[i].shape or (None,)
        if size is None:
            raise NoBatchRule("the number of entries of the slice is unknown")
        self.axes = [k for k in range(size) if n.attrs["shrink_axis_mask"] >> k & 1]
        if not self.axes:
            raise NoBatchRule("the ends of the slice differ between examples")
        self.bounds: dict[int, tuple[int, int, int]] = {}
        for k in range(size):
            if k not in self.axes:
                ends = [_entry(n.op.inputs[i + j], k) for j in range(3)]
                if None in ends:
                    raise NoBatchRule("a range of the slice differs between examples, or is no constant")
                self.bounds[k] = tuple(ends)  # type: ignore[assignment]

    def index(self, axis: int, x: Tensor, is_batch: bool) -> Tensor:
        """Returns the positions along an axis, counted from the front."""
        b = self.b
        index = _column(b, self.begin, axis)
        shape = self.n.op.inputs[0].shape
        length: Any = None if shape is None else shape[axis]
        dtype = index.dtype.base
        if length is None:
            whole = b.Gather(b.Shape(x), np.int32(axis + is_batch))
            length = whole if whole.dtype.base is dtype else b.Cast(whole, DstT=dtype)
        else:
            length = np.array(length, dtype.numpy)
        out: Tensor = b.SelectV2(b.Less(index, np.array(0, dtype.numpy)), b.AddV2(index, length), index)
        return out

    def rest(self) -> tuple[Any, Any, Any, dict[str, int]]:
        """Returns begin, end, strides and masks for the other axes, behind the batch dimension."""
        masks = {"begin_mask": 1, "end_mask": 1}
        rows = [(0, 0, 1)]
        for at, (k, bounds) in enumerate(sorted(self.bounds.items()), 1):
            rows.append(bounds)
            for name in masks:
                masks[name] |= (self.n.attrs[name] >> k & 1) << at
        begin, end, strides = (np.array(column, np.int32) for column in zip(*rows, strict=True))
        return begin, end, strides, masks

    def leading(self) -> Tensor:
        """Returns index vectors [n, k + 1] of single positions along the first k axes.

        Raises:
          NoBatchRule: they are other axes, or another axis is not whole.
        """
        whole = [k for k in self.bounds if not self._is_whole(k)]
        if whole or self.axes != list(range(len(self.axes))):
            raise NoBatchRule("a slice with positions that differ between examples has a range as well")
        b, n = self.b, self.n
        shape = n.op.outputs[0].shape
        columns = []
        for k in self.axes:
            column = _column(b, self.begin, k)
            length = None if shape is None else shape[k]
            if length is None:
                raise NoBatchRule("the shape of the tensor is unknown")
            dtype = column.dtype.base.numpy
            columns.append(
                b.SelectV2(b.Less(column, np.array(0, dtype)), b.AddV2(column, np.array(length, dtype)), column)
            )
        vectors = b.Pack(columns, axis=1)
        out: Tensor = numbered(b, n, vectors, 1)
        return out

    def _is_whole(self, k: int) -> bool:
        attrs = self.n.attrs
        return bool(attrs["begin_mask"] >> k & 1 and attrs["end_mask"] >> k & 1 and self.bounds[k][2] == 1)


def _entry(vector: Tensor, k: int) -> int | None:
    """Returns entry `k` of a vector of one example, or None for no constant."""
    known = constant_value(vector)
    if known is not None:
        return int(known[k])
    if vector.op.type != "Pack":
        return None
    entry = constant_value(vector.op.inputs[k])
    return None if entry is None else int(entry)
