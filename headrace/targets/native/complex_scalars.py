"""Complex numbers in scalar expressions: each is a pair of floats.

In memory the parts follow each other, as numpy stores them. In a register a number is a structure, such as
`{ float, float }`, which may be a variable, an argument or a constant as any other value. LLVM takes structures apart,
so the code it compiles computes with floats alone, and loops become vectors.

**Arithmetic** has the bits of numpy's ufuncs on arrays. Those fuse a multiplication with the addition where the
processor can, and so does this module: the parts of a · b are fma(aᵣ, bᵣ, -(aᵢ · bᵢ)) and fma(aᵣ, bᵢ, aᵢ · bᵣ). (The
operators of numpy's scalars do not fuse.) Quotients are computed by Smith's method (1962).

**Functions** are formulas of real functions. Cases that the C standard defines (infinities, zeros of both signs, NaN)
are chosen by `select`, so there are no branches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from headrace.targets.native import elementary
from headrace.targets.native.values import Value

if TYPE_CHECKING:
    from headrace.targets.native.llvm_text import Function

#: LLVM's type of the parts of a complex number.
_ELEMENTS: Final[dict[np.dtype, str]] = {np.dtype(np.complex64): "float", np.dtype(np.complex128): "double"}

#: The dtypes of complex numbers and of their parts.
PARTS: Final[dict[np.dtype, np.dtype]] = {
    np.dtype(np.complex64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.float64),
}


class Pair(NamedTuple):
    """Parts of a complex number."""

    real: Value
    imag: Value


def register_type(dtype: np.dtype) -> str:
    """Returns LLVM's type of a complex number."""
    element = _ELEMENTS[dtype]
    return f"{{ {element}, {element} }}"


def literal(parts: Sequence[str], dtype: np.dtype) -> str:
    """Returns a constant, given the literals of its parts."""
    element = _ELEMENTS[dtype]
    return f"{{ {element} {parts[0]}, {element} {parts[1]} }}"


def joined(f: Function, parts: Sequence[str], dtype: np.dtype) -> str:
    """Prints a number that is made of its parts."""
    if all(part.startswith("0x") for part in parts):
        return literal(parts, dtype)
    kind, element = register_type(dtype), _ELEMENTS[dtype]
    half = f.op(f"insertvalue {kind} poison, {element} {parts[0]}, 0")
    return f.op(f"insertvalue {kind} {half}, {element} {parts[1]}, 1")


def parts_of(f: Function, number: str, dtype: np.dtype) -> Pair:
    """Prints the parts of a number."""
    element = _ELEMENTS[dtype]
    if number.startswith("{"):
        texts = [text.split()[1] for text in number.strip("{} ").split(",")]
    else:
        texts = [f.op(f"extractvalue {register_type(dtype)} {number}, {k}") for k in range(2)]
    return Pair(*(Value(f, element, text) for text in texts))


def choose(f: Function, condition: str, dtype: np.dtype, x: str, y: str) -> str:
    """Prints the choice of `x` where the i1 `condition` holds, else `y`."""
    test = Value(f, "i1", condition)
    chosen = [test.choose(a, b).name for a, b in zip(parts_of(f, x, dtype), parts_of(f, y, dtype), strict=True)]
    return joined(f, chosen, dtype)


# *** Arithmetic ***


def _add(a: Pair, b: Pair) -> Pair:
    return Pair(a.real + b.real, a.imag + b.imag)


def _subtract(a: Pair, b: Pair) -> Pair:
    return Pair(a.real - b.real, a.imag - b.imag)


def _multiply(a: Pair, b: Pair) -> Pair:
    return Pair(a.real.fma(b.real, -(a.imag * b.imag)), a.real.fma(b.imag, a.imag * b.real))


def _divide(a: Pair, b: Pair) -> Pair:
    """The quotient by Smith's method; its parts are divided by |b| if that is zero."""
    size, other = abs(b.real), abs(b.imag)
    is_real = size.compare("oge", other)
    greater, less = is_real.choose(b.real, b.imag), is_real.choose(b.imag, b.real)
    ratio = less / greater
    scale = 1.0 / (greater + less * ratio)
    first, second = is_real.choose(a.real, a.imag), is_real.choose(a.imag, a.real)
    product = first * ratio
    minuend, subtrahend = is_real.choose(a.imag, product), is_real.choose(product, a.real)
    quotient = Pair((first + second * ratio) * scale, (minuend - subtrahend) * scale)
    is_zero = size.compare("oeq", 0.0) & other.compare("oeq", 0.0)
    return Pair(*(is_zero.choose(x / size, found) for x, found in zip(a, quotient, strict=True)))


