"""Functions of a SavedModel that create and fill the tables of the saved object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes
from headrace.api.storage.lookup import DenseHashTable, LookupTable, StaticHashTable
from headrace.ir.builder import Builder
from headrace.ir.graph import FuncGraph
from headrace.saved_model.traces import written

if TYPE_CHECKING:
    from headrace.pb import FunctionDef


def functions_of(table: LookupTable, name: str) -> tuple[FunctionDef, FunctionDef]:
    """Returns the function that creates a table and the function that fills it.

    The second one has the present contents as constants. It takes the handle and returns a number, as in TensorFlow.

    Args:
      table: the table, outside of graphs.
      name: the prefix of the functions' names.
    """
    type, args, attrs = table.made_by
    is_static = isinstance(table, StaticHashTable)
    keys, values = contents_of(table)

    def create(graph: FuncGraph) -> None:
        b = Builder(graph)
        inputs = tuple(b.const(a.numpy(), a.dtype) for a in args)
        graph.set_results([b.make(type, inputs, {**attrs, "shared_name": name.strip("_")}, "table")], (), True)

    def initialize(graph: FuncGraph) -> None:
        b = Builder(graph)
        handle = graph.add_param(dtypes.resource, (), "table")
        contents = b.const(keys, table.key_dtype), b.const(values, table.value_dtype)
        # a mutable table need not be empty, and the import of a dense one takes buckets
        filled = b.make("LookupTableImportV2" if is_static else "LookupTableInsertV2", (handle, *contents), {})
        graph.set_results([b.const(1, dtypes.int32)], [filled], True)

    (first,), (second,) = written(f"{name}_create", create), written(f"{name}_initialize", initialize)
    return first, second


def contents_of(table: LookupTable) -> tuple[Any, Any]:
    """Returns the keys of a table and their values, arrays."""
    keys, values = (np.asarray(x.numpy()) for x in table.export())
    if isinstance(table, DenseHashTable):  # whose export contains empty and deleted buckets
        used = np.ones(len(keys), bool)
        for reserved in table.made_by[1]:
            same = keys == np.asarray(reserved.numpy())
            used &= ~same.reshape(len(keys), -1).all(axis=1)
        keys = keys[used].reshape(-1, *table.made_by[1][0].shape)
        values = values[used].reshape(-1, *table.default_value.shape)
    return keys, values
