"""Columns: descriptions of the tensors that a model makes of its input features.

A dense column makes a float tensor (`dense`) of the shape [batch, *shape]. A categorical column makes ids: a sparse
tensor of int64 below `num_buckets`, with an optional weight for each id.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import scopes
from headrace.api.sparse_tensor import SparseTensor
from headrace.dtypes import DType, as_dtype
from headrace.records import record
from headrace.v1 import array_ops, check_ops, initializers, io, lookup, math_ops, nn, sparse, strings
from headrace.v1.feature_column.features import Features, as_ids
from headrace.v1.graph import GraphKeys, add_to_collections, get_collection
from headrace.v1.scoping import control_dependencies
from headrace.v1.variable_store import get_variable


class Column:
    """Base class of columns.

    Attributes:
      name: name of the column, of its variables and of its operations.
      scope: name of the variable scope of its variables.
      is_sequence: whether the features are sequences, [batch, time, ...].
    """

    is_sequence = False

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def scope(self) -> str:
        return self.name

    def spec(self) -> dict[str, Any]:
        """Returns the features for `tf.parse_example`, by name."""
        raise NotImplementedError

    def transform(self, features: Features) -> Any:
        """Makes the column's tensor; `Features.get` calls it once."""
        raise NotImplementedError


class DenseColumn(Column):
    """Base class of columns with a float tensor.

    Attributes:
      dense_shape: shape of an example.
    """

    dense_shape: tuple[int, ...]

    def dense(self, features: Features, collections: Sequence[str], trainable: bool) -> Any:
        """Makes the float tensor, [batch, *shape]; new variables are added to `collections`."""
        return features.get(self)


class CategoricalColumn(Column):
    """Base class of columns with ids.

    Attributes:
      num_buckets: number of ids.
    """

    num_buckets: int

    def ids(self, features: Features) -> tuple[SparseTensor, SparseTensor | None]:
        """Makes the ids, and their weights."""
        return features.get(self), None


@record(frozen=True)
class NumericColumn(DenseColumn):
    """See `numeric_column`."""

    key: str
    shape: tuple[int, ...]
    default_value: Any
    dtype: DType
    normalizer_fn: Callable[[Any], Any] | None
    is_sequence: bool = False

    @property
    def name(self) -> str:
        return self.key

    @property
    def dense_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.shape

    def spec(self) -> dict[str, Any]:
        if self.is_sequence:
            return {self.key: io.VarLenFeature(self.dtype)}
        return {self.key: io.FixedLenFeature(self.shape, self.dtype, self.default_value)}

    def transform(self, features: Features) -> Any:
        t = features.get(self.key)
        if isinstance(t, SparseTensor):
            raise ValueError(f"The corresponding Tensor of numerical column must be a Tensor. key: {self.key}")
        if self.normalizer_fn is not None:
            t = self.normalizer_fn(t)
        return math_ops.cast(t, dtypes.float32)


@record(frozen=True)
class BucketizedColumn(DenseColumn, CategoricalColumn):
    """See `bucketized_column`."""

    source_column: NumericColumn
    boundaries: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"{self.source_column.name}_bucketized"

    @property
    def dense_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (*self.source_column.shape, len(self.boundaries) + 1)

    @property
    def num_buckets(self) -> int:  # type: ignore[override]
        return math.prod(self.dense_shape)

    def spec(self) -> dict[str, Any]:
        return self.source_column.spec()

    def transform(self, features: Features) -> Any:
        t = features.get(self.source_column)
        return scopes.builder(t).make("Bucketize", (t,), {"boundaries": list(self.boundaries)})

    def dense(self, features: Features, collections: Sequence[str], trainable: bool) -> Any:
        return array_ops.one_hot(math_ops.cast(features.get(self), dtypes.int64), len(self.boundaries) + 1)

    def ids(self, features: Features) -> tuple[SparseTensor, SparseTensor | None]:
        t = features.get(self)
        batch, width = array_ops.shape(t)[0], self.source_column.shape[0]
        rows = array_ops.repeat(math_ops.range(batch), width)
        places = array_ops.tile(math_ops.range(width), [batch])
        values = array_ops.reshape(t, [-1]) + (len(self.boundaries) + 1) * places
        at = array_ops.stack([rows, places], axis=1)
        whole = array_ops.stack([batch, width])
        wide = (math_ops.cast(x, dtypes.int64) for x in (at, values, whole))
        return SparseTensor(*wide), None


