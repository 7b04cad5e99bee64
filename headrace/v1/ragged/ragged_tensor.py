"""Ragged tensors: rows of different lengths as joined values and row splits.

A `RaggedTensor` is a structure of tensors. A session fetches it as a `RaggedTensorValue`, which can be fed too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import scopes
from headrace.api.data.structure import VariantSpec
from headrace.api.sparse_tensor import SparseTensor
from headrace.ir.graph import Tensor
from headrace.v1 import array_ops, check_ops, math_ops
from headrace.v1.array_ops import get_static_value
from headrace.v1.scoping import control_dependencies, name_scope
from headrace.v1.tensor_shape import TensorShape


class RaggedTensorValue(tuple[Any, ...]):
    """Value of a `RaggedTensor`: the result of a fetch, and a value to feed.

    Args:
      values: joined values: an array, or a `RaggedTensorValue`.
      row_splits: where each row begins in `values`, and the end of the last one.

    Source: TensorFlow's `tf.ragged.RaggedTensorValue`.
    """

    __slots__ = ()

    def __new__(cls, values: Any, row_splits: Any) -> RaggedTensorValue:
        splits = np.asarray(row_splits)
        if isinstance(values, RaggedTensorValue):
            return cls.from_parts(values[0], splits, *values[1:])
        return cls.from_parts(np.asarray(values), splits)

    @classmethod
    def from_parts(cls, flat_values: Any, *nested_row_splits: Any) -> RaggedTensorValue:
        """Makes a value of the innermost values and the row splits, outermost first."""
        return tuple.__new__(cls, (flat_values, *nested_row_splits))

    @property
    def flat_values(self) -> Any:
        """Innermost values, an array."""
        return self[0]

    @property
    def nested_row_splits(self) -> tuple[Any, ...]:
        """Row splits, from the outermost on."""
        return tuple(self[1:])

    @property
    def row_splits(self) -> Any:
        """Places at which rows begin in `values`, and the end of the last one."""
        return self[1]

    @property
    def values(self) -> Any:
        """Joined values of the rows."""
        return self[0] if len(self) == 2 else self.from_parts(self[0], *self[2:])

    @property
    def dtype(self) -> Any:
        """Dtype of the values, NumPy's."""
        return self[0].dtype

    @property
    def ragged_rank(self) -> int:
        """Number of ragged axes."""
        return len(self) - 1

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape, with None for ragged axes."""
        return (len(self[1]) - 1, *[None] * self.ragged_rank, *self[0].shape[1:])

    def to_list(self) -> list[Any]:
        """Returns the rows as nested lists."""
        inner = self.values
        rows = inner.to_list() if isinstance(inner, RaggedTensorValue) else inner.tolist()
        ends = self.row_splits.tolist()
        return [rows[a:b] for a, b in itertools.pairwise(ends)]

    def __repr__(self) -> str:
        return f"tf.RaggedTensorValue(values={self.values!r}, row_splits={self.row_splits!r})"


class RaggedTensor(nest.Composite):
    """A tensor whose rows have different lengths. Its class methods make one.

    Source: TensorFlow's `tf.RaggedTensor`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     r = tf.RaggedTensor.from_row_lengths([1, 2, 3], [2, 0, 1])
      ...     sess.run(r * 10).to_list(), sess.run(r.to_tensor()).tolist()
      ([[10, 20], [], [30]], [[1, 2], [0, 0], [3, 0]])
    """

    fetched_as = RaggedTensorValue.from_parts

    flat_values: Any
    nested_row_splits: tuple[Any, ...]

    def __init__(self, values: Any, row_partition: Any, internal: bool = False) -> None:
        if not internal:
            raise ValueError(
                "RaggedTensor constructor is private; please use one of the factory methods instead (e.g., "
                "RaggedTensor.from_row_lengths())"
            )
        inner = values.nested_row_splits if isinstance(values, RaggedTensor) else ()
        self.flat_values = values.flat_values if isinstance(values, RaggedTensor) else values
        self.nested_row_splits = (row_partition, *inner)

    # *** constructors ***

    @classmethod
    def of_parts(cls, flat_values: Any, nested_row_splits: Sequence[Any]) -> RaggedTensor:
        """Makes a ragged tensor of its tensors, without operations."""
        made = cls.__new__(cls)
        made.flat_values, made.nested_row_splits = flat_values, tuple(nested_row_splits)
        return made

    @classmethod
    def from_row_splits(cls, values: Any, row_splits: Any, name: str | None = None, validate: bool = True) -> Any:
        """Makes a ragged tensor of joined values.

        Args:
          values: joined values, a tensor or ragged tensor.
          row_splits: where each row begins in `values`, and the end of the last one: int32 or int64.
          name: of the operations.
          validate: whether a step checks that the splits ascend from 0 to the number of values.
        """
        with name_scope(name, "RaggedFromRowSplits"):
            values, splits = _values(values), _integers(row_splits, "row_splits")
            if validate:
                count = math_ops.cast(_rows(values), splits.dtype)
                text = "Arguments to from_row_splits do not form a valid RaggedTensor"
                checks = [
                    check_ops.assert_equal(splits[:1], [0], message=f"{text}:zero"),
                    check_ops.assert_non_negative(splits[1:] - splits[:-1], message=f"{text}:monotonic"),
                    check_ops.assert_equal(splits[-1], count, message=f"{text}:nvals"),
                ]
                with control_dependencies(checks):
                    splits = array_ops.identity(splits)
            return cls._joined(values, splits)

    @classmethod
    def _joined(cls, values: Any, splits: Any) -> RaggedTensor:
        return cls(values, splits, internal=True)

    @classmethod
    def from_row_lengths(cls, values: Any, row_lengths: Any, name: str | None = None, validate: bool = True) -> Any:
        """Makes a ragged tensor of joined values and the lengths of the rows."""
        with name_scope(name, "RaggedFromRowLengths"):
            lengths = _integers(row_lengths, "row_lengths")
            splits = array_ops.concat([array_ops.zeros([1], lengths.dtype), math_ops.cumsum(lengths)], 0)
            return cls.from_row_splits(values, splits, validate=validate)

    @classmethod
    def from_row_starts(cls, values: Any, row_starts: Any, name: str | None = None, validate: bool = True) -> Any:
        """Makes a ragged tensor of joined values and the places at which rows begin."""
        with name_scope(name, "RaggedFromRowStarts"):
            values, starts = _values(values), _integers(row_starts, "row_starts")
            end = math_ops.cast(_rows(values), starts.dtype)
            return cls.from_row_splits(values, array_ops.concat([starts, [end]], 0), validate=validate)

    @classmethod
    def from_row_limits(cls, values: Any, row_limits: Any, name: str | None = None, validate: bool = True) -> Any:
        """Makes a ragged tensor of joined values and the ends of the rows."""
        with name_scope(name, "RaggedFromRowLimits"):
            limits = _integers(row_limits, "row_limits")
            splits = array_ops.concat([array_ops.zeros([1], limits.dtype), limits], 0)
            return cls.from_row_splits(values, splits, validate=validate)

    @classmethod
    def from_value_rowids(
        cls, values: Any, value_rowids: Any, nrows: Any = None, name: str | None = None, validate: bool = True
    ) -> Any:
        """Makes a ragged tensor of joined values and their rows, in ascending order.

        Args:
          values, name, validate: see `from_row_splits`.
          value_rowids: the row of each value.
          nrows: number of rows; None: up to the last row with a value.
        """
        with name_scope(name, "RaggedFromValueRowIds"):
            splits = segment_ids_to_row_splits(_integers(value_rowids, "value_rowids"), nrows)
            return cls.from_row_splits(values, splits, validate=validate)

    @classmethod
    def from_uniform_row_length(
        cls, values: Any, uniform_row_length: Any, nrows: Any = None, validate: bool = True, name: str | None = None
    ) -> Any:
        """Makes a ragged tensor of joined values in rows of one length."""
        with name_scope(name, "RaggedFromUniformRowLength"):
            values, length = _values(values), math_ops.cast(uniform_row_length, dtypes.int64)
            count = math_ops.cast(_rows(values), dtypes.int64) // length if nrows is None else nrows
            splits = math_ops.range(math_ops.cast(count, dtypes.int64) + 1) * length
            return cls.from_row_splits(values, splits, validate=validate)

    @classmethod
    def from_nested_row_splits(
        cls, flat_values: Any, nested_row_splits: Sequence[Any], name: str | None = None, validate: bool = True
    ) -> Any:
        """Makes a ragged tensor of innermost values and row splits, from the outermost on."""
        return _nested(cls.from_row_splits, flat_values, nested_row_splits, name, validate)

    @classmethod
    def from_nested_row_lengths(
        cls, flat_values: Any, nested_row_lengths: Sequence[Any], name: str | None = None, validate: bool = True
    ) -> Any:
        """Makes a ragged tensor of innermost values and lengths of rows, from the outermost on."""
        return _nested(cls.from_row_lengths, flat_values, nested_row_lengths, name, validate)

    @classmethod
    def from_nested_value_rowids(
        cls,
        flat_values: Any,
        nested_value_rowids: Sequence[Any],
        nested_nrows: Sequence[Any] | None = None,
        name: str | None = None,
        validate: bool = True,
    ) -> Any:
        """Makes a ragged tensor of innermost values and the rows of values.

        Args:
          flat_values: innermost values.
          nested_value_rowids: for each ragged axis the row of each value.
          nested_nrows: for each ragged axis the number of rows; None: up to the last row with a value.
          name, validate: see `from_row_splits`.

        Raises:
          ValueError: `nested_nrows` has another length.
        """
        counts = [None] * len(nested_value_rowids) if nested_nrows is None else list(nested_nrows)
        if len(counts) != len(nested_value_rowids):
            raise ValueError("Argument `nested_nrows` must have the same length as argument `nested_value_rowids`")
        with name_scope(name, "RaggedFromNestedValueRowIds"):
            values = flat_values
            for rowids, count in zip(reversed(nested_value_rowids), reversed(counts), strict=True):
                values = cls.from_value_rowids(values, rowids, count, validate=validate)
            return values

    @classmethod
    def from_tensor(
        cls,
        tensor: Any,
        lengths: Any = None,
        padding: Any = None,
        ragged_rank: int = 1,
        name: str | None = None,
        row_splits_dtype: Any = dtypes.int64,
    ) -> Any:
        """Makes a ragged tensor of a tensor of rank 2 or more, without the padding.

        Args:
          tensor: the tensor.
          lengths: number of elements of each row that are kept.
          padding: scalar; the elements of this value at the end of a row are dropped.
          ragged_rank: 1.
          name: of the operations.
          row_splits_dtype: int64 or int32.

        Raises:
          ValueError: both `lengths` and `padding` are given, or another ragged rank is wanted.
        """
        if lengths is not None and padding is not None:
            raise ValueError("Specify argument `lengths` or `padding`, but not both.")
        if ragged_rank != 1:
            raise ValueError(f"from_tensor makes one ragged axis, got ragged_rank={ragged_rank}")
        with name_scope(name, "RaggedFromTensor", [tensor]):
            t = array_ops.convert_to_tensor(tensor, name="tensor")
            width = array_ops.shape(t)[1]
            if padding is not None:
                kept = math_ops.not_equal(t, math_ops.cast(padding, t.dtype))
                lengths = math_ops.reduce_max(math_ops.cast(kept, dtypes.int32) * (math_ops.range(width) + 1), axis=1)
            elif lengths is None:
                lengths = array_ops.fill(array_ops.shape(t)[:1], width)
            lengths = math_ops.minimum(math_ops.cast(lengths, dtypes.int32), width)
            values = array_ops.boolean_mask(t, array_ops.sequence_mask(lengths, width))
            return cls.from_row_lengths(values, math_ops.cast(lengths, row_splits_dtype), validate=False)

    @classmethod
    def from_sparse(cls, st_input: Any, name: str | None = None, row_splits_dtype: Any = dtypes.int64) -> Any:
        """Makes a ragged tensor of a sparse matrix.

        The elements of each row must be at its beginning.
        """
        with name_scope(name, "RaggedFromSparse"):
            rows, places = st_input.indices[:, 0], st_input.indices[:, 1]
            out = cls.from_value_rowids(st_input.values, rows, st_input.dense_shape[0], validate=False)
            first = array_ops.gather(out.row_starts(), rows)
            text = "SparseTensor is not right-ragged"
            right = math_ops.range(math_ops.cast(array_ops.size(rows), dtypes.int64)) - first
            with control_dependencies([check_ops.assert_equal(places, right, message=text)]):
                splits = math_ops.cast(array_ops.identity(out.row_splits), row_splits_dtype)
            return cls._joined(st_input.values, splits)

    # *** properties and parts ***

    @property
    def values(self) -> Any:
        """Joined values of the rows, a tensor or ragged tensor."""
        inner = self.nested_row_splits[1:]
        return RaggedTensor.of_parts(self.flat_values, inner) if inner else self.flat_values

    @property
    def row_splits(self) -> Any:
        """Places at which rows begin in `values`, and the end of the last one."""
        return self.nested_row_splits[0]

    @property
    def ragged_rank(self) -> int:
        """Number of ragged axes."""
        return len(self.nested_row_splits)

    @property
    def dtype(self) -> Any:
        """Dtype of the values."""
        return self.flat_values.dtype

    @property
    def graph(self) -> Any:
        """Graph of the tensors."""
        return self.flat_values.graph

    @property
    def shape(self) -> TensorShape:
        """Static shape, with None for ragged axes."""
        count, inner = TensorShape(self.row_splits.shape).as_list()[0], TensorShape(self.flat_values.shape)
        if inner.ndims is None:
            return TensorShape(None)
        return TensorShape([None if count is None else count - 1, *[None] * self.ragged_rank, *inner.as_list()[1:]])

    def get_shape(self) -> TensorShape:
        """Returns the static shape."""
        return self.shape

    def nrows(self, out_type: Any = None, name: str | None = None) -> Any:
        """Computes the number of rows."""
        with name_scope(name, "RaggedNRows"):
            return math_ops.cast(array_ops.shape(self.row_splits)[0] - 1, out_type or self.row_splits.dtype)

    def row_starts(self, name: str | None = None) -> Any:
        """Returns the places at which rows begin."""
        with name_scope(name, "RaggedRowStarts"):
            return self.row_splits[:-1]

    def row_limits(self, name: str | None = None) -> Any:
        """Returns the ends of the rows."""
        with name_scope(name, "RaggedRowLimits"):
            return self.row_splits[1:]

    def row_lengths(self, axis: int = 1, name: str | None = None) -> Any:
        """Computes the lengths of the rows.

        Args:
          axis: the axis whose lengths are computed, from 1 to the ragged rank; those of inner axes are ragged.
          name: of the operations.
        """
        with name_scope(name, "RaggedRowLengths"):
            if axis > 1:
                return self.with_values(self.values.row_lengths(axis - 1))
            return self.row_splits[1:] - self.row_splits[:-1]

    def nested_row_lengths(self, name: str | None = None) -> tuple[Any, ...]:
        """Computes the lengths of the rows of each ragged axis."""
        with name_scope(name, "RaggedNestedRowLengths"):
            return tuple(splits[1:] - splits[:-1] for splits in self.nested_row_splits)

    def value_rowids(self, name: str | None = None) -> Any:
        """Computes the row of each value."""
        with name_scope(name, "RaggedValueRowIds"):
            return row_splits_to_segment_ids(self.row_splits)

    def nested_value_rowids(self, name: str | None = None) -> tuple[Any, ...]:
        """Computes the row of each value, for each ragged axis."""
        with name_scope(name, "RaggedNestedValueRowIds"):
            return tuple(row_splits_to_segment_ids(splits) for splits in self.nested_row_splits)

    @property
    def uniform_row_length(self) -> Any:
        """The length of all rows, if it is known; None otherwise.

        It is known of the rows that `from_uniform_row_length` makes of known values.
        """
        splits = get_static_value(self.row_splits)
        is_given = not isinstance(self.row_splits, Tensor) or self.row_splits.op.type == "Const"
        if splits is None or is_given or len(splits) < 2:
            return None
        lengths = np.diff(splits)
        return array_ops.constant(lengths[0], self.row_splits.dtype) if (lengths == lengths[0]).all() else None

    def merge_dims(self, outer_axis: int, inner_axis: int) -> Any:
        """Merges the axes from `outer_axis` to `inner_axis` into one.

        Args:
          outer_axis, inner_axis: the axes, ints; negative ones count from the last.

        Raises:
          ValueError: there is no such axis, or the first is behind the second.
        """
        rank = self.shape.ndims
        axes = [axis + rank if axis < 0 and rank is not None else axis for axis in (outer_axis, inner_axis)]
        if min(axes) < 0 or (rank is not None and max(axes) >= rank):
            raise ValueError(f"merge_dims needs axes of a ragged tensor of rank {rank}, got {outer_axis}, {inner_axis}")
        first, last = axes
        if first > last:
            raise ValueError(
                f"Expected outer_axis ({outer_axis}) to be less than or equal to inner_axis ({inner_axis})."
            )
        out: Any = self
        for _ in range(last - first):
            out = _merged(out, first)
        return out

    def consumers(self) -> list[Any]:
        """Returns the operations that read its tensors."""
        return list(dict.fromkeys(op for t in self._flatten() for op in t.consumers()))

    def numpy(self) -> Any:
        """Returns an array of arrays: a row of objects, if the rows have different lengths.

        The value of a tensor of a graph is computed in the default session.
        """
        return _rows_of(self._known())

    def bounding_shape(self, axis: Any = None, name: str | None = None, out_type: Any = None) -> Any:
        """Computes the least shape of a tensor that has room for all rows."""
        with name_scope(name, "RaggedBoundingBox"):
            kind = out_type or self.row_splits.dtype
            zero = array_ops.zeros([1], self.row_splits.dtype)
            widest = [math_ops.reduce_max(array_ops.concat([n, zero], 0)) for n in self.nested_row_lengths()]
            inner = math_ops.cast(array_ops.shape(self.flat_values)[1:], kind)
            sizes = [math_ops.cast(x, kind) for x in (self.nrows(), *widest)]
            whole = array_ops.concat([array_ops.stack(sizes), inner], 0)
            return whole if axis is None else array_ops.gather(whole, axis)

    # *** other forms ***

    def with_values(self, new_values: Any) -> Any:
        """Returns a ragged tensor with the same rows of other values."""
        return self._joined(_values(new_values), self.row_splits)

    def with_flat_values(self, new_values: Any) -> Any:
        """Returns a ragged tensor with the same rows of other innermost values."""
        return RaggedTensor.of_parts(array_ops.convert_to_tensor(new_values), self.nested_row_splits)

    def with_row_splits_dtype(self, dtype: Any) -> Any:
        """Returns a ragged tensor whose row splits have the dtype int32 or int64."""
        return RaggedTensor.of_parts(self.flat_values, [math_ops.cast(s, dtype) for s in self.nested_row_splits])

    def to_tensor(self, default_value: Any = None, name: str | None = None, shape: Any = None) -> Any:
        """Fills a tensor with the rows.

        Args:
          default_value: value of the elements behind the end of a row; None: zero, or the empty string.
          name: of the operations.
          shape: shape of the result, with None for the greatest length.
        """
        with name_scope(name, "RaggedToTensor"):
            empty = "" if self.dtype.base is dtypes.string else 0
            default = array_ops.constant(empty, self.dtype) if default_value is None else default_value
            wanted = -1 if shape is None else [-1 if d is None else d for d in TensorShape(shape).as_list()]
            wanted = array_ops.constant(wanted, dtypes.int64)
            args = (wanted, self.flat_values, array_ops.convert_to_tensor(default, self.dtype))
            kinds = ["ROW_SPLITS"] * self.ragged_rank
            b = scopes.builder(*args)
            return b.make(
                "RaggedTensorToTensor", (*args, list(self.nested_row_splits)), {"row_partition_types": kinds}
            )  # fmt: skip

    def to_sparse(self, name: str | None = None) -> SparseTensor:
        """Makes a sparse tensor of the values, each at its place in its row."""
        with name_scope(name, "RaggedToSparse"):
            args = (list(self.nested_row_splits), self.flat_values)
            return SparseTensor(*scopes.builder(self.flat_values).make("RaggedTensorToSparse", args, {}))

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """Its value, a `RaggedTensorValue`, in the default session if none is given."""
        from headrace.v1.session import session_for

        return session_for(self, self.graph, session, "eval").run(self, feed_dict)

    def to_list(self) -> list[Any]:
        """Returns the rows as nested lists.

        Those of a tensor of a graph are computed in the default session.
        """
        out: list[Any] = self._known().to_list()
        return out

    def _known(self) -> RaggedTensorValue:
        """Returns the value: that of eager tensors, or in the default session."""
        if any(isinstance(t, Tensor) for t in self._flatten()):
            found: RaggedTensorValue = self.eval()
            return found
        return RaggedTensorValue.from_parts(*[np.asarray(t) for t in self._flatten()])

    def __getitem__(self, key: Any) -> Any:
        """Returns a row, or the rows or the parts of rows of slices.

        Raises:
          ValueError: the key has an index of a ragged axis without one of the row, or a step in a row.
        """
        first, *rest = key if isinstance(key, tuple) else (key,)
        if not isinstance(first, slice):
            last = first - 1 if isinstance(first, int) and first < 0 else first
            row = _between(self.values, self.row_splits[last], self.row_splits[last + 1])
            return row[tuple(rest)] if rest else row
        out = self if first == slice(None) else gather_rows(self, math_ops.range(self.nrows())[first])
        if not rest:
            return out
        second, *inner = rest
        if not isinstance(second, slice) or second.step not in (None, 1):
            raise ValueError(f"Cannot index into an inner ragged dimension: {key!r}; give a slice without a step")
        starts, limits = out.row_starts(), out.row_limits()
        low = starts if second.start is None else _place(second.start, starts, limits)
        high = limits if second.stop is None else _place(second.stop, starts, limits)
        out = gather_ranges(out.values, low, math_ops.maximum(low, high))
        return out.with_values(out.values[(slice(None), *inner)]) if inner else out

    def _component(self, b: Any) -> tuple[Any, Any]:
        """Returns the component of a dataset's element, and its description."""
        made = to_variant(self.flat_values, self.nested_row_splits, False)
        return made, RaggedTensorSpec.from_value(self)

    def _rows(self, b: Any) -> tuple[Any, Any]:
        """Returns the components of the rows, and their description."""
        made = to_variant(self.flat_values, self.nested_row_splits, True)
        return made, RaggedTensorSpec.from_value(self)._unbatched()

    def _flatten(self) -> list[Any]:
        return [self.flat_values, *self.nested_row_splits]

    def _unflatten(self, parts: Sequence[Any]) -> RaggedTensor:
        return RaggedTensor.of_parts(parts[0], parts[1:])

    def _key(self) -> int:
        return self.ragged_rank

    def __repr__(self) -> str:
        return f"tf.RaggedTensor(values={self.values}, row_splits={self.row_splits})"


