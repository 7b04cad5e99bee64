"""Elementwise functions of one argument: arithmetic, exponentials, trigonometry, rounding, complex parts.

Source: TensorFlow's ops of the same names. Gradients of functions of a complex argument are `dy · conj(f'(x))`.
"""

from __future__ import annotations

import cmath
import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.dtypes import (
    COMPLEX,
    FLOATING,
    INEXACT,
    INTEGER,
    NUMERIC,
    SIGNED,
    DType,
    complex64,
    float32,
    float64,
    uint8,
)
from headrace.ir.opdef import NOT_DIFFERENTIABLE, SYMMETRIC, Facts, case, flops_per_element, op, type_attr
from headrace.opkit.elementwise import (
    alike,
    composed,
    conj,
    each,
    log1p,
    over,
    require_same_shape,
    times,
    ufunc,
    widened,
)
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import converter, is_standard
from headrace.opkit.shape_rules import same_as
from headrace.opkit.testing.samples import draw, unary


def _rint(xp: Any, attrs: Mapping[str, Any]) -> Any:
    return xp.round if is_standard(xp) else xp.rint  # numpy's `round` is no ufunc


def _round(xp: Any, attrs: Mapping[str, Any]) -> Any:
    return (lambda x: x) if attrs["T"] in INTEGER else _rint(xp, attrs)


def _function(
    type: str,
    types: frozenset[DType],
    kernel: Any,
    oracle: Any,
    low: float,
    high: float,
    flops: float,
    doc: str,
    grad: Any,
    within: tuple[float, float] | None = None,
) -> None:
    """Registers one function; its samples are in [low, high)."""
    op(
        type,
        "x: T",
        "y: T",
        {"T": type_attr(types)},
        shape=same_as(0),
        kernel=kernel if callable(kernel) else ufunc(kernel),
        xp=True,
        grad=grad,
        jvp=SYMMETRIC,
        facts=Facts(cost=flops_per_element(flops), total=(), within=within),
        oracle=oracle,
        sample=unary(low, high),
        doc=doc,
    )


def _python(name: str) -> Any:
    """The oracle of a function of `math` and `cmath`."""
    return each(getattr(math, name), getattr(cmath, name))


_SIGN = each(lambda x: (x > 0) - (x < 0), lambda x: x / abs(x) if x else x)
_RSQRT = each(lambda x: 1 / math.sqrt(x), lambda x: 1 / cmath.sqrt(x))
_SIGMOID = each(lambda x: 1 / (1 + math.exp(-x)), lambda x: 1 / (1 + cmath.exp(-x)))
_EXPM1 = each(math.expm1, lambda x: cmath.exp(x) - 1)
_LOG1P = each(math.log1p, lambda x: cmath.log(1 + x))


# fmt: off
_function("Abs", FLOATING | SIGNED, "abs", each(abs), -3, 3, 1, "The absolute value.",
          times(lambda b, n: b.Sign(n.x)))
_function("Neg", INEXACT | SIGNED, "negative", each(lambda x: -x), -3, 3, 1, "The negative.",
          lambda b, n, dy: [b.Neg(dy)])
_function("Sign", INEXACT | SIGNED, "sign", _SIGN, -3, 3, 1, "-1, 0 or 1; for a complex number x / |x|.",
          lambda b, n, dy: [b.ZerosLike(n.x)])
_function("Square", NUMERIC, "square", each(lambda x: x * x), -3, 3, 1, "The square.",
          times(lambda b, n: b.Mul(n.x, 2)))
_function("Sqrt", INEXACT, "sqrt", _python("sqrt"), 0.1, 9, 4, "The square root.",
          lambda b, n, dy: [b.SqrtGrad(n.y, dy)])
_function("Rsqrt", INEXACT, composed(lambda xp, x: xp.reciprocal(xp.sqrt(x))), _RSQRT, 0.1, 9, 8, "1 / sqrt(x).",
          lambda b, n, dy: [b.RsqrtGrad(n.y, dy)])
_function("Reciprocal", INEXACT, "reciprocal", each(lambda x: 1 / x), 0.3, 3, 4, "1 / x.",
          lambda b, n, dy: [b.ReciprocalGrad(n.y, dy)])
_function("Inv", INEXACT, "reciprocal", each(lambda x: 1 / x), 0.3, 3, 4, "1 / x (an old name).",
          lambda b, n, dy: [b.InvGrad(n.y, dy)])
_function("Exp", INEXACT, "exp", _python("exp"), -3, 3, 8, "e to the power of x.",
          times(lambda b, n: n.y))
_function("Expm1", INEXACT, "expm1", _EXPM1, -3, 3, 10, "exp(x) - 1, precise for small x.",
          times(lambda b, n: b.AddV2(n.y, 1)))
