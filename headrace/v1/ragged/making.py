"""Functions that make ragged tensors: of lists, placeholders, ranges, stacked rows, masks and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import scopes
from headrace.dtypes import as_dtype
from headrace.v1 import array_ops, math_ops
from headrace.v1.ragged.ragged_tensor import RaggedTensor, RaggedTensorValue, gather_rows
from headrace.v1.scoping import name_scope
from headrace.v1.tensor_shape import TensorShape


def _depth(x: Any) -> int:
    """Greatest number of nested lists around an element."""
    if isinstance(x, np.ndarray):
        return x.ndim
    return 1 + max(map(_depth, x), default=0) if isinstance(x, (list, tuple)) else 0


def _parts(pylist: Any, rank: int) -> tuple[list[Any], list[list[int]]]:
    """Returns the elements below `rank` ragged axes, and the row splits of these axes.

    Raises:
      ValueError: an element is there in the place of a list.
    """
    splits, rows = [], list(pylist)
    for _ in range(rank):
        if any(not isinstance(row, (list, tuple, np.ndarray)) for row in rows):
            raise ValueError(f"Invalid pylist={pylist!r}: all scalar values must have the same nesting depth")
        splits.append(np.cumsum([0, *map(len, rows)]).tolist())
        rows = [x for row in rows for x in row]
    return rows, splits


def constant_value(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    row_splits_dtype: Any = "int64",
) -> Any:
    """Makes a `RaggedTensorValue` of nested lists; an array, if they have no ragged axis.

    Args:
      pylist: nested lists; all numbers have the same depth.
      dtype: NumPy's dtype of the values.
      ragged_rank: number of ragged axes; None: all but the first axis and those of `inner_shape`.
      inner_shape: shape of the innermost, uniform values.
      row_splits_dtype: int64 or int32.

    Raises:
      ValueError: the numbers have different depths, or the ragged rank is too large.

    Source: TensorFlow's `tf.ragged.constant_value`.
    """
    depth = _depth(pylist)
    if depth == 0 or (depth == 1 and not ragged_rank):
        return np.array(pylist, dtype)
    inner = () if inner_shape is None else tuple(inner_shape)
    rank = depth - 1 - len(inner) if ragged_rank is None else ragged_rank
    if rank >= max(depth, 1):
        raise ValueError(f"Invalid pylist={pylist!r}: requires ragged_rank < {depth}, got {rank}")
    if rank == 0:
        return np.array(pylist, dtype)
    rows, splits = _parts(pylist, rank)
    try:
        flat = np.array(rows, dtype) if rows else np.zeros((0, *inner), dtype)
    except ValueError as e:
        raise ValueError(f"Invalid pylist={pylist!r}: all scalar values must have the same nesting depth") from e
    if flat.dtype == object and not any(isinstance(x, (str, bytes)) for x in flat.flat):
        raise ValueError(f"Invalid pylist={pylist!r}: all scalar values must have the same nesting depth")
    kind = np.dtype(as_dtype(row_splits_dtype).numpy)
    return RaggedTensorValue.from_parts(flat, *[np.array(s, kind) for s in splits])


def constant(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = dtypes.int64,
) -> Any:
    """Makes a `RaggedTensor` of nested lists; a tensor, if they have no ragged axis.

    Args:
      pylist, ragged_rank, inner_shape, row_splits_dtype: see `constant_value`.
      dtype: dtype of the values.
      name: of the operations.

    Source: TensorFlow's `tf.ragged.constant`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     sess.run(tf.ragged.constant([[1, 2], [], [3]]))
      tf.RaggedTensorValue(values=array([1, 2, 3], dtype=int32), row_splits=array([0, 2, 2, 3]))
    """
    with name_scope(name, "RaggedConstant"):
        found = constant_value(pylist, None, ragged_rank, inner_shape, row_splits_dtype)
        if not isinstance(found, RaggedTensorValue):
            return array_ops.constant(found.tolist(), dtype)
        flat = found.flat_values
        given = flat if flat.size == 0 else flat.tolist()
        kind = dtypes.float32 if dtype is None and flat.size == 0 else dtype
        values = array_ops.constant(given, kind, name="values")
        return RaggedTensor.of_parts(values, [array_ops.constant(s) for s in found.nested_row_splits])


def placeholder(dtype: Any, ragged_rank: int, value_shape: Any = None, name: str | None = None) -> Any:
    """Adds placeholders for a ragged tensor, which is fed with a `RaggedTensorValue`.

    Args:
      dtype: dtype of the values.
      ragged_rank: number of ragged axes; 0: a plain placeholder.
      value_shape: shape of the innermost, uniform values.
      name: of the operations.

    Source: TensorFlow's `tf.ragged.placeholder`.
    """
    if ragged_rank == 0:
        return array_ops.placeholder(dtype, value_shape, name)
    with name_scope(name, "RaggedPlaceholder"):
        shape = None if value_shape is None else [None, *TensorShape(value_shape).as_list()]
        flat = array_ops.placeholder(dtype, shape, "flat_values")
        splits = [array_ops.placeholder(dtypes.int64, [None], f"row_splits_{i}") for i in range(ragged_rank)]
        return RaggedTensor.of_parts(flat, splits)


def ragged_range(
    starts: Any,
    limits: Any = None,
    deltas: Any = 1,
    dtype: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = dtypes.int64,
) -> Any:
    """Makes rows of numbers from `starts` to below `limits`.

    Args:
      starts, limits, deltas: scalars or vectors; without `limits`, `starts` are the limits.
      dtype: dtype of the numbers.
      name: of the operations.
      row_splits_dtype: int64 or int32.

    Source: TensorFlow's `tf.ragged.range`.
    """
    if limits is None:
        starts, limits = 0, starts
    with name_scope(name, "RaggedRange", [starts, limits, deltas]):
        known = next((x for x in (starts, limits, deltas) if array_ops.is_tensor(x)), None)
        kind = dtype or (known.dtype if known is not None else None)
        if kind is None:
            kind = np.result_type(*[np.asarray(x) for x in (starts, limits, deltas)])
            kind = dtypes.int32 if kind.kind == "i" else dtypes.float32
        given = [math_ops.cast(x, kind) for x in (starts, limits, deltas)]
        made = scopes.builder(*given).make("RaggedRange", tuple(given), {"Tsplits": as_dtype(row_splits_dtype)})
        return RaggedTensor.of_parts(made[1], [made[0]])


def as_ragged(x: Any) -> Any:
    """Returns a ragged tensor itself or of its value; anything else as a tensor."""
    if isinstance(x, RaggedTensorValue):
        return RaggedTensor.from_nested_row_splits(x.flat_values, x.nested_row_splits, validate=False)
    return x if isinstance(x, RaggedTensor) else array_ops.convert_to_tensor(x)


def stack(values: Sequence[Any], axis: int = 0, name: str | None = None) -> Any:
    """Stacks tensors or ragged tensors of one rank as the rows of a ragged tensor.

    Args:
      values: the tensors.
      axis: 0.
      name: of the operations.

    Raises:
      ValueError: another axis is wanted, or tensors and ragged tensors of different ragged ranks are given.

    Source: TensorFlow's `tf.ragged.stack`.
    """
    if axis != 0:
        raise ValueError(f"ragged.stack makes a new first axis, got axis={axis}")
    with name_scope(name, "RaggedStack"):
        rows = [as_ragged(x) for x in values]
        if all(not isinstance(x, RaggedTensor) and x.get_shape().ndims == 0 for x in rows):
            return array_ops.stack(rows)
        rows = [x if isinstance(x, RaggedTensor) or x.get_shape().ndims == 1 else RaggedTensor.from_tensor(x)
                for x in rows]  # fmt: skip
        lengths = [
            x.nrows(dtypes.int64) if isinstance(x, RaggedTensor) else array_ops.size(x, out_type=dtypes.int64)
            for x in rows
        ]
        return RaggedTensor.from_row_lengths(join(rows), array_ops.stack(lengths), validate=False)


def join(rows: Sequence[Any]) -> Any:
    """Joins tensors, or ragged tensors of one ragged rank, along the first axis."""
    ranks = {x.ragged_rank if isinstance(x, RaggedTensor) else 0 for x in rows}
    if len(ranks) > 1:
        raise ValueError(f"ragged tensors of the ragged ranks {sorted(ranks)} cannot be stacked")
    if ranks == {0}:
        return array_ops.concat(list(rows), 0)
    lengths = array_ops.concat([x.row_lengths() for x in rows], 0)
    return RaggedTensor.from_row_lengths(join([x.values for x in rows]), lengths, validate=False)


def boolean_mask(data: Any, mask: Any, name: str | None = None) -> Any:
    """Keeps the elements of `data` where `mask` is true, as rows of different lengths.

    Args:
      data: a tensor or ragged tensor.
      mask: bools, a vector for rows; or a matrix or ragged matrix of the shape of the first two axes of `data`.
      name: of the operations.

    Raises:
      ValueError: the mask has another rank, or is ragged where `data` is not.

    Source: TensorFlow's `tf.ragged.boolean_mask`.
    """
    with name_scope(name, "RaggedMask"):
        data, mask = as_ragged(data), as_ragged(mask)
        rank = mask.get_shape().ndims
        if rank not in (1, 2):
            raise ValueError(f"mask must be a vector or a matrix, got the rank {rank}")
        if rank == 1:
            return gather_rows(data, array_ops.where(mask)[:, 0])
        if not isinstance(data, RaggedTensor) and not isinstance(mask, RaggedTensor):
            lengths = math_ops.reduce_sum(math_ops.cast(mask, dtypes.int64), axis=1)
            return RaggedTensor.from_row_lengths(array_ops.boolean_mask(data, mask), lengths, validate=False)
        data, mask = (x if isinstance(x, RaggedTensor) else RaggedTensor.from_tensor(x) for x in (data, mask))
        kept = math_ops.cast(mask.values, dtypes.int64)
        rows = math_ops.cast(mask.nrows(), dtypes.int32)
        lengths = math_ops.unsorted_segment_sum(kept, mask.value_rowids(), rows)
        values = gather_rows(data.values, array_ops.where(mask.values)[:, 0])
        return RaggedTensor.from_row_lengths(values, lengths, validate=False)


def stack_dynamic_partitions(data: Any, partitions: Any, num_partitions: Any, name: str | None = None) -> Any:
    """Makes row i of the elements of `data` whose partition is i.

    Args:
      data: a tensor or ragged tensor.
      partitions: vector of the partition of each row of `data`.
      num_partitions: number of partitions, the number of rows of the result.
      name: of the operations.

    Source: TensorFlow's `tf.ragged.stack_dynamic_partitions`.
    """
    with name_scope(name, "SegmentStack"):
        data, partitions = as_ragged(data), array_ops.convert_to_tensor(partitions, name="partitions")
        order = math_ops.argsort(partitions, stable=True)
        rowids = array_ops.gather(partitions, order)
        return RaggedTensor.from_value_rowids(gather_rows(data, order), rowids, num_partitions)
