"""TensorFlow 1's `tf.contrib.lookup`: tables from strings to ids and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace import dtypes
from headrace.api import arrays, reductions, scopes
from headrace.v1 import lookup
from headrace.v1.contrib import equivalents
from headrace.v1.graph import in_default_graph
from headrace.v1.lookup import (
    KeyValueTensorInitializer,
    StaticHashTable,
    StaticVocabularyTable,
    TextFileIndex,
    TextFileInitializer,
    tables_initializer,
)  # fmt: skip


class HashTable(StaticHashTable):
    """Immutable table, filled by an initializer. See `tf.lookup.StaticHashTable`.

    Args:
      initializer: a `KeyValueTensorInitializer` or `TextFileInitializer`.
      default_value: the value of keys that are not in the table.
      shared_name: accepted as in TensorFlow, without effect.
      name: name of the operation.

    Source: TensorFlow's `tf.contrib.lookup.HashTable`.
    """

    def __init__(
        self, initializer: Any, default_value: Any, shared_name: str | None = None, name: str | None = None
    ) -> None:
        super().__init__(initializer, default_value, name)

    @property
    def init(self) -> Any:
        """The operation that fills the table, under an older name."""
        return self.initializer


class MutableHashTable(lookup.MutableHashTable):
    """Table with insertions. See `tf.lookup.experimental.MutableHashTable`.

    Source: TensorFlow's `tf.contrib.lookup.MutableHashTable`.
    """

    def __init__(
        self, key_dtype: Any, value_dtype: Any, default_value: Any, shared_name: str | None = None,
        name: str = "MutableHashTable", checkpoint: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(key_dtype, value_dtype, default_value, name, checkpoint)


class MutableDenseHashTable(lookup.DenseHashTable):
    """Table with insertions. See `tf.lookup.experimental.DenseHashTable`.

    Source: TensorFlow's `tf.contrib.lookup.MutableDenseHashTable`.
    """

    def __init__(
        self, key_dtype: Any, value_dtype: Any, default_value: Any, empty_key: Any, deleted_key: Any,
        initial_num_buckets: int | None = None, shared_name: str | None = None, name: str = "MutableDenseHashTable",
        checkpoint: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            key_dtype, value_dtype, default_value, empty_key, deleted_key, initial_num_buckets, name, checkpoint
        )


class HasherSpec(NamedTuple):
    """Hash function for keys that are not in a table. Source: TensorFlow's `tf.contrib.lookup.HasherSpec`.

    Attributes:
      hasher: name of the function.
      key: key of the function, or None.
    """

    hasher: str
    key: Any


FastHashSpec = HasherSpec("fasthash", None)


class TextFileStringTableInitializer(TextFileInitializer):
    """Initializer of a table from ids to strings, the lines of a file.

    Source: TensorFlow's `tf.contrib.lookup.TextFileStringTableInitializer`.
    """

    def __init__(
        self, filename: Any, key_column_index: int = TextFileIndex.LINE_NUMBER,
        value_column_index: int = TextFileIndex.WHOLE_LINE, vocab_size: int | None = None, delimiter: str = "\t",
        name: str | None = "text_file_string_table_init",
    ) -> None:  # fmt: skip
        super().__init__(
            filename, dtypes.int64, key_column_index, dtypes.string, value_column_index, vocab_size, delimiter, name
        )


class TextFileIdTableInitializer(TextFileInitializer):
    """Initializer of a table from strings, the lines of a file, to ids.

    Source: TensorFlow's `tf.contrib.lookup.TextFileIdTableInitializer`.
    """

    def __init__(
        self, filename: Any, key_column_index: int = TextFileIndex.WHOLE_LINE,
        value_column_index: int = TextFileIndex.LINE_NUMBER, vocab_size: int | None = None, delimiter: str = "\t",
        name: str | None = "text_file_id_table_init", key_dtype: Any = dtypes.string,
    ) -> None:  # fmt: skip
        super().__init__(
            filename, key_dtype, key_column_index, dtypes.int64, value_column_index, vocab_size, delimiter, name
        )


def _table(
    initializer: Any, num_oov_buckets: int, default_value: Any, hasher_spec: HasherSpec, key_dtype: Any, name: Any
) -> Any:
    """Returns a table, with buckets for unknown keys if there are any."""
    if hasher_spec != FastHashSpec:
        raise ValueError(f"the hash function of unknown keys is FastHashSpec, got {hasher_spec!r}; leave it out")
    if num_oov_buckets < 0:
        raise ValueError(f"num_oov_buckets must be greater or equal than 0, got {num_oov_buckets}.")
    if num_oov_buckets == 0:
        return HashTable(initializer, default_value, name=name)
    made = StaticVocabularyTable(initializer, num_oov_buckets, key_dtype, name)
    made.init = made.initializer
    return made


@in_default_graph
def index_table_from_file(
    vocabulary_file: Any = None, num_oov_buckets: int = 0, vocab_size: int | None = None, default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec, key_dtype: Any = dtypes.string, name: str | None = None,
    key_column_index: int = TextFileIndex.WHOLE_LINE, value_column_index: int = TextFileIndex.LINE_NUMBER,
    delimiter: str = "\t",
) -> Any:  # fmt: skip
    """Returns a table from the lines of a file to ids.

    Args:
      vocabulary_file: path of the file.
      num_oov_buckets: number of further ids, for unknown keys by their hashes; 0: they have `default_value`.
      vocab_size: number of lines to read; None: all.
      default_value: value of unknown keys.
      hasher_spec: `FastHashSpec`.
      key_dtype: dtype of the keys: tf.string or an integer.
      name: name of the scope.
      key_column_index, value_column_index, delimiter: see `tf.lookup.TextFileInitializer`.

    Raises:
      ValueError: there is no file name, or a number is out of range.

    Source: TensorFlow's `tf.contrib.lookup.index_table_from_file`.
    """
    if vocabulary_file is None or (isinstance(vocabulary_file, str) and not vocabulary_file):
        raise ValueError("vocabulary_file must be specified and must not be empty.")
    with scopes.name_scope(name, "string_to_index"):
        kind = dtypes.int64 if dtypes.as_dtype(key_dtype).is_integer else key_dtype
        first = TextFileIdTableInitializer(
            vocabulary_file, key_column_index, value_column_index, vocab_size, delimiter, key_dtype=kind
        )
        return _table(first, num_oov_buckets, default_value, hasher_spec, key_dtype, None)


@in_default_graph
def index_table_from_tensor(
    mapping: Any, num_oov_buckets: int = 0, default_value: int = -1, hasher_spec: HasherSpec = FastHashSpec,
    dtype: Any = dtypes.string, name: str | None = None,
) -> Any:  # fmt: skip
    """Returns a table from the elements of a vector to their indices. See `index_table_from_file`.

    Raises:
      ValueError: there is no mapping, or a number is out of range.

    Source: TensorFlow's `tf.contrib.lookup.index_table_from_tensor`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     table = tf.contrib.lookup.index_table_from_tensor(["the", "cat"], default_value=9)
      ...     sess.run(tf.tables_initializer())
      ...     sess.run(table.lookup(tf.constant(["cat", "dog"])))
      array([1, 9])
    """
    if mapping is None:
        raise ValueError("mapping must be specified.")
    with scopes.name_scope(name, "string_to_index"):
        kind = dtypes.int64 if dtypes.as_dtype(dtype).is_integer else dtype
        keys = scopes.builder(mapping).tensor(mapping, kind, "keys")
        first = KeyValueTensorInitializer(keys, _numbers(keys), kind, dtypes.int64, "table_init")
        return _table(first, num_oov_buckets, default_value, hasher_spec, dtype, None)


def _numbers(x: Any) -> Any:
    n = None if x.shape is None or not x.shape else x.shape[0]
    if n is not None:
        return np.arange(n, dtype=np.int64)
    return reductions.range(arrays.size(x, out_type=dtypes.int64))


@in_default_graph
def index_to_string_table_from_file(
    vocabulary_file: Any, vocab_size: int | None = None, default_value: str = "UNK", name: str | None = None,
    key_column_index: int = TextFileIndex.LINE_NUMBER, value_column_index: int = TextFileIndex.WHOLE_LINE,
    delimiter: str = "\t",
) -> HashTable:  # fmt: skip
    """Returns a table from ids to the lines of a file. See `index_table_from_file`.

    Source: TensorFlow's `tf.contrib.lookup.index_to_string_table_from_file`.
    """
    with scopes.name_scope(name, "index_to_string"):
        first = TextFileStringTableInitializer(
            vocabulary_file, key_column_index, value_column_index, vocab_size, delimiter
        )
        return HashTable(first, default_value)


@in_default_graph
def index_to_string_table_from_tensor(mapping: Any, default_value: str = "UNK", name: str | None = None) -> HashTable:
    """Returns a table from indices to the elements of a vector.

    Raises:
      ValueError: there is no mapping.

    Source: TensorFlow's `tf.contrib.lookup.index_to_string_table_from_tensor`.
    """
    if mapping is None:
        raise ValueError("mapping must be specified.")
    with scopes.name_scope(name, "index_to_string"):
        values = scopes.builder(mapping).tensor(mapping, dtypes.string, "values")
        first = KeyValueTensorInitializer(_numbers(values), values, dtypes.int64, dtypes.string, "table_init")
        return HashTable(first, default_value)


string_to_index_table_from_file = index_table_from_file
string_to_index_table_from_tensor = index_table_from_tensor


@in_default_graph
def string_to_index(tensor: Any, mapping: Any, default_value: int = -1, name: str | None = None) -> Any:
    """Returns the indices of strings in a vector.

    Source: TensorFlow's `tf.contrib.lookup.string_to_index`.
    """
    return index_table_from_tensor(mapping, default_value=default_value, name=name).lookup(tensor)


@in_default_graph
def index_to_string(tensor: Any, mapping: Any, default_value: str = "UNK", name: str | None = None) -> Any:
    """Returns the elements of a vector at indices.

    Source: TensorFlow's `tf.contrib.lookup.index_to_string`.
    """
    return index_to_string_table_from_tensor(mapping, default_value, name).lookup(tensor)


__all__ = [
    "FastHashSpec", "HashTable", "HasherSpec", "KeyValueTensorInitializer", "MutableDenseHashTable", "MutableHashTable",
    "TextFileIdTableInitializer", "TextFileIndex", "TextFileInitializer", "TextFileStringTableInitializer",
    "index_table_from_file", "index_table_from_tensor", "index_to_string", "index_to_string_table_from_file",
    "index_to_string_table_from_tensor", "string_to_index", "string_to_index_table_from_file",
    "string_to_index_table_from_tensor", "tables_initializer",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