class KeyColumn(CategoricalColumn):
    """Base class of columns with ids of the values of one feature.

    Attributes:
      key: name of the feature.
      dtype: dtype of the feature.
    """

    key: str
    dtype: DType

    @property
    def name(self) -> str:
        return self.key

    def spec(self) -> dict[str, Any]:
        return {self.key: io.VarLenFeature(self.dtype)}

    def transform(self, features: Features) -> SparseTensor:
        given = as_ids(features.get(self.key))
        wants_text = self.dtype is dtypes.string
        if (given.dtype is dtypes.string) != wants_text:
            kinds = f"dtype must be {'string' if wants_text else 'integer'}"
            raise ValueError(f"Column {self.key}: {kinds}, the feature has dtype {given.dtype.name}")
        return given.with_values(self.of_values(given.values))

    def of_values(self, values: Any) -> Any:
        """Returns the ids of a vector of values."""
        raise NotImplementedError


@record(frozen=True)
class HashedColumn(KeyColumn):
    """See `categorical_column_with_hash_bucket`."""

    key: str
    num_buckets: int
    dtype: DType
    is_sequence: bool = False

    def of_values(self, values: Any) -> Any:
        text = values if self.dtype is dtypes.string else strings.as_string(values)
        return strings.to_hash_bucket_fast(text, self.num_buckets)


@record(frozen=True)
class IdentityColumn(KeyColumn):
    """See `categorical_column_with_identity`."""

    key: str
    num_buckets: int
    default_value: int | None
    is_sequence: bool = False

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return dtypes.int64

    def of_values(self, values: Any) -> Any:
        values = math_ops.cast(values, dtypes.int64, name="values")
        end = array_ops.constant(self.num_buckets, dtypes.int64, name="num_buckets")
        zero = array_ops.constant(0, dtypes.int64, name="zero")
        if self.default_value is None:
            checks = [
                check_ops.assert_less(values, end, name="assert_less_than_num_buckets"),
                check_ops.assert_greater_equal(values, zero, name="assert_greater_or_equal_0"),
            ]
            with control_dependencies(checks):
                return array_ops.identity(values)
        outside = math_ops.logical_or(values < zero, values >= end, name="out_of_range")
        return array_ops.where_v2(outside, array_ops.constant(self.default_value, dtypes.int64), values)


@record(frozen=True)
class VocabularyColumn(KeyColumn):
    """See `categorical_column_with_vocabulary_list` and `categorical_column_with_vocabulary_file`."""

    key: str
    vocabulary: tuple[Any, ...] | str
    size: int
    dtype: DType
    default_value: int
    num_oov_buckets: int
    is_sequence: bool = False

    @property
    def num_buckets(self) -> int:  # type: ignore[override]
        return self.size + self.num_oov_buckets

    def of_values(self, values: Any) -> Any:
        key_dtype = dtypes.string if self.dtype is dtypes.string else dtypes.int64
        initializer: Any
        if isinstance(self.vocabulary, str):
            whole, line = lookup.TextFileIndex.WHOLE_LINE, lookup.TextFileIndex.LINE_NUMBER
            initializer = lookup.TextFileInitializer(
                self.vocabulary, key_dtype, whole, dtypes.int64, line, vocab_size=self.size
            )
        else:
            keys = array_ops.constant(list(self.vocabulary), key_dtype)
            ids = array_ops.constant(np.arange(self.size), dtypes.int64)
            initializer = lookup.KeyValueTensorInitializer(keys, ids)
        table: Any
        if self.num_oov_buckets:
            table = lookup.StaticVocabularyTable(initializer, self.num_oov_buckets, lookup_key_dtype=key_dtype)
        else:
            table = lookup.StaticHashTable(initializer, self.default_value)
        return table.lookup(values if self.dtype is dtypes.string else math_ops.cast(values, dtypes.int64))


