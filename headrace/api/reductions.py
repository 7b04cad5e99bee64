"""Functions along axes: reductions, cumulative sums, segment sums, orders."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from headrace import dtypes, thresholds
from headrace.api import math, scopes
from headrace.api.table_examples import example
from headrace.api.tensors import is_tensor
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor
from headrace.memo import cached


def axes_of(b: Any, x: Any, axis: Any) -> Any:
    """Returns `axis`; for None all axes of `x`, constant if known."""
    if axis is not None:
        return axis
    if b.graph is None:
        return _every_axis(len(x.shape))
    if x.shape is not None:
        return b.const(np.arange(len(x.shape), dtype=np.int32))
    return b.make("Range", (0, b.make("Rank", (x,), {}), 1), {}, "range")


@cached(thresholds.RANKS_OF_REDUCTIONS, "axes of reductions")
def _every_axis(rank: int) -> Any:
    """Returns an eager vector of all axes.

    Equal ranks give one object, by which kernels know that they have checked it.
    """
    return scopes.runtime().eager.const(np.arange(rank, dtype=np.int32))


class Reduction(Protocol):
    """A function that reduces a tensor along axes."""

    def __call__(
        self, input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
    ) -> Tensor: ...


class Argument(Protocol):
    """A function that finds an index along an axis."""

    def __call__(
        self, input: Any, axis: Any = None, output_type: Any = dtypes.int64, name: str | None = None
    ) -> Tensor: ...


class Running(Protocol):
    """A function that accumulates a tensor along an axis."""

    def __call__(
        self, x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
    ) -> Tensor: ...


class Segments(Protocol):
    """A function that reduces the rows of each segment."""

    def __call__(self, data: Any, segment_ids: Any, name: str | None = None) -> Tensor: ...


class UnsortedSegments(Protocol):
    """A function that reduces the rows of each of a number of segments."""

    def __call__(self, data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor: ...


def _reduction(name: str, type: str, what: str, takes: str, tf: str) -> Reduction:
    def function(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
        b = scopes.builder(input_tensor, axis)
        x = b.tensor(input_tensor) if axis is None else input_tensor
        made = b.make(type, (x, axes_of(b, x, axis)), {"keep_dims": True} if keepdims else {}, name)
        if b.graph is not None and made.shape is None and axis is None and not keepdims:
            made.set_shape(())
        return made

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{what} along axes.

    Args:
      input_tensor: a tensor of {takes}, or what can be made one.
      axis: a number, or a list or tensor of them, negative ones counted from the end; None: all axes.
      keepdims: whether the axes stay, with length 1.
      name: name of the operation; "{type}" if None.

    Returns:
      A tensor of the same dtype, without the axes.

    Raises:
      ShapeError (a ValueError): there is no such axis.

    Source: TensorFlow's `{tf}`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     x = hr.placeholder(hr.{"bool" if takes == "bool" else "float32"}, (2, 3))
      ...     hr.{name}(x, axis=1).shape
      (2,)
    """
    return function


reduce_sum = _reduction("reduce_sum", "Sum", "The sum", "numbers", "tf.reduce_sum")
reduce_mean = _reduction("reduce_mean", "Mean", "The mean", "numbers", "tf.reduce_mean")
reduce_max = _reduction("reduce_max", "Max", "The greatest element", "real numbers", "tf.reduce_max")
reduce_min = _reduction("reduce_min", "Min", "The least element", "real numbers", "tf.reduce_min")
reduce_prod = _reduction("reduce_prod", "Prod", "The product", "numbers", "tf.reduce_prod")
reduce_any = _reduction("reduce_any", "Any", "Whether any element holds", "bool", "tf.reduce_any")
reduce_all = _reduction("reduce_all", "All", "Whether all elements hold", "bool", "tf.reduce_all")
reduce_euclidean_norm = _reduction(
    "reduce_euclidean_norm", "EuclideanNorm", "The Euclidean norm", "numbers", "tf.math.reduce_euclidean_norm"
)


