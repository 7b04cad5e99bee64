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


def bincount(
    arr: Any,
    weights: Any = None,
    minlength: Any = None,
    maxlength: Any = None,
    dtype: Any = dtypes.int32,
    name: str | None = None,
    axis: int | None = None,
    binary_output: bool = False,
) -> Any:
    """How often each number occurs: element i of the result counts the i's.

    Args:
      arr: ints of 0 or more: a tensor of any shape, or a sparse tensor (whose zeros are not counted).
      weights: what each counts for, of the shape of `arr`; None: 1.
      minlength: the least length of the result; its length is the greatest number + 1 else.
      maxlength: the greatest length: numbers from it on are not counted.
      dtype: of the counts, where there are no weights.
      name: name of the scope; "bincount" if None.
      axis: None or 0: all are counted together; -1: row by row, of a matrix.
      binary_output: 1 for what occurs at all, however often.

    Raises:
      ValueError: `weights` and `binary_output` are both given, or another axis.
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
    """How long the counts of `x` are: the greatest number + 1, within the bounds."""
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
    """The weights of the elements of a tensor; an empty vector if there are none.

    Raises:
      ValueError: they are not a tensor.
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
    """The weights of the elements of a sparse tensor, an empty vector without any.

    Raises:
      ValueError: they are not a sparse tensor.
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
    """`bincount` of a sparse tensor."""
    sp = arr if arr.dtype.is_integer else arr.with_values(math.cast(arr.values, dtypes.int32))
    b = scopes.builder(*nest.flatten(sp), weights, minlength, maxlength)
    # how many numbers there are to count; the greatest of none is the least of all, of which 1 more must be 0
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
) -> Any:
    """How many of the values are in each of `nbins` equal parts of a range; what is outside counts for the ends.

    Args:
      values: a tensor of numbers.
      value_range: the two ends of the range, of the same dtype, the lower one first.
      nbins: how many parts, an int scalar above 0.
      dtype: int32 or int64.
      name: name of the operation; "histogram_fixed_width" if None.

    Raises:
      InvalidArgumentError: in a run, if the range or `nbins` is none.

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
) -> Any:
    """In which of `nbins` equal parts of a range each value is, an int32 from 0; what is outside is in the outer ones.

    Args:
      values: a tensor of floats.
      value_range: the two ends of the range, of the same dtype, the lower one first.
      nbins: how many parts, an int scalar above 0.
      dtype: accepted for TensorFlow's sake, where it changes nothing either.
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


def bucketize(input: Any, boundaries: Sequence[float], name: str | None = None) -> Any:
    """In which bucket each number is: how many of the boundaries it is not below, an int32.

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


def nth_element(input: Any, n: Any, reverse: bool = False, name: str | None = None) -> Any:
    """The element of each row of the last axis that would be at place `n` if the row were sorted.

    Args:
      input: a tensor of numbers.
      n: an int scalar, from 0 to below the length of the last axis.
      reverse: whether the row would be in descending order.
      name: name of the operation; "NthElement" if None.

    Source: TensorFlow's `tf.raw_ops.NthElement`.

    Example:
      >>> import headrace as hr
      >>> hr.nth_element([[3, 1, 2]], 1)
      <EagerTensor shape=[1] dtype=int32: array([2], dtype=int32)>
    """
    return scopes.builder(input, n).make("NthElement", (input, n), {"reverse": reverse}, name)


def unravel_index(indices: Any, dims: Any, name: str | None = None) -> Any:
    """The indices in a tensor of the shape `dims` of the elements that have these numbers when all are counted through.

    Args:
      indices: ints: a scalar or vector.
      dims: the shape, an int vector.
      name: name of the operation; "UnravelIndex" if None.

    Returns:
      Ints: of each axis a row.

    Raises:
      InvalidArgumentError: in a run, if there is no such element.

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
) -> Any:
    """How often each class was taken for each: row i, column j counts the examples of class i that were said to be j.

    Args:
      labels: what examples are: a vector of ints of 0 or more.
      predictions: what they were said to be. One of the two may have a second axis of length 1.
      num_classes: how many classes there are; as many as occur if None.
      weights: for each example what it counts; 1 if None.
      dtype: of the result.
      name: name of the scope; "confusion_matrix" if None.

    Raises:
      InvalidArgumentError: a class is negative, or not below `num_classes`.

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
            classes = math.maximum(*[reductions.reduce_max(x) for x in pairs]) + 1
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