@record(frozen=True)
class WeightedColumn(CategoricalColumn):
    """See `weighted_categorical_column`."""

    categorical_column: CategoricalColumn
    weight_feature_key: str
    dtype: DType

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_weighted_by_{self.weight_feature_key}"

    @property
    def num_buckets(self) -> int:  # type: ignore[override]
        return self.categorical_column.num_buckets

    @property
    def is_sequence(self) -> bool:  # type: ignore[override]
        return self.categorical_column.is_sequence

    def spec(self) -> dict[str, Any]:
        return {**self.categorical_column.spec(), self.weight_feature_key: io.VarLenFeature(self.dtype)}

    def transform(self, features: Features) -> Any:
        weights = features.get(self.weight_feature_key)
        if not isinstance(weights, SparseTensor):
            weights = as_weights(weights)
        return features.get(self.categorical_column), weights.with_values(math_ops.cast(weights.values, dtypes.float32))

    def ids(self, features: Features) -> tuple[SparseTensor, SparseTensor | None]:
        ids, weights = features.get(self)
        return ids, weights


def as_weights(t: Any) -> SparseTensor:
    """Converts a dense tensor of weights to a sparse tensor with all of its elements."""
    indices = array_ops.where(array_ops.ones_like(t, dtypes.bool_))
    return SparseTensor(indices, array_ops.reshape(t, [-1]), array_ops.shape(t, out_type=dtypes.int64))


@record(frozen=True)
class CrossedColumn(CategoricalColumn):
    """See `crossed_column`."""

    keys: tuple[Any, ...]
    num_buckets: int
    hash_key: int | None

    def leaves(self) -> list[Any]:
        """Returns the names and columns that are crossed, with those of inner crossed columns."""
        return [leaf for k in self.keys for leaf in (k.leaves() if isinstance(k, CrossedColumn) else [k])]

    @property
    def name(self) -> str:
        return "_X_".join(sorted(k if isinstance(k, str) else k.name for k in self.leaves()))

    def spec(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for k in self.keys:
            out.update({k: io.VarLenFeature(dtypes.string)} if isinstance(k, str) else k.spec())
        return out

    def transform(self, features: Features) -> Any:
        crossed = []
        for k in self.leaves():
            if isinstance(k, str):
                crossed.append(features.get(k))
                continue
            ids, weights = k.ids(features)
            if weights is not None:
                raise ValueError(f"crossed_column does not support weight_tensor, but {k.name} has one")
            crossed.append(ids)
        return sparse.cross_hashed(crossed, self.num_buckets, self.hash_key)


@record(frozen=True)
class IndicatorColumn(DenseColumn):
    """See `indicator_column`."""

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_indicator"

    @property
    def is_sequence(self) -> bool:  # type: ignore[override]
        return self.categorical_column.is_sequence

    @property
    def dense_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (1, self.categorical_column.num_buckets)

    def spec(self) -> dict[str, Any]:
        return self.categorical_column.spec()

    def transform(self, features: Features) -> Any:
        ids, weights = self.categorical_column.ids(features)
        depth = self.categorical_column.num_buckets
        if weights is None:
            dense = sparse.to_dense(ids, default_value=-1)
            return math_ops.reduce_sum(array_ops.one_hot(dense, depth, on_value=1.0, off_value=0.0), axis=[-2])
        merged = sparse.merge(ids, weights, depth)
        merged = sparse.slice(merged, [0, 0], merged.dense_shape)  # drops the ids of -1
        return array_ops.scatter_nd(merged.indices, merged.values, merged.dense_shape)


@record(frozen=True)
class EmbeddingColumn(DenseColumn):
    """See `embedding_column` and `shared_embedding_columns`."""

    categorical_column: CategoricalColumn
    dimension: int
    combiner: str
    initializer: Any
    ckpt_to_load_from: str | None
    tensor_name_in_ckpt: str | None
    max_norm: float | None
    trainable: bool
    use_safe_embedding_lookup: bool
    collection: str | None = None

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_{'embedding' if self.collection is None else 'shared_embedding'}"

    @property
    def scope(self) -> str:
        return self.collection or self.name

    @property
    def is_sequence(self) -> bool:  # type: ignore[override]
        return self.categorical_column.is_sequence

    @property
    def dense_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.dimension,)

    def spec(self) -> dict[str, Any]:
        return self.categorical_column.spec()

    def transform(self, features: Features) -> Any:
        return self.categorical_column.ids(features)

    def dense(self, features: Features, collections: Sequence[str], trainable: bool) -> Any:
        ids, weights = features.get(self)
        table = self._table(collections, trainable)
        look_up = nn.safe_embedding_lookup_sparse if self.use_safe_embedding_lookup else nn.embedding_lookup_sparse
        return look_up(
            table, ids, weights, combiner=self.combiner, name=f"{self.name}_weights", max_norm=self.max_norm
        )  # fmt: skip

    def _table(self, collections: Sequence[str], trainable: bool) -> Any:
        shape = (self.categorical_column.num_buckets, self.dimension)
        shared = get_collection(self.collection) if self.collection else []
        if shared:
            if tuple(shared[0].shape) != shape:
                raise ValueError(
                    f"Shared embedding collection {self.collection} contains a variable of shape "
                    f"{tuple(shared[0].shape)}; expected {shape}. Remedy: give shared_embedding_collection_name "
                    "a unique name"
                )
            return shared[0]
        table = get_variable(
            "embedding_weights", shape, dtypes.float32, self.initializer, trainable=self.trainable and trainable,
            collections=list(collections),
        )  # fmt: skip
        if self.collection:
            add_to_collections(self.collection, table)
        if self.ckpt_to_load_from is not None:
            from headrace.v1 import checkpoints

            checkpoints.init_from_checkpoint(self.ckpt_to_load_from, {self.tensor_name_in_ckpt or "": table})
        return table


