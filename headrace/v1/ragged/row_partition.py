"""Partitions of values into rows: `tf.experimental.RowPartition`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api.tensor_spec import TensorSpec
from headrace.ir.tensor_type import Tensor
from headrace.v1 import array_ops, check_ops, math_ops
from headrace.v1.array_ops import get_static_value
from headrace.v1.ragged.ragged_tensor import row_splits_to_segment_ids
from headrace.v1.scoping import control_dependencies, name_scope
from headrace.v1.tensor_shape import TensorShape
from headrace.v1.type_specs import TypeSpec

_INTEGERS = (dtypes.int32, dtypes.int64)


class RowPartition(nest.Composite):
    """Partition of a sequence of values into rows. Its class methods make one.

    Source: TensorFlow's `tf.experimental.RowPartition`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     p = tf.experimental.RowPartition.from_row_lengths([2, 0, 3])
      ...     sess.run([p.row_splits(), p.value_rowids(), p.offsets_in_rows()])
      [array([0, 2, 2, 5]), array([0, 0, 2, 2, 2]), array([0, 1, 0, 1, 2])]
    """

    is_fetched_as_itself = True

    def __init__(
        self,
        row_splits: Any,
        row_lengths: Any = None,
        value_rowids: Any = None,
        nrows: Any = None,
        uniform_row_length: Any = None,
        nvals: Any = None,
        internal: bool = False,
    ) -> None:
        if not internal:
            raise ValueError(
                "RowPartition constructor is private; please use one of the factory methods instead (e.g., "
                "RowPartition.from_row_lengths())"
            )
        self._row_splits, self._row_lengths, self._value_rowids = row_splits, row_lengths, value_rowids
        self._nrows, self._uniform_row_length, self._nvals = nrows, uniform_row_length, nvals

    # *** constructors ***

    @classmethod
    def from_row_splits(cls, row_splits: Any, validate: bool = True, dtype: Any = None, dtype_hint: Any = None) -> Any:
        """Makes a partition of the places at which rows begin, and the end.

        Args:
          row_splits: ascending numbers from 0 on.
          validate: whether a step checks the argument.
          dtype: int32 or int64; None: that of the argument.
          dtype_hint: dtype of numbers of Python; None: int64.

        Raises:
          ValueError: the argument is empty or no vector, or has another dtype.
          TypeError: `validate` is no bool.
        """
        _check_bool(validate)
        if isinstance(row_splits, (list, tuple)) and not row_splits:
            raise ValueError("row_splits tensor may not be empty.")
        with name_scope(None, "RowPartitionFromRowSplits"):
            splits = _vector(row_splits, "row_splits", dtype, dtype_hint)
            text = "Arguments to from_row_splits do not form a valid RaggedTensor:"
            if validate:
                splits = _checked(splits, _zero(splits[:1], f"{text}zero"), _ascend(splits, f"{text}monotonic"))
            return cls(splits, internal=True)

    @classmethod
    def from_row_lengths(
        cls, row_lengths: Any, validate: bool = True, dtype: Any = None, dtype_hint: Any = None
    ) -> Any:
        """Makes a partition of the lengths of the rows; see `from_row_splits`."""
        _check_bool(validate)
        with name_scope(None, "RowPartitionFromRowLengths"):
            lengths = _vector(row_lengths, "row_lengths", dtype, dtype_hint)
            if validate:
                text = "Arguments to from_row_lengths do not form a valid RowPartition"
                lengths = _checked(lengths, check_ops.assert_non_negative(lengths, message=text))
            return cls(_after_zero(math_ops.cumsum(lengths)), row_lengths=lengths, internal=True)

    @classmethod
    def from_row_starts(
        cls, row_starts: Any, nvals: Any, validate: bool = True, dtype: Any = None, dtype_hint: Any = None
    ) -> Any:
        """Makes a partition of the places at which rows begin.

        Args:
          row_starts: ascending numbers from 0 on.
          nvals: the number of values.
          validate, dtype, dtype_hint: see `from_row_splits`.
        """
        _check_bool(validate)
        with name_scope(None, "RowPartitionFromRowStarts"):
            starts = _vector(row_starts, "row_starts", dtype, dtype_hint)
            count = math_ops.cast(nvals, starts.dtype)
            if validate:
                text = "Arguments to from_row_starts do not form a valid RaggedTensor"
                checks = _zero(starts[:1], text), _ascend(starts, text)
                starts = _checked(starts, *checks, check_ops.assert_less_equal(starts[-1:], count, message=text))
            return cls(array_ops.concat([starts, [count]], 0), nvals=count, internal=True)

    @classmethod
    def from_row_limits(cls, row_limits: Any, validate: bool = True, dtype: Any = None, dtype_hint: Any = None) -> Any:
        """Makes a partition of the ends of the rows; see `from_row_splits`."""
        _check_bool(validate)
        with name_scope(None, "RowPartitionFromRowLimits"):
            limits = _vector(row_limits, "row_limits", dtype, dtype_hint)
            if validate:
                text = "Arguments to from_row_limits do not form a valid RaggedTensor"
                checks = check_ops.assert_non_negative(limits[:1], message=text), _ascend(limits, text)
                limits = _checked(limits, *checks)
            return cls(_after_zero(limits), internal=True)

    @classmethod
    def from_value_rowids(
        cls, value_rowids: Any, nrows: Any = None, validate: bool = True, dtype: Any = None, dtype_hint: Any = None
    ) -> Any:
        """Makes a partition of the row of each value.

        Args:
          value_rowids: the rows, ascending.
          nrows: number of rows; None: up to the last row with a value.
          validate, dtype, dtype_hint: see `from_row_splits`.

        Raises:
          ValueError: there are fewer rows than the values have, as far as both are known.
          TypeError: `validate` is no bool.
        """
        _check_bool(validate)
        with name_scope(None, "RowPartitionFromValueRowIds"):
            rows = _vector(value_rowids, "value_rowids", dtype, dtype_hint)
            known = get_static_value(rows)
            if nrows is not None:
                count = array_ops.convert_to_tensor(nrows, rows.dtype)
                wanted = get_static_value(count)
                if wanted is not None and wanted < 0:
                    raise ValueError(f"Expected nrows >= 0; got {wanted}")
                if wanted is not None and known is not None and known.size and wanted <= known[-1]:
                    raise ValueError(
                        f"Expected nrows >= value_rowids[-1] + 1; got nrows={wanted}, value_rowids[-1]={known[-1]}"
                    )
            elif known is not None:
                wanted = known[-1] + 1 if known.size else 0
                count = array_ops.constant(wanted, rows.dtype)
            else:
                wanted = None
                count = array_ops.concat([rows[-1:], array_ops.constant([-1], rows.dtype)], 0)[0] + 1
            if validate:
                text = "Arguments to from_value_rowids do not form a valid RowPartition"
                rows = _checked(
                    rows,
                    check_ops.assert_non_negative(rows[:1], message=text),
                    _ascend(rows, text),
                    check_ops.assert_less(rows[-1:], count, message=text),
                )
            ones = array_ops.ones_like(rows)
            lengths = math_ops.unsorted_segment_sum(ones, rows, math_ops.cast(count, dtypes.int32))
            splits = _after_zero(math_ops.cumsum(lengths))
            if wanted is not None:
                _refine(lengths, (int(wanted),))
                _refine(splits, (int(wanted) + 1,))
            return cls(splits, lengths, rows, count, internal=True)

    @classmethod
    def from_uniform_row_length(
        cls,
        uniform_row_length: Any,
        nvals: Any = None,
        nrows: Any = None,
        validate: bool = True,
        dtype: Any = None,
        dtype_hint: Any = None,
    ) -> Any:
        """Makes a partition into rows of one length.

        Args:
          uniform_row_length: the length, a scalar.
          nvals, nrows: the numbers of values and of rows; one of them may be missing.
          validate, dtype, dtype_hint: see `from_row_splits`.

        Raises:
          ValueError: both numbers are missing, or the numbers do not fit the length, as far as all are known.
          TypeError: `validate` is no bool.
        """
        _check_bool(validate)
        if nrows is None and nvals is None:
            raise ValueError("Either (or both) of nvals and nrows must be specified")
        with name_scope(None, "RowPartitionFromUniformRowLength"):
            kind = next((x.dtype for x in (uniform_row_length, nvals, nrows) if array_ops.is_tensor(x)), None)
            hint = dtype_hint if dtype is None and kind is None else dtype or kind
            length = _integer(uniform_row_length, "uniform_row_length", dtype or kind, hint)
            values, rows = (None if x is None else _integer(x, "nvals", length.dtype, None) for x in (nvals, nrows))
            known: list[Any] = [None if x is None else get_static_value(x) for x in (length, values, rows)]
            if rows is None:
                one = array_ops.constant(1, length.dtype)
                rows = values // math_ops.maximum(length, one) if known[0] != 0 else array_ops.constant(0, length.dtype)
                known[2] = get_static_value(rows)
            is_known = known[0] is not None and known[2] is not None
            checks = []
            if known[0] is not None and known[0] < 0 and validate:
                raise ValueError("uniform_row_length must be >= 0.")
            if values is None:
                product = None if not is_known else array_ops.constant(known[0] * known[2], length.dtype)
                values = rows * length if product is None else product
            elif validate and is_known and known[1] is not None:
                if known[0] * known[2] != known[1]:
                    raise ValueError(
                        f"uniform_row_length={known[0]} times nrows={known[2]} must equal nvals={known[1]}"
                    )
            elif validate:
                text = "uniform_row_length times nrows must equal nvals"
                checks.append(check_ops.assert_equal(rows * length, values, message=text))
            if validate and known[0] is None:
                checks.append(check_ops.assert_non_negative(length, message="uniform_row_length must be >= 0."))
            if is_known:
                splits = array_ops.constant(np.arange(known[2] + 1) * known[0], length.dtype)
            else:
                splits = math_ops.range(rows + 1) * length
            splits = _checked(splits, *checks)
            return cls(splits, None, None, rows, length, values, internal=True)

    # *** tensors ***

    @property
    def dtype(self) -> Any:
        """Dtype of the tensors, int32 or int64."""
        return self._row_splits.dtype

    def row_splits(self) -> Any:
        """Returns the places at which rows begin, and the end of the last one."""
        return self._row_splits

    def value_rowids(self) -> Any:
        """Returns the row of each value."""
        return row_splits_to_segment_ids(self._row_splits) if self._value_rowids is None else self._value_rowids

    def nvals(self) -> Any:
        """Returns the number of values."""
        return self._row_splits[-1]

    def nrows(self) -> Any:
        """Returns the number of rows."""
        if self._nrows is not None:
            return self._nrows
        count = self.static_nrows
        if count is not None:
            return array_ops.constant(count, self.dtype)
        return math_ops.cast(array_ops.shape(self._row_splits)[0], self.dtype) - 1

    def uniform_row_length(self) -> Any:
        """Returns the length that the partition was made of; None for other partitions."""
        return self._uniform_row_length

    def row_starts(self) -> Any:
        """Returns the places at which rows begin."""
        return self._row_splits[:-1]

    def row_limits(self) -> Any:
        """Returns the ends of the rows."""
        return self._row_splits[1:]

    def row_lengths(self) -> Any:
        """Returns the lengths of the rows."""
        return self._row_splits[1:] - self._row_splits[:-1] if self._row_lengths is None else self._row_lengths

    def offsets_in_rows(self) -> Any:
        """Returns the place of each value in its row."""
        rows = self.value_rowids()
        return math_ops.range(self.nvals()) - array_ops.gather(self.row_starts(), rows)

    # *** numbers that are known without a step ***

    @property
    def static_nrows(self) -> int | None:
        """The number of rows; None if it is not known."""
        count = TensorShape(self._row_splits.shape).as_list()[0]
        return _known(self._nrows) if count is None else count - 1

    @property
    def static_nvals(self) -> int | None:
        """The number of values; None if it is not known."""
        count = _known(self._nvals)
        if count is None and self._value_rowids is not None:
            count = TensorShape(self._value_rowids.shape).as_list()[0]
        return count

    @property
    def static_uniform_row_length(self) -> int | None:
        """The length that the partition was made of; None if it is not known."""
        return _known(self._uniform_row_length)

    def is_uniform(self) -> bool:
        """Whether the partition was made of one length of all rows."""
        return self._uniform_row_length is not None

    def with_dtype(self, dtype: Any) -> RowPartition:
        """Returns the partition with tensors of another dtype.

        Args:
          dtype: int32 or int64.

        Raises:
          ValueError: another dtype.
        """
        wanted = dtypes.as_dtype(dtype)
        if wanted not in _INTEGERS:
            raise ValueError("dtype must be int32 or int64")
        if wanted == self.dtype:
            return self
        given = self._row_splits, self._row_lengths, self._value_rowids, self._nrows, self._uniform_row_length
        splits, lengths, rows, count, length = [None if x is None else math_ops.cast(x, wanted) for x in given]
        return RowPartition(splits, lengths, rows, count, length, internal=True)

    # *** structure ***

    def _flatten(self) -> list[Any]:
        return [self._row_splits]

    def _unflatten(self, parts: Sequence[Any]) -> RowPartition:
        length = self.static_uniform_row_length
        kept = None if length is None else array_ops.constant(length, self.dtype)
        return RowPartition(parts[0], uniform_row_length=kept, internal=True)

    def _key(self) -> Hashable:
        return self.static_uniform_row_length

    # *** leaves of a dataset's elements ***

    def _encoding(self) -> Any:
        return (self._row_splits,)

    def _row_encoding(self) -> Any:
        raise _not_batchable()

    def _with_encoding(self, parts: Any) -> Any:
        return self._type_spec._with_encoding(parts)

    @property
    def _type_spec(self) -> RowPartitionSpec:
        return RowPartitionSpec(self.static_nrows, self.static_nvals, self.static_uniform_row_length, self.dtype)

    def __repr__(self) -> str:
        if self._uniform_row_length is not None:
            return f"tf.RowPartition(nrows={self._nrows}, uniform_row_length={self._uniform_row_length})"
        return f"tf.RowPartition(row_splits={self._row_splits})"


class RowPartitionSpec(TypeSpec):
    """Description of a partition.

    Args:
      nrows, nvals, uniform_row_length: the numbers that are known; None for the others.
      dtype: int64 or int32.
    """

    def __init__(
        self,
        nrows: int | None = None,
        nvals: int | None = None,
        uniform_row_length: int | None = None,
        dtype: Any = dtypes.int64,
    ) -> None:
        self.nrows, self.nvals, self.uniform_row_length = nrows, nvals, uniform_row_length
        self.dtype = dtypes.as_dtype(dtype)

    @property
    def value_type(self) -> Any:
        """`RowPartition`."""
        return RowPartition

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """See `TypeSpec.is_compatible_with`."""
        other = spec_or_value._type_spec if isinstance(spec_or_value, RowPartition) else spec_or_value
        if not isinstance(other, RowPartitionSpec) or self.dtype != other.dtype:
            return False
        return shapes.compatible(self._numbers(), other._numbers())

    def is_subtype_of(self, other: Any) -> bool:
        """See `ExtensionTypeSpec.is_subtype_of`."""
        is_same_kind = isinstance(other, RowPartitionSpec) and self.dtype == other.dtype
        return is_same_kind and shapes.covers(other._numbers(), self._numbers())

    def most_specific_common_supertype(self, others: Sequence[Any]) -> RowPartitionSpec | None:
        """See `ExtensionTypeSpec.most_specific_common_supertype`."""
        if any(not isinstance(o, RowPartitionSpec) or self.dtype != o.dtype for o in others):
            return None
        columns = zip(self._numbers(), *[o._numbers() for o in others], strict=True)
        nrows, nvals, length = (first if all(x == first for x in rest) else None for first, *rest in columns)
        return RowPartitionSpec(nrows, nvals, length, self.dtype)

    def flatten(self) -> list[TensorSpec]:
        """Returns the description of the splits."""
        return [TensorSpec((None if self.nrows is None else self.nrows + 1,), self.dtype)]

    def from_tensors(self, tensors: Any) -> RowPartition:
        """Returns the partition of splits."""
        length = self.uniform_row_length
        kept = None if length is None else array_ops.constant(length, self.dtype)
        return RowPartition(next(tensors), uniform_row_length=kept, internal=True)

    def _encoding(self) -> Any:
        return tuple(self.flatten())

    def _with_encoding(self, parts: Any) -> Any:
        return self if isinstance(parts[0], TensorSpec) else self.from_tensors(iter(parts))

    def _key(self) -> Hashable:
        return self.uniform_row_length

    def _batched(self, size: int | None) -> Any:
        raise _not_batchable()

    def _unbatched(self) -> Any:
        raise _not_batchable()

    def _joined(self, other: Any) -> Any:
        return self.most_specific_common_supertype([other])

    def _numbers(self) -> tuple[int | None, ...]:
        return self.nrows, self.nvals, self.uniform_row_length

    def __eq__(self, other: object) -> bool:
        is_same_kind = isinstance(other, RowPartitionSpec) and self.dtype == other.dtype
        return is_same_kind and self._numbers() == other._numbers()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((self._numbers(), self.dtype))

    def __repr__(self) -> str:
        return "RowPartitionSpec({}, {}, {}, {})".format(*self._numbers(), self.dtype.name)


def _not_batchable() -> TypeError:
    return TypeError("a RowPartition, and a shape or structure that has one, cannot be batched or taken apart in rows")


def _check_bool(validate: Any) -> None:
    if not isinstance(validate, bool):
        raise TypeError("validate must have type bool")


def _integer(x: Any, name: str, dtype: Any, dtype_hint: Any) -> Any:
    if isinstance(x, np.ndarray) and x.dtype == np.int32 and dtype is None:
        dtype = dtypes.int32
    hint = dtypes.int64 if dtype_hint is None else dtypes.as_dtype(dtype_hint)
    out = array_ops.convert_to_tensor(x, dtype, name=name, preferred_dtype=hint)
    if out.dtype.base not in _INTEGERS:
        raise ValueError(f"{name} must have dtype int32 or int64")
    return out


def _vector(x: Any, name: str, dtype: Any, dtype_hint: Any) -> Any:
    out = _integer(x, name, dtype, dtype_hint)
    TensorShape(out.shape).assert_has_rank(1)
    return out


def _known(x: Any) -> int | None:
    value = None if x is None else get_static_value(x)
    return None if value is None else int(value)


def _refine(t: Any, shape: shapes.Shape) -> None:
    if hasattr(t, "refine"):
        t.refine(shape)


def _after_zero(x: Any) -> Any:
    return array_ops.concat([array_ops.zeros([1], x.dtype), x], 0)


def _zero(x: Any, text: str) -> Any:
    return check_ops.assert_equal(x, array_ops.zeros_like(x), message=text)


def _ascend(x: Any, text: str) -> Any:
    return check_ops.assert_non_negative(x[1:] - x[:-1], message=text)


def _checked(x: Any, *checks: Any) -> Any:
    found = [check for check in checks if check is not None]
    if not found or not isinstance(x, Tensor):
        return x
    with control_dependencies(found):
        return array_ops.identity(x)