_function("Log", INEXACT, "log", _python("log"), 0.1, 9, 8, "The natural logarithm.",
          over(lambda b, n: n.x))
_function("Log1p", INEXACT, lambda xp, attrs: log1p(xp, attrs["T"]), _LOG1P, -0.9, 3, 10,
          "log(1 + x), precise for small x.", over(lambda b, n: b.AddV2(n.x, 1)))
_function("Sin", INEXACT, "sin", _python("sin"), -3, 3, 8, "The sine.",
          times(lambda b, n: b.Cos(n.x)), (-1, 1))
_function("Cos", INEXACT, "cos", _python("cos"), -3, 3, 8, "The cosine.",
          times(lambda b, n: b.Neg(b.Sin(n.x))), (-1, 1))
_function("Tan", INEXACT, "tan", _python("tan"), -1.3, 1.3, 12, "The tangent.",
          times(lambda b, n: b.AddV2(b.Square(n.y), 1)))
_function("Asin", INEXACT, "asin", _python("asin"), -0.9, 0.9, 12, "The arc sine.",
          over(lambda b, n: b.Sqrt(b.Sub(1, b.Square(n.x)))))
_function("Acos", INEXACT, "acos", _python("acos"), -0.9, 0.9, 12, "The arc cosine.",
          over(lambda b, n: b.Neg(b.Sqrt(b.Sub(1, b.Square(n.x))))))
_function("Atan", INEXACT, "atan", _python("atan"), -0.9, 0.9, 12, "The arc tangent.",
          over(lambda b, n: b.AddV2(b.Square(n.x), 1)))
_function("Sinh", INEXACT, "sinh", _python("sinh"), -3, 3, 12, "The hyperbolic sine.",
          times(lambda b, n: b.Cosh(n.x)))
_function("Cosh", INEXACT, "cosh", _python("cosh"), -3, 3, 12, "The hyperbolic cosine.",
          times(lambda b, n: b.Sinh(n.x)))
_function("Tanh", INEXACT, "tanh", _python("tanh"), -3, 3, 12, "The hyperbolic tangent.",
          lambda b, n, dy: [b.TanhGrad(conj(b, n.y), dy)], (-1, 1))
_function("Asinh", INEXACT, "asinh", _python("asinh"), -3, 3, 14, "The inverse of the hyperbolic sine.",
          over(lambda b, n: b.Cosh(n.y)))
_function("Acosh", INEXACT, "acosh", _python("acosh"), 1.1, 3, 14, "The inverse of the hyperbolic cosine.",
          over(lambda b, n: b.Sinh(n.y)))
_function("Atanh", INEXACT, "atanh", _python("atanh"), -0.9, 0.9, 14, "The inverse of the hyperbolic tangent.",
          over(lambda b, n: b.Sub(1, b.Square(n.x))))
_function("Sigmoid", INEXACT, composed(lambda xp, x: xp.reciprocal(xp.exp(-x) + 1)), _SIGMOID, -3, 3, 12,
          "1 / (1 + exp(-x)).",
          lambda b, n, dy: [b.SigmoidGrad(conj(b, n.y), dy)], (0, 1))
_function("Floor", FLOATING, "floor", each(math.floor), -3, 3, 1, "The greatest integer not above x.",
          NOT_DIFFERENTIABLE)
_function("Ceil", FLOATING, "ceil", each(math.ceil), -3, 3, 1, "The least integer not below x.",
          NOT_DIFFERENTIABLE)
_function("Rint", FLOATING, _rint, each(round), -3, 3, 1, "The nearest integer; halves round to even.",
          NOT_DIFFERENTIABLE)
_function("Round", FLOATING | SIGNED, _round, each(round), -3, 3, 1, "The nearest integer; halves round to even.",
          NOT_DIFFERENTIABLE)
_function("Invert", INTEGER, "bitwise_invert", each(lambda x: ~x), -9, 9, 1, "The bitwise complement of the integer.",
          NOT_DIFFERENTIABLE)
# fmt: on


# *** Tests of numbers ***

# the columns of the tables below
_jvp: Any
_formula: Any
_grad: Any
_oracle: Any


def _strange(rng: np.random.Generator, dtype: DType) -> list[Any]:
    if dtype not in FLOATING:
        return []
    x = np.array([[1.5, np.nan, -np.inf], [np.inf, -0.0, -2.0]]).astype(dtype.numpy)
    return [case(x), case(x[0, 1]), case(x[:0])]


