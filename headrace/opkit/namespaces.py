"""Functions of kernels that compute in any namespace of the array API standard.

A record with `xp=True` has a kernel `(xp, attrs) -> f(*arrays)`. On the CPU `xp` is numpy. On devices of other types it
is the namespace of their arrays, of which the kernel uses the functions of the standard (version 2024.12) and nothing
else: `array_api_strict`, with which the tests run all of these kernels, refuses everything outside of it.

Where numpy has a faster way, the factory chooses it by `xp is np`. Code generators call the factory with namespaces
that record formulas (`schedule.scalar_expressions`). These know numpy's ufuncs by all of their names (`np.asin` is
`np.arcsin`), so that a formula in the names of the standard suits both.

    def factory(xp, attrs):
        to_index = converter(xp, dtypes.int64)
        return lambda x, indices: xp.take(x, to_index(indices), axis=0)

Source: the Python array API standard, https://data-apis.org/array-api/2024.12.
"""

from __future__ import annotations

import math
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
    return getattr(xp, dtype.name) if is_standard(xp) else dtype.numpy


def is_standard(xp: Any) -> bool:
    """Whether arrays of a namespace are converted by its function `astype`.

    Those of numpy, which may be scalars, and symbols of namespaces that record formulas have a method.
    """
    return xp is not np and hasattr(xp, "astype")


def converter(xp: Any, dtype: DType) -> Callable[[Any], Any]:
    """Returns the function that converts arrays to a dtype.

    It may return an array of this dtype as it is.
    """
    to = dtype_in(xp, dtype)
    if is_standard(xp):
        return lambda x: xp.astype(x, to, copy=False)
    return lambda x: x.astype(to, copy=False)


def is_near(x: Any) -> bool:
    """Whether the host reads elements of an array without a wait, see `ArrayMemory`.

    Of other arrays, kernels read elements only if their results depend on it, and so omit checks.
    """
    return getattr(x, "is_cpu", True)  # PyTorch's tensors state it


def listed(x: Any) -> Any:
    """Returns integers or bools as nested lists of Python numbers; a scalar as one number."""
    try:
        return x.tolist()  # outside of the standard, but with one transfer from a device
    except AttributeError:
        return [listed(x[i, ...]) for i in range(x.shape[0])] if x.ndim else int(x)


def integers(x: Any) -> tuple[int, ...]:
    """Returns the elements of a scalar or vector of integers (axes, sizes) as Python numbers."""
    if isinstance(x, (np.ndarray, np.generic)):
        return tuple(x.ravel().tolist())
    return tuple(listed(x)) if x.ndim else (listed(x),)


def constant(xp: Any, value: Sequence[Any] | float, dtype: DType, like: Any = None) -> Any:
    """Returns an array of known numbers, on the device of the array `like`."""
    if xp is np:
        return np.asarray(value, dtype.numpy)
    return xp.asarray(value, dtype=dtype_in(xp, dtype), device=device_of(like))


def device_of(like: Any) -> Any:
    """Returns the device of an array; None, the default device, for numpy's and for None."""
    return None if like is None or isinstance(like, (np.ndarray, np.generic)) else like.device


def number(xp: Any, value: Any, dtype: DType) -> Any:
    """Returns a number for arithmetic with arrays of a dtype, rounded to it.

    It is a scalar of numpy for numpy and for namespaces that record formulas, else a number of Python, which is on no
    device.
    """
    rounded = dtype.numpy.type(value)
    if not is_standard(xp):
        return rounded
    if dtype.is_complex:
        return complex(rounded)
    return float(rounded) if dtype.is_floating else bool(rounded) if dtype.is_bool else int(rounded)


def real_and_imag(xp: Any, x: Any) -> tuple[Any, Any]:
    """Returns the parts of complex numbers."""
    return (xp.real(x), xp.imag(x)) if is_standard(xp) else (x.real, x.imag)


def complex_of(xp: Any, real: Any, imag: Any, dtype: DType) -> Any:
    """Returns complex numbers from their parts, which broadcast.

    `real + 1j * imag` would be wrong at infinities, NaN and negative zeros.
    """
    if xp is np:
        out = np.empty(np.broadcast_shapes(real.shape, imag.shape), dtype.numpy)
        out.real, out.imag = real, imag
        return out
    if not is_standard(xp):  # a namespace that records formulas
        return xp.complex_of(real, imag, dtype.numpy)
    widen = converter(xp, dtype)
    is_finite = xp.isfinite(imag)
    # The terms are 0.0 or -0.0 in the parts of others, so that they change no number there, even no -0.0. (PyTorch's
    # sums multiply complex numbers by 1 first, after which the sign of a zero may differ.)
    of_real = xp.conj(widen(real))
    of_imag = xp.conj(widen(xp.where(is_finite, -imag, 0.0))) * 1j
    strange = xp.full_like(of_imag, complex(-0.0, math.nan))
    strange = xp.where(imag < 0, complex(-0.0, -math.inf), strange)
    strange = xp.where(imag > 0, complex(-0.0, math.inf), strange)
    return xp.where(is_finite, of_real - of_imag, strange + of_real)
