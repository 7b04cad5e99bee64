"""Reference definitions of the distributions in plain Python, for oracles.

They start from the words of Philox and compute one number at a time.

A stream here is a key and a counter, two Python integers of 64 and 128 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from headrace.dtypes import DType, bfloat16, float16, float32, float64

_RESERVED: Final = 256  # blocks
_32: Final = (1 << 32) - 1


def block(key: int, counter: int) -> list[int]:
    """Four words, by Philox's ten rounds."""
    k = [key & _32, key >> 32]
    c = [counter >> 32 * i & _32 for i in range(4)]
    for _ in range(10):
        p, q = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [q >> 32 ^ c[1] ^ k[0], q & _32, p >> 32 ^ c[3] ^ k[1], p & _32]
        k = [(k[0] + 0x9E3779B9) & _32, (k[1] + 0xBB67AE85) & _32]
    return c


def mixed(seed: Any) -> tuple[int, int]:
    """The stream that two seeds stand for."""
    low, high = (int(s) % 2**64 for s in seed)
    c = block(0x02461E293EC8F720, low | high << 64)
    return c[0] | c[1] << 32, (c[2] | c[3] << 32) << 64


def keyed(key: Any, counter: Any) -> tuple[int, int]:
    """The stream of a key and a counter as they are in tensors."""
    return int(key[0]), int(counter[0]) | int(counter[1]) << 64


def words(stream: tuple[int, int]) -> Iterator[int]:
    """The words of a stream, one after the other."""
    key, counter = stream
    while True:
        yield from block(key, counter % 2**128)
        counter += 1


def part(stream: tuple[int, int], i: int, blocks: int = _RESERVED) -> tuple[int, int]:
    """Part of a stream that is reserved for output `i` of a rejection sampler."""
    return stream[0], stream[1] + i * blocks


def double(low: int, high: int) -> float:
    """A number in [0, 1) of two words."""
    return ((low & 0xFFFFF) << 32 | high) / 2.0**52


def _normals(u: float, v: float) -> tuple[float, float]:
    """Box and Muller's pair of normal numbers of two uniform ones."""
    radius = math.sqrt(-2 * math.log(max(u, 1e-7)))
    return radius * math.sin(2 * math.pi * v), radius * math.cos(2 * math.pi * v)


class Doubles:
    """Uniform and normal numbers from a stream, for rejection samplers.

    They are made in pairs, of which the second is taken first.
    """

    def __init__(self, stream: tuple[int, int]) -> None:
        self._words = words(stream)
        self._uniforms: list[float] = []
        self._normals: list[float] = []

    def _pair(self) -> tuple[float, float]:
        w = [next(self._words) for _ in range(4)]
        return double(*w[:2]), double(*w[2:])

    def uniform(self) -> float:
        if not self._uniforms:
            self._uniforms.extend(self._pair())
        return self._uniforms.pop()

    def normal(self) -> float:
        if not self._normals:
            self._normals.extend(_normals(*self._pair()))
        return self._normals.pop()


def uniform(stream: tuple[int, int], n: int, dtype: DType) -> np.ndarray:
    """The first `n` numbers in [0, 1)."""
    w = words(stream)
    if dtype is float64:
        return np.array([double(next(w), next(w)) for _ in range(n)])
    bits = {float32: 23, float16: 10, bfloat16: 7}[dtype]
    return np.array([next(w) % 2**bits / 2.0**bits for _ in range(n)]).astype(dtype.numpy)


def normal(stream: tuple[int, int], n: int, dtype: DType) -> np.ndarray:
    """The first `n` normal numbers."""
    u = uniform(stream, n + n % 2, dtype if dtype is float64 else float32).tolist()
    return np.array([x for i in range(0, n, 2) for x in _normals(*u[i : i + 2])][:n]).astype(dtype.numpy)


def truncated_normal(stream: tuple[int, int], n: int, dtype: DType) -> np.ndarray:
    """First `n` normal numbers within two deviations.

    Each part of the stream gives one group of them.
    """
    group = 2 if dtype is float64 else 4
    out: list[Any] = []
    while len(out) < n:
        tried = normal((stream[0], stream[1] + len(out) * 64), 20 * group, dtype)  # more than are ever needed
        out += [x for x in tried if abs(x) < 2][:group]
    return np.array(out[:n], dtype.numpy)


