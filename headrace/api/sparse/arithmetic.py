"""Arithmetic on the values of sparse tensors. `hr.sparse` exports these names too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import arrays, reductions, scopes
from headrace.api.counting import dense_weights, sparse_weights
from headrace.api.debugging import assert_equal
from headrace.api.sparse_tensor import SparseTensor, as_sparse, is_sparse
from headrace.api.table_examples import example
from headrace.ir.tensor_type import Tensor

# *** element by element ***


def add(a: Any, b: Any, threshold: Any = 0) -> Any:
    """Adds two tensors, of which at least one is sparse.

    Args:
      a, b: tensors of the same shape, at least one of them sparse.
      threshold: a real scalar: elements of a sparse sum whose magnitude is below it are dropped.

    Returns:
      A sparse tensor if both are, else a tensor.

    Raises:
      TypeError: neither argument is sparse.

    Source: TensorFlow's `tf.sparse.add`.

    Example:
      >>> import headrace as hr
      >>> x = hr.SparseTensor([[0], [2]], [1.0, 2.0], [3])
      >>> hr.sparse.add(x, [10.0, 10.0, 10.0])
      <EagerTensor shape=[3] dtype=float32: array([11., 10., 12.], dtype=float32)>
    """
    if not (is_sparse(a) or is_sparse(b)):
        raise TypeError("At least one input should be SparseTensor; do you mean to use hr.add()?")
    if not (is_sparse(a) and is_sparse(b)):
        sparse, dense = (as_sparse(a), b) if is_sparse(a) else (as_sparse(b), a)
        inputs = (*nest.flatten(sparse), dense)
        return scopes.builder(*inputs).make("SparseTensorDenseAdd", inputs, {})
    x, y = as_sparse(a), as_sparse(b)
    real = dtypes.from_numpy(np.empty(0, x.dtype.numpy).real.dtype)
    builder = scopes.builder(*nest.flatten(x), *nest.flatten(y), threshold)
    least = builder.tensor(threshold, real, "threshold")
    indices, elements, whole = builder.make("SparseAdd", (*nest.flatten(x), *nest.flatten(y), least), {})
    known = shapes.broadcast(x.shape, shapes.merge(x.shape, y.shape))
    if shapes.is_full(known):
        whole = np.array(known, np.int64)
    return SparseTensor(indices, elements, whole)


def _greatest(name: str, type: str, what: str) -> Callable[..., SparseTensor]:
    def function(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
        x, y = as_sparse(sp_a), as_sparse(sp_b)
        inputs = (*nest.flatten(x), *nest.flatten(y))
        with scopes.name_scope(name, type, inputs) as scope:
            indices, elements = scopes.builder(*inputs).make(type, inputs, {}, scope)
        return SparseTensor(indices, elements, x.dense_shape)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Computes the {what} of two sparse tensors, element by element; missing elements are 0.

    Args:
      sp_a, sp_b: sparse tensors of the same shape and dtype.
      name: name of the operation; "{type}" if None.

    Source: TensorFlow's `tf.sparse.{name}`.

    {example(f"sparse.{name}")}
    """
    return function


maximum = _greatest("maximum", "SparseSparseMaximum", "maximum")
minimum = _greatest("minimum", "SparseSparseMinimum", "minimum")


def map_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> SparseTensor:
    """Applies a function to the values of sparse tensors.

    Args:
      op: a function that is called with the arguments, the values in place of each sparse tensor. Its result must have
        the number of elements of the values.
      args, kwargs: arguments; at least one, or an element of one, is sparse. The sparse tensors must have equal shapes
        and indices.

    Raises:
      ValueError: no argument is sparse.
      InvalidArgumentError: in a run, if shapes or indices differ.

    Returns:
      A sparse tensor with the indices of the arguments and the result as values.

    Source: TensorFlow's `tf.sparse.map_values`.

    Example:
      >>> import headrace as hr
      >>> hr.sparse.map_values(hr.negative, hr.SparseTensor([[1]], [5], [3])).values
      <EagerTensor shape=[1] dtype=int32: array([-5], dtype=int32)>
    """
    found: list[SparseTensor] = []

    def values_of(x: Any) -> Any:
        if isinstance(x, SparseTensor):
            found.append(x)
            return x.values
        return x

    inner, named = nest.map_leaves(values_of, (args, kwargs), expand=False)
    if not found:
        raise ValueError("No SparseTensor in argument list of map_values")
    first, checks = found[0], []
    for other in found[1:]:
        checks += [assert_equal(first.dense_shape, other.dense_shape, message="Mismatched shapes!")]
        checks += [assert_equal(first.indices, other.indices, message="Mismatched indices!")]
    with scopes.control_dependencies([c for c in checks if c is not None]):
        return first.with_values(op(*inner, **named))