def _reciprocal(a: Pair) -> Pair:
    is_real = abs(a.imag).compare("ole", abs(a.real))
    ratio = is_real.choose(a.imag, a.real) / is_real.choose(a.real, a.imag)
    divisor = is_real.choose(a.real + a.imag * ratio, a.real * ratio + a.imag)
    one = a.real.constant(1.0)
    return Pair(is_real.choose(one, ratio) / divisor, is_real.choose(-ratio, -1.0) / divisor)


def _equal(a: Pair, b: Pair) -> Value:
    return a.real.compare("oeq", b.real) & a.imag.compare("oeq", b.imag)


def _not_equal(a: Pair, b: Pair) -> Value:
    return a.real.compare("une", b.real) | a.imag.compare("une", b.imag)


def is_true(a: Pair) -> Value:
    """Whether a number is not zero."""
    return a.real.compare("une", 0.0) | a.imag.compare("une", 0.0)


def _sizes(a: Pair) -> tuple[Value, Value]:
    """The greater and the lesser absolute value of the parts.

    NaN is the lesser one, or both are NaN.
    """
    real, imag = abs(a.real), abs(a.imag)
    is_greater = real.compare("ogt", imag) | imag.compare("uno", 0.0)
    return is_greater.choose(real, imag), is_greater.choose(imag, real)


def _ratio(greater: Value, less: Value) -> Value:
    """The ratio of both sizes; 0 for the number 0, and at infinities."""
    found = greater.compare("oeq", 0.0).choose(less, less / greater)
    return greater.compare("oeq", math.inf).choose(greater.constant(0.0), found)


def _absolute(a: Pair) -> Value:
    """The absolute value by the formula that numpy has for arrays.

    It is infinite if a part is.
    """
    greater, less = _sizes(a)
    ratio = _ratio(greater, less)
    return greater * _call("sqrt", ratio.fma(ratio, 1.0))


# *** Functions ***


def _call(name: str, x: Value, *others: Value) -> Value:
    """An elementary function, or the square root."""
    if name == "sqrt":
        return x.intrinsic("sqrt")
    names = [v.name for v in (x, *others)]
    return Value(x.f, x.kind, elementary.call(x.f, name, x.kind, *names))


def _is_finite(x: Value) -> Value:
    return abs(x).compare("olt", math.inf)


def _exp(a: Pair) -> Pair:
    """exp(x) · (cos(y), sin(y)), of which exp(x) alone may overflow."""
    x, y = a
    is_large = x.compare("ogt", _LARGE[x.kind])
    power = _call("exp", is_large.choose(x * 0.5, x))
    factor = is_large.choose(power, 1.0)
    cosine, sine = _call("cos", y), _call("sin", y)
    is_infinite = abs(x).compare("oeq", math.inf) & _is_wild(y)
    cosine = is_infinite.choose(x.constant(1.0), cosine)
    sine = (is_infinite & x.compare("olt", 0.0)).choose(x.constant(0.0), sine)
    imag = (power * sine) * factor
    return Pair((power * cosine) * factor, y.compare("oeq", 0.0).choose(y, imag))


def _log(a: Pair) -> Pair:
    greater, less = _sizes(a)
    ratio = _ratio(greater, less)
    size = _call("log", greater) + _call("log1p", ratio * ratio) * 0.5
    return Pair(size, _call("arctan2", a.imag, a.real))


def _log1p(a: Pair) -> Pair:
    """The logarithm of 1 + a.

    Its real part is log1p(|1 + a|² - 1) / 2 for small numbers.
    """
    x, y = a
    near = _call("log1p", x.fma(x + 2.0, y * y)) * 0.5
    real, imag = _log(Pair(x + 1.0, y))
    is_small = abs(x).compare("olt", 0.5) & abs(y).compare("olt", 0.5)
    return Pair(is_small.choose(near, real), imag)


def _expm1(a: Pair) -> Pair:
    """The exponential less 1.

    Its real part is (exp(x) - 1) · cos(y) - 2 · sin²(y / 2), of which no term is near 1 for small numbers.
    """
    x, y = a
    power, sine = _exp(a), _call("sin", y * 0.5)
    near = _call("expm1", x) * _call("cos", y) - (sine * sine) * 2.0
    return Pair(x.compare("ogt", 1.0).choose(power.real - 1.0, near), power.imag)


