"""Elementwise arithmetic: one function for each op type, with TensorFlow's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

import numpy as np

from headrace import dtypes, nest, public_names, shapes
from headrace.api import scopes
from headrace.api.clipping import not_larger
from headrace.api.sparse_tensor import SparseTensor
from headrace.api.table_examples import example
from headrace.api.tensors import is_tensor, pair
from headrace.errors import ShapeError, SignatureError
from headrace.ir.builder import Builder
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.tensor_type import Tensor
from headrace.ir.weak_numbers import common_dtype

C = TypeVar("C", bound=nest.Composite)


class Unary(Protocol):
    """A function of a tensor, element by element."""

    __name__: str

    def __call__(self, x: Any, name: str | None = None) -> Tensor: ...


class SparseUnary(Protocol):
    """A `Unary` that also maps the values of a sparse tensor."""

    __name__: str

    @overload
    def __call__(self, x: C, name: str | None = None) -> C: ...
    @overload
    def __call__(self, x: Any, name: str | None = None) -> Tensor: ...


class Part(Protocol):
    """A function of the elements of `input`."""

    __name__: str

    def __call__(self, input: Any, name: str | None = None) -> Tensor: ...


class Binary(Protocol):
    """A function of two tensors, element by element."""

    __name__: str

    def __call__(self, x: Any, y: Any, name: str | None = None) -> Tensor: ...


# *** made from a table ***


@overload
def unary(
    name: str, type: str, what: str, takes: str, tf: str, scope: str = "", op_name: str = "", *, sparse: Literal[True]
) -> SparseUnary: ...
@overload
def unary(
    name: str, type: str, what: str, takes: str, tf: str, scope: str = "", op_name: str = "", sparse: bool = False
) -> Unary: ...
def unary(
    name: str, type: str, what: str, takes: str, tf: str, scope: str = "", op_name: str = "", sparse: bool = False
) -> Any:
    """Creates the function that adds an op with one argument.

    Args:
      name, type: names of the function and of the op type.
      what, takes, tf: parts of its docstring: the result, the accepted dtypes, and TensorFlow's name.
      scope: the name scope that TensorFlow opens for the function; "": none.
      op_name: name of the operation; "": its type.
      sparse: whether a `SparseTensor` is accepted and its values are mapped, as in TensorFlow; the function maps 0 to
        0.
    """
    default = op_name or type

    def function(x: Any, name: str | None = None) -> Any:
        if sparse and isinstance(x, SparseTensor):
            return x.with_values(function(x.values, name))
        if scope:
            with scopes.name_scope(name, scope, [x]):
                return scopes.builder(x).make(type, (x,), {}, default)
        return scopes.builder(x).make(type, (x,), {}, name or default)

    of = "bool" if type.startswith("Is") else "the dtype of `x`"
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{what}, element by element.

    Args:
      x: a tensor of {takes}, or what can be made one{"; or a `SparseTensor`" if sparse else ""}.
      name: name of the operation; "{scope or default}" if None.

    Returns:
      A tensor of the shape of `x` and {of}{"; a `SparseTensor` if `x` is one" if sparse else ""}.

    Raises:
      GraphError (a ValueError): `x` is of another dtype.

    Source: TensorFlow's `{tf}`.

    {example(name)}
    """
    return function


