"""Functions of kernels that compute in any namespace of the array API standard.

A record with `xp=True` has a kernel `(xp, attrs) -> f(*arrays)`. On the CPU `xp` is numpy. On devices of other types it
is the namespace of their arrays, of which the kernel uses the functions of the standard (version 2024.12) and nothing
else: `array_api_strict`, with which the tests run all of these kernels, refuses everything outside of it.

Where numpy has a faster way, the factory chooses it by `xp is np`. Code generators call the factory with namespaces that
record formulas (`schedule.scalar_expressions`). These know numpy's ufuncs by all of their names (`np.asin` is
`np.arcsin`), so that a formula in the names of the standard suits both.

    def factory(xp, attrs):
        to_index = converter(xp, dtypes.int64)
        return lambda x, indices: xp.take(x, to_index(indices), axis=0)

Source: the Python array API standard, https://data-apis.org/array-api/2024.12.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from headrace.dtypes import DType


def dtype_in(xp: Any, dtype: DType) -> Any:
    """Returns the dtype object of a namespace.

    Raises:
      AttributeError: the namespace has no such dtype.
    """
    return dtype.numpy if xp is np else getattr(xp, dtype.name)


def is_standard(xp: Any) -> bool:
    """Whether arrays of a namespace are converted by its function `astype`.

    Those of numpy, which may be scalars, and symbols of namespaces that record formulas have a method.
    """
    return xp is not np and hasattr(xp, "astype")


def converter(xp: Any, dtype: DType) -> Callable[[Any], Any]:
    """Returns the function that converts arrays to a dtype; it may return an array of this dtype as it is."""
    to = dtype_in(xp, dtype)
    if is_standard(xp):
        return lambda x: xp.astype(x, to, copy=False)
    return lambda x: x.astype(to, copy=False)


def integers(x: Any) -> tuple[int, ...]:
    """Returns the elements of a scalar or vector of integers, such as axes or sizes, as Python numbers."""
    if isinstance(x, (np.ndarray, np.generic)):
        return tuple(x.ravel().tolist())
    if not x.ndim:
        return (operator.index(x),)
    return tuple([int(x[i]) for i in range(x.shape[0])])


def constant(xp: Any, value: Sequence[Any] | float, dtype: DType, like: Any = None) -> Any:
    """Returns an array of numbers that the kernel knows, on the device of the array `like`."""
    if xp is np:
        return np.asarray(value, dtype.numpy)
    return xp.asarray(value, dtype=dtype_in(xp, dtype), device=None if like is None else like.device)
