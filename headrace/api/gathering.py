"""Selection and replacement of elements: gather, scatter, slices, `where`, `unique`."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import arrays, math, reductions, scopes
from headrace.api.table_examples import example
from headrace.api.tensors import is_tensor
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor


def gather(
    params: Any,
    indices: Any,
    validate_indices: Any = None,
    axis: Any = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> Tensor:
    """Gathers the slices of `params` along an axis at given indices.

    Args:
      params: a tensor.
      indices: int32 or int64, from 0 to the length of the axis minus 1, of any shape; the result has this shape in
        place of the axis.
      validate_indices: ignored; indices are always checked.
      axis: an int scalar, not below `batch_dims`; None: `batch_dims`.
      batch_dims: number of batch axes, the first axes of both tensors.
      name: name of the operation; "GatherV2" if None.

    Raises:
      InvalidArgumentError: in a run, if an index is out of range.

    Source: TensorFlow's `tf.gather`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.constant_value(hr.gather(hr.constant([5, 6, 7]), [2, 0]))
      array([7, 5], dtype=int32)
    """
    axis = batch_dims if axis is None else axis
    b = scopes.builder(params, indices, axis)
    return b.make("GatherV2", (params, indices, axis), {"batch_dims": batch_dims}, name)


def gather_nd(params: Any, indices: Any, batch_dims: int = 0, name: str | None = None) -> Tensor:
    """Gathers the elements or slices of `params` at the indices in the rows of `indices`.

    Args:
      params: a tensor.
      indices: int32 or int64; the last axis holds the indices along the first axes of `params` (after the batch).
      batch_dims: number of batch axes, the first axes of both tensors, which must have equal static lengths.
      name: name of the operation; "GatherNd" if None.

    Source: TensorFlow's `tf.gather_nd`.

    Example:
      >>> import headrace as hr
      >>> hr.gather_nd([[1, 2], [3, 4]], [[1, 0]])
      <EagerTensor shape=[1] dtype=int32: array([3], dtype=int32)>
    """
    if not batch_dims:
        return scopes.builder(params, indices).make("GatherNd", (params, indices), {}, name)
    with scopes.name_scope(name, "BatchGatherND", [params, indices]):
        b = scopes.builder(params, indices)
        at = b.tensor(indices, None, "indices")
        if at.shape is None or not 0 < batch_dims < len(at.shape):
            raise ShapeError(f"'batch_dims' must be from 0 to below the rank of 'indices', got {batch_dims} and {at!r}")
        dims = arrays.shape(at)
        lead = [b.make("GatherV2", (dims, i, 0), {}) for i in range(len(at.shape) - 1)]
        # the index of each batch axis, laid out along that axis, before the indices given
        columns = []
        for i in range(batch_dims):
            along = np.array([-1 if j == i else 1 for j in range(len(lead) + 1)], np.int32)
            column = b.make("Reshape", (reductions.range(lead[i]), along), {})
            columns.append(math.cast(b.make("BroadcastTo", (column, [*lead, 1]), {}), at.dtype))
        return b.make("GatherNd", (params, b.make("ConcatV2", ([*columns, at], -1), {}, "concat")), {})


def repeat(input: Any, repeats: Any, axis: int | None = None, name: str | None = None) -> Tensor:
    """Repeats each element along an axis.

    Args:
      input: a tensor.
      repeats: number of repetitions, an int scalar; or an int vector with one number for each element of the axis.
      axis: index of the axis; None: the tensor is flattened first.
      name: name of the scope; "Repeat" if None.

    Source: TensorFlow's `tf.repeat`.

    Example:
      >>> import headrace as hr
      >>> hr.repeat([1, 2], 2)
      <EagerTensor shape=[4] dtype=int32: array([1, 1, 2, 2], dtype=int32)>
    """
    if axis is None:
        input = arrays.reshape(input, np.array([-1], np.int32))
        axis = 0
    with scopes.name_scope(name, "Repeat", [input, repeats]):
        b = scopes.builder(input, repeats)
        x, n = b.tensor(input, None, "input"), b.tensor(repeats, None, "repeats")
        if x.shape is None:
            raise ShapeError(f"repeat needs a tensor of known rank, got {x!r}")
        at = axis % len(x.shape)
        length = b.make("GatherV2", (arrays.shape(x), at, 0), {})
        # where each repeated element comes from: the number of runs that have ended before it
        n = b.make("BroadcastTo", (b.make("Cast", (n,), {"DstT": dtypes.int32}), [length]), {})
        ends = b.make("Cumsum", (n, 0), {})
        places = b.make("Range", (0, b.make("Sum", (n, 0), {}), 1), {}, "range")
        rows = [b.make("ExpandDims", (t, 0), {}) for t in (ends, places)]
        origin = b.make("UpperBound", rows, {"out_type": dtypes.int32})
        return b.make("GatherV2", (x, b.make("Squeeze", (origin,), {"squeeze_dims": (0,)}), at), {})


def scatter_nd(indices: Any, updates: Any, shape: Any, name: str | None = None) -> Tensor:
    """Adds `updates` to a tensor of zeros at given indices.

    Args:
      indices: int32 or int64; the last axis holds the indices along the first axes of the result.
      updates: the elements or slices, one for each row of indices; those of equal indices are added.
      shape: the shape of the result, an int vector.
      name: name of the operation; "ScatterNd" if None.

    Source: TensorFlow's `tf.scatter_nd`.

    Example:
      >>> import headrace as hr
      >>> hr.scatter_nd([[1]], [5], [3])
      <EagerTensor shape=[3] dtype=int32: array([0, 5, 0], dtype=int32)>
    """
    b = scopes.builder(indices, updates, shape)
    return b.make("ScatterNd", (indices, updates, shape), {}, name)


class TensorScatter(Protocol):
    """A function that changes a tensor at indices."""

    def __call__(self, tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Tensor: ...


def _tensor_scatter(name: str, type: str, what: str) -> TensorScatter:
    def function(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
        b = scopes.builder(tensor, indices, updates)
        return b.make(type, (tensor, indices, updates), {}, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Returns a tensor with {what} at the indices in the rows of `indices`.

    Args:
      tensor: a tensor, which is not changed.
      indices: int32 or int64; the last axis holds the indices along the first axes of `tensor`.
      updates: the elements or slices, one for each row.
      name: name of the operation; "{type}" if None.

    Source: TensorFlow's `tf.{name}`.

    {example(name)}
    """
    return function