def _merged(x: Any, axis: int) -> Any:
    """Merges an axis of a tensor or ragged tensor with the next one."""
    if not isinstance(x, RaggedTensor):
        dims = array_ops.shape(x)
        return array_ops.reshape(x, array_ops.concat([dims[:axis], [-1], dims[axis + 2 :]], 0))
    if axis == 0:
        return x.values
    if axis > 1 or not isinstance(x.values, RaggedTensor):
        if axis == 1:  # the rows of values of a uniform axis
            width = math_ops.cast(array_ops.shape(x.values)[1], x.row_splits.dtype)
            return RaggedTensor._joined(_merged(x.values, 0), x.row_splits * width)
        return x.with_values(_merged(x.values, axis - 1))
    inner = x.values
    return RaggedTensor._joined(inner.values, array_ops.gather(inner.row_splits, x.row_splits))


def _rows_of(value: Any) -> Any:
    if not isinstance(value, RaggedTensorValue):
        return value
    inner, ends = _rows_of(value.values), value.row_splits.tolist()
    rows = [inner[a:b] for a, b in itertools.pairwise(ends)]
    if len({len(row) for row in rows}) == 1 and all(row.dtype != object or row.ndim > 1 for row in rows):
        return np.stack(rows)
    out = np.empty(len(rows), object)
    out[:] = rows
    return out


