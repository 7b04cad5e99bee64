"""Special functions: error functions, gamma functions and others, computed by SciPy.

SciPy is imported on first use.

Source: TensorFlow's ops of the same names. Half precision is computed in float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import FLOATING, DType, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import SYMMETRIC, Facts, case, flops_per_element, missing, op
from headrace.opkit.batch_rules import of_whole_shape
from headrace.opkit.elementwise import each, times, widened
from headrace.opkit.shape_rules import broadcast, same_as, unbroadcast
from headrace.opkit.testing.samples import binary, draw, unary
from headrace.shapes import Shape, merge, show

_WIDE = frozenset({float32, float64})


def _scipy(formula: Callable[..., Any]) -> Any:
    """The factory of `formula(scipy.special, *arrays)`, in float32 for half precision."""

    def factory(attrs: Mapping[str, Any]) -> Any:
        import scipy.special

        return widened(functools.partial(formula, scipy.special), attrs["T"])

    return factory


def _digamma(s: Any, x: Any) -> Any:
    return np.where((x <= 0) & (x == np.floor(x)), x.dtype.type(np.nan), s.psi(x))  # SciPy: infinite at 0


def _lgamma(s: Any, x: Any) -> Any:
    return np.where(np.isneginf(x), x.dtype.type(np.inf), s.gammaln(x))  # SciPy: -inf there


def _zeta(s: Any, x: Any, q: Any) -> Any:
    pole = (q <= 0) & (q == np.floor(q)) & (x > 1)
    is_even = np.isinf(x) | (x % 2 == 0)
    there = np.where(is_even, np.inf, np.nan).astype(x.dtype)  # terms of both signs, unless the power is even
    found = s.zeta(x, q)
    found = np.where(np.isnan(found) & (x > 1) & (q > 1), x.dtype.type(0), found)  # too small for SciPy
    return np.where(pole, there, np.where(np.isnan(x), x, found))


def _polygamma(s: Any, n: Any, x: Any) -> Any:
    powers = np.power(x.dtype.type(-1), n + 1) * s.gamma(n + 1) * _zeta(s, n + 1, x)
    whole = (n >= 0) & (n == np.floor(n))
    return np.where(n == 0, _digamma(s, x), np.where(whole, powers, x.dtype.type(np.nan)))


def _both_infinite(a: Any, x: Any) -> Any:
    """The mask of the elements with `a` and `x` infinite.

    TensorFlow's incomplete gamma functions and their derivatives by `a` are 0 there.
    """
    return np.isposinf(a) & np.isposinf(x)


def _igamma(s: Any, a: Any, x: Any) -> Any:
    found = np.where(a > 0, s.gammainc(a, x), x.dtype.type(np.nan))
    return np.where(x == 0, x, np.where(_both_infinite(a, x), x.dtype.type(0), found))


def _igammac(s: Any, a: Any, x: Any) -> Any:
    found = np.where(a > 0, s.gammaincc(a, x), x.dtype.type(np.nan))
    return np.where(_both_infinite(a, x), x.dtype.type(0), found)


def _igamma_by_a(s: Any, a: Any, x: Any) -> Any:
    """The derivative of igamma by `a`.

    It has no closed form; this is a central difference of order 8 in double precision.
    """
    wide = np.asarray(a, np.float64)
    # near 0 and for large x the function changes as fast as x**a
    h = 0.02 * np.minimum(wide, 1.0) / np.clip(np.abs(np.log(np.asarray(x, np.float64))) / 5, 1, 150)
    weights = ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280))

    def at(a: Any) -> Any:
        return np.where(x > wide, -s.gammaincc(a, x), s.gammainc(a, x))  # the one that is not near 1: more digits

    d = sum(w * (at(wide + k * h) - at(wide - k * h)) for k, w in weights) / h
    found = np.where(wide > 0, d, np.nan)
    return np.where((x == 0) | _both_infinite(wide, x), 0.0, found).astype(x.dtype)


# *** Oracles: series, and the derivative of lgamma by differences ***


def _zeta_of(s: float, q: float) -> float:
    """Hurwitz's zeta: a partial sum, and its tail by the Euler-Maclaurin formula."""
    a = q + 20
    head = math.fsum((q + k) ** -s for k in range(20))
    rising = s * (s + 1) * (s + 2)
    tail = a ** (1 - s) / (s - 1) + a**-s / 2 + s * a ** (-s - 1) / 12 - rising * a ** (-s - 3) / 720
    return head + tail + rising * (s + 3) * (s + 4) * a ** (-s - 5) / 30240


