"""Values of tensors, as the objects of this package store them.

A tensor is a numpy array or, at rank 0, also a numpy scalar. Strings, resources and variants have no numpy element
type: a resource or variant of rank 0 is the bare object (a `Handle`, a `TensorList`), and strings and tensors of higher
rank are `object` arrays. The functions of this module handle these cases.

A value is immutable from the moment it is passed on, so storing one never copies, and slices are views.

On devices with arrays of their own a value is such an array. `Arrays` is what the objects of this package need of them;
this module has it for numpy.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from headrace import dtypes, shapes
from headrace.device_arrays import DeviceArray, Elements
from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dtypes import DType

Value: TypeAlias = Any  # np.ndarray, np.generic, or a bare object at rank 0


class Arrays(Protocol):
    """Functions that make arrays; see those of this module."""

    def zeros(self, dtype: DType, shape: tuple[int, ...]) -> Value:
        """Zeros."""

    def stack(self, values: Sequence[Value], dtype: DType, shape: tuple[int, ...]) -> Value:
        """Values, each of `shape`, as rows of one new array."""

    def concat(self, values: Sequence[Value], dtype: DType, shape: tuple[int, ...]) -> Value:
        """Joins values, each of shape `[any, *shape]`, along the first dimension."""

    def rows(self, array: Value, dtype: DType) -> list[Value]:
        """Elements along the first dimension."""


def shape_of(value: Value) -> tuple[int, ...]:
    """The shape of a value; a bare object is a scalar."""
    shape: tuple[int, ...] = getattr(value, "shape", ())
    return shape


def numpy_dtype_of(value: Value) -> np.dtype:
    """The numpy element type of a value; `object` for a bare object."""
    return getattr(value, "dtype", _OBJECT)


class ArraysOf:
    """`Arrays` of a namespace of the Python array API standard; handles and strings are numpy's."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    def zeros(self, dtype: DType, shape: tuple[int, ...]) -> Value:
        if dtype in dtypes.OBJECT:
            return zeros(dtype, shape)
        return self._xp.zeros(shape, dtype=getattr(self._xp, dtype.name))

    def stack(self, values: Sequence[Value], dtype: DType, shape: tuple[int, ...]) -> Value:
        if dtype in dtypes.OBJECT:
            return stack(values, dtype, shape)
        return self._xp.stack(self._on_one_device(values)) if values else self.zeros(dtype, (0, *shape))

    def concat(self, values: Sequence[Value], dtype: DType, shape: tuple[int, ...]) -> Value:
        if dtype in dtypes.OBJECT:
            return concat(values, dtype, shape)
        return self._xp.concat(self._on_one_device(values)) if values else self.zeros(dtype, (0, *shape))

    def _on_one_device(self, values: Sequence[Value]) -> Sequence[Value]:
        """Values, of which zeros on the default device are moved to the others."""
        if len({v.device for v in values}) == 1:
            return values
        default = self._xp.empty(()).device
        to = next(v.device for v in values if v.device != default)
        return [self._xp.asarray(v, device=to) for v in values]

    def rows(self, array: Value, dtype: DType) -> list[Value]:
        if dtype in dtypes.OBJECT:
            return rows(array, dtype)
        return list(self._xp.unstack(array))


class ArraysIn:
    """`Arrays` of values in the memory of a device; handles and strings are numpy's.

    Args:
      elements: Applies functions of arrays to the values.
    """

    def __init__(self, elements: Elements) -> None:
        self._apply = elements.apply

    def zeros(self, dtype: DType, shape: tuple[int, ...]) -> Value:
        if dtype in dtypes.OBJECT:
            return zeros(dtype, shape)
        return self._apply(lambda xp: ArraysOf(xp).zeros(dtype, shape))

    def stack(self, values: Sequence[Value], dtype: DType, shape: tuple[int, ...]) -> Value:
        if dtype in dtypes.OBJECT:
            return stack(values, dtype, shape)
        return self._apply(lambda xp, *arrays: ArraysOf(xp).stack(arrays, dtype, shape), *values)

    def concat(self, values: Sequence[Value], dtype: DType, shape: tuple[int, ...]) -> Value:
        if dtype in dtypes.OBJECT:
            return concat(values, dtype, shape)
        return self._apply(lambda xp, *arrays: ArraysOf(xp).concat(arrays, dtype, shape), *values)

    def rows(self, array: Value, dtype: DType) -> list[Value]:
        if dtype in dtypes.OBJECT:
            return rows(array, dtype)
        return list(self._apply(lambda xp, x: ArraysOf(xp).rows(x, dtype), array))


def arrays_of(xp: Any) -> Arrays:
    """The functions that make arrays of a namespace, or elements in a memory."""
    if xp is np:
        return sys.modules[__name__]
    return ArraysIn(xp) if type(xp) is Elements else ArraysOf(xp)


def is_foreign(value: Value) -> bool:
    """Whether a value has a dtype object of another namespace than numpy."""
    return hasattr(value, "dtype") and not isinstance(value, (np.ndarray, np.generic, DeviceArray))


def zeros(dtype: DType, shape: tuple[int, ...]) -> Value:
    """Zeros, or empty strings, or None for elements of resources and variants."""
    if dtype is dtypes.string:
        return np.full(shape, b"", dtype=object)
    if dtype.numpy == _OBJECT:
        return np.full(shape, None, dtype=object) if shape else None
    return np.zeros(shape, dtype.numpy)


def stack(values: Sequence[Value], dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Values, each of `shape`, as rows of one new array."""
    if dtype.numpy == _OBJECT:
        out = np.empty((len(values), *shape), dtype=object)
        for i, v in enumerate(values):
            out[i] = v[()] if isinstance(v, np.ndarray) else v
        return out
    if not shape:
        return np.array(values, dtype.numpy)
    if not values:
        return np.zeros((0, *shape), dtype.numpy)
    # one loop in C; np.stack makes a Python call for each value
    return np.concatenate(values).reshape(len(values), *shape)


def concat(values: Sequence[np.ndarray], dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Joins values, each of shape `[any, *shape]`, along the first dimension."""
    values = [v for v in values if v.shape[0]]
    if not values:
        return np.zeros((0, *shape), dtype.numpy)
    return np.concatenate(values)


def rows(array: np.ndarray, dtype: DType) -> list[Value]:
    """Elements along the first dimension, as views (as scalars if the rank is 1)."""
    if dtype is dtypes.string and array.ndim == 1:
        return [array[i, ...] for i in range(len(array))]
    return list(array)


def int_of(value: Value, what: str) -> int:
    """The integer in `value`, a scalar.

    Raises:
      InvalidArgumentError: The value is not a scalar; the text names it `what`.
    """
    if shape_of(value):
        raise InvalidArgumentError(f"{what} expected to be a scalar but got shape: {shapes.show(shape_of(value))}")
    return int(value)


def nbytes_of(value: Value) -> int:
    """Bytes of memory that a value holds."""
    if isinstance(value, np.ndarray):
        if 0 not in value.strides or not value.size:
            return int(value.nbytes)
        return int(value.itemsize * math.prod(d for d, step in zip(value.shape, value.strides, strict=True) if step))
    return int(getattr(value, "nbytes", 0))


_OBJECT = np.dtype(object)
