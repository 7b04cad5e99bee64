"""Elementwise arithmetic of two arguments that broadcast: sums, products, quotients, remainders, powers, bits.

Source: TensorFlow's ops of the same names. If a dtype needs no special treatment, the kernel is the array namespace's
function. Integer division by zero is an error, as in TensorFlow; float division by zero gives infinities and NaN.
"""

from __future__ import annotations

import cmath
import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from headrace import dtypes
from headrace.dtypes import (
    COMPLEX,
    FLOATING,
    INDEX,
    INEXACT,
    INTEGER,
    NUMERIC,
    REAL,
    SIGNED,
    UNSIGNED,
    DType,
    complex64,
    complex128,
    float32,
    float64,
    int32,
    uint8,
)
from headrace.errors import FailedPreconditionError, InternalError, InvalidArgumentError, OpError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, SYMMETRIC, Facts, case, flops_per_element, op, type_attr
from headrace.opkit.batch_rules import in_step
from headrace.opkit.elementwise import computed_in, conj, each, log1p, ufunc, widened
from headrace.opkit.jvp_rules import linear, multilinear, stretched
from headrace.opkit.namespaces import (
    complex_of,
    constant,
    converter,
    is_near,
    is_standard,
    listed,
    number,
    real_and_imag,
)
from headrace.opkit.shape_rules import broadcast, unbroadcast
from headrace.opkit.testing.samples import PAIRS, binary, draw
from headrace.shapes import Shape, merge, merge_dim, show, with_rank, with_rank_at_least


def _binary(
    type: str,
    types: frozenset[DType],
    kernel: Any,
    oracle: Any,
    sample: Any,
    doc: str,
    grad: Any,
    *,
    jvp: Any = SYMMETRIC,
    flops: float = 1,
    commutative: bool = False,
    total_for: frozenset[DType] | None = None,
    sum_sign: Literal[-1, 0, 1] = 0,
    args: str = "x: T, y: T",
) -> None:
    """Registers an elementwise op with two arguments.

    `oracle` is a function of two Python numbers, or a pair of them: for real and for complex numbers.
    """
    op(
        type,
        args,
        "z: T",
        {"T": type_attr(types)},
        shape=broadcast,
        kernel=kernel if callable(kernel) else ufunc(kernel),
        xp=True,
        grad=grad,
        jvp=jvp,
        facts=Facts(
            commutative=commutative,
            cost=flops_per_element(flops),
            total=(),
            total_for=total_for,
            sum_sign=sum_sign,
        ),
        oracle=each(*oracle) if isinstance(oracle, tuple) else each(oracle),
        sample=sample,
        doc=doc,
    )


# *** Kernels that differ from numpy's ufuncs ***


def _text(f: Any) -> Any:
    """A ufunc on arrays of bytes; its result is an array at rank 0 too."""

    def on_text(x: Any, y: Any) -> Any:
        return np.asarray(f(x, y), dtype=object)

    return on_text


def _add(xp: Any, attrs: Mapping[str, Any]) -> Any:
    return _text(np.add) if attrs["T"] is dtypes.string else xp.add


def _all_true(xp: Any, x: Any) -> bool:
    return bool(x.all() if xp is np else xp.all(x != 0))


def _checked(xp: Any, f: Any, error: type[OpError] = InvalidArgumentError) -> Any:
    """Integer division `f` with a check for zero divisors, which raise `error`."""
    fail_unless = getattr(xp, "fail_unless", None)  # of the namespace that records formulas

    def divide(x: Any, y: Any) -> Any:
        if fail_unless is not None:
            fail_unless(y != 0, error, "Integer division by zero")
        elif (xp is np or is_near(y)) and not (_all_true(xp, y) if y.ndim else y) and 0 not in x.shape:
            raise error("Integer division by zero")
        return f(x, y)

    return divide


def _floor_div(xp: Any, attrs: Mapping[str, Any]) -> Any:
    if attrs["T"] in INTEGER:
        return _checked(xp, xp.floor_divide)
    # numpy's floor_divide differs from the floor of an infinite or rounded quotient
    return lambda x, y: xp.floor(x / y)