# *** functions that make columns ***


def _check_key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"key must be a string. Got: type {type(key)}. Given key: {key}.")
    return key


def _shape(shape: Any, key: str) -> tuple[int, ...]:
    out = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
    for d in out:
        if not isinstance(d, int):
            raise TypeError(f"shape dimensions must be integer. shape: {out}, key: {key}")
        if d < 1:
            raise ValueError(f"shape dimensions must be greater than 0. shape: {out}, key: {key}")
    return out


def _numeric(dtype: Any, key: str) -> DType:
    found = as_dtype(dtype)
    if not (found.is_integer or found.is_floating):
        raise ValueError(f"dtype must be convertible to float. dtype: {found.name}, key: {key}")
    return found


def _identifying(dtype: Any, key: str) -> DType:
    found = as_dtype(dtype)
    if found is not dtypes.string and not found.is_integer:
        raise ValueError(f"dtype must be string or integer. dtype: {found.name}, column_name: {key}")
    return found


def numeric_column(
    key: str,
    shape: Any = (1,),
    default_value: Any = None,
    dtype: Any = dtypes.float32,
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> Any:
    """Returns a column of numbers.

    Args:
      key: name of the feature and of the column.
      shape: shape of an example.
      default_value: value of a missing feature in `tf.parse_example`: a number, or a value of the shape.
      dtype: dtype of the feature.
      normalizer_fn: a function that is applied to the tensor.

    Source: TensorFlow's `tf.feature_column.numeric_column`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     age = tf.feature_column.numeric_column("age")
      ...     ages = tf.feature_column.bucketized_column(age, [18, 65])
      ...     sess.run(tf.feature_column.input_layer({"age": [20.0, 70.0]}, [age, ages]))
      array([[20.,  0.,  1.,  0.],
             [70.,  0.,  0.,  1.]], dtype=float32)
    """
    sizes = _shape(shape, _check_key(key))
    kind = _numeric(dtype, key)
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise TypeError(f"normalizer_fn must be a callable. Given: {normalizer_fn}")
    if default_value is not None:
        given = np.asarray(default_value)
        if given.shape not in ((), sizes):
            raise ValueError(
                f"The shape of default_value must be equal to given shape. default_value: {default_value}, "
                f"shape: {sizes}, key: {key}"
            )
        if given.dtype.kind == "f" and kind.is_integer:
            raise TypeError(f"default_value must be compatible with dtype. default_value: {default_value}, key: {key}")
        default_value = _nested(np.broadcast_to(given, sizes).tolist())
    return NumericColumn(key, sizes, default_value, kind, normalizer_fn)


def _nested(x: Any) -> Any:
    return tuple(map(_nested, x)) if isinstance(x, list) else x


def bucketized_column(source_column: Any, boundaries: Any) -> Any:
    """Returns a column of the bucket of each number.

    Bucket i + 1 begins at boundary i.

    Args:
      source_column: numeric column of one axis.
      boundaries: boundaries in ascending order.

    Source: TensorFlow's `tf.feature_column.bucketized_column`.
    """
    if not isinstance(source_column, NumericColumn):
        raise ValueError(
            f"source_column must be a column generated with numeric_column(). Given: {source_column}"
        )  # fmt: skip
    if len(source_column.shape) > 1:
        raise ValueError(f"source_column must be one-dimensional column. Given: {source_column}")
    at = list(boundaries) if isinstance(boundaries, (list, tuple, np.ndarray)) else []
    if not at or any(a >= b for a, b in itertools.pairwise(at)):
        raise ValueError("boundaries must be a sorted list.")
    return BucketizedColumn(source_column, tuple(at))


def categorical_column_with_hash_bucket(key: str, hash_bucket_size: int, dtype: Any = dtypes.string) -> Any:
    """Returns a column of ids that are hashes of the values.

    Args:
      key: name of the feature.
      hash_bucket_size: number of ids.
      dtype: string or an integer dtype.

    Source: TensorFlow's `tf.feature_column.categorical_column_with_hash_bucket`.
    """
    if hash_bucket_size is None or hash_bucket_size < 1:
        raise ValueError(
            f"hash_bucket_size must be at least 1. hash_bucket_size: {hash_bucket_size}, key: {key}"
        )  # fmt: skip
    return HashedColumn(_check_key(key), hash_bucket_size, _identifying(dtype, key))


def categorical_column_with_identity(key: str, num_buckets: int, default_value: int | None = None) -> Any:
    """Returns a column of ids that are the values.

    Args:
      key: name of the feature, of integers.
      num_buckets: number of ids.
      default_value: id of values outside of [0, num_buckets); without it, such a value is an error of the step.

    Source: TensorFlow's `tf.feature_column.categorical_column_with_identity`.
    """
    if num_buckets < 1:
        raise ValueError(f"num_buckets {num_buckets} < 1, column_name {key}")
    if default_value is not None and not 0 <= default_value < num_buckets:
        raise ValueError(f"default_value {default_value} not in range [0, {num_buckets}), column_name {key}")
    return IdentityColumn(_check_key(key), num_buckets, default_value)


def _check_vocabulary(key: str, default_value: Any, num_oov_buckets: int | None) -> None:
    if num_oov_buckets:
        if default_value not in (None, -1):
            raise ValueError(f"Can't specify both num_oov_buckets and default_value in {key}.")
        if num_oov_buckets < 0:
            raise ValueError(f"Invalid num_oov_buckets {num_oov_buckets} in {key}.")


def categorical_column_with_vocabulary_list(
    key: str, vocabulary_list: Sequence[Any], dtype: Any = None, default_value: int = -1, num_oov_buckets: int = 0
) -> Any:
    """Returns a column of ids that are places in a list.

    Args:
      key: name of the feature.
      vocabulary_list: the values, strings or integers.
      dtype: dtype of the feature; None: that of the list.
      default_value: id of other values.
      num_oov_buckets: number of ids behind the list, for hashes of other values.

    Source: TensorFlow's `tf.feature_column.categorical_column_with_vocabulary_list`.
    """
    if vocabulary_list is None or len(vocabulary_list) < 1:
        raise ValueError(f"vocabulary_list {vocabulary_list!r} must be non-empty, column_name: {_check_key(key)}")
    if len(set(vocabulary_list)) != len(vocabulary_list):
        raise ValueError(f"Duplicate keys in vocabulary_list {vocabulary_list!r}, column_name: {key}")
    _check_vocabulary(key, default_value, num_oov_buckets)
    found = np.array(vocabulary_list)
    listed = _identifying(dtypes.string if found.dtype.kind in "SUO" else found.dtype, key)
    wanted = listed if dtype is None else _identifying(dtype, key)
    if (wanted is dtypes.string) != (listed is dtypes.string):
        raise ValueError(
            f"dtype {wanted.name} and vocabulary dtype {listed.name} do not match, column_name: {key}"
        )  # fmt: skip
    return VocabularyColumn(
        key, tuple(vocabulary_list), len(vocabulary_list), wanted, default_value, num_oov_buckets
    )  # fmt: skip


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str,
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: Any = dtypes.string,
) -> Any:
    """Returns a column of ids that are numbers of lines in a file.

    Args:
      key: name of the feature.
      vocabulary_file: path of the file, with one value on each line.
      vocabulary_size: number of lines that count; None: all lines of the file, which is read now.
      num_oov_buckets: number of ids behind the lines, for hashes of other values.
      default_value: id of other values; None: -1.
      dtype: string or an integer dtype.

    Source: TensorFlow's `tf.feature_column.categorical_column_with_vocabulary_file`.
    """
    if not vocabulary_file:
        raise ValueError(f"Missing vocabulary_file in {_check_key(key)}.")
    if vocabulary_size is None:
        with io.gfile.GFile(vocabulary_file, "rb") as f:
            vocabulary_size = sum(1 for _ in f)
    if vocabulary_size < 1:
        raise ValueError(f"Invalid vocabulary_size in {key}.")
    _check_vocabulary(key, default_value, num_oov_buckets)
    default = -1 if default_value is None else default_value
    return VocabularyColumn(
        key, vocabulary_file, vocabulary_size, _identifying(dtype, key), default, num_oov_buckets or 0
    )  # fmt: skip


