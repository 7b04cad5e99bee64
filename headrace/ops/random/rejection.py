"""Gamma, Poisson and binomial numbers by rejection sampling.

Each number has its own part of the stream, so its number of proposals does not affect other numbers. Proposals for all
numbers that are not accepted yet are computed at once, in numpy. In the stream the numbers of one parameter are
consecutive; the shape of the result is `[numbers, *parameters]`.

The methods are Marsaglia and Tsang's ("A Simple Method for Generating Gamma Variables", 2000), Knuth's for small rates
(TAOCP volume 2), Hörmann's for large ones ("The Transformed Rejection Method for Generating Poisson Random Variables"
and "The Generation of Binomial Random Variates", both 1993).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from headrace import dtypes, shapes, thresholds
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.opkit import arrays
from headrace.resources.philox import RESERVED_PER_NUMBER, Stream

_FEW_RESERVED: Final = 42  # blocks, for a binomial number of a small mean
_MOST_TRIES: Final = 10_000  # a proposal is accepted with a probability of 0.2 at least

Array = np.ndarray


class Lanes:
    """Uniform and normal doubles for many numbers, each from its own part of the stream.

    They are made in pairs, of which the second is taken first.

    Args:
      stream: of the op.
      first, n: the numbers of the lanes.
    """

    def __init__(self, stream: Stream, first: int, n: int) -> None:
        self._stream = stream
        self._numbers = np.arange(first, first + n, dtype=np.uint64)
        self._next = self._numbers * np.uint64(RESERVED_PER_NUMBER)
        self._uniforms = np.empty((n, 2)), np.zeros(n, np.intp)
        self._normals = np.empty((n, 2)), np.zeros(n, np.intp)

    def reserve(self, which: Array, blocks: int) -> None:
        """Assigns parts of `blocks` blocks of the stream to these unused lanes."""
        self._next[which] = self._numbers[which] * np.uint64(blocks)

    def uniform(self, which: Array) -> Array:
        """The next number in [0, 1) of each of these lanes."""
        return self._take(which, *self._uniforms, self._stream.uniform_pairs_at)

    def normal(self, which: Array) -> Array:
        """The next standard normal number of each of these lanes."""
        return self._take(which, *self._normals, self._stream.normal_pairs_at)

    def _take(self, which: Array, pairs: Array, left: Array, make: Callable[[Array], Array]) -> Array:
        empty = which[left[which] == 0]
        if empty.size:
            pairs[empty] = make(self._next[empty])
            self._next[empty] += np.uint64(1)
            left[empty] = 2
        left[which] -= 1
        out: Array = pairs[which, left[which]]
        return out


def draw(
    stream: Stream,
    shape: Sequence[int],
    inner: Sequence[int],
    values: Sequence[Array],
    sampler: Callable[..., Array],
) -> Array:
    """Numbers for each element of a shape: float64.

    Args:
      stream: of the op.
      shape: of the result; its last axes are `inner`.
      inner: the shape of the parameters.
      values: the parameters, each of the shape `inner`.
      sampler: `sampler(lanes, *values of each lane)` → a number for each lane.
    """
    parameters = math.prod(inner)
    n = math.prod(shape) // parameters if parameters else 0
    if not n:
        return np.zeros(tuple(shape))
    flat = [v.reshape(-1) for v in values]
    out = np.empty(n * parameters)
    for first in range(0, n * parameters, thresholds.REJECTION_LANES):
        stop = min(first + thresholds.REJECTION_LANES, n * parameters)
        of = np.arange(first, stop) // n
        out[first:stop] = sampler(Lanes(stream, first, stop - first), *(v[of] for v in flat))
    return out.reshape(parameters, n).T.reshape(tuple(shape))


def drawn(stream: Stream, shape: Sequence[int], values: Sequence[Array], sampler: Callable[..., Array]) -> Array:
    """`draw` for parameters that broadcast, to what `shape` must end with."""
    try:
        inner = np.broadcast_shapes(*(v.shape for v in values))
    except ValueError as e:
        raise InvalidArgumentError(f"parameters must have broadcastable shapes: {e}") from None
    if tuple(shape[len(shape) - len(inner) :]) != inner or len(shape) < len(inner):
        raise InvalidArgumentError(
            f"Shape passed in must end with broadcasted shape. It is {shapes.show(tuple(shape))}, "
            f"and the parameters have the shape {shapes.show(inner)}"
        )
    return draw(stream, shape, inner, [np.broadcast_to(v, inner) for v in values], sampler)


def check_drawn(shape: Sequence[int], dtype: DType) -> None:
    """Refuses what cannot be allocated, in doubles or in `dtype`."""
    arrays.check_size(shape, dtype if dtype.size >= 8 else dtypes.float64)


def as_type(x: Array, dtype: DType) -> Array:
    """Doubles as `dtype`; half precision by way of single, as TensorFlow rounds."""
    return (x.astype(np.float32) if dtype.size == 2 else x).astype(dtype.numpy)


def _unending(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{what} cannot be drawn: no number was accepted in {_MOST_TRIES} tries")


# *** Gamma ***


def gammas(lanes: Lanes, alpha: Array) -> Array:
    """Numbers of the gamma distribution with scale 1."""
    out = np.empty(len(alpha))
    one = np.flatnonzero(alpha == 1)
    if one.size:
        out[one] = -np.log1p(-lanes.uniform(one))
    d = alpha + np.where(alpha < 1, 2 / 3, -1 / 3)
    c = 1 / 3 / np.sqrt(d)
    still = np.flatnonzero(alpha != 1)
    for _ in range(_MOST_TRIES):
        if not still.size:
            return out
        x = lanes.normal(still)
        v = 1 + c[still] * x
        proposed = ~(v <= 0)
        some, x, v = still[proposed], x[proposed], v[proposed] ** 3
        u = lanes.uniform(some)
        taken = u < 1 - 0.0331 * (x * x) * (x * x)
        taken |= np.log(u) < 0.5 * x * x + d[some] * (1 - v + np.log(v))
        out[some[taken]] = d[some[taken]] * v[taken]
        small = some[taken & (alpha[some] < 1)]
        if small.size:
            out[small] *= lanes.uniform(small) ** (1 / alpha[small])
        is_open = np.ones(len(still), np.bool_)
        is_open[np.flatnonzero(proposed)[taken]] = False
        still = still[is_open]
    raise _unending(f"gamma numbers of alpha {alpha[still[0]]}")


# *** Poisson ***


def poissons(dtype: DType) -> Callable[[Lanes, Array], Array]:
    """The sampler of Poisson numbers, none of which is more than `dtype` can hold."""
    is_integer = dtype in dtypes.INTEGER
    greatest = float(np.iinfo(dtype.numpy).max if is_integer else np.finfo(dtype.numpy).max)

    def sampler(lanes: Lanes, rate: Array) -> Array:
        if np.isnan(rate).any():
            raise InvalidArgumentError("rate must not be NaN: no Poisson number could be drawn")
        out = np.full(len(rate), 0.0 if is_integer else np.inf)  # so much are those of an infinite rate
        small = rate < 10
        _few(lanes, rate, np.flatnonzero(small), out)
        _many(lanes, rate, np.flatnonzero(~small & np.isfinite(rate)), out, greatest)
        return out

    return sampler


def _few(lanes: Lanes, rate: Array, still: Array, out: Array) -> None:
    """Counts how many uniform numbers it takes until their product is exp(-rate)."""
    least, product, k = np.exp(-rate), np.ones(len(rate)), 0
    while still.size:
        product[still] *= lanes.uniform(still)
        done = product[still] <= least[still]
        out[still[done]] = k
        still = still[~done]
        k += 1


def _many(lanes: Lanes, rate: Array, still: Array, out: Array, greatest: float) -> None:
    """Hörmann's transformed rejection."""
    from scipy.special import gammaln

    b = 0.931 + 2.53 * np.sqrt(rate)
    a = -0.059 + 0.02483 * b
    for _ in range(_MOST_TRIES):
        if not still.size:
            return
        u, v = lanes.uniform(still) - 0.5, lanes.uniform(still)
        r, bs, as_ = rate[still], b[still], a[still]
        s = 0.5 - np.abs(u)
        k = np.floor((2 * as_ / s + bs) * u + r + 0.43)
        taken = (s >= 0.07) & (v <= 0.9277 - 3.6224 / (bs - 2))
        bound = k * np.log(r) - r - gammaln(k + 1)
        scaled = np.log(v * (1.1239 + 1.1328 / (bs - 3.4)) / (as_ / (s * s) + bs))
        taken |= (k >= 0) & ~((s < 0.013) & (v > s)) & (scaled <= bound)
        taken &= k <= greatest
        out[still[taken]] = k[taken]
        still = still[~taken]
    if still.size:
        raise _unending(f"Poisson numbers of rate {rate[still[0]]}, none above {greatest:g},")


