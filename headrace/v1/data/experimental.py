"""TensorFlow 1's `tf.data.experimental`: functions for `Dataset.apply`, and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes, nest, public_names
from headrace.api import data, math, scopes
from headrace.api.data import functions
from headrace.api.data.dataset import AUTOTUNE as AUTOTUNE
from headrace.api.data.dataset import INFINITE_CARDINALITY as INFINITE_CARDINALITY
from headrace.api.data.dataset import UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY
from headrace.api.data.optional import Optional as Optional
from headrace.api.data.optional import OptionalSpec as OptionalStructure
from headrace.api.data.options import AutoShardPolicy as AutoShardPolicy
from headrace.api.data.options import AutotuneAlgorithm as AutotuneAlgorithm
from headrace.api.data.options import AutotuneOptions as AutotuneOptions
from headrace.api.data.options import DistributeOptions as DistributeOptions
from headrace.api.data.options import ExternalStatePolicy as ExternalStatePolicy
from headrace.api.data.options import OptimizationOptions as OptimizationOptions
from headrace.api.data.options import ServiceOptions as ServiceOptions
from headrace.api.data.options import ThreadingOptions as ThreadingOptions
from headrace.api.data.structure import DatasetSpec as DatasetStructure
from headrace.api.data.structure import TensorArraySpec
from headrace.api.sparse_tensor import SparseTensorSpec
from headrace.api.tensor_spec import TensorSpec
from headrace.resources import values
from headrace.v1.data.csv import make_csv_dataset as make_csv_dataset
from headrace.v1.data.datasets import CsvDataset as CsvDataset
from headrace.v1.data.datasets import Dataset
from headrace.v1.data.datasets import SqlDataset as SqlDataset
from headrace.v1.data.examples import make_batched_features_dataset as make_batched_features_dataset
from headrace.v1.data.examples import parse_example_dataset as parse_example_dataset
from headrace.v1.data.tables import DatasetInitializer as DatasetInitializer
from headrace.v1.data.tables import index_table_from_dataset as index_table_from_dataset
from headrace.v1.data.tables import table_from_dataset as table_from_dataset
from headrace.v1.graph import executing_eagerly, in_default_graph

Apply = Callable[[Any], Any]

SHARD_HINT = -1


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


map_and_batch_with_legacy_function = map_and_batch


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


def copy_to_device(target_device: str, source_device: str = "/cpu:0") -> Apply:
    """Returns the function that passes a dataset on unchanged.

    Source: TensorFlow's `tf.data.experimental.copy_to_device`.
    """
    return lambda dataset: dataset.prefetch(0)


def assert_cardinality(expected_cardinality: Any) -> Apply:
    """Returns the function that applies `Dataset.assert_cardinality`.

    Source: TensorFlow's `tf.data.experimental.assert_cardinality`.
    """
    return lambda dataset: dataset.assert_cardinality(expected_cardinality)


def pad_to_cardinality(cardinality: Any, mask_key: str = "valid") -> Apply:
    """Returns the function that appends elements of zeros to a dataset of dicts.

    Args:
      cardinality: the number of elements of the result.
      mask_key: the key of a bool that tells the elements of the dataset from the others.

    Source: TensorFlow's `tf.data.experimental.pad_to_cardinality`.
    """

    def apply(dataset: Any) -> Any:
        spec = dataset.element_spec
        if not isinstance(spec, dict):
            raise ValueError("`pad_to_cardinality` requires its input dataset to be a dictionary.")
        present = dataset.cardinality()
        if hasattr(present, "numpy") and not 0 <= present.numpy() <= cardinality:
            raise ValueError(
                "The dataset passed into `pad_to_cardinality` must have a known cardinality, of at most the target "
                f"cardinality ({cardinality}), but has cardinality {present.numpy()}"
            )

        def zeros(s: Any) -> Any:
            return scopes.builder().const(values.zeros(s.dtype, tuple(d or 0 for d in s.shape)), s.dtype)

        filler = {**nest.map_leaves(zeros, spec), mask_key: False}
        return dataset.map(lambda x: {**x, mask_key: True}).concatenate(
            Dataset.from_tensors(filler).repeat(math.subtract(math.cast(cardinality, dtypes.int64), present))
        )

    return apply


def dense_to_ragged_batch(batch_size: Any, drop_remainder: bool = False, row_splits_dtype: Any = dtypes.int64) -> Apply:
    """Returns the function that applies `Dataset.ragged_batch`.

    Source: TensorFlow's `tf.data.experimental.dense_to_ragged_batch`.
    """
    return lambda dataset: dataset.ragged_batch(batch_size, drop_remainder, row_splits_dtype)


def dense_to_sparse_batch(batch_size: Any, row_shape: Any) -> Apply:
    """Returns the function that applies `Dataset.sparse_batch`.

    Source: TensorFlow's `tf.data.experimental.dense_to_sparse_batch`.
    """
    return lambda dataset: dataset.sparse_batch(batch_size, row_shape)


class Reducer:
    """Functions of a reduction, for `group_by_reducer`.

    Args:
      init_func: the function from a key to the first state.
      reduce_func: the function from a state and an element to the next state.
      finalize_func: the function from the last state to the result.

    Source: TensorFlow's `tf.data.experimental.Reducer`.
    """

    def __init__(
        self,
        init_func: Callable[..., Any],
        reduce_func: Callable[..., Any],
        finalize_func: Callable[..., Any],
    ) -> None:
        self.init_func, self.reduce_func, self.finalize_func = init_func, reduce_func, finalize_func


def group_by_reducer(key_func: Callable[..., Any], reducer: Reducer) -> Apply:
    """Returns the function that applies `Dataset.group_by_reducer`.

    Source: TensorFlow's `tf.data.experimental.group_by_reducer`.
    """
    return lambda dataset: dataset.group_by_reducer(
        key_func, reducer.init_func, reducer.reduce_func, reducer.finalize_func
    )


def rejection_resample(
    class_func: Callable[..., Any], target_dist: Any, initial_dist: Any = None, seed: int | None = None
) -> Apply:
    """Returns the function that applies `Dataset.rejection_resample`.

    Source: TensorFlow's `tf.data.experimental.rejection_resample`.
    """
    return lambda dataset: dataset.rejection_resample(class_func, target_dist, initial_dist, seed)


def snapshot(
    path: Any,
    compression: str | None = "AUTO",
    reader_func: Callable[[Any], Any] | None = None,
    shard_func: Callable[..., Any] | None = None,
) -> Apply:
    """Returns the function that applies `Dataset.snapshot`.

    Source: TensorFlow's `tf.data.experimental.snapshot`.
    """
    return lambda dataset: dataset.snapshot(path, compression, reader_func, shard_func)


def from_list(elements: Sequence[Any], name: str | None = None) -> Any:
    """Returns a dataset of the elements of a list.

    Source: TensorFlow's `tf.data.experimental.from_list`.
    """
    return Dataset.from_list(elements)


def get_structure(dataset_or_iterator: Any) -> Any:
    """Returns the description of the elements of a dataset or iterator.

    Raises:
      TypeError: it is something else.

    Source: TensorFlow's `tf.data.experimental.get_structure`.
    """
    if not hasattr(dataset_or_iterator, "element_spec"):
        raise TypeError(
            f"`dataset_or_iterator` must be a `tf.data.Dataset` or tf.data.Iterator object, got {dataset_or_iterator!r}"
        )
    return dataset_or_iterator.element_spec


def get_next_as_optional(iterator: Any) -> Optional:
    """Returns the next element of an iterator; an optional without an element at the end.

    Source: TensorFlow's `tf.data.experimental.get_next_as_optional`.
    """
    out: Optional = iterator.get_next_as_optional()
    return out


def from_variant(variant: Any, structure: Any) -> Any:
    """Returns the dataset of a variant.

    Args:
      variant: a scalar of dtype variant.
      structure: the description of the elements.

    Source: TensorFlow's `tf.data.experimental.from_variant`.
    """
    return Dataset(variant, structure)


def to_variant(dataset: Any) -> Any:
    """Returns the variant of a dataset.

    Source: TensorFlow's `tf.data.experimental.to_variant`.
    """
    return dataset.variant_tensor


def enable_debug_mode() -> None:
    """Makes functions of later datasets run as Python, with eager tensors.

    Raises:
      ValueError: a graph is current.

    Source: TensorFlow's `tf.data.experimental.enable_debug_mode`.
    """
    if not executing_eagerly():
        raise ValueError("`enable_debug_mode() is only supported in eager mode.")
    functions.run_eagerly(True)


class TFRecordWriter:
    """Writer of the elements of a dataset, strings, to a record file.

    Args:
      filename: the name of the file.
      compression_type: "", "ZLIB" or "GZIP".

    Source: TensorFlow's `tf.data.experimental.TFRecordWriter`.
    """

    def __init__(self, filename: Any, compression_type: Any = None) -> None:
        self._filename, self._compression = filename, compression_type or ""

    @in_default_graph
    def write(self, dataset: Any) -> Any:
        """Returns the operation that writes the elements; outside of graphs it writes them.

        Args:
          dataset: the dataset.

        Raises:
          TypeError: it is none, or its elements are no string scalars.
        """
        spec = getattr(dataset, "element_spec", None)
        if not isinstance(dataset, data.Dataset):
            raise TypeError(f"Invalid `dataset.` Expected a `tf.data.Dataset` object but got {type(dataset)}.")
        if not isinstance(spec, TensorSpec) or (spec.shape, spec.dtype) != ((), dtypes.string):
            raise TypeError(f"Invalid `dataset`. Expected elements that are scalar strings, got {spec}.")
        b = scopes.builder(dataset.variant_tensor, self._filename, self._compression)
        texts = [b.tensor(x, dtypes.string) for x in (self._filename, self._compression)]
        return b.make("DatasetToTFRecord", [b.tensor(dataset.variant_tensor), *texts], {})


def TensorStructure(dtype: Any, shape: Any) -> TensorSpec:
    """Returns the description of a tensor. Source: TensorFlow's `tf.data.experimental.TensorStructure`."""
    return TensorSpec(shape, dtype)


