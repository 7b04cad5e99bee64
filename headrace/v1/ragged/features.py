"""Features of examples with rows of different lengths: `tf.io.RaggedFeature`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace import dtypes
from headrace.api.io import VarLenFeature
from headrace.v1 import array_ops, math_ops
from headrace.v1.ragged.ragged_tensor import RaggedTensor


class _RowSplits(NamedTuple):
    key: Any


class _RowLengths(NamedTuple):
    key: Any


class _RowStarts(NamedTuple):
    key: Any


class _RowLimits(NamedTuple):
    key: Any


class _ValueRowIds(NamedTuple):
    key: Any


class _UniformRowLength(NamedTuple):
    length: int


_KINDS = (_RowSplits, _RowLengths, _RowStarts, _RowLimits, _ValueRowIds, _UniformRowLength)


class _Fields(NamedTuple):
    dtype: Any
    value_key: Any
    partitions: tuple[Any, ...]
    row_splits_dtype: Any
    validate: bool


class RaggedFeature(_Fields):
    """A feature whose values other features part into rows, as a `RaggedTensor`.

    Args:
      dtype: float32, int64 or string.
      value_key: key of the values; None: the key of this description.
      partitions: from the outermost on, `RaggedFeature.RowSplits(key)`, `RowLengths`, `RowStarts`, `RowLimits`,
        `ValueRowIds` or `UniformRowLength(length)`. Without any, a single example has a vector.
      row_splits_dtype: int32 or int64.
      validate: whether a step checks the rows.

    Raises:
      TypeError: a partition is none of these.

    Source: TensorFlow's `tf.io.RaggedFeature`.

    Example:
      >>> import headrace.v1 as tf
      >>> text = '{"features": {"feature": {"v": {"int64List": {"value": [3, 4, 5]}}, ' \\
      ...     '"n": {"int64List": {"value": [2, 1]}}}}}'
      >>> lengths = [tf.io.RaggedFeature.RowLengths("n")]
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     features = {"v": tf.io.RaggedFeature(tf.int64, partitions=lengths)}
      ...     parsed = tf.io.parse_single_example(tf.io.decode_json_example(text), features)
      ...     sess.run(parsed["v"]).to_list()
      [[3, 4], [5]]
    """

    __slots__ = ()

    RowSplits, RowLengths, RowStarts = _RowSplits, _RowLengths, _RowStarts
    RowLimits, ValueRowIds, UniformRowLength = _RowLimits, _ValueRowIds, _UniformRowLength

    def __new__(
        cls,
        dtype: Any,
        value_key: Any = None,
        partitions: Any = (),
        row_splits_dtype: Any = dtypes.int32,
        validate: bool = False,
    ) -> RaggedFeature:
        for partition in partitions:
            if not isinstance(partition, _KINDS):
                raise TypeError(f"Argument `partitions` must be a list of partition objects, got {partition!r}")
        return super().__new__(cls, dtype, value_key, tuple(partitions), row_splits_dtype, validate)


def parsed(parse: Callable[[Any], dict[Any, Any]], features: Mapping[Any, Any]) -> dict[Any, Any]:
    """Parses features of which some are ragged.

    Args:
      parse: parses a dict of other features.
      features: the features.

    Raises:
      ValueError: a key has two dtypes.
    """
    wanted = {key: f for key, f in features.items() if not isinstance(f, RaggedFeature)}
    needed: dict[Any, Any] = {}
    for key, feature in features.items():
        if isinstance(feature, RaggedFeature):
            keys = {_value_key(key, feature): feature.dtype}
            keys |= {p.key: dtypes.int64 for p in feature.partitions if not isinstance(p, _UniformRowLength)}
            for part, dtype in keys.items():
                if needed.setdefault(part, dtypes.as_dtype(dtype)) != dtypes.as_dtype(dtype):
                    raise ValueError(f"Conflicting type {needed[part]} vs {dtype} for feature {part}.")
    clash = sorted(set(needed) & set(wanted))
    if clash:
        raise ValueError(f"Dense, sparse and ragged keys must not intersect; several ask for {clash}")
    found = parse(wanted | {key: VarLenFeature(dtype) for key, dtype in needed.items()})
    out = {key: found[key] for key in wanted}
    for key, feature in features.items():
        if isinstance(feature, RaggedFeature):
            out[key] = _made(key, feature, found)
    return out


def _value_key(key: Any, feature: RaggedFeature) -> Any:
    return key if feature.value_key is None else feature.value_key


def _made(key: Any, feature: RaggedFeature, found: Mapping[Any, Any]) -> Any:
    values = found[_value_key(key, feature)]
    if values.indices.get_shape().as_list()[-1] == 1:  # of a single example
        out = values.values
        for partition in reversed(feature.partitions):
            out = _parted(out, partition, found, feature)
        return out
    out = _rows(values, feature)
    for partition in reversed(feature.partitions):
        out = _parted_rows(out, partition, found, feature)
    return out


def _rows(sparse: Any, feature: RaggedFeature) -> Any:
    made = RaggedTensor.from_value_rowids(
        sparse.values, sparse.indices[:, 0], nrows=sparse.dense_shape[0], validate=False
    )
    return made.with_row_splits_dtype(feature.row_splits_dtype)


_FROM: dict[type, Callable[..., Any]] = {
    _RowSplits: RaggedTensor.from_row_splits,
    _RowLengths: RaggedTensor.from_row_lengths,
    _RowStarts: RaggedTensor.from_row_starts,
    _RowLimits: RaggedTensor.from_row_limits,
    _ValueRowIds: RaggedTensor.from_value_rowids,
}  # fmt: skip


def _parted(values: Any, partition: Any, found: Mapping[Any, Any], feature: RaggedFeature) -> Any:
    """Parts the values of one example."""
    if isinstance(partition, _UniformRowLength):
        if isinstance(values, RaggedTensor):
            made = RaggedTensor.from_uniform_row_length(values, partition.length, validate=feature.validate)
            return made.with_row_splits_dtype(feature.row_splits_dtype)
        return array_ops.reshape(values, array_ops.concat([[-1, partition.length], array_ops.shape(values)[1:]], 0))
    rows = math_ops.cast(found[partition.key].values, feature.row_splits_dtype)
    return _FROM[type(partition)](values, rows, validate=feature.validate)


def _parted_rows(batch: Any, partition: Any, found: Mapping[Any, Any], feature: RaggedFeature) -> Any:
    """Parts the values of each example of a batch, whose rows are the examples."""
    values, splits = batch.values, batch.row_splits
    if isinstance(partition, _UniformRowLength):
        parted = _parted(values, partition, found, feature)
        return RaggedTensor.from_row_splits(parted, splits // partition.length, validate=feature.validate)
    rows = _rows(found[partition.key], feature)
    numbers = math_ops.cast(rows.values, splits.dtype)
    if isinstance(partition, _RowSplits):  # each example begins with 0
        rows = rows.with_values(numbers)[:, 1:]
        numbers = rows.values
    if isinstance(partition, _ValueRowIds):
        counts = math_ops.cast(_greatest(numbers, rows) + 1, splits.dtype)
        before = math_ops.cumsum(counts, exclusive=True)
        ids = numbers + array_ops.gather(before, rows.value_rowids())
        parted = RaggedTensor.from_value_rowids(values, ids, math_ops.reduce_sum(counts), validate=feature.validate)
        return RaggedTensor.from_row_lengths(parted, counts, validate=feature.validate)
    if not isinstance(partition, _RowLengths):  # places in the joined values
        numbers = numbers + array_ops.gather(batch.row_starts(), rows.value_rowids())
    kind = _RowLimits if isinstance(partition, _RowSplits) else type(partition)
    return rows.with_values(_FROM[kind](values, numbers, validate=feature.validate))


def _greatest(numbers: Any, rows: Any) -> Any:
    """Computes the greatest number of each row; -1 of an empty one."""
    count = math_ops.cast(rows.nrows(), dtypes.int32)
    least = math_ops.unsorted_segment_max(numbers, rows.value_rowids(), count)
    return math_ops.maximum(least, array_ops.constant(-1, numbers.dtype))
