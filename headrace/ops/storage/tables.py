"""Lookup tables, by handle or by reference to a name (TensorFlow 1).

Source: TensorFlow's HashTableV2, MutableHashTableV2, MutableHashTableOfTensorsV2, MutableDenseHashTableV2 and the
LookupTable ops; the same without V2; and Anonymous* tables, which are new at each firing.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, int_attr, op, shape_attr, type_attr
from headrace.opkit.arrays import check_size
from headrace.opkit.shape_rules import nothing, scalars, unknown
from headrace.resources.account import Account
from headrace.resources.dense_table import DenseTable
from headrace.resources.manager import DEFAULT_CONTAINER, handle_of, resource_of
from headrace.resources.names import name_ref, named
from headrace.resources.table import HashTable, MutableHashTable, Table
from headrace.resources.table_file import Vocabulary
from headrace.resources.values import shape_of
from headrace.resources.variable import Ref
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_EFFECT = Facts(effect="resource", writes=True)
_READS = Facts(effect="resource")

Find = Callable[["KernelContext", Any], Table]  # from a handle
Attrs = Mapping[str, Any]


def _by_handle(ctx: KernelContext, handle: Any) -> Table:
    return resource_of(ctx.step, handle, Table)  # type: ignore[type-abstract]


def _by_name(ctx: KernelContext, ref: Ref) -> Table:
    return named(ctx.step.session, ref, Table)  # type: ignore[type-abstract]


# *** making ***

_NUMBERS = frozenset({dtypes.int32, dtypes.float32, dtypes.float64})
_LONGER = _NUMBERS | {dtypes.int64}
_FIXED: Mapping[DType, frozenset[DType]] = {
    dtypes.string: _LONGER | {dtypes.string, dtypes.bool_},
    dtypes.int64: _LONGER | {dtypes.string},
    dtypes.int32: _NUMBERS | {dtypes.string},
}
_CHANGING = {**_FIXED, dtypes.string: _LONGER | {dtypes.bool_}, dtypes.int32: _NUMBERS}
_DENSE = {
    dtypes.string: _LONGER | {dtypes.bool_},
    dtypes.int64: _LONGER | {dtypes.bool_},
    dtypes.int32: _NUMBERS,
}


def _fixed(name: str, attrs: Attrs, account: Account | None) -> Table:
    return HashTable(name, attrs["key_dtype"], attrs["value_dtype"], account)


def _changing(name: str, attrs: Attrs, account: Account | None) -> Table:
    return MutableHashTable(name, attrs["key_dtype"], attrs["value_dtype"], (), account)


def _of_tensors(name: str, attrs: Attrs, account: Account | None) -> Table:
    shape = _value_shape(attrs)
    if len(shape) != 1:
        raise InvalidArgumentError(f"Default value must be a vector, got shape {shapes.show(shape)}")
    return MutableHashTable(name, attrs["key_dtype"], attrs["value_dtype"], shape, account)


def _dense(name: str, attrs: Attrs, account: Account | None, empty_key: Any, deleted_key: Any) -> Table:
    shape, buckets = _value_shape(attrs), attrs["initial_num_buckets"]
    check_size((max(buckets, 0), *shape), dtypes.int64)
    return DenseTable(
        name,
        attrs["key_dtype"],
        attrs["value_dtype"],
        shape,
        empty_key,
        deleted_key,
        buckets,
        attrs["max_load_factor"],
        account,
    )


def _value_shape(attrs: Attrs) -> tuple[int, ...]:
    shape = attrs["value_shape"]
    if shape is not None and not shapes.is_full(shape):
        raise InvalidArgumentError(f"Shape {shapes.show(shape)} is not fully defined")
    return tuple(shape or ())


def _check_pair(type: str, pairs: Mapping[DType, frozenset[DType]], attrs: Attrs) -> None:
    key, value = attrs["key_dtype"], attrs["value_dtype"]
    if value not in pairs.get(key, ()):
        known = "; ".join(f"{k.name} to {', '.join(sorted(v.name for v in vs))}" for k, vs in pairs.items())
        raise InvalidArgumentError(
            f"No OpKernel was registered to support Op '{type}' with keys of {key.name} and values of {value.name}; "
            f"there are tables from {known}"
        )


def _shared(ctx: KernelContext, attrs: Attrs, make: Callable[[str], Table]) -> Table:
    """The session's table of the op's name, after a check of its dtypes."""
    name = attrs["shared_name"] or ctx.node
    table: Table = ctx.step.session.lookup_or_create(attrs["container"], Table, name, lambda: make(name))
    wanted = attrs["key_dtype"], attrs["value_dtype"]
    if (table.key_dtype, table.value_dtype) != wanted:
        raise InvalidArgumentError(
            f"Conflicting key/value dtypes {wanted[0].name}->{wanted[1].name} with "
            f"{table.key_dtype.name}-{table.value_dtype.name} for table {name}"
        )
    return table


def _account(ctx: KernelContext, type: str, name: str) -> Account | None:
    """Account of the bytes of a session's table, or None without a memory limit."""
    return None if ctx.step.memory is None else Account(ctx.step.memory.memory, f"{type} '{name}'")


