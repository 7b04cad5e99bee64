"""Resampling of images along one axis at a time, by weighted elements.

A tap is an input element with its weight in an element of the result. For each k, the module lists the elements of the
result that have a k-th tap, the input element and the weight. The taps of an axis form a sparse matrix, and an image is
multiplied by the matrices of both axes. Arrays of other namespaces of the array API standard than numpy are multiplied
tap by tap.

Source: the conventions of TensorFlow's Resize ops and of ScaleAndTranslate, in float32 as there, so that positions
between two elements are equal to TensorFlow's. Cubic: Keys, "Cubic Convolution Interpolation for Digital Image
Processing", 1981, with the coefficients taken from a table of 1024 steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headrace import thresholds
from headrace.dtypes import DType, bool_, float32, float64, int64
from headrace.memo import cached
from headrace.opkit.kernel_library import Table, kernel_library
from headrace.opkit.namespaces import constant, converter, dtype_in
from headrace.opkit.window_arrays import size
from headrace.records import record

Array: TypeAlias = np.ndarray
F32 = np.float32


class Tap(NamedTuple):
    """The k-th elements that go into the elements of an axis.

    Attributes:
      into: which elements of the result have one.
      source: these elements.
      weight: in float32; None: 1.
    """

    into: Any
    source: Array
    weight: Array | None


ALL = slice(None)


@record(frozen=True, eq=False)
class Taps:
    """Taps of an axis, in ascending order of their input elements.

    Attributes:
      taps: the taps.
      length: the number of input elements.
      out: the number of elements of the result.
    """

    taps: tuple[Tap, ...]
    length: int
    out: int

    @property
    def is_single(self) -> bool:
        """Whether the result has copies of input elements."""
        return len(self.taps) == 1 and self.taps[0].weight is None

    def matrix(self, dtype: Any) -> Any:
        """The weights as a sparse matrix [out, length]."""
        from scipy.sparse import csr_matrix

        into = [np.arange(self.out)[tap.into] for tap in self.taps]
        weights = [np.ones(len(tap.source)) if tap.weight is None else tap.weight for tap in self.taps]
        none: list[Array] = [np.zeros(0, np.int64)]
        rows, columns, values = (np.concatenate(x + none) for x in (into, [tap.source for tap in self.taps], weights))
        return csr_matrix((values.astype(dtype), (rows, columns)), (self.out, self.length))

    @functools.cached_property
    def table(self) -> Table:
        """The taps of each element of the result."""
        source = np.full((1, self.out, len(self.taps)), -1, np.int64)
        weight = np.zeros(source.shape, F32)
        for k, tap in enumerate(self.taps):
            source[0, tap.into, k] = tap.source
            weight[0, tap.into, k] = 1 if tap.weight is None else tap.weight
        return merged(Table(source, weight))

    @functools.cached_property
    def transposed(self) -> Table:
        """The elements of the result that each input element goes into."""
        source, weight = (a[0] for a in self.table)
        into, k = np.nonzero(source >= 0)
        elements = source[into, k]
        order = np.argsort(elements, kind="stable")
        into, elements, weights = into[order], elements[order], weight[into, k][order]
        counts = np.bincount(elements, minlength=self.length)
        place = np.arange(len(into)) - (np.cumsum(counts) - counts)[elements]
        back = Table(
            np.full((1, self.length, counts.max(initial=0)), -1, np.int64),
            np.zeros((1, self.length, counts.max(initial=0)), F32),
        )
        back.source[0, elements, place], back.weight[0, elements, place] = into, weights
        return back


def merged(table: Table) -> Table:
    """Makes one tap of neighboring taps with the same input element.

    Args:
      table: The table, whose taps are in ascending order. It is changed.

    Returns:
      The table.
    """
    for k in range(1, table.source.shape[2]):
        is_same = (table.source[..., k] == table.source[..., k - 1]) & (table.source[..., k] >= 0)
        table.weight[..., k] += np.where(is_same, table.weight[..., k - 1], F32(0))
        table.source[..., k - 1][is_same], table.weight[..., k - 1][is_same] = -1, 0
    return table


# *** Applying them ***


def _product(rows: Any, x: Array, columns: Any) -> Array:
    """`rows @ x @ columns.T` for each channel of `x` [h, w, channels]."""
    _, w, channels = x.shape
    lines = (rows @ x.reshape(len(x), -1)).reshape(-1, w, channels)
    across = columns @ lines.transpose(1, 0, 2).reshape(w, -1)
    found: Array = across.reshape(-1, len(lines), channels).transpose(1, 0, 2)
    return found


def _along(xp: Any, x: Any, axis: int, table: Table, t: DType) -> Any:
    """Weighted sums of the elements along an axis, by the only table of `table`."""
    sources, weights = table.source[0], table.weight[0]
    lead = (-1, *[1] * (x.ndim - 1 - axis))
    out: Any = None
    for source, weight in zip(sources.T, weights.T, strict=True):
        part = xp.take(x, constant(xp, np.maximum(source, 0).tolist(), int64, x), axis=axis)
        if not (weight == 1).all():
            part = part * xp.reshape(constant(xp, weight.astype(t.numpy).tolist(), t, x), lead)
        if (source < 0).any():
            part = xp.where(xp.reshape(constant(xp, (source >= 0).tolist(), bool_, x), lead), part, xp.zeros_like(part))
        out = part if out is None else out + part
    if out is None:
        return xp.zeros((*x.shape[:axis], len(sources), *x.shape[axis + 1 :]), dtype=x.dtype, device=x.device)
    return out


def resampled(images: Any, rows: Taps, columns: Taps, t: DType, xp: Any = np) -> Any:
    """Images [n, h, w, channels] as [n, rows.out, columns.out, channels], computed in the dtype `t`.

    `xp` is the namespace of the kernel.
    """
    if xp is not np:
        return _along(xp, _along(xp, converter(xp, t)(images), 1, rows.table, t), 2, columns.table, t)
    dtype = t.numpy
    n, *_, channels = images.shape
    if rows.is_single and columns.is_single:
        (row,), (column,) = rows.taps, columns.taps
        some = images.take(row.source, 1).take(column.source, 2)
        if row.into is ALL and column.into is ALL:
            return some.astype(dtype, copy=False)
        out = np.zeros((n, rows.out, columns.out, channels), dtype)
        out[np.ix_(np.arange(n), np.arange(rows.out)[row.into], np.arange(columns.out)[column.into])] = some
        return out
    if n * rows.out * columns.out * channels >= thresholds.NATIVE_RESAMPLED:
        found = kernel_library(xp).resampled(images, np.arange(n), rows.table, columns.table, dtype)
        if found is not None:
            return found
    out = np.zeros((n, rows.out, columns.out, channels), dtype)
    by_row, by_column = rows.matrix(dtype), columns.matrix(dtype)
    for image, into in zip(images, out, strict=True):
        into[:] = _product(by_row, image.astype(dtype, copy=False), by_column)
    return out


def back(grads: Any, rows: Taps, columns: Taps, t: DType, xp: Any = np) -> Any:
    """Gradient of `resampled` by images, summed in the dtype `t`.

    Double precision sums the products that float32 makes of an element and the weights of its row and column, as
    TensorFlow does.
    """
    n, h, w, channels = grads.shape
    dtype = t.numpy
    parts: list[tuple[Taps, Taps]] = [(rows, columns)]
    is_exact = t is float64 and grads.dtype == xp.float32
    if is_exact:
        parts = [(_only(row, rows), _only(column, columns)) for row in rows.taps for column in columns.taps]
    if xp is not np:
        return _back(xp, grads, rows, columns, parts, is_exact, t)
    if not is_exact and grads.size >= thresholds.NATIVE_RESAMPLED:
        found = kernel_library(xp).resampled(grads, np.arange(n), rows.transposed, columns.transposed, dtype)
        if found is not None:
            return found
    out = np.zeros((n, rows.length, columns.length, channels), dtype)
    if not grads.size:
        return out
    for some_rows, some_columns in parts:
        factor: Any = None
        if is_exact:
            factor = [_dense(some_rows.taps[0], h), _dense(some_columns.taps[0], w)]
            some_rows, some_columns = _unweighted(some_rows), _unweighted(some_columns)
        by_row, by_column = some_rows.matrix(dtype).T.tocsr(), some_columns.matrix(dtype).T.tocsr()
        for dy, dx in zip(grads, out, strict=True):
            weighted = dy if factor is None else dy * factor[0][:, None, None] * factor[1][None, :, None]
            dx += _product(by_row, weighted.astype(dtype, copy=False), by_column)
    return out


def _back(
    xp: Any, grads: Any, rows: Taps, columns: Taps, parts: list[tuple[Taps, Taps]], is_exact: bool, t: DType
) -> Any:
    """As `back`, of arrays of a namespace."""
    n, h, w, channels = grads.shape
    widen = converter(xp, t)
    out = xp.zeros((n, rows.length, columns.length, channels), dtype=dtype_in(xp, t), device=grads.device)
    for some_rows, some_columns in parts if size(grads) else ():
        weighted = grads
        if is_exact:
            row, column = some_rows.taps[0], some_columns.taps[0]
            down, along = (constant(xp, _dense(tap, k).tolist(), float32, grads) for tap, k in ((row, h), (column, w)))
            weighted = grads * down[:, None, None] * along[:, None]
            some_rows, some_columns = _unweighted(some_rows), _unweighted(some_columns)
        lines = _along(xp, widen(weighted), 1, some_rows.transposed, t)
        out = out + _along(xp, lines, 2, some_columns.transposed, t)
    return out


def _unweighted(of: Taps) -> Taps:
    return _only(of.taps[0]._replace(weight=None), of)


def _only(tap: Tap, of: Taps) -> Taps:
    return Taps((tap,), of.length, of.out)


def _dense(tap: Tap, out: int) -> Array:
    """Weight of a tap for each element of the result; 0 where it has none."""
    weights = np.zeros(out, F32)
    weights[tap.into] = 1 if tap.weight is None else tap.weight
    return weights


# *** The axes of the Resize ops ***


def _scale(length: int, out: int, align_corners: bool) -> Any:
    if align_corners and out > 1:
        return F32(length - 1) / F32(out - 1)
    return F32(length) / F32(out)


def _places(length: int, out: int, align_corners: bool, half_pixel_centers: bool) -> Array:
    """Positions of the elements of the result in the source."""
    scale, i = _scale(length, out, align_corners), np.arange(out, dtype=F32)
    return (i + F32(0.5)) * scale - F32(0.5) if half_pixel_centers else i * scale


def rounded(at: Any, xp: Any = np) -> Any:
    """The nearest integers; of two the one farther from 0."""
    exact = converter(xp, float64)(at)
    return converter(xp, int64)(xp.trunc(exact + xp.copysign(xp.full_like(exact, 0.5), exact)))


@cached(256, "image taps")
def nearest(length: int, out: int, align_corners: bool, half_pixel_centers: bool) -> Taps:
    """One element each."""
    scale, i = _scale(length, out, align_corners), np.arange(out, dtype=F32)
    at = (i + F32(0.5)) * scale if half_pixel_centers else i * scale
    index = rounded(at) if align_corners else np.floor(at).astype(np.int64)
    return Taps((Tap(ALL, np.clip(index, 0, length - 1), None),), length, out)


@cached(256, "image taps")
def bilinear(length: int, out: int, align_corners: bool, half_pixel_centers: bool) -> Taps:
    """The elements on both sides."""
    at = _places(length, out, align_corners, half_pixel_centers)
    below = np.floor(at)
    share = at - below
    low = np.clip(below.astype(np.int64), 0, length - 1)
    high = np.clip(np.ceil(at).astype(np.int64), 0, length - 1)
    return Taps((Tap(ALL, low, 1 - share), Tap(ALL, high, share)), length, out)


_STEPS = 1024  # of the table between two elements


def _cubic(a: float) -> tuple[Array, Array]:
    """Weights of elements by distance: up to one element, and from one to two."""
    x = np.arange(_STEPS + 1) / _STEPS
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    x = x + 1
    return near.astype(F32), (((a * x - 5 * a) * x + 8 * a) * x - 4 * a).astype(F32)


@cached(256, "image taps")
def bicubic(length: int, out: int, align_corners: bool, half_pixel_centers: bool) -> Taps:
    """Taps of bicubic interpolation: two elements on each side.

    Elements beyond the edge have the weight 0 with half-pixel centers; otherwise the last element stands for them.
    """
    at = _places(length, out, align_corners, half_pixel_centers)
    below = np.floor(at)
    step = np.rint((at - below) * _STEPS).astype(np.int64)
    near, far = _cubic(-0.5 if half_pixel_centers else -0.75)
    weights = [far[step], near[step], near[_STEPS - step], far[_STEPS - step]]
    wanted = [below.astype(np.int64) + k for k in (-1, 0, 1, 2)]
    indices = [np.clip(w, 0, length - 1) for w in wanted]
    if half_pixel_centers:
        weights = [np.where(i == w, x, F32(0)) for i, w, x in zip(indices, wanted, weights, strict=True)]
        total = np.sum(weights, 0, dtype=F32)
        factor = F32(1) / np.where(np.abs(total) >= 1000 * np.finfo(F32).tiny, total, F32(1))
        weights = [w * factor for w in weights]
    return Taps(tuple(Tap(ALL, i, w) for i, w in zip(indices, weights, strict=True)), length, out)


def _ragged(starts: Array, counts: Array, weight: Callable[[Any, Array], Array], length: int) -> tuple[Tap, ...]:
    """Taps at `counts` elements from `starts` on; `weight(outputs, elements)` are their weights."""
    taps = []
    for k in range(int(counts.max(initial=0))):
        into: Any = ALL if (counts > k).all() else np.flatnonzero(counts > k)
        at = starts[into] + k
        taps.append(Tap(into, np.clip(at, 0, length - 1), weight(into, at)))
    return tuple(taps)


@cached(64, "image taps")
def area(length: int, out: int, align_corners: bool) -> Taps:
    """The mean over the part of the axis that an element of the result covers."""
    scale, i = _scale(length, out, align_corners), np.arange(out, dtype=F32)
    low, high = i * scale, (i + 1) * scale
    starts = np.floor(low).astype(np.int64)

    def weight(into: Any, at: Array) -> Array:
        covered: Array = np.minimum(F32(1) + at.astype(F32), high[into]) - np.maximum(at.astype(F32), low[into])
        return (covered / scale).astype(F32)

    return Taps(_ragged(starts, np.ceil(high).astype(np.int64) - starts, weight, length), length, out)


# *** ScaleAndTranslate ***


def _lanczos(radius: float) -> Callable[[Array], Array]:
    def f(x: Array) -> Array:
        pi = F32(np.pi)
        safe = np.maximum(x, F32(1e-3))
        wave = F32(radius) * np.sin(pi * safe) * np.sin(pi * safe / F32(radius)) / (pi * pi * safe * safe)
        return np.where(x > radius, F32(0), np.where(x <= F32(1e-3), F32(1), wave))

    return f


def _pieces(near: Sequence[float], far: Sequence[float]) -> Callable[[Array], Array]:
    """A piecewise polynomial: coefficients up to 1 and up to 2, the highest power first."""

    def f(x: Array) -> Array:
        inner, outer = (np.polyval(np.array(c, F32), x) for c in (near, far))
        return np.where(x >= 2, F32(0), np.where(x >= 1, outer, inner))

    return f


def _gaussian(x: Array) -> Array:
    return np.where(x >= F32(1.5), F32(0), np.exp(-x * x / F32(2 * 0.5 * 0.5)))


# Name → how far the kernel reaches, and the kernel, a function of the distance.
KERNELS: dict[str, tuple[float, Callable[[Array], Array]]] = {
    "lanczos1": (1.0, _lanczos(1.0)),
    "lanczos3": (3.0, _lanczos(3.0)),
    "lanczos5": (5.0, _lanczos(5.0)),
    "gaussian": (1.5, _gaussian),
    "box": (1.0, lambda x: np.where(x < 0.5, F32(1), np.where(x == 0.5, F32(0.5), F32(0)))),
    "triangle": (1.0, lambda x: np.maximum(F32(0), 1 - x)),
    "keyscubic": (2.0, _pieces([1.5, -2.5, 0, 1], [-0.5, 2.5, -4, 2])),
    "mitchellcubic": (2.0, _pieces([7 / 6, -2, 0, 8 / 9], [-7 / 18, 2, -10 / 3, 16 / 9])),
}


@cached(64, "image taps")
def kernel_taps(kind: str, length: int, out: int, scale: float, translation: float, antialias: bool) -> Taps:
    """Taps of the elements around each position in the source, weighed by a kernel.

    A position outside the source has no taps.
    """
    radius, kernel = KERNELS[kind]
    inverse = F32(1.0 / scale)
    shift = -inverse * F32(translation)
    stretch = max(inverse, F32(1)) if antialias else F32(1)
    at = (np.arange(out, dtype=F32) + F32(0.5)) * inverse + shift
    inside = (at >= 0) & (at <= length)
    at = np.where(inside, at, F32(0))
    reach = F32(radius) * stretch
    start = np.clip(np.ceil(at - reach - F32(0.5)), 0, length - 1).astype(np.int64)
    stop = np.clip(np.floor(at + reach - F32(0.5)), 0, length - 1).astype(np.int64) + 1

    def weight(into: Any, element: Array) -> Array:
        return kernel(np.abs((element.astype(F32) + F32(0.5) - at[into]) * (F32(1) / stretch))).astype(F32)

    counts = np.where(inside, np.maximum(stop - start, 0), 0)
    taps = _ragged(start, counts, weight, length)
    total = np.zeros(out, F32)
    for tap in taps:
        total[tap.into] += tap.weight
    factor = F32(1) / np.where(np.abs(total) >= 1000 * np.finfo(F32).tiny, total, F32(np.inf))
    scaled = tuple(tap._replace(weight=tap.weight * factor[tap.into]) for tap in taps if tap.weight is not None)
    return Taps(scaled, length, out)
