"""Assignments to slices of variables: `v[1:3].assign(x)`.

The slice of a variable is an ordinary tensor, the result of a StridedSlice of a read. An assignment to it is a
ResourceStridedSliceAssign with the same bounds, or a StridedSliceAssign of a reference variable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

from headrace.api import scopes, tensors
from headrace.ir.graph import Tensor

_MASKS: Final = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_OPERATIONS: Final = {"assign_add": "AddV2", "assign_sub": "Sub"}


def assignment(t: Tensor, method: str) -> Callable[..., Any]:
    """Returns the method "assign", "assign_add" or "assign_sub" of a slice of a variable.

    The method takes a value that broadcasts to the shape of the slice, and a name. It returns the variable after the
    assignment. `assign_add` and `assign_sub`, which TensorFlow lacks, read the slice and assign the sum.

    Args:
      t: the slice.
      method: name of the method.

    Raises:
      AttributeError: the tensor is no slice of a variable.

    Source: the method `assign` of the result of TensorFlow's `tf.strided_slice`.
    """
    variable = _variable(t)
    if variable is None:
        raise AttributeError(f"'Tensor' object has no attribute {method!r}: only slices of variables have it")

    def call(value: Any, name: str | None = None) -> Any:
        graph: Any = contextlib.nullcontext() if not scopes.is_outside() else variable.graph
        with graph, scopes.name_scope(name, "strided_slice", [t, value]) as scope:
            value = tensors.convert_to_tensor(value, t.dtype.base)
            if method in _OPERATIONS:
                value = scopes.builder(t, value).make(_OPERATIONS[method], (t, value), {})
            _, *bounds = t.op.inputs
            masks = {mask: t.op.attrs[mask] for mask in _MASKS}
            b = scopes.builder(variable, value)
            if variable.handle.dtype.is_ref:
                return b.make("StridedSliceAssign", (variable.handle, *bounds, value), masks, scope)
            made = b.make("ResourceStridedSliceAssign", (variable.handle, *bounds, value), masks, scope)
            return variable.after(made)

    call.__name__ = method
    return call


def _variable(t: Tensor) -> Any:
    """Returns the variable that a tensor is a slice of, or None."""
    if t.op.type != "StridedSlice":
        return None
    read = t.op.inputs[0].op
    if read.type not in ("ReadVariableOp", "Identity"):  # by handle, by reference
        return None
    graph: Any = t.graph
    while graph.outer is not None:
        graph = graph.outer
    return next((v for v in graph.variables if v.handle is read.inputs[0]), None)