def _make(way: str, type: str, pairs: Mapping[DType, frozenset[DType]], kind: Callable[..., Table]) -> Any:
    """Kernel factory of an op that returns a table.

    `way` is "handle" or "name" for a table that the session shares, or "new" for one that belongs to the handle.
    """

    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., Any]:
        def kernel(*args: Any) -> Any:
            _check_pair(type, pairs, attrs)
            if way == "new":
                table = kind(ctx.node, attrs, None, *args)
                handle = handle_of(ctx.op, "", Table, table.name, table.value_dtype, table.value_shape)
                return dataclasses.replace(handle, owned=table)
            table = _shared(ctx, attrs, lambda name: kind(name, attrs, _account(ctx, type, name), *args))
            if way == "name":
                return name_ref(attrs["container"] or DEFAULT_CONTAINER, table.name)
            return handle_of(ctx.op, attrs["container"], Table, table.name, table.value_dtype, table.value_shape)

        return kernel

    return factory


def _make_shape(c: Inference) -> Sequence[Shape]:
    for s in c.shapes:  # the keys that a dense table does not use
        shapes.with_rank_at_most(s, 1)
    if all(s == () for s in c.shapes):  # scalar keys: a lookup's result then has the shape of the keys it is given
        c.set_handle(0, c.attrs["value_dtype"], c.attrs.get("value_shape", ()))
    return [()]


def _make_name_shape(c: Inference) -> Sequence[Shape]:
    return [(2,)]


_TYPES = {"key_dtype": type_attr(), "value_dtype": type_attr()}
_NAMED = {"container": "", "shared_name": "", "use_node_name_sharing": False}
_SHAPED = {"value_shape": shape_attr(())}
_BUCKETS = {**_SHAPED, "initial_num_buckets": 131072, "max_load_factor": 0.8}
_PAIRS = "Tables of variants and of resources are refused."
for _type, _ins, _more, _pairs, _kind, _doc, _differs in (
    ("HashTable", "", {}, _FIXED, _fixed, "table that is filled once", "The order of an export is that of filling."),
    ("MutableHashTable", "", {}, _CHANGING, _changing, "table that changes", _PAIRS),
    ("MutableHashTableOfTensors", "", _SHAPED, _CHANGING, _of_tensors, "table of vectors that changes", ""),
    (
        "MutableDenseHashTable",
        "empty_key: key_dtype, deleted_key: key_dtype",
        _BUCKETS,
        _DENSE,
        _dense,
        "table that changes, in an array of buckets",
        _PAIRS,
    ),
):
    op(
        f"{_type}V2",
        _ins,
        "table_handle: resource",
        {**_NAMED, **_TYPES, **_more},
        shape=_make_shape,
        stateful=_make("handle", f"{_type}V2", _pairs, _kind),
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc=f"A handle to the session's {_doc}, of this name.",
        differs=_differs,
    )
    op(
        f"Anonymous{_type}",
        _ins,
        "table_handle: resource",
        {**_TYPES, **_more},
        shape=_make_shape,
        stateful=_make("new", f"Anonymous{_type}", _pairs, _kind),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc=f"A handle to a new {_doc}, which lives as long as the handle.",
        differs=_differs,
    )
    if _ins:
        continue  # MutableDenseHashTable: below
    op(
        _type,
        "",
        "table_handle: Ref(string)",
        {**_NAMED, **_TYPES, **_more},
        shape=_make_name_shape,
        stateful=_make("name", _type, _pairs, _kind),
        grad=NOT_DIFFERENTIABLE,
        facts=_READS,
        doc=f"The name of the session's {_doc}.",
        differs=_differs,
    )