def _polygamma_of(n: float, x: float) -> float:
    if n == 0:
        return math.log(x + 20) - _psi_tail(x + 20) - math.fsum(1 / (x + k) for k in range(20))
    return (-1) ** (int(n) + 1) * math.factorial(int(n)) * _zeta_of(n + 1, x)


def _psi_tail(x: float) -> float:
    return 1 / (2 * x) + 1 / (12 * x**2) - 1 / (120 * x**4) + 1 / (252 * x**6)


def _igamma_of(a: float, x: float) -> float:
    return math.fsum(math.exp((a + n) * math.log(x) - x - math.lgamma(a + n + 1)) for n in range(60))


def _igamma_by_a_of(a: float, x: float) -> float:
    def term(n: int) -> float:
        size = math.exp((a + n) * math.log(x) - x - math.lgamma(a + n + 1))
        return size * (math.log(x) - _polygamma_of(0, a + n + 1))

    return math.fsum(term(n) for n in range(60))


def _betainc_of(a: float, b: float, x: float) -> float:
    def log_beta(p: float, q: float) -> float:
        return math.lgamma(p) + math.lgamma(q) - math.lgamma(p + q)

    more = math.fsum(math.exp(log_beta(a + 1, n) - log_beta(a + b, n)) * x**n for n in range(1, 120))
    return x**a * (1 - x) ** b / (a * math.exp(log_beta(a, b))) * (1 + more)


def _inverse(f: Callable[[float], float]) -> Callable[[float], float]:
    """The inverse of a rising function, by bisection."""

    def inverse(y: float) -> float:
        low, high = -10.0, 10.0
        while (mid := (low + high) / 2) not in (low, high):
            low, high = (mid, high) if f(mid) < y else (low, mid)
        return mid

    return inverse


# *** Functions of one argument ***


def _gauss(b: Any, x: Any, factor: float, power: float) -> Any:
    """factor · exp(power · x²)."""
    return b.Mul(b.Exp(b.Mul(b.Square(x), power)), factor)


# columns of the tables below
_oracle: Any
_formula: Any
_grad: Any
_sample: Any

_ROOT_PI = math.sqrt(math.pi)
_NDTRI = _inverse(lambda x: math.erfc(-x / math.sqrt(2)) / 2)

# fmt: off
for _type, _formula, _oracle, (_low, _high), _derivative, _doc in (
    ("Erf", lambda s, x: s.erf(x), math.erf, (-3, 3),
     lambda b, n: _gauss(b, n.x, 2 / _ROOT_PI, -1), "The error function."),
    ("Erfc", lambda s, x: s.erfc(x), math.erfc, (-3, 3),
     lambda b, n: _gauss(b, n.x, -2 / _ROOT_PI, -1), "1 - erf(x), precise for small results."),
    ("Erfinv", lambda s, x: s.erfinv(x), _inverse(math.erf), (-0.9, 0.9),
     lambda b, n: _gauss(b, n.y, _ROOT_PI / 2, 1), "The inverse of the error function."),
    ("Ndtri", lambda s, x: s.ndtri(x), _NDTRI, (0.1, 0.9),
     lambda b, n: _gauss(b, n.y, _ROOT_PI * math.sqrt(2), 0.5), "The quantile of the normal distribution."),
    ("Lgamma", _lgamma, math.lgamma, (0.1, 6),
     lambda b, n: b.Digamma(n.x), "The logarithm of |gamma(x)|."),
    ("Digamma", _digamma, lambda x: _polygamma_of(0, x), (0.5, 6),
     lambda b, n: b.Polygamma(1, n.x), "The derivative of Lgamma."),
):
    op(
        _type,
        "x: T",
        "y: T",
        {"T": FLOATING},
        shape=same_as(0),
        kernel=_scipy(_formula),
        xp=False,
        grad=times(_derivative),
        jvp=SYMMETRIC,
        facts=Facts(cost=flops_per_element(30)),
        oracle=each(_oracle),
        sample=unary(_low, _high),
        doc=_doc,
    )
# fmt: on


# *** Bessel functions and integrals ***


def _integral(f: Callable[[float], float], low: float, high: float) -> float:
    """An integral by Gauss-Legendre quadrature with 60 points on each of 8 parts."""
    points, weights = np.polynomial.legendre.leggauss(60)
    h = (high - low) / 16
    parts = (low + (2 * k + 1) * h for k in range(8))
    return h * math.fsum(w * f(m + h * p) for m in parts for p, w in zip(points, weights, strict=True))


