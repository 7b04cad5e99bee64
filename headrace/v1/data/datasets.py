"""TensorFlow 1's `Dataset`: headrace's, in the default graph, with TensorFlow 1's iterators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from headrace.api import data, scopes
from headrace.api.data import structure
from headrace.api.data.iterators import OwnedIterator
from headrace.api.sparse_tensor import SparseTensor, SparseTensorValue
from headrace.dtypes import int64
from headrace.ir import walk
from headrace.ir.attr_values import Func
from headrace.ir.edit.copying import copy_into
from headrace.ir.function import free_function_name
from headrace.ir.graph import FuncGraph
from headrace.v1.data.elements import converted
from headrace.v1.data.iterators import Iterator
from headrace.v1.graph import in_default_graph


class Dataset(data.Dataset):
    """Sequence of elements. See `headrace.data.Dataset`.

    Source: TensorFlow 1's `tf.data.Dataset`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     dataset = tf.data.Dataset.range(6).batch(4)
      ...     x = dataset.make_one_shot_iterator().get_next()
      ...     sess.run(x), sess.run(x)
      (array([0, 1, 2, 3]), array([4, 5]))
    """

    _keeps_cardinality = False

    @classmethod
    def _door(cls) -> type[data.Dataset]:
        return Dataset

    @property
    def output_types(self) -> Any:
        """The structure of the dtypes of an element."""
        return converted(self.element_spec, "types")

    @property
    def output_shapes(self) -> Any:
        """The structure of the shapes of an element."""
        return converted(self.element_spec, "shapes")

    @property
    def output_classes(self) -> Any:
        """The structure of the classes of an element's leaves."""
        return converted(self.element_spec, "classes")

    @in_default_graph
    def make_initializable_iterator(self, shared_name: str | None = None) -> Any:
        """Returns an iterator whose operation `initializer` starts a pass."""
        made = Iterator.from_spec(self.element_spec, shared_name)
        made._initializer, made._door = made.make_initializer(self), Dataset
        return made

    @in_default_graph
    def make_one_shot_iterator(self) -> Any:
        """Returns an iterator that starts itself at the first request, once in a session.

        Raises:
          ValueError: the dataset depends on a placeholder, or on state such as a variable.
        """
        if self.graph is None:
            return OwnedIterator(self)
        b = scopes.builder(self.variant_tensor)
        attrs = {"dataset_factory": _factory(self.variant_tensor), **structure.attributes(self.element_spec)}
        return Iterator._of(b.make("OneShotIterator", (), attrs), None, self.element_spec, Dataset)

    @classmethod
    def from_sparse_tensor_slices(cls, sparse_tensor: Any) -> Any:
        """Returns a dataset of the rows of a sparse tensor.

        Args:
          sparse_tensor: the sparse tensor, of rank 1 or more.

        Raises:
          TypeError: it is none.
        """
        if not isinstance(sparse_tensor, (SparseTensor, SparseTensorValue)):
            raise TypeError(f"`sparse_tensor` must be a `tf.sparse.SparseTensor`, got {sparse_tensor!r}")
        return cls.from_tensor_slices(sparse_tensor).map(lambda row: (row.indices, row.values, row.dense_shape))

    @in_default_graph
    def ragged_batch(
        self, batch_size: Any, drop_remainder: bool = False, row_splits_dtype: Any = int64, name: str | None = None
    ) -> Any:
        """Returns a dataset of consecutive elements; tensors of variable shape become ragged tensors.

        Args:
          batch_size: the number of elements in a batch.
          drop_remainder: whether a last batch of fewer elements is left out.
          row_splits_dtype: int32 or int64.
          name: accepted, without an effect.

        Example:
          >>> import headrace.v1 as tf
          >>> with tf.Graph().as_default(), tf.Session() as sess:
          ...     rows = tf.data.Dataset.range(3).map(lambda n: tf.fill([n], n)).ragged_batch(3)
          ...     sess.run(rows.make_one_shot_iterator().get_next()).to_list()
          [[], [1], [2, 2]]
        """
        from headrace.v1.ragged.rows import as_rows  # which not every pipeline needs

        return as_rows(self, row_splits_dtype).batch(batch_size, drop_remainder)