def _no_dense_table(ctx: KernelContext, attrs: Attrs) -> Callable[[Any], Ref]:
    def kernel(empty_key: Any) -> Ref:
        raise InvalidArgumentError(
            "Unknown input name: deleted_key. MutableDenseHashTable has none and cannot run, in TensorFlow neither; "
            "MutableDenseHashTableV2 can"
        )

    return kernel


op(
    "MutableDenseHashTable",
    "empty_key: key_dtype",
    "table_handle: Ref(string)",
    {**_NAMED, **_TYPES, **_BUCKETS},
    shape=_make_name_shape,
    stateful=_no_dense_table,
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="Fails: this version of the op does not say what a deleted key is.",
)


# *** using ***


def _check_types(table: Table, attrs: Attrs, key: str, value: str | None) -> None:
    """Refuses what the attributes `key` and `value` say, if the table has other dtypes."""
    wanted = [table.key_dtype] + ([] if value is None else [table.value_dtype])
    have = [attrs[a] for a in (key, value) if a is not None]
    if have != wanted:
        raise InvalidArgumentError(
            f"Signature mismatch, have: {', '.join(d.name for d in have)} expected: "
            f"{', '.join(d.name for d in wanted)}, the dtypes of keys and values of table {table.name}"
        )


def _finding(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., Any]:
        def kernel(handle: Any, keys: Any, default: Any) -> Any:
            table = find(ctx, handle)
            _check_types(table, attrs, "Tin", "Tout")
            table.check_find(keys, default)
            return table.find(keys, default)

        return kernel

    return factory


def _writing(method: str, key: str = "Tin", value: str = "Tout") -> Callable[[Find], Any]:
    """The factory of what calls `table.method(keys, values)`, checked by `table.check_method`."""

    def of(find: Find) -> Any:
        def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., None]:
            def kernel(handle: Any, keys: Any, values: Any) -> None:
                table = find(ctx, handle)
                _check_types(table, attrs, key, value)
                getattr(table, f"check_{method}")(keys, values)
                getattr(table, method)(keys, values)

            return kernel

        return factory

    return of


def _removing(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., None]:
        def kernel(handle: Any, keys: Any) -> None:
            table = find(ctx, handle)
            _check_types(table, attrs, "Tin", None)
            table.check_remove(keys)
            table.remove(keys)

        return kernel

    return factory


def _exporting(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., tuple[Any, Any]]:
        def kernel(handle: Any) -> tuple[Any, Any]:
            table = find(ctx, handle)
            _check_types(table, attrs, "Tkeys", "Tvalues")
            return table.export()

        return kernel

    return factory


def _sizing(find: Find) -> Any:
    return lambda ctx, attrs: lambda handle: np.int64(find(ctx, handle).size())


def _initializable(table: Table) -> HashTable:
    if not isinstance(table, HashTable):
        raise InvalidArgumentError(f"Table {table.name} is not initializable: it is a {type(table).__name__}")
    return table


def _initializing(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., None]:
        def kernel(handle: Any, keys: Any, values: Any) -> None:
            table = _initializable(find(ctx, handle))
            _check_types(table, attrs, "Tkey", "Tval")
            for what, x in (("Keys", keys), ("Values", values)):
                if len(shape_of(x)) != 1:
                    raise InvalidArgumentError(
                        f"{what} must be a vector, but received shape {shapes.show(shape_of(x))}"
                    )
            if len(keys) != len(values):
                raise InvalidArgumentError(f"Keys and values must have the same size {len(keys)} vs. {len(values)}")
            table.initialize(keys, values)

        return kernel

    return factory


