"""Saveable objects and their names: variables, slices of variables, tables, states of random ops.

A `Saveable` is an object with one or more tensors (`SaveSpec`), each with a name in the checkpoint. Its method
`restore` creates the operation that assigns the tensors read to the object. The names are TensorFlow's, so that
checkpoints can be exchanged. A variable has the name of its operation; a table has its name with "-keys" and "-values";
a slice has the name of the whole variable, with a text that describes the part ("4 2 0,2:0,2": the rows 0 and 1 of a
[4,2]).

Source: TensorFlow's `SaveableObject`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, Protocol

from headrace import dtypes, nest, shapes
from headrace.api import scopes
from headrace.api.partitioned import SLICE, PartitionedVariable
from headrace.api.storage.lookup import DenseHashTable, LookupTable, MutableHashTable, StaticHashTable
from headrace.api.storage.queues import QueueBase
from headrace.api.variable import Variable
from headrace.errors import GraphError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.records import record

RANDOM_NAMES: Final = "_random_states/names"
RANDOM_STATES: Final = "_random_states/states"


@record(frozen=True)
class SaveSpec:
    """Description of a tensor to save.

    Attributes:
      tensor: the tensor.
      slice_spec: the part of the whole tensor that it is, such as "4 2 0,2:0,2". "": it is the whole tensor.
      name: name of the tensor in the checkpoint.
      dtype: dtype of the tensor.
    """

    tensor: Any
    slice_spec: str
    name: str
    dtype: dtypes.DType


class Saveable(Protocol):
    """Object that can be saved and restored. TensorFlow 1's `SaveableObject`s conform.

    Attributes:
      name: name for messages and for the sort order.
      specs: descriptions of the object's tensors.
    """

    @property
    def name(self) -> str: ...

    @property
    def specs(self) -> Sequence[Any]: ...

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> Any:
        """Adds the operation that restores the object from tensors.

        Args:
          restored_tensors: the tensors that were read, one for each of `specs`.
          restored_shapes: shapes to which the tensors are reshaped first, or None.
        """


class OfVariable:
    """Saveable of a variable, which may be a slice of a partitioned variable."""

    def __init__(self, variable: Variable, name: str, slice_spec: str = "") -> None:
        self.variable, self.name = variable, name
        self.specs = [SaveSpec(variable.graph_element, slice_spec, name, variable.dtype)]

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> Any:
        """See `Saveable.restore`."""
        v, (value,) = self.variable, restored_tensors
        with scopes.device(v.device) if v.device else contextlib.nullcontext():
            b = scopes.builder()
            if restored_shapes is not None:
                value = b.Reshape(value, list(restored_shapes[0]))
            is_full = shapes.is_full(v.shape)
            if v.handle.dtype.is_ref:
                return b.make("Assign", (v.handle, value), {"validate_shape": is_full}).op
            value = b.Identity(value)
            return b.make("AssignVariableOp", (v.handle, value), {"dtype": v.dtype, "validate_shape": is_full})


class OfTable:
    """Saveable of the contents of a mutable table."""

    def __init__(self, table: LookupTable, name: str) -> None:
        self.table, self.name = table, name
        # outside of the saver's name scope, as in TensorFlow, and without automatic control edges
        b = dataclasses.replace(Builder(table.resource_handle.graph), is_ordered=False)
        with scopes.entered(b):
            keys, values = table.export()
        self.specs = [
            SaveSpec(keys, "", f"{name}-keys", table.key_dtype),
            SaveSpec(values, "", f"{name}-values", table.value_dtype),
        ]

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> Any:
        """See `Saveable.restore`."""
        inputs = (self.table.resource_handle, *restored_tensors)
        with scopes.name_scope(f"{self.table.name}_table_restore"):
            return scopes.builder().make("LookupTableImportV2", inputs, {})


class OfRandomOps:
    """Saveable of the states of the session's random ops."""

    name = "_random_states"

    @functools.cached_property
    def specs(self) -> list[SaveSpec]:
        """Descriptions of the tensors. The operation is created on first access."""
        names, states = scopes.graph_builder("saving the states of random ops").make("_RandomStates", (), {})
        return [
            SaveSpec(names, "", RANDOM_NAMES, dtypes.string),
            SaveSpec(states, "", RANDOM_STATES, dtypes.uint64),
        ]

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> Any:
        """See `Saveable.restore`."""
        return scopes.builder().make("_SetRandomStates", tuple(restored_tensors), {})


# *** conversion of `var_list` ***