def _sign(a: Pair) -> Pair:
    """The direction of a number; 0 for 0.

    If one part is infinite, the direction is an axis.
    """
    size, less = _sizes(a)
    ratio = _ratio(size, less)
    hypotenuse = _call("sqrt", ratio.fma(ratio, 1.0))
    is_zero, is_infinite = size.compare("oeq", 0.0), size.compare("oeq", math.inf)
    infinite = [abs(part).compare("oeq", math.inf) for part in a]
    both = infinite[0] & infinite[1]
    parts = []
    for part, is_end in zip(a, infinite, strict=True):
        end = is_end.choose(part.constant(1.0).signed_as(part), 0.0)
        found = is_infinite.choose(both.choose(part.constant(math.nan), end), part / size / hypotenuse)
        parts.append(is_zero.choose(part.constant(0.0), found))
    is_nan = hypotenuse.compare("uno", 0.0)
    return Pair(*(is_nan.choose(part.constant(math.nan), part) for part in parts))


def _power(a: Pair, b: Pair) -> Pair:
    """exp(b · log(a)); products of a if b is a whole number below 100."""
    zero, one = a.real.constant(0.0), a.real.constant(1.0)
    found = _exp(_multiply(b, _log(a)))
    size = abs(b.real)
    is_whole = b.imag.compare("oeq", 0.0) & size.compare("olt", 100.0)
    is_whole = is_whole & b.real.intrinsic("trunc").compare("oeq", b.real)
    count = is_whole.choose(size, 0.0).to("fptosi", "i32")
    product, square = Pair(one, zero), a
    for bit in range(7):
        is_set = (count & 1 << bit).compare("ne", 0)
        factor = _multiply(product, square) if bit else a
        product = _chosen(is_set, factor, product)
        square = _multiply(square, square)
    inverse = _divide(Pair(one, zero), product)
    whole = _chosen(b.real.compare("olt", 0.0), inverse, product)
    found = _chosen(is_whole, whole, found)
    is_zero = a.real.compare("oeq", 0.0) & a.imag.compare("oeq", 0.0)
    nan = one.constant(math.nan)
    of_zero = _chosen(b.real.compare("ogt", 0.0), Pair(zero, zero), Pair(nan, nan))
    is_none = b.real.compare("oeq", 0.0) & b.imag.compare("oeq", 0.0)
    return _chosen(is_none, Pair(one, zero), _chosen(is_zero, of_zero, found))


def _chosen(condition: Value, a: Pair, b: Pair) -> Pair:
    return Pair(*(condition.choose(x, y) for x, y in zip(a, b, strict=True)))


def _sqrt(a: Pair) -> Pair:
    """The root by the root of the greater part, so that no square overflows."""
    x, y = a
    greater, less = _sizes(a)
    ratio = _ratio(greater, less)
    hypotenuse = _call("sqrt", ratio.fma(ratio, 1.0))
    is_real = abs(x).compare("oge", abs(y))
    root = _call("sqrt", greater) * _call("sqrt", (is_real.choose(hypotenuse + 1.0, ratio + hypotenuse)) * 0.5)
    other = abs(y) / (root + root)
    other = root.compare("oeq", 0.0).choose(root, other)
    # of infinite parts
    is_infinite = abs(y).compare("oeq", math.inf)
    other = (abs(x).compare("oeq", math.inf) & _is_finite(y)).choose(x.constant(0.0), other)
    is_negative = Value(x.f, "i1", x.f.op(f"icmp slt {x.format.integer} {x.bits().name}, 0"))
    real, imag = is_negative.choose(other, root), is_negative.choose(root, other)
    both = x.constant(math.inf)
    return Pair(is_infinite.choose(both, real), is_infinite.choose(both, imag).signed_as(y))


def _hyperbolic(y: Value) -> tuple[Value, Value, Value]:
    """Numbers whose products with the third one are sinh(y) and cosh(y), which alone may overflow."""
    size = abs(y)
    is_large = size.compare("ogt", _LARGE[y.kind])
    below = _call("expm1", is_large.choose(size * 0.5, size))
    power = below + 1.0
    sinh = (below + below / power) * 0.5
    cosh = (power + 1.0 / power) * 0.5
    half = power * 0.5
    sinh = is_large.choose(half, size.compare("olt", _TINY[y.kind]).choose(size, sinh))
    return sinh.signed_as(y), is_large.choose(half, cosh), is_large.choose(power, 1.0)


