"""Sums over channels of arrays, and maps with numbers of each channel, for normalizations.

Arrays are [outer, channels, inner] and contiguous, of float32 or float64. If `inner` is 1 the channels are the fast
dimension, and a row of few channels would leave vectors empty. So several rows are one row of `CHANNEL_WIDTH` numbers
or more, and vectors of channels are repeated; the last row may be shorter. Otherwise each channel has runs of numbers.

Sums of up to `CHANNEL_ROWS` rows are those of the dtype, and sums of these are float64.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headrace import thresholds
from headrace.opkit.kernel_library import KernelLibrary
from headrace.targets.native.functions import is_native
from headrace.targets.native.loops import Loops, Numbers, compiled
from headrace.targets.native.values import Value

Array: TypeAlias = np.ndarray


class _Work(NamedTuple):
    """Numbers that a function computes for each number of its arrays.

    Attributes:
      name: the name of the function.
      terms: write a number each, from those of the arrays and of the vectors of channels.
      arrays: the number of arrays that are read.
      vectors: the number of vectors of channels that are read.
    """

    name: str
    terms: tuple[Callable[..., Value], ...]
    arrays: int
    vectors: int


_SUM = _Work("sum", (lambda x: x,), 1, 0)
_SQUARES = _Work("squares", (lambda x, mean: (x - mean) * (x - mean),), 1, 1)
_PRODUCTS = _Work("products", (lambda g, x, mean: g, lambda g, x, mean: g * (x - mean)), 2, 1)
_SCALED = _Work("scaled", (lambda x, mean, factor, offset: (x - mean) * factor + offset,), 1, 3)
_CENTRED = _Work("centred", (lambda g, x, mean, slope, shift, factor: ((x - mean) * slope + g - shift) * factor,), 2, 4)


class NativeChannels(KernelLibrary):
    """Functions of channels by native code."""

    def moments(self, x: Array) -> tuple[Array, Array] | None:
        """The mean and the variance of each channel; None if numpy is to compute them."""
        if not _pays(x):
            return None
        n = len(x) * x.shape[2]
        mean = (_sums(_SUM, [x], [])[0] / n).astype(x.dtype)
        return mean, (_sums(_SQUARES, [x], [mean])[0] / n).astype(x.dtype)

    def scaled(self, x: Array, mean: Array, factor: Array, offset: Array, out: Array) -> Array | None:
        """The scaled array; None if numpy is to compute it."""
        return _mapped(_SCALED, [x], [mean, factor, offset], out) if _pays(x) else None

    def products(self, g: Array, x: Array, mean: Array) -> tuple[Array, Array] | None:
        """The sums of `g` and of `g * (x - mean)`; None if numpy is to compute them."""
        if not _pays(x):
            return None
        first, second = _sums(_PRODUCTS, [g, x], [mean])
        return first.astype(x.dtype), second.astype(x.dtype)

    def centred(
        self, g: Array, x: Array, mean: Array, slope: Array, shift: Array, factor: Array, out: Array
    ) -> Array | None:
        """The gradient of a normalization by its input; None if numpy is to compute it."""
        return _mapped(_CENTRED, [g, x], [mean, slope, shift, factor], out) if _pays(x) else None


def _pays(x: Array) -> bool:
    return x.size >= thresholds.NATIVE_CHANNELS and is_native(x)


# *** Calls ***


def _repeats(x: Array) -> int:
    """The number of rows [channels] that make one row of at least `CHANNEL_WIDTH` numbers."""
    return -(-thresholds.CHANNEL_WIDTH // int(x.shape[1]))


def _sums(work: _Work, arrays: Sequence[Array], vectors: Sequence[Array]) -> list[Array]:
    """The sums of each channel, as float64."""
    outer, channels, inner = arrays[0].shape
    given = [np.ascontiguousarray(a) for a in arrays]
    if inner != 1:
        totals = [np.zeros(channels) for _ in work.terms]
        function = compiled((work.name, "runs", arrays[0].dtype), lambda: _sums_of_runs(work, arrays[0].dtype))
        function(*totals, *given, *vectors, outer, channels, inner)
        return totals
    repeats = _repeats(arrays[0])
    width = repeats * channels
    totals = [np.zeros(width) for _ in work.terms]
    parts = [np.empty(width, arrays[0].dtype) for _ in work.terms]
    function = compiled((work.name, "rows", arrays[0].dtype), lambda: _sums_of_rows(work, arrays[0].dtype))
    n = outer * channels
    function(*totals, *parts, *given, *(np.tile(v, repeats) for v in vectors), n // width, width, n % width)
    return [t.reshape(repeats, channels).sum(0) for t in totals]


def _mapped(work: _Work, arrays: Sequence[Array], vectors: Sequence[Array], out: Array) -> Array:
    """Writes a number to `out`, which is contiguous, for each number of the arrays."""
    outer, channels, inner = out.shape
    given = [out, *(np.ascontiguousarray(a) for a in arrays)]
    if inner != 1:
        function = compiled((work.name, "runs", out.dtype), lambda: _map_of_runs(work, out.dtype))
        function(*given, *vectors, outer, channels, inner)
        return out
    repeats = _repeats(out)
    width = repeats * channels
    function = compiled((work.name, "rows", out.dtype), lambda: _map_of_rows(work, out.dtype))
    n = outer * channels
    function(*given, *(np.tile(v, repeats) for v in vectors), -(-n // width), width, n)
    return out


# *** Functions ***


def _arguments(work: _Work, dtype: np.dtype, results: Sequence[Any], sizes: Sequence[str]) -> tuple[Loops, Any, Any]:
    """A new function; the numbers that it reads at a place and a channel."""
    dtypes = [*results, *[dtype] * (work.arrays + work.vectors)]
    loops = Loops(dtypes, sizes)
    inputs = loops.arrays[len(results) :]
    return loops, inputs[: work.arrays], inputs[work.arrays :]


def _map_of_rows(work: _Work, dtype: np.dtype) -> Loops:
    loops, arrays, vectors = _arguments(work, dtype, [dtype], ["rows", "width", "n"])
    rows, width, n = loops.sizes
    with loops.each(0, rows) as row:
        first = row * width
        out, *parts = (a.part(first) for a in (loops.arrays[0], *arrays))
        with loops.each(0, loops.least(width, n - first)) as i:
            out[i] = work.terms[0](*(a[i] for a in (*parts, *vectors)))
    return loops


def _map_of_runs(work: _Work, dtype: np.dtype) -> Loops:
    loops, arrays, vectors = _arguments(work, dtype, [dtype], ["outer", "channels", "inner"])
    with _runs(loops) as (channel, first):
        out, *parts = (a.part(first) for a in (loops.arrays[0], *arrays))
        numbers = [v[channel] for v in vectors]
        with loops.each(0, loops.sizes[2]) as i:
            out[i] = _at(work.terms[0], parts, numbers, i)
    return loops


def _sums_of_runs(work: _Work, dtype: np.dtype) -> Loops:
    double = np.dtype(np.float64)
    loops, arrays, vectors = _arguments(work, dtype, [double] * len(work.terms), ["outer", "channels", "inner"])
    with _runs(loops) as (channel, first):
        parts, numbers = [a.part(first) for a in arrays], [v[channel] for v in vectors]
        for total, term in zip(loops.arrays, work.terms, strict=False):
            write = functools.partial(_at, term, parts, numbers)
            total[channel] = total[channel] + loops.sum(loops.sizes[2], dtype, write)
    return loops


def _at(term: Callable[..., Value], parts: Sequence[Numbers], numbers: Sequence[Value], i: Value) -> Value:
    return term(*(a[i] for a in parts), *numbers)


@contextlib.contextmanager
def _runs(loops: Loops) -> Iterator[tuple[Value, Value]]:
    """Loops over runs of numbers; gives the channel and the place of the first number."""
    outer, channels, inner = loops.sizes
    with loops.each(0, outer) as i, loops.each(0, channels) as channel:
        yield channel, (i * channels + channel) * inner


def _sums_of_rows(work: _Work, dtype: np.dtype) -> Loops:
    double, n = np.dtype(np.float64), len(work.terms)
    loops, arrays, vectors = _arguments(work, dtype, [double] * n + [dtype] * n, ["rows", "width", "rest"])
    rows, width, rest = loops.sizes
    totals, parts = loops.arrays[:n], loops.arrays[n : 2 * n]

    def added(sums: Sequence[Numbers], row: Value, count: Value, together: int) -> None:
        """Adds rows to sums in memory."""
        starts = [[a.part((row + k) * width) for a in arrays] for k in range(together)]
        with loops.each(0, count) as i:
            numbers = [v[i] for v in vectors]
            every = [[a[i] for a in start] for start in starts]
            for into, term in zip(sums, work.terms, strict=True):
                found = [term(*given, *numbers) for given in every]
                while len(found) > 1:
                    found = [a + b for a, b in zip(found[::2], found[1::2], strict=True)]
                into[i] = into[i] + loops.converted(found[0], dtype, into.dtype)

    with loops.each(0, rows, thresholds.CHANNEL_ROWS) as first:
        stop = loops.least(rows, first + thresholds.CHANNEL_ROWS)
        for part in parts:
            with loops.each(0, width) as i:
                part[i] = loops.constant(0, dtype)
        whole = stop - (stop - first) % thresholds.CHANNEL_ROWS_TOGETHER
        with loops.each(first, whole, thresholds.CHANNEL_ROWS_TOGETHER) as row:
            added(parts, row, width, thresholds.CHANNEL_ROWS_TOGETHER)
        with loops.each(whole, stop) as row:
            added(parts, row, width, 1)
        for total, part in zip(totals, parts, strict=True):
            with loops.each(0, width) as i:
                total[i] = total[i] + loops.converted(part[i], dtype, double)
    added(totals, rows, rest, 1)
    return loops
