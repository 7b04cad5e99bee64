"""TensorFlow 1's `tf.data.experimental`: functions for `Dataset.apply`, and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.api import data
from headrace.api.data.dataset import AUTOTUNE as AUTOTUNE
from headrace.api.data.dataset import INFINITE_CARDINALITY as INFINITE_CARDINALITY
from headrace.api.data.dataset import UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY
from headrace.v1.data.datasets import Dataset
from headrace.v1.graph import in_default_graph

Apply = Callable[[Any], Any]


def bucket_by_sequence_length(
    element_length_func: Callable[..., Any],
    bucket_boundaries: Sequence[int],
    bucket_batch_sizes: Sequence[int],
    padded_shapes: Any = None,
    padding_values: Any = None,
    pad_to_bucket_boundary: bool = False,
    no_padding: bool = False,
    drop_remainder: bool = False,
) -> Apply:
    """Returns the function that applies `Dataset.bucket_by_sequence_length`.

    Source: TensorFlow's `tf.data.experimental.bucket_by_sequence_length`.
    """
    return lambda dataset: dataset.bucket_by_sequence_length(
        element_length_func,
        bucket_boundaries,
        bucket_batch_sizes,
        padded_shapes,
        padding_values,
        pad_to_bucket_boundary,
        no_padding,
        drop_remainder,
    )


def cardinality(dataset: Any) -> Any:
    """Returns the number of elements of a dataset, a tensor.

    Source: TensorFlow's `tf.data.experimental.cardinality`.
    """
    return dataset.cardinality()


def choose_from_datasets(datasets: Sequence[Any], choice_dataset: Any, stop_on_empty_dataset: bool = False) -> Any:
    """Returns a dataset whose elements come from the datasets that another one chooses.

    Source: TensorFlow's `tf.data.experimental.choose_from_datasets`.
    """
    return Dataset.choose_from_datasets(datasets, choice_dataset, stop_on_empty_dataset)


def sample_from_datasets(
    datasets: Sequence[Any], weights: Any = None, seed: int | None = None, stop_on_empty_dataset: bool = False
) -> Any:
    """Returns a dataset whose elements come from several datasets at random.

    Source: TensorFlow's `tf.data.experimental.sample_from_datasets`.
    """
    return Dataset.sample_from_datasets(datasets, weights, seed, stop_on_empty_dataset)


def enumerate_dataset(start: int = 0) -> Apply:
    """Returns the function that applies `Dataset.enumerate`.

    Source: TensorFlow's `tf.data.experimental.enumerate_dataset`.
    """
    return lambda dataset: dataset.enumerate(start)


def get_single_element(dataset: Any) -> Any:
    """Returns the only element of a dataset.

    Source: TensorFlow's `tf.data.experimental.get_single_element`.
    """
    return dataset.get_single_element()


def group_by_window(
    key_func: Callable[..., Any],
    reduce_func: Callable[..., Any],
    window_size: Any = None,
    window_size_func: Callable[..., Any] | None = None,
) -> Apply:
    """Returns the function that applies `Dataset.group_by_window`.

    Source: TensorFlow's `tf.data.experimental.group_by_window`.
    """
    return lambda dataset: dataset.group_by_window(key_func, reduce_func, window_size, window_size_func)


def ignore_errors(log_warning: bool = False) -> Apply:
    """Returns the function that applies `Dataset.ignore_errors`.

    Source: TensorFlow's `tf.data.experimental.ignore_errors`.
    """
    return lambda dataset: dataset.ignore_errors(log_warning)


def map_and_batch(
    map_func: Callable[..., Any],
    batch_size: Any,
    num_parallel_batches: Any = None,
    drop_remainder: bool = False,
    num_parallel_calls: Any = None,
) -> Apply:
    """Returns the function that applies `Dataset.map` and `Dataset.batch`.

    Source: TensorFlow's `tf.data.experimental.map_and_batch`.
    """
    parallel = num_parallel_calls if num_parallel_calls is not None else num_parallel_batches
    return lambda dataset: dataset.map(map_func, parallel).batch(batch_size, drop_remainder)


def parallel_interleave(
    map_func: Callable[..., Any],
    cycle_length: Any,
    block_length: Any = 1,
    sloppy: bool = False,
    buffer_output_elements: Any = None,
    prefetch_input_elements: Any = None,
) -> Apply:
    """Returns the function that applies `Dataset.interleave`.

    Source: TensorFlow's `tf.data.experimental.parallel_interleave`.
    """
    return lambda dataset: dataset.interleave(map_func, cycle_length, block_length)


def prefetch_to_device(device: str, buffer_size: Any = None) -> Apply:
    """Returns the function that applies `Dataset.prefetch`; the elements stay in the memory of the CPU.

    Source: TensorFlow's `tf.data.experimental.prefetch_to_device`.
    """
    return lambda dataset: dataset.prefetch(AUTOTUNE if buffer_size is None else buffer_size)


def scan(initial_state: Any, scan_func: Callable[..., Any]) -> Apply:
    """Returns the function that applies `Dataset.scan`.

    Source: TensorFlow's `tf.data.experimental.scan`.
    """
    return lambda dataset: dataset.scan(initial_state, scan_func)


def shuffle_and_repeat(buffer_size: Any, count: Any = None, seed: int | None = None) -> Apply:
    """Returns the function that applies `Dataset.shuffle` and `Dataset.repeat`.

    Source: TensorFlow's `tf.data.experimental.shuffle_and_repeat`.
    """
    return lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)


def take_while(predicate: Callable[..., Any]) -> Apply:
    """Returns the function that applies `Dataset.take_while`.

    Source: TensorFlow's `tf.data.experimental.take_while`.
    """
    return lambda dataset: dataset.take_while(predicate)


def unbatch() -> Apply:
    """Returns the function that applies `Dataset.unbatch`.

    Source: TensorFlow's `tf.data.experimental.unbatch`.
    """
    return lambda dataset: dataset.unbatch()


def unique() -> Apply:
    """Returns the function that applies `Dataset.unique`.

    Source: TensorFlow's `tf.data.experimental.unique`.
    """
    return lambda dataset: dataset.unique()


def Counter(start: int = 0, step: int = 1, dtype: Any = "int64") -> Any:
    """Returns a dataset that counts without an end.

    Source: TensorFlow's `tf.data.experimental.Counter`.
    """
    from headrace import dtypes
    from headrace.api import math

    def next_number(state: Any, _: Any) -> Any:
        return state + step, state

    numbers = Dataset.from_tensors(0).repeat(None)
    return numbers.apply(scan(math.cast(start, dtypes.as_dtype(dtype)), next_number))


class RandomDataset(Dataset):
    """Dataset of random int64 numbers. See `headrace.data.Dataset.random`.

    Args:
      seed: the seed.

    Source: TensorFlow's `tf.data.experimental.RandomDataset`.
    """

    def __init__(self, seed: int | None = None) -> None:
        made = Dataset.random(seed)
        super().__init__(made.variant_tensor, made.element_spec)


@in_default_graph
def make_saveable_from_iterator(iterator: Any, external_state_policy: Any = None) -> Any:
    """Returns the position of an iterator, as an element of a saver's `var_list`.

    Args:
      iterator: the iterator.
      external_state_policy: accepted, without an effect.

    Source: TensorFlow's `tf.data.experimental.make_saveable_from_iterator`.
    """
    return data.SaveableIterator(iterator)


# fmt: off
__all__ = [
    "AUTOTUNE", "INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY", "Counter", "RandomDataset",
    "bucket_by_sequence_length", "cardinality", "choose_from_datasets", "enumerate_dataset", "get_single_element",
    "group_by_window", "ignore_errors", "make_saveable_from_iterator", "map_and_batch", "parallel_interleave",
    "prefetch_to_device", "sample_from_datasets", "scan", "shuffle_and_repeat", "take_while", "unbatch", "unique",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
