"""Input pipelines: datasets of elements, and their iterators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.api.data.dataset import AUTOTUNE as AUTOTUNE
from headrace.api.data.dataset import INFINITE_CARDINALITY as INFINITE_CARDINALITY
from headrace.api.data.dataset import UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY
from headrace.api.data.dataset import Dataset as Dataset
from headrace.api.data.files import CsvDataset as CsvDataset
from headrace.api.data.files import FixedLengthRecordDataset as FixedLengthRecordDataset
from headrace.api.data.files import SqlDataset as SqlDataset
from headrace.api.data.files import TextLineDataset as TextLineDataset
from headrace.api.data.files import TFRecordDataset as TFRecordDataset
from headrace.api.data.iterators import Iterator as Iterator
from headrace.api.data.iterators import SaveableIterator as SaveableIterator
from headrace.api.data.optional import Optional as Optional
from headrace.api.data.optional import OptionalSpec as OptionalSpec
from headrace.api.data.options import Options as Options
from headrace.api.data.structure import DatasetSpec as DatasetSpec


def make_initializable_iterator(dataset: Any, shared_name: str | None = None) -> Iterator:
    """Returns an iterator over a dataset of a graph; its operation `initializer` starts a pass.

    Args:
      dataset: the dataset.
      shared_name: the name of the iterator in its session; None: that of the operation.

    Source: TensorFlow's `tf.compat.v1.data.make_initializable_iterator`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     iterator = hr.data.make_initializable_iterator(hr.data.Dataset.range(3).batch(2))
      ...     x = iterator.get_next()
      >>> session = hr.Session(graph=g)
      >>> session.run(iterator.initializer)
      >>> session.run(x)
      array([0, 1])
    """
    made = Iterator.of_structure(dataset.element_spec, shared_name, dataset._door())
    made._initializer = made.make_initializer(dataset)
    return made


__all__ = [
    "AUTOTUNE", "INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY", "CsvDataset", "Dataset", "DatasetSpec",
    "FixedLengthRecordDataset", "Iterator", "Optional", "OptionalSpec", "Options", "SaveableIterator", "SqlDataset",
    "TFRecordDataset", "TextLineDataset", "make_initializable_iterator",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