def _bessel_i(n: int) -> Callable[[float], float]:
    return lambda x: _integral(lambda t: math.exp(x * math.cos(t)) * math.cos(n * t), 0, math.pi) / math.pi


def _bessel_j(n: int) -> Callable[[float], float]:
    return lambda x: _integral(lambda t: math.cos(n * t - x * math.sin(t)), 0, math.pi) / math.pi


def _bessel_k(n: int) -> Callable[[float], float]:
    return lambda x: _integral(lambda t: math.exp(-x * math.cosh(t)) * math.cosh(n * t), 0, 6)


def _bessel_y(n: int) -> Callable[[float], float]:
    def y(x: float) -> float:
        turning = _integral(lambda t: math.sin(x * math.sin(t) - n * t), 0, math.pi)
        falling = _integral(
            lambda t: (math.exp(n * t) + (-1) ** n * math.exp(-n * t)) * math.exp(-x * math.sinh(t)), 0, 6
        )
        return (turning - falling) / math.pi

    return y


def _scaled(f: Callable[[float], float], sign: int) -> Callable[[float], float]:
    return lambda x: math.exp(sign * abs(x)) * f(x)


def _expint_of(x: float) -> float:
    return np.euler_gamma + math.log(x) + math.fsum(x**k / (k * math.factorial(k)) for k in range(1, 60))


def _less_by_x(b: Any, y0: Any, y1: Any, x: Any) -> Any:
    """The derivative y0 - y1 / x of a Bessel function of order 1.

    It is 1/2 at x = 0, the limit for the functions that are finite there.
    """
    zero = b.ZerosLike(x)
    return b.SelectV2(b.Equal(x, zero), b.AddV2(zero, 0.5), b.Sub(y0, b.DivNoNan(y1, x)))


def _spence_derivative(b: Any, n: Any) -> Any:
    below = b.Sub(1, n.x)  # at x = 1 the derivative is -1
    return b.SelectV2(b.Equal(below, b.ZerosLike(below)), b.Sub(below, 1), b.DivNoNan(b.Log(n.x), below))


def _by_pi(b: Any, x: Any) -> Any:
    return b.Mul(b.Square(x), math.pi / 2)


def _bessel(name: str) -> Any:
    """The kernel of a Bessel function.

    For negative `x`, functions of the second kind have their limit at zero.
    """
    limit = {"y": -np.inf, "k": np.inf}.get(name[0])
    if limit is None:
        return _scipy(lambda s, x: getattr(s, name)(x))
    return _scipy(lambda s, x: np.where(x < 0, x.dtype.type(limit), getattr(s, name)(x)))


_MODEST, _POSITIVE = (-3.0, 3.0), (0.4, 4.0)

# fmt: off
for _type, _name, _oracle, (_low, _high), _derivative in (
    ("BesselI0", "i0", _bessel_i(0), _MODEST, lambda b, n: b.BesselI1(n.x)),
    ("BesselI1", "i1", _bessel_i(1), _MODEST, lambda b, n: _less_by_x(b, b.BesselI0(n.x), n.y, n.x)),
    ("BesselI0e", "i0e", _scaled(_bessel_i(0), -1), _MODEST,
     lambda b, n: b.Sub(b.BesselI1e(n.x), b.Mul(b.Sign(n.x), n.y))),
    ("BesselI1e", "i1e", _scaled(_bessel_i(1), -1), _MODEST,
     lambda b, n: b.Sub(_less_by_x(b, b.BesselI0e(n.x), n.y, n.x), b.Mul(b.Sign(n.x), n.y))),
    ("BesselJ0", "j0", _bessel_j(0), _MODEST, lambda b, n: b.Neg(b.BesselJ1(n.x))),
    ("BesselJ1", "j1", _bessel_j(1), _MODEST, lambda b, n: _less_by_x(b, b.BesselJ0(n.x), n.y, n.x)),
    ("BesselY0", "y0", _bessel_y(0), _POSITIVE, lambda b, n: b.Neg(b.BesselY1(n.x))),
    ("BesselY1", "y1", _bessel_y(1), _POSITIVE, lambda b, n: b.Sub(b.BesselY0(n.x), b.RealDiv(n.y, n.x))),
    ("BesselK0", "k0", _bessel_k(0), _POSITIVE, lambda b, n: b.Neg(b.BesselK1(n.x))),
    ("BesselK1", "k1", _bessel_k(1), _POSITIVE,
     lambda b, n: b.Neg(b.AddV2(b.BesselK0(n.x), b.RealDiv(n.y, n.x)))),
    ("BesselK0e", "k0e", _scaled(_bessel_k(0), 1), _POSITIVE, lambda b, n: b.Sub(n.y, b.BesselK1e(n.x))),
    ("BesselK1e", "k1e", _scaled(_bessel_k(1), 1), _POSITIVE,
     lambda b, n: b.Sub(b.Mul(n.y, b.Sub(1, b.Reciprocal(n.x))), b.BesselK0e(n.x))),
):
    op(
        _type,
        "x: T",
        "y: T",
        {"T": FLOATING},
        shape=same_as(0),
        kernel=_bessel(_name),
        xp=False,
        grad=times(_derivative),
        jvp=SYMMETRIC,
        facts=Facts(cost=flops_per_element(40)),
        oracle=each(_oracle),
        sample=unary(_low, _high),
        doc=f"Bessel's function {_name[0].upper()}{_name[1]}{', scaled by exp(∓x)' if _name.endswith('e') else ''}.",
    )