tensor_scatter_nd_update = _tensor_scatter("tensor_scatter_nd_update", "TensorScatterUpdate", "`updates`")
tensor_scatter_nd_add = _tensor_scatter("tensor_scatter_nd_add", "TensorScatterAdd", "`updates` added")
tensor_scatter_nd_sub = _tensor_scatter("tensor_scatter_nd_sub", "TensorScatterSub", "`updates` subtracted")
tensor_scatter_nd_max = _tensor_scatter("tensor_scatter_nd_max", "TensorScatterMax", "the maximum of it and `updates`")
tensor_scatter_nd_min = _tensor_scatter("tensor_scatter_nd_min", "TensorScatterMin", "the minimum of it and `updates`")


def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Tensor:
    """Extracts the part of a tensor that starts at `begin` and has the shape `size`.

    Args:
      input_: a tensor.
      begin: an int vector: the first index along each axis.
      size: an int vector: the length along each axis; -1: up to the end.
      name: name of the operation; "Slice" if None.

    Source: TensorFlow's `tf.slice`.

    Example:
      >>> import headrace as hr
      >>> hr.slice([1, 2, 3], [1], [2])
      <EagerTensor shape=[2] dtype=int32: array([2, 3], dtype=int32)>
    """
    return scopes.builder(input_, begin, size).make("Slice", (input_, begin, size), {}, name)


