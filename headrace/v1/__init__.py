"""TensorFlow 1's API: `import headrace.v1 as tf`.

A program for TensorFlow 1 runs here if it uses what docs/v1.md lists. What is new against `headrace` itself: an implicit
default graph and default sessions, collections, `get_variable` and variable scopes, and TensorFlow 1's names of
arguments and of the results of conditionals and loops.
"""

from __future__ import annotations

import sys
from typing import Any

import headrace
import headrace.build.operators  # noqa: F401 - gives tensors their operators
from headrace import errors as errors
from headrace.build.importing import import_graph_def as _import_graph_def
from headrace.build.scopes import colocate_with as _colocate_with
from headrace.build.scopes import control_dependencies as _control_dependencies
from headrace.build.scopes import device as _device
from headrace.build.scopes import name_scope as _name_scope
from headrace.dtypes import (
    DType,
    as_dtype,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    resource,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
    variant,
)
from headrace.dtypes import bool_ as bool
from headrace.errors import OpError
from headrace.ir.graph import Operation, Tensor
from headrace.v1 import bitwise, debugging, initializers, linalg, math, nn, random, strings