def _sin(a: Pair) -> Pair:
    x, y = a
    sinh, cosh, factor = _hyperbolic(y)
    real, imag = (_call("sin", x) * cosh) * factor, (_call("cos", x) * sinh) * factor
    return Pair(x.compare("oeq", 0.0).choose(x, real), (y.compare("oeq", 0.0) & _is_wild(x)).choose(y, imag))


def _cos(a: Pair) -> Pair:
    x, y = a
    sinh, cosh, factor = _hyperbolic(y)
    real, imag = (_call("cos", x) * cosh) * factor, -((_call("sin", x) * sinh) * factor)
    is_zero = x.compare("oeq", 0.0) | (y.compare("oeq", 0.0) & _is_wild(x))
    return Pair(real, is_zero.choose((x.constant(0.0).signed_as(x) * y.constant(1.0).signed_as(y)) * -1.0, imag))


def _is_wild(x: Value) -> Value:
    return _is_finite(x) ^ 1


def _tanh(a: Pair) -> Pair:
    """(sinh(x) · cosh(x), sin(y) · cos(y)) divided by cos²(y) + sinh²(x)."""
    x, y = a
    limit = x.constant(_ENOUGH[x.kind])
    size = abs(x)
    is_large = size.compare("ogt", limit)
    sinh, cosh, _ = _hyperbolic(is_large.choose(limit, size))
    sine, cosine = _call("sin", y), _call("cos", y)
    divisor = cosine * cosine + sinh * sinh
    real, imag = sinh * cosh / divisor, sine * cosine / divisor
    is_infinite = size.compare("oeq", math.inf)
    real = x.compare("oeq", 0.0).choose(size, is_infinite.choose(x.constant(1.0), real))
    imag = (is_large & (is_infinite | _is_finite(y))).choose(x.constant(0.0).signed_as(imag), imag)
    return Pair(real.signed_as(x), y.compare("oeq", 0.0).choose(y, imag))


def _swapped(a: Pair) -> Pair:
    """i times the conjugate."""
    return Pair(a.imag, a.real)


def _cosh(a: Pair) -> Pair:
    turned = _cos(_swapped(a))
    return Pair(turned.real, -turned.imag)


# From here on the exponential is computed as a square.
_LARGE: Final = {"float": 80.0, "double": 700.0}
# Below this, sinh is the number itself.
_TINY: Final = {"float": 2.0**-13, "double": 2.0**-27}
# A number whose tanh is 1, and whose square of sinh is finite.
_ENOUGH: Final = {"float": 40.0, "double": 340.0}


#: Ufuncs that have the bits of numpy.
ARITHMETIC: Final[dict[np.ufunc, Callable[..., Pair | Value]]] = {
    np.add: _add,
    np.subtract: _subtract,
    np.multiply: _multiply,
    np.divide: _divide,
    np.negative: lambda a: Pair(-a.real, -a.imag),
    np.positive: lambda a: a,
    np.conjugate: lambda a: Pair(a.real, -a.imag),
    np.square: lambda a: _multiply(a, a),
    np.reciprocal: _reciprocal,
    np.absolute: _absolute,
    np.equal: _equal,
    np.not_equal: _not_equal,
    np.isnan: lambda a: a.real.compare("uno", a.imag),
    np.isfinite: lambda a: _is_finite(a.real) & _is_finite(a.imag),
    np.isinf: lambda a: abs(a.real).compare("oeq", math.inf) | abs(a.imag).compare("oeq", math.inf),
}

#: Other functions.
FUNCTIONS: Final[dict[np.ufunc, Callable[..., Pair]]] = {
    np.exp: _exp,
    np.expm1: _expm1,
    np.log: _log,
    np.log1p: _log1p,
    np.sign: _sign,
    np.power: _power,
    np.sqrt: _sqrt,
    np.sin: _sin,
    np.cos: _cos,
    np.tan: lambda a: _swapped(_tanh(_swapped(a))),
    np.sinh: lambda a: _swapped(_sin(_swapped(a))),
    np.cosh: _cosh,
    np.tanh: _tanh,
}


def writer(ufunc: np.ufunc, dtype: np.dtype) -> Callable[[Function, Sequence[str]], str] | None:
    """A function that prints a ufunc of complex numbers; None if there is none."""
    formula = ARITHMETIC.get(ufunc) or FUNCTIONS.get(ufunc)
    if formula is None:
        return None

    def write(f: Function, args: Sequence[str]) -> str:
        made = formula(*(parts_of(f, a, dtype) for a in args))
        return joined(f, [part.name for part in made], dtype) if isinstance(made, Pair) else made.name

    return write