# *** Binomial ***

# what Stirling's formula leaves out of log(k!), for k up to 9
_TAILS: Final = np.array(
    [
        0.0810614667953272,
        0.0413406959554092,
        0.0276779256849983,
        0.02079067210376509,
        0.0166446911898211,
        0.0138761288230707,
        0.0118967099458917,
        0.0104112652619720,
        0.00925546218271273,
        0.00833056343336287,
    ]
)


def _tail(k: Array) -> Array:
    square = (k + 1) ** 2
    series = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1)
    out: Array = np.where(k <= 9, _TAILS[np.clip(k, 0, 9).astype(np.intp)], series)
    return out


def binomials(lanes: Lanes, counts: Array, probs: Array) -> Array:
    """Draws the numbers of successes in `counts` trials with probability `probs`.

    Both arrays have the dtypes of the op's inputs, because the rounding depends on them.
    """
    if not np.isfinite(counts).all():
        raise InvalidArgumentError(f"counts must be finite, got {counts[~np.isfinite(counts)][0]}")
    n, is_certain = counts.astype(np.float64), probs >= 1
    out = np.where(is_certain, n, np.where(np.isnan(probs), np.nan, 0.0))
    out[n <= 0] = 0
    is_likely = probs > 0.5
    p = np.where(is_likely, probs.dtype.type(1) - probs, probs)
    drawn = (n > 0) & (probs > 0) & ~is_certain
    is_large = counts * p >= 10
    p = p.astype(np.float64)
    for some, method in ((drawn & ~is_large, _gaps), (drawn & is_large, _transformed)):
        which = np.flatnonzero(some)
        if which.size:
            method(lanes, n, p, which, out)
            turned = which[is_likely[which]]
            out[turned] = n[turned] - out[turned]
    return out