def strided_slice(
    input_: Any,
    begin: Any,
    end: Any,
    strides: Any = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    name: str | None = None,
) -> Tensor:
    """Computes `input_[begin:end:strides]`; the indexing expression is the usual form.

    Args:
      input_: a tensor.
      begin, end, strides: int vectors of the same length; strides of 1 if None.
      begin_mask, end_mask: bit i: `begin[i]` or `end[i]` is ignored, and the range starts or ends with the axis.
      ellipsis_mask: bit i: position i stands for all axes that the other positions do not index.
      new_axis_mask: bit i: position i inserts an axis of length 1.
      shrink_axis_mask: bit i: position i selects the element `begin[i]` and removes the axis.
      name: name of the operation; "StridedSlice" if None.

    Source: TensorFlow's `tf.strided_slice`.

    Example:
      >>> import headrace as hr
      >>> hr.strided_slice([1, 2, 3], [0], [3], [2])
      <EagerTensor shape=[2] dtype=int32: array([1, 3], dtype=int32)>
    """
    if strides is None:
        strides = arrays.ones_like(begin)
    masks = {
        "begin_mask": begin_mask,
        "end_mask": end_mask,
        "ellipsis_mask": ellipsis_mask,
        "new_axis_mask": new_axis_mask,
        "shrink_axis_mask": shrink_axis_mask,
    }
    return scopes.builder(input_, begin, end, strides).make("StridedSlice", (input_, begin, end, strides), masks, name)


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """Selects elements of `x` or `y` by a condition; without them, finds true elements.

    Args:
      condition: bools; without `x` and `y` also numbers, which are true if they are not 0.
      x, y: tensors of the same dtype; all three broadcast together.
      name: name of the operation; "SelectV2", or "Where", if None.

    Returns:
      A tensor of the broadcast shape; without `x` and `y` an int64 matrix whose rows are the indices of true elements.

    Raises:
      ValueError: `x` is given without `y`, or `y` without `x`.

    Source: TensorFlow's `tf.where`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.constant([-1.0, 2.0])
      ...     y = hr.where(x > 0.0, x, 0.0)
      >>> hr.Session(graph=g).run(y)
      array([0., 2.], dtype=float32)
    """
    b = scopes.builder(condition, x, y)
    if x is None and y is None:
        return b.make("Where", (condition,), {}, name)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None")
    return b.make("SelectV2", (condition, x, y), {}, name)


class Unique(NamedTuple):
    """Result of `unique`."""

    y: Tensor
    idx: Tensor


class UniqueWithCounts(NamedTuple):
    """Result of `unique_with_counts`."""

    y: Tensor
    idx: Tensor
    count: Tensor  # type: ignore[assignment]  # the field has the name of a method of tuples, as in TensorFlow


class ListDiff(NamedTuple):
    """Result of `setdiff1d`."""

    out: Tensor
    idx: Tensor


def unique(x: Any, out_idx: Any = dtypes.int32, name: str | None = None) -> Unique:
    """Finds the different elements of a vector, in the order of their first occurrence.

    Args:
      x: a vector.
      out_idx: dtype of the indices: int32 or int64.
      name: name of the operation; "Unique" if None.

    Returns:
      The different elements `y`, and for each element of `x` its index in `y`.

    Source: TensorFlow's `tf.unique`.

    Example:
      >>> import headrace as hr
      >>> found = hr.unique([5, 7, 5])
      >>> found.y.numpy(), found.idx.numpy()
      (array([5, 7], dtype=int32), array([0, 1, 0], dtype=int32))
    """
    return Unique(*scopes.builder(x).make("Unique", (x,), {"out_idx": dtypes.as_dtype(out_idx)}, name))


def unique_with_counts(x: Any, out_idx: Any = dtypes.int32, name: str | None = None) -> UniqueWithCounts:
    """Finds the different elements of a vector and counts them; see `unique`.

    Args:
      x: a vector.
      out_idx: dtype of the indices and counts: int32 or int64.
      name: name of the operation; "UniqueWithCounts" if None.

    Source: TensorFlow's `tf.unique_with_counts`.

    Example:
      >>> import headrace as hr
      >>> hr.unique_with_counts([4, 4, 5]).count
      <EagerTensor shape=[2] dtype=int32: array([2, 1], dtype=int32)>
    """
    attrs = {"out_idx": dtypes.as_dtype(out_idx)}
    return UniqueWithCounts(*scopes.builder(x).make("UniqueWithCounts", (x,), attrs, name))