def _sequence(column: Any) -> Any:
    """Returns a column like another one, of sequences."""
    import dataclasses

    return dataclasses.replace(column, is_sequence=True)


def sequence_categorical_column_with_hash_bucket(key: str, hash_bucket_size: int, dtype: Any = dtypes.string) -> Any:
    """Returns a column of sequences; see `categorical_column_with_hash_bucket`.

    Source: TensorFlow's `tf.feature_column.sequence_categorical_column_with_hash_bucket`.
    """
    return _sequence(categorical_column_with_hash_bucket(key, hash_bucket_size, dtype))


def sequence_categorical_column_with_identity(key: str, num_buckets: int, default_value: int | None = None) -> Any:
    """Returns a column of sequences; see `categorical_column_with_identity`.

    Source: TensorFlow's `tf.feature_column.sequence_categorical_column_with_identity`.
    """
    return _sequence(categorical_column_with_identity(key, num_buckets, default_value))


def sequence_categorical_column_with_vocabulary_list(
    key: str, vocabulary_list: Sequence[Any], dtype: Any = None, default_value: int = -1, num_oov_buckets: int = 0
) -> Any:
    """Returns a column of sequences; see `categorical_column_with_vocabulary_list`.

    Source: TensorFlow's `tf.feature_column.sequence_categorical_column_with_vocabulary_list`.
    """
    return _sequence(
        categorical_column_with_vocabulary_list(key, vocabulary_list, dtype, default_value, num_oov_buckets)
    )


