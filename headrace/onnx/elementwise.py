"""Operators that compute each element of the output from one element of each input."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np

from headrace.api import arrays, gathering, math, tensors
from headrace.api.nn import activations
from headrace.dtypes import SMALL_FLOATING, as_dtype, bool_, float32, float64, string
from headrace.ir.tensor_type import Tensor
from headrace.onnx.element_types import dtype_of
from headrace.onnx.operators import Call, operator

_UNARY: Final[dict[str, Callable[..., Any]]] = {
    "Abs": math.abs,
    "Acos": math.acos,
    "Acosh": math.acosh,
    "Asin": math.asin,
    "Asinh": math.asinh,
    "Atan": math.atan,
    "Atanh": math.atanh,
    "Ceil": math.ceil,
    "Cos": math.cos,
    "Cosh": math.cosh,
    "Erf": math.erf,
    "Exp": math.exp,
    "Floor": math.floor,
    "Identity": tensors.identity,
    "IsNaN": math.is_nan,
    "Log": math.log,
    "Neg": math.negative,
    "Not": math.logical_not,
    "BitwiseNot": math.invert,
    "Reciprocal": math.reciprocal,
    "Relu": activations.relu,
    "Round": math.rint,
    "Sigmoid": math.sigmoid,
    "Sign": math.sign,
    "Sin": math.sin,
    "Sinh": math.sinh,
    "Softplus": activations.softplus,
    "Softsign": activations.softsign,
    "Sqrt": math.sqrt,
    "Tan": math.tan,
    "Tanh": math.tanh,
}


def _power(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype.base == y.dtype.base:
        return math.pow(x, y)
    if x.dtype.base.is_integer and y.dtype.base.is_floating:
        return math.cast(math.pow(math.cast(x, float64), math.cast(y, float64)), x.dtype.base)
    return math.pow(x, math.cast(y, x.dtype.base))


def _quotient(x: Tensor, y: Tensor) -> Tensor:
    return math.truncatediv(x, y) if x.dtype.base.is_integer else math.divide(x, y)


_BINARY: Final[dict[str, Callable[..., Any]]] = {
    "Add": math.add,
    "And": math.logical_and,
    "BitwiseAnd": math.bitwise_and,
    "BitwiseOr": math.bitwise_or,
    "BitwiseXor": math.bitwise_xor,
    "Div": _quotient,
    "Equal": math.equal,
    "Greater": math.greater,
    "GreaterOrEqual": math.greater_equal,
    "Less": math.less,
    "LessOrEqual": math.less_equal,
    "Mul": math.multiply,
    "Or": math.logical_or,
    "Pow": _power,
    "Sub": math.subtract,
    "Xor": math.not_equal,
}


def _register_unary(name: str, f: Callable[..., Any]) -> None:
    operator(name)(lambda call, x: f(x))


def _register_binary(name: str, f: Callable[..., Any]) -> None:
    def compute(call: Call, x: Tensor, y: Tensor) -> Any:
        if call.version < 7 and call.get("broadcast"):  # the axes of y were those of x from an axis on
            axis = call.get("axis")
            if axis is not None and x.shape is not None and y.shape is not None:
                after = len(x.shape) - axis % len(x.shape) - len(y.shape)
                y = arrays.reshape(y, [*y.shape, *[1] * after])
        return f(x, y)

    operator(name)(compute)


for _name, _f in _UNARY.items():
    _register_unary(_name, _f)
for _name, _f in _BINARY.items():
    _register_binary(_name, _f)


def _joined(f: Callable[[Tensor, Tensor], Tensor], values: Sequence[Tensor]) -> Tensor:
    return functools.reduce(f, values[1:], tensors.identity(values[0]))


@operator("Max")
def max_(call: Call, *values: Tensor) -> Tensor:
    """Returns the largest of the elements at the same place."""
    return _joined(math.maximum, values)


@operator("Min")
def min_(call: Call, *values: Tensor) -> Tensor:
    """Returns the smallest of the elements at the same place."""
    return _joined(math.minimum, values)


@operator("Sum")
def sum_(call: Call, *values: Tensor) -> Tensor:
    """Returns the sum of the elements at the same place."""
    return _joined(math.add, values)


@operator("Mean")
def mean(call: Call, *values: Tensor) -> Tensor:
    """Returns the mean of the elements at the same place."""
    return math.divide(_joined(math.add, values), tensors.constant(len(values), values[0].dtype.base))


@operator("Mod", since=10)
def mod(call: Call, x: Tensor, y: Tensor) -> Tensor:
    """Returns the remainder with the sign of the divisor or, for `fmod`, of the dividend."""
    return math.truncatemod(x, y) if call["fmod"] else math.floormod(x, y)


@operator("BitShift", since=11)
def bit_shift(call: Call, x: Tensor, y: Tensor) -> Tensor:
    """Shifts the bits of integers.

    A distance that is negative or not less than the width of the dtype shifts all bits out.
    """
    left = call["direction"] == "LEFT"
    dtype = x.dtype.base
    width = tensors.constant(dtype.size * 8, dtype)
    zero = _zero(x)
    inside = math.logical_and(y >= zero, y < width)
    near = gathering.where(inside, y, zero)
    shifted = math.left_shift(x, near) if left else math.right_shift(x, near)
    rest = arrays.zeros_like(shifted)
    if not left and not dtype.is_unsigned:
        rest = gathering.where(x < zero, rest - tensors.constant(1, dtype), rest)
    return gathering.where(inside, shifted, rest)


@operator("BitCast", since=26)
def bit_cast(call: Call, x: Tensor) -> Tensor:
    """Returns the bits of the elements as another dtype."""
    dtype = dtype_of(call["to"], call.node)
    if bool_ in (dtype, x.dtype.base):  # a byte that is 0 or 1
        return math.cast(x, dtype)
    return arrays.bitcast(x, dtype)


@operator("Shrink", since=9)
def shrink(call: Call, x: Tensor) -> Tensor:
    """Moves elements towards 0 by a bias; elements within lambd of 0 become 0."""
    lambd, bias = [tensors.constant(np.asarray(call[n]).astype(x.dtype.base.numpy)) for n in ("lambd", "bias")]
    return gathering.where(x < -lambd, x + bias, gathering.where(x > lambd, x - bias, arrays.zeros_like(x)))


@operator("IsInf", since=10)
def is_inf(call: Call, x: Tensor) -> Tensor:
    """Whether elements are infinite, of the signs that count."""
    found = math.is_inf(x)
    if not call["detect_negative"]:
        found = math.logical_and(found, x > 0)
    if not call["detect_positive"]:
        found = math.logical_and(found, x < 0)
    return found


@operator("Cast")
def cast(call: Call, x: Tensor) -> Tensor:
    """Converts elements to a dtype."""
    to = call["to"]
    dtype = dtype_of(int(to), call.node) if not isinstance(to, str) else as_dtype(to.lower())
    return _cast(x, dtype, bool(call.get("saturate", 1)))


@operator("CastLike", since=15)
def cast_like(call: Call, x: Tensor, like: Tensor) -> Tensor:
    """Converts elements to the dtype of another tensor."""
    return _cast(x, like.dtype.base, bool(call.get("saturate", 1)))


def _cast(x: Tensor, dtype: Any, saturates: bool) -> Tensor:
    from headrace.api.strings import as_string, to_number

    if dtype == x.dtype.base:
        return tensors.identity(x)
    if dtype == string:
        return as_string(x)
    if x.dtype.base == string:
        wide = float32 if dtype == float32 else float64
        return math.cast(to_number(x, wide), dtype)
    if dtype in SMALL_FLOATING and saturates and x.dtype.base.is_floating and x.dtype.base not in SMALL_FLOATING:
        largest = tensors.constant(float(ml_dtypes.finfo(dtype.numpy).max), x.dtype.base)
        x = math.clip_by_value(x, -largest, largest)
    return math.cast(x, dtype)


@operator("Clip")
def clip(call: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Limits elements to a range."""
    dtype = x.dtype.base
    for name, f, bound in (("min", math.maximum, low), ("max", math.minimum, high)):
        given = bound if bound is not None else call.get(name)
        if given is not None:
            x = f(x, given if bound is not None else tensors.constant(given, dtype))
    return tensors.identity(x)


