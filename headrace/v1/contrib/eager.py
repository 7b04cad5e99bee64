"""TensorFlow 1's `tf.contrib.eager`: older names of functions, tapes and variables outside of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1.contrib import equivalents
from headrace.v1.eager import GradientTape, enable_eager_execution
from headrace.v1.eager import function as defun
from headrace.v1.gradient_ops import custom_gradient
from headrace.v1.graph import executing_eagerly
from headrace.v1.grouping import py_function
from headrace.v1.variables import Variable

py_func = py_function

__all__ = [
    "GradientTape",
    "Variable",
    "custom_gradient",
    "defun",
    "enable_eager_execution",
    "executing_eagerly",
    "py_func",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