def sequence_categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str,
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: Any = dtypes.string,
) -> Any:
    """Returns a column of sequences; see `categorical_column_with_vocabulary_file`.

    Source: TensorFlow's `tf.feature_column.sequence_categorical_column_with_vocabulary_file`.
    """
    return _sequence(
        categorical_column_with_vocabulary_file(
            key, vocabulary_file, vocabulary_size, num_oov_buckets, default_value, dtype
        )
    )


def sequence_numeric_column(
    key: str,
    shape: Any = (1,),
    default_value: float = 0.0,
    dtype: Any = dtypes.float32,
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> Any:
    """Returns a column of sequences of numbers; see `numeric_column`.

    Args:
      key, shape, dtype, normalizer_fn: see `numeric_column`.
      default_value: number that stands for missing elements.

    Source: TensorFlow's `tf.feature_column.sequence_numeric_column`.
    """
    sizes, kind = _shape(shape, _check_key(key)), _numeric(dtype, key)
    return NumericColumn(key, sizes, default_value, kind, normalizer_fn, is_sequence=True)


def weighted_categorical_column(
    categorical_column: Any, weight_feature_key: str, dtype: Any = dtypes.float32
) -> Any:  # fmt: skip
    """Returns a column of the ids of another column, with weights from a second feature.

    Args:
      categorical_column: the column of ids.
      weight_feature_key: name of the feature of weights, which has the ids' shape.
      dtype: dtype of the weights.

    Source: TensorFlow's `tf.feature_column.weighted_categorical_column`.
    """
    kind = _numeric(dtype, weight_feature_key)
    return WeightedColumn(categorical_column, weight_feature_key, kind)


def crossed_column(keys: Any, hash_bucket_size: int, hash_key: int | None = None) -> Any:
    """Returns a column of ids that are hashes of combinations of several features.

    Args:
      keys: two or more names of string or integer features, or categorical columns that are no hashes.
      hash_bucket_size: number of ids.
      hash_key: key of the hash function.

    Source: TensorFlow's `tf.feature_column.crossed_column`.
    """
    if not hash_bucket_size or hash_bucket_size < 1:
        raise ValueError(f"hash_bucket_size must be > 1. hash_bucket_size: {hash_bucket_size}")
    if not keys or len(keys) < 2:
        raise ValueError("keys must be a list with length > 1.")
    for k in keys:
        if not isinstance(k, (str, CategoricalColumn)):
            raise ValueError(f"Unsupported key type. All keys must be either string, or categorical column. Given: {k}")
        if isinstance(k, HashedColumn):
            raise ValueError(
                "categorical_column_with_hash_bucket is not supported for crossing. Hashing before crossing will "
                f"increase probability of collision. Instead, use the feature name as a string. Given: {k}"
            )
    return CrossedColumn(tuple(keys), hash_bucket_size, hash_key)


def indicator_column(categorical_column: Any) -> Any:
    """Returns a dense column of the number of times, or the weight, of each id.

    Source: TensorFlow's `tf.feature_column.indicator_column`.
    """
    return IndicatorColumn(categorical_column)


def _embedding(
    column: Any, dimension: int, combiner: str, initializer: Any, checkpoint: Any, tensor_name: Any, *rest: Any
) -> EmbeddingColumn:
    if dimension is None or dimension < 1:
        raise ValueError(f"Invalid dimension {dimension}.")
    if (checkpoint is None) != (tensor_name is None):
        raise ValueError("Must specify both `ckpt_to_load_from` and `tensor_name_in_ckpt` or none of them.")
    if initializer is not None and not callable(initializer):
        raise ValueError(f"initializer must be callable if specified. Embedding of column_name: {column.name}")
    if initializer is None:
        initializer = initializers.truncated_normal(mean=0.0, stddev=1 / math.sqrt(dimension))
    return EmbeddingColumn(column, dimension, combiner, initializer, checkpoint, tensor_name, *rest)


def embedding_column(
    categorical_column: Any,
    dimension: int,
    combiner: str = "mean",
    initializer: Any = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> Any:
    """Returns a dense column of the embeddings of ids, combined for each example.

    Args:
      categorical_column: the column of ids.
      dimension: size of an embedding.
      combiner: "mean", "sqrtn" or "sum".
      initializer: initializer of the table; None: truncated normal numbers with the deviation 1/sqrt(dimension).
      ckpt_to_load_from, tensor_name_in_ckpt: checkpoint that has the table's first value, and its name there.
      max_norm: greatest l2 norm of an embedding, which is scaled down to it.
      trainable: whether the table is among the trainable variables.
      use_safe_embedding_lookup: whether an example may have no id; its embedding is zero.

    Source: TensorFlow's `tf.feature_column.embedding_column`.
    """
    return _embedding(
        categorical_column, dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt, max_norm,
        trainable, use_safe_embedding_lookup,
    )  # fmt: skip


def shared_embedding_columns(
    categorical_columns: Any,
    dimension: int,
    combiner: str = "mean",
    initializer: Any = None,
    shared_embedding_collection_name: str | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> list[Any]:
    """Returns dense columns of embeddings, one for each column of ids, with one table.

    Args:
      categorical_columns: columns of ids of one class and one number of ids.
      shared_embedding_collection_name: name of the table's collection and scope; None: the columns' names and
        "_shared_embedding".
      Others: see `embedding_column`.

    Source: TensorFlow's `tf.feature_column.shared_embedding_columns`.
    """
    plain = [c.categorical_column if isinstance(c, WeightedColumn) else c for c in categorical_columns]
    for c in plain[1:]:
        if type(c) is not type(plain[0]) or c.num_buckets != plain[0].num_buckets:
            raise ValueError(
                "To use shared_embedding_column, all categorical_columns must have the same type and number of "
                f"buckets. Given column: {plain[0]} does not match given column: {c}"
            )
    names = sorted(c.name for c in categorical_columns)
    collection = shared_embedding_collection_name or "_".join([*names, "shared_embedding"])
    return [
        _embedding(
            c, dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt, max_norm, trainable,
            use_safe_embedding_lookup, collection,
        )
        for c in categorical_columns
    ]  # fmt: skip


MODEL_COLLECTIONS = (GraphKeys.GLOBAL_VARIABLES, GraphKeys.MODEL_VARIABLES)