def _truncate_div(xp: Any, attrs: Mapping[str, Any]) -> Any:
    if attrs["T"] in INTEGER:
        return _checked(xp, _quotient(xp, attrs), InternalError)
    return lambda x, y: xp.trunc(x / y)


def _quotient(xp: Any, attrs: Mapping[str, Any]) -> Any:
    """The quotient of integers, rounded towards zero."""
    if attrs["T"] in UNSIGNED:
        return xp.floor_divide
    fmod = _fmod_in(xp, attrs["T"])
    return lambda x, y: xp.floor_divide(x - fmod(x, y), y)


def _fmod_in(xp: Any, dtype: DType) -> Any:
    """The remainder with the sign of the dividend, which is no function of the standard."""
    if not is_standard(xp):
        return xp.fmod
    if dtype in UNSIGNED:
        return xp.remainder
    if dtype in FLOATING:
        return lambda x, y: xp.copysign(xp.remainder(abs(x), abs(y)), x)

    def of_integers(x: Any, y: Any) -> Any:
        r = xp.remainder(x, y)
        return xp.where((r != 0) & ((x < 0) != (y < 0)), r - y, r)

    return of_integers


def _div(xp: Any, attrs: Mapping[str, Any]) -> Any:
    return _checked(xp, _quotient(xp, attrs)) if attrs["T"] in INTEGER else xp.divide


def _floor_mod(xp: Any, attrs: Mapping[str, Any]) -> Any:
    return _checked(xp, xp.remainder) if attrs["T"] in INTEGER else xp.remainder


def _truncate_mod(error: type[OpError]) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        fmod = _fmod_in(xp, attrs["T"])
        return _checked(xp, fmod, error) if attrs["T"] in INTEGER else fmod

    return factory


def _pow(xp: Any, attrs: Mapping[str, Any]) -> Any:
    if not is_standard(xp) or attrs["T"] not in SIGNED:
        return xp.pow

    def of_integers(x: Any, y: Any) -> Any:
        if is_near(y) and bool(xp.any(y < 0)):
            raise ValueError("Integers to negative integer powers are not allowed.")  # as numpy
        return xp.pow(x, y)

    return of_integers


def _shift(name: str) -> Any:
    """A shift with its width clamped to [0, bits), since C leaves others undefined."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        shift, t = getattr(xp, name), attrs["T"]
        low, high = number(xp, 0, t), number(xp, 8 * t.size - 1, t)
        return lambda x, y: shift(x, xp.minimum(xp.maximum(y, low), high))

    return factory


def _zero_if(which: int, formula: Any) -> Any:
    """The kernel factory of `formula(xp, x, y)`, with 0 for elements whose argument `which` is 0."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        t = computed_in(attrs["T"])
        zero = number(xp, 0, t)
        compute = formula(xp, t)
        return widened(lambda *xy: xp.where(xy[which] == 0, zero, compute(*xy)), attrs["T"], xp)

    return factory


def _xlog1py(xp: Any, dtype: DType) -> Any:
    precise = log1p(xp, dtype)
    return lambda x, y: x * precise(y)


def _square_of_difference(xp: Any, attrs: Mapping[str, Any]) -> Any:
    t = attrs["T"]
    if t not in COMPLEX:

        def of_real(x: Any, y: Any) -> Any:
            d = x - y
            return d * d

        return widened(of_real, t, xp)

    to_complex = converter(xp, t)

    def of_complex(x: Any, y: Any) -> Any:
        real, imag = real_and_imag(xp, x - y)
        return to_complex(real * real + imag * imag)  # not d * conj(d), whose rounding leaves an imaginary part

    return of_complex


# *** Gradients ***