def reduce_logsumexp(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """Computes log(sum(exp(x))) along axes without overflow.

    Args:
      input_tensor: a tensor of floats.
      axis, keepdims: see `reduce_sum`.
      name: name of the scope; "ReduceLogSumExp" if None.

    Source: TensorFlow's `tf.reduce_logsumexp`.

    Example:
      >>> import headrace as hr
      >>> hr.reduce_logsumexp([0.0, 0.0])
      <EagerTensor shape=[] dtype=float32: np.float32(0.6931472)>
    """
    with scopes.name_scope(name, "ReduceLogSumExp", [input_tensor]) as scope:
        b = scopes.builder(input_tensor)
        x = b.tensor(input_tensor, None, "input")
        top = reduce_max(x, axis, keepdims=True)
        top = b.make("SelectV2", (b.make("IsFinite", (top,), {}), top, 0), {})
        top = b.make("StopGradient", (top,), {})
        total = b.make("Log", (reduce_sum(b.make("Exp", (b.make("Sub", (x, top), {}),), {}), axis, keepdims),), {})
        if not keepdims:
            top = b.make("Reshape", (top, b.make("Shape", (total,), {"out_type": dtypes.int32})), {})
        return b.make("AddV2", (total, top), {}, scope)


def reduce_variance(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """Computes the variance along axes: the mean of the squared distances from the mean.

    Args:
      input_tensor: a tensor of floats or complex numbers.
      axis, keepdims: see `reduce_sum`.
      name: name of the scope; "reduce_variance" if None.

    Source: TensorFlow's `tf.math.reduce_variance`.

    Example:
      >>> import headrace as hr
      >>> hr.reduce_variance([1.0, 3.0])
      <EagerTensor shape=[] dtype=float32: np.float32(1.0)>
    """
    with scopes.name_scope(name, "reduce_variance", [input_tensor]):
        b = scopes.builder(input_tensor)
        x = b.tensor(input_tensor, None, "input")
        distance = b.make("Sub", (x, reduce_mean(x, axis, keepdims=True)), {}, "sub")
        if x.dtype.is_complex:
            magnitude = math.abs(distance)
            return reduce_mean(b.make("Square", (magnitude,), {}), axis, keepdims)
        return reduce_mean(b.make("Square", (distance,), {}), axis, keepdims)


def reduce_std(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """Computes the standard deviation along axes.

    Args:
      input_tensor: a tensor of floats or complex numbers.
      axis, keepdims: see `reduce_sum`.
      name: name of the scope; "reduce_std" if None.

    Source: TensorFlow's `tf.math.reduce_std`.

    Example:
      >>> import headrace as hr
      >>> hr.reduce_std([1.0, 3.0])
      <EagerTensor shape=[] dtype=float32: np.float32(1.0)>
    """
    with scopes.name_scope(name, "reduce_std", [input_tensor]):
        return math.sqrt(reduce_variance(input_tensor, axis, keepdims))


def count_nonzero(
    input: Any, axis: Any = None, keepdims: bool = False, dtype: Any = dtypes.int64, name: str | None = None
) -> Tensor:
    """Counts the elements along axes that are not zero (of strings: not empty).

    Args:
      input: a tensor.
      axis, keepdims: see `reduce_sum`.
      dtype: dtype of the counts.
      name: name of the scope; "count_nonzero" if None.

    Source: TensorFlow's `tf.math.count_nonzero`.

    Example:
      >>> import headrace as hr
      >>> hr.count_nonzero([0, 5, 6])
      <EagerTensor shape=[] dtype=int64: np.int64(2)>
    """
    with scopes.name_scope(name, "count_nonzero", [input]):
        b = scopes.builder(input)
        x = b.tensor(input, None, "input")
        zero = b.const(b"" if x.dtype.base is dtypes.string else 0, x.dtype.base, "zeros")
        return reduce_sum(math.cast(b.make("NotEqual", (x, zero), {}), dtype), axis, keepdims)


def _arg(name: str, type: str, what: str) -> Argument:
    def function(input: Any, axis: Any = None, output_type: Any = dtypes.int64, name: str | None = None) -> Any:
        axis = 0 if axis is None else axis
        attrs = {"output_type": dtypes.as_dtype(output_type)}
        return scopes.builder(input, axis).make(type, (input, axis), attrs, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The index of the {what} element along an axis; of equal ones the first.

    Args:
      input: a tensor of real numbers.
      axis: an int scalar; None: 0.
      output_type: int64, or int32.
      name: name of the operation; "{type}" if None.

    Source: TensorFlow's `tf.{name}`.

    {example(name)}
    """
    return function


argmax = _arg("argmax", "ArgMax", "greatest")
argmin = _arg("argmin", "ArgMin", "least")


def _running(name: str, type: str, what: str, tf: str) -> Running:
    def function(x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None) -> Any:
        return scopes.builder(x, axis).make(type, (x, axis), {"exclusive": exclusive, "reverse": reverse}, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The running {what} along an axis.

    Args:
      x: a tensor of numbers.
      axis: an int scalar.
      exclusive: whether an element counts only for those after it.
      reverse: whether it runs from the end.
      name: name of the operation; "{type}" if None.

    Source: TensorFlow's `{tf}`.

    {example(name)}
    """
    return function


cumsum = _running("cumsum", "Cumsum", "sum", "tf.cumsum")
cumprod = _running("cumprod", "Cumprod", "product", "tf.math.cumprod")
cumulative_logsumexp = _running(
    "cumulative_logsumexp", "CumulativeLogsumexp", "log(sum(exp(x)))", "tf.math.cumulative_logsumexp"
)


# *** segments ***


def _segment(name: str, type: str, what: str) -> Segments:
    def function(data: Any, segment_ids: Any, name: str | None = None) -> Any:
        return scopes.builder(data, segment_ids).make(type, (data, segment_ids), {}, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The {what} of the rows of each segment.

    Args:
      data: a tensor of rows.
      segment_ids: for each row the number of its segment, rising from 0.
      name: name of the operation; "{type}" if None.

    Returns:
      A tensor with a row for each segment.

    Source: TensorFlow's `tf.math.{name}`.

    {example(name)}
    """
    return function


def _unsorted(name: str, type: str, what: str) -> UnsortedSegments:
    def function(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Any:
        b = scopes.builder(data, segment_ids, num_segments)
        return b.make(type, (data, segment_ids, num_segments), {}, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The {what} of the elements of each segment, in whatever order they come.

    Args:
      data: a tensor.
      segment_ids: for each row (or, of more dimensions, each element) its segment; negative: none.
      num_segments: how many segments there are.
      name: name of the operation; "{type}" if None.

    Source: TensorFlow's `tf.math.{name}`.

    {example(name)}
    """
    return function


segment_sum = _segment("segment_sum", "SegmentSum", "sum")
segment_mean = _segment("segment_mean", "SegmentMean", "mean")
segment_max = _segment("segment_max", "SegmentMax", "greatest")
segment_min = _segment("segment_min", "SegmentMin", "least")
segment_prod = _segment("segment_prod", "SegmentProd", "product")
unsorted_segment_sum = _unsorted("unsorted_segment_sum", "UnsortedSegmentSum", "sum")
unsorted_segment_max = _unsorted("unsorted_segment_max", "UnsortedSegmentMax", "greatest")
unsorted_segment_min = _unsorted("unsorted_segment_min", "UnsortedSegmentMin", "least")
unsorted_segment_prod = _unsorted("unsorted_segment_prod", "UnsortedSegmentProd", "product")


def unsorted_segment_mean(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
    """Computes the mean of the elements of each segment; 0 for empty segments.

    The arguments are those of `unsorted_segment_sum`; the default name is "UnsortedSegmentMean".

    Source: TensorFlow's `tf.math.unsorted_segment_mean`.

    Example:
      >>> import headrace as hr
      >>> hr.unsorted_segment_mean([1.0, 2.0, 4.0], [1, 0, 1], 2).numpy()
      array([2. , 2.5], dtype=float32)
    """
    with scopes.name_scope(name, "UnsortedSegmentMean", [data, segment_ids, num_segments]):
        total, count = _totals(data, segment_ids, num_segments)
        return math.truediv(total, count)


def unsorted_segment_sqrt_n(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
    """Computes the sum of each segment divided by the square root of its size.

    The result is 0 for empty segments.

    The arguments are those of `unsorted_segment_sum`; the default name is "UnsortedSegmentSqrtN".

    Source: TensorFlow's `tf.math.unsorted_segment_sqrt_n`.

    Example:
      >>> import headrace as hr
      >>> hr.unsorted_segment_sqrt_n([1.0, 2.0, 3.0, 4.0, 5.0], [1, 0, 1, 1, 1], 2).numpy()
      array([2. , 6.5], dtype=float32)
    """
    with scopes.name_scope(name, "UnsortedSegmentSqrtN", [data, segment_ids, num_segments]):
        total, count = _totals(data, segment_ids, num_segments)
        return math.truediv(total, math.sqrt(count))


def _totals(data: Any, segment_ids: Any, num_segments: Any) -> tuple[Any, Any]:
    """Returns the sums of segments, and their numbers of addends (at least 1)."""
    b = scopes.builder(data, segment_ids, num_segments)
    x = b.tensor(data, None, "data")
    ones = b.make("OnesLike", (x,), {})
    count = unsorted_segment_sum(ones, segment_ids, num_segments)
    return unsorted_segment_sum(x, segment_ids, num_segments), b.make("Maximum", (count, 1), {})


# *** order ***


class TopK(NamedTuple):
    """Result of `top_k`."""

    values: Tensor
    indices: Tensor


def top_k(input: Any, k: Any = 1, sorted: bool = True, index_type: Any = dtypes.int32, name: str | None = None) -> TopK:
    """Finds the `k` greatest elements of each row of the last axis, and their indices.

    Args:
      input: a tensor of real numbers.
      k: number of elements, an int scalar.
      sorted: whether the elements are in descending order.
      index_type: dtype of the indices: int32, int64 or int16.
      name: name of the operation; "TopKV2" if None.

    Source: TensorFlow's `tf.math.top_k`.

    Example:
      >>> import headrace as hr
      >>> hr.top_k([3, 9, 1], 2).values
      <EagerTensor shape=[2] dtype=int32: array([9, 3], dtype=int32)>
    """
    attrs = {"sorted": sorted, "index_type": dtypes.as_dtype(index_type)}
    return TopK(*scopes.builder(input, k).make("TopKV2", (input, k), attrs, name))


def invert_permutation(x: Any, name: str | None = None) -> Tensor:
    """Computes the inverse of a permutation.

    Args:
      x: an int vector: a permutation of 0 to n - 1.
      name: name of the operation; "InvertPermutation" if None.

    Source: TensorFlow's `tf.math.invert_permutation`.

    Example:
      >>> import headrace as hr
      >>> hr.invert_permutation([1, 2, 0])
      <EagerTensor shape=[3] dtype=int32: array([2, 0, 1], dtype=int32)>
    """
    return scopes.builder(x).make("InvertPermutation", (x,), {}, name)


def searchsorted(
    sorted_sequence: Any, values: Any, side: str = "left", out_type: Any = dtypes.int32, name: str | None = None
) -> Tensor:
    """Finds the insertion positions of values in sorted rows.

    Args:
      sorted_sequence: a tensor that is sorted along its last axis.
      values: a tensor of the same dtype; the other axes are those of `sorted_sequence`.
      side: "left": positions before equal elements; "right": positions after them.
      out_type: int32 or int64.
      name: name of the operation.

    Raises:
      ValueError: `side` is neither "left" nor "right".

    Source: TensorFlow's `tf.searchsorted`.

    Example:
      >>> import headrace as hr
      >>> hr.searchsorted([1, 3, 5], [4])
      <EagerTensor shape=[1] dtype=int32: array([2], dtype=int32)>
    """
    types = {"left": "LowerBound", "right": "UpperBound"}
    if side not in types:
        raise ValueError(f"'side' must be either 'right' or 'left', got {side!r}")
    b = scopes.builder(sorted_sequence, values)
    rows, wanted = b.tensor(sorted_sequence, None, "sorted_sequence"), b.tensor(values, None, "values")
    shape = b.make("Shape", (wanted,), {"out_type": dtypes.int32})

    def flat(x: Any) -> Any:
        last = b.make("Shape", (x,), {"out_type": dtypes.int32})
        one = np.array([1], np.int32)
        end = b.make("StridedSlice", (last, -one, 0 * one, one), {"end_mask": 1}, "strided_slice")
        return b.make("Reshape", (x, b.make("ConcatV2", ([-one, end], 0), {}, "concat")), {})

    found = b.make(types[side], (flat(rows), flat(wanted)), {"out_type": dtypes.as_dtype(out_type)}, name)
    return b.make("Reshape", (found, shape), {})


# *** sequences ***

_WIDTH = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)  # in ascending width


def range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range") -> Tensor:
    """Creates the vector start, start + delta, ... up to but excluding `limit`.

    Args:
      start: the first number; if `limit` is None, the limit, and the first number is 0.
      limit: the end of the range, which is excluded.
      delta: the step, not 0.
      dtype: dtype of the result; None: the widest dtype of the arguments.
      name: name of the operation.

    Source: TensorFlow's `tf.range`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.constant_value(hr.range(3, 9, 2))
      array([3, 5, 7], dtype=int32)
    """
    if limit is None:
        start, limit = 0, start
    wanted = None if dtype is None else dtypes.as_dtype(dtype)
    with scopes.name_scope(name, "range", [start, limit, delta]) as scope:
        b = scopes.builder(start, limit, delta)
        parts = [
            b.tensor(x, None if is_tensor(x) else wanted, n)
            for x, n in ((start, "start"), (limit, "limit"), (delta, "delta"))
        ]
        found = [t.dtype.base for t in parts]
        if wanted is None:
            known = [d for d in found if d in _WIDTH]
            wanted = found[0] if len(known) < len(found) else max(known, key=_WIDTH.index)
        parts = [t if t.dtype.base is wanted else b.make("Cast", (t,), {"DstT": wanted}) for t in parts]
        return b.make("Range", parts, {}, scope)


def linspace(start: Any, stop: Any, num: Any, name: str | None = None, axis: int = 0) -> Tensor:
    """Creates `num` evenly spaced floats from `start` to `stop`, inclusive.

    Args:
      start, stop: float scalars; or tensors of one shape, for sequences along a new axis.
      num: number of elements, at least 1.
      name: name of the operation; "linspace" if None.
      axis: index of the new axis.

    Source: TensorFlow's `tf.linspace`.

    Example:
      >>> import headrace as hr
      >>> hr.linspace(0.0, 1.0, 3)
      <EagerTensor shape=[3] dtype=float32: array([0. , 0.5, 1. ], dtype=float32)>
    """
    with scopes.name_scope(name, "linspace", [start, stop, num]) as scope:
        b = scopes.builder(start, stop, num)
        start, stop = b.tensor(start, None, "start"), b.tensor(stop, None, "stop")
        if start.shape == () and stop.shape == ():
            return b.make("LinSpace", (start, stop, num), {}, scope)
        if start.shape is None or stop.shape is None:
            raise ShapeError(f"the ranks of 'start' and 'stop' must be known, got {start!r} and {stop!r}")
        rank = max(len(start.shape), len(stop.shape))
        at = axis if axis >= 0 else rank + 1 + axis
        start, stop = b.make("ExpandDims", (start, at), {}), b.make("ExpandDims", (stop, at), {})
        t = start.dtype.base
        share = b.make("LinSpace", (b.const(0, t), b.const(1, t), num), {})
        share = b.make("Reshape", (share, np.array([-1] + [1] * (rank - at), np.int32)), {})
        step = b.make("Mul", (share, b.make("Sub", (stop, start), {}, "sub")), {}, "mul")
        return b.make("AddV2", (start, step), {}, scope)