def setdiff1d(x: Any, y: Any, index_dtype: Any = dtypes.int32, name: str | None = None) -> ListDiff:
    """Finds the elements of vector `x` that are not in vector `y`.

    Args:
      x, y: vectors of the same dtype.
      index_dtype: dtype of the indices: int32 or int64.
      name: name of the operation; "ListDiff" if None.

    Source: TensorFlow's `tf.compat.v1.setdiff1d`.

    Example:
      >>> import headrace as hr
      >>> hr.setdiff1d([1, 2, 3], [2]).out
      <EagerTensor shape=[2] dtype=int32: array([1, 3], dtype=int32)>
    """
    attrs = {"out_idx": dtypes.as_dtype(index_dtype)}
    return ListDiff(*scopes.builder(x, y).make("ListDiff", (x, y), attrs, name))


def dynamic_partition(data: Any, partitions: Any, num_partitions: int, name: str | None = None) -> list[Tensor]:
    """Partitions the rows of a tensor by partition numbers.

    Args:
      data: a tensor.
      partitions: int32: the partition of each row, below `num_partitions`.
      num_partitions: number of partitions, an int.
      name: name of the operation; "DynamicPartition" if None.

    Returns:
      A list of tensors with the rows of partition 0, 1, ...

    Source: TensorFlow's `tf.dynamic_partition`.

    Example:
      >>> import headrace as hr
      >>> [part.numpy().tolist() for part in hr.dynamic_partition([1, 2, 3], [0, 1, 0], 2)]
      [[1, 3], [2]]
    """
    b = scopes.builder(data, partitions)
    return nest.as_list(b.make("DynamicPartition", (data, partitions), {"num_partitions": num_partitions}, name))


def dynamic_stitch(indices: Any, data: Any, name: str | None = None) -> Tensor:
    """Merges the rows of several tensors into one tensor at given positions.

    Args:
      indices: a list of int32 tensors: the positions of the rows of each tensor of `data`.
      data: a list of tensors.
      name: name of the operation; "DynamicStitch" if None.

    Source: TensorFlow's `tf.dynamic_stitch`.

    Example:
      >>> import headrace as hr
      >>> hr.dynamic_stitch([[0, 2], [1]], [[1, 3], [2]])
      <EagerTensor shape=[3] dtype=int32: array([1, 2, 3], dtype=int32)>
    """
    return scopes.builder(*indices, *data).make("DynamicStitch", (list(indices), list(data)), {}, name)


def sequence_mask(lengths: Any, maxlen: Any = None, dtype: Any = dtypes.bool_, name: str | None = None) -> Tensor:
    """For each length a vector of which the first so many elements hold.

    Args:
      lengths: integers of any shape.
      maxlen: how long the vectors are; None: as the greatest length.
      dtype: of the result.
      name: name of the scope; "SequenceMask" if None.

    Raises:
      ValueError: `maxlen` is no scalar.

    Source: TensorFlow's `tf.sequence_mask`.

    Example:
      >>> import headrace as hr
      >>> hr.sequence_mask([1, 3])
      <EagerTensor shape=[2,3] dtype=bool: array([[ True, False, False],
             [ True,  True,  True]])>
    """
    with scopes.name_scope(name, "SequenceMask", [lengths, maxlen]):
        b = scopes.builder(lengths, maxlen)
        n = b.tensor(lengths)
        t = n.dtype.base
        if maxlen is None:
            most = reductions.reduce_max(n)
            most = b.make("Maximum", (b.const(0, t), most), {})
        else:
            most = b.tensor(maxlen, None if is_tensor(maxlen) else t)
        if not shapes.compatible(most.shape, ()):
            raise ShapeError(f"'maxlen' must be a scalar, got {most!r}")
        places = b.make("Range", (b.const(0, most.dtype.base), most, b.const(1, most.dtype.base)), {})
        ends = b.make("ExpandDims", (n, -1), {})
        mask = b.make("Less", (places, b.make("Cast", (ends,), {"DstT": most.dtype.base})), {})
        return math.cast(mask, dtype)