def SparseTensorStructure(dtype: Any, shape: Any) -> SparseTensorSpec:
    """Returns the description of a sparse tensor. Source: `tf.data.experimental.SparseTensorStructure`."""
    return SparseTensorSpec(shape, dtype)


def TensorArrayStructure(dtype: Any, element_shape: Any, dynamic_size: bool, infer_shape: bool) -> TensorArraySpec:
    """Returns the description of a `TensorArray`. Source: `tf.data.experimental.TensorArrayStructure`."""
    return TensorArraySpec(element_shape, dtype, dynamic_size, infer_shape)


def RaggedTensorStructure(dtype: Any, shape: Any, ragged_rank: int) -> Any:
    """Returns the description of a ragged tensor. Source: `tf.data.experimental.RaggedTensorStructure`."""
    from headrace.v1.ragged.ragged_tensor import RaggedTensorSpec  # which not every pipeline needs

    return RaggedTensorSpec(shape, dtype, ragged_rank)


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


def Counter(start: Any = 0, step: Any = 1, dtype: Any = dtypes.int64) -> Any:
    """Returns a dataset that counts without an end.

    Source: TensorFlow's `tf.data.experimental.Counter`.
    """
    return Dataset.counter(start, step, dtype)


class RandomDataset(Dataset):
    """Dataset of random int64 numbers. See `headrace.data.Dataset.random`.

    Args:
      seed: the seed.
      rerandomize_each_iteration: whether each pass has other numbers.
      name: accepted, without an effect.

    Source: TensorFlow's `tf.data.experimental.RandomDataset`.
    """

    def __init__(
        self, seed: int | None = None, rerandomize_each_iteration: bool | None = None, name: str | None = None
    ) -> None:
        made = Dataset.random(seed, rerandomize_each_iteration)
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


