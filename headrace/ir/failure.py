"""What a failing kernel raised, as the error that users get; the same for graphs and for eager ops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from headrace import shapes
from headrace.errors import (
    HeadraceError,
    HeadraceInternalError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
)


def translated(error: Exception, place: str, node: str, op: Any, values: Iterable[Any]) -> Exception:
    """`error`, or one of TensorFlow's class with `error` as its cause.

    Args:
      error: what the kernel raised: an error of headrace's own, or of numpy's.
      place: the operation, as text.
      node, op: what an `OpError` says failed.
      values: what the kernel was given.
    """
    out: Exception
    if isinstance(error, OpError):
        if error.node is None:
            error.node = node
        if error.op is None:
            error.op = op
        return error
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, MemoryError):
        out = ResourceExhaustedError(f"out of memory in {place}: {error or 'allocation failed'}", node, op)
    elif isinstance(error, (ValueError, IndexError, OverflowError)):
        text = str(error)
        if "could not be broadcast" in text:
            given = (shapes.show(v.shape) for v in values if isinstance(v, (np.ndarray, np.generic)))
            text = "Incompatible shapes: " + " vs. ".join(given)
        out = InvalidArgumentError(f"{text} in {place}", node, op)
    else:
        out = HeadraceInternalError(
            f"the kernel of {place} failed with {type(error).__name__}: {error}. Please report this as a bug."
        )
    out.__cause__ = error
    return out


def brief(value: Any) -> str:
    """A value in a few characters: dtype, shape, and the elements if there are few."""
    if isinstance(value, (np.ndarray, np.generic)):
        dtype = "string" if value.dtype == object else value.dtype.name
        text = f"{dtype}{shapes.show(value.shape)}"
        if value.size <= 4:
            text += f" = {value.tolist()!r}"[:80]
        return text
    return type(value).__name__