def _by_each(by_x: Any, by_y: Any) -> Any:
    """The gradient rule from `by_x(b, n, dy)` and `by_y(b, n, dy)`, each of the output's shape (or None: zero)."""

    def grad(b: Any, n: Any, dy: Any) -> list[Any]:
        gx, gy = (by and functools.partial(by, b, n, dy) for by in (by_x, by_y))
        return unbroadcast(b, n.inputs[0], n.inputs[1], gx, gy)

    return grad


def _same(b: Any, n: Any, dy: Any) -> Any:
    return dy


def _if_else(b: Any, mask: Any, dy: Any, other: bool = False) -> Any:
    """`dy` at the true (with `other`, false) elements of the mask, else 0."""
    zero = b.ZerosLike(dy)
    return b.SelectV2(mask, zero, dy) if other else b.SelectV2(mask, dy, zero)


def _larger(name: str) -> Any:
    """The gradient of Maximum or Minimum.

    Each element of `dy` goes to `x` where the comparison `name(x, y)` holds, and to `y` elsewhere.
    """

    def grad(b: Any, n: Any, dy: Any) -> list[Any]:
        mask = getattr(b, name)(n.x, n.y)
        return unbroadcast(b, n.x, n.y, lambda: _if_else(b, mask, dy), lambda: _if_else(b, mask, dy, other=True))

    return grad


def _pow_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    x = conj(b, n.x)

    def by_x() -> Any:
        y = conj(b, n.y)
        return b.Mul(dy, b.Mul(y, b.Pow(x, b.Sub(y, 1))))

    def by_y() -> Any:
        zero = b.ZerosLike(x)
        safe = b.NotEqual(x, zero) if x.dtype.is_complex else b.Greater(x, zero)  # elsewhere there is no derivative
        log = b.SelectV2(safe, b.Log(b.SelectV2(safe, x, b.OnesLike(x))), zero)
        return b.Mul(dy, b.Mul(conj(b, n.z), log))

    return unbroadcast(b, n.x, n.y, by_x, by_y)


def _quotient_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    if n.attrs["T"] in INTEGER:
        return [None, None]
    by_x = b.RealDiv(dy, conj(b, n.y))
    return unbroadcast(b, n.x, n.y, lambda: by_x, lambda: b.Neg(b.Mul(by_x, conj(b, n.z))))


def _sum_jvp(sign: int) -> Any:
    """The tangents of a sum, or of a difference."""

    def jvp(b: Any, n: Any, dx: Any, dy: Any) -> list[Any]:
        if dx is not None and dy is not None:
            return [b.AddV2(dx, dy) if sign > 0 else b.Sub(dx, dy)]
        if dx is None:
            dx = dy if sign > 0 else b.Neg(dy)
        return [stretched(b, dx, n.z)]

    return jvp


def _quotient_jvp(b: Any, n: Any, dx: Any, dy: Any) -> list[Any]:
    less = None if dy is None else b.Mul(n.z, dy)
    if dx is None:
        return [b.Neg(b.RealDiv(less, n.y))]
    return [b.RealDiv(dx if less is None else b.Sub(dx, less), n.y)]


def _no_nan_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    by_x = b.DivNoNan(dy, conj(b, n.y))
    return unbroadcast(b, n.x, n.y, lambda: by_x, lambda: b.Neg(b.Mul(by_x, conj(b, n.z))))


def _atan2_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    scaled = b.RealDiv(dy, b.AddV2(b.Square(n.x), b.Square(n.y)))
    return unbroadcast(b, n.y, n.x, lambda: b.Mul(n.x, scaled), lambda: b.Neg(b.Mul(n.y, scaled)))


def _nonzero(b: Any, x: Any) -> Any:
    """1 for nonzero elements of `x`, else 0."""
    return b.Cast(b.NotEqual(x, b.ZerosLike(x)), DstT=x.dtype)