def map_flat_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Applies a function to the innermost values of ragged tensors, which have the same rows.

    Args:
      op: function of tensors, whose result has as many rows as its arguments.
      *args, **kwargs: arguments, of which some are ragged, or lists with ragged tensors.

    Raises:
      ValueError: the ragged tensors have different ragged ranks.

    Source: TensorFlow's `tf.ragged.map_flat_values`.
    """
    found: list[RaggedTensor] = []

    def flat(x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return type(x)(flat(y) for y in x)
        if isinstance(x, RaggedTensor):
            found.append(x)
            return x.flat_values
        return x

    args, kwargs = tuple(flat(x) for x in args), {k: flat(x) for k, x in kwargs.items()}
    if not found:
        return op(*args, **kwargs)
    if len({r.ragged_rank for r in found}) > 1:
        raise ValueError(f"All ragged inputs must have the same ragged_rank, got {[r.ragged_rank for r in found]}.")
    checks = []
    for other in found[1:]:
        for a, b in zip(found[0].nested_row_splits, other.nested_row_splits, strict=True):
            if a is not b:
                checks.append(check_ops.assert_equal(a, b, message="Inputs must have identical ragged splits"))
    with control_dependencies(checks):
        return found[0].with_flat_values(op(*args, **kwargs))


def row_splits_to_segment_ids(splits: Any, name: str | None = None, out_type: Any = None) -> Any:
    """Computes the row of each value from row splits.

    Source: TensorFlow's `tf.ragged.row_splits_to_segment_ids`.
    """
    with name_scope(name, "RaggedSplitsToSegmentIds"):
        splits = _integers(splits, "splits")
        rows = math_ops.range(math_ops.cast(array_ops.size(splits) - 1, out_type or splits.dtype))
        return array_ops.repeat(rows, splits[1:] - splits[:-1])


def segment_ids_to_row_splits(
    segment_ids: Any, num_segments: Any = None, out_type: Any = None, name: str | None = None
) -> Any:
    """Computes row splits from the row of each value.

    Args:
      segment_ids: rows, in ascending order.
      num_segments: number of rows; None: up to the last row with a value.
      out_type: int32 or int64.
      name: of the operations.

    Source: TensorFlow's `tf.ragged.segment_ids_to_row_splits`.
    """
    with name_scope(name, "SegmentIdsToRaggedSplits"):
        ids = _integers(segment_ids, "segment_ids")
        if num_segments is None:
            num_segments = math_ops.reduce_max(array_ops.concat([ids, [-1]], 0)) + 1
        count = math_ops.cast(num_segments, dtypes.int32)
        lengths = math_ops.unsorted_segment_sum(array_ops.ones_like(ids), ids, count)
        splits = array_ops.concat([array_ops.zeros([1], ids.dtype), math_ops.cumsum(lengths)], 0)
        return splits if out_type is None else math_ops.cast(splits, out_type)


def gather_ranges(values: Any, starts: Any, limits: Any) -> RaggedTensor:
    """Makes rows of ranges of `values`, a tensor or ragged tensor."""
    args = (starts, limits, array_ops.ones_like(starts))
    splits, at = scopes.builder(starts).make("RaggedRange", args, {"Tsplits": starts.dtype.base})
    return RaggedTensor._joined(gather_rows(values, at), splits)


def gather_rows(values: Any, at: Any) -> Any:
    """Gathers rows of a tensor or ragged tensor."""
    if not isinstance(values, RaggedTensor):
        return array_ops.gather(values, at)
    starts, limits = values.row_starts(), values.row_limits()
    return gather_ranges(values.values, array_ops.gather(starts, at), array_ops.gather(limits, at))


def _between(values: Any, low: Any, high: Any) -> Any:
    if isinstance(values, RaggedTensor):
        return gather_rows(values, math_ops.range(low, high))
    return values[low:high]


def _place(i: int, starts: Any, limits: Any) -> Any:
    """Places of the index `i` of rows, at most the rows' ends."""
    if i < 0:
        return math_ops.maximum(limits + i, starts)
    return math_ops.minimum(starts + i, limits)


