"""Python's operators on tensors.

`install(cls)` gives a class the operators and indexing. Importing this module installs them on `TensorOperations`, the
base class of tensors and variables, whose declarations tell type checkers of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import linalg, math, scopes
from headrace.api.indexing import getitem
from headrace.api.tensors import is_tensor, pair
from headrace.ir.conversion import usual_number
from headrace.ir.tensor_type import TensorOperations


def install(cls: type) -> None:
    """Adds the operators and indexing to `cls`, whose objects represent tensors.

    Args:
      cls: a class whose objects builders accept as tensors (`as_tensor`), with attributes `dtype` and `shape`.
    """
    for name, function in _OPERATORS.items():
        setattr(cls, name, function)


def _is_operand(x: Any) -> bool:
    """Whether `x` may be the other operand; otherwise Python asks the class of `x`."""
    return isinstance(x, _OPERANDS) or is_tensor(x)


_OPERANDS = (int, float, TensorOperations, complex, str, bytes, list, tuple, np.ndarray, np.generic, type(None))


def _binary(type: str, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns the operator of an op, and its reversed form."""

    def forward(x: Any, y: Any) -> Any:
        if y.__class__ is not x.__class__ and not _is_operand(y):
            return NotImplemented
        return scopes.builder(x, y).make(type, (x, y), {}, name)

    def reversed(y: Any, x: Any) -> Any:
        if not _is_operand(x):
            return NotImplemented
        return scopes.builder(y, x).make(type, (x, y), {}, name)

    return forward, reversed


def _function(f: Callable[[Any, Any], Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns the operator of a function, and its reversed form."""

    def forward(x: Any, y: Any) -> Any:
        return f(x, y) if y.__class__ is x.__class__ or _is_operand(y) else NotImplemented

    def reversed(y: Any, x: Any) -> Any:
        return f(x, y) if _is_operand(x) else NotImplemented

    return forward, reversed


def _bits(name: str, logical: Callable[..., Any], bitwise: str) -> Callable[[Any, Any], Any]:
    """Returns `&`, `|` or `^`: logical for bools, bitwise for integers."""

    def f(x: Any, y: Any) -> Any:
        with scopes.name_scope(None, name, [x, y]) as scope:
            b = scopes.builder(x, y)
            known = x if is_tensor(x) else y
            if b.tensor(known).dtype.base is dtypes.bool_:
                return logical(x, y, scope)
            return b.make(bitwise, (x, y), {})

    return f


def _matmul(x: Any, y: Any) -> Any:
    return linalg.matmul(x, y, name="matmul")


def _not(x: Any) -> Any:
    b = scopes.builder(x)
    t = b.tensor(x)
    return b.make("LogicalNot" if t.dtype.base is dtypes.bool_ else "Invert", (t,), {})


def _neg(x: Any) -> Any:
    return math.negative(x)


def _pos(x: Any) -> Any:
    return x


def equal(x: Any, y: Any) -> Any:
    """Returns `x == y` element by element; False if `y` cannot be an element."""
    return _compared("Equal", x, y, False)


def not_equal(x: Any, y: Any) -> Any:
    """Returns `x != y` element by element; see `equal`."""
    return _compared("NotEqual", x, y, True)


def _compared(type: str, x: Any, y: Any, otherwise: bool) -> Any:
    if not _is_operand(y):
        return NotImplemented
    b = scopes.builder(x, y)
    if b.graph is None and usual_number(y.__class__, x.dtype) is not None:
        return b.make(type, (x, y), {})  # a number fits every shape
    if b.graph is not None or y.__class__ is not x.__class__:
        try:
            x, y = pair(b, x, y)
        except TypeError:  # None, text: a value that cannot be an element equals no element
            return otherwise
    if b.graph is None and x.shape == y.shape:
        return b.make(type, (x, y), {})
    return b.make(type, (x, y), {"incompatible_shape_error": False})


def _divmod(x: Any, y: Any) -> tuple[Any, Any]:
    return x // y, x % y


def _round(x: Any, ndigits: int | None = None) -> Any:
    """Returns `x` rounded to `ndigits` decimals, halves to the even neighbour."""
    if not ndigits:
        return math.round(x)
    b = scopes.builder(x)
    t = b.tensor(x)
    if not t.dtype.base.is_floating:
        raise TypeError(f"round() to {ndigits} decimals takes a tensor of floats, got {t.dtype.base.name}")
    scale = 10.0**ndigits
    return math.round(t * scale) / scale


_OPERATORS: dict[str, Any] = {
    "__getitem__": getitem,
    "__neg__": _neg,
    "__pos__": _pos,
    "__abs__": lambda x: math.abs(x),
    "__invert__": _not,
    "__round__": _round,
    "__array_priority__": 100,  # numpy lets us have `array + tensor`
}
for _name, (_forward, _reversed) in {
    "add": _binary("AddV2", "add"),
    "sub": _binary("Sub", "sub"),
    "mul": _binary("Mul", "mul"),
    "truediv": _function(math.truediv),
    "floordiv": _binary("FloorDiv", "floordiv"),
    "mod": _binary("FloorMod", "mod"),
    "pow": _binary("Pow", "pow"),
    "lshift": _binary("LeftShift", "lshift"),
    "rshift": _binary("RightShift", "rshift"),
    "divmod": _function(_divmod),
    "matmul": _function(_matmul),
    "and": _function(_bits("and", math.logical_and, "BitwiseAnd")),
    "or": _function(_bits("or", math.logical_or, "BitwiseOr")),
    "xor": _function(_bits("xor", math.logical_xor, "BitwiseXor")),
}.items():
    _OPERATORS[f"__{_name}__"] = _forward
    _OPERATORS[f"__r{_name}__"] = _reversed
for _name, _type in (("lt", "Less"), ("le", "LessEqual"), ("gt", "Greater"), ("ge", "GreaterEqual")):
    _OPERATORS[f"__{_name}__"] = _binary(_type, _type)[0]  # Python reverses `1 < x` to `x > 1` itself
for _name, _method in _OPERATORS.items():
    if callable(_method):
        _method.__name__ = _name

install(TensorOperations)