@operator("Where", since=9)
def where(call: Call, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Returns elements of one of two tensors."""
    return gathering.where(condition, x, y)


def _number(call: Call, name: str, x: Tensor) -> Any:
    return tensors.constant(call[name], x.dtype.base)


@operator("LeakyRelu")
def leaky_relu(call: Call, x: Tensor) -> Tensor:
    """Returns x, or alpha · x where x is negative."""
    return gathering.where(x < 0, x * _number(call, "alpha", x), x)


@operator("PRelu")
def p_relu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    """Returns x, or slope · x where x is negative."""
    if call.version < 7 and slope.shape is not None and len(slope.shape) == 1 and slope.shape[0] != 1:
        slope = arrays.reshape(slope, [-1, *[1] * (call.rank(x) - 2)])
    return gathering.where(x < tensors.constant(0, x.dtype.base), x * slope, x)


@operator("Elu")
def elu(call: Call, x: Tensor) -> Tensor:
    """Returns x, or alpha · (exp(x) - 1) where x is negative."""
    return gathering.where(x < 0, _number(call, "alpha", x) * math.expm1(math.minimum(x, _zero(x))), x)


def _zero(x: Tensor) -> Any:
    return tensors.constant(0, x.dtype.base)


@operator("Selu")
def selu(call: Call, x: Tensor) -> Tensor:
    """Returns the scaled exponential linear unit."""
    alpha, gamma = _number(call, "alpha", x), _number(call, "gamma", x)
    scaled: Tensor = gamma * gathering.where(x > 0, x, alpha * math.expm1(math.minimum(x, _zero(x))))
    return scaled


@operator("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    """Returns alpha · x + beta, limited to 0 to 1."""
    limited: Tensor = math.clip_by_value(
        _number(call, "alpha", x) * x + _number(call, "beta", x), _zero(x), _zero(x) + 1
    )
    return limited


@operator("Gelu", since=20)
def gelu(call: Call, x: Tensor) -> Tensor:
    """Returns the Gaussian error linear unit."""
    return activations.gelu(x, approximate=call["approximate"] == "tanh")


@operator("Constant")
def constant(call: Call) -> Tensor:
    """Returns the value of an attribute."""
    for name, dtype in (
        ("value", None),
        ("value_float", np.float32),
        ("value_int", np.int64),
        ("value_floats", np.float32),
        ("value_ints", np.int64),
        ("value_string", None),
        ("value_strings", None),
        ("sparse_value", None),
    ):
        value = call.get(name)
        if value is not None:
            return tensors.convert_to_tensor(value if dtype is None else np.asarray(value, dtype))
    return tensors.convert_to_tensor(call["value"])


@operator("Dropout")
def dropout(call: Call, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None) -> Any:
    """Returns the input: dropout of inference."""
    if (
        training is not None
        and bool(call.static(training, "training_mode"))
        and (ratio is None or float(call.static(ratio, "ratio")) > 0)
    ):
        from headrace.api import random

        rate = 0.5 if ratio is None else float(call.static(ratio, "ratio"))
        kept = random.uniform(arrays.shape(x), dtype=float32, seed=call.get("seed")) >= rate
        scale = tensors.constant(1 / (1 - rate) if rate < 1 else 0, x.dtype.base)
        return x * math.cast(kept, x.dtype.base) * scale, kept
    mask = arrays.fill(arrays.shape(x), True)
    return tensors.identity(x), mask if call.version >= 10 else math.cast(mask, x.dtype.base)