def _nested(make: Callable[..., Any], values: Any, rows: Sequence[Any], name: str | None, validate: bool) -> Any:
    with name_scope(name, "RaggedFromNested"):
        for partition in reversed(rows):
            values = make(values, partition, validate=validate)
        return values


def _values(values: Any) -> Any:
    if isinstance(values, RaggedTensorValue):
        return RaggedTensor.from_nested_row_splits(values.flat_values, values.nested_row_splits, validate=False)
    return values if isinstance(values, RaggedTensor) else array_ops.convert_to_tensor(values, name="values")


def _rows(values: Any) -> Any:
    return values.nrows() if isinstance(values, RaggedTensor) else array_ops.shape(values)[0]


def _integers(x: Any, name: str) -> Any:
    return array_ops.convert_to_tensor(x, name=name, preferred_dtype=dtypes.int64)


def _operator(f: Callable[[Any, Any], Any], is_reversed: bool = False) -> Callable[[Any, Any], Any]:
    def apply(x: Any, y: Any) -> Any:
        if isinstance(y, RaggedTensorValue):
            y = _values(y)
        if not isinstance(y, RaggedTensor) and np.ndim(y if not array_ops.is_tensor(y) else 0) > 0:
            raise ValueError(f"a ragged tensor takes a ragged tensor of the same rows or a scalar, got {y!r}")
        return map_flat_values(f, y, x) if is_reversed else map_flat_values(f, x, y)

    return apply