for _type, _kernel, _oracle, _doc in (
    ("IsNan", ufunc("isnan"), each(math.isnan, out=np.bool_), "Whether x is NaN."),
    ("IsInf", ufunc("isinf"), each(math.isinf, out=np.bool_), "Whether it is infinite."),
    ("IsFinite", ufunc("isfinite"), each(math.isfinite, out=np.bool_), "Whether x is finite."),
):
    op(
        _type,
        "x: T",
        "y: bool",
        {"T": FLOATING},
        shape=same_as(0),
        kernel=_kernel,
        xp=True,
        grad=NOT_DIFFERENTIABLE,
        facts=Facts(cost=flops_per_element(1), total=()),
        oracle=_oracle,
        sample=_strange,
        doc=_doc,
    )


def _bools(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(rng.integers(0, 2, s).astype(np.bool_)) for s in ((), (3,), (2, 3), (0,))]


op(
    "LogicalNot",
    "x: bool",
    "y: bool",
    shape=same_as(0),
    kernel=ufunc("logical_not"),
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_element(1), total=()),
    oracle=each(lambda x: not x),
    sample=_bools,
    doc="Whether it does not hold.",
)


# *** Derivatives of the functions above, as functions of their result ***
#
# As in TensorFlow, those of Sqrt, Rsqrt and Reciprocal conjugate a complex `y` themselves, those of Tanh and Sigmoid
# want it conjugated.


def _of_result(formula: Any, conjugates: bool) -> Any:
    """The kernel factory of `formula(y, dy)`, which checks that both have one shape."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        compute = widened(formula, attrs["T"], xp)
        turns = conjugates and attrs["T"] in COMPLEX

        def kernel(y: Any, dy: Any) -> Any:
            if y.shape != dy.shape:
                require_same_shape(y, dy, "a derivative")
            return compute(xp.conj(y) if turns else y, dy)

        return kernel

    return factory


def _tanh_grad(b: Any, n: Any, g: Any) -> list[Any]:
    y = conj(b, n.y)
    return [lambda: b.Mul(b.Mul(g, -2), b.Mul(y, conj(b, n.dy))), lambda: b.TanhGrad(y, g)]


def _sigmoid_grad(b: Any, n: Any, g: Any) -> list[Any]:
    y = conj(b, n.y)
    return [lambda: b.Mul(b.Mul(g, conj(b, n.dy)), b.Sub(1, b.Mul(y, 2))), lambda: b.SigmoidGrad(y, g)]


def _sqrt_grad(b: Any, n: Any, g: Any) -> list[Any]:
    by_y = b.RealDiv(g, n.y)
    return [lambda: b.Neg(b.Mul(conj(b, by_y), n.z)), lambda: b.Mul(by_y, 0.5)]


def _rsqrt_grad(b: Any, n: Any, g: Any) -> list[Any]:
    y = conj(b, n.y)
    return [lambda: b.Mul(b.Mul(conj(b, g), -1.5), b.Mul(n.dy, b.Square(y))), lambda: b.RsqrtGrad(y, g)]


def _inverse_grad(b: Any, n: Any, g: Any) -> list[Any]:
    y = conj(b, n.y)
    return [lambda: b.Mul(b.Mul(conj(b, g), -2), b.Mul(n.dy, y)), lambda: b.ReciprocalGrad(y, g)]


def _conjugating(formula: Any) -> Any:
    return each(formula, lambda y, dy: formula(y.conjugate(), dy))


def _pairs(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(draw(rng, dtype, s, 0.2, 0.9), draw(rng, dtype, s)) for s in ((), (3,), (2, 3), (0, 2))]


# fmt: off
for _type, _formula, _conjugates, _grad, _slope in (
    ("TanhGrad", lambda y, dy: dy * (1 - y * y), False, _tanh_grad,
     lambda b, y: b.Sub(1, b.Square(y))),
    ("SigmoidGrad", lambda y, dy: dy * y * (1 - y), False, _sigmoid_grad,
     lambda b, y: b.Mul(y, b.Sub(1, y))),
    ("SqrtGrad", lambda y, dy: dy * 0.5 / y, True, _sqrt_grad, None),
    ("RsqrtGrad", lambda y, dy: dy * -0.5 * (y * y * y), True, _rsqrt_grad, None),
    ("ReciprocalGrad", lambda y, dy: -dy * y * y, True, _inverse_grad, None),
    ("InvGrad", lambda y, dy: -dy * y * y, True, _inverse_grad, None),
):
    op(
        _type,
        "y: T, dy: T",
        "z: T",
        {"T": INEXACT},
        shape=alike,
        kernel=_of_result(_formula, _conjugates),
        xp=True,
        grad=_grad,
        jvp=SYMMETRIC,
        facts=Facts(cost=flops_per_element(4), total=(), slope=_slope),
        oracle=_conjugating(_formula) if _conjugates else each(_formula),
        sample=_pairs,
        doc=f"The gradient of {_type.removesuffix('Grad')}, whose result is `y`.",
    )
# fmt: on


def _ones(xp: Any, attrs: Mapping[str, Any]) -> Any:
    if not is_standard(xp):
        unsigned = f"u{attrs['T'].size}"  # numpy counts the bits of the absolute value
        return lambda x: xp.bitwise_count(x.view(unsigned))
    bits = 8 * attrs["T"].size
    narrow = converter(xp, uint8)

    def kernel(x: Any) -> Any:
        return narrow(sum(((x >> i) & 1 for i in range(1, bits)), x & 1))

    return kernel


op(
    "PopulationCount",
    "x: T",
    "y: uint8",
    {"T": INTEGER},
    shape=same_as(0),
    kernel=_ones,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_element(2), total=()),
    oracle=lambda x: np.array([f"{int(v) % 2 ** (8 * x.itemsize):b}".count("1") for v in x.flat], np.uint8).reshape(
        x.shape
    ),
    sample=unary(-9, 9),
    doc="The number of bits of each integer that are 1.",
)

# *** Parts of complex numbers ***

_PARTS = {"T": type_attr(COMPLEX, complex64), "Tout": type_attr({float32, float64}, float32)}


def _angle(xp: Any) -> Any:
    if is_standard(xp):
        return lambda x: xp.atan2(xp.imag(x), xp.real(x))
    return lambda x: xp.atan2(x.imag, x.real)


def _part(formula: Any) -> Any:
    """The kernel factory of a real function `formula(xp)` of complex numbers, with output dtype `Tout`."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        compute = formula(xp)
        if attrs["Tout"].size * 2 == attrs["T"].size:
            return compute
        convert = converter(xp, attrs["Tout"])
        return lambda x: convert(compute(x))

    return factory


