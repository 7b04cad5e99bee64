"""Namespace of the Python array API standard for eager tensors, which `__array_namespace__` returns.

The names and signatures are those of the standard, the functions are headrace's. The conformance is partial:

* Tensors of different dtypes are an error, as everywhere in headrace; the standard promotes them.
* Tensors are immutable, so that `x[i] = v` and `out=` do not exist.
* The default dtypes are float32 and int32; indices are int64.
* The extensions `linalg` and `fft` and some functions are absent: those that headrace has under no name.

Numpy's ufuncs use the namespace too: a ufunc with an eager tensor among its arguments calls the function of its name.

Source: https://data-apis.org/array-api/2023.12/
"""

from __future__ import annotations

import math as python_math
import types
from typing import Any, Final

import numpy as np

from headrace import dtypes
from headrace.api import arrays, gathering, linalg, math, reductions, scopes, sorting
from headrace.api.tensors import pair
from headrace.dtypes import as_dtype


def _asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
    b = scopes.runtime().eager
    if hasattr(obj, "dtype") and dtype is not None:
        return _astype(b.tensor(obj), dtype)
    return b.tensor(obj, None if dtype is None else as_dtype(dtype))


def _astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    return math.cast(x, as_dtype(dtype))


def _filled(value: Any) -> Any:
    def like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
        return _full(x.shape, value, dtype=x.dtype if dtype is None else dtype)

    def of_shape(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
        return _full(shape, float(value), dtype=dtype)

    return like, of_shape


def _full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    value = _asarray(fill_value, dtype=dtype) if dtype is None else _astype(_asarray(fill_value), dtype)
    return arrays.fill((shape,) if isinstance(shape, int) else tuple(shape), value)


def _arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Any:
    first, last = (0, start) if stop is None else (start, stop)
    return _asarray(np.arange(first, last, step).tolist(), dtype=_of(dtype, first, last, step))


def _linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Any:
    kind = dtypes.float32 if dtype is None else as_dtype(dtype)
    return _asarray(np.linspace(start, stop, num, endpoint=endpoint, dtype=kind.numpy))


def _eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Any:
    kind = dtypes.float32 if dtype is None else as_dtype(dtype)
    return _asarray(np.eye(n_rows, n_cols, k, kind.numpy))


def _of(dtype: Any, *numbers: Any) -> Any:
    """Returns `dtype`, or the default dtype of numbers."""
    if dtype is not None:
        return as_dtype(dtype)
    return dtypes.int32 if all(isinstance(n, int) for n in numbers) else dtypes.float32


def _reduction(name: str, has_dtype: bool = False) -> Any:
    def plain(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        return getattr(x, name)(axis=axis, keepdims=keepdims)

    def typed(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return getattr(x, name)(axis=axis, dtype=dtype, keepdims=keepdims)

    return typed if has_dtype else plain


def _spread(name: str) -> Any:
    def function(x: Any, /, *, axis: Any = None, correction: float = 0, keepdims: bool = False) -> Any:
        return getattr(x, name)(axis=axis, ddof=correction, keepdims=keepdims)

    return function


def _argument(name: str) -> Any:
    def function(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
        return getattr(x, name)(axis, keepdims=keepdims)

    return function


def _cumulative_sum(x: Any, /, *, axis: int = 0, dtype: Any = None, include_initial: bool = False) -> Any:
    x = x if dtype is None else _astype(x, dtype)
    out = reductions.cumsum(x, axis)
    return arrays.concat([arrays.zeros_like(out[:1]), out], 0) if include_initial and x.ndim == 1 else out


def _flip(x: Any, /, *, axis: Any = None) -> Any:
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return arrays.reverse(x, [a % x.ndim for a in axes])


def _concat(values: Any, /, *, axis: int | None = 0) -> Any:
    return arrays.concat([v.reshape(-1) for v in values] if axis is None else list(values), axis or 0)


def _matmul(x1: Any, x2: Any, /) -> Any:
    b = scopes.runtime().eager
    x1, x2 = pair(b, x1, x2)
    left = arrays.expand_dims(x1, 0) if len(x1.shape) == 1 else x1
    right = arrays.expand_dims(x2, 1) if len(x2.shape) == 1 else x2
    out = linalg.matmul(left, right)
    vectors = ([-2] if left is not x1 else []) + ([-1] if right is not x2 else [])
    return arrays.squeeze(out, vectors) if vectors else out


def _sorted(f: Any) -> Any:
    def function(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        made = f(x, axis, "DESCENDING" if descending else "ASCENDING")
        return made if f is sorting.sort else math.cast(made, dtypes.int64)

    return function


def _of_floats(f: Any, otherwise: Any) -> Any:
    """Returns `f` for tensors of floats, `otherwise` for others."""
    return lambda x, /: f(x) if x.dtype.is_floating or x.dtype.is_complex else otherwise(x)


def _all_of(value: bool) -> Any:
    return lambda x: _full(x.shape, value, dtype=dtypes.bool_)


_zeros_like, _zeros = _filled(0)
_ones_like, _ones = _filled(1)

# functions with the standard's name and meaning
_SAME: Final = """abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_or bitwise_xor conj cos cosh equal
exp expm1 greater greater_equal imag less less_equal log log1p logical_and logical_not logical_or logical_xor maximum
minimum multiply negative nextafter not_equal pow real sign sin sinh sqrt square subtract tan tanh"""

_DTYPES: Final = """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"""

NAMESPACE: Final = types.SimpleNamespace(
    __name__="headrace.array_api",
    **{name: getattr(math, name) for name in _SAME.split()},
    **{name: as_dtype(name) for name in _DTYPES.split()},
    e=python_math.e,
    inf=python_math.inf,
    nan=python_math.nan,
    newaxis=None,
    pi=python_math.pi,
    # elementwise functions
    bitwise_invert=math.invert,
    bitwise_left_shift=math.left_shift,
    bitwise_right_shift=math.right_shift,
    ceil=_of_floats(math.ceil, lambda x: x),
    clip=lambda x, /, min=None, max=None: x.clip(min, max),
    divide=math.truediv,
    floor=_of_floats(math.floor, lambda x: x),
    floor_divide=math.floordiv,
    isfinite=_of_floats(math.is_finite, _all_of(True)),
    isinf=_of_floats(math.is_inf, _all_of(False)),
    isnan=_of_floats(math.is_nan, _all_of(False)),
    positive=lambda x, /: x,
    reciprocal=math.reciprocal,
    remainder=math.floormod,
    round=lambda x, /: math.round(x),
    # creation
    arange=_arange,
    asarray=_asarray,
    astype=_astype,
    eye=_eye,
    full=_full,
    full_like=lambda x, /, fill_value, *, dtype=None, device=None: _full(x.shape, fill_value, dtype=dtype or x.dtype),
    linspace=_linspace,
    ones=_ones,
    ones_like=_ones_like,
    zeros=_zeros,
    zeros_like=_zeros_like,
    # shapes
    broadcast_to=lambda x, /, shape: arrays.broadcast_to(x, tuple(shape)),
    concat=_concat,
    expand_dims=lambda x, /, *, axis=0: arrays.expand_dims(x, axis),
    flip=_flip,
    permute_dims=lambda x, /, axes: arrays.transpose(x, tuple(axes)),
    reshape=lambda x, /, shape, *, copy=None: arrays.reshape(x, tuple(shape)),
    roll=lambda x, /, shift, *, axis=None: (
        arrays.reshape(arrays.roll(x.reshape(-1), shift, 0), x.shape) if axis is None else arrays.roll(x, shift, axis)
    ),
    squeeze=lambda x, /, axis: arrays.squeeze(x, axis),
    stack=lambda values, /, *, axis=0: arrays.stack(list(values), axis),
    tile=lambda x, repetitions, /: arrays.tile(x, tuple(repetitions)),
    # products
    matmul=_matmul,
    matrix_transpose=lambda x, /: x.mT,
    tensordot=lambda x1, x2, /, *, axes=2: linalg.tensordot(x1, x2, axes),
    vecdot=lambda x1, x2, /, *, axis=-1: (math.conj(x1) * x2).sum(axis=axis),
    # searching and sorting
    argmax=_argument("argmax"),
    argmin=_argument("argmin"),
    argsort=_sorted(sorting.argsort),
    sort=_sorted(sorting.sort),
    take=lambda x, indices, /, *, axis=0: gathering.gather(x, indices, axis=axis),
    where=lambda condition, x1, x2, /: gathering.where(condition, x1, x2),
    # statistics
    all=_reduction("all"),
    any=_reduction("any"),
    cumulative_sum=_cumulative_sum,
    max=_reduction("max"),
    mean=_reduction("mean"),
    min=_reduction("min"),
    prod=_reduction("prod", has_dtype=True),
    std=_spread("std"),
    sum=_reduction("sum", has_dtype=True),
    var=_spread("var"),
)
"""Functions and constants by the standard's names."""

# numpy's names of ufuncs that differ from the standard's
_UFUNCS: Final = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "conjugate": "conj",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
    "true_divide": "divide",
}


def of_ufunc(ufunc: np.ufunc) -> Any:
    """Returns the function that computes a ufunc of numpy on tensors, or None."""
    name = ufunc.__name__
    return getattr(NAMESPACE, _UFUNCS.get(name, name), None)