def _factory(variant: Any) -> Func:
    """Adds a function without parameters that returns a dataset to the library of its graph."""
    root = variant.op.graph
    while root.outer is not None:
        root = root.outer
    ops = walk.reachable([variant.op])
    for op in ops:
        if op.opdef.facts.placeholder or op.opdef.facts.graph_end:
            raise ValueError(
                f"Cannot capture a placeholder (name:{op.name}, type:{op.type}) by value. Failed to create a one-shot "
                "iterator for a dataset. `Dataset.make_initializable_iterator()` is more appropriate, as its "
                "initializer can be fed"
            )
        if op.opdef.facts.effect and op.opdef.facts.effect != "python":
            raise ValueError(
                f"Cannot capture a stateful node (name:{op.name}, type:{op.type}) by value. Failed to create a "
                "one-shot iterator for a dataset. `Dataset.make_initializable_iterator()` is more appropriate"
            )
    graph = FuncGraph(free_function_name(root, "_make_dataset"), root)
    moved: dict[Any, Any] = {}
    copy_into(graph, walk.in_order(ops), moved)
    graph.set_results([moved[variant]])
    root.functions[graph.name] = graph
    return Func(graph.name)


def _in_default_graph(cls: type[data.Dataset], *names: str) -> None:
    """Wraps methods, so that they run in the default graph and take TensorFlow's argument `name`."""
    for name in names:
        found: Any = getattr(data.Dataset, name)
        is_method = hasattr(found, "__func__")
        made = in_default_graph(_named(found.__func__ if is_method else found))
        setattr(cls, name, classmethod(made) if is_method else made)


def _named(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method with a last argument `name`, which has no effect."""
    signature = inspect.signature(method)
    if "name" in signature.parameters:
        return method

    @functools.wraps(method)
    def call(*args: Any, name: str | None = None, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    last = inspect.Parameter("name", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="str | None")
    call.__signature__ = signature.replace(parameters=[*signature.parameters.values(), last])  # type: ignore[attr-defined]
    return call


_in_default_graph(
    Dataset,
    *("assert_cardinality batch bucket_by_sequence_length cache cardinality choose_from_datasets concatenate").split(),
    *("counter enumerate filter flat_map from_generator from_list from_tensor_slices from_tensors").split(),
    *("get_single_element group_by_reducer group_by_window ignore_errors interleave list_files load map").split(),
    *("padded_batch prefetch random range rebatch reduce rejection_resample repeat sample_from_datasets save").split(),
    *("scan shard shuffle skip snapshot sparse_batch take take_while unbatch unique window with_options zip").split(),
)


def with_legacy_names(cls: type[Dataset]) -> None:
    """Adds the names of methods that TensorFlow 1 has for the same functions."""
    for name in ("map", "filter"):
        setattr(cls, f"{name}_with_legacy_function", getattr(cls, name))


with_legacy_names(Dataset)


class TextLineDataset(Dataset, data.TextLineDataset):
    """Dataset of the lines of text files. See `headrace.data.TextLineDataset`.

    Source: TensorFlow 1's `tf.data.TextLineDataset`.
    """

    __init__ = in_default_graph(data.TextLineDataset.__init__)


class TFRecordDataset(Dataset, data.TFRecordDataset):
    """Dataset of the records of record files. See `headrace.data.TFRecordDataset`.

    Source: TensorFlow 1's `tf.data.TFRecordDataset`.
    """

    __init__ = in_default_graph(data.TFRecordDataset.__init__)


class FixedLengthRecordDataset(Dataset, data.FixedLengthRecordDataset):
    """Dataset of pieces of files, of equal length. See `headrace.data.FixedLengthRecordDataset`.

    Source: TensorFlow 1's `tf.data.FixedLengthRecordDataset`.
    """

    __init__ = in_default_graph(data.FixedLengthRecordDataset.__init__)


class CsvDataset(Dataset, data.CsvDataset):
    """Dataset of the columns of comma-separated records. See `headrace.data.CsvDataset`.

    Source: TensorFlow 1's `tf.data.experimental.CsvDataset`.
    """

    __init__ = in_default_graph(data.CsvDataset.__init__)


class SqlDataset(Dataset, data.SqlDataset):
    """Dataset of the rows of a query of a database file. See `headrace.data.SqlDataset`.

    Source: TensorFlow 1's `tf.data.experimental.SqlDataset`.
    """

    __init__ = in_default_graph(data.SqlDataset.__init__)
