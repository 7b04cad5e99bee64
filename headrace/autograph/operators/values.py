"""Kinds of values: symbolic tensors, values that can become tensors, weak numbers."""

from __future__ import annotations

import types
from typing import Any, Final

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import scopes
from headrace.dtypes import DType
from headrace.errors import AutographError
from headrace.ir.edit.editor import Editor
from headrace.ir.graph import Tensor
from headrace.ir.tensor_type import Tensor as AnyTensor
from headrace.ir.weak_numbers import WeakNumbers, is_weak

_NUMBERS: Final = (bool, int, float, complex)
_KINDS: Final = {bool: 0, int: 1, float: 2, complex: 3}
_DTYPES: Final = (dtypes.bool_, dtypes.int32, dtypes.float64, dtypes.complex128)


def is_symbolic(x: Any) -> bool:
    """Whether a value is known only when the graph runs."""
    return isinstance(x, Tensor)


def is_number(x: Any) -> bool:
    """Whether `x` is a number of Python, whose dtype is weak."""
    return x.__class__ in _KINDS


def is_tensor_like(x: Any) -> bool:
    """Whether `x` is a tensor, a number or an array."""
    return isinstance(x, Tensor) or x.__class__ in _KINDS or isinstance(x, (np.ndarray, np.generic)) or is_value(x)


def is_same_function(first: Any, second: Any) -> bool:
    """Whether two objects are one local function, defined twice with the same variables."""
    if not isinstance(first, types.FunctionType) or not isinstance(second, types.FunctionType):
        return False
    return (first.__code__, first.__closure__, first.__defaults__, first.__kwdefaults__) == (
        second.__code__,
        second.__closure__,
        second.__defaults__,
        second.__kwdefaults__,
    )


def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor, symbolic or with a value."""
    return isinstance(x, AnyTensor)


def is_value(x: Any) -> bool:
    """Whether `x` is a tensor with a value; variables are objects."""
    return isinstance(x, AnyTensor) and not isinstance(x, Tensor)


def dtype_of(x: Any) -> DType:
    """Returns the dtype of a tensor-like value."""
    if x.__class__ in _KINDS:
        return dtypes.int64 if x.__class__ is int and not -(2**31) <= x < 2**31 else _DTYPES[_KINDS[x.__class__]]
    if isinstance(x, (np.ndarray, np.generic)):
        return dtypes.from_numpy(np.asarray(x).dtype)
    dtype: DType = x.dtype.base
    return dtype


def shape_of(x: Any) -> shapes.Shape:
    """Returns the static shape of a tensor-like value."""
    if x.__class__ in _KINDS:
        return ()
    if isinstance(x, (np.ndarray, np.generic)):
        return np.shape(x)
    return x.static_shape if isinstance(x, Tensor) else tuple(x.shape)


def is_weak_value(x: Any) -> bool:
    """Whether the dtype of `x` yields to that of another value."""
    return x.__class__ in _KINDS or (isinstance(x, Tensor) and is_weak(x))


def weak(x: Any) -> Any:
    """Returns a symbolic scalar as one that stands for a number of Python."""
    b = scopes.builder(x)
    out = b.Identity(x)
    Editor(out.op.graph).add_note(out.op, WeakNumbers((0,)))
    return out


def kind(dtype: DType) -> int:
    """Returns the order of a dtype's kind: bool, integer, real, complex; -1 for others."""
    if dtype is dtypes.bool_:
        return 0
    return 1 if dtype.is_integer else 2 if dtype.is_floating else 3 if dtype.is_complex else -1


def common_dtype(first: Any, second: Any) -> tuple[DType, bool] | None:
    """Returns the dtype of a variable that has either value, and whether it is weak.

    None if the values need a cast that Python would not make.
    """
    return joined(dtype_of(first), is_weak_value(first), dtype_of(second), is_weak_value(second))


def joined(a: DType, weak: bool, b: DType, weak_too: bool) -> tuple[DType, bool] | None:
    """Returns the dtype that covers two others, and whether it is weak.

    None if the values need a cast that Python would not make.
    """
    if weak and weak_too:
        if a is b or kind(a) == 0 != kind(b) or kind(b) == 0 != kind(a):
            return (a, True) if a is b else None
        wide = a if kind(a) > kind(b) else b if kind(b) > kind(a) else max(a, b, key=lambda d: d.size)
        return wide, True
    if a is b:
        return a, False
    if weak and kind(a) <= kind(b) and (kind(a) > 0 or kind(b) == 0):
        return b, False
    if weak_too and kind(b) <= kind(a) and (kind(b) > 0 or kind(a) == 0):
        return a, False
    return None


def converted(x: Any, dtype: DType) -> Any:
    """Returns `x` as a tensor of a dtype in the current graph; its value fits."""
    b = scopes.builder(x)
    if is_number(x) and kind(dtype) > 1 and x.__class__ in (bool, int):
        x = float(x)
    if isinstance(x, Tensor) or is_value(x):
        t = b.tensor(x)
        return t if t.dtype.base is dtype else b.Cast(t, DstT=dtype)
    return b.tensor(x, dtype)


def truth(x: Any, what: str = "the condition") -> Any:
    """Returns a symbolic tensor as a boolean scalar, where 0 is false.

    Raises:
      AutographError: it has more than one element, or is neither bool nor number.
    """
    shape, dtype = x.static_shape, x.dtype.base
    b = scopes.builder(x)
    if shape is not None and len(shape) > 0:
        if any(d != 1 for d in shape):
            raise AutographError(
                f"{what} must be a single value, got {_described(x)}: the truth of a tensor with several elements is "
                "ambiguous. Reduce it (hr.reduce_any, hr.reduce_all) or compare a single element"
            )
        x = b.Reshape(x, np.zeros(0, np.int32))
    if dtype is dtypes.bool_:
        return x
    if kind(dtype) < 0:
        raise AutographError(f"{what} must be a bool or a number, got {_described(x)}; compare it, such as x == 'text'")
    return b.NotEqual(x, b.const(0, dtype))


def _described(x: Tensor) -> str:
    made = f" (made at {x.op.source})" if x.op.source is not None else ""
    return f"'{x.name}'{made} of dtype {x.dtype.base.name} and shape {shapes.show(x.static_shape)}"


def described(x: Any) -> str:
    """Returns the description of a value in error texts."""
    if isinstance(x, Tensor):
        where = f" from {x.op.source}" if x.op.source is not None else ""
        return f"a {x.dtype.base.name} of shape {shapes.show(x.static_shape)}{where}"
    if is_number(x):
        return f"the {'bool' if x.__class__ is bool else 'number'} {x!r}"
    if is_tensor_like(x):
        return f"a {dtype_of(x).name} of shape {shapes.show(shape_of(x))}"
    if isinstance(x, str):
        return f"the text {x!r}"
    return nest.describe(x)