def integers(stream: tuple[int, int], n: int, dtype: DType) -> np.ndarray:
    """The first `n` integers."""
    w = words(stream)
    found = [next(w) if dtype.size == 4 else next(w) | next(w) << 32 for _ in range(n)]
    return np.array(found, np.uint64).astype(f"u{dtype.size}").view(dtype.numpy)


def uniform_int(stream: tuple[int, int], n: int, low: int, high: int, dtype: DType) -> np.ndarray:
    """The first `n` integers in [low, high)."""
    unsigned = integers(stream, n, dtype).view(f"u{dtype.size}").tolist()
    return np.array([low + w % (high - low) for w in unsigned], dtype.numpy)


def gamma(alpha: float, source: Doubles) -> float:
    """A number of the gamma distribution, by Marsaglia and Tsang's method."""
    if alpha == 1:
        return -math.log1p(-source.uniform())
    d = alpha + (2 / 3 if alpha < 1 else -1 / 3)
    while True:
        x = source.normal()
        v = (1 + x / (3 * math.sqrt(d))) ** 3
        if v <= 0:
            continue
        u = source.uniform()
        if u < 1 - 0.0331 * x**4 or math.log(u) < 0.5 * x * x + d * (1 - v + math.log(v)):
            return d * v * (source.uniform() ** (1 / alpha) if alpha < 1 else 1)


def poisson(rate: float, source: Doubles) -> float:
    """A number of the Poisson distribution, by Knuth's method or, for large rates, by Hörmann's."""
    if rate < 10:
        k, product = 0, source.uniform()
        while product > math.exp(-rate):
            product *= source.uniform()
            k += 1
        return k
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    while True:
        u, v = source.uniform() - 0.5, source.uniform()
        s = 0.5 - abs(u)
        k = math.floor((2 * a / s + b) * u + rate + 0.43)
        if s >= 0.07 and v <= 0.9277 - 3.6224 / (b - 2):
            return k
        if k < 0 or (s < 0.013 and v > s):
            continue
        inverse = 1.1239 + 1.1328 / (b - 3.4)
        if math.log(v * inverse / (a / s**2 + b)) <= k * math.log(rate) - rate - math.lgamma(k + 1):
            return k


def binomial(count: float, p: float, source: Doubles) -> float:
    """Draws a number from the binomial distribution.

    It adds up the gaps between successes or, if many are expected, uses Hörmann's method.
    """
    if p > 0.5:
        return count - binomial(count, 1 - p, source)
    if count <= 0 or p <= 0:
        return 0
    if count * p < 10:
        k, trials = -1, 0.0
        while trials <= count:
            trials += math.ceil(math.log(source.uniform()) / math.log1p(-p))
            k += 1
        return k
    deviation, m, odds = math.sqrt(count * p * (1 - p)), math.floor((count + 1) * p), p / (1 - p)
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p

    def log_mass(k: float) -> float:
        """The logarithm of the probability of `k`, but for a constant."""
        return k * math.log(odds) - math.lgamma(k + 1) - math.lgamma(count - k + 1)

    while True:
        u, v = source.uniform() - 0.5, source.uniform()
        s = 0.5 - abs(u)
        k = math.floor((2 * a / s + b) * u + count * p + 0.5)
        if s >= 0.07 and v <= 0.92 - 4.2 / b:
            return k
        if 0 <= k <= count:
            scaled = v * (2.83 + 5.1 / b) * deviation / (a / s**2 + b)
            if math.log(scaled) <= log_mass(k) - log_mass(m):
                return k


def binomial_blocks(count: float, p: float) -> int:
    """Number of blocks reserved for a binomial number."""
    return 42 if count * min(p, 1 - p) < 10 else _RESERVED


def each(
    stream: tuple[int, int],
    shape: Sequence[int],
    values: Sequence[np.ndarray],
    draw: Callable[..., float],
    blocks: Callable[..., int] = lambda *values: _RESERVED,
) -> np.ndarray:
    """`draw(*values, source)` for each element of `shape`, the last axes of which are those of `values`.

    The numbers of one parameter come one after the other in the stream, however they lie in the result; `blocks` says
    how many blocks are reserved for each.
    """
    values = np.broadcast_arrays(*values)
    inner = values[0].shape
    outer = tuple(shape[: len(shape) - len(inner)])
    n = math.prod(outer)
    out = np.zeros((n, *inner))
    for i, at in enumerate(np.ndindex(inner)):
        for k in range(n):
            found = [float(v[at]) for v in values]
            out[(k, *at)] = draw(*found, Doubles(part(stream, i * n + k, blocks(*found))))
    return out.reshape(*outer, *inner)