def _with_tout(rng: np.random.Generator, dtype: DType) -> list[Any]:
    real = float32 if dtype is complex64 else float64
    return [case(draw(rng, dtype, s), Tout=real) for s in ((), (3,), (2, 3), (0, 2))]


def _real_oracle(f: Any) -> Any:
    return lambda x, Tout: each(f, out=Tout.numpy)(x)


def _as_complex(b: Any, n: Any, x: Any) -> Any:
    return b.Cast(x, DstT=n.attrs["T"])


def _abs_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [b.DivNoNan(b.Mul(_as_complex(b, n, dy), n.x), _as_complex(b, n, n.y))]


def _angle_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    # d angle = Im(dx / x), and what has the inner product Im(dx / x) with dx is i / conj(x)
    turned = b.Complex(b.ZerosLike(dy), dy, Tout=n.attrs["T"])
    return [b.RealDiv(turned, b.Conj(n.inputs[0]))]


for _type, _args, _formula, _grad, _jvp, _oracle, _doc in (
    ("ComplexAbs", "x: T, y: Tout", lambda xp: xp.abs,
     _abs_grad, None, abs, "The absolute values of complex numbers."),
    ("Real", "input: T, output: Tout", lambda xp: xp.real if is_standard(xp) else operator.attrgetter("real"),
     lambda b, n, dy: [_as_complex(b, n, dy)], linear("input"), lambda x: x.real, "The real parts."),
    ("Imag", "input: T, output: Tout", lambda xp: xp.imag if is_standard(xp) else operator.attrgetter("imag"),
     lambda b, n, dy: [b.Complex(b.ZerosLike(dy), dy, Tout=n.attrs["T"])], linear("input"), lambda x: x.imag,
     "The imaginary parts."),
    ("Angle", "input: T, output: Tout", _angle,
     _angle_grad, None, cmath.phase, "The angles of complex numbers, in radians."),
):  # fmt: skip
    _in, _out = _args.split(", ")
    op(
        _type,
        _in,
        _out,
        _PARTS,
        shape=same_as(0),
        kernel=_part(_formula),
        xp=True,
        grad=_grad,
        jvp=_jvp,
        facts=Facts(cost=flops_per_element(2), total=()),
        oracle=_real_oracle(_oracle),
        sample=_with_tout,
        doc=_doc,
    )

op(
    "Conj",
    "input: T",
    "output: T",
    {"T": type_attr(COMPLEX, complex64)},
    shape=same_as(0),
    kernel=ufunc("conj"),
    xp=True,
    grad=lambda b, n, dy: [b.Conj(dy)],
    jvp=linear("input"),
    facts=Facts(cost=flops_per_element(1), total=()),
    oracle=each(lambda x: x.conjugate()),
    sample=unary(),
    doc="The conjugates of complex numbers.",
)
