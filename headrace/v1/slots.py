"""Variables that stand beside others, with the names that TensorFlow 1 gives them: "w/Adam", "w/Adam_1"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import shapes
from headrace.v1.variable_scopes import get_variable, variable_scope


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
    with variable_scope(None, name):
        return get_variable(
            "",
            shape=primary.shape if is_full else None,
            dtype=primary.dtype.base,
            initializer=first,
            trainable=False,
            validate_shape=is_full,
        )