def _x_by(name: str, inner: Any) -> Any:
    """The gradient of Xdivy, Xlogy or Xlog1py.

    The derivative by `x` is the op's value at x = 1 (0 where x is 0); `inner` builds the derivative by `y`.
    """

    def grad(b: Any, n: Any, dy: Any) -> list[Any]:
        x, y = conj(b, n.x), conj(b, n.y)
        return unbroadcast(
            b,
            n.x,
            n.y,
            lambda: b.Mul(dy, getattr(b, name)(_nonzero(b, x), y)),
            lambda: b.Mul(dy, inner(b, x, y)),
        )

    return grad


# *** Oracles: the same functions on Python numbers ***


def _toward_zero(x: int, y: int) -> int:
    q = abs(x) // abs(y)
    return q if (x < 0) == (y < 0) else -q


def _power(x: Any, y: Any) -> Any:
    return x**y


def _div_oracle(x: Any, y: Any) -> Any:
    return _toward_zero(x, y) if isinstance(x, int) else x / y


def _truncate_oracle(x: Any, y: Any) -> Any:
    return _toward_zero(x, y) if isinstance(x, int) else math.trunc(x / y)


def _fmod(x: Any, y: Any) -> Any:
    return x - y * _toward_zero(x, y) if isinstance(x, int) else math.fmod(x, y)


