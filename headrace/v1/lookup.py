"""TensorFlow 1's `tf.lookup`, with the collection that `tf.tables_initializer` runs.

The collection contains the operations that fill tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.api import grouping
from headrace.api.storage import lookup
from headrace.v1.graph import GraphKeys, add_to_collection, get_collection, in_default_graph

TextFileIndex = lookup.TextFileIndex


class KeyValueTensorInitializer(lookup.KeyValueTensorInitializer):
    """Table initializer from tensors. See `headrace.lookup.KeyValueTensorInitializer`.

    Source: TensorFlow's `tf.lookup.KeyValueTensorInitializer`.
    """

    __init__ = in_default_graph(lookup.KeyValueTensorInitializer.__init__)

    def initialize(self, table: Any) -> Any:
        """Returns the operation that fills a table, and adds it to GraphKeys.TABLE_INITIALIZERS.

        Args:
          table: the table.
        """
        return _collected(super().initialize, table)


class TextFileInitializer(lookup.TextFileInitializer):
    """Table initializer from a text file. See `headrace.lookup.TextFileInitializer`.

    Source: TensorFlow's `tf.lookup.TextFileInitializer`.
    """

    def initialize(self, table: Any) -> Any:
        """Returns the operation that fills a table, and adds it to GraphKeys.TABLE_INITIALIZERS.

        Args:
          table: the table.
        """
        made = _collected(super().initialize, table)
        add_to_collection(GraphKeys.ASSET_FILEPATHS, made.inputs[1])
        return made


@in_default_graph
def _collected(initialize: Any, table: Any) -> Any:
    made = initialize(table)
    add_to_collection(GraphKeys.TABLE_INITIALIZERS, made)
    return made


class StaticHashTable(lookup.StaticHashTable):
    """Immutable table, filled by an initializer. See `headrace.lookup.StaticHashTable`.

    Source: TensorFlow's `tf.lookup.StaticHashTable`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     words = tf.lookup.KeyValueTensorInitializer(["cat", "dog"], [1, 2])
      ...     table = tf.lookup.StaticHashTable(words, -1)
      ...     sess.run(tf.tables_initializer())
      ...     sess.run(table.lookup(tf.constant(["dog", "cow"])))
      array([ 2, -1], dtype=int32)
    """

    __init__ = in_default_graph(lookup.StaticHashTable.__init__)


class StaticVocabularyTable(lookup.StaticVocabularyTable):
    """Table from words to ids. See `headrace.lookup.StaticVocabularyTable`.

    Source: TensorFlow's `tf.lookup.StaticVocabularyTable`.
    """

    __init__ = in_default_graph(lookup.StaticVocabularyTable.__init__)


class MutableHashTable(lookup.MutableHashTable):
    """Table with insertions. See `headrace.lookup.experimental.MutableHashTable`.

    Args:
      key_dtype, value_dtype, default_value, name: see `headrace.lookup.experimental.MutableHashTable`.
      checkpoint: whether savers save the contents. Then the table is added to GraphKeys.SAVEABLE_OBJECTS.

    Source: TensorFlow's `tf.lookup.experimental.MutableHashTable`.
    """

    _make = in_default_graph(lookup.MutableHashTable.__init__)

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        name: str = "MutableHashTable",
        checkpoint: bool = True,
    ) -> None:
        self._make(key_dtype, value_dtype, default_value, name)
        if checkpoint:
            add_to_collection(GraphKeys.SAVEABLE_OBJECTS, self)


class DenseHashTable(lookup.DenseHashTable):
    """Table with insertions. See `headrace.lookup.experimental.DenseHashTable`.

    Args:
      key_dtype, value_dtype, default_value, empty_key, deleted_key, initial_num_buckets, name: see
        `headrace.lookup.experimental.DenseHashTable`.
      checkpoint: whether savers save the contents. Then the table is added to GraphKeys.SAVEABLE_OBJECTS.

    Source: TensorFlow's `tf.lookup.experimental.DenseHashTable`.
    """

    _make = in_default_graph(lookup.DenseHashTable.__init__)

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        empty_key: Any,
        deleted_key: Any,
        initial_num_buckets: int | None = None,
        name: str = "MutableDenseHashTable",
        checkpoint: bool = True,
    ) -> None:
        self._make(key_dtype, value_dtype, default_value, empty_key, deleted_key, initial_num_buckets, name)
        if checkpoint:
            add_to_collection(GraphKeys.SAVEABLE_OBJECTS, self)


class experimental:
    """`tf.lookup.experimental`."""

    MutableHashTable = MutableHashTable
    DenseHashTable = DenseHashTable


def tables_initializer(name: str = "init_all_tables") -> Any:
    """Returns an operation that initializes all tables of the default graph.

    Args:
      name: name of the operation.

    Source: TensorFlow's `tf.tables_initializer`.
    """
    found = get_collection(GraphKeys.TABLE_INITIALIZERS)
    group = in_default_graph(grouping.group)
    return group(*found, name=name) if found else in_default_graph(grouping.no_op)(name)


initialize_all_tables = tables_initializer

# fmt: off
__all__ = [
    "DenseHashTable", "KeyValueTensorInitializer", "MutableHashTable", "StaticHashTable", "StaticVocabularyTable",
    "TextFileIndex", "TextFileInitializer", "experimental",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
