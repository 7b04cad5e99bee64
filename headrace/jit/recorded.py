"""Calls of jitted functions as entries of recorders, so that a tape differentiates them.

The tape creates the operations of the trace again in a graph, and feeds the values that were recorded. Therefore a
recorded call also returns the outputs of the trace's operations with effects, such as random numbers: these are fed,
not computed again. An operation with effects inside a loop or conditional of the trace has no such output; then the
call keeps what its gradient needs (`jit.residuals`).
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes, nest
from headrace.api import recorder, scopes
from headrace.errors import FailedPreconditionError, UnimplementedError
from headrace.ir import walk
from headrace.ir.attr_values import Func
from headrace.ir.edit.copying import copied, copy_into
from headrace.ir.edit.editor import Editor
from headrace.ir.function import called_names, free_function_name, nested_operations
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.ir.order import effects
from headrace.jit.residuals import SavingFunction

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.jit.concrete import ConcreteFunction, Step


class RecordedFunction:
    """A trace whose calls are recorded.

    Args:
      concrete: the trace.

    Attributes:
      concrete: the trace.
    """

    def __init__(self, concrete: ConcreteFunction) -> None:
        self.concrete = concrete
        leaves = [t for t in nest.flatten(concrete.value) if isinstance(t, Tensor)]
        drawn = [
            t
            for op in concrete.graph.operations
            if op.opdef.is_effectful and not op.opdef.structured
            for t in op.outputs
            if t.dtype.base not in (dtypes.resource, dtypes.variant)
        ]
        self._outputs = [*leaves, *drawn]
        # graph -> the names there of the functions that the trace calls
        self._homes: weakref.WeakKeyDictionary[Graph, dict[str, str]] = weakref.WeakKeyDictionary()
        self._step: Step = concrete.step((concrete.value, drawn), effects=concrete.effects)
        operations = concrete.graph.operations
        inside = list(nested_operations(operations, calls=True))[len(operations) :]
        self._nested = [op for op in inside if not op.opdef.structured and any(effects(op).values())]
        read = {t for op in operations if op.opdef.structured for t in op.inputs}
        self._saving: SavingFunction | None = None
        self._why: Exception | None = None
        if self._nested:
            try:
                self._saving = SavingFunction(concrete)
            except (LookupError, UnimplementedError) as e:  # is raised where a gradient is computed
                self._why = e
        self._handles = [x for x, p in concrete.graph.captured.values() if p.dtype is dtypes.resource and p in read]

    def __call__(self, tensors: Sequence[Any]) -> Any:
        """Calls the function with eager tensors, and records the call."""
        for v in self.concrete.variables:
            recorder.accessed(v)
        if self._saving is not None:
            return self._saving(tensors, lambda: functools.partial(self._check_unchanged, self._read()))
        read = self._read()
        value, drawn = self._step([t._value for t in tensors])
        outputs = [t for t in nest.flatten(value) if isinstance(t, scopes.runtime().eager.tensor_type)]
        recorder.record(_CallEntry(self, (*tensors, *self.concrete.captured), (*outputs, *drawn), tuple(read)))
        return value

    def check(self, read: Sequence[Any]) -> None:
        """Raises an error if the call cannot be differentiated.

        Args:
          read: the values of the variables that loops and conditionals read, at the time of the call.

        Raises:
          FailedPreconditionError: such a variable was changed after the call.
          UnimplementedError: a loop or conditional has effects, and there is no gradient that keeps values of the call.
        """
        if self._why is not None:
            op = self._nested[0]
            raise UnimplementedError(
                f"the gradient of a tape through {self.concrete.graph.title}, where '{op.name}' ({op.type}, made at "
                f"{op.source}) has effects inside a loop or conditional, is not supported ({self._why}); compute it "
                "by hr.grad of the function"
            ) from self._why
        self._check_unchanged(read)

    def _read(self) -> list[Any]:
        """Returns the values of the variables that loops and conditionals read."""
        return [_contents(h) for h in self._handles]

    def _check_unchanged(self, read: Sequence[Any]) -> None:
        for handle, value in zip(self._handles, read, strict=True):
            if _contents(handle) is not value:
                raise FailedPreconditionError(
                    f"a variable that {self.concrete.graph.title} reads in a loop or conditional was changed after "
                    "the call, before the gradient of the tape; compute the gradient first"
                )

    def create(self, b: Builder, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Creates the operations of the trace in another graph; see `api.recorder.Entry`."""
        given = self.concrete.inputs
        moved = dict(zip(given, inputs, strict=True))
        stop = set(given)
        ops = walk.in_order(walk.reachable([t.op for t in self._outputs if t not in stop], stop))
        copies = copy_into(b.graph, ops, moved)
        if self.concrete.graph.functions:
            _rename(copies.values(), self._functions_in(b.graph))
        return [moved[t] for t in self._outputs]

    def _functions_in(self, graph: Graph) -> dict[str, str]:
        """Copies the called functions to the library of another graph; returns their names."""
        while graph.outer is not None:
            graph = graph.outer
        names = self._homes.get(graph)
        if names is None:
            functions = self.concrete.graph.functions
            names = self._homes[graph] = {}
            for name in functions:
                new = names[name] = free_function_name(graph, name)
                graph.functions[new] = copied(functions[name], graph, name=new, captures=False)
            for new in names.values():
                _rename(graph.functions[new].operations, names)
        return names


def _rename(operations: Iterable[Operation], names: Mapping[str, str]) -> None:
    """Changes the names of library functions in operations, those of nested graphs included."""

    def renamed(value: Any) -> Any:
        if isinstance(value, Func):
            return dataclasses.replace(value, name=names.get(value.name, value.name))
        return tuple(map(renamed, value)) if isinstance(value, tuple) else value

    for op in nested_operations(operations):
        if called_names(op):
            Editor(op.graph).set_attrs(op, {name: renamed(value) for name, value in op.attrs.items()})


def recorded(concrete: ConcreteFunction) -> RecordedFunction:
    """Returns the function whose calls are recorded, for a trace that keeps it."""
    found = concrete.kept.get(RecordedFunction)
    if found is None:
        found = concrete.kept[RecordedFunction] = RecordedFunction(concrete)
    return found


def _contents(handle: Any) -> Any:
    """Returns the array of a variable at this moment; None for another resource."""
    found = handle._value
    if found.kind != "Variable" or not found.value_dtype:
        return None
    return scopes.runtime().eager.ReadVariableOp(handle, dtype=dtypes.as_dtype(found.value_dtype))._value


class _CallEntry:
    """Call of a jitted function, as an entry of a recorder (`api.recorder.Entry`)."""

    __slots__ = ("_function", "_read", "inputs", "outputs")

    def __init__(
        self, function: RecordedFunction, inputs: tuple[Any, ...], outputs: tuple[Any, ...], read: tuple[Any, ...]
    ) -> None:
        self._function = function
        self._read = read
        self.inputs = inputs
        self.outputs = outputs

    @property
    def structure(self) -> Hashable:
        self._function.check(self._read)
        return self._function

    def create(self, b: Builder, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Creates the operations of the call; see `api.recorder.Entry`."""
        return self._function.create(b, inputs)
