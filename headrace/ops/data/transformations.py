"""Datasets made of other datasets.

Source: TensorFlow's MapDataset, BatchDatasetV2, ShuffleDatasetV3, .... Ops for the optimization of pipelines
(OptimizeDataset, ModelDataset, OptionsDataset, ...) pass their input on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import InvalidArgumentError
from headrace.ir.kernel_calls import callable_of
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, bool_attr, func_attr, int_attr, list_attr, op, string_attr
from headrace.opkit.dataset_ops import ELEMENTS, GIVEN, METADATA, Attrs, dataset_op, options_message
from headrace.opkit.shape_rules import scalars
from headrace.resources.datasets.base import Dataset, WithOptions, as_count, as_dataset
from headrace.resources.datasets.batching import Batch, PaddedBatch, Rebatch, Unbatch
from headrace.resources.datasets.combining import Concatenate, Directed, Repeat, Zip
from headrace.resources.datasets.grouping import GroupByReducer
from headrace.resources.datasets.keeping import Cache, FileCache, Memory, Prefetch
from headrace.resources.datasets.mapping import FlatMap, Map, Scan
from headrace.resources.datasets.saved import Snapshot, packing
from headrace.resources.datasets.selecting import AssertCardinality, Filter, IgnoreErrors, Shard, Skip, Take, Unique
from headrace.resources.datasets.shuffling import Seeds, Shuffle
from headrace.resources.datasets.windows import GroupByWindow, Window

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_NONE: Attrs = {}
_more: Attrs  # of the loops below: attributes that only some forms of an op have
_INPUT = "input_dataset: variant"
_CALL = {"f": func_attr(), "Targuments": list_attr("type")}
_WITH_CALL = f"{_INPUT}, other_arguments: Targuments"


def _dataset(type: str, ins: str, attrs: Attrs, make: Callable[..., Dataset], doc: str, n: int = 1) -> None:
    """Registers an op whose first `n` inputs are datasets: `make(ctx, attrs, *datasets, *other inputs)`."""

    def made(ctx: KernelContext, attrs: Attrs, *inputs: Any) -> Dataset:
        return make(ctx, attrs, *[as_dataset(x, type) for x in inputs[:n]], *inputs[n:])

    dataset_op(type, ins, {**attrs, **ELEMENTS}, made, doc)


def _same(type: str, ins: str, attrs: Attrs, doc: str) -> None:
    """Registers an op that returns its input dataset."""
    _dataset(type, ins, attrs, lambda ctx, attrs, input, *others: input, doc)


# *** selection and combination ***

_dataset(
    "ZipDataset",
    "input_datasets: N * variant",
    {"N": int_attr(minimum=1), **METADATA},
    lambda ctx, attrs, *inputs: Zip([as_dataset(d, "ZipDataset") for d in inputs]),
    "A dataset of elements that consist of one element of each input.",
    0,
)
_dataset(
    "ConcatenateDataset",
    f"{_INPUT}, another_dataset: variant",
    METADATA,
    lambda ctx, attrs, first, second: Concatenate(first, second),
    "The elements of one dataset, then of another.",
    2,
)
for _type, _kind, _doc in (
    ("RepeatDataset", Repeat, "The elements of a dataset, `count` times."),
    ("TakeDataset", Take, "The first `count` elements of a dataset."),
    ("SkipDataset", Skip, "The elements of a dataset after the first `count`."),
):
    _dataset(
        _type,
        f"{_INPUT}, count: int64",
        METADATA,
        lambda ctx, attrs, input, count, kind=_kind: kind(input, int(count)),
        _doc,
    )
_dataset(
    "ShardDataset",
    f"{_INPUT}, num_shards: int64, index: int64",
    {"require_non_empty": False, **METADATA},
    lambda ctx, attrs, input, n, index: Shard(input, int(n), int(index), attrs["require_non_empty"]),
    "Every `num_shards`-th element of a dataset, from number `index` on.",
)
for _type, _is_prefix, _doc in (
    ("FilterDataset", False, "The elements of a dataset for which `predicate` holds."),
    ("TakeWhileDataset", True, "The elements of a dataset up to the first one for which `predicate` does not hold."),
):
    _dataset(
        _type,
        _WITH_CALL,
        {"predicate": func_attr(), "Targuments": list_attr("type"), **METADATA},
        lambda ctx, attrs, input, *rest, is_prefix=_is_prefix: Filter(
            input, callable_of(ctx, attrs["predicate"], rest), is_prefix
        ),
        _doc,
    )
_dataset(
    "UniqueDataset",
    _INPUT,
    METADATA,
    lambda ctx, attrs, input: Unique(input),
    "The first of each group of equal elements of a dataset.",
)
for _type in ("IgnoreErrorsDataset", "ExperimentalIgnoreErrorsDataset"):
    _dataset(
        _type,
        _INPUT,
        {"log_warning": False},
        lambda ctx, attrs, input: IgnoreErrors(input, attrs["log_warning"]),
        "The elements of a dataset that can be made without an error.",
    )
_dataset(
    "AssertCardinalityDataset",
    f"{_INPUT}, cardinality: int64",
    {},
    lambda ctx, attrs, input, n: AssertCardinality(input, int(n)),
    "The elements of a dataset, whose number is asserted.",
)
_dataset(
    "DirectedInterleaveDataset",
    "selector_input_dataset: variant, data_input_datasets: N * variant",
    {"N": int_attr(minimum=1), "stop_on_empty_dataset": False},
    lambda ctx, attrs, selector, *inputs: Directed(
        selector,
        [as_dataset(d, "DirectedInterleaveDataset") for d in inputs],
        attrs["stop_on_empty_dataset"],
    ),
    "Elements of several datasets, each from the one that `selector_input_dataset` selects.",
)

# *** functions ***


def _map(ctx: KernelContext, attrs: Attrs, input: Dataset, *rest: Any) -> Dataset:
    return Map(input, callable_of(ctx, attrs["f"], rest), 1, attrs["preserve_cardinality"])


def _parallel(value: Any) -> int:
    n = int(value)
    if n < 1 and n != -1:
        raise InvalidArgumentError(f"num_parallel_calls must be greater than zero, or -1 for any number; got {n}")
    return max(n, 0)


def _parallel_map(ctx: KernelContext, attrs: Attrs, input: Dataset, *rest: Any) -> Dataset:
    is_sloppy = attrs.get("sloppy", False) or attrs.get("deterministic") == "false"
    keeps_order = False if is_sloppy else None if attrs.get("deterministic") == "default" else True
    call = callable_of(ctx, attrs["f"], rest[:-1])
    return Map(input, call, _parallel(rest[-1]), attrs["preserve_cardinality"], keeps_order)


def _interleave(n: int) -> Any:
    """The kernel of an interleave with `n` inputs after the captured ones."""

    def make(ctx: KernelContext, attrs: Attrs, input: Dataset, *rest: Any) -> Dataset:
        call = callable_of(ctx, attrs["f"], rest[:-n])
        cycle, block = (int(v) for v in rest[len(rest) - n :][:2])
        if cycle == -1 and n > 2:
            cycle = 10
        return FlatMap(input, call, as_count(cycle, "cycle_length", 1), as_count(block, "block_length", 1))

    return make


_KEEPS = {"preserve_cardinality": bool_attr(False)}
_dataset(
    "MapDataset",
    _WITH_CALL,
    {**_CALL, "use_inter_op_parallelism": True, **_KEEPS, "force_synchronous": False, **METADATA},
    _map,
    "The results of `f` for the elements of a dataset.",
)
for _type, _dtype, _more in (
    ("ParallelMapDataset", "int32", {"use_inter_op_parallelism": True, "sloppy": False}),
    (
        "ParallelMapDatasetV2",
        "int64",
        {"use_inter_op_parallelism": True, "deterministic": "default", "use_unbounded_threadpool": False},
    ),
):
    _dataset(
        _type,
        f"{_WITH_CALL}, num_parallel_calls: {_dtype}",
        {**_CALL, **_more, **_KEEPS, **METADATA},
        _parallel_map,
        "The results of `f` for the elements of a dataset, several at the same time.",
    )
_dataset(
    "FlatMapDataset",
    _WITH_CALL,
    {**_CALL, **METADATA},
    lambda ctx, attrs, input, *rest: FlatMap(input, callable_of(ctx, attrs["f"], rest)),
    "The elements of the datasets that `f` makes of the elements of a dataset.",
)
_CYCLE = f"{_WITH_CALL}, cycle_length: int64, block_length: int64"
for _type, _ins, _more, _n in (
    ("InterleaveDataset", "", {}, 2),
    ("ParallelInterleaveDatasetV2", ", num_parallel_calls: int64", {"sloppy": False}, 3),
    ("ParallelInterleaveDatasetV3", ", num_parallel_calls: int64", {"deterministic": "default"}, 3),
    (
        "ParallelInterleaveDatasetV4",
        ", buffer_output_elements: int64, prefetch_input_elements: int64, num_parallel_calls: int64",
        {"deterministic": "default"},
        5,
    ),
):
    _dataset(
        _type,
        _CYCLE + _ins,
        {**_CALL, **_more, **METADATA},
        _interleave(_n),
        "The elements of the datasets that `f` makes of the elements of a dataset, in turn.",
    )


def _scan(ctx: KernelContext, attrs: Attrs, input: Dataset, *rest: Any) -> Dataset:
    n = len(attrs["Tstate"])
    return Scan(input, rest[:n], callable_of(ctx, attrs["f"], rest[n:]))


for _type, _more in (("ScanDataset", {**METADATA, "use_default_device": True}), ("ExperimentalScanDataset", _NONE)):
    _dataset(
        _type,
        f"{_INPUT}, initial_state: Tstate, other_arguments: Targuments",
        {**_CALL, "Tstate": list_attr("type", minimum=1), **_KEEPS, **_more},
        _scan,
        "The outputs of `f(state, element)`, which also returns the next state.",
    )

# *** batches ***


def _batch(ctx: KernelContext, attrs: Attrs, input: Dataset, size: Any, *rest: Any) -> Dataset:
    drop = bool(rest[-1]) if rest else False
    return Batch(input, as_count(size, "Batch size", 1), drop, attrs["output_types"])


_dataset("BatchDataset", f"{_INPUT}, batch_size: int64", METADATA, _batch, "Batches of a dataset.")
_dataset(
    "BatchDatasetV2",
    f"{_INPUT}, batch_size: int64, drop_remainder: bool",
    {"parallel_copy": False, **METADATA},
    _batch,
    "Batches of a dataset; the last one may be left out if it is smaller.",
)
_dataset(
    "ParallelBatchDataset",
    f"{_INPUT}, batch_size: int64, num_parallel_calls: int64, drop_remainder: bool",
    {"parallel_copy": False, "deterministic": "default", **METADATA},
    _batch,
    "Batches of a dataset.",
)


def _map_and_batch(ctx: KernelContext, attrs: Attrs, input: Dataset, *rest: Any) -> Dataset:
    *captured, size, parallel, drop = rest
    mapped = Map(input, callable_of(ctx, attrs["f"], captured), _parallel(parallel), attrs["preserve_cardinality"])
    return Batch(mapped, as_count(size, "Batch size", 1), bool(drop), attrs["output_types"])


_dataset(
    "MapAndBatchDataset",
    f"{_WITH_CALL}, batch_size: int64, num_parallel_calls: int64, drop_remainder: bool",
    {**_CALL, **_KEEPS, **METADATA},
    _map_and_batch,
    "Batches of the results of `f` for the elements of a dataset.",
)


def _padded(ctx: KernelContext, attrs: Attrs, input: Dataset, size: Any, *rest: Any) -> Dataset:
    n = attrs["N"]
    drop = bool(rest[2 * n]) if len(rest) > 2 * n else False
    padded = [np.ravel(s).tolist() for s in rest[:n]]
    types = attrs["Toutput_types"]
    return PaddedBatch(input, as_count(size, "Batch size", 1), padded, rest[n : 2 * n], drop, types)


for _type, _ins, _more in (
    ("PaddedBatchDataset", "", {}),
    ("PaddedBatchDatasetV2", ", drop_remainder: bool", {"parallel_copy": False}),
):
    op(
        _type,
        f"{_INPUT}, batch_size: int64, padded_shapes: N * int64, padding_values: Toutput_types{_ins}",
        "handle: variant",
        {
            **GIVEN,
            "N": int_attr(minimum=1),
            **_more,
            **METADATA,
        },
        shape=scalars,
        stateful=lambda ctx, attrs, type=_type: (
            lambda input, *rest: _padded(ctx, attrs, as_dataset(input, type), *rest)
        ),
        grad=NOT_DIFFERENTIABLE,
        facts=Facts(),
        doc="Batches of a dataset, whose elements are padded to equal shapes.",
    )
for _type, _more in (("UnbatchDataset", METADATA), ("ExperimentalUnbatchDataset", _NONE)):
    _dataset(
        _type,
        _INPUT,
        _more,
        lambda ctx, attrs, input: Unbatch(input, attrs["output_types"]),
        "The rows of the elements of a dataset.",
    )

_dataset(
    "RebatchDatasetV2",
    f"{_INPUT}, batch_sizes: int64, drop_remainder: bool",
    {},
    lambda ctx, attrs, input, sizes, drop: Rebatch(input, np.ravel(sizes).tolist(), bool(drop), attrs["output_types"]),
    "The rows of batches, in batches of other sizes, in turn.",
)

# *** windows and groups ***

_dataset(
    "WindowDataset",
    f"{_INPUT}, size: int64, shift: int64, stride: int64, drop_remainder: bool",
    METADATA,
    lambda ctx, attrs, input, size, shift, stride, drop: Window(input, int(size), int(shift), int(stride), bool(drop)),
    "Windows of a dataset: for each component a dataset of some of its elements.",
)


def _groups(ctx: KernelContext, attrs: Attrs, input: Dataset, *rest: Any) -> Dataset:
    return GroupByWindow(input, *_calls(ctx, attrs, _NAMES, rest))


def _calls(ctx: KernelContext, attrs: Attrs, names: tuple[str, ...], rest: tuple[Any, ...]) -> list[Any]:
    """Returns the functions of an op with several, each with its captured inputs."""
    made, at = [], 0
    for name in names:
        n = len(attrs[f"T{name}_func_other_arguments"])
        made.append(callable_of(ctx, attrs[f"{name}_func"], rest[at : at + n]))
        at += n
    return made


_NAMES = ("key", "reduce", "window_size")
_dataset(
    "GroupByWindowDataset",
    ", ".join([_INPUT, *(f"{n}_func_other_arguments: T{n}_func_other_arguments" for n in _NAMES)]),
    {
        **{f"{n}_func": func_attr() for n in _NAMES},
        **{f"T{n}_func_other_arguments": list_attr("type") for n in _NAMES},
        **METADATA,
    },
    _groups,
    "The elements of the datasets that `reduce_func` makes of groups with equal keys.",
)


def _reducers(ctx: KernelContext, attrs: Attrs, input: Dataset, *rest: Any) -> Dataset:
    return GroupByReducer(input, *_calls(ctx, attrs, _REDUCERS, rest))


_REDUCERS = ("key", "init", "reduce", "finalize")
for _type in ("GroupByReducerDataset", "ExperimentalGroupByReducerDataset"):
    _dataset(
        _type,
        ", ".join([_INPUT, *(f"{n}_func_other_arguments: T{n}_func_other_arguments" for n in _REDUCERS)]),
        {
            **{f"{n}_func": func_attr() for n in _REDUCERS},
            **{f"T{n}_func_other_arguments": list_attr("type") for n in _REDUCERS},
        },
        _reducers,
        "The reductions of the groups of elements with equal keys, in the order of the keys.",
    )

# *** shuffles, caches, prefetching ***


def _shuffled(input: Dataset, attrs: Attrs, size: Any, seed: Any, seed2: Any) -> Dataset:
    return Shuffle(input, int(size), Seeds(int(seed), int(seed2), attrs["reshuffle_each_iteration"]))


_RENEWS = {"reshuffle_each_iteration": bool_attr(True)}
_dataset(
    "ShuffleDataset",
    f"{_INPUT}, buffer_size: int64, seed: int64, seed2: int64",
    {**_RENEWS, **METADATA},
    lambda ctx, attrs, input, size, seed, seed2: _shuffled(input, attrs, size, seed, seed2),
    "The elements of a dataset in random order.",
)
_dataset(
    "ShuffleDatasetV3",
    f"{_INPUT}, buffer_size: int64, seed: int64, seed2: int64, seed_generator: resource",
    {**_RENEWS, **METADATA},
    lambda ctx, attrs, input, size, seed, seed2, generator: _shuffled(input, attrs, size, seed, seed2),
    "The elements of a dataset in random order.",
)
_dataset(
    "ShuffleAndRepeatDataset",
    f"{_INPUT}, buffer_size: int64, seed: int64, seed2: int64, count: int64",
    {**_RENEWS, **METADATA},
    lambda ctx, attrs, input, size, seed, seed2, count: Repeat(_shuffled(input, attrs, size, seed, seed2), int(count)),
    "The elements of `count` passes over a dataset in random order.",
)


def _cache(ctx: KernelContext, attrs: Attrs, input: Dataset, filename: Any, *memory: Any) -> Dataset:
    name = filename if isinstance(filename, bytes) else filename.item()
    if name:
        return FileCache(input, name.decode(errors="surrogateescape"))
    kept = memory[0].owned if memory and isinstance(getattr(memory[0], "owned", None), Memory) else Memory()
    return Cache(input, kept)


_dataset("CacheDataset", f"{_INPUT}, filename: string", METADATA, _cache, "A dataset whose first pass is kept.")
_dataset(
    "CacheDatasetV2",
    f"{_INPUT}, filename: string, cache: resource",
    METADATA,
    _cache,
    "A dataset whose first pass is kept.",
)


def _snapshot(ctx: KernelContext, attrs: Attrs, input: Dataset, path: Any, *rest: Any) -> Dataset:
    name = path if isinstance(path, bytes) else path.item()
    n = len(attrs["Treader_func_args"])
    read, shard = (
        callable_of(ctx, attrs[f"{which}_func"], captured)
        for which, captured in (("reader", rest[:n]), ("shard", rest[n:]))
    )
    folder = name.decode(errors="surrogateescape")
    return Snapshot(input, folder, attrs["output_types"], packing(attrs["compression"]), shard, read)


_dataset(
    "SnapshotDatasetV2",
    f"{_INPUT}, path: string, reader_func_other_args: Treader_func_args, shard_func_other_args: Tshard_func_args",
    {
        "compression": "",
        "reader_prefix": "",
        "writer_prefix": "",
        "hash_valid": False,
        "hash": 0,
        "reader_func": func_attr(),
        "shard_func": func_attr(),
        "Treader_func_args": list_attr("type"),
        "Tshard_func_args": list_attr("type"),
        **METADATA,
    },
    _snapshot,
    "The elements of a dataset, which the first pass writes to a folder, and later ones read.",
)
_dataset(
    "PrefetchDataset",
    f"{_INPUT}, buffer_size: int64",
    {"slack_period": 0, "legacy_autotune": True, "buffer_size_min": 0, **METADATA},
    lambda ctx, attrs, input, size: Prefetch(input, int(size)),
    "A dataset whose next elements a thread computes.",
)

# *** options ***


def _options(ctx: KernelContext, attrs: Attrs, input: Dataset) -> Dataset:
    text = attrs["serialized_options"]
    message = options_message(text.encode("utf-8", "surrogateescape"))
    return WithOptions(input, text, message.deterministic if message.HasField("deterministic") else None)


_dataset(
    "OptionsDataset",
    _INPUT,
    {"serialized_options": string_attr(), **METADATA},
    _options,
    "The same dataset with options, of which `deterministic` has an effect: whether parallel functions keep the order.",
)

# *** ops without an effect on the elements ***

_CONFIGS = {"optimization_configs": list_attr("string", ())}
_SAME = "The same dataset: headrace has no such option of pipelines."
_same("OptimizeDataset", f"{_INPUT}, optimizations: string", _CONFIGS, _SAME)
_same(
    "OptimizeDatasetV2",
    f"{_INPUT}, optimizations_enabled: string, optimizations_disabled: string, optimizations_default: string",
    _CONFIGS,
    _SAME,
)
_same("ModelDataset", _INPUT, {"algorithm": 0, "cpu_budget": 0, "ram_budget": 0}, _SAME)
_same("FinalizeDataset", _INPUT, {"has_captured_ref": False}, _SAME)
_same("PrivateThreadPoolDataset", f"{_INPUT}, num_threads: int64", {}, _SAME)
_same("MaxIntraOpParallelismDataset", f"{_INPUT}, max_intra_op_parallelism: int64", {}, _SAME)
