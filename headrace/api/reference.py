"""TensorFlow 1's reference variables in imported graphs.

A headrace program creates resource variables only. A graph written by TensorFlow 1 contains operations (`VariableV2`)
whose output is the variable itself, a *reference*. An operation that takes the reference as a value reads it when it
runs.
"""

from __future__ import annotations

from typing import Any

from headrace import dtypes
from headrace.api.variable import Variable
from headrace.ir.graph import Tensor
from headrace.shapes import Shape

_TYPES = ("Variable", "VariableV2")


class ReferenceVariable(Variable):
    """A variable whose handle is a reference to its value. `import_meta_graph` makes them; see `Variable`.

    What changes it gives the reference. In an `hr.Graph` its changes keep their order, as those of others do; a read
    waits for none of them but by control dependencies, as in TensorFlow 1.

    Source: TensorFlow 1's `tf.Variable(..., use_resource=False)`.
    """

    @classmethod
    def _held(cls, handle: Tensor) -> tuple[dtypes.DType, Shape] | None:
        return (handle.dtype.base, handle.shape) if handle.dtype.is_ref and handle.op.type in _TYPES else None

    def value(self) -> Any:
        """Its value, as the graph it came with reads it: once in a step, at any time."""
        return self._element

    def as_tensor(self, b: Any) -> Any:
        """What stands for it in other operations; see `value`."""
        return self._element

    def read_value(self) -> Any:
        """A tensor with its value, read by an operation of its own, which can wait for others."""
        return self._builder().within("Read").Identity(self.handle)

    def sparse_read(self, indices: Any, name: str | None = None) -> Any:
        """The rows at `indices` of its value."""
        return self._builder(indices).make("Gather", (self.handle, indices), {}, name)

    def is_initialized(self, name: str | None = None) -> Any:
        """Whether it has a value: a bool scalar."""
        return self._builder().make("IsVariableInitialized", (self.handle,), {}, name)

    def assign(
        self, value: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Makes `value` its value; gives the reference, or the operation. See `Variable.assign`."""
        return self._changing("Assign", (value,), name, read_value)

    def count_up_to(self, limit: int) -> Any:
        """Adds one, and gives what it was before; an `OutOfRangeError` once it is `limit`."""
        return self._builder().make("CountUpTo", (self.handle,), {"limit": limit})

    def _update(self, type: str, delta: Any, name: str | None, read_value: bool) -> Any:
        return self._changing(type.removesuffix("VariableOp"), (delta,), name, read_value)

    def _scatter(self, what: str, indices: Any, updates: Any, name: str | None) -> Any:
        if updates is None:
            indices, updates = indices.indices, indices.values
        return self._changing(f"Scatter{what}", (indices, updates), name, True)

    def _changing(self, type: str, values: tuple[Any, ...], name: str | None, read_value: bool) -> Any:
        b = self._builder(*values)
        made = b.make(type, (self.handle, *values[:-1], b.tensor(values[-1], self.dtype)), {}, name)
        return made if read_value else made.op
