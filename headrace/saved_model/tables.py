"""Functions of a SavedModel that create and fill the tables of the saved object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from headrace import dtypes
from headrace.api import scopes
from headrace.api.storage.lookup import LookupTable
from headrace.errors import GraphError
from headrace.ir.builder import Builder
from headrace.ir.graph import FuncGraph
from headrace.saved_model.objects import Resource
from headrace.saved_model.traces import written

if TYPE_CHECKING:
    from headrace.pb import FunctionDef

Table: TypeAlias = "LookupTable | Resource"  # a table of the program, or of a loaded model
TABLES: Final = (LookupTable, Resource)

_STATIC: Final = "HashTableV2"
_DENSE: Final = "MutableDenseHashTableV2"
_TYPES: Final = (_STATIC, _DENSE, "MutableHashTableV2", "MutableHashTableOfTensorsV2")


def functions_of(table: Table, name: str) -> tuple[FunctionDef, FunctionDef]:
    """Returns the function that creates a table and the function that fills it.

    The second one has the present contents as constants. It takes the handle and returns a number, as in TensorFlow.

    Args:
      table: the table, outside of graphs.
      name: the prefix of the functions' names.

    Raises:
      GraphError: a resource of a loaded model is no table.
    """
    type, args, attrs = table.made_by
    if type not in _TYPES:
        raise GraphError(
            f"{table!r} was made by {type or 'an unknown operation'}; of resources, tables alone are saved"
        )
    key_dtype, value_dtype = _dtypes_of(table)
    keys, values = contents_of(table)

    def create(graph: FuncGraph) -> None:
        b = Builder(graph)
        inputs = tuple(b.const(a.numpy(), a.dtype) for a in args)
        graph.set_results([b.make(type, inputs, {**attrs, "shared_name": name.strip("_")}, "table")], (), True)

    def initialize(graph: FuncGraph) -> None:
        b = Builder(graph)
        handle = graph.add_param(dtypes.resource, (), "table")
        contents = b.const(keys, key_dtype), b.const(values, value_dtype)
        # a mutable table need not be empty, and the import of a dense one takes buckets
        filled = b.make("LookupTableImportV2" if type == _STATIC else "LookupTableInsertV2", (handle, *contents), {})
        graph.set_results([b.const(1, dtypes.int32)], [filled], True)

    (first,), (second,) = written(f"{name}_create", create), written(f"{name}_initialize", initialize)
    return first, second


def contents_of(table: Table) -> tuple[Any, Any]:
    """Returns the keys of a table and their values, arrays."""
    type, args, attrs = table.made_by
    key_dtype, value_dtype = _dtypes_of(table)
    exported = {"Tkeys": key_dtype, "Tvalues": value_dtype}
    made = scopes.runtime().eager.make("LookupTableExportV2", (table.resource_handle,), exported)
    keys, values = (np.asarray(x.numpy()) for x in made)
    if type == _DENSE:  # whose export contains empty and deleted buckets
        used = np.ones(len(keys), bool)
        for reserved in args:
            same = keys == np.asarray(reserved.numpy())
            used &= ~same.reshape(len(keys), -1).all(axis=1)
        keys = keys[used].reshape(-1, *args[0].shape)
        values = values[used].reshape(-1, *attrs.get("value_shape", ()))
    return keys, values


def _dtypes_of(table: Table) -> tuple[Any, Any]:
    """Returns the dtypes of the keys and values of a table."""
    _, args, attrs = table.made_by
    return attrs["key_dtype"] if "key_dtype" in attrs else args[0].dtype, attrs["value_dtype"]