for _type, _formula, _oracle, (_low, _high), _derivative, _doc in (
    ("Dawsn", lambda s, x: s.dawsn(x), lambda x: _integral(lambda t: math.exp(t * t - x * x), 0, x), _MODEST,
     lambda b, n: b.Sub(1, b.Mul(b.Mul(n.x, 2), n.y)), "Dawson's integral."),
    ("Expint", lambda s, x: np.where(x < 0, x.dtype.type(np.nan), s.expi(x)), _expint_of, _POSITIVE,
     lambda b, n: b.RealDiv(b.Exp(n.x), n.x), "The exponential integral Ei(x) of positive numbers."),
    ("FresnelSin", lambda s, x: s.fresnel(x)[0],
     lambda x: _integral(lambda t: math.sin(t * t * math.pi / 2), 0, x), _MODEST,
     lambda b, n: b.Sin(_by_pi(b, n.x)), "Fresnel's integral of sin(π t²/2)."),
    ("FresnelCos", lambda s, x: s.fresnel(x)[1],
     lambda x: _integral(lambda t: math.cos(t * t * math.pi / 2), 0, x), _MODEST,
     lambda b, n: b.Cos(_by_pi(b, n.x)), "Fresnel's integral of cos(π t²/2)."),
    ("Spence", lambda s, x: s.spence(x), lambda x: -_integral(lambda t: math.log(t) / (t - 1), 1, x), _POSITIVE,
     _spence_derivative, "The dilogarithm of 1 - x."),
):
    op(
        _type,
        "x: T",
        "y: T",
        {"T": FLOATING},
        shape=same_as(0),
        kernel=_scipy(_formula),
        xp=False,
        grad=times(_derivative),
        jvp=SYMMETRIC,
        facts=Facts(cost=flops_per_element(40)),
        oracle=each(_oracle),
        sample=unary(_low, _high),
        doc=_doc,
    )
# fmt: on


# *** Functions of several arguments ***


def _igamma_grad(sign: float) -> Any:
    def grad(b: Any, n: Any, dy: Any) -> list[Any]:
        a, x = n.a, n.x
        dy = b.Mul(dy, sign)

        def by_x() -> Any:
            log = b.Sub(b.Mul(b.Sub(a, 1), b.Log(x)), b.AddV2(x, b.Lgamma(a)))
            return b.Mul(dy, b.Exp(log))

        return unbroadcast(b, a, x, lambda: b.Mul(dy, b.IgammaGradA(a, x)), by_x)

    return grad


def _polygamma_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return unbroadcast(b, n.a, n.x, None, lambda: b.Mul(dy, b.Polygamma(b.AddV2(n.a, 1), n.x)))


def _zeta_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    def by_q() -> Any:
        return b.Mul(dy, b.Neg(b.Mul(n.x, b.Zeta(b.AddV2(n.x, 1), n.q))))

    return unbroadcast(b, n.x, n.q, None, by_q)


def _whole(low: int, high: int) -> Any:
    """Cases of integers in [low, high), with floats that broadcast with them."""

    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        pairs = (((), ()), ((2, 3), (2, 3)), ((2, 1), (1, 3)), ((0, 3), (1, 3)))
        return [case(np.floor(draw(rng, dtype, s, low, high)), draw(rng, dtype, t, 0.5, 4)) for s, t in pairs]

    return sample