def _next_after(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The next float, by one step of its bits read as an integer."""
    x, y = np.broadcast_arrays(x, y)
    bits = x.view(f"i{x.itemsize}") + np.where(x < y, 1, -1)
    return np.where(x == y, x, bits.astype(f"i{x.itemsize}").view(x.dtype))


# *** Samples ***


def _apart(rng: np.random.Generator, dtype: DType) -> list[Any]:
    """Cases whose second argument is not 0, with integers of both signs."""
    out = []
    for s, t in PAIRS:
        y = draw(rng, dtype, t, 1, 5)
        if dtype not in UNSIGNED and y.size:
            y = y * np.where(rng.integers(0, 2, t), -1, 1).astype(y.dtype)
        out.append(case(draw(rng, dtype, s, -20, 20), np.asarray(y, dtype.numpy)))
    return out


def _some_zeros(sample: Any, which: int) -> Any:
    """Cases of `sample`, and cases with zeros in argument `which` and in both."""

    def drawn(rng: np.random.Generator, dtype: DType) -> list[Any]:
        with_zeros, other = (np.array(v).astype(dtype.numpy) for v in ([0, 0, 1, 2], [0, 1, 3, 2]))
        return [*sample(rng, dtype), case(other, with_zeros) if which else case(with_zeros, other)]

    return drawn


def _powers(rng: np.random.Generator, dtype: DType) -> list[Any]:
    if dtype in INTEGER:
        return list(binary(-3, 4, 0, 4)(rng, dtype))
    return list(binary(0.2, 3, -2, 2)(rng, dtype))


_ANY = binary()
_POSITIVE = binary(0.5, 3)

# fmt: off
_binary("Add", NUMERIC - UNSIGNED | {uint8, dtypes.string}, _add, lambda x, y: x + y, _ANY,
        "The sum; for strings the concatenation.", _by_each(_same, _same), jvp=_sum_jvp(+1), sum_sign=1)
_binary("AddV2", NUMERIC, "add", lambda x, y: x + y, _ANY, "The sum.", _by_each(_same, _same),
        jvp=_sum_jvp(+1), commutative=True, sum_sign=1)
_binary("Sub", NUMERIC, "subtract", lambda x, y: x - y, binary(3, 6, 0, 3), "The difference.",
        _by_each(_same, lambda b, n, dy: b.Neg(dy)), jvp=_sum_jvp(-1), sum_sign=-1)
_binary("Mul", NUMERIC, "multiply", lambda x, y: x * y, _ANY, "The product.",
        _by_each(lambda b, n, dy: b.Mul(dy, conj(b, n.y)), lambda b, n, dy: b.Mul(dy, conj(b, n.x))),
        jvp=multilinear("x", "y"), commutative=True)
_binary("RealDiv", INEXACT, "divide", lambda x, y: x / y, _apart, "The quotient.", _quotient_grad, jvp=_quotient_jvp,
        flops=4)
_binary("Div", NUMERIC, _div, _div_oracle, _apart, "The quotient; for integers rounded towards zero.",
        _quotient_grad, jvp=_quotient_jvp, flops=4, total_for=INEXACT)
_binary("FloorDiv", REAL, _floor_div, lambda x, y: x // y if isinstance(x, int) else math.floor(x / y), _apart,
        "The quotient rounded towards negative infinity.", NOT_DIFFERENTIABLE, flops=6, total_for=INEXACT)
_binary("TruncateDiv", REAL, _truncate_div, _truncate_oracle, _apart, "The quotient rounded towards zero.",
        NOT_DIFFERENTIABLE, flops=6, total_for=INEXACT)
_binary("FloorMod", REAL, _floor_mod, lambda x, y: x % y, _apart, "The remainder of FloorDiv; it has the sign of `y`.",
        _by_each(_same, lambda b, n, dy: b.Neg(b.Mul(dy, b.FloorDiv(n.x, n.y)))), flops=6,
        total_for=INEXACT)
_binary("TruncateMod", FLOATING | INDEX, _truncate_mod(InternalError), _fmod, _apart,
        "The remainder of TruncateDiv; it has the sign of `x`.",
        _by_each(_same, lambda b, n, dy: b.Neg(b.Mul(dy, b.TruncateDiv(n.x, n.y)))), flops=6,
        total_for=INEXACT)
_binary("Mod", FLOATING | INDEX, _truncate_mod(InvalidArgumentError), _fmod, _apart,
        "TruncateMod under its older name.",
        _by_each(_same, lambda b, n, dy: b.Neg(b.Mul(dy, b.TruncateDiv(n.x, n.y)))), flops=6,
        total_for=INEXACT)
_binary("DivNoNan", INEXACT, _zero_if(1, lambda xp, t: operator.truediv), lambda x, y: x / y if y else 0,
        _some_zeros(_apart, 1), "The quotient, 0 where `y` is 0.", _no_nan_grad, flops=5)
_binary("MulNoNan", INEXACT, _zero_if(1, lambda xp, t: operator.mul), lambda x, y: x * y if y else 0,
        _some_zeros(_ANY, 1), "The product, 0 where `y` is 0 even if `x` is infinite or NaN.",
        _by_each(lambda b, n, dy: b.MulNoNan(dy, conj(b, n.y)), lambda b, n, dy: b.MulNoNan(conj(b, n.x), dy)), flops=2)
_binary("Pow", INEXACT | SIGNED, _pow, _power, _powers, "`x` to the power of `y`.", _pow_grad, flops=20,
        total_for=INEXACT)
_binary("Maximum", REAL, "maximum", max, _ANY, "The larger one; NaN if one is.", _larger("GreaterEqual"),
        commutative=True)
_binary("Minimum", REAL, "minimum", min, _ANY, "The smaller one; NaN if one is.", _larger("LessEqual"),
        commutative=True)
_binary("SquaredDifference", INEXACT | INDEX, _square_of_difference, lambda x, y: abs(x - y) ** 2,
        _ANY, "(x - y)²; for complex numbers |x - y|².",
        _by_each(lambda b, n, dy: b.Mul(b.Mul(dy, 2), b.Sub(n.x, n.y)),
                 lambda b, n, dy: b.Mul(b.Mul(dy, -2), b.Sub(n.x, n.y))), flops=2, commutative=True)
_binary("Atan2", FLOATING, "atan2", math.atan2, _apart, "The angle of the point (x, y), in radians.", _atan2_grad,
        flops=20, args="y: T, x: T")
_binary("Xdivy", INEXACT, _zero_if(0, lambda xp, t: operator.truediv), lambda x, y: x / y if x else 0,
        _some_zeros(_apart, 0), "x / y, 0 where `x` is 0.",
        _x_by("Xdivy", lambda b, x, y: b.Xdivy(b.Neg(x), b.Square(y))), flops=5)
_binary("Xlogy", INEXACT, _zero_if(0, lambda xp, t: lambda x, y: x * xp.log(y)),
        (lambda x, y: x * math.log(y) if x else 0, lambda x, y: x * cmath.log(y) if x else 0), _POSITIVE,
        "x log(y), 0 where `x` is 0.", _x_by("Xlogy", lambda b, x, y: b.Xdivy(x, y)), flops=10)
_binary("Xlog1py", INEXACT, _zero_if(0, _xlog1py),
        (lambda x, y: x * math.log1p(y) if x else 0, lambda x, y: x * cmath.log(1 + y) if x else 0), _POSITIVE,
        "x log(1 + y), 0 where `x` is 0.", _x_by("Xlog1py", lambda b, x, y: b.Xdivy(x, b.AddV2(y, 1))), flops=12)
_binary("BitwiseAnd", INTEGER, "bitwise_and", lambda x, y: x & y, _ANY, "The bits set in both.", NOT_DIFFERENTIABLE,
        commutative=True)
_binary("BitwiseOr", INTEGER, "bitwise_or", lambda x, y: x | y, _ANY, "The bits set in one or both.",
        NOT_DIFFERENTIABLE, commutative=True)
_binary("BitwiseXor", INTEGER, "bitwise_xor", lambda x, y: x ^ y, _ANY, "The bits set in just one.",
        NOT_DIFFERENTIABLE, commutative=True)
_binary("LeftShift", INTEGER, _shift("bitwise_left_shift"), lambda x, y: x << y, binary(-2, 2, 0, 5),
        "`x` shifted left by `y` bits, `y` clamped to [0, bits of T).", NOT_DIFFERENTIABLE)
_binary("RightShift", INTEGER, _shift("bitwise_right_shift"), lambda x, y: x >> y, binary(-99, 99, 0, 7),
        "`x` shifted right by `y` bits with its sign kept, `y` clamped to [0, bits of T).", NOT_DIFFERENTIABLE)
# fmt: on


# *** Other functions of two arguments ***


op(
    "NextAfter",
    "x1: T, x2: T",
    "output: T",
    {"T": type_attr({float32, float64}, float32)},
    shape=broadcast,
    kernel=ufunc("nextafter"),
    xp=True,
    grad=_by_each(_same, None),
    jvp=SYMMETRIC,
    facts=Facts(cost=flops_per_element(4)),
    oracle=_next_after,
    sample=_POSITIVE,
    doc="The next number after `x1` in the direction of `x2`.",
)


def _complex_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    out = complex64 if dtype is float32 else complex128
    return [case(*c.inputs, Tout=out) for c in _ANY(rng, dtype)]


op(
    "Complex",
    "real: T, imag: T",
    "out: Tout",
    {"T": type_attr({float32, float64}, float32), "Tout": type_attr(COMPLEX, complex64)},
    shape=broadcast,
    kernel=lambda xp, attrs: lambda real, imag: complex_of(xp, real, imag, attrs["Tout"]),
    xp=True,
    grad=lambda b, n, dy: unbroadcast(
        b, n.real, n.imag, lambda: b.Real(dy, Tout=n.attrs["T"]), lambda: b.Imag(dy, Tout=n.attrs["T"])
    ),
    jvp=linear("real", "imag"),
    facts=Facts(cost=flops_per_element(2)),
    oracle=lambda x, y, Tout: each(complex, out=Tout.numpy)(x, y),
    sample=_complex_samples,
    doc="Complex numbers from their parts.",
)


def _cross(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(a: Any, b: Any) -> Any:
        if a.shape != b.shape:
            raise InvalidArgumentError(f"Both inputs must be of same shape: {show(a.shape)} vs. {show(b.shape)}")
        if not a.ndim:
            raise InvalidArgumentError("Input must be at least 1D, got []")
        if a.shape[-1] != 3:
            raise FailedPreconditionError(
                f"Cross-products are only defined for 3-element vectors, got the shape {show(a.shape)}"
            )
        a0, a1, a2 = (a[..., i] for i in range(3))
        b0, b1, b2 = (b[..., i] for i in range(3))
        return xp.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis=-1)

    return kernel


def _cross_shape(c: Inference) -> Sequence[Shape]:
    shape = with_rank_at_least(merge(c.shapes[0], c.shapes[1]), 1)
    if shape is not None:
        merge_dim(shape[-1], 3)
    return [shape]


def _cross_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    low = 5 if dtype in UNSIGNED else -3
    return [case(draw(rng, dtype, (*s, 3), low, 9), draw(rng, dtype, (*s, 3), -3, 3)) for s in ((), (2,), (2, 2), (0,))]


def _cross_oracle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = np.cross(a.astype(np.int64 if a.dtype.kind in "iu" else np.float64), b.astype(np.float64))
    return wide.astype(np.int64).astype(a.dtype) if a.dtype.kind in "iu" else wide.astype(a.dtype)


op(
    "Cross",
    "a: T, b: T",
    "product: T",
    {"T": REAL},
    shape=_cross_shape,
    kernel=_cross,
    xp=True,
    grad=lambda b, n, dy: [lambda: b.Cross(n.b, dy), lambda: b.Cross(dy, n.a)],
    jvp=multilinear("a", "b"),
    batch=in_step,
    facts=Facts(cost=flops_per_element(3)),
    oracle=_cross_oracle,
    sample=_cross_samples,
    doc="The cross product of the vectors of three elements along the last dimension.",
)


def _broadcast_gradient_args(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]
    nothing = np.empty(0, dtype.numpy)

    def kernel(s0: Any, s1: Any) -> Any:
        for i, s in enumerate((s0, s1)):
            if s.ndim != 1:
                raise InvalidArgumentError(f"In[{i}] must be a vector, got the shape {show(s.shape)}")
        a, b = listed(s0), listed(s1)
        if a == b:
            none = nothing if xp is np else constant(xp, [], dtype, s0)
            return none, none
        rank = max(len(a), len(b))
        a, b = [1] * (rank - len(a)) + a, [1] * (rank - len(b)) + b
        if any(x != y and x != 1 and y != 1 for x, y in zip(a, b, strict=True)):
            raise InvalidArgumentError(f"Incompatible shapes: {show(tuple(listed(s0)))} vs. {show(tuple(listed(s1)))}")
        r0, r1 = ([i for i, d in enumerate(s) if d == 1] for s in (a, b))
        return constant(xp, r0, dtype, s0), constant(xp, r1, dtype, s0)

    return kernel


def _two_vectors(c: Inference) -> Sequence[Shape]:
    for s in c.shapes:
        with_rank(s, 1)
    return [(None,), (None,)]


def _stretched_oracle(s0: np.ndarray, s1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each shape its dimensions of size 1 in the broadcast shape; none if equal."""
    out = np.broadcast_shapes(tuple(s0), tuple(s1))
    if s0.tolist() == s1.tolist():
        return s0[:0], s1[:0]
    both = []
    for s in (s0, s1):
        padded = [1] * (len(out) - s.size) + s.tolist()
        both.append(np.array([i for i in range(len(out)) if padded[i] == 1], s.dtype))
    return both[0], both[1]


def _shape_vectors(rng: np.random.Generator, dtype: DType) -> list[Any]:
    pairs = [*PAIRS, ((2, 1), (1, 1)), ((2, 3, 1), (3, 4)), ((), (2, 1, 0))]
    return [case(np.array(s, dtype.numpy), np.array(t, dtype.numpy)) for s, t in pairs]


op(
    "BroadcastGradientArgs",
    "s0: T, s1: T",
    "r0: T, r1: T",
    {"T": type_attr(INDEX, int32)},
    shape=_two_vectors,
    kernel=_broadcast_gradient_args,
    xp=True,
    host=("s0", "s1"),
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True),
    oracle=_stretched_oracle,
    sample=_shape_vectors,
    doc="The dimensions over which the gradients of two broadcast shapes are summed.",
)