if TYPE_CHECKING:
    from headrace.v1.type_specs import TypeSpec as Structure

# Imported on first use, with ragged tensors.
_LATER = {"Structure": "headrace.v1.type_specs:TypeSpec"}

# fmt: off
__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "SHARD_HINT",
    "UNKNOWN_CARDINALITY",
    "AutoShardPolicy",
    "AutotuneAlgorithm",
    "AutotuneOptions",
    "Counter",
    "CsvDataset",
    "DatasetInitializer",
    "DatasetStructure",
    "DistributeOptions",
    "ExternalStatePolicy",
    "OptimizationOptions",
    "Optional",
    "OptionalStructure",
    "RaggedTensorStructure",
    "RandomDataset",
    "Reducer",
    "ServiceOptions",
    "SparseTensorStructure",
    "SqlDataset",
    "Structure",
    "TFRecordWriter",
    "TensorArrayStructure",
    "TensorStructure",
    "ThreadingOptions",
    "assert_cardinality",
    "bucket_by_sequence_length",
    "cardinality",
    "choose_from_datasets",
    "copy_to_device",
    "dense_to_ragged_batch",
    "dense_to_sparse_batch",
    "enable_debug_mode",
    "enumerate_dataset",
    "from_list",
    "from_variant",
    "get_next_as_optional",
    "get_single_element",
    "get_structure",
    "group_by_reducer",
    "group_by_window",
    "ignore_errors",
    "index_table_from_dataset",
    "make_batched_features_dataset",
    "make_csv_dataset",
    "make_saveable_from_iterator",
    "map_and_batch",
    "map_and_batch_with_legacy_function",
    "pad_to_cardinality",
    "parallel_interleave",
    "parse_example_dataset",
    "prefetch_to_device",
    "rejection_resample",
    "sample_from_datasets",
    "scan",
    "shuffle_and_repeat",
    "snapshot",
    "table_from_dataset",
    "take_while",
    "to_variant",
    "unbatch",
    "unique",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__, _LATER)
