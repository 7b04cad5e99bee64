"""TensorFlow 1's reference variables.

A reference variable is an operation (`VariableV2`) whose output is the variable itself, a *reference*. An operation
that takes the reference as a value reads it when it runs. Graphs written by TensorFlow 1 have them, and so do programs
of `headrace.v1` that disable resource variables. `hr.Variable` always creates a resource variable.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from headrace import dtypes
from headrace.api import scopes
from headrace.api.cond import cond
from headrace.api.initial_value import guarded
from headrace.api.variable import Variable, root_of
from headrace.ir.builder import Builder
from headrace.ir.edit.editor import Editor
from headrace.ir.graph import FuncGraph, Graph, Tensor
from headrace.shapes import Shape

_TYPES = ("Variable", "VariableV2")


class ReferenceVariable(Variable):
    """Variable whose handle is a reference to its value; see `Variable`.

    The result of a change is the reference. In an `hr.Graph` changes of the variable keep their order, like those of
    others. A read waits for changes only by control dependencies, as in TensorFlow 1. The dtype is a reference dtype
    (`float32_ref`).

    Source: TensorFlow 1's `tf.Variable(..., use_resource=False)`.
    """

    @classmethod
    def _held(cls, handle: Tensor) -> tuple[dtypes.DType, Shape] | None:
        return (handle.dtype, handle.shape) if handle.dtype.is_ref and handle.op.type in _TYPES else None

    @staticmethod
    def _initial_scope(initial_value: Any) -> str:
        return "/Initializer/" if callable(initial_value) else "/"

    def _make_operations(self, b: Builder, value: Tensor, container: str) -> None:
        attrs = {"dtype": value.dtype.base, "shape": self._shape, "container": container}
        self.handle = b.make("VariableV2", (), attrs, self._name + "/")
        self.dtype = self.handle.dtype
        self._first = guarded(value, b)
        near = dataclasses.replace(b, colocate=(), device=self.handle.device)
        assigned = near.make("Assign", (self.handle, self._first), {"validate_shape": self._validates}, "Assign")
        self._initializer = assigned.op
        self._element = near.make("Identity", (self.handle,), {}, "read")

    def _ref(self) -> Tensor:
        """Returns the reference."""
        handle: Tensor = self.handle
        return handle

    def value(self) -> Any:
        """Returns the value, which a step reads once, before the operations that take it."""
        return self.as_tensor(self._builder())

    def as_tensor(self, b: Any) -> Any:
        """Returns the tensor that represents the variable in other operations; see `value`.

        In a branch or a loop's body a trainable variable is the value before, through which gradients pass. Another
        one, and one that the body changes, is a new read, which sees the changes that were made before it.
        """
        if b.graph is self.graph or root_of(b.graph) is not self.graph:
            return self._element
        if self.trainable and self._known_reference(b.graph) is None:
            return self._element
        return b.make("Identity", (self.handle_in(b),), {}, None)

    def handle_in(self, b: Any) -> Tensor:
        """See `Variable.handle_in`.

        No graph captures a reference. A branch or a loop's body has an operation of its own for the variable, with the
        same name in the session.
        """
        handle: Tensor = self.handle
        graph = b.graph
        if graph is self.graph or root_of(graph) is not self.graph:
            return handle
        self._check_place(b)
        known = self._known_reference(graph)
        if known is not None:
            return known
        attrs = {**handle.op.attrs, "shared_name": handle.op.attrs["shared_name"] or handle.op.name}
        made = graph.copy_op(handle.op, (), (), graph.unique_name(handle.op.name), attrs).outputs[0]
        self._read_anew(graph, made)
        return made

    def _known_reference(self, graph: Graph) -> Tensor | None:
        """Returns the reference in the graph of a branch or body, if it has one."""
        handle = self.handle.op
        name = handle.attrs["shared_name"] or handle.name
        for op in graph.operations:
            if op.type == handle.type and op.attrs["shared_name"] == name and op.name.startswith(handle.name):
                return op.outputs[0]
        return None

    def _read_anew(self, graph: Graph, reference: Tensor) -> None:
        """Replaces the value before by a read, in a graph that changes the variable."""
        inside = graph.captures.get(self._element) if isinstance(graph, FuncGraph) else None
        if inside is not None:
            name = graph.unique_name(f"{self._name}/read")
            read = graph.add_op("Identity", name, [reference], attrs={"T": reference.dtype.base})
            Editor(graph).replace(inside, read.outputs[0])

    def initialized_value(self) -> Any:
        """See `Variable.initialized_value`.

        The branch has a read of its own, since the variable may have no value before.
        """
        with scopes.entered(self._unordered()):
            return cond(self.is_initialized(), self.read_value, lambda: self._first)

    def read_value(self) -> Any:
        """Returns a tensor with the value, read by a new operation that can wait."""
        b = self._builder()
        return b.make("Identity", (self.handle_in(b),), {}, "read")

    def sparse_read(self, indices: Any, name: str | None = None) -> Any:
        """Returns the rows of the value at `indices`."""
        b = self._builder(indices)
        return b.make("Gather", (self.handle_in(b), indices), {}, name)

    def is_initialized(self, name: str | None = None) -> Any:
        """Returns whether the variable has a value, as a bool scalar."""
        b = self._builder()
        return b.make("IsVariableInitialized", (self.handle_in(b),), {}, name)

    def assign(
        self, value: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Assigns `value`; returns the reference, or the operation. See `Variable.assign`."""
        return self._changing("Assign", (value,), name, read_value)

    def count_up_to(self, limit: int) -> Any:
        """Increments the variable and returns its old value.

        Raises (when it runs):
          OutOfRangeError: the value has reached `limit`.
        """
        b = self._builder()
        return b.make("CountUpTo", (self.handle_in(b),), {"limit": limit})

    def _update(self, type: str, delta: Any, name: str | None, read_value: bool) -> Any:
        return self._changing(type.removesuffix("VariableOp"), (delta,), name, read_value)

    def _scatter(self, what: str, indices: Any, updates: Any, name: str | None) -> Any:
        if updates is None:
            indices, updates = indices.indices, indices.values
        return self._changing(f"Scatter{what}", (indices, updates), name, True)

    def _changing(self, type: str, values: tuple[Any, ...], name: str | None, read_value: bool) -> Any:
        b = self._builder(*values)
        made = b.make(type, (self.handle_in(b), *values), {}, name)
        return made if read_value else made.op
