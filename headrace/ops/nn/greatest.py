"""Maxima of windows and their positions, for the poolings of this folder.

NaN is never the maximum, and the first of equal maxima counts. Arrays of other namespaces of the array API
standard than numpy are computed by `opkit.window_arrays`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from headrace import thresholds
from headrace.dtypes import INTEGER, DType
from headrace.opkit import window_arrays
from headrace.opkit.elementwise import HALF, kept, widened
from headrace.opkit.pooling import reduced
from headrace.opkit.windows import Axis, taps

Array: TypeAlias = np.ndarray
Axes: TypeAlias = tuple[Axis, ...]


def lowest(t: DType) -> Any:
    """The lowest finite number of a dtype."""
    return np.iinfo(t.numpy).min if t in INTEGER else float(ml_dtypes.finfo(t.numpy).min)


def greatest(x: Any, axes: Axes, t: DType, xp: Any = np) -> Any:
    """Greatest element of each window that is not NaN.

    It is at least the lowest finite number of the dtype.
    """
    if t in INTEGER:
        return reduced(xp.maximum, x, axes, lowest(t), xp)
    if xp is not np:
        found = widened(lambda x: greatest_number(x, axes, xp), t, xp)(x)
        return xp.maximum(found, xp.full_like(found, lowest(t)))
    wide = x.astype(np.float32) if t in HALF else x
    out = reduced(np.maximum, wide, axes, -np.inf)
    if not out.min(initial=0) > -np.inf:  # there are NaN, or -inf; looked for because np.fmax is slow
        out = np.fmax(reduced(np.fmax, wide, axes, -np.inf), wide.dtype.type(lowest(t)))
    return out.astype(t.numpy) if t in HALF else out


def greatest_number(x: Any, axes: Axes, xp: Any = np) -> Any:
    """Greatest element of each window that is not NaN; -inf if there is none."""
    if xp is np:
        return reduced(np.fmax, x, axes, -np.inf)
    numbers = xp.where(xp.isnan(x), xp.full_like(x, -math.inf), x)
    return reduced(xp.maximum, numbers, axes, -math.inf, xp)


def first_hits(xp: Any, x: Any, y: Any, axes: Axes, nan: bool = False) -> Iterator[tuple[Any, Any, Any]]:
    """Yields windows, elements, and a mask of the first elements equal to `y`.

    A mask is valid until the next iteration.

    Args:
      xp: the namespace.
      x: the array.
      y: an element for each window.
      axes: the windows.
      nan: whether NaN equals NaN.
    """
    if xp is not np:
        yield from window_arrays.first_hits(xp, x, y, axes, nan)
        return
    same: Any = _equal_or_nan if nan else np.equal
    is_open, hits = np.ones(y.shape, np.bool_), np.empty(y.shape, np.bool_)
    for windows, elements in taps(axes):
        some, hit = is_open[*windows], hits[*windows]
        same(x[*elements], y[*windows], out=hit)
        hit &= some
        some ^= hit
        yield windows, elements, hit


def _equal_or_nan(a: Array, b: Array, out: Array) -> None:
    np.equal(a, b, out=out)
    out |= np.isnan(a) & np.isnan(b)


def with_first_nans(x: Any, axes: Axes, xp: Any = np) -> Any:
    """The greatest element of each window, and NaN where that is the first."""
    out = greatest_number(x, axes, xp)
    first = window_arrays.full(xp, out.shape, 0, x)
    for windows, elements in reversed(list(taps(axes))):
        first[*windows] = x[*elements]
    return xp.where(xp.isnan(first), first, out)


def to_greatest(x: Any, g: Any, axes: Axes, xp: Any = np) -> Any:
    """Gradient by the input: `g` goes to the first greatest element of each window.

    Large batches are done in blocks, so that what a step reads is still in the cache from the step before.
    """
    if xp is not np:
        is_real = xp.isdtype(x.dtype, "real floating")
        if is_real:
            y = with_first_nans(x, axes, xp)
        else:
            y = reduced(xp.maximum, x, axes, int(xp.iinfo(x.dtype).min), xp)
        dx = window_arrays.full(xp, x.shape, 0, g)
        for windows, elements, hit in first_hits(xp, x, y, axes, is_real):
            dx[*elements] += window_arrays.kept_in(xp, hit, g[*windows])
        return dx
    if axes[0].is_plain and x.nbytes > 2 * thresholds.MAX_POOL_BYTES:
        rows = max(1, thresholds.MAX_POOL_BYTES * len(x) // x.nbytes)
        dx = np.empty(x.shape, g.dtype)
        for i in range(0, len(x), rows):
            some = x[i : i + rows]
            n = len(some)
            dx[i : i + rows] = _to_greatest(some, g[i : i + rows], (Axis(n, n, 1, 1, 1, 0), *axes[1:]))
        return dx
    return _to_greatest(x, g, axes)


def _to_greatest(x: Array, g: Array, axes: Axes) -> Array:
    is_real = x.dtype.kind not in "iu"
    y = reduced(np.maximum, x, axes, -np.inf if is_real else np.iinfo(x.dtype).min)
    nan = is_real and bool(np.isnan(y).any())
    if nan:
        y = with_first_nans(x, axes)
    dx, buffer = np.zeros(x.shape, g.dtype), _integers(y.shape, g)
    alone = all(a.is_disjoint for a in axes)
    for windows, elements, hit in first_hits(np, x, y, axes, nan):
        part = kept(hit, g[*windows], buffer[*windows])
        if alone:
            dx[*elements] = part
        else:
            dx[*elements] += part
    return dx


def _integers(shape: tuple[int, ...], x: Array) -> Array:
    """A buffer for `kept`, of elements of `x`."""
    return np.empty(shape, f"i{x.itemsize}")


def of_greatest(x: Any, y: Any, g: Any, axes: Axes, xp: Any = np) -> Any:
    """Elements of `g` at the first greatest element of `x` in each window.

    The result is 0 where no element equals `y`.
    """
    if xp is not np:
        dy = window_arrays.full(xp, y.shape, 0, g)
        for windows, elements, hit in first_hits(xp, x, y, axes):
            dy[*windows] += window_arrays.kept_in(xp, hit, g[*elements])
        return dy
    out, buffer = np.zeros(y.shape, g.dtype), _integers(y.shape, g)
    for windows, elements, hit in first_hits(np, x, y, axes):
        out[*windows] += kept(hit, g[*elements], buffer[*windows])
    return out
