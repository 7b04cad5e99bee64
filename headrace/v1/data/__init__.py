"""TensorFlow 1's `tf.data`: headrace's datasets, in the default graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.api.data.dataset import AUTOTUNE as AUTOTUNE
from headrace.api.data.dataset import INFINITE_CARDINALITY as INFINITE_CARDINALITY
from headrace.api.data.dataset import UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY
from headrace.api.data.iterators import NumpyIterator as NumpyIterator
from headrace.api.data.options import Options as Options
from headrace.api.data.options import ThreadingOptions as ThreadingOptions
from headrace.api.data.structure import DatasetSpec as DatasetSpec
from headrace.v1.data import experimental as experimental
from headrace.v1.data.datasets import Dataset as Dataset
from headrace.v1.data.datasets import FixedLengthRecordDataset as FixedLengthRecordDataset
from headrace.v1.data.datasets import TextLineDataset as TextLineDataset
from headrace.v1.data.datasets import TFRecordDataset as TFRecordDataset
from headrace.v1.data.elements import converted
from headrace.v1.data.iterators import Iterator as Iterator


def make_initializable_iterator(dataset: Any, shared_name: str | None = None) -> Any:
    """Returns an iterator over a dataset, whose operation `initializer` starts a pass.

    Source: TensorFlow 1's `tf.data.make_initializable_iterator`.
    """
    return dataset.make_initializable_iterator(shared_name)


def make_one_shot_iterator(dataset: Any) -> Any:
    """Returns an iterator over a dataset that starts itself, once in a session.

    Source: TensorFlow 1's `tf.data.make_one_shot_iterator`.
    """
    return dataset.make_one_shot_iterator()


def get_output_types(dataset_or_iterator: Any) -> Any:
    """Returns the structure of the dtypes of an element of a dataset or an iterator.

    Source: TensorFlow 1's `tf.data.get_output_types`.
    """
    return converted(dataset_or_iterator.element_spec, "types")


def get_output_shapes(dataset_or_iterator: Any) -> Any:
    """Returns the structure of the shapes of an element of a dataset or an iterator.

    Source: TensorFlow 1's `tf.data.get_output_shapes`.
    """
    return converted(dataset_or_iterator.element_spec, "shapes")


def get_output_classes(dataset_or_iterator: Any) -> Any:
    """Returns the structure of the classes of an element's leaves.

    Source: TensorFlow 1's `tf.data.get_output_classes`.
    """
    return converted(dataset_or_iterator.element_spec, "classes")


# fmt: off
__all__ = [
    "AUTOTUNE", "INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY", "Dataset", "DatasetSpec", "FixedLengthRecordDataset",
    "Iterator", "NumpyIterator", "Options", "TFRecordDataset", "TextLineDataset", "ThreadingOptions", "experimental",
    "get_output_classes", "get_output_shapes", "get_output_types", "make_initializable_iterator",
    "make_one_shot_iterator",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
