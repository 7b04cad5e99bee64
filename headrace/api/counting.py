"""Counting: occurrences of numbers, bins of a range, and conversions of flat indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace import dtypes, nest
from headrace.api import arrays, debugging, math, reductions, scopes
from headrace.api.debugging import Assert
from headrace.api.sparse_tensor import SparseTensor
from headrace.api.tensors import identity, is_tensor
from headrace.ir.tensor_type import Tensor


def bincount(
    arr: Any,
    weights: Any = None,
    minlength: Any = None,
    maxlength: Any = None,
    dtype: Any = dtypes.int32,
    name: str | None = None,
    axis: int | None = None,
    binary_output: bool = False,
) -> Tensor:
    """Counts the occurrences of each integer: element i of the result counts the value i.

    Args:
      arr: ints, at least 0: a tensor of any shape, or a sparse tensor, of which only stored values are counted.
      weights: the weight of each value, of the shape of `arr`; None: 1.
      minlength: the least length of the result; None: 0. The length is otherwise the greatest value + 1.
      maxlength: the greatest length of the result; values from it on are ignored.
      dtype: dtype of the counts if there are no weights.
      name: name of the scope; "bincount" if None.
      axis: None or 0: all values are counted together; -1: each row of a matrix is counted.
      binary_output: whether the result is 1 for each value that occurs, in place of its count.

    Raises:
      ValueError: both `weights` and `binary_output` are given, or the axis is unsupported.
      InvalidArgumentError: in a run, if a number is negative.

    Source: TensorFlow's `tf.math.bincount`.

    Example:
      >>> import headrace as hr
      >>> hr.bincount([1, 1, 3])
      <EagerTensor shape=[4] dtype=int32: array([0, 2, 0, 1], dtype=int32)>
    """
    with scopes.name_scope(name, "bincount", [arr, weights]):
        if weights is not None and binary_output:
            raise ValueError("Arguments `binary_output` and `weights` are mutually exclusive.")
        if axis not in (None, 0, -1):
            raise ValueError(f"Unsupported value for argument axis={axis}. Only 0 and -1 are currently supported.")
        counted = dtypes.as_dtype(dtype) if dtype is not None else None
        if isinstance(arr, SparseTensor):
            return _sparse_counts(arr, weights, minlength, maxlength, counted, axis, binary_output)
        b = scopes.builder(arr, weights, minlength, maxlength)
        x = b.tensor(arr, None, "arr")
        if weights is not None and not isinstance(weights, SparseTensor):
            weights = b.tensor(weights, None, "weights")
        x = x if x.dtype.base.is_integer else math.cast(x, dtypes.int32)
        size = _lengths(b, x, None, minlength, maxlength)
        if axis != -1:
            weights = weights if weights is None else arrays.reshape(weights, [-1])
            x = arrays.reshape(x, [-1])
        inputs = (x, size, dense_weights(x, weights, counted))
        return b.make("DenseBincount", inputs, {"binary_output": binary_output})


def _lengths(b: Any, x: Any, greatest: Any, minlength: Any, maxlength: Any) -> Any:
    """Returns the length of the counts: the greatest value + 1, within the bounds."""
    is_something = math.greater(arrays.size(x), 0)
    if greatest is None:
        greatest = reductions.reduce_max(x)
    dtype = x.dtype.base
    size = math.multiply(math.cast(is_something, dtype), math.add(greatest, b.const(1, dtype, "add/y")))
    if minlength is not None:
        size = b.make("Maximum", (b.tensor(minlength, dtype, "minlength"), size), {})
    if maxlength is not None:
        size = b.make("Minimum", (b.tensor(maxlength, dtype, "maxlength"), size), {})
    return size


def dense_weights(values: Any, weights: Any, dtype: Any) -> Any:
    """Returns the weights of the elements of a tensor; an empty vector for None.

    Raises:
      ValueError: `weights` is not a tensor.
    """
    if weights is None:
        wanted = dtype or values.dtype.base
        return scopes.builder(values).const(np.zeros(0, wanted.numpy), wanted)
    if not is_tensor(weights):
        raise ValueError(
            f"Argument `weights` must be a Tensor if `values` is a Tensor. Received weights={weights!r} of type: "
            f"{type(weights).__name__}"
        )
    return weights


def sparse_weights(values: SparseTensor, weights: Any, dtype: Any) -> Any:
    """Returns the weights of the values of a sparse tensor; an empty vector for None.

    Raises:
      ValueError: `weights` is not a sparse tensor.
    """
    b = scopes.builder(*nest.flatten(values))
    if weights is None:
        return b.const(np.zeros(0, (dtype or values.dtype).numpy), dtype or values.dtype.base)
    if not isinstance(weights, SparseTensor):
        raise ValueError(
            "Argument `weights` must be a SparseTensor if `values` is a SparseTensor. Received "
            f"weights={weights!r} of type: {type(weights).__name__}"
        )
    checks = []
    for what, one, other in (("dense shape", weights.dense_shape, values.dense_shape),
                             ("indices", weights.indices, values.indices)):  # fmt: skip
        if one is not other:
            checks.append(
                debugging.assert_equal(one, other, message=f"'weights' and 'values' must have the same {what}.")
            )
    with scopes.control_dependencies([c for c in checks if c is not None]):
        return identity(weights.values) if checks else weights.values


def _sparse_counts(
    arr: SparseTensor, weights: Any, minlength: Any, maxlength: Any, dtype: Any, axis: int | None, binary_output: bool
) -> Any:
    """Computes `bincount` of a sparse tensor."""
    sp = arr if arr.dtype.is_integer else arr.with_values(math.cast(arr.values, dtypes.int32))
    b = scopes.builder(*nest.flatten(sp), weights, minlength, maxlength)
    # for an empty tensor the maximum is the least int, and must become -1
    greatest = math.maximum(reductions.reduce_max(sp.values), b.const(-1, sp.dtype.base))
    size = _lengths(b, sp.values, greatest, minlength, maxlength)
    attrs = {"binary_output": binary_output}
    if axis == -1:
        inputs = (*nest.flatten(sp), size, sparse_weights(sp, weights, dtype))
        return b.make("SparseBincount", inputs, attrs)
    of_each = dense_weights(sp.values, None, dtype) if weights is None else sparse_weights(sp, weights, dtype)
    return b.make("DenseBincount", (sp.values, size, of_each), attrs)


def histogram_fixed_width(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = dtypes.int32, name: str | None = None
) -> Tensor:
    """Counts the values in each of `nbins` equal bins of a range.

    Values outside of the range are counted in the first or last bin.

    Args:
      values: a tensor of numbers.
      value_range: the lower and the upper end of the range, of the same dtype.
      nbins: number of bins, a positive int scalar.
      dtype: int32 or int64.
      name: name of the operation; "histogram_fixed_width" if None.

    Raises:
      InvalidArgumentError: in a run, if the range or `nbins` is invalid.

    Source: TensorFlow's `tf.histogram_fixed_width`.

    Example:
      >>> import headrace as hr
      >>> hr.histogram_fixed_width([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0], [0.0, 5.0], nbins=5)
      <EagerTensor shape=[5] dtype=int32: array([2, 1, 1, 0, 2], dtype=int32)>
    """
    with scopes.name_scope(name, "histogram_fixed_width", [values, value_range, nbins]) as scope:
        attrs = {"dtype": dtypes.as_dtype(dtype)}
        inputs = (values, value_range, nbins)
        return scopes.builder(*inputs).make("HistogramFixedWidth", inputs, attrs, scope)


def histogram_fixed_width_bins(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = dtypes.int32, name: str | None = None
) -> Tensor:
    """Finds the bin of each value among `nbins` equal bins of a range: an int32.

    Values outside of the range are in the first or last bin.

    Args:
      values: a tensor of floats.
      value_range: the lower and the upper end of the range, of the same dtype.
      nbins: number of bins, a positive int scalar.
      dtype: ignored, as in TensorFlow.
      name: name of the scope; "histogram_fixed_width_bins" if None.

    Raises:
      InvalidArgumentError: in a run, if `nbins` is not above 0.

    Source: TensorFlow's `tf.histogram_fixed_width_bins`.

    Example:
      >>> import headrace as hr
      >>> hr.histogram_fixed_width_bins([-1.0, 0.5, 1.5, 7.0], [0.0, 5.0], nbins=5)
      <EagerTensor shape=[4] dtype=int32: array([0, 0, 1, 4], dtype=int32)>
    """
    with scopes.name_scope(name, "histogram_fixed_width_bins", [values, value_range, nbins]):
        b = scopes.builder(values, value_range, nbins)
        x, ends = b.tensor(values, None, "values"), b.tensor(value_range, None, "value_range")
        n = b.tensor(nbins, dtypes.int32, "nbins")
        checked = Assert(math.greater(n, 0), ["nbins must be > 0, got", n])
        with scopes.control_dependencies([] if checked is None else [checked]):
            n = identity(n)
        parts = math.cast(n, x.dtype.base)
        share = math.truediv(x - ends[0], ends[1] - ends[0], name="scaled_values")
        at = math.floor(parts * share, name="indices")
        return math.cast(math.clip_by_value(at, 0.0, parts - 1), dtypes.int32)


def bucketize(input: Any, boundaries: Sequence[float], name: str | None = None) -> Tensor:
    """Finds the bucket of each number: the int32 count of boundaries not above it.

    Args:
      input: a tensor of numbers.
      boundaries: floats, in ascending order.
      name: name of the operation; "Bucketize" if None.

    Source: TensorFlow's `tf.raw_ops.Bucketize`.

    Example:
      >>> import headrace as hr
      >>> hr.bucketize([-5, 10, 150], [0, 10, 100])
      <EagerTensor shape=[3] dtype=int32: array([0, 2, 3], dtype=int32)>
    """
    attrs = {"boundaries": tuple(float(x) for x in boundaries)}
    return scopes.builder(input).make("Bucketize", (input,), attrs, name)


def nth_element(input: Any, n: Any, reverse: bool = False, name: str | None = None) -> Tensor:
    """Finds the element at position `n` of each row in sorted order.

    Args:
      input: a tensor of numbers.
      n: an int scalar, less than the length of the last axis.
      reverse: whether the order is descending.
      name: name of the operation; "NthElement" if None.

    Source: TensorFlow's `tf.raw_ops.NthElement`.

    Example:
      >>> import headrace as hr
      >>> hr.nth_element([[3, 1, 2]], 1)
      <EagerTensor shape=[1] dtype=int32: array([2], dtype=int32)>
    """
    return scopes.builder(input, n).make("NthElement", (input, n), {"reverse": reverse}, name)


def unravel_index(indices: Any, dims: Any, name: str | None = None) -> Tensor:
    """Converts flat indices to indices along each axis.

    Args:
      indices: ints: a scalar or vector of flat indices in row-major order.
      dims: the shape of the tensor, an int vector.
      name: name of the operation; "UnravelIndex" if None.

    Returns:
      A tensor with a row of indices for each axis.

    Raises:
      InvalidArgumentError: in a run, if an index is out of range.

    Source: TensorFlow's `tf.unravel_index`.

    Example:
      >>> import headrace as hr
      >>> hr.unravel_index([2, 5], [3, 2])
      <EagerTensor shape=[2,2] dtype=int32: array([[1, 2],
             [0, 1]], dtype=int32)>
    """
    return scopes.builder(indices, dims).make("UnravelIndex", (indices, dims), {}, name)


def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    weights: Any = None,
    dtype: Any = dtypes.int32,
    name: str | None = None,
) -> Tensor:
    """Computes the confusion matrix: element [i, j] counts examples of class i predicted as j.

    Args:
      labels: the true classes: a vector of ints, at least 0.
      predictions: the predicted classes. One of the two may have a second axis of length 1.
      num_classes: number of classes; None: the greatest class + 1.
      weights: the weight of each example; None: 1.
      dtype: dtype of the result.
      name: name of the scope; "confusion_matrix" if None.

    Raises:
      InvalidArgumentError: in a run, if a class is negative, or not below `num_classes`.

    Source: TensorFlow's `tf.math.confusion_matrix`.

    Example:
      >>> import headrace as hr
      >>> hr.confusion_matrix([0, 1], [1, 1]).numpy().tolist()
      [[0, 1], [0, 1]]
    """
    with scopes.name_scope(name, "confusion_matrix", [labels, predictions, num_classes, weights]):
        b = scopes.builder(labels, predictions, num_classes, weights)
        known, said = b.tensor(labels, None, "labels"), b.tensor(predictions, None, "predictions")
        if known.shape is not None and said.shape is not None:
            more = len(said.shape) - len(known.shape)
            said = arrays.squeeze(said, [-1]) if more == 1 else said
            known = arrays.squeeze(known, [-1]) if more == -1 else known
        pairs = [math.cast(x, dtypes.int64) for x in (known, said)]
        checks = [
            debugging.assert_non_negative(x, message=f"`{what}` contains negative values")
            for x, what in zip(pairs, ("labels", "predictions"), strict=True)
        ]
        if num_classes is None:
            greatest, predicted = [reductions.reduce_max(x) for x in pairs]
            classes = math.maximum(greatest, predicted) + 1
        else:
            classes = math.cast(num_classes, dtypes.int64)
            checks += [
                debugging.assert_less(x, classes, message=f"`{what}` out of bound")
                for x, what in zip(pairs, ("labels", "predictions"), strict=True)
            ]
        with scopes.control_dependencies([c for c in checks if c is not None]):
            pairs = [identity(x) for x in pairs]
        if weights is None:
            counted = arrays.ones_like(pairs[1], dtype)
        else:
            counted = math.cast(weights, dtype)
        return b.make("ScatterNd", (arrays.stack(pairs, 1), counted, arrays.stack([classes, classes])), {})
