"""Shapes of ragged tensors: `tf.experimental.DynamicRaggedShape`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api.tensor_spec import TensorSpec
from headrace.ir.graph import Tensor as Symbolic
from headrace.ir.infer import shape_value
from headrace.ir.tensor_type import Tensor
from headrace.v1 import array_ops, check_ops, math_ops
from headrace.v1.array_ops import get_static_value
from headrace.v1.extension_types.extension_type import BatchableExtensionType
from headrace.v1.ragged.ragged_tensor import RaggedTensor
from headrace.v1.ragged.row_partition import RowPartition, RowPartitionSpec
from headrace.v1.scoping import control_dependencies
from headrace.v1.tensor_shape import TensorShape


class DynamicRaggedShape(BatchableExtensionType):
    """Shape of a ragged or dense tensor: partitions, and the shape of the innermost values.

    Args:
      row_partitions: the partitions, from the outermost on; none for a dense tensor.
      inner_shape: the shape of the innermost values, a vector.
      dtype: int32 or int64; None: that of the arguments.
      validate: whether a step checks that the partitions and the shape fit one another.
      static_inner_shape: the known part of `inner_shape`.

    Raises:
      TypeError: `row_partitions` has other elements.
      ValueError: partitions do not fit one another, as far as is known.

    Source: TensorFlow's `tf.experimental.DynamicRaggedShape`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     tf.experimental.DynamicRaggedShape.from_lengths([2, (3, 1), 5])
      <DynamicRaggedShape lengths=[2, (3, 1), 5] num_row_partitions=1>
    """

    _row_partitions: tuple[RowPartition, ...]
    _inner_shape: Tensor
    _static_inner_shape: TensorShape
    __name__ = "tf.DynamicRaggedShape"

    def __init__(
        self,
        row_partitions: Sequence[RowPartition],
        inner_shape: Any,
        dtype: Any = None,
        validate: bool = False,
        static_inner_shape: Any = None,
    ) -> None:
        if not isinstance(row_partitions, Iterable):
            raise TypeError(f"row_partitions should be a list of row partitions. Instead, got {row_partitions}")
        for p in row_partitions:
            if not isinstance(p, RowPartition):
                raise TypeError(f"row_partitions contains {p} which is not a RowPartition")
        kind = _dtype_of(row_partitions, inner_shape, dtype)
        rows = tuple(p.with_dtype(kind) for p in row_partitions)
        inner = array_ops.convert_to_tensor(inner_shape, name="inner_dim_sizes", preferred_dtype=kind)
        inner = inner if inner.dtype == kind else math_ops.cast(inner, kind)
        TensorShape(inner.shape).assert_has_rank(1)
        known = _known_shape(inner)
        if static_inner_shape is not None:
            known = known.merge_with(static_inner_shape)
        checks = []
        for axis, (p, q) in enumerate(itertools.pairwise(rows)):
            text = f"RowPartitions in DynamicRaggedShape do not align between {axis} and {axis + 1}"
            if p.static_nvals is not None and q.static_nrows is not None:
                if p.static_nvals != q.static_nrows:
                    raise ValueError(text)
            elif validate:
                checks.append(check_ops.assert_equal(p.nvals(), q.nrows(), message=text))
        if rows:
            text = "Last row partition does not match inner_shape."
            count = known.as_list()[0] if known.ndims else None
            if rows[-1].static_nvals is not None and count is not None:
                if rows[-1].static_nvals != count:
                    raise ValueError(text)
            elif validate:
                checks.append(check_ops.assert_equal(rows[-1].nvals(), inner[0], message=text))
        found = [check for check in checks if check is not None]
        if found:
            with control_dependencies(found):
                inner = array_ops.identity(inner)
        self._row_partitions, self._inner_shape, self._static_inner_shape = rows, inner, known

    # *** constructors ***

    @classmethod
    def from_lengths(cls, lengths: Any, num_row_partitions: int | None = None, dtype: Any = dtypes.int64) -> Any:
        """Makes a shape of the lengths of axes.

        Args:
          lengths: a list with a number for each uniform axis, and a tuple of numbers for a ragged one.
          num_row_partitions: number of axes below the first that are partitions; None: up to the last ragged one.
          dtype: int32 or int64.

        Raises:
          ValueError: `lengths` has another form, or fewer axes than partitions.
        """
        if not isinstance(lengths, list):
            raise ValueError("lengths should be a list")
        for x in lengths:
            if not isinstance(x, int) and not (isinstance(x, tuple) and all(isinstance(n, int) for n in x)):
                raise ValueError(f"element of lengths should be int or tuple of ints: instead {x!r}")
        if num_row_partitions is None:
            num_row_partitions = max((i for i, x in enumerate(lengths) if not isinstance(x, int)), default=0)
        if not isinstance(num_row_partitions, int):
            raise ValueError("num_row_partitions should be an int or None")
        if not lengths:
            if num_row_partitions > 0:
                raise ValueError("num_row_partitions==0 for a scalar shape")
            return cls([], [], dtype=dtype)
        if num_row_partitions >= len(lengths):
            raise ValueError("num_row_partitions should be less than `len(lengths)` if shape is not scalar.")
        count, rows = lengths[0], []
        for x in lengths[1 : num_row_partitions + 1]:
            if isinstance(x, int):
                rows.append(RowPartition.from_uniform_row_length(x, nrows=count))
                count *= x
            else:
                rows.append(RowPartition.from_row_lengths(x))
                count = sum(x)
        return cls(rows, [count, *lengths[num_row_partitions + 1 :]], dtype=dtype)

    @classmethod
    def from_row_partitions(cls, row_partitions: Any, dtype: Any = None) -> Any:
        """Makes a shape of partitions, whose innermost values are a vector.

        Args:
          row_partitions: the partitions, at least one.
          dtype: int32 or int64; None: that of the partitions.

        Raises:
          ValueError: there are none.
        """
        if not row_partitions:
            raise ValueError("row_partitions cannot be empty")
        return cls(row_partitions, [row_partitions[-1].nvals()], dtype=dtype)

    @classmethod
    def from_tensor(cls, t: Any, dtype: Any = None) -> Any:
        """Returns the shape of a tensor or ragged tensor.

        Args:
          t: the tensor.
          dtype: int32 or int64; None: that of the row splits, or int32.
        """
        if not isinstance(t, RaggedTensor):
            return cls([], array_ops.shape(t), dtype=dtype)
        rows = [RowPartition.from_row_splits(s, validate=False) for s in t.nested_row_splits]
        inner = array_ops.shape(t.flat_values, out_type=rows[0].dtype)
        return cls(rows, inner, dtype=dtype)

    # *** parts ***

    @property
    def row_partitions(self) -> tuple[RowPartition, ...]:
        """Partitions, from the outermost on."""
        return self._row_partitions

    @property
    def num_row_partitions(self) -> int:
        """Number of partitions."""
        return len(self._row_partitions)

    @property
    def dtype(self) -> Any:
        """Dtype of the shape, int32 or int64."""
        return self._inner_shape.dtype

    @property
    def inner_shape(self) -> Any:
        """Shape of the innermost values, a vector."""
        return self._inner_shape

    @property
    def inner_rank(self) -> int | None:
        """Rank of the innermost values; None if it is not known."""
        return self._static_inner_shape.ndims

    @property
    def rank(self) -> int | None:
        """Number of axes; None if it is not known."""
        return None if self.inner_rank is None else self.num_row_partitions + self.inner_rank

    def is_uniform(self, axis: int) -> bool:
        """Whether all rows of an axis have one length.

        Args:
          axis: the axis.

        Raises:
          TypeError: `axis` is no int.
          IndexError: there is no such axis.
        """
        if not isinstance(axis, int):
            raise TypeError("axis must be an integer")
        if axis < 0:
            raise IndexError("Negative axis values are not supported")
        if self.rank is not None and axis >= self.rank:
            raise IndexError(f"Expected axis={axis} < rank={self.rank}")
        return axis == 0 or axis > self.num_row_partitions or self._row_partitions[axis - 1].is_uniform()

    def static_lengths(self, ragged_lengths: bool = True) -> list[Any]:
        """Returns the lengths of the axes, as far as they are known.

        Args:
          ragged_lengths: whether a ragged axis has a tuple of its lengths; otherwise None.

        Returns:
          A list of numbers, tuples and None. It ends with an ellipsis if the rank is not known.
        """
        inner = [...] if self.inner_rank is None else self._static_inner_shape.as_list()
        if not self._row_partitions:
            return inner
        out: list[Any] = [self._row_partitions[0].static_nrows]
        for p in self._row_partitions:
            lengths = get_static_value(p.row_lengths()) if ragged_lengths and not p.is_uniform() else None
            out.append(p.static_uniform_row_length if lengths is None else tuple(lengths.tolist()))
        return out + (inner if self.inner_rank is None else inner[1:])

    def with_dtype(self, dtype: Any) -> Any:
        """Returns the shape with tensors of the dtype int32 or int64."""
        return self if dtype == self.dtype else DynamicRaggedShape(self._row_partitions, self._inner_shape, dtype=dtype)

    def __getitem__(self, index: Any) -> Any:
        """Returns the length of a uniform axis, or the shape of some axes.

        Raises:
          IndexError: there is no such axis, or the slice has a step.
          TypeError: the index is no int or slice.
          ValueError: the axis is ragged; the rank must be known; or the slice begins behind a ragged axis.
        """
        if isinstance(index, slice):
            return self._axes(index)
        if not isinstance(index, int):
            raise TypeError("Argument is not an int or a slice")
        if index < 0:
            if self.rank is None:
                raise ValueError("Rank must be known to use __getitem__ with a negative index.")
            index += self.rank
        if index < 0:
            raise IndexError(f"Index must be non-negative: {index}")
        if self.rank is not None and index >= self.rank:
            raise IndexError(f"Index is too big: {index}>={self.rank}")
        if not self.is_uniform(index):
            raise ValueError(f"Index {index} is not uniform")
        if self._row_partitions and index <= self.num_row_partitions:
            rows = self._row_partitions
            return rows[0].nrows() if index == 0 else rows[index - 1].uniform_row_length()
        at = index - self.num_row_partitions
        known = None if self.inner_rank is None else self._static_inner_shape.as_list()[at]
        return self._inner_shape[at] if known is None else array_ops.constant(known, self.dtype)

    def _axes(self, index: slice) -> Any:
        if index.step not in (None, 1):
            raise IndexError("Cannot stride through a shape")
        if self.rank is None:
            raise ValueError("Rank must be known to slice a shape")
        start, stop, _ = index.indices(self.rank)
        if stop <= start:
            return DynamicRaggedShape([], [], dtype=self.dtype)
        n = self.num_row_partitions
        if start:
            if not all(p.is_uniform() for p in self._row_partitions[: stop - 1]):
                raise ValueError("All relevant dimensions must be uniform")
            return DynamicRaggedShape([], array_ops.stack([self[i] for i in range(start, stop)]), dtype=self.dtype)
        if stop > n:
            return DynamicRaggedShape(self._row_partitions, self._inner_shape[: stop - n])
        rows = self._row_partitions[: stop - 1]
        return DynamicRaggedShape(rows, [rows[-1].nvals() if rows else self._row_partitions[0].nrows()])

    def __repr__(self) -> str:
        shown = ", ".join("..." if x is ... else str(x) for x in self.static_lengths())
        return f"<DynamicRaggedShape lengths=[{shown}] num_row_partitions={self.num_row_partitions}>"

    class Spec:
        """Description of ragged shapes.

        Args:
          row_partitions: descriptions of the partitions.
          static_inner_shape: the known part of the shape of the innermost values.
          dtype: int64 or int32.

        Raises:
          TypeError: `row_partitions` has other elements.
          ValueError: another dtype, or that of a partition differs.
        """

        def __init__(self, row_partitions: Any, static_inner_shape: Any, dtype: Any) -> None:
            if not isinstance(row_partitions, Iterable):
                raise TypeError("row_partitions should be an Iterable")
            rows, kind, inner = tuple(row_partitions), dtypes.as_dtype(dtype), TensorShape(static_inner_shape)
            if not all(isinstance(p, RowPartitionSpec) for p in rows):
                raise TypeError("row_partitions should be an Iterable of RowPartitionSpecs")
            if kind not in (dtypes.int32, dtypes.int64):
                raise ValueError("dtype must be tf.int32 or tf.int64")
            for p in rows:
                if p.dtype != kind:
                    raise ValueError(f"dtype of {p!r} is {p.dtype!r}: expected {kind!r}")
            if rows and inner.ndims == 0:
                raise ValueError("If row_partitions are provided, must have inner_rank > 0")
            self._row_partitions, self._static_inner_shape = rows, inner
            self._inner_shape = TensorSpec((inner.ndims,), kind)

        @property
        def dtype(self) -> Any:
            """Dtype of the shape."""
            return self._inner_shape.dtype

        @property
        def inner_rank(self) -> int | None:
            """Rank of the innermost values; None if it is not known."""
            return self._static_inner_shape.ndims

        @property
        def num_row_partitions(self) -> int:
            """Number of partitions."""
            return len(self._row_partitions)

        @property
        def rank(self) -> int | None:
            """Number of axes; None if it is not known."""
            return None if self.inner_rank is None else self.inner_rank + self.num_row_partitions

        def with_dtype(self, dtype: Any) -> Any:
            """Returns the description with another dtype."""
            rows = [RowPartitionSpec(p.nrows, p.nvals, p.uniform_row_length, dtype) for p in self._row_partitions]
            return DynamicRaggedShape.Spec(rows, self._static_inner_shape, dtype)

        def __repr__(self) -> str:
            return (
                f"DynamicRaggedShape.Spec(row_partitions={self._row_partitions!r}, "
                f"static_inner_shape={self._static_inner_shape!r}, dtype={self.dtype!r})"
            )


def _dtype_of(rows: Sequence[RowPartition], inner: Any, dtype: Any) -> Any:
    """Returns the dtype of a shape: the given one, or that of the parts.

    Raises:
      ValueError: the partitions have different dtypes.
    """
    if dtype is not None:
        return dtypes.as_dtype(dtype)
    found = {p.dtype.base for p in rows}
    if len(found) > 1:
        raise ValueError(f"row partitions have the dtypes {sorted(d.name for d in found)}; give a dtype")
    if found:
        return found.pop()
    is_int32 = isinstance(inner, np.ndarray) and inner.dtype == np.int32
    if array_ops.is_tensor(inner):
        return inner.dtype.base
    return dtypes.int32 if is_int32 else dtypes.int64


def _known_shape(inner: Any) -> TensorShape:
    """Returns what is known of a shape, a vector."""
    return TensorShape(shape_value(inner) if isinstance(inner, Symbolic) else np.asarray(inner).tolist())