_BINARY = {
    "add": math_ops.add, "sub": math_ops.subtract, "mul": math_ops.multiply, "truediv": math_ops.truediv,
    "floordiv": math_ops.floordiv, "mod": math_ops.floormod, "pow": math_ops.pow, "and": math_ops.logical_and,
    "or": math_ops.logical_or, "xor": math_ops.logical_xor,
}  # fmt: skip
for _name, _f in _BINARY.items():
    setattr(RaggedTensor, f"__{_name}__", _operator(_f))
    setattr(RaggedTensor, f"__r{_name}__", _operator(_f, is_reversed=True))
for _name, _f in {
    "lt": math_ops.less, "le": math_ops.less_equal, "gt": math_ops.greater, "ge": math_ops.greater_equal
}.items():  # fmt: skip
    setattr(RaggedTensor, f"__{_name}__", _operator(_f))
for _name, _g in {"neg": math_ops.negative, "abs": math_ops.abs, "invert": math_ops.logical_not}.items():
    setattr(RaggedTensor, f"__{_name}__", lambda x, g=_g: map_flat_values(g, x))


class RaggedTensorSpec(VariantSpec):
    """Description of a ragged tensor.

    Args:
      shape: the shape; ragged dimensions are None.
      dtype: the dtype of the values.
      ragged_rank: the number of ragged axes; None: all but the first one.
      row_splits_dtype: int32 or int64.
      flat_values_spec: a description of the innermost values, of the same dtype; None: they are a tensor.

    Raises:
      ValueError: the ragged rank is unknown, or not below the rank; or the dtypes differ.

    Source: TensorFlow's `tf.RaggedTensorSpec`.

    Example:
      >>> import headrace.v1 as tf
      >>> tf.RaggedTensorSpec([2, None], tf.int32)
      RaggedTensorSpec(TensorShape([2, None]), int32, 1, int64)
    """

    __slots__ = ("dtype", "flat_values_spec", "ragged_rank", "row_splits_dtype", "shape")

    component_shape = None  # a batch is a vector of variants

    def __init__(
        self,
        shape: Any = None,
        dtype: Any = dtypes.float32,
        ragged_rank: int | None = None,
        row_splits_dtype: Any = dtypes.int64,
        flat_values_spec: Any = None,
    ) -> None:
        self.dtype, self.flat_values_spec = dtypes.as_dtype(dtype), flat_values_spec
        if flat_values_spec is not None and self.dtype != flat_values_spec.dtype:
            raise ValueError("dtype must be the same as flat_values_spec.dtype")
        self.shape = shapes.as_shape(TensorShape(shape).as_list() if TensorShape(shape).ndims is not None else None)
        if ragged_rank is None:
            if self.shape is None:
                raise ValueError("Must specify ragged_rank or a shape with known rank.")
            ragged_rank = len(self.shape) - 1
        if self.shape is not None and ragged_rank >= max(len(self.shape), 1):
            raise ValueError(f"Argument `ragged_rank` ({ragged_rank}) must be less than rank ({len(self.shape)}).")
        self.ragged_rank = ragged_rank
        self.row_splits_dtype = dtypes.as_dtype(row_splits_dtype)
        if self.row_splits_dtype not in (dtypes.int32, dtypes.int64):
            raise ValueError(f"`row_splits_dtype` must be int32 or int64, got {self.row_splits_dtype.name}")

    @property
    def value_type(self) -> type:
        """The class of the tensors that this describes."""
        return RaggedTensor if self.ragged_rank else Tensor

    def _fits(self, other: RaggedTensorSpec) -> bool:
        return self._parts()[1:] == other._parts()[1:] and shapes.compatible(self.shape, other.shape)

    @staticmethod
    def from_value(value: Any) -> RaggedTensorSpec:
        """Returns the description of a ragged tensor."""
        if not isinstance(value, RaggedTensor):
            return RaggedTensorSpec(value.shape, value.dtype.base, 0)
        splits = value.nested_row_splits
        return RaggedTensorSpec(value.shape, value.dtype, len(splits), splits[0].dtype.base)

    def __repr__(self) -> str:
        return (
            f"RaggedTensorSpec(TensorShape({None if self.shape is None else list(self.shape)}), {self.dtype.name}, "
            f"{self.ragged_rank}, {self.row_splits_dtype.name})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaggedTensorSpec) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self.ragged_rank, self.row_splits_dtype

    def _leaf(self, t: Any, dataset: Any) -> Any:
        attrs = {
            "input_ragged_rank": -1,
            "output_ragged_rank": self.ragged_rank,
            "Tvalues": self.dtype,
            "Tsplits": self.row_splits_dtype,
        }
        made = scopes.builder(t).make("RaggedTensorFromVariant", (t,), attrs)
        *splits, values = made if isinstance(made, (list, tuple)) else [made]
        if isinstance(values, Tensor) and self.shape is not None:
            inner = self.shape[self.ragged_rank + 1 :]
            values.refine((None, *inner) if self.ragged_rank else self.shape)
            if splits and self.shape[0] is not None:
                splits[0].refine((self.shape[0] + 1,))
        return RaggedTensor.from_nested_row_splits(values, splits, validate=False) if splits else values

    def _batched(self, size: int | None) -> RaggedTensorSpec:
        shape = None if self.shape is None else (size, *self.shape)
        return RaggedTensorSpec(shape, self.dtype, self.ragged_rank + 1, self.row_splits_dtype)

    def _unbatched(self) -> RaggedTensorSpec:
        if self.shape == ():
            raise ValueError("Cannot unbatch an input with scalar components.")
        shape = None if self.shape is None else self.shape[1:]
        return RaggedTensorSpec(shape, self.dtype, max(self.ragged_rank - 1, 0), self.row_splits_dtype)

    def _joined(self, other: Any) -> RaggedTensorSpec:
        if self._parts()[1:] != other._parts()[1:]:
            raise TypeError(f"Incompatible types of datasets: elements are {self} and {other}")
        return RaggedTensorSpec(shapes.join(self.shape, other.shape), *self._parts()[1:])


def to_variant(values: Any, splits: Any, rows: bool, row_splits_dtype: Any = dtypes.int64) -> Any:
    """Returns a ragged tensor, or its rows, as variants."""
    attrs = {"batched_input": rows, "Tsplits": splits[0].dtype.base if splits else row_splits_dtype}
    return scopes.builder(values).make("RaggedTensorToVariant", (list(splits), values), attrs)