def _reading(find: Find) -> Any:
    def factory(ctx: KernelContext, attrs: Attrs) -> Callable[..., None]:
        def kernel(handle: Any, filename: Any) -> None:
            table = _initializable(find(ctx, handle))
            if shape_of(filename):
                raise InvalidArgumentError(
                    f"filename should be a single string, but got {shapes.show(shape_of(filename))}"
                )
            vocabulary = Vocabulary(
                os.fsdecode(filename[()]),
                attrs["key_index"],
                attrs["value_index"],
                attrs["vocab_size"] if attrs["vocab_size"] >= 0 else None,
                attrs["delimiter"],
                attrs["offset"],
            )
            if not table.is_initialized:  # the content of a second file is ignored
                table.initialize(*vocabulary.read(table.key_dtype, table.value_dtype))

        return kernel

    return factory


def _find_shape(c: Inference) -> Sequence[Shape]:
    known = c.handle(0)
    if known is None or known[0] != c.attrs["Tout"]:  # another dtype is refused when it runs
        return [None]
    return [shapes.concatenate(c.shapes[1], known[1])]


def _remove_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank_at_least(c.shapes[1], 1)
    return []


def _import_shape(c: Inference) -> Sequence[Shape]:
    keys, values = c.shapes[1:]
    if keys and values:
        shapes.merge_dim(keys[0], values[0])
    return []


def _initialize_shape(c: Inference) -> Sequence[Shape]:
    shapes.merge(shapes.with_rank(c.shapes[1], 1), c.shapes[2])
    return []


def _filename_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    return []


_KEYED = {"Tin": type_attr(), "Tout": type_attr()}
_FILE = {
    "key_index": int_attr(minimum=-2),
    "value_index": int_attr(minimum=-2),
    "vocab_size": int_attr(-1, minimum=-1),
    "delimiter": "\t",
    "offset": 0,
}
_KEY_VALUES = ", keys: Tin, values: Tout"
for _type, _ins, _outs, _attrs, _shape, _factory, _facts, _doc in (
    (
        "LookupTableFind",
        ", keys: Tin, default_value: Tout",
        "values: Tout",
        _KEYED,
        _find_shape,
        _finding,
        _READS,
        "The values of `keys`, and `default_value` for those that the table does not have.",
    ),
    (
        "LookupTableInsert",
        _KEY_VALUES,
        "",
        _KEYED,
        nothing,
        _writing("insert"),
        _EFFECT,
        "Sets the values of keys, there already or not.",
    ),
    (
        "LookupTableImport",
        _KEY_VALUES,
        "",
        _KEYED,
        _import_shape,
        _writing("restore"),
        _EFFECT,
        "Makes these keys and values all that the table has.",
    ),
    (
        "LookupTableRemove",
        ", keys: Tin",
        "",
        {"Tin": type_attr()},
        _remove_shape,
        _removing,
        _EFFECT,
        "Takes keys out.",
    ),
    (
        "LookupTableExport",
        "",
        "keys: Tkeys, values: Tvalues",
        {"Tkeys": type_attr(), "Tvalues": type_attr()},
        unknown,
        _exporting,
        _READS,
        "All keys of the table, and their values.",
    ),
    ("LookupTableSize", "", "size: int64", {}, scalars, _sizing, _READS, "How many keys the table has."),
    (
        "InitializeTable",
        ", keys: Tkey, values: Tval",
        "",
        {"Tkey": type_attr(), "Tval": type_attr()},
        _initialize_shape,
        _initializing,
        _EFFECT,
        "Fills a table.",
    ),
    (
        "InitializeTableFromTextFile",
        ", filename: string",
        "",
        _FILE,
        _filename_shape,
        _reading,
        _EFFECT,
        "Fills a table with the lines of a file.",
    ),
):
    for _suffix, _handle, _way in (
        ("V2", "table_handle: resource", _by_handle),
        ("", "table_handle: Ref(string)", _by_name),
    ):
        if _type == "LookupTableRemove" and not _suffix:
            continue  # there is only a V2
        op(
            f"{_type}{_suffix}",
            _handle + _ins,
            _outs,
            _attrs,
            shape=_shape,
            stateful=_factory(_way),
            grad=NOT_DIFFERENTIABLE,
            facts=_facts,
            doc=_doc,
        )