def _binary(name: str, type: str, what: str, takes: str, tf: str, op_name: str = "", scope: str = "") -> Binary:
    """Creates the function that adds an op with two arguments; see `unary`."""
    default = op_name or type

    def function(x: Any, y: Any, name: str | None = None) -> Any:
        if scope:
            with scopes.name_scope(name, scope, [x, y]):
                return scopes.builder(x, y).make(type, (x, y), {}, default)
        return scopes.builder(x, y).make(type, (x, y), {}, name or default)

    compares = type in ("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual")
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{what}, element by element.

    Args:
      x, y: tensors of {takes}, of the same dtype, or what can be made one: a number takes the dtype of the other
        argument. Shapes broadcast as in numpy.
      name: name of the operation; "{scope or default}" if None.

    Returns:
      A tensor of the shape that both broadcast to, and {"bool" if compares else "their dtype"}.

    Raises:
      SignatureError (a TypeError): the dtypes differ; cast one.
      ShapeError (a ValueError): the shapes do not broadcast.

    Source: TensorFlow's `{tf}`.

    {example(name)}
    """
    return function


_NUMBERS = "numbers"
_FLOATS = "floats or complex numbers"
_REAL_FLOATS = "floats"
_REALS = "floats or integers"

negative = unary("negative", "Neg", "The negation -x", _NUMBERS, "tf.negative", sparse=True)
sign = unary(
    "sign",
    "Sign",
    "The sign, -1, 0 or 1 (of complex numbers x / |x|)",
    _NUMBERS,
    "tf.sign",
    sparse=True,
)
square = unary("square", "Square", "The square x * x", _NUMBERS, "tf.square", sparse=True)
sqrt = unary("sqrt", "Sqrt", "The square root", _FLOATS, "tf.sqrt", sparse=True)
rsqrt = unary("rsqrt", "Rsqrt", "The reciprocal square root 1 / sqrt(x)", _FLOATS, "tf.math.rsqrt")
exp = unary("exp", "Exp", "The exponential function, e to the power of `x`", _FLOATS, "tf.exp")
expm1 = unary("expm1", "Expm1", "exp(x) - 1, exact near 0", _FLOATS, "tf.math.expm1")
log = unary("log", "Log", "The natural logarithm", _FLOATS, "tf.math.log")
log1p = unary("log1p", "Log1p", "log(1 + x), exact near 0", _FLOATS, "tf.math.log1p")
sin = unary("sin", "Sin", "The sine", _FLOATS, "tf.sin", sparse=True)
cos = unary("cos", "Cos", "The cosine", _FLOATS, "tf.cos")
tan = unary("tan", "Tan", "The tangent", _FLOATS, "tf.tan", sparse=True)
asin = unary("asin", "Asin", "The inverse sine (arcsine)", _FLOATS, "tf.asin", sparse=True)
acos = unary("acos", "Acos", "The inverse cosine (arccosine)", _FLOATS, "tf.acos")
atan = unary("atan", "Atan", "The inverse tangent (arctangent)", _FLOATS, "tf.atan", sparse=True)
sinh = unary("sinh", "Sinh", "The hyperbolic sine", _FLOATS, "tf.sinh")
cosh = unary("cosh", "Cosh", "The hyperbolic cosine", _FLOATS, "tf.cosh")
tanh = unary("tanh", "Tanh", "The hyperbolic tangent", _FLOATS, "tf.tanh", sparse=True)
asinh = unary("asinh", "Asinh", "The inverse hyperbolic sine", _FLOATS, "tf.asinh", sparse=True)
acosh = unary("acosh", "Acosh", "The inverse hyperbolic cosine", _FLOATS, "tf.acosh")
atanh = unary("atanh", "Atanh", "The inverse hyperbolic tangent", _FLOATS, "tf.atanh", sparse=True)
sigmoid = unary("sigmoid", "Sigmoid", "The logistic sigmoid 1 / (1 + exp(-x))", _FLOATS, "tf.sigmoid")
erf = unary("erf", "Erf", "The error function", _REAL_FLOATS, "tf.math.erf", sparse=True)
erfc = unary(
    "erfc", "Erfc", "The complementary error function 1 - erf(x), without cancellation", _REAL_FLOATS, "tf.math.erfc"
)
erfinv = unary("erfinv", "Erfinv", "The inverse error function", _REAL_FLOATS, "tf.math.erfinv", "erfinv")
ndtri = unary(
    "ndtri",
    "Ndtri",
    "The quantile function of the standard normal distribution",
    _REAL_FLOATS,
    "tf.math.ndtri",
    "ndtri",
)
lgamma = unary("lgamma", "Lgamma", "The log-gamma function log |gamma(x)|", _REAL_FLOATS, "tf.math.lgamma")
digamma = unary(
    "digamma", "Digamma", "The digamma function, the derivative of `lgamma`", _REAL_FLOATS, "tf.math.digamma"
)
ceil = unary("ceil", "Ceil", "The ceiling, the least integer that is not below `x`", _REAL_FLOATS, "tf.math.ceil")
floor = unary("floor", "Floor", "The floor, the greatest integer that is not above `x`", _REAL_FLOATS, "tf.floor")
rint = unary("rint", "Rint", "The nearest integer, with ties to the even one", _REAL_FLOATS, "tf.math.rint")
reciprocal = unary("reciprocal", "Reciprocal", "The reciprocal 1 / x", _NUMBERS, "tf.math.reciprocal")
is_nan = unary("is_nan", "IsNan", "Whether `x` is not a number", _REAL_FLOATS, "tf.math.is_nan")
is_inf = unary("is_inf", "IsInf", "Whether `x` is infinite", _REAL_FLOATS, "tf.math.is_inf")
is_finite = unary("is_finite", "IsFinite", "Whether `x` is neither infinite nor NaN", _REAL_FLOATS, "tf.math.is_finite")
logical_not = unary("logical_not", "LogicalNot", "The logical NOT", "bool", "tf.logical_not")
invert = unary("invert", "Invert", "The bitwise NOT (complement)", "integers", "tf.bitwise.invert")

add = _binary("add", "AddV2", "The sum x + y (of strings, the concatenation)", "numbers or strings", "tf.add", "Add")
subtract = _binary("subtract", "Sub", "The difference x - y", _NUMBERS, "tf.subtract")
multiply = _binary("multiply", "Mul", "The product x * y", _NUMBERS, "tf.multiply")
floordiv = _binary("floordiv", "FloorDiv", "The floor of the quotient x / y", _REALS, "tf.math.floordiv", "floordiv")
floormod = _binary(
    "floormod", "FloorMod", "The remainder x - y * floor(x / y), with the sign of `y`", _REALS, "tf.math.floormod"
)
mod = _binary("mod", "FloorMod", "The remainder x - y * floor(x / y), with the sign of `y`", _REALS, "tf.math.mod")
truncatediv = _binary(
    "truncatediv", "TruncateDiv", "The quotient x / y, truncated towards 0", "integers", "tf.truncatediv"
)
truncatemod = _binary(
    "truncatemod", "TruncateMod", "The remainder of `truncatediv`, with the sign of `x`", _REALS, "tf.truncatemod"
)
divide_no_nan = _binary(
    "divide_no_nan",
    "DivNoNan",
    "The quotient x / y, and 0 where y is 0",
    _FLOATS,
    "tf.math.divide_no_nan",
    "div_no_nan",
)
multiply_no_nan = _binary(
    "multiply_no_nan",
    "MulNoNan",
    "The product x * y, and 0 where y is 0, even of a NaN",
    _FLOATS,
    "tf.math.multiply_no_nan",
    "multiply_no_nan",
)
pow = _binary("pow", "Pow", "The power, `x` to the `y`", _NUMBERS, "tf.pow")
maximum = _binary("maximum", "Maximum", "The maximum of `x` and `y`", _REALS, "tf.maximum")
minimum = _binary("minimum", "Minimum", "The minimum of `x` and `y`", _REALS, "tf.minimum")
squared_difference = _binary(
    "squared_difference",
    "SquaredDifference",
    "The squared difference (x - y)(x - y)",
    _NUMBERS,
    "tf.math.squared_difference",
)
equal = _binary("equal", "Equal", "Whether x == y", "any dtype", "tf.equal")
not_equal = _binary("not_equal", "NotEqual", "Whether x != y", "any dtype", "tf.not_equal")
less = _binary("less", "Less", "Whether x < y", _REALS, "tf.less")
less_equal = _binary("less_equal", "LessEqual", "Whether x <= y", _REALS, "tf.less_equal")
greater = _binary("greater", "Greater", "Whether x > y", _REALS, "tf.greater")
greater_equal = _binary("greater_equal", "GreaterEqual", "Whether x >= y", _REALS, "tf.greater_equal")
logical_and = _binary("logical_and", "LogicalAnd", "The logical AND", "bool", "tf.logical_and")
logical_or = _binary("logical_or", "LogicalOr", "The logical OR", "bool", "tf.logical_or")
bitwise_and = _binary("bitwise_and", "BitwiseAnd", "The bitwise AND", "integers", "tf.bitwise.bitwise_and")
bitwise_or = _binary("bitwise_or", "BitwiseOr", "The bitwise OR", "integers", "tf.bitwise.bitwise_or")
bitwise_xor = _binary("bitwise_xor", "BitwiseXor", "The bitwise exclusive OR", "integers", "tf.bitwise.bitwise_xor")
left_shift = _binary(
    "left_shift", "LeftShift", "The bits of `x`, shifted left by `y`", "integers", "tf.bitwise.left_shift"
)
right_shift = _binary(
    "right_shift", "RightShift", "The bits of `x`, shifted right by `y`", "integers", "tf.bitwise.right_shift"
)
xdivy = _binary("xdivy", "Xdivy", "x / y, and 0 where x is 0", _FLOATS, "tf.math.xdivy", "", "xdivy")
xlogy = _binary("xlogy", "Xlogy", "x * log(y), and 0 where x is 0", _FLOATS, "tf.math.xlogy")
xlog1py = _binary("xlog1py", "Xlog1py", "x * log1p(y), and 0 where x is 0", _FLOATS, "tf.math.xlog1py", "", "xlog1py")


# *** functions of several ops ***


@overload
def abs(x: C, name: str | None = None) -> C: ...
@overload
def abs(x: Any, name: str | None = None) -> Tensor: ...
def abs(x: Any, name: str | None = None) -> Any:
    """Computes the absolute value, element by element.

    Args:
      x: a tensor of numbers, or a `SparseTensor`. For complex numbers the result is of floats.
      name: name of the operation; "Abs" if None.

    Source: TensorFlow's `tf.abs`.

    Example:
      >>> import headrace as hr
      >>> hr.abs([-2.0, 3.0]).numpy()
      array([2., 3.], dtype=float32)
    """
    if isinstance(x, SparseTensor):
        return x.with_values(abs(x.values, name))
    b = scopes.builder(x)
    if is_tensor(x):
        x = b.tensor(x)
        if not x.dtype.is_complex:
            return b.make("Abs", (x,), {}, name)
        return b.make("ComplexAbs", (x,), {"Tout": real_dtype(x.dtype)}, name or "Abs")
    with scopes.name_scope(name, "Abs", [x]) as scope:
        return abs(scopes.builder().tensor(x, None, "x"), scope)


def real_dtype(dtype: dtypes.DType) -> dtypes.DType:
    """The dtype of the parts of complex numbers of `dtype`."""
    return dtypes.float64 if dtype.base is dtypes.complex128 else dtypes.float32


# The dtype in which integers are divided.
_DIVIDED_IN = {
    **dict.fromkeys((dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16), dtypes.float32),
    **dict.fromkeys((dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64), dtypes.float64),
}


_DIVIDED_AS_FLOATS = frozenset(d.number for d in _DIVIDED_IN)


def quotient_dtype(dtype: dtypes.DType) -> dtypes.DType:
    """The dtype of a quotient of numbers of `dtype`; float32 for bools."""
    return dtypes.float32 if dtype.base is dtypes.bool_ else _DIVIDED_IN.get(dtype.base, dtype.base)


def truediv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Computes x / y, element by element; integers are divided as floats.

    The floats are float32 for integers of up to 16 bits, and float64 for wider ones.

    Args:
      x, y: tensors of numbers of the same dtype, or values convertible to them.
      name: name of the operation; "truediv" if None.

    Raises:
      SignatureError (a TypeError): the dtypes differ; cast one.

    Source: TensorFlow's `tf.truediv`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     y = hr.truediv(hr.constant([1, 2]), 2)
      >>> hr.Session(graph=g).run(y)
      array([0.5, 1. ])
    """
    b = scopes.builder(x, y)
    known = x.dtype if is_tensor(x) else y.dtype if is_tensor(y) else None
    if known is not None and known.base.number not in _DIVIDED_AS_FLOATS:
        return b.make("RealDiv", (x, y), {}, name or "truediv")
    with scopes.name_scope(name, "truediv", [x, y]) as scope:
        b = scopes.builder(x, y)
        x, y = pair(b, x, y)
        if x.dtype.base is not y.dtype.base:
            if isinstance(b, Builder) and common_dtype((x, y)) is not None:
                return b.make("RealDiv", (x, y), {}, scope)
            raise SignatureError(
                f"`x` and `y` must have the same dtype, got {x.dtype.base.name} != {y.dtype.base.name}: {x!r} and "
                f"{y!r}. Cast one of them (hr.cast)"
            )
        wide = _DIVIDED_IN.get(x.dtype.base)
        if wide is not None:
            x, y = (b.make("Cast", (t,), {"DstT": wide}, "Cast") for t in (x, y))
        return b.make("RealDiv", (x, y), {}, scope)


