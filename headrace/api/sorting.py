"""Sorting along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, scopes, tensors
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor


def sort(values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """A tensor, sorted along an axis.

    Args:
      values: numbers, of rank 1 or more.
      axis: which one.
      direction: "ASCENDING" or "DESCENDING".
      name: name of the scope; "sort" if None.

    Raises:
      ValueError: there is no such direction or axis.

    Source: TensorFlow's `tf.sort`.

    Example:
      >>> import headrace as hr
      >>> hr.sort([3, 1, 2])
      <EagerTensor shape=[3] dtype=int32: array([1, 2, 3], dtype=int32)>
    """
    with scopes.name_scope(name, "sort", [values]):
        return _sorted(values, axis, direction, wants_indices=False)


def argsort(
    values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False, name: str | None = None
) -> Tensor:
    """The indices, int32, that sort a tensor along an axis.

    Args:
      values, axis, direction: see `sort`.
      stable: without effect: equal elements always stay in their order.
      name: name of the scope; "argsort" if None.

    Raises:
      ValueError: there is no such direction or axis.

    Source: TensorFlow's `tf.argsort`.

    Example:
      >>> import headrace as hr
      >>> hr.argsort([3, 1, 2])
      <EagerTensor shape=[3] dtype=int32: array([1, 2, 0], dtype=int32)>
    """
    with scopes.name_scope(name, "argsort", [values]):
        return _sorted(values, axis, direction, wants_indices=True)


def _sorted(values: Any, axis: Any, direction: str, wants_indices: bool) -> Any:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"'direction' must be 'ASCENDING' or 'DESCENDING', got {direction!r}")
    at = tensors.constant_value(axis) if hasattr(axis, "dtype") else axis
    if at is None:
        raise ValueError(f"'axis' must be a constant, got {axis!r}")
    at = int(at)
    b = scopes.builder(values)
    x = b.tensor(values, None, "values")
    if x.shape is not None and not -len(x.shape) <= at < len(x.shape):
        raise ShapeError(f"'axis' {at} is not an axis of {x!r}")
    if x.shape is None and at != -1:
        raise ShapeError(f"of a tensor of unknown rank only the last axis can be sorted, got {x!r} and the axis {at}")
    order = None
    if x.shape is not None and at % len(x.shape) != len(x.shape) - 1:
        order = list(range(len(x.shape)))
        order[at], order[-1] = order[-1], order[at]
    is_rising = direction == "ASCENDING"
    k = arrays.shape(x)[at]
    if is_rising:
        x = _mirrored(b, x)
    if order:
        x = arrays.transpose(x, order)
    found = b.make("TopKV2", (x, k), {})[1 if wants_indices else 0]
    if order:
        found = arrays.transpose(found, order)
    return _mirrored(b, found) if is_rising and not wants_indices else found


def _mirrored(b: Any, x: Any) -> Any:
    """`x` with its order turned round; integers without overflow. Its own inverse."""
    dtype: dtypes.DType = x.dtype.base
    if not dtype.is_integer:
        return b.make("Neg", (x,), {})
    if np.iinfo(dtype.numpy).min == 0:
        return b.make("Sub", (b.const(np.iinfo(dtype.numpy).max, dtype), x), {}, "sub")
    return b.make("Sub", (b.make("Neg", (x,), {}), 1), {}, "sub")
