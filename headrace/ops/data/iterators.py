"""Iterators of datasets, as resources, and ops that run a dataset to its end.

Source: TensorFlow's IteratorV2, MakeIterator, IteratorGetNext, OneShotIterator, ReduceDataset, .... A request may wait
for a file or for a function of the user, so it blocks a thread (`Facts.blocking`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import InvalidArgumentError
from headrace.files import records
from headrace.ir.infer import Inference
from headrace.ir.kernel_calls import callable_of
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, func_attr, list_attr, op, string_attr
from headrace.opkit.dataset_ops import ELEMENTS, Attrs
from headrace.opkit.shape_rules import nothing, scalars
from headrace.resources.datasets.base import Pass, as_dataset
from headrace.resources.datasets.iterators import DatasetIterator
from headrace.resources.datasets.mapping import made_dataset, reduced
from headrace.resources.datasets.saved import Writer, packing, saved
from headrace.resources.manager import Handle, handle_of, resource_of
from headrace.resources.optional import Optional
from headrace.resources.table import HashTable, Table
from headrace.resources.values import shape_of, stack
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_ANY = {"output_types": list_attr("type", ()), "output_shapes": list_attr("shape", ())}
_READS = Facts(effect="resource")
_WRITES = Facts(effect="resource", writes=True)
_REQUESTS = Facts(effect="resource", writes=True, blocking=True, dynamic_shape=True)


def _found(ctx: KernelContext, handle: Any) -> DatasetIterator:
    return resource_of(ctx.step, handle, DatasetIterator)


def _look(ctx: KernelContext) -> Callable[[], None] | None:
    """A function that raises if the step was cancelled; None for eager ops."""
    return getattr(ctx.step, "look", None)


def _begin(ctx: KernelContext) -> Pass:
    """A pass that ends with the op."""
    run = Pass()
    run.ask(_look(ctx), getattr(ctx.step, "deadline", None))
    return run


def _one(elements: Sequence[Any]) -> Any:
    return elements[0] if len(elements) == 1 else elements


def _shapes(c: Inference) -> Sequence[Shape]:
    found: Sequence[Shape] = c.attrs["output_shapes"]
    if len(found) != len(c.attrs["output_types"]):
        raise ValueError(
            f"`output_shapes` must be the same length as `output_types` ({len(found)} vs. "
            f"{len(c.attrs['output_types'])})"
        )
    return list(found)


# *** making ***


def _shared(ctx: KernelContext, attrs: Attrs) -> Callable[[], Handle]:
    def kernel() -> Handle:
        name = attrs["shared_name"] or ctx.node
        made = lambda: DatasetIterator(name, attrs["output_types"], attrs["output_shapes"])
        ctx.step.session.lookup_or_create(attrs["container"], DatasetIterator, name, made)
        return handle_of(ctx.op, attrs["container"], DatasetIterator, name)

    return kernel


def _anonymous(ctx: KernelContext, attrs: Attrs) -> Callable[[], Handle]:
    def kernel() -> Handle:
        made = DatasetIterator("anonymous", attrs["output_types"], attrs["output_shapes"])
        return Handle(ctx.op.device, "localhost", DatasetIterator.__name__, "anonymous", owned=made)

    return kernel


def _one_shot(ctx: KernelContext, attrs: Attrs) -> Callable[[], Handle]:
    call = callable_of(ctx, attrs["dataset_factory"])

    def kernel() -> Handle:
        name = attrs["shared_name"] or ctx.node

        def make() -> DatasetIterator:
            made = DatasetIterator(name, attrs["output_types"], attrs["output_shapes"])
            made.begin(made_dataset(call((), _begin(ctx))))
            return made

        ctx.step.session.lookup_or_create(attrs["container"], DatasetIterator, name, make)
        return handle_of(ctx.op, attrs["container"], DatasetIterator, name)

    return kernel


_PLACE = {"shared_name": string_attr(), "container": string_attr()}
for _type in ("Iterator", "IteratorV2"):
    op(
        _type,
        "",
        "handle: resource",
        {**_PLACE, **ELEMENTS},
        shape=scalars,
        stateful=_shared,
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc="A handle to the session's iterator of this name.",
    )
for _type in ("AnonymousIterator", "AnonymousIteratorV3"):
    op(
        _type,
        "",
        "handle: resource",
        ELEMENTS,
        shape=scalars,
        stateful=_anonymous,
        grad=NOT_DIFFERENTIABLE,
        facts=_WRITES,
        doc="A new iterator, which lives as long as its handle.",
    )
op(
    "OneShotIterator",
    "",
    "handle: resource",
    {"dataset_factory": func_attr(), **ELEMENTS, "container": "", "shared_name": ""},
    shape=scalars,
    stateful=_one_shot,
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="A handle to the session's iterator of this name, over the dataset that `dataset_factory` makes.",
)


def _make(ctx: KernelContext, attrs: Attrs) -> Callable[..., None]:
    return lambda dataset, handle: _found(ctx, handle).begin(as_dataset(dataset, "MakeIterator"))


op(
    "MakeIterator",
    "dataset: variant, iterator: resource",
    "",
    shape=nothing,
    stateful=_make,
    grad=NOT_DIFFERENTIABLE,
    facts=_WRITES,
    doc="Starts a pass of an iterator over a dataset.",
)

# *** requests ***


def _next(ctx: KernelContext, attrs: Attrs) -> Callable[[Any], Any]:
    look, types = _look(ctx), tuple(attrs["output_types"])

    def kernel(handle: Any) -> Any:
        iterator = _found(ctx, handle)
        iterator.check(types, "IteratorGetNext")
        return _one(iterator.next(look, getattr(ctx.step, "deadline", None)))

    return kernel


def _next_as_optional(ctx: KernelContext, attrs: Attrs) -> Callable[[Any], Optional]:
    look, types = _look(ctx), tuple(attrs["output_types"])

    def kernel(handle: Any) -> Optional:
        found = _found(ctx, handle).next_or_none(look, getattr(ctx.step, "deadline", None))
        return Optional() if found is None else Optional(found, types)

    return kernel


for _type in ("IteratorGetNext", "IteratorGetNextSync"):
    op(
        _type,
        "iterator: resource",
        "components: output_types",
        ELEMENTS,
        shape=_shapes,
        stateful=_next,
        grad=NOT_DIFFERENTIABLE,
        facts=_REQUESTS,
        doc="The next element of an iterator; OutOfRangeError at the end.",
    )
op(
    "IteratorGetNextAsOptional",
    "iterator: resource",
    "optional: variant",
    ELEMENTS,
    shape=scalars,
    stateful=_next_as_optional,
    grad=NOT_DIFFERENTIABLE,
    facts=_REQUESTS,
    doc="The next element of an iterator; an empty optional at the end.",
)

# *** names ***


def _to_string(ctx: KernelContext, attrs: Attrs) -> Callable[[Any], np.ndarray]:
    def kernel(handle: Any) -> np.ndarray:
        _found(ctx, handle)
        if handle.owned is not None:
            raise InvalidArgumentError(
                "an iterator that belongs to its handle has no name; use one of Iterator.from_structure or of an "
                "initializer"
            )
        return np.array("\0".join((_MARK, handle.container, handle.name)).encode(), object)

    return kernel


_MARK = "headrace iterator"


def _from_string(ctx: KernelContext, attrs: Attrs) -> Callable[[Any], Handle]:
    def kernel(text: Any) -> Handle:
        data = text if isinstance(text, bytes) else text.item()
        mark, _, rest = data.decode(errors="surrogateescape").partition("\0")
        container, _, name = rest.partition("\0")
        if mark != _MARK:
            raise InvalidArgumentError(
                f"{data[:40]!r} is no string handle of an iterator; feed the value of `iterator.string_handle()`"
            )
        handle = handle_of(ctx.op, container, DatasetIterator, name)
        _found(ctx, handle).check(attrs["output_types"], "IteratorFromStringHandle")
        return handle

    return kernel


op(
    "IteratorToStringHandle",
    "resource_handle: resource",
    "string_handle: string",
    shape=scalars,
    stateful=_to_string,
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="The name of an iterator of the session, to feed to another step.",
)
for _type in ("IteratorFromStringHandle", "IteratorFromStringHandleV2"):
    op(
        _type,
        "string_handle: string",
        "resource_handle: resource",
        _ANY,
        shape=scalars,
        stateful=_from_string,
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc="The iterator of a name that IteratorToStringHandle made.",
    )

# *** positions ***


def _save(ctx: KernelContext, attrs: Attrs) -> Callable[[Any], np.ndarray]:
    return lambda handle: np.array(_found(ctx, handle).save(), object)


def _restore(ctx: KernelContext, attrs: Attrs) -> Callable[..., None]:
    def kernel(handle: Any, data: Any) -> None:
        _found(ctx, handle).restore(data if isinstance(data, bytes) else data.item())

    return kernel


op(
    "_SaveIterator",
    "resource_handle: resource",
    "serialized: string",
    shape=scalars,
    stateful=_save,
    grad=NOT_DIFFERENTIABLE,
    facts=_REQUESTS,
    doc="The position of an iterator, as a string for a checkpoint.",
)
op(
    "_RestoreIterator",
    "resource_handle: resource, serialized: string",
    "",
    shape=nothing,
    stateful=_restore,
    grad=NOT_DIFFERENTIABLE,
    facts=_REQUESTS,
    doc="Moves an iterator to the position that _SaveIterator returned.",
)

# *** whole datasets ***


def _reduce(ctx: KernelContext, attrs: Attrs) -> Callable[..., Any]:
    n = len(attrs["Tstate"])

    def kernel(dataset: Any, *rest: Any) -> Any:
        call = callable_of(ctx, attrs["f"], rest[n:])
        run = _begin(ctx)
        try:
            return _one(reduced(as_dataset(dataset, "ReduceDataset"), rest[:n], call, run))
        finally:
            run.end()

    return kernel


def _single(ctx: KernelContext, attrs: Attrs) -> Callable[[Any], Any]:
    def kernel(dataset: Any) -> Any:
        run = _begin(ctx)
        try:
            iterator = as_dataset(dataset, "DatasetToSingleElement").iterator(run)
            found = iterator.next()
            if found is None:
                raise InvalidArgumentError("Dataset was empty.")
            if iterator.next() is not None:
                raise InvalidArgumentError("Dataset had more than one element.")
            return _one(found)
        finally:
            run.end()

    return kernel


op(
    "ReduceDataset",
    "input_dataset: variant, initial_state: Tstate, other_arguments: Targuments",
    "components: output_types",
    {
        "f": func_attr(),
        "Tstate": list_attr("type", minimum=1),
        "Targuments": list_attr("type"),
        **ELEMENTS,
        "use_inter_op_parallelism": True,
        "metadata": "",
    },
    shape=_shapes,
    stateful=_reduce,
    grad=NOT_DIFFERENTIABLE,
    facts=_REQUESTS,
    doc="The last state of `state = f(state, element)` over a dataset.",
)
op(
    "DatasetToSingleElement",
    "dataset: variant",
    "components: output_types",
    {**ELEMENTS, "metadata": ""},
    shape=_shapes,
    stateful=_single,
    grad=NOT_DIFFERENTIABLE,
    facts=_REQUESTS,
    doc="The only element of a dataset.",
)
op(
    "DatasetCardinality",
    "input_dataset: variant",
    "cardinality: int64",
    {"cardinality_options": ""},
    shape=scalars,
    stateful=lambda ctx, attrs: lambda dataset: np.int64(as_dataset(dataset, "DatasetCardinality").cardinality()),
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(),
    doc="The number of elements of a dataset; -1 if there is no end, -2 if only a pass finds it.",
)

# *** files and tables of the elements ***


def _text(value: Any) -> str:
    return (value if isinstance(value, bytes) else value.item()).decode(errors="surrogateescape")


def _to_records(ctx: KernelContext, attrs: Attrs) -> Callable[..., None]:
    def kernel(dataset: Any, filename: Any, compression: Any) -> None:
        kind = _text(compression)
        records.check_kind(kind)
        run = _begin(ctx)
        try:
            take = as_dataset(dataset, ctx.op.type).iterator(run).next
            with records.Writer(_text(filename), compression=kind) as writer:
                while (element := take()) is not None:
                    run.check()
                    if len(element) != 1 or shape_of(element[0]):
                        raise InvalidArgumentError(f"{ctx.op.type} takes elements that are one string scalar")
                    writer.write(element[0] if isinstance(element[0], bytes) else element[0].item())
        finally:
            run.end()

    return kernel


for _type in ("DatasetToTFRecord", "ExperimentalDatasetToTFRecord"):
    op(
        _type,
        "input_dataset: variant, filename: string, compression_type: string",
        "",
        shape=nothing,
        stateful=_to_records,
        grad=NOT_DIFFERENTIABLE,
        facts=_REQUESTS,
        doc="Writes the elements of a dataset, strings, to a record file.",
    )


def _save_elements(ctx: KernelContext, attrs: Attrs) -> Callable[..., None]:
    def kernel(dataset: Any, path: Any, *captured: Any) -> None:
        shard = callable_of(ctx, attrs["shard_func"], captured) if attrs["use_shard_func"] else None
        run = _begin(ctx)
        writer = Writer(_text(path), packing(attrs["compression"]), shard)
        try:
            saved(as_dataset(dataset, "SaveDataset"), writer, run)
        finally:
            run.end()

    return kernel


op(
    "SaveDataset",
    "input_dataset: variant, path: string, shard_func_other_args: Tshard_func_args",
    "",
    {
        "compression": "",
        "shard_func": func_attr(),
        "use_shard_func": True,
        "Tshard_func_args": list_attr("type"),
    },
    shape=nothing,
    stateful=_save_elements,
    grad=NOT_DIFFERENTIABLE,
    facts=_REQUESTS,
    doc="Writes the elements of a dataset to a folder.",
)


def _fill_table(ctx: KernelContext, attrs: Attrs) -> Callable[..., None]:
    def kernel(handle: Any, dataset: Any) -> None:
        table = resource_of(ctx.step, handle, Table)  # type: ignore[type-abstract]
        if not isinstance(table, HashTable):
            raise InvalidArgumentError(f"InitializeTableFromDataset fills a HashTableV2, got {table!r}")
        run = _begin(ctx)
        try:
            take = as_dataset(dataset, "InitializeTableFromDataset").iterator(run).next
            found = []
            while (element := take()) is not None:
                run.check()
                if len(element) != 2 or shape_of(element[0]) or shape_of(element[1]):
                    raise InvalidArgumentError("InitializeTableFromDataset takes pairs of a key and a value, scalars")
                found.append(element)
        finally:
            run.end()
        keys, values = ([e[i] for e in found] for i in (0, 1))
        table.initialize(stack(keys, table.key_dtype, ()), stack(values, table.value_dtype, ()))

    return kernel


op(
    "InitializeTableFromDataset",
    "table_handle: resource, dataset: variant",
    "",
    shape=nothing,
    stateful=_fill_table,
    grad=NOT_DIFFERENTIABLE,
    facts=_REQUESTS,
    doc="Fills a table with the keys and values of a dataset.",
)
op(
    "DummySeedGenerator",
    "",
    "handle: resource",
    shape=scalars,
    stateful=lambda ctx, attrs: lambda: Handle(ctx.op.device, "localhost", "SeedGenerator", "dummy"),
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="A handle for RandomDatasetV2 and the like, whose datasets have seeds of their own.",
)
