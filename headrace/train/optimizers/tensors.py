"""The functions of numpy that optimizer formulas use, for tensors; and rows of tensors.

A formula (`ops.training.optimizers.RULES`) is written once. The kernels of the `Apply` ops call it with numpy and
arrays; the functional form of an optimizer calls it with `XP` and tensors, of a graph or eager.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from headrace import dtypes
from headrace.api import gathering, math, reductions, scopes
from headrace.dtypes import DType
from headrace.ir.indexed_slices import IndexedSlices

XP: Final = SimpleNamespace(
    abs=math.abs,
    cast=math.cast,
    exp=math.exp,
    maximum=math.maximum,
    minimum=math.minimum,
    pow=math.pow,
    sign=math.sign,
    sqrt=math.sqrt,
    square=math.square,
    sum=reductions.reduce_sum,
    where=gathering.where,
)


def is_number(x: Any) -> bool:
    """Whether `x` is a number of Python or numpy, and not a tensor or variable."""
    return isinstance(x, (int, float, np.generic)) or (isinstance(x, np.ndarray) and x.ndim == 0)


def number(x: Any, dtype: DType) -> Any:
    """Returns a number as a numpy scalar of a dtype.

    Arithmetic with a numpy scalar rounds as the kernels do.
    """
    return np.asarray(x).astype(dtype.numpy)[()]


def of_dtype(x: Any, dtype: DType) -> Any:
    """Returns a tensor, or the value of a variable, cast to a dtype."""
    t = scopes.builder(x).tensor(x)
    return t if t.dtype.base is dtype else math.cast(t, dtype)


def unique_rows(grad: Any) -> tuple[Any, Any]:
    """Returns the rows of an `IndexedSlices` and their indices; rows with equal indices are summed."""
    b = scopes.builder(grad.values, grad.indices)
    indices, position = b.Unique(grad.indices)
    count = b.StridedSlice(b.Shape(indices), [0], [1], [1], shrink_axis_mask=1)
    return b.UnsortedSegmentSum(grad.values, position, count), indices


def gather(x: Any, indices: Any) -> Any:
    """Returns the rows of `x` at `indices`."""
    return scopes.builder(x, indices).GatherV2(x, indices, 0)


def scatter(x: Any, indices: Any, rows: Any, type: str = "TensorScatterUpdate") -> Any:
    """Returns `x` with `rows` written at `indices`, by an op of type `type`."""
    b = scopes.builder(x, indices, rows)
    return b.make(type, (x, b.ExpandDims(indices, -1), rows), {})


def scatter_add(x: Any, indices: Any, rows: Any) -> Any:
    """Returns `x` with `rows` added to its rows at `indices`."""
    return scatter(x, indices, rows, "TensorScatterAdd")


def is_sparse(grad: Any) -> bool:
    """Whether a gradient is an `IndexedSlices`."""
    return isinstance(grad, IndexedSlices)


def whole(grad: Any) -> Any:
    """Returns a gradient as a tensor; rows that an `IndexedSlices` does not contain are zero."""
    return grad.as_tensor(scopes.builder(grad.values)) if is_sparse(grad) else grad


FLOATS: Final = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64})
