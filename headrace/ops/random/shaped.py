"""Gamma, Poisson and binomial numbers with tensors as parameters.

Source: TensorFlow's RandomGamma, RandomGammaGrad, StatelessRandomGammaV2 and V3, RandomPoisson, RandomPoissonV2,
StatelessRandomPoisson and StatelessRandomBinomial. The gradient of gamma numbers is that of the inverse of their
distribution function: Figurnov, Mohamed and Mnih, "Implicit Reparameterization Gradients" (2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import INDEX, DType
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, missing, op, type_attr
from headrace.opkit import arrays
from headrace.opkit.batch_node import Independent
from headrace.opkit.batch_rules import drawing
from headrace.opkit.shape_rules import broadcast, unbroadcast
from headrace.ops.random import definition
from headrace.ops.random.drawing import (
    PHILOX,
    SEEDED,
    SEEDS,
    dims_of,
    key_shape,
    seed_shape,
    state_of,
    stream_of_key,
    stream_of_seeds,
)
from headrace.ops.random.rejection import as_type, binomials, check_drawn, draw, drawn, gammas, poissons
from headrace.resources.philox import Philox, Stream
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_GAMMA = frozenset({dtypes.float16, dtypes.float32, dtypes.float64})
_COUNTED = _GAMMA | {dtypes.int32, dtypes.int64}
_FACTS = Facts(cost=flops_per_element(300), dynamic_shape=True)
_TSEED = type_attr(INDEX, dtypes.int64)


# *** With the session's streams: a number of the shape for each parameter ***


def _for_each(state: Philox, shape: Any, values: Any, sampler: Callable[..., Any], dtype: DType) -> Any:
    dims = (*dims_of(shape, dtype), *values.shape)
    check_drawn(dims, dtype)
    n = math.prod(dims)
    if not n:
        return np.zeros(dims, dtype.numpy)
    stream = state.reserve_numbers(n)
    return as_type(draw(stream, dims, values.shape, [values.astype(np.float64)], sampler), dtype)


def _seeded(sampler: Callable[[DType], Callable[..., Any]], attr: str) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
        state, dtype = state_of(ctx, attrs), attrs[attr]
        found = sampler(dtype)
        return lambda shape, values: _for_each(state, shape, values, found, dtype)

    return factory


def _seeded_shape(c: Inference) -> Sequence[Shape]:
    return [shapes.concatenate(arrays.shape_from(c, 0), c.shapes[1])]


def _gamma_sampler(dtype: DType) -> Callable[..., Any]:
    return gammas


def _gamma_slope(b: Any, alpha: Any, y: Any, dy: Any) -> Any:
    """The gradient by alpha, which broadcasts to the numbers drawn."""
    return unbroadcast(b, alpha, y, b.Mul(dy, b.RandomGammaGrad(alpha, y)), None)[0]


op(
    "RandomGamma",
    "shape: S, alpha: T",
    "output: T",
    {**SEEDS, "S": INDEX, "T": _GAMMA},
    shape=_seeded_shape,
    stateful=_seeded(_gamma_sampler, "T"),
    grad=lambda b, n, dy: [None, _gamma_slope(b, n.alpha, n.output, dy)],
    batch=Independent(drawing(0)),
    facts=SEEDED,
    doc="Numbers of the gamma distribution: for each alpha as many as `shape` says.",
)
for _name, _rate, _types, _out in (
    ("RandomPoisson", "rate: dtype", {"dtype": type_attr(_GAMMA)}, "dtype"),
    ("RandomPoissonV2", "rate: R",
     {"R": type_attr(_COUNTED, dtypes.float64), "dtype": type_attr(_COUNTED, dtypes.int64)}, "dtype"),
):  # fmt: skip
    op(
        _name,
        f"shape: S, {_rate}",
        "output: dtype",
        {**SEEDS, "S": INDEX, **_types},
        shape=_seeded_shape,
        stateful=_seeded(poissons, _out),
        grad=NOT_DIFFERENTIABLE,
        batch=Independent(drawing(0)),
        facts=SEEDED,
        differs="refuses a rate that is NaN or too large for the dtype; TensorFlow does not terminate",
        doc="Numbers of the Poisson distribution: for each rate as many as `shape` says.",
    )


# *** The gradient of gamma numbers ***


def _by_alpha(attrs: Mapping[str, Any]) -> Any:
    """Kernel factory of a gamma number's derivative by alpha: -dP(alpha, x)/dalpha / p(x).

    P is the distribution function and p the density. The derivative is a finite difference, in double precision, of the
    smaller of P and 1 - P. Where x is tiny it is the first term of a series.
    """
    from scipy import special

    dtype = attrs["T"]
    weights = ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280))

    def kernel(alpha: Any, x: Any) -> Any:
        a, x = np.broadcast_arrays(np.asarray(alpha, np.float64), np.asarray(x, np.float64))
        h = 0.02 * np.minimum(a, 1.0)
        lower = special.gammainc(a, x) < 0.5
        density = (a - 1) * np.log(x) - x - special.gammaln(a)
        slope = np.zeros(a.shape)
        for k, w in weights:
            up, down = a + k * h, a - k * h
            below = special.gammainc(up, x) - special.gammainc(down, x)
            above = special.gammaincc(down, x) - special.gammaincc(up, x)
            slope += w * np.where(lower, below, above)
        out = -slope / h * np.exp(-density)
        # where x is so small that P = x**alpha / (alpha * gamma(alpha)), nothing is left of the differences
        tiny = x < 1e-6 * np.minimum(a, 1.0)
        series = -x / a * (np.log(x) - special.psi(a + 1))
        out = np.where(tiny, series, out)
        return np.where((a > 0) & (x > 0), out, np.where((a > 0) & (x == 0), 0.0, np.nan)).astype(dtype.numpy)

    return kernel


def _by_alpha_of(alpha: float, x: float) -> float:
    """By the series of P, term by term."""
    log_x = math.log(x)

    def digamma(z: float) -> float:
        shift = 0.0
        while z < 12:
            shift -= 1 / z
            z += 1
        w = 1 / (z * z)
        return shift + math.log(z) - 1 / (2 * z) - w * (1 / 12 - w * (1 / 120 - w * (1 / 252 - w / 240)))

    def term(n: int) -> float:  # of P / p: x**(n + 1) * gamma(alpha) / gamma(alpha + n + 1)
        size = math.exp((n + 1) * log_x + math.lgamma(alpha) - math.lgamma(alpha + n + 1))
        return size * (log_x - digamma(alpha + n + 1))

    return -math.fsum(term(n) for n in range(120))


def _by_alpha_oracle(alpha: np.ndarray, x: np.ndarray) -> np.ndarray:
    pairs = np.broadcast(alpha, x)
    return np.array([_by_alpha_of(float(a), float(v)) for a, v in pairs], alpha.dtype).reshape(pairs.shape)


def _by_alpha_cases(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(rng.uniform(0.3, 6, s).astype(dtype.numpy), rng.uniform(0.2, 6, t).astype(dtype.numpy))
        for s, t in (((3,), (2, 3)), ((), ()))
    ]


op(
    "RandomGammaGrad",
    "alpha: T, sample: T",
    "output: T",
    {"T": frozenset({dtypes.float32, dtypes.float64})},
    shape=broadcast,
    kernel=_by_alpha,
    xp=False,
    grad=missing("the second derivative of gamma numbers by alpha has no op"),
    facts=Facts(cost=flops_per_element(500)),
    oracle=_by_alpha_oracle,
    sample=_by_alpha_cases,
    doc="How a number of the gamma distribution moves with alpha if the value of its distribution function is held.",
)


# *** Of seeds: the shape ends with that of the parameters ***


def _stateless(
    source: Callable[..., Stream], seeds: int, sampler: Callable[[DType], Callable[..., Any]], wide: bool = True
) -> Any:
    def factory(attrs: Mapping[str, Any]) -> Callable[..., Any]:
        dtype = attrs["dtype"]
        found = sampler(dtype)

        def kernel(shape: Any, *args: Any) -> Any:
            stream, dims = source(*args[:seeds]), dims_of(shape, dtype)
            check_drawn(dims, dtype)
            values = [np.asarray(v, np.float64) if wide else np.asarray(v) for v in args[seeds:]]
            return as_type(drawn(stream, dims, values, found), dtype)

        return kernel

    return factory


def _stateless_shape(check: Callable[[Inference, int], None]) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        check(c, 1)
        return [arrays.shape_from(c, 0)]

    return rule


def _stateless_cases(key: bool, values: Sequence[Sequence[float]], other: str = "") -> Any:
    """Test cases of the stateless ops.

    `other` is the attribute that the dtype of the parameters does not determine, or the attribute before it.
    """

    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        seeds = [np.array([2, 11], np.int64)]
        if key:
            seeds = [np.array([7], np.uint64), np.array([4, 2], np.uint64), np.array(PHILOX, np.int32)]
        if not other and dtype is dtypes.float64:
            return []  # in double precision gradients would be compared with those of the numbers
        pairs: list[tuple[DType, dict[str, Any]]] = [(dtype, {})]
        if other == "dtype":
            pairs = [(dtype, {other: t}) for t in (dtypes.int64, dtypes.float32)]
        elif other:  # the first attribute says nothing of the parameters
            pairs = [(t, {"dtype": dtypes.int32}) for t in (dtypes.float64, dtypes.float32)]
        out = []
        for t, attrs in pairs:
            found = [np.array(v).astype(t.numpy) for v in values]
            sizes = (3, 0) if t is dtypes.float32 else (2,)
            out += [case(np.array((n, len(values[0])), np.int32), *seeds, *found, **attrs) for n in sizes]
        return out

    return sample


def _stateless_oracle(key: bool, one: Callable[..., float], seeds: int, **more: Any) -> Any:
    def oracle(shape: np.ndarray, *args: np.ndarray, dtype: DType | None = None) -> np.ndarray:
        stream = definition.keyed(*args[:2]) if key else definition.mixed(args[0])
        values = args[seeds:]
        found = definition.each(stream, shape.tolist(), values, one, **more)
        return found.astype(values[0].dtype if dtype is None else dtype.numpy)

    return oracle


_ALPHAS = ((0.4, 1.0, 5.5),)
_RATES = ((0.0, 3.0, 50.0),)
_TRIALS = ((20.0, 5.0, 90.0), (0.2, 0.9, 0.45))

for _name, _args, _n, _source, _check, _T in (
    ("StatelessRandomGammaV2", "shape: T, seed: Tseed", 1, stream_of_seeds, seed_shape, {"T": INDEX, "Tseed": _TSEED}),
    ("StatelessRandomGammaV3", "shape: shape_dtype, key: uint64, counter: uint64, alg: int32", 3, stream_of_key,
     key_shape, {"shape_dtype": type_attr(INDEX, dtypes.int32)}),
):  # fmt: skip
    op(
        _name,
        f"{_args}, alpha: dtype",
        "output: dtype",
        {"dtype": _GAMMA, **_T},
        shape=_stateless_shape(_check),
        kernel=_stateless(_source, _n, _gamma_sampler),
        xp=False,
        grad=lambda b, n, dy: [None] * (len(n.inputs) - 1) + [_gamma_slope(b, n.alpha, n.output, dy)],
        jvp=missing("not the derivative of the numbers, but of their distribution: use reverse mode"),
        facts=_FACTS,
        oracle=_stateless_oracle(_n == 3, definition.gamma, _n),
        sample=_stateless_cases(_n == 3, _ALPHAS),
        doc="Numbers of the gamma distribution with the parameters `alpha`.",
    )
op(
    "StatelessRandomPoisson",
    "shape: T, seed: Tseed, lam: Rtype",
    "output: dtype",
    {"Rtype": type_attr(_COUNTED), "dtype": type_attr(_COUNTED), "T": INDEX, "Tseed": _TSEED},
    shape=_stateless_shape(seed_shape),
    kernel=_stateless(stream_of_seeds, 1, poissons),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    oracle=_stateless_oracle(False, definition.poisson, 1),
    sample=_stateless_cases(False, _RATES, "dtype"),
    differs="refuses a rate that is NaN or too large for the dtype; TensorFlow does not terminate",
    doc="Numbers of the Poisson distribution with the rates `lam`.",
)
op(
    "StatelessRandomBinomial",
    "shape: S, seed: Tseed, counts: T, probs: T",
    "output: dtype",
    {
        "S": INDEX,
        "Tseed": _TSEED,
        "T": type_attr(_COUNTED, dtypes.float64),
        "dtype": type_attr(_COUNTED, dtypes.int64),
    },
    shape=_stateless_shape(seed_shape),
    kernel=_stateless(stream_of_seeds, 1, lambda dtype: binomials, wide=False),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    oracle=_stateless_oracle(False, definition.binomial, 1, blocks=definition.binomial_blocks),
    sample=_stateless_cases(False, _TRIALS, "S"),
    differs="refuses counts that are not finite; TensorFlow does not terminate",
    doc="Draws the numbers of successes in `counts` trials with probability `probs`.",
)
