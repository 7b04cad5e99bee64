"""Truncated normal numbers, with a mean, a deviation and bounds for each row.

Source: TensorFlow's ParameterizedTruncatedNormal and StatelessParameterizedTruncatedNormal; the method is Robert's
("Simulation of truncated normal variables", 1995). Rows are drawn one after the other from one stream: each row takes
groups of numbers until it is full, and the rest of its last group is discarded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import FLOATING, INDEX, DType
from headrace.errors import InternalError, InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, missing, op, type_attr
from headrace.opkit import arrays
from headrace.opkit.shape_rules import then, unbroadcast
from headrace.ops.random import definition
from headrace.ops.random.drawing import SEEDED, SEEDS, dims_of, drawn_shape, seed_shape, state_of, stream_of_seeds
from headrace.resources.philox import Stream
from headrace.resources.values import shape_of
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_MOST_REJECTED: Final = 1000  # proposals in a row
_CLOSE: Final = 1.3  # deviations from the mean, within which a bound does not make normal numbers wasteful
_TOGETHER: Final = 100  # numbers of a row, if all rows have the same parameters
_NARROW: Final = frozenset({dtypes.float16, dtypes.float32, dtypes.float64})

# Proposal(stream, groups) returns numbers and a mask of those that are accepted.
Proposal = Callable[[Stream, int], tuple[np.ndarray, np.ndarray]]


def _proposals(low: Any, high: Any, dtype: DType) -> tuple[Proposal, int, int]:
    """Proposal for normalized bounds, with its proposals and blocks for each group."""
    t = dtype.numpy.type
    per_block = 2 if dtype is dtypes.float64 else 4
    root = np.sqrt(low * low + t(4))
    cutoff = t(2) * np.exp(t(0.5) + low * (low - root) / t(4)) / (low + root)
    width = high - low
    if (low < -t(_CLOSE) and high >= 0) or (high > t(_CLOSE) and low <= 0):

        def normal(stream: Stream, groups: int) -> tuple[np.ndarray, np.ndarray]:
            z = stream.normal(groups * per_block, dtype)
            return z, (z >= low) & (z <= high)

        return normal, per_block, 1
    if width < cutoff:
        nearest = t(0) if low < 0 else low * low

        def uniform(stream: Stream, groups: int) -> tuple[np.ndarray, np.ndarray]:
            drawn = stream.uniform(2 * groups * per_block, dtype).reshape(groups, 2, per_block)
            z = drawn[:, 0] * width + low
            return z.ravel(), (drawn[:, 1] <= np.exp((nearest - z * z) / t(2))).ravel()

        return uniform, per_block, 2
    alpha = (low + root) / t(2)

    def exponential(stream: Stream, groups: int) -> tuple[np.ndarray, np.ndarray]:
        drawn = stream.uniform(groups * per_block, dtype).reshape(-1, 2)
        z = -np.log(drawn[:, 0]) / alpha + low
        x = alpha - z if low < alpha else low - alpha
        return z, (drawn[:, 1] <= np.exp(-x * x / t(2))) & (z < high)

    return exponential, per_block // 2, 1


def _row(stream: Stream, n: int, parameters: Iterable[Any], dtype: DType) -> tuple[Any, Stream]:
    """Draws the `n` numbers of a row, and returns the stream behind them.

    `parameters` are the mean, the deviation and the two bounds.
    """
    mean, deviation, low, high = map(dtype.numpy.type, parameters)
    if not (deviation > 0 and low < high and (np.isfinite(low) or np.isfinite(high))):
        raise InvalidArgumentError(
            f"Invalid parameters: the deviation {deviation} must be positive, the lower bound {low} below the "
            f"upper one {high}, and one of them finite"
        )
    if low == -np.inf or high < mean:  # turned round: the bound that matters is the lower one
        low, high, deviation = high, low, -deviation
    propose, per_group, blocks = _proposals((low - mean) / deviation, (high - mean) / deviation, dtype)
    out = np.empty(n, dtype.numpy)
    filled = rejected = 0
    while filled < n:
        groups = min(-(-(n - filled) // per_group) * 2, 1 << 14) + 1
        z, good = propose(stream, groups)
        at = np.flatnonzero(good)[: n - filled]
        gaps = np.diff(at, prepend=-1 - rejected, append=len(z)) if filled + len(at) < n else np.diff(at, prepend=-1)
        if gaps.max() > _MOST_REJECTED:
            raise InternalError(
                f"TruncatedNormal rejection sampler failed to accept a sample in {_MOST_REJECTED} tries, for the mean "
                f"{mean}, the deviation {deviation} and the bounds {low} and {high}"
            )
        out[filled : filled + len(at)] = z[at] * deviation + mean
        filled += len(at)
        rejected = len(z) - 1 - at[-1] if len(at) else rejected + len(z)
        used = groups if filled < n else at[-1] // per_group + 1
        stream = stream.skip(int(used) * blocks)
    return out, stream


# *** A row for each parameter, of the session's stream ***


def _seeded(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    state, dtype = state_of(ctx, attrs), attrs["dtype"]

    def kernel(shape: Any, *parameters: Any) -> Any:
        dims = dims_of(shape, dtype)
        if not dims:
            raise InvalidArgumentError("Shape tensor must not be empty, got []")
        for name, p in zip(("means", "stddevs", "minvals", "maxvals"), parameters, strict=True):
            if len(shape_of(p)) > 1:
                raise InvalidArgumentError(
                    f"Input {name} should be a scalar or vector, got shape: {shapes.show(shape_of(p))}"
                )
        rows, n = dims[0], math.prod(dims[1:])
        means, stddevs, *bounds = parameters
        if means.size == 1 == stddevs.size and not any(map(shape_of, bounds)):
            rows, n = -(-rows * n // _TOGETHER), _TOGETHER
        for name, p in zip(("means", "stddevs", "minvals", "maxvals"), parameters, strict=True):
            if shape_of(p) not in ((), (1,), (rows,)):
                raise InvalidArgumentError(
                    f"Input {name} should have length 1 or shape[0], got shape: {shapes.show(shape_of(p))}"
                )
        stream = state.reserve(rows * 2 * _MOST_REJECTED * (n + 3) // 4)
        out = np.empty(math.prod(dims), dtype.numpy)
        for i, values in zip(range(rows), np.broadcast(*parameters, np.empty(rows)), strict=True):
            here = out[i * n : (i + 1) * n]
            here[:], stream = _row(stream, len(here), values[:4], dtype)
        return out.reshape(dims)

    return kernel


def _seeded_shape(c: Inference) -> Sequence[Shape]:
    for s in c.shapes[1:]:
        shapes.with_rank_at_most(s, 1)
    return drawn_shape(c)


op(
    "ParameterizedTruncatedNormal",
    "shape: T, means: dtype, stdevs: dtype, minvals: dtype, maxvals: dtype",
    "output: dtype",
    {**SEEDS, "dtype": FLOATING, "T": INDEX},
    shape=_seeded_shape,
    stateful=_seeded,
    grad=NOT_DIFFERENTIABLE,
    facts=SEEDED,
    differs="the numbers are those of one thread; TensorFlow's may depend on its number of threads",
    doc="Normal numbers within bounds; the parameters are scalars, or have an element for each row of the result.",
)


# *** Of seeds: the shape ends with that of the parameters ***


def _stateless(attrs: Mapping[str, Any]) -> Callable[..., Any]:
    dtype = attrs["dtype"]

    def kernel(shape: Any, seed: Any, *parameters: Any) -> Any:
        stream, dims = stream_of_seeds(seed), dims_of(shape, dtype)
        try:
            inner = np.broadcast_shapes(*map(shape_of, parameters))
        except ValueError:
            raise InvalidArgumentError(
                "means, stddevs, minvals, maxvals must have compatible batch dimensions, got "
                + " vs. ".join(shapes.show(shape_of(p)) for p in parameters)
            ) from None
        outer = dims[: len(dims) - len(inner)]
        if outer + inner != dims:
            raise InvalidArgumentError(
                f"Shape passed in must end with broadcasted shape. It is {shapes.show(dims)}, "
                f"and the parameters have the shape {shapes.show(inner)}"
            )
        n = math.prod(outer)
        out = np.empty((math.prod(inner), n), dtype.numpy)
        if out.size:
            for i, values in enumerate(np.broadcast(*parameters)):
                out[i], stream = _row(stream, n, values, dtype)
        return out.T.reshape(dims)

    return kernel


def _stateless_shape(c: Inference) -> Sequence[Shape]:
    seed_shape(c, 1)
    return [arrays.shape_from(c, 0)]


def _stateless_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """Gradient rule that holds the value u of the distribution function constant.

    u = (F(z) - F(low)) / (F(high) - F(low)), with F the normal distribution function. The bounds move with mean and
    deviation, as in TensorFlow.
    """
    limits = np.finfo(n.attrs["dtype"].numpy)
    one = np.array(1, limits.dtype)
    half = one / 2

    def standard(x: Any) -> Any:
        return b.RealDiv(b.Sub(x, n.means), n.stddevs)

    def below(x: Any) -> Any:
        return b.Mul(half, b.Erfc(b.Mul(-np.sqrt(half), x)))

    def slope(bound: Any, log_share: Any) -> Any:
        """Derivative of the number by a bound, for the bound's share in u.

        It is the ratio of the densities at the bound and at the number, times the share.
        """
        return b.Exp(b.AddV2(b.Mul(half, b.Sub(b.Square(at("output")), b.Square(bound))), log_share))

    @functools.cache
    def at(name: str) -> Any:
        return standard(getattr(n, name))

    @functools.cache
    def u() -> Any:
        z, low, high = at("output"), at("minvals"), at("maxvals")
        share = b.RealDiv(b.Sub(below(z), below(low)), b.Sub(below(high), below(low)))
        return b.Minimum(b.Maximum(share, limits.tiny), one - limits.eps)

    slopes = (
        lambda: b.OnesLike(n.output),
        lambda: at("output"),
        lambda: slope(at("minvals"), b.Log1p(b.Neg(u()))),
        lambda: slope(at("maxvals"), b.Log(u())),
    )
    summed = (
        unbroadcast(b, x, n.output, then(slope, functools.partial(b.Mul, dy)), None)[0]
        for x, slope in zip(n.inputs[2:], slopes, strict=True)
    )
    return [None, None, *summed]


def _cases(rng: np.random.Generator, dtype: DType) -> list[Any]:
    seed = np.array([3, 9])
    rows = [(0, 1, -1, 2), (1, 2, 1.5, 3), (0, 1, 3, np.inf), (0, 0.5, -np.inf, -1)]  # each method, and turned round
    out = []
    for t in (dtypes.float64, dtypes.float32):
        parameters = [np.array(column, t.numpy) for column in zip(*rows, strict=True)]
        sizes = (3, 0) if t is dtypes.float32 else (2,)
        out += [case(np.array((n, 4), dtype.numpy), seed, *parameters) for n in sizes]
    return out


def _oracle(shape: np.ndarray, seed: np.ndarray, *parameters: np.ndarray) -> np.ndarray:
    key, at = definition.mixed(seed)
    t = parameters[0].dtype.type
    dtype = dtypes.from_numpy(parameters[0].dtype)
    size = 2 if dtype is dtypes.float64 else 4

    def block(distribution: Callable[..., np.ndarray]) -> list[Any]:
        nonlocal at
        at += 1
        return list(distribution((key, at - 1), size, dtype))

    out = np.zeros((len(parameters[0]), int(shape[0])), t)
    for row, (mean, s, low, high) in zip(out, zip(*parameters, strict=True), strict=True):
        if low == -np.inf or high < mean:
            low, high, s = high, low, -s
        a, c = (low - mean) / s, (high - mean) / s
        root = np.sqrt(a * a + t(4))
        found: list[Any] = []
        while len(found) < len(row):
            if (a < -t(1.3) and c >= 0) or (c > t(1.3) and a <= 0):
                found += [x for x in block(definition.normal) if a <= x <= c]
            elif c - a < t(2) * np.exp(t(0.5) + a * (a - root) / t(4)) / (a + root):
                proposed = [x * (c - a) + a for x in block(definition.uniform)]
                nearest = t(0) if a < 0 else a * a
                for x, u in zip(proposed, block(definition.uniform), strict=True):
                    found += [x] if u <= np.exp((nearest - x * x) / t(2)) else []
            else:
                alpha = (a + root) / t(2)
                drawn = block(definition.uniform)
                for v, u in zip(drawn[::2], drawn[1::2], strict=True):
                    x = -np.log(v) / alpha + a
                    off = alpha - x if a < alpha else a - alpha
                    found += [x] if u <= np.exp(-off * off / t(2)) and x < c else []
        row[:] = [x * s + mean for x in found[: len(row)]]
    return out.T.reshape(shape)


op(
    "StatelessParameterizedTruncatedNormal",
    "shape: S, seed: Tseed, means: dtype, stddevs: dtype, minvals: dtype, maxvals: dtype",
    "output: dtype",
    {"S": INDEX, "Tseed": type_attr(INDEX, dtypes.int64), "dtype": _NARROW},
    shape=_stateless_shape,
    kernel=_stateless,
    xp=False,
    grad=_stateless_grad,
    jvp=missing("not the derivative of the numbers, but of their distribution: use reverse mode"),
    facts=Facts(cost=flops_per_element(300), dynamic_shape=True),
    oracle=_oracle,
    sample=_cases,
    differs="the numbers are those of one thread; TensorFlow's may depend on its number of threads",
    doc="Normal numbers within bounds; the shape ends with that of the parameters.",
)
