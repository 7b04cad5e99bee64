"""TensorFlow 1's datasets of parsed examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace import dtypes
from headrace.api import data
from headrace.api.io import parsing
from headrace.api.sparse_tensor import SparseTensor
from headrace.api.tensor_spec import TensorSpec
from headrace.v1.data.csv import repeated
from headrace.v1.data.datasets import Dataset, TFRecordDataset
from headrace.v1.graph import in_default_graph
from headrace.v1.readers import ReaderBase


def parse_example_dataset(
    features: Mapping[str, Any], num_parallel_calls: Any = 1, deterministic: bool | None = None
) -> Callable[[Any], Any]:
    """Returns the function that parses the elements of a dataset, batches of serialized examples.

    Args:
      features: the features, as for `tf.io.parse_example`.
      num_parallel_calls: the number of batches that are parsed at the same time.
      deterministic: False: the batches may change their order.

    Raises:
      ValueError: there are no features.

    Source: TensorFlow 1's `tf.data.experimental.parse_example_dataset`.
    """
    if features is None:
        raise ValueError("Argument `features` is required, but not specified.")

    def apply(dataset: Any) -> Any:
        spec = dataset.element_spec
        if not isinstance(spec, TensorSpec) or spec.dtype is not dtypes.string:
            raise TypeError(f"Input dataset should be a dataset of vectors of strings, got {spec}")

        def parse(x: Any) -> Any:
            found = parsing.parse_example(x, features)
            for made in found.values():
                if isinstance(made, SparseTensor):  # a batch of as many rows
                    made.set_shape((spec.shape[0] if spec.shape else None, None))
            return found

        return dataset.map(parse, num_parallel_calls, deterministic)

    return apply


@in_default_graph
def make_batched_features_dataset(
    file_pattern: Any,
    batch_size: Any,
    features: Mapping[str, Any],
    reader: Any = None,
    label_key: str | None = None,
    reader_args: Sequence[Any] | None = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: Any = None,
    reader_num_threads: int | None = None,
    parser_num_threads: int | None = None,
    sloppy_ordering: bool = False,
    drop_final_batch: bool = False,
) -> Any:
    """Returns a dataset of batches of parsed examples.

    Args:
      file_pattern: a pattern of file names, or several.
      batch_size: the number of examples in a batch.
      features: the features, as for `tf.io.parse_example`.
      reader: the class of the datasets of one file; None: `TFRecordDataset`.
      label_key: the feature of the labels.
      reader_args: further arguments of `reader`.
      num_epochs: the number of passes; None: without an end, and in batches of full size alone.
      shuffle: whether examples and files are shuffled.
      shuffle_buffer_size: the size of the buffer of `shuffle`.
      shuffle_seed: the seed.
      prefetch_buffer_size: the number of batches that are computed ahead; None: any number.
      reader_num_threads: the number of files that are read in turn; None: 1.
      parser_num_threads: the number of batches that are parsed at the same time; None: 2.
      sloppy_ordering: accepted, without an effect: the order is that of one thread.
      drop_final_batch: whether a last batch of fewer examples is left out.

    Raises:
      TypeError: `reader` is a reader of queues.
      ValueError: `label_key` is no feature.

    Source: TensorFlow 1's `tf.data.experimental.make_batched_features_dataset`.
    """
    reader = TFRecordDataset if reader is None else reader
    if isinstance(reader, type) and issubclass(reader, ReaderBase):
        raise TypeError(
            "The `reader` argument must return a `Dataset` object. `tf.ReaderBase` subclasses are not supported. For "
            "example, pass `tf.data.TFRecordDataset` instead of `tf.TFRecordReader`."
        )
    if label_key and label_key not in features:
        raise ValueError(
            f"The `label_key` provided ({label_key}) must be one of the `features` keys: {list(features)}."
        )
    dataset = Dataset.list_files(file_pattern, shuffle=shuffle, seed=shuffle_seed)
    threads = 1 if reader_num_threads is None else reader_num_threads
    cycle = None if threads == data.AUTOTUNE else threads
    dataset = dataset.interleave(lambda name: reader(name, *(reader_args or ())), cycle)
    if isinstance(dataset.element_spec, tuple) and len(dataset.element_spec) == 2:
        dataset = dataset.map(lambda key, value: value)
    dataset = repeated(dataset, num_epochs, shuffle_buffer_size if shuffle else None, shuffle_seed)
    dataset = dataset.batch(batch_size, drop_remainder=drop_final_batch or num_epochs is None)
    dataset = parse_example_dataset(features, 2 if parser_num_threads is None else parser_num_threads)(dataset)
    if label_key:
        dataset = dataset.map(lambda found: (found, found.pop(label_key)))
    return dataset.prefetch(data.AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)
