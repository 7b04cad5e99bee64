"""Arithmetic of quantisation levels, for the ops of this folder.

A quantised number of a dtype with `n` values represents one of `n` numbers that divide a range evenly. Source: the
conventions of TensorFlow's quantised kernels, in its single and double precision, including its roundings.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.shapes import show

F32 = np.float32
F64 = np.float64


def limits(t: DType) -> tuple[int, int]:
    """The least and the greatest quantised number."""
    info = np.iinfo(t.numpy)
    return int(info.min), int(info.max)


def away(x: Any) -> Any:
    """`x` rounded, halves away from 0."""
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(x.dtype.type(1), x), x.dtype.type(0))


def scalar(x: Any, name: str) -> Any:
    """A limit of a range, which must be one number."""
    if x.size != 1:
        raise InvalidArgumentError(f"{name} must be a scalar, got shape {show(x.shape)}")
    return F32(x.reshape(()))


def _steps(t: DType) -> int:
    low, high = limits(t)
    return high - low + 1


def to_float(q: Any, t: DType, low: Any, high: Any) -> Any:
    """Values that the quantized numbers of `t` represent in a range, in single precision."""
    if low == high:
        return np.full(np.shape(q), low, F32)
    steps = _steps(t)
    one = (F64(high) - F64(low)) * (steps / (steps - 1.0)) / steps
    first = away(F64(low) / one) * one
    return (first + (np.asarray(q, F64) - limits(t)[0]) * one).astype(F32)


def from_float(x: Any, t: DType, low: Any, high: Any) -> Any:
    """Quantized numbers of `t` that represent `x`, as integers of double precision.

    They may lie outside of the limits of `t`.
    """
    if low == high:
        return np.zeros(np.shape(x))
    steps = _steps(t)
    scale = steps / ((F64(high) - F64(low)) * (steps / (steps - 1.0)))
    return away(np.asarray(x, F64) * scale) - away(F64(low) * scale) + limits(t)[0]


def clipped(q: Any, t: DType) -> Any:
    """Whole numbers, as far as `t` has them, as its arrays."""
    return np.clip(np.nan_to_num(q, nan=limits(t)[0]), *limits(t)).astype(t.numpy)


def one_level(t: DType, low: Any, high: Any) -> Any:
    """Distance of two neighbouring levels."""
    least, greatest = limits(t)
    return (F32(high) - F32(low)) / F32(greatest - least)


def range_of_products(a: Any, b: Any, t: DType) -> tuple[Any, Any]:
    """Range of `t` whose level is the product of the levels `a` and `b`."""
    least, greatest = limits(t)
    return F32(a * b * F32(least)), F32(a * b * F32(greatest))
