"""Collections of structures with equal fields: `tf.experimental.StructuredTensor`.

A field has one tensor for all structures: its outer axes are those of the collection. A collection of rank 2 or more
has a partition into rows for each inner axis, which all fields share.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Union

import numpy as np

from headrace import dtypes, nest
from headrace.api.tensor_spec import TensorSpec
from headrace.ir.graph import Tensor as Symbolic
from headrace.ir.tensor_type import Tensor
from headrace.v1 import array_ops, check_ops, math_ops
from headrace.v1.extension_types.extension_type import BatchableExtensionType, ExtensionType
from headrace.v1.ragged import making
from headrace.v1.ragged.dynamic_shape import DynamicRaggedShape
from headrace.v1.ragged.ragged_tensor import RaggedTensor, RaggedTensorSpec, RaggedTensorValue
from headrace.v1.ragged.row_partition import RowPartition
from headrace.v1.scoping import control_dependencies, name_scope
from headrace.v1.tensor_shape import TensorShape

_NAME: Final = re.compile("^[a-zA-Z][a-zA-Z0-9_]*$")

Fields = Mapping[str, Any]
Update = tuple[tuple[str, ...], Any]


class StructuredTensor(BatchableExtensionType):
    """Collection of structures that have the same fields. Its class methods make one.

    Source: TensorFlow's `tf.experimental.StructuredTensor`.

    Example:
      >>> import headrace.v1 as tf
      >>> people = [{"age": 12, "names": ["Jo"]}, {"age": 82, "names": ["Bob", "Bobby"]}]
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     s = tf.experimental.StructuredTensor.from_pyval(people)
      ...     s.shape.as_list(), sorted(s.field_names()), sess.run(s[1]["age"])
      ([2], ['age', 'names'], np.int32(82))
    """

    _values: Mapping[str, Tensor | RaggedTensor | ExtensionType]
    _ragged_shape: DynamicRaggedShape
    __name__ = "tf.StructuredTensor"

    def __init__(self, fields: Fields, ragged_shape: DynamicRaggedShape) -> None:
        self._values, self._ragged_shape = fields, ragged_shape

    # *** constructors ***

    @classmethod
    def from_fields(
        cls, fields: Any, shape: Any = (), nrows: Any = None, row_partitions: Any = None, validate: bool = False
    ) -> Any:
        """Makes a collection of its fields.

        Args:
          fields: a dict of tensors, ragged tensors and collections, whose outer axes are `shape`.
          shape: the static shape of the collection, of known rank.
          nrows: the number of rows; None: that of the fields.
          row_partitions: partitions of the inner axes, for rank 2 and more; None: those of the fields.
          validate: whether a step checks that the fields have the same number of rows.

        Raises:
          TypeError: `fields` is no dict, a name is no text, or a value cannot be a tensor.
          ValueError: the rank is not known, an argument does not fit it, a name is not allowed, or fields differ in the
            number of rows.
        """
        known = TensorShape(shape)
        if known.ndims is None:
            raise ValueError("StructuredTensor's shape must have known rank.")
        if not isinstance(fields, dict):
            raise TypeError(f"fields must be a dictionary, got {type(fields).__name__}")
        if known.ndims < 2 and row_partitions:
            raise ValueError("row_partitions must be None or [] if shape.rank<2")
        if known.ndims == 0 and nrows is not None:
            raise ValueError("nrows must be None if shape.rank==0")
        if row_partitions is not None and len(row_partitions) != max(0, known.ndims - 1):
            raise ValueError("len(row_partitions) must be shape.rank-1")
        with name_scope(None, "StructuredTensor"):
            return cls._joined(fields, known, nrows, row_partitions, validate)

    @classmethod
    def from_fields_and_rank(cls, fields: Any, rank: int, validate: bool = False, dtype: Any = None) -> Any:
        """Makes a collection of its fields, whose first axes are those of the collection.

        Args:
          fields: a dict of tensors, ragged tensors and collections, at least one.
          rank: the rank of the collection.
          validate: see `from_fields`.
          dtype: int32 or int64, the dtype of the partitions; None: that of the fields.

        Raises:
          ValueError: there are no fields, or the rank is no number from 0 on.
        """
        if not fields:
            raise ValueError("Must provide at least one field")
        if not isinstance(rank, int):
            raise ValueError("rank must be an integer")
        if rank < 0:
            raise ValueError("rank must be nonnegative")
        made = cls._joined(dict(fields), TensorShape([None] * rank), None, None, validate)
        return made if dtype is None else made.with_shape_dtype(dtype)

    @classmethod
    def from_shape(cls, ragged_shape: DynamicRaggedShape) -> Any:
        """Makes a collection without fields.

        Args:
          ragged_shape: its shape.
        """
        return cls({}, ragged_shape)

    @classmethod
    def _joined(cls, fields: Any, shape: TensorShape, nrows: Any, rows: Any, validate: bool) -> Any:
        values, rank = {}, shape.ndims or 0
        for name, value in fields.items():
            if not isinstance(name, str):
                raise TypeError(f"Unexpected type for key in `fields`: {name}")
            if not _NAME.match(name):
                raise ValueError(f"Field name {name!r} is not currently allowed.")
            values[name] = _field(value)
        kind = _dtype(values, nrows, rows)
        values = {k: _with_dtype(v, kind) for k, v in values.items()}
        if rank == 0:
            return cls(values, DynamicRaggedShape([], [], dtype=kind))
        counts = [shape.as_list()[0], nrows, *[_static_rows(v) for v in values.values()]]
        known = {int(n) for n in counts if isinstance(n, (int, np.integer))}
        if len(known) > 1:
            raise ValueError("fields have incompatible nrows")
        checks = []
        if validate and not known and len(values) > 1:
            first, *others = [_rows(v, kind) for v in values.values()]
            text = "fields have incompatible nrows"
            checks = [check_ops.assert_equal(first, n, message=text) for n in others]
        if rank == 1:
            if not known and nrows is None and not values:
                raise ValueError("Must specify `nrows`, a fully specified `shape`, or have `fields` if `rank=1`")
            count = known.pop() if known else nrows if nrows is not None else _rows(next(iter(values.values())), kind)
            return cls(values, _checked(DynamicRaggedShape([], [count], dtype=kind), checks))
        if not rows:
            found = [_partitions(v, rank, kind) for v in values.values()]
            if not found and shape.is_fully_defined():
                found = [list(DynamicRaggedShape.from_lengths(shape.as_list(), rank - 1, kind).row_partitions)]
            if not found:
                raise ValueError("Must specify row_partitions, a fully specified shape, or have fields if rank > 1")
            rows = found[0]
        rows = [p.with_dtype(kind) for p in rows]
        values = {k: _with_partitions(v, rows) for k, v in values.items()}
        return cls(values, _checked(DynamicRaggedShape.from_row_partitions(rows), checks))

    @classmethod
    def from_pyval(cls, pyval: Any, typespec: Any = None) -> Any:
        """Makes a collection of nested lists of dicts, or of rank 0 of a dict.

        Args:
          pyval: the lists and dicts. Lists without dicts become tensors, or ragged tensors from rank 2 on.
          typespec: the description of the result; None: that of the values.

        Raises:
          ValueError: dicts are at different depths or differ in their keys, or do not fit the description.
        """
        return _of_value(cls, pyval, typespec, ())

    # *** parts ***

    @property
    def rank(self) -> int:
        """Number of axes."""
        return self._ragged_shape.rank or 0

    @property
    def shape(self) -> TensorShape:
        """Static shape, of known rank."""
        return TensorShape(self._ragged_shape.static_lengths(ragged_lengths=False))

    @property
    def row_partitions(self) -> tuple[RowPartition, ...]:
        """Partitions of the inner axes; none for a rank below 2."""
        found: tuple[RowPartition, ...] = self._ragged_shape.row_partitions
        return found

    def nrows(self) -> Any:
        """Returns the number of rows; None for rank 0."""
        return None if self.rank == 0 else self._ragged_shape[0]

    def field_names(self) -> tuple[str, ...]:
        """Returns the names of the fields."""
        return tuple(self._values)

    def field_value(self, field_name: Any) -> Any:
        """Returns the value of a field.

        Args:
          field_name: the name, or a list or tuple of names: the path to a field of a collection in a field.

        Raises:
          KeyError: there is no such field.
        """
        if not isinstance(field_name, (list, tuple)):
            return self._values[field_name]
        value: Any = self
        for name in field_name:
            if not isinstance(value, StructuredTensor):
                raise KeyError(f"Field path {field_name} not found in {self}")
            value = value.field_value(name)
        return value

    def __getitem__(self, key: Any) -> Any:
        """Returns some of the structures, or of the values of a field.

        Raises:
          ValueError: the key has another form.
          KeyError: there is no such field.
        """
        keys = tuple(key) if isinstance(key, (list, tuple)) else (key,)
        if not keys:
            return self
        rank = self.rank
        if rank == 0 and keys[0] == slice(None):
            fields = {k: _item(v, keys[1:]) for k, v in self._values.items()}
            return StructuredTensor.from_fields(fields, self.shape)
        if len(keys) > rank:
            name, rest = keys[rank], keys[:rank] + keys[rank + 1 :]
            if not isinstance(name, (str, bytes)):
                other = " or a full slice (':')" if rank == 0 else ""
                raise ValueError(f"Key for indexing a StructuredTensor must be a string{other}")
            return _item(self._values[name if isinstance(name, str) else name.decode()], rest)
        shape: list[Any] = self.shape.as_list()
        for axis, k in enumerate(keys):
            if isinstance(k, slice):
                shape[axis] = shape[axis] if k == slice(None) else None
            elif isinstance(k, (int, np.integer, Tensor)):
                shape[axis] = -1
            else:
                raise ValueError(f"Slicing not supported for {'tf.newaxis' if k is None else repr(k)}")
        fields = {k: _item(v, keys) for k, v in self._values.items()}
        return StructuredTensor.from_fields(fields, [n for n in shape if n != -1])

    # *** changes ***

    def with_updates(self, updates: Mapping[Any, Any], validate: bool = False) -> Any:
        """Returns a collection with other fields.

        Args:
          updates: dict from names, or paths of names, to values. None removes a field, and a function changes it.
          validate: see `from_fields`.

        Raises:
          ValueError: a field and one inside it are both changed; a field that is removed or changed does not exist; or
            the new fields do not fit.
        """
        items = sorted(
            (((k,) if isinstance(k, str) else tuple(k), v) for k, v in updates.items()), key=lambda item: item[0]
        )
        for (before, _), (path, _) in itertools.pairwise(items):
            if path[: len(before)] == before:
                raise ValueError(
                    "`StructuredTensor.with_updates` does not allow both parent and child nodes to be updated: "
                    f"parent={before}, child={path}. If needed you can update child nodes in the parent update value."
                )
        return self._updated((), items, validate)

    def _updated(self, above: tuple[str, ...], items: Sequence[Update], validate: bool) -> Any:
        fields, who = dict(self._values), "`StructuredTensor.with_updates`"
        for path, value in items:
            if not path or not path[0]:
                raise ValueError(f"{who} does not allow empty names {above + path}.")
            name, *rest = path
            full = (*above, name)
            if rest:
                inner = fields.get(name)
                if not isinstance(inner, StructuredTensor):
                    reason = "is not set" if inner is None else f"is not a `StructuredTensor`: it is a `{type(inner)}`"
                    raise ValueError(f"{who} cannot create new sub-field {above + path}: the parent {full} {reason}.")
                fields[name] = inner._updated(full, [(tuple(rest), value)], validate)
            elif value is None:
                if name not in fields:
                    raise ValueError(f"{who} cannot delete field {full} because it is not present.")
                del fields[name]
            elif callable(value) and not isinstance(value, (Tensor, nest.Composite)):
                if name not in fields:
                    raise ValueError(
                        f"{who} cannot update the field {full} because a transforming function was given, but that "
                        "field does not already exist."
                    )
                fields[name] = value(fields[name])
            else:
                fields[name] = value
        try:
            rows = self.row_partitions if self.rank > 1 else None
            return StructuredTensor.from_fields(fields, self.shape, self.nrows(), rows, validate)
        except ValueError as e:
            raise ValueError(f"{who} failed" + (f" for field {above}" if above else "")) from e

    def promote(self, source_path: Any, new_name: str) -> Any:
        """Returns a collection with one more field, taken from a field's collection.

        Args:
          source_path: the path of the field, of two names or more. Its axes between the collections are merged.
          new_name: the name of the new field.

        Raises:
          ValueError: an argument has another form.
        """
        if not isinstance(new_name, str):
            raise ValueError("new_name is not a string")
        if not isinstance(source_path, (list, tuple)):
            raise ValueError("source_path must be a list or tuple")
        if len(source_path) < 2:
            raise ValueError("source_path must have length at least two")
        path = tuple(source_path)
        field, outer, inner = (self.field_value(p) for p in (path, path[:-2], path[:-1]))
        last = min(inner.rank, len(TensorShape(field.shape).as_list()) - 1)
        if inner.rank != outer.rank and last > outer.rank:
            field = _with_merged(field, outer.rank, last)
        return self.with_updates({(*path[:-2], new_name): field})

    def with_shape_dtype(self, dtype: Any) -> Any:
        """Returns the collection with partitions of another dtype.

        Args:
          dtype: int32 or int64.
        """
        if dtype == self._ragged_shape.dtype:
            return self
        fields = {k: _with_dtype(v, dtypes.as_dtype(dtype)) for k, v in self._values.items()}
        return StructuredTensor(fields, self._ragged_shape.with_dtype(dtype))

    def partition_outer_dimension(self, row_partition: RowPartition) -> Any:
        """Returns the collection with the rows divided into rows of one more axis.

        Args:
          row_partition: the partition.

        Raises:
          TypeError: the argument is no partition.
          ValueError: the rank is 0.
        """
        if not isinstance(row_partition, RowPartition):
            raise TypeError("row_partition must be a RowPartition.")
        if self.rank == 0:
            raise ValueError(f"Shape {self.shape} must have rank at least 1")
        fields = {k: _divided(v, row_partition) for k, v in self._values.items()}
        rows = [row_partition, *[p.with_dtype(row_partition.dtype) for p in self.row_partitions]]
        return StructuredTensor(fields, DynamicRaggedShape.from_row_partitions(rows))

    def merge_dims(self, outer_axis: int, inner_axis: int) -> Any:
        """Merges the axes from `outer_axis` to `inner_axis` into one.

        Args:
          outer_axis, inner_axis: the axes; negative ones count from the last.

        Raises:
          ValueError: there is no such axis, or the first is behind the second.
        """
        rank = self.rank
        for axis, which in ((outer_axis, "outer_axis"), (inner_axis, "inner_axis")):
            if not -rank <= axis < rank:
                raise ValueError(f"{which}={axis} out of bounds: expected {-rank}<={which}<{rank}")
        first, last = (axis % rank for axis in (outer_axis, inner_axis))
        if first > last:
            raise ValueError(f"Expected outer_axis ({first}) to be less than or equal to inner_axis ({last})")
        fields = {k: _with_merged(v, first, last) for k, v in self._values.items()}
        rows = list(self.row_partitions)
        if first:
            splits = rows[first - 1].row_splits()
            for p in rows[first:last]:
                splits = array_ops.gather(p.row_splits(), splits)
            rows = [*rows[: first - 1], RowPartition.from_row_splits(splits, validate=False), *rows[last:]]
        else:
            rows = rows[last:]
        if rows:
            return StructuredTensor(fields, DynamicRaggedShape.from_row_partitions(rows))
        count = self.row_partitions[last - 1].nvals() if last else self.nrows()
        return StructuredTensor(fields, DynamicRaggedShape([], [count]))

    # *** Python values ***

    def to_pyval(self) -> Any:
        """Returns the structures as nested lists of dicts.

        Raises:
          ValueError: a tensor is one of a graph.
        """
        if any(isinstance(t, Symbolic) for t in nest.flatten(self)):
            raise ValueError("StructuredTensor.to_pyval() is only supported in eager mode.")
        values = {k: _pyval(v) for k, v in self._values.items()}
        if self.rank and not values:
            return _empty(self.row_partitions, int(np.asarray(self.nrows())))
        return _by_structure(list(values), list(values.values()), self.rank)

    def __repr__(self) -> str:
        fields = [f'"{k}": ' + str(v).replace("\n", "\n            ") for k, v in sorted(self._values.items())]
        shown = ",\n        ".join(fields)
        return f"<StructuredTensor(\n    fields={{\n        {shown}}},\n    shape={self.shape})>"

    class Spec:
        """Description of collections."""

        @property
        def shape(self) -> Any:
            """Static shape."""
            s: Any = self._ragged_shape  # type: ignore[attr-defined]
            rows = s._row_partitions
            inner = None if s.inner_rank is None else s._static_inner_shape.as_list()
            if not rows:
                return TensorShape(inner)
            lengths = [rows[0].nrows, *[p.uniform_row_length for p in rows]]
            return TensorShape(None if inner is None else lengths + inner[1:])

        @property
        def rank(self) -> Any:
            """Number of axes."""
            return self._ragged_shape.rank  # type: ignore[attr-defined]


StructuredTensor.FieldName = Union[str, tuple[str, ...]]  # type: ignore[attr-defined]  # noqa: UP007


# *** fields ***


def _field(value: Any) -> Any:
    if isinstance(value, RaggedTensorValue):
        return RaggedTensor.from_nested_row_splits(value.flat_values, value.nested_row_splits, validate=False)
    if isinstance(value, (Tensor, RaggedTensor, ExtensionType)):
        return value
    try:
        return array_ops.convert_to_tensor(value)
    except (ValueError, TypeError) as e:
        raise TypeError(f"Unexpected type for value in `fields`: {value!r}") from e


def _dtype(fields: Fields, nrows: Any, rows: Any) -> Any:
    """Returns the dtype of the partitions: int64, unless int32 is the only one."""
    found = [p.dtype.base for p in rows or ()] + ([nrows.dtype.base] if isinstance(nrows, Tensor) else [])
    for v in fields.values():
        if isinstance(v, RaggedTensor):
            found.append(v.row_splits.dtype.base)
        elif isinstance(v, StructuredTensor):
            found.append(v._ragged_shape.dtype.base)
    return dtypes.int32 if found and dtypes.int64 not in found else dtypes.int64


def _with_dtype(value: Any, dtype: Any) -> Any:
    if isinstance(value, RaggedTensor):
        return value if value.row_splits.dtype.base == dtype else value.with_row_splits_dtype(dtype)
    return value.with_shape_dtype(dtype) if isinstance(value, StructuredTensor) else value


def _static_rows(value: Any) -> int | None:
    shape = TensorShape(value.shape)
    return shape.as_list()[0] if shape.ndims else None


def _rows(value: Any, dtype: Any) -> Any:
    count = value.nrows() if isinstance(value, (RaggedTensor, StructuredTensor)) else array_ops.shape(value)[0]
    return math_ops.cast(count, dtype)


def _partitions(value: Any, rank: int, dtype: Any) -> list[RowPartition]:
    """Returns the partitions of the first axes of a field."""
    if isinstance(value, StructuredTensor):
        return list(value.row_partitions[: rank - 1])
    splits = list(value.nested_row_splits[: rank - 1]) if isinstance(value, RaggedTensor) else []
    out = [RowPartition.from_row_splits(s, validate=False) for s in splits]
    inner = value.flat_values if isinstance(value, RaggedTensor) else value
    known, sizes = TensorShape(inner.shape).as_list(), math_ops.cast(array_ops.shape(inner), dtype)
    count: Any = known[0] if known[0] is not None else sizes[0]
    for axis in range(1, rank - len(splits)):
        length: Any = known[axis] if known[axis] is not None else sizes[axis]
        out.append(RowPartition.from_uniform_row_length(length, nrows=count, dtype=dtype, validate=False))
        count = count * length
    return out


def _with_partitions(value: Any, rows: Sequence[RowPartition]) -> Any:
    """Returns a field whose outer partitions are given ones, which are equal."""
    if isinstance(value, RaggedTensor):
        splits = [p.row_splits() for p in rows][: value.ragged_rank]
        return RaggedTensor.of_parts(value.flat_values, [*splits, *value.nested_row_splits[len(splits) :]])
    if isinstance(value, StructuredTensor):
        fields = {k: _with_partitions(v, rows) for k, v in value._values.items()}
        inner = [*rows, *value.row_partitions[len(rows) :]]
        return StructuredTensor(fields, DynamicRaggedShape.from_row_partitions(inner))
    return value


def _divided(value: Any, row_partition: RowPartition) -> Any:
    if isinstance(value, StructuredTensor):
        return value.partition_outer_dimension(row_partition)
    length = row_partition.uniform_row_length()
    if length is not None and not isinstance(value, RaggedTensor):
        outer = array_ops.stack([row_partition.nrows(), length])
        rest = math_ops.cast(array_ops.shape(value), row_partition.dtype)[1:]
        return array_ops.reshape(value, array_ops.concat([outer, rest], 0))
    inner = _with_dtype(value, row_partition.dtype)
    return RaggedTensor.from_row_splits(inner, row_partition.row_splits(), validate=False)


def _with_merged(value: Any, outer: int, inner: int) -> Any:
    """Returns a field with the axes from `outer` to `inner` merged."""
    if outer == inner:
        return value
    if isinstance(value, (RaggedTensor, StructuredTensor)):
        return value.merge_dims(outer, inner)
    sizes = array_ops.shape(value)
    return array_ops.reshape(value, array_ops.concat([sizes[:outer], [-1], sizes[inner + 1 :]], 0))


def _item(value: Any, keys: tuple[Any, ...]) -> Any:
    if not keys:
        return value
    return value[keys if len(keys) > 1 or isinstance(value, StructuredTensor) else keys[0]]


def _checked(shape: Any, checks: Sequence[Any]) -> Any:
    found = [check for check in checks if check is not None]
    if not found:
        return shape
    with control_dependencies(found):
        inner = array_ops.identity(shape.inner_shape)
    return DynamicRaggedShape(shape.row_partitions, inner)


# *** Python values ***


def _of_value(cls: Any, value: Any, spec: Any, path: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        specs = _field_specs(spec, value, path, 0)
        if spec is not None and set(value) != set(specs):
            raise _mismatch(path, value, spec)
        return cls.from_fields({k: _of_value(cls, v, specs.get(k), (*path, k)) for k, v in value.items()})
    if not isinstance(value, (list, tuple)):
        if spec is not None and not (isinstance(spec, TensorSpec) and spec.shape == ()):
            raise _mismatch(path, value, spec)
        return _parsed(lambda: array_ops.constant(value, None if spec is None else spec.dtype), path)
    keys: dict[str, None] = {}
    depth = _depth_of_dicts(value, keys)
    if depth is None and isinstance(spec, ExtensionSpec):
        depth = _depth_of_empty(value)
        if depth is None:
            raise _mismatch(path, value, spec)
    if depth is not None:
        return _of_dicts(cls, value, keys, depth, spec, path)
    if spec is None:
        return _parsed(lambda: making.constant(value), path)
    if isinstance(spec, TensorSpec):
        made = _parsed(lambda: array_ops.constant(value, spec.dtype), path)
        if not TensorShape(spec.shape).is_compatible_with(made.shape):
            raise _mismatch(path, value, spec)
        return made
    if not isinstance(spec, RaggedTensorSpec):
        raise _mismatch(path, value, spec)
    inner = None if spec.shape is None else spec.shape[spec.ragged_rank + 1 :]
    return _parsed(
        lambda: making.constant(value, spec.dtype, spec.ragged_rank, inner, row_splits_dtype=spec.row_splits_dtype),
        path,
    )


def _of_dicts(cls: Any, value: Any, keys: Iterable[str], depth: int, spec: Any, path: tuple[str, ...]) -> Any:
    fields: dict[str, Any] = {k: [] for k in keys}
    for child in value:
        _append(child, fields, 1)
    specs = _field_specs(spec, value, path, depth)
    if spec is not None and set(fields) - set(specs):
        raise _mismatch(path, value, spec)
    shape = TensorShape([None] * depth) if spec is None else spec.shape
    names = fields if spec is None else specs
    made = {k: _of_value(cls, fields.get(k, []), specs.get(k), (*path, k)) for k in names}
    if made or spec is not None:
        return _parsed(lambda: cls.from_fields(made, shape), path)
    if depth == 1:
        return cls.from_fields({}, [len(value)], len(value))
    zeros = making.constant(_zeros(value))
    return cls.from_fields({}, shape, len(value), _partitions(zeros, depth, dtypes.int64))


def _field_specs(spec: Any, value: Any, path: tuple[str, ...], rank: int) -> dict[str, Any]:
    if spec is None:
        return {}
    if not isinstance(spec, ExtensionSpec) or spec.rank < rank or (rank == 0 and spec.rank != 0):
        raise _mismatch(path, value, spec)
    return dict(spec._values)


def _mismatch(path: tuple[str, ...], value: Any, spec: Any) -> ValueError:
    return ValueError(f"Value at {path!r} does not match typespec: {value!r} vs {spec!r}")


def _parsed(make: Callable[[], Any], path: tuple[str, ...]) -> Any:
    try:
        return make()
    except (TypeError, ValueError, KeyError) as e:
        raise ValueError(f"Error parsing path {path!r}") from e


def _depth_of_dicts(value: Any, keys: dict[str, None]) -> int | None:
    """Returns the number of lists around dicts, whose keys it adds; None without dicts."""
    if isinstance(value, dict):
        keys |= dict.fromkeys(value)
        return 0
    if not isinstance(value, (list, tuple)):
        return None
    found = {d for d in (_depth_of_dicts(child, keys) for child in value) if d is not None}
    if len(found) > 1:
        raise ValueError("Inconsistent depth of dictionaries")
    return found.pop() + 1 if found else None


def _depth_of_empty(value: Any) -> int | None:
    """Returns the number of nested empty lists; None if there is another value."""
    if not isinstance(value, list):
        return None
    depths = [_depth_of_empty(x) for x in value]
    return None if None in depths else 1 + max((d for d in depths if d is not None), default=0)


def _append(value: Any, fields: dict[str, Any], depth: int) -> None:
    """Appends the values of a dict, or of lists of dicts, to the fields."""
    if not isinstance(value, (dict, list, tuple)):
        raise ValueError("Expected dict or nested list/tuple of dict")
    for key, target in fields.items():
        for _ in range(1, depth):
            target = target[-1]
        target.append(value[key] if isinstance(value, dict) else [])
    if not isinstance(value, dict):
        for child in value:
            _append(child, fields, depth + 1)


def _zeros(value: Any) -> Any:
    return 0 if isinstance(value, dict) else [_zeros(x) for x in value]


def _pyval(value: Any) -> Any:
    if isinstance(value, StructuredTensor):
        return value.to_pyval()
    return value.to_list() if isinstance(value, RaggedTensor) else np.asarray(value).tolist()


def _by_structure(names: list[str], values: list[Any], depth: int) -> Any:
    """Returns nested lists of dicts, from the nested lists of each field."""
    if depth == 0:
        return dict(zip(names, values, strict=True))
    return [_by_structure(names, list(row), depth - 1) for row in zip(*values, strict=True)]


def _empty(rows: Sequence[RowPartition], count: int) -> list[Any]:
    """Returns nested lists of empty dicts."""
    if not rows:
        return [{} for _ in range(count)]
    splits = np.asarray(rows[0].row_splits()).tolist()
    inner = _empty(rows[1:], splits[-1])
    return [inner[a:b] for a, b in itertools.pairwise(splits)]


ExtensionSpec: Final[Any] = StructuredTensor.Spec
