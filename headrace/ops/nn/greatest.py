"""Maxima of windows and their positions, for the poolings of this folder.

NaN is never the maximum, and the first of equal maxima counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from headrace import thresholds
from headrace.dtypes import INTEGER, DType
from headrace.opkit.elementwise import HALF, kept
from headrace.opkit.pooling import reduced
from headrace.opkit.windows import Axis, taps

Array: TypeAlias = np.ndarray
Axes: TypeAlias = tuple[Axis, ...]


def lowest(t: DType) -> Any:
    """The lowest finite number of a dtype."""
    return np.iinfo(t.numpy).min if t in INTEGER else float(ml_dtypes.finfo(t.numpy).min)


def greatest(x: Array, axes: Axes, t: DType) -> Array:
    """Greatest element of each window that is not NaN.

    It is at least the lowest finite number of the dtype.
    """
    if t in INTEGER:
        return reduced(np.maximum, x, axes, lowest(t))
    wide = x.astype(np.float32) if t in HALF else x
    out = reduced(np.maximum, wide, axes, -np.inf)
    if not out.min(initial=0) > -np.inf:  # there are NaN, or -inf; looked for because np.fmax is slow
        out = np.fmax(reduced(np.fmax, wide, axes, -np.inf), wide.dtype.type(lowest(t)))
    return out.astype(t.numpy) if t in HALF else out


def first_hits(x: Array, y: Array, axes: Axes, same: Any) -> Iterator[tuple[Any, Any, Array]]:
    """Yields windows, elements, and a mask of the first elements `same` as `y`.

    A mask is valid until the next iteration.
    """
    is_open, hits = np.ones(y.shape, np.bool_), np.empty(y.shape, np.bool_)
    for windows, elements in taps(axes):
        some, hit = is_open[*windows], hits[*windows]
        same(x[*elements], y[*windows], out=hit)
        hit &= some
        some ^= hit
        yield windows, elements, hit


def equal_or_nan(a: Array, b: Array, out: Array) -> None:
    np.equal(a, b, out=out)
    out |= np.isnan(a) & np.isnan(b)


def with_first_nans(x: Array, axes: Axes) -> Array:
    """The greatest element of each window, and NaN where that is the first."""
    out = reduced(np.fmax, x, axes, -np.inf)
    first = np.zeros(out.shape, x.dtype)
    for windows, elements in reversed(list(taps(axes))):
        first[*windows] = x[*elements]
    return np.where(np.isnan(first), first, out)


def to_greatest(x: Array, g: Array, axes: Axes) -> Array:
    """Gradient by the input: `g` goes to the first greatest element of each window.

    Large batches are done in blocks, so that what a step reads is still in the cache from the step before.
    """
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
    same: Any = np.equal
    if is_real and np.isnan(y).any():
        y, same = with_first_nans(x, axes), equal_or_nan
    dx, buffer = np.zeros(x.shape, g.dtype), _integers(y.shape, g)
    alone = all(a.is_disjoint for a in axes)
    for windows, elements, hit in first_hits(x, y, axes, same):
        part = kept(hit, g[*windows], buffer[*windows])
        if alone:
            dx[*elements] = part
        else:
            dx[*elements] += part
    return dx


def _integers(shape: tuple[int, ...], x: Array) -> Array:
    """A buffer for `kept`, of elements of `x`."""
    return np.empty(shape, f"i{x.itemsize}")


def of_greatest(x: Array, y: Array, g: Array, axes: Axes) -> Array:
    """Elements of `g` at the first greatest element of `x` in each window.

    The result is 0 where no element equals `y`.
    """
    out, buffer = np.zeros(y.shape, g.dtype), _integers(y.shape, g)
    for windows, elements, hit in first_hits(x, y, axes, np.equal):
        out[*windows] += kept(hit, g[*elements], buffer[*windows])
    return out
