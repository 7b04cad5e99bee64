"""TensorFlow 1's `tf.saved_model.main_op`: initializers of loaded graphs."""

from __future__ import annotations

from typing import Any

from headrace.v1.grouping import group
from headrace.v1.lookup import tables_initializer
from headrace.v1.scoping import control_dependencies
from headrace.v1.variables import global_variables_initializer, local_variables_initializer


def main_op() -> Any:
    """Returns an operation that initializes all variables and tables of the default graph.

    As a `main_op` it runs after the variables are restored, and replaces their values: `tf.tables_initializer()` is the
    usual `main_op`.

    Source: TensorFlow's `tf.saved_model.main_op.main_op`.
    """
    return group(global_variables_initializer(), local_variables_initializer(), tables_initializer())


def main_op_with_restore(restore_op_name: Any) -> Any:
    """Returns an operation that initializes all variables and tables, and then restores.

    Args:
      restore_op_name: the operation that restores, or its name.

    Source: TensorFlow's `tf.saved_model.main_op_with_restore`.
    """
    with control_dependencies([main_op()]):
        return group(restore_op_name)


__all__ = ["main_op", "main_op_with_restore"]
