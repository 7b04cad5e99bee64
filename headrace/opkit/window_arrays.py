"""Windows of arrays of any namespace: frames, patches, reductions, first maxima.

The functions compute with what the array API standard has.

The axes of an array all have windows here, also those of batch and channels (`plain`). An array is copied into a frame,
which is padded to the extent of all windows. One slice of the frame contains one element of every window.

Kernels for numpy's arrays have other ways, which write into memory that they have already (`opkit.pooling`,
`ops.nn.convolving`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from headrace.opkit.elementwise import kept
from headrace.opkit.windows import Axis, Slices, taps

Axes: TypeAlias = tuple[Axis, ...]


def plain(length: int) -> Axis:
    """Returns an axis each element of which is a window."""
    return Axis(length, length, 1, 1, 1, 0)


def full(xp: Any, shape: Sequence[int], value: Any, like: Any) -> Any:
    """Returns an array of equal elements, with the dtype and device of `like`."""
    if not value:
        return xp.zeros(tuple(shape), dtype=like.dtype, device=like.device)
    return xp.full(tuple(shape), value, dtype=like.dtype, device=like.device)


# *** Frames ***


def framed(xp: Any, x: Any, axes: Axes, value: Any) -> Any:
    """Returns `x`, cropped or padded with `value` to the extent of all windows."""
    pairs = [a.overlap() for a in axes]
    inner = x[*[elements for _, elements in pairs]]
    if all(a.is_inside for a in axes):
        return inner
    frame = full(xp, [a.extent for a in axes], value, x)
    frame[*[places for places, _ in pairs]] = inner
    return frame


def unframed(xp: Any, frame: Any, axes: Axes) -> Any:
    """Returns the array whose frame was given; elements outside of the extent are 0."""
    pairs = [a.overlap() for a in axes]
    out = full(xp, [a.length for a in axes], 0, frame)
    out[*[elements for _, elements in pairs]] = frame[*[places for places, _ in pairs]]
    return out


def frame_taps(axes: Axes) -> Iterator[Slices]:
    """Iterates over the elements of the windows, the first axis outermost.

    Yields:
      The slices of the frame that contain this element of all windows.
    """
    each = [[_slice(a, k * a.dilation) for k in range(a.size)] for a in axes]
    return itertools.product(*each)


def _slice(axis: Axis, start: int) -> slice:
    return slice(start, start + (axis.count - 1) * axis.stride + 1, axis.stride) if axis.count else slice(0)


# *** Patches of arrays with the channels last ***


def patches(xp: Any, x: Any, axes: Axes) -> Any:
    """Returns the elements of all windows, [batch, *windows, elements of a window, channels]."""
    frame = framed(xp, x, axes, 0)
    return xp.stack([frame[*tap] for tap in frame_taps(axes)], axis=-2)


def patch_sums(xp: Any, parts: Any, axes: Axes) -> Any:
    """Returns the transpose of `patches`: the sum of the copies of each element."""
    frame = full(xp, [a.extent for a in axes], 0, parts)
    for k, tap in enumerate(frame_taps(axes)):
        frame[*tap] += parts[..., k, :]
    return unframed(xp, frame, axes)


# *** Reductions ***


def reduced(xp: Any, f: Callable[[Any, Any], Any], x: Any, axes: Axes, start: Any) -> Any:
    """Reduces each window by `f`, one axis after the other.

    Args:
      xp: the namespace.
      f: a function of two arrays.
      x: the array.
      axes: the windows.
      start: the result for padding alone, which changes nothing.
    """
    for i, axis in enumerate(axes):
        if not axis.is_plain:
            only = (*map(plain, x.shape[:i]), axis, *map(plain, x.shape[i + 1 :]))
            frame = framed(xp, x, only, start)
            first, *others = [frame[*tap] for tap in frame_taps(only)]
            for piece in others:
                first = f(first, piece)
            x = first
    return x


def first_hits(xp: Any, x: Any, y: Any, axes: Axes, nan: bool = False) -> Iterator[tuple[Slices, Slices, Any]]:
    """Yields windows, elements, and a mask of the first elements equal to `y`.

    Args:
      xp: the namespace.
      x: the array.
      y: an element for each window.
      axes: the windows.
      nan: whether NaN equals NaN.
    """
    is_open = xp.ones(y.shape, dtype=xp.bool, device=y.device)
    for windows, elements in taps(axes):
        some, wanted = x[*elements], y[*windows]
        hit = some == wanted
        if nan:
            hit = hit | (xp.isnan(some) & xp.isnan(wanted))
        hit = hit & is_open[*windows]
        is_open[*windows] = is_open[*windows] ^ hit
        yield windows, elements, hit


# *** Parts of arrays of any namespace, numpy's too ***


def kept_in(xp: Any, condition: Any, x: Any) -> Any:
    """Returns `x` where `condition` is true, and 0 elsewhere."""
    if xp is np:
        return kept(condition, np.ascontiguousarray(x))
    return xp.where(condition, x, xp.zeros_like(x))


def put(xp: Any, out: Any, at: Slices, value: Any, condition: Any) -> None:
    """Assigns `value` to the elements of a slice of `out` for which `condition` is true."""
    if xp is np:
        np.copyto(out[*at], value, where=condition)
    else:
        out[*at] = xp.where(condition, value, out[*at])


def size(x: Any) -> int:
    """Returns the number of elements of an array."""
    return math.prod(x.shape)
