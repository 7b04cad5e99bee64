"""Slot variables of optimizers, with TensorFlow 1's names: "w/Adam", "w/Adam_1"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import shapes
from headrace.api.partitioned import SLICE, mark_part
from headrace.v1.variable_scopes import variable_scope
from headrace.v1.variable_store import get_variable
from headrace.v1.variables import ReferenceVariable, Variable


def make_slot(primary: Any, initial: Callable[[], Any], name: str) -> Any:
    """A variable of the shape and dtype of `primary`, not trained.

    Args:
      primary: a variable or a tensor.
      initial: gives the first value.
      name: that of `primary`, a slash, and what it is. Like any default name of a variable scope it is made unique, and
        put below the current scope.

    Source: TensorFlow's `slot_creator`.
    """

    def first(shape: Any = None, dtype: Any = None) -> Any:
        return initial()

    is_full = shapes.is_full(primary.shape)
    with variable_scope(None, name) as scope:
        scope.set_partitioner(None)  # the slot has the shape of its part
        made = get_variable(
            "",
            shape=primary.shape if is_full else None,
            dtype=primary.dtype.base,
            initializer=first,
            trainable=False,
            validate_shape=is_full,
            use_resource=not isinstance(primary, ReferenceVariable) if isinstance(primary, Variable) else None,
        )
    info = getattr(primary, SLICE, None)
    if info is not None:
        # named as TensorFlow does, by what stands behind as many letters as the part's name has: so it finds the slot
        # in its checkpoints, and we find it in theirs
        kind = made.name.removesuffix(":0")[len(primary.op.name) + 1 :]
        mark_part(made, f"{info.full_name}/{kind}", info.full_shape, info.var_offset, info.var_shape)
    return made