def divide(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Computes x / y as Python 3 does; see `truediv`.

    Args:
      x: a tensor of numbers, or a `SparseTensor`, for which the result is sparse, too.
      y: a tensor of numbers.
      name: name of the operation; "truediv" if None.

    Source: TensorFlow's `tf.divide`.

    Example:
      >>> import headrace as hr
      >>> hr.divide([1, 2], 2).numpy()
      array([0.5, 1. ])
    """
    if isinstance(x, SparseTensor):
        return x / y
    return truediv(x, y, name)


def logical_xor(x: Any, y: Any, name: str = "LogicalXor") -> Tensor:
    """Computes the logical exclusive OR, element by element.

    Source: TensorFlow's `tf.math.logical_xor`.

    Example:
      >>> import headrace as hr
      >>> hr.logical_xor([True, True], [True, False]).numpy()
      array([False,  True])
    """
    b = scopes.builder(x, y)
    either = b.make("LogicalOr", (x, y), {}, "LogicalOr")
    both = b.make("LogicalAnd", (x, y), {}, "LogicalAnd")
    return b.make("LogicalAnd", (either, b.make("LogicalNot", (both,), {}, "LogicalNot")), {}, name)


def round(x: Any, name: str | None = None) -> Tensor:
    """Rounds to the nearest integer, ties to the even one; integers are unchanged.

    Args:
      x: a tensor of numbers.
      name: name of the operation; "Round" if None.

    Source: TensorFlow's `tf.round`.

    Example:
      >>> import headrace as hr
      >>> hr.round([0.5, 1.5, -1.7]).numpy()
      array([ 0.,  2., -2.], dtype=float32)
    """
    b = scopes.builder(x)
    x = b.tensor(x, None, "x")
    return x if x.dtype.is_integer else b.make("Round", (x,), {}, name)


def reciprocal_no_nan(x: Any, name: str | None = None) -> Tensor:
    """Computes the reciprocal 1 / x, and 0 where x is 0, element by element.

    Source: TensorFlow's `tf.math.reciprocal_no_nan`.

    Example:
      >>> import headrace as hr
      >>> hr.reciprocal_no_nan([2.0, 0.0]).numpy()
      array([0.5, 0. ], dtype=float32)
    """
    with scopes.name_scope(name, "reciprocal_no_nan", [x]) as scope:
        b = scopes.builder(x)
        x = b.tensor(x, None, "x")
        return b.make("DivNoNan", (b.const(1, x.dtype.base, "one"), x), {}, scope)


def erfcinv(x: Any, name: str | None = None) -> Tensor:
    """Computes the inverse complementary error function, element by element.

    Source: TensorFlow's `tf.math.erfcinv`.

    Example:
      >>> import headrace as hr
      >>> hr.erfcinv([1.5, 0.5]).numpy().round(3)
      array([-0.477,  0.477], dtype=float32)
    """
    with scopes.name_scope(name, "erfcinv", [x]):
        b = scopes.builder(x)
        half = b.make("Mul", (0.5, b.tensor(x, None, "start")), {}, "mul")
        return b.make("Mul", (b.make("Neg", (ndtri(half),), {}), float(np.sqrt(0.5))), {}, "mul")


def log_sigmoid(x: Any, name: str | None = None) -> Tensor:
    """Computes log(sigmoid(x)), element by element, without overflow.

    Source: TensorFlow's `tf.math.log_sigmoid`.

    Example:
      >>> import headrace as hr
      >>> hr.log_sigmoid([0.0, -100.0]).numpy().round(3)
      array([  -0.693, -100.   ], dtype=float32)
    """
    with scopes.name_scope(name, "LogSigmoid", [x]) as scope:
        b = scopes.builder(x)
        x = b.tensor(x, None, "x")
        return b.make("Neg", (b.make("Softplus", (b.make("Neg", (x,), {}),), {}),), {}, scope)


def atan2(y: Any, x: Any, name: str | None = None) -> Tensor:
    """Computes the angle of the point (x, y), from -pi to pi, element by element.

    Source: TensorFlow's `tf.atan2`.

    Example:
      >>> import headrace as hr
      >>> hr.atan2([1.0, 0.0], [0.0, -1.0]).numpy().round(3)
      array([1.571, 3.142], dtype=float32)
    """
    return scopes.builder(y, x).make("Atan2", (y, x), {}, name)


def nextafter(x1: Any, x2: Any, name: str | None = None) -> Tensor:
    """Computes the next float after `x1` towards `x2`, element by element.

    Source: TensorFlow's `tf.math.nextafter`.

    Example:
      >>> import headrace as hr
      >>> float(hr.nextafter(hr.constant(1.0, hr.float64), 2.0))
      1.0000000000000002
    """
    return scopes.builder(x1, x2).make("NextAfter", (x1, x2), {}, name)


def igamma(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The lower regularized incomplete gamma function, element by element.

    Source: TensorFlow's `tf.math.igamma`.

    Example:
      >>> import headrace as hr
      >>> hr.igamma(1.0, [1.0, 2.0]).numpy().round(3)
      array([0.632, 0.865], dtype=float32)
    """
    return scopes.builder(a, x).make("Igamma", (a, x), {}, name)


def igammac(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The upper regularized incomplete gamma function, element by element.

    Source: TensorFlow's `tf.math.igammac`.

    Example:
      >>> import headrace as hr
      >>> hr.igammac(1.0, [1.0, 2.0]).numpy().round(3)
      array([0.368, 0.135], dtype=float32)
    """
    return scopes.builder(a, x).make("Igammac", (a, x), {}, name)


def polygamma(a: Any, x: Any, name: str | None = None) -> Tensor:
    """Computes the polygamma function, the derivative number `a` of `digamma` at `x`.

    Source: TensorFlow's `tf.math.polygamma`.

    Example:
      >>> import headrace as hr
      >>> hr.polygamma(1.0, [1.0, 2.0]).numpy().round(3)
      array([1.645, 0.645], dtype=float32)
    """
    return scopes.builder(a, x).make("Polygamma", (a, x), {}, name)


def zeta(x: Any, q: Any, name: str | None = None) -> Tensor:
    """The Hurwitz zeta function, element by element.

    Source: TensorFlow's `tf.math.zeta`.

    Example:
      >>> import headrace as hr
      >>> hr.zeta([2.0, 4.0], 1.0).numpy().round(3)
      array([1.645, 1.082], dtype=float32)
    """
    return scopes.builder(x, q).make("Zeta", (x, q), {}, name)


def betainc(a: Any, b: Any, x: Any, name: str | None = None) -> Tensor:
    """The regularized incomplete beta function, element by element.

    Source: TensorFlow's `tf.math.betainc`.

    Example:
      >>> import headrace as hr
      >>> hr.betainc(1.0, 2.0, [0.5, 1.0]).numpy().round(3)
      array([0.75, 1.  ], dtype=float32)
    """
    return scopes.builder(a, b, x).make("Betainc", (a, b, x), {}, name)


@overload
def cast(x: C, dtype: Any, name: str | None = None) -> C: ...
@overload
def cast(x: Any, dtype: Any, name: str | None = None) -> Tensor: ...
def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """`x` with elements of another dtype.

    Args:
      x: a tensor, or what can be made one; a `SparseTensor`; an `IndexedSlices`.
      dtype: floats lose their fraction on the way to integers; nonzero is True; of complex numbers the real part stays.
      name: name of the operation; "Cast" if None.

    Returns:
      A tensor of the shape of `x`; `x` itself if it has the dtype already. Of a `SparseTensor` or `IndexedSlices` one
      with other values.

    Source: TensorFlow's `tf.cast`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     hr.cast(hr.placeholder(hr.int32, (2,)), hr.float32).dtype
      headrace.float32
    """
    wanted = dtypes.as_dtype(dtype).base
    if isinstance(x, (SparseTensor, IndexedSlices)):
        with scopes.name_scope(name, "Cast", [x]) as scope:
            return x.with_values(cast(x.values, wanted, scope))
    b = scopes.builder(x)
    if is_tensor(x):
        x = b.tensor(x)
        return x if x.dtype.base is wanted else b.make("Cast", (x,), {"DstT": wanted}, name)
    with scopes.name_scope(name, "Cast", [x]) as scope:
        b = scopes.builder(x)
        x = b.tensor(x, None, "x")
        return x if x.dtype.base is wanted else b.make("Cast", (x,), {"DstT": wanted}, scope)


@overload
def saturate_cast(value: C, dtype: Any, name: str | None = None) -> C: ...
@overload
def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Tensor: ...
def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Any:
    """Casts a tensor, clipping its elements to the range of the dtype.

    Args:
      value: a tensor of numbers.
      dtype: the new dtype.
      name: name of the operation; "saturate_cast" if None.

    Source: TensorFlow's `tf.saturate_cast`.

    Example:
      >>> import headrace as hr
      >>> hr.saturate_cast([300, -1], hr.uint8)
      <EagerTensor shape=[2] dtype=uint8: array([255,   0], dtype=uint8)>
    """
    with scopes.name_scope(name, "saturate_cast", [value]) as scope:
        b = scopes.builder(value)
        value = b.tensor(value, None, "value")
        wanted = dtypes.as_dtype(dtype).base
        if value.dtype.is_complex:
            if wanted.is_complex:
                return cast(value, wanted, scope)
            value = b.make("Real", (value,), {"Tout": real_dtype(value.dtype)})
        low, high = _range(value.dtype.base, wanted)
        t = value.dtype.base
        clamped = b.make("ClipByValue", (value, b.const(low, t), b.const(high, t)), {}, "clamp")
        return clamped if t is wanted else b.make("Cast", (clamped,), {"DstT": wanted}, scope)


def _range(given: dtypes.DType, wanted: dtypes.DType) -> tuple[Any, Any]:
    """The least and greatest value of `given` that both dtypes have."""
    (low, high), (least, most) = limits(given), limits(wanted)
    low, high = max(low, least), min(high, most)
    if given.is_floating:  # the nearest float may be one too far
        low, high = given.numpy.type(low), given.numpy.type(high)
        if int(high) > most:
            high = np.nextafter(high, given.numpy.type(0))
        if int(low) < least:
            low = np.nextafter(low, given.numpy.type(0))
    return low, high


def limits(dtype: dtypes.DType) -> tuple[Any, Any]:
    """The least and the greatest finite value of a dtype, as Python numbers."""
    import ml_dtypes

    if dtype.is_integer:
        ints = np.iinfo(dtype.numpy)
        return int(ints.min), int(ints.max)
    floats = ml_dtypes.finfo(dtype.numpy)
    return float(floats.min), float(floats.max)


def complex(real: Any, imag: Any, name: str | None = None) -> Tensor:
    """real + i · imag, element by element: complex64 of float32, complex128 of float64.

    Source: TensorFlow's `tf.complex`.

    Example:
      >>> import headrace as hr
      >>> hr.complex(1.0, 2.0)
      <EagerTensor shape=[] dtype=complex64: np.complex64(1+2j)>
    """
    with scopes.name_scope(name, "Complex", [real, imag]) as scope:
        b = scopes.builder(real, imag)
        real, imag = b.tensor(real, None, "real"), b.tensor(imag, None, "imag")
        made = dtypes.complex128 if real.dtype.base is dtypes.float64 else dtypes.complex64
        return b.make("Complex", (real, imag), {"Tout": made}, scope)


def _part(name: str, type: str, what: str, of_reals: Callable[[Any, Any], Any] | None) -> Part:
    def function(input: Any, name: str | None = None) -> Any:
        b = scopes.builder(input)
        x = b.tensor(input, None, "input")
        if not x.dtype.is_complex and of_reals is not None:
            return of_reals(b, x)
        return b.make(type, (x,), {} if type == "Conj" else {"Tout": real_dtype(x.dtype)}, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{what}, element by element.

    Args:
      input: a tensor of numbers, or what can be made one.
      name: name of the operation; "{type}" if None.

    Source: TensorFlow's `tf.math.{name}`.

    {example(name)}
    """
    return function


def _angle_of_real(b: Any, x: Any) -> Any:
    zeros = b.make("ZerosLike", (x,), {})
    return b.make(
        "SelectV2", (b.make("Less", (x, zeros), {}), b.make("AddV2", (zeros, float(np.pi)), {}), zeros), {}, "Angle"
    )


real = _part("real", "Real", "The real part; of real numbers, themselves", lambda b, x: x)
imag = _part("imag", "Imag", "The imaginary part; of real numbers, zeros", lambda b, x: b.make("ZerosLike", (x,), {}))
conj = _part("conj", "Conj", "The complex conjugate; of real numbers, themselves", lambda b, x: x)
angle = _part("angle", "Angle", "The angle of complex numbers; of real ones 0, or pi if negative", _angle_of_real)


@overload
def clip_by_value(t: C, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> C: ...
@overload
def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Tensor: ...
def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """`t`, and the bounds where it is outside them, element by element.

    Args:
      t: a tensor of real numbers, or an `IndexedSlices`, whose rows are clipped.
      clip_value_min, clip_value_max: the bounds; they broadcast with `t`, but must not make it larger.
      name: name of the operation; "clip_by_value" if None.

    Returns:
      A tensor, or an `IndexedSlices` if `t` is one.

    Raises:
      ShapeError (a ValueError): the bounds make it larger.

    Source: TensorFlow's `tf.clip_by_value`.

    Example:
      >>> import headrace as hr
      >>> hr.clip_by_value([1, 5, 9], 2, 6)
      <EagerTensor shape=[3] dtype=int32: array([2, 5, 6], dtype=int32)>
    """
    if isinstance(t, IndexedSlices):
        return t.with_values(clip_by_value(t.values, clip_value_min, clip_value_max, name))
    with scopes.name_scope(name, "clip_by_value", [t, clip_value_min, clip_value_max]) as scope:
        b = scopes.builder(t, clip_value_min, clip_value_max)
        t = b.tensor(t, None, "t")
        clipped = b.make("Minimum", (t, clip_value_max), {})
        return not_larger(t, b.make("Maximum", (clipped, clip_value_min), {}, scope))


def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """The sum of tensors of one shape and dtype.

    Args:
      inputs: a list of them, not empty; or one.
      name: name of the operation; "AddN" if None.

    Raises:
      ValueError: there are none, or their shapes differ.

    Source: TensorFlow's `tf.add_n`.

    Example:
      >>> import headrace as hr
      >>> hr.add_n([1, 2, 3])
      <EagerTensor shape=[] dtype=int32: np.int32(6)>
    """
    items = nest.as_list(inputs)
    if not items:
        raise ValueError("'inputs' must be a list of at least one tensor of one shape and dtype, got an empty one")
    b = scopes.builder(*items)
    if len(items) == 1 and is_tensor(items[0]):
        only = b.tensor(items[0])
        return b.make("Identity", (only,), {}, name) if name else only
    return b.make("AddN", (items,), {}, name)


def accumulate_n(inputs: Any, shape: Any = None, tensor_dtype: Any = None, name: str | None = None) -> Tensor:
    """Sums a list of tensors; see `add_n`.

    Args:
      inputs: the list.
      shape: the static shape that they have.
      tensor_dtype: the dtype that they have.
      name: see `add_n`.

    Raises:
      ShapeError (a ValueError): they are not of this shape.
      SignatureError (a ValueError and a TypeError): they are no list, or not of this dtype.

    Source: TensorFlow's `tf.math.accumulate_n`.

    Example:
      >>> import headrace as hr
      >>> hr.accumulate_n([hr.constant([1, 2]), hr.constant([3, 4])]).numpy()
      array([4, 6], dtype=int32)
    """
    if not isinstance(inputs, (list, tuple)):
        raise SignatureError(f"'inputs' must be a list of at least one tensor of one shape and dtype, got {inputs!r}")
    total = add_n(inputs, name)
    if tensor_dtype is not None and dtypes.as_dtype(tensor_dtype).base is not total.dtype.base:
        raise SignatureError(
            f"The `tensor_dtype` argument is {dtypes.as_dtype(tensor_dtype).name}, but `inputs` are of type "
            f"{total.dtype.base.name}. These must be equal; cast the inputs, or leave `tensor_dtype` out"
        )
    known = shapes.as_shape(shape)
    if not shapes.compatible(total.shape, known):
        raise ShapeError(f"Shapes {shapes.show(known)} and {shapes.show(total.shape)} are not compatible")
    return total


# fmt: off
__all__ = [
    "abs", "accumulate_n", "acos", "acosh", "add", "add_n", "angle", "asin", "asinh", "atan", "atan2", "atanh",
    "betainc", "bitwise_and", "bitwise_or", "bitwise_xor", "cast", "ceil", "clip_by_value", "complex", "conj", "cos",
    "cosh", "digamma", "divide", "divide_no_nan", "equal", "erf", "erfc", "erfcinv", "erfinv", "exp", "expm1", "floor",
    "floordiv", "floormod", "greater", "greater_equal", "igamma", "igammac", "imag", "invert", "is_finite", "is_inf",
    "is_nan", "left_shift", "less", "less_equal", "lgamma", "log", "log1p", "log_sigmoid", "logical_and", "logical_not",
    "logical_or", "logical_xor", "maximum", "minimum", "mod", "multiply", "multiply_no_nan", "ndtri", "negative",
    "nextafter", "not_equal", "polygamma", "pow", "real", "reciprocal", "reciprocal_no_nan", "right_shift", "rint",
    "round", "rsqrt", "saturate_cast", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "squared_difference",
    "subtract", "tan", "tanh", "truediv", "truncatediv", "truncatemod", "xdivy", "xlog1py", "xlogy", "zeta",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