def _gaps(lanes: Lanes, n: Array, p: Array, still: Array, out: Array) -> None:
    """Counts how many gaps between successes fit into the trials."""
    lanes.reserve(still, _FEW_RESERVED)
    trials, k = np.zeros(len(n)), 0
    scale = np.log1p(-p)
    while still.size:
        trials[still] += np.ceil(np.log(lanes.uniform(still)) / scale[still])
        done = ~(trials[still] <= n[still])
        out[still[done]] = k
        still = still[~done]
        k += 1


def _transformed(lanes: Lanes, n: Array, p: Array, still: Array, out: Array) -> None:
    """Hörmann's transformed rejection."""
    for _ in range(_MOST_TRIES):
        if not still.size:
            return
        count, prob = n[still], p[still]
        deviation = np.sqrt(count * prob * (1 - prob))
        b = 1.15 + 2.53 * deviation
        a = -0.0873 + 0.0248 * b + 0.01 * prob
        odds, m = prob / (1 - prob), np.floor((count + 1) * prob)
        u, v = lanes.uniform(still) - 0.5, lanes.uniform(still)
        s = 0.5 - np.abs(u)
        k = np.floor((2 * a / s + b) * u + count * prob + 0.5)
        taken = (s >= 0.07) & (v <= 0.92 - 4.2 / b)
        bound = (
            (m + 0.5) * np.log((m + 1) / (odds * (count - m + 1)))
            + (count + 1) * np.log((count - m + 1) / (count - k + 1))
            + (k + 0.5) * np.log(odds * (count - k + 1) / (k + 1))
            + (_tail(m) + _tail(count - m) - _tail(k) - _tail(count - k))
        )
        scaled = np.log(v * (2.83 + 5.1 / b) * deviation / (a / (s * s) + b))
        taken |= (k >= 0) & (k <= count) & (scaled <= bound)
        out[still[taken]] = k[taken]
        still = still[~taken]
    raise _unending(f"binomial numbers of {n[still[0]]} trials of probability {p[still[0]]}")
