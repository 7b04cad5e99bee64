"""Tables of TensorFlow 1 whose contents a dataset gives."""

from __future__ import annotations

from typing import Any

from headrace import dtypes
from headrace.api.data.structure import is_dataset
from headrace.api.storage import lookup
from headrace.api.tensor_spec import TensorSpec
from headrace.v1.graph import GraphKeys, add_to_collection, in_default_graph
from headrace.v1.lookup import StaticHashTable, StaticVocabularyTable
from headrace.v1.scoping import name_scope


class DatasetInitializer(lookup.TableInitializer):
    """Table initializer from a dataset of pairs of a key and a value.

    Args:
      dataset: the dataset, whose elements are pairs of scalars.

    Raises:
      ValueError: its elements are no pairs of scalars.

    Source: TensorFlow 1's `tf.data.experimental.DatasetInitializer`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     pairs = tf.data.Dataset.from_tensor_slices((["a", "b"], [1, 2]))
      ...     table = tf.lookup.StaticHashTable(tf.data.experimental.DatasetInitializer(pairs), -1)
      ...     sess.run(tf.tables_initializer())
      ...     sess.run(table.lookup(tf.constant(["b", "c"])))
      array([ 2, -1], dtype=int32)
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        key, value = _pair(dataset)
        super().__init__(key.dtype, value.dtype)

    @in_default_graph
    def initialize(self, table: Any) -> Any:
        """Returns the operation that fills a table, and adds it to GraphKeys.TABLE_INITIALIZERS.

        Args:
          table: the table.
        """
        self._check(table)
        inputs = (table.resource_handle, self.dataset.variant_tensor)
        made = lookup.filling("InitializeTableFromDataset", inputs)
        add_to_collection(GraphKeys.TABLE_INITIALIZERS, made)
        return made


def _pair(dataset: Any) -> tuple[TensorSpec, TensorSpec]:
    """Returns the descriptions of the key and the value of the elements."""
    if not is_dataset(dataset):
        raise ValueError(f"`dataset` must be a dataset, got {dataset!r}")
    spec = dataset.element_spec
    if isinstance(spec, tuple) and len(spec) == 2 and all(isinstance(s, TensorSpec) and s.shape == () for s in spec):
        return spec[0], spec[1]
    raise ValueError(f"elements of a table's dataset are pairs of a key and a value, both scalars; got {spec}")


@in_default_graph
def table_from_dataset(
    dataset: Any = None,
    num_oov_buckets: int = 0,
    vocab_size: Any = None,
    default_value: Any = None,
    hasher_spec: Any = None,
    key_dtype: Any = dtypes.string,
    name: str | None = None,
) -> Any:
    """Returns a table of the keys and values of a dataset.

    Args:
      dataset: the dataset, of pairs of a key and a value.
      num_oov_buckets: the number of values for keys that are not in the dataset.
      vocab_size: the number of elements of the dataset that are used; None: all.
      default_value: the value of other keys; None: -1.
      hasher_spec: None: the only hash function.
      key_dtype: the dtype of the keys of look-ups.
      name: the name of the scope.

    Raises:
      ValueError: an argument is out of range, or the default of values that are no numbers is missing.
      TypeError: the keys are neither integers nor strings.

    Source: TensorFlow 1's `tf.data.experimental.table_from_dataset`.
    """
    _, value = _pair(dataset)
    if default_value is None:
        if not (value.dtype.is_integer or value.dtype.is_floating):
            raise ValueError(
                "`default_value` must be specified when creating a table from a dataset that produces values of type "
                f"{value.dtype.name}."
            )
        default_value = -1
    if num_oov_buckets < 0:
        raise ValueError(f"`num_oov_buckets` must be greater than or equal to 0, got {num_oov_buckets}.")
    if isinstance(vocab_size, int) and vocab_size < 1:
        raise ValueError(f"`vocab_size` must be greater than 0, got {vocab_size}.")
    if hasher_spec is not None and tuple(hasher_spec) != ("fasthash", None):
        raise ValueError(f"the hash function of unknown keys is FastHashSpec, got {hasher_spec!r}; leave it out")
    kind = dtypes.as_dtype(key_dtype)
    if not kind.is_integer and kind is not dtypes.string:
        raise TypeError(f"`key_dtype` must be either an integer or string type, but got {kind.name}")
    if vocab_size is not None:
        dataset = dataset.take(vocab_size).assert_cardinality(vocab_size)
    with name_scope(name, "string_to_index"):
        initializer = DatasetInitializer(dataset)
        if num_oov_buckets:
            return StaticVocabularyTable(initializer, num_oov_buckets, kind)
        return StaticHashTable(initializer, default_value)


def index_table_from_dataset(
    dataset: Any = None,
    num_oov_buckets: int = 0,
    vocab_size: Any = None,
    default_value: Any = -1,
    hasher_spec: Any = None,
    key_dtype: Any = dtypes.string,
    name: str | None = None,
) -> Any:
    """Returns a table from the elements of a dataset to their numbers.

    Args:
      dataset: the dataset of the keys.
      num_oov_buckets, vocab_size, default_value, hasher_spec, key_dtype, name: see `table_from_dataset`.

    Source: TensorFlow 1's `tf.data.experimental.index_table_from_dataset`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     words = tf.data.Dataset.from_tensor_slices(["cat", "dog"])
      ...     table = tf.data.experimental.index_table_from_dataset(words)
      ...     sess.run(tf.tables_initializer())
      ...     sess.run(table.lookup(tf.constant(["dog", "cow"])))
      array([ 1, -1])
    """
    pairs = dataset.enumerate().map(lambda number, key: (key, number))
    return table_from_dataset(pairs, num_oov_buckets, vocab_size, default_value, hasher_spec, key_dtype, name)