_NO_SECOND = missing(
    "no op computes the second derivative of Igamma by a; apply hr.stop_gradient to a, or register one"
)

# fmt: off
for _type, _args, _types, _formula, _oracle, _sample, _grad, _doc in (
    ("Igamma", "a: T, x: T", FLOATING, _igamma, _igamma_of, binary(0.5, 4, 0.2, 5), _igamma_grad(1),
     "The lower incomplete gamma function, divided by gamma(a)."),
    ("Igammac", "a: T, x: T", FLOATING, _igammac, lambda a, x: 1 - _igamma_of(a, x), binary(0.5, 4, 0.2, 5),
     _igamma_grad(-1), "The upper incomplete gamma function, divided by gamma(a)."),
    ("IgammaGradA", "a: T, x: T", _WIDE, _igamma_by_a, _igamma_by_a_of, binary(0.5, 4, 0.2, 5), _NO_SECOND,
     "The derivative of Igamma by `a`."),
    ("Polygamma", "a: T, x: T", _WIDE, _polygamma, _polygamma_of, _whole(0, 4), _polygamma_grad,
     "The derivative of order `a` of Digamma (which has no derivative by `a`)."),
    ("Zeta", "x: T, q: T", _WIDE, _zeta, _zeta_of, binary(1.5, 4, 0.5, 4), _zeta_grad,
     "Hurwitz's zeta function; it has no derivative by `x`."),
):
    op(
        _type,
        _args,
        "z: T",
        {"T": _types},
        shape=broadcast,
        kernel=_scipy(_formula),
        xp=False,
        grad=_grad,
        jvp=SYMMETRIC,
        facts=Facts(cost=flops_per_element(60)),
        oracle=each(_oracle),
        sample=_sample,
        doc=_doc,
    )
# fmt: on


def _betainc(s: Any, a: Any, b: Any, x: Any) -> Any:
    found = np.where((a > 0) & (b > 0) & np.isfinite(a) & np.isfinite(b), s.betainc(a, b, x), x.dtype.type(np.nan))
    is_edge = ((x == 0) | (x == 1)) & ~(a <= 0) & ~(b <= 0)  # TensorFlow checks these before NaN
    return np.where(is_edge, x, found)


def _betainc_kernel(attrs: Mapping[str, Any]) -> Any:
    compute = _scipy(_betainc)(attrs)

    def kernel(a: Any, b: Any, x: Any) -> Any:
        shapes = {s.shape for s in (a, b, x)} - {()}
        if len(shapes) > 1:
            found = ", ".join(show(s.shape) for s in (a, b, x))
            raise InvalidArgumentError(f"Shapes of a, b and x are inconsistent (only scalars broadcast): {found}")
        return compute(a, b, x)

    return kernel


def _betainc_shape(c: Inference) -> Sequence[Shape]:
    out: Shape = None
    for s in c.shapes:
        out = merge(out, s or None)
    return [() if all(s == () for s in c.shapes) else out]


def _betainc_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    p, q, x = n.a, n.b, n.x

    def by_x() -> Any:
        log_beta = b.Sub(b.AddV2(b.Lgamma(p), b.Lgamma(q)), b.Lgamma(b.AddV2(p, q)))
        log = b.Sub(b.AddV2(b.Xlog1py(b.Sub(q, 1), b.Neg(x)), b.Xlogy(b.Sub(p, 1), x)), log_beta)
        return b.Mul(dy, b.Exp(log))

    return [None, None, unbroadcast(b, x, dy, by_x, None)[0]]


def _betainc_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    ones, shapes = (), ((), (3,), (2, 3), (0,))
    cases = [(s, s, s) for s in shapes] + [((2, 3), ones, ones), (ones, ones, (3,))]
    return [
        case(draw(rng, dtype, s, 0.5, 3), draw(rng, dtype, t, 0.5, 3), draw(rng, dtype, u, 0.1, 0.7))
        for s, t, u in cases
    ]


op(
    "Betainc",
    "a: T, b: T, x: T",
    "z: T",
    {"T": _WIDE},
    shape=_betainc_shape,
    kernel=_betainc_kernel,
    xp=False,
    grad=_betainc_grad,
    jvp=SYMMETRIC,
    batch=of_whole_shape,
    facts=Facts(cost=flops_per_element(60)),
    oracle=each(_betainc_of),
    sample=_betainc_samples,
    doc="The regularized incomplete beta function; it has no derivatives by `a` and `b`.",
)