def softmax(sp_input: Any, name: str | None = None) -> SparseTensor:
    """Computes the softmax of the values of each row, along the last axis.

    Args:
      sp_input: a sparse tensor of floats, of rank 2 or more, with indices in order.
      name: name of the scope; "SparseSoftmax" if None.

    Source: TensorFlow's `tf.sparse.softmax`.

    Example:
      >>> import headrace as hr
      >>> x = hr.SparseTensor([[0, 0], [0, 1]], [1.0, 1.0], [1, 3])
      >>> hr.sparse.softmax(x).values.numpy()
      array([0.5, 0.5], dtype=float32)
    """
    sp = as_sparse(sp_input)
    inputs = nest.flatten(sp)
    with scopes.name_scope(name, "SparseSoftmax", inputs):
        return sp.with_values(scopes.builder(*inputs).make("SparseSoftmax", inputs, {}))


# *** over axes ***


def _reduction(name: str, type: str, what: str) -> Callable[..., Any]:
    def function(
        sp_input: Any,
        axis: Any = None,
        keepdims: bool | None = None,
        output_is_sparse: bool = False,
        name: str | None = None,
    ) -> Any:
        sp = as_sparse(sp_input)
        b = scopes.builder(*nest.flatten(sp), axis)
        if axis is None:
            rank = shapes.with_rank(sp.dense_shape.shape, 1)[0]
            axis = reductions.range(0, arrays.size(sp.dense_shape)) if rank is None else np.arange(rank, dtype=np.int32)
        inputs, attrs = (*nest.flatten(sp), axis), {"keep_dims": bool(keepdims)}
        if output_is_sparse:
            return SparseTensor(*b.make(f"{type}Sparse", inputs, attrs, name))
        return b.make(type, inputs, attrs, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Computes the {what} of the stored elements along axes.

    Args:
      sp_input: a sparse tensor.
      axis: index of an axis, or a list of them; None: all.
      keepdims: whether the axes stay, with length 1.
      output_is_sparse: whether the result is sparse; otherwise it is a tensor, with 0 where no element is stored.
      name: name of the operation; "{type}" if None.

    Source: TensorFlow's `tf.sparse.{name}`.

    {example(f"sparse.{name}")}
    """
    return function


reduce_sum = _reduction("reduce_sum", "SparseReduceSum", "sum")
reduce_max = _reduction("reduce_max", "SparseReduceMax", "maximum")


def sparse_dense_matmul(
    sp_a: Any, b: Any, adjoint_a: bool = False, adjoint_b: bool = False, name: str | None = None
) -> Tensor:
    """Multiplies a sparse and a dense matrix, in either order.

    Args:
      sp_a, b: matrices, one sparse and one dense.
      adjoint_a, adjoint_b: whether to transpose and conjugate the matrix first.
      name: name of the operation; "SparseTensorDenseMatMul" if None.

    Raises:
      InvalidArgumentError: in a run, if an index is out of bounds.

    Source: TensorFlow's `tf.sparse.sparse_dense_matmul`.

    Example:
      >>> import headrace as hr
      >>> x = hr.SparseTensor([[0, 1]], [2.0], [1, 2])
      >>> hr.sparse.sparse_dense_matmul(x, [[1.0], [3.0]])
      <EagerTensor shape=[1,1] dtype=float32: array([[6.]], dtype=float32)>
    """
    if is_sparse(b):  # a b = (b' a')'
        if adjoint_a == adjoint_b:
            adjoint_a, adjoint_b = not adjoint_a, not adjoint_b
        return arrays.transpose(sparse_dense_matmul(b, sp_a, adjoint_a, adjoint_b))
    sp = as_sparse(sp_a)
    with scopes.name_scope(name, "SparseTensorDenseMatMul", [*nest.flatten(sp), b]):
        builder = scopes.builder(*nest.flatten(sp), b)
        attrs = {"adjoint_a": adjoint_a, "adjoint_b": adjoint_b}
        inputs = (*nest.flatten(sp), builder.tensor(b, None, "b"))
        return builder.make("SparseTensorDenseMatMul", inputs, attrs)


def _segments(name: str, type: str, what: str) -> Callable[..., Any]:
    def function(
        data: Any,
        indices: Any,
        segment_ids: Any,
        num_segments: Any = None,
        name: str | None = None,
        sparse_gradient: bool = False,
    ) -> Any:
        inputs, attrs = (data, indices, segment_ids), {"sparse_gradient": sparse_gradient}
        b = scopes.builder(*inputs, num_segments)
        if num_segments is None:
            return b.make(type, inputs, attrs, name)
        return b.make(f"{type}WithNumSegments", (*inputs, num_segments), attrs, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Computes the {what} of rows of a tensor for each segment.

    Args:
      data: a tensor of floats.
      indices: indices of the rows, an int vector.
      segment_ids: the segment of each of these rows, in ascending order.
      num_segments: number of segments; None: the last segment + 1.
      name: name of the operation; "{type}" if None.
      sparse_gradient: whether the gradient with respect to `data` is an `IndexedSlices`.

    Source: TensorFlow's `tf.sparse.{name}`.

    {example(f"sparse.{name}")}
    """
    return function


segment_sum = _segments("segment_sum", "SparseSegmentSum", "sum")
segment_mean = _segments("segment_mean", "SparseSegmentMean", "mean")
segment_sqrt_n = _segments("segment_sqrt_n", "SparseSegmentSqrtN", "sum, divided by the root of their number,")


def bincount(
    values: Any,
    weights: Any = None,
    axis: int | None = 0,
    minlength: int | None = None,
    maxlength: int | None = None,
    binary_output: bool = False,
    name: str | None = None,
) -> SparseTensor:
    """Counts the occurrences of each integer, as a sparse tensor.

    Args:
      values: ints, at least 0: a tensor or sparse tensor of rank 1 or 2.
      weights: the weight of each value, with the shape (or the indices) of `values`; None: 1.
      axis: 0 (also None): all values are counted together; -1: each row is counted.
      minlength: the least size of the result's last axis; None: no limit.
      maxlength: values from it on are ignored; None: no limit.
      binary_output: whether the result is 1 for each value that occurs, in place of its count.
      name: name of the scope; "count" if None.

    Raises:
      ValueError: both `weights` and `binary_output` are given, the axis is unsupported, or the weights do not match
        `values`.

    Source: TensorFlow's `tf.sparse.bincount`.

    Example:
      >>> import headrace as hr
      >>> hr.sparse.bincount([5, 2, 5]).indices
      <EagerTensor shape=[2,1] dtype=int64: array([[2],
             [5]])>
    """
    with scopes.name_scope(name, "count", [values, weights]):
        b = scopes.builder(values, weights)
        x = values if isinstance(values, SparseTensor) else b.tensor(values, None, "values")
        if weights is not None and not is_sparse(weights):
            weights = b.tensor(weights, None, "weights")
        if weights is not None and binary_output:
            raise ValueError("Arguments `binary_output` and `weights` are mutually exclusive.")
        if axis not in (None, 0, -1):
            raise ValueError(f"Unsupported value for argument axis={axis}. Only 0 and -1 are currently supported.")
        attrs = {
            "minlength": -1 if minlength is None else minlength,
            "maxlength": -1 if maxlength is None else maxlength,
            "binary_output": binary_output,
        }
        if axis != -1:
            if isinstance(x, SparseTensor):
                weights = None if weights is None else sparse_weights(x, weights, None)
                x = x.values
            else:
                weights = None if weights is None else arrays.reshape(weights, [-1])
                x = arrays.reshape(x, [-1])
        if isinstance(x, SparseTensor):
            made = b.make("SparseCountSparseOutput", (*nest.flatten(x), sparse_weights(x, weights, None)), attrs)
        else:
            made = b.make("DenseCountSparseOutput", (x, dense_weights(x, weights, None)), attrs)
        return SparseTensor(*made)
