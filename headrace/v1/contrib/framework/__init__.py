"""TensorFlow 1's `tf.contrib.framework`: scopes of arguments, and the variables of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1.array_ops import is_tensor
from headrace.v1.checkpoints import init_from_checkpoint, list_variables, load_checkpoint, load_variable
from headrace.v1.contrib import equivalents
from headrace.v1.contrib.framework import nest
from headrace.v1.contrib.framework.arg_scope import (
    add_arg_scope,
    arg_scope,
    arg_scope_func_key,
    arg_scoped_arguments,
    current_arg_scope,
    has_arg_scope,
)
from headrace.v1.contrib.framework.variables import (
    add_model_variable,
    assert_global_step,
    assert_or_get_global_step,
    assign_from_checkpoint,
    assign_from_checkpoint_fn,
    assign_from_values,
    assign_from_values_fn,
    create_global_step,
    filter_variables,
    get_global_step,
    get_local_variables,
    get_model_variables,
    get_or_create_global_step,
    get_trainable_variables,
    get_unique_variable,
    get_variable_full_name,
    get_variables,
    get_variables_by_name,
    get_variables_by_suffix,
    get_variables_to_restore,
    global_variable,
    local_variable,
    model_variable,
    variable,
)
from headrace.v1.math_ops import argsort, sort

# fmt: off
__all__ = [
    "add_arg_scope", "add_model_variable", "arg_scope", "arg_scope_func_key", "arg_scoped_arguments", "argsort",
    "assert_global_step", "assert_or_get_global_step", "assign_from_checkpoint", "assign_from_checkpoint_fn",
    "assign_from_values", "assign_from_values_fn", "create_global_step", "current_arg_scope", "filter_variables",
    "get_global_step", "get_local_variables", "get_model_variables", "get_or_create_global_step",
    "get_trainable_variables", "get_unique_variable", "get_variable_full_name", "get_variables",
    "get_variables_by_name", "get_variables_by_suffix", "get_variables_to_restore", "global_variable", "has_arg_scope",
    "init_from_checkpoint", "is_tensor", "list_variables", "load_checkpoint", "load_variable", "local_variable",
    "model_variable", "nest", "sort", "variable",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