def saveables_of(given: Any) -> list[Saveable]:
    """Returns the saveables of a `var_list`, sorted by name.

    Args:
      given: a list of variables and tables, or a mapping from names to them.

    Raises:
      TypeError: an element cannot be saved; the text names it.
      ValueError: an object occurs twice, or two objects have the same name.
    """
    named = dict(given) if isinstance(given, Mapping) else _by_names(given)
    out: list[Saveable] = []
    seen: dict[int, str] = {}
    for name, x in sorted(named.items()):
        if not isinstance(name, str):
            raise TypeError(f"the names in var_list must be text, got {name!r} ({type(name).__name__})")
        is_whole = isinstance(x, (list, tuple, PartitionedVariable))
        for one in x if is_whole else (x,):
            handle = _identity_of(one)
            if id(handle) in seen:
                raise ValueError(
                    f"The same saveable will be restored with two names: {seen[id(handle)]!r} and {name!r}; leave one "
                    "of them out"
                )
            seen[id(handle)] = name
            out.append(_saveable(one, name, is_whole))
    return out


def key_of(variable: Variable) -> str:
    """Returns the default name of a variable in a checkpoint."""
    info = getattr(variable, SLICE, None)
    if info is not None and info.full_name:
        return str(info.full_name)
    return variable.name.removesuffix(":0")


def _by_names(given: Iterable[Any]) -> dict[str, Any]:
    if not isinstance(given, (list, tuple, set, frozenset)):
        given = list(given) if isinstance(given, Iterable) and not hasattr(type(given), "as_tensor") else [given]
    out: dict[str, Any] = {}
    for x in given:
        is_slice = isinstance(x, Variable) and slice_spec(x) != ""
        name = key_of(x) if isinstance(x, Variable) else getattr(x, "name", None)
        if not isinstance(name, str):
            _refuse(x)
        elif is_slice and isinstance(out.get(name), list):
            out[name].append(x)
        elif name in out:
            raise ValueError(
                f"At least two variables have the same name: {name!r}. Give a mapping from names to variables, with "
                "a name of its own for each"
            )
        else:
            out[name] = [x] if is_slice else x
    return out


def _identity_of(x: Any) -> Any:
    """Returns an object that is the same for all wrappers of one variable or table."""
    if isinstance(x, Variable):
        return x.handle
    return x.resource_handle if isinstance(x, LookupTable) else x


def _saveable(x: Any, name: str, is_part: bool) -> Saveable:
    if isinstance(x, Variable):
        if x.graph is None:
            raise GraphError(
                f"{x!r} was made outside of graphs, and a Saver is for a graph: use hr.train.save(path, values)"
            )
        if x.op is not x.handle.op:
            raise TypeError(f"{x!r} is what an assignment gave; give the variable itself")
        spec = slice_spec(x)
        if is_part and not spec:
            raise TypeError(f"'{x.name}' is in a list of slices for '{name}', but it is a whole variable")
        return OfVariable(x, name, spec)
    if isinstance(x, (MutableHashTable, DenseHashTable)):
        return OfTable(x, name)
    if all(hasattr(x, what) for what in ("specs", "restore", "name")):
        made: Saveable = x
        return made
    _refuse(x)


def slice_spec(variable: Variable) -> str:
    """Returns the slice of the whole variable that a variable is, such as "4 2 0,2:0,2".

    A variable that is not a slice has "".

    Raises:
      GraphError: the variable's slice information is inconsistent.
    """
    info = getattr(variable, SLICE, None)
    if info is None or not info.full_shape:
        return ""
    if not len(info.full_shape) == len(info.var_offset) == len(info.var_shape):
        raise GraphError(f"the variable '{variable.name}' is said to be a slice, but not which: {info}")
    dims = " ".join(map(str, info.full_shape))
    parts = ":".join(f"{o},{n}" for o, n in zip(info.var_offset, info.var_shape, strict=True))
    return f"{dims} {parts}"


def _refuse(x: Any) -> NoReturn:
    name = getattr(x, "name", None)
    if isinstance(x, QueueBase):
        raise TypeError(
            f"the queue '{name}' cannot be saved: what is in a queue is on its way, and threads add to it while it "
            "would be written. Save what fills it again (a step or an epoch in a variable), and start its threads anew"
        )
    if isinstance(x, StaticHashTable):
        raise TypeError(f"the table '{name}' is not saved: it never changes, and its initializer fills it again")
    raise TypeError(
        f"var_list is a list of variables and tables, or a mapping from names to them; got {x!r} ({type(x).__name__})"
    )


def graph_of(given: Any) -> Graph | None:
    """Returns the graph of the first variable or table in a structure, or None."""
    for x in nest.flatten(given):
        graph = getattr(x, "graph", None)
        if not isinstance(graph, Graph):
            graph = getattr(getattr(x, "resource_handle", None), "graph", None)
        if isinstance(graph, Graph):
            return graph
    return None
