"""Sliding windows by their definition, for oracles of convolutions and pooling; pooling cases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.ir.opdef import case
from headrace.opkit.testing.samples import draw

if TYPE_CHECKING:
    from headrace.dtypes import DType


def windows_of_axis(
    length: int, size: int, stride: int, dilation: int, padding: str, margins: Sequence[int]
) -> list[list[tuple[int, int]]]:
    """Returns the elements of each window along an axis that are not padding.

    Args:
      length: the length of the axis.
      size, stride, dilation: those of the windows.
      padding: "SAME", "VALID" or "EXPLICIT".
      margins: under "EXPLICIT", the padding before and behind.

    Returns:
      For each window, pairs (number in the window, number on the axis).
    """
    reach = dilation * (size - 1) + 1
    before, behind = margins if padding == "EXPLICIT" else (0, 0)
    if padding == "SAME":
        missing = max(0, (math.ceil(length / stride) - 1) * stride + reach - length)
        before, behind = missing // 2, missing - missing // 2
    out = []
    for window in range((length + before + behind - reach) // stride + 1):
        first = window * stride - before
        places = ((k, first + k * dilation) for k in range(size))
        out.append([(k, e) for k, e in places if 0 <= e < length])
    return out


# *** Pooling ***


def pool_windows(x: tuple[int, ...], attrs: Mapping[str, Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Iterates over (index of the result, indices of the input in its window).

    The last axis is innermost.
    """
    margins = attrs.get("explicit_paddings") or [0] * 2 * len(x)
    along = [
        windows_of_axis(length, size, stride, 1, attrs["padding"], margins[2 * i : 2 * i + 2])
        for i, (length, size, stride) in enumerate(zip(x, attrs["ksize"], attrs["strides"], strict=True))
    ]
    for o in itertools.product(*(range(len(windows)) for windows in along)):
        elements = [[e for _, e in windows[i]] for windows, i in zip(along, o, strict=True)]
        yield o, list(itertools.product(*elements))


def pooled(x: tuple[int, ...], attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the shape of the result."""
    places = [o for o, _ in pool_windows(tuple(max(d, 1) for d in x), attrs)]
    return tuple(0 if not d else 1 + max(p[i] for p in places) for i, d in enumerate(x))


# shape of the input, ksize, strides, padding
_CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], str], ...] = (
    ((2, 4, 6, 2), (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    ((1, 5, 5, 2), (1, 2, 2, 1), (1, 2, 2, 1), "SAME"),
    ((1, 5, 4, 1), (1, 3, 2, 1), (1, 1, 1, 1), "SAME"),
    ((2, 5, 6, 1), (1, 3, 3, 1), (1, 2, 1, 1), "VALID"),
    ((1, 5, 5, 1), (1, 1, 2, 1), (1, 3, 3, 1), "VALID"),
    ((0, 4, 4, 2), (1, 2, 2, 1), (1, 2, 2, 1), "SAME"),
)
_VOLUMES: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], str], ...] = (
    ((1, 4, 3, 4, 2), (1, 2, 3, 2, 1), (1, 2, 1, 2, 1), "VALID"),
    ((2, 3, 2, 4, 1), (1, 2, 2, 3, 1), (1, 1, 2, 2, 1), "SAME"),
)
DEPTHWISE = ((2, 2, 1, 4), (1, 1, 1, 2), (1, 1, 1, 2), "VALID")
MARGINS = ((1, 4, 5, 1), (1, 3, 2, 1), (1, 2, 1, 1), "EXPLICIT")


def pool_samples(inputs: Any, *more: Any, v2: bool = False, volumes: bool = False) -> Any:
    """Returns a sampler of pooling cases in both layouts.

    Args:
      inputs: `inputs(x, y, attrs, draw)` returns the arrays, from the shapes of the input and of the result.
      more: cases in addition to the common ones.
      v2: whether ksize and strides are inputs.
      volumes: whether there are three spatial axes instead of two.
    """

    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        out = []
        for number, (x, ksize, strides, padding) in enumerate(_VOLUMES if volumes else (*_CASES, *more)):
            attrs: dict[str, Any] = {"ksize": ksize, "strides": strides, "padding": padding}
            if padding == "EXPLICIT":
                attrs["explicit_paddings"] = (0, 0, 1, 2, 0, 1, 0, 0)
            for nchw in (False, True) if number in (1, 3) else (False,):
                if nchw:
                    x, ksize, strides = ((s[0], s[-1], *s[1:-1]) for s in (x, ksize, strides))
                    attrs |= {"ksize": ksize, "strides": strides, "data_format": "NCDHW" if volumes else "NCHW"}
                arrays = inputs(x, pooled(x, attrs), attrs, lambda shape: draw(rng, dtype, shape, -9, 9))
                rest = {k: v for k, v in attrs.items() if not v2 or k not in ("ksize", "strides")}
                sizes = [np.array(v, np.int32) for v in (ksize, strides)] if v2 else []
                out.append(case(*arrays, *sizes, **rest))
        return out

    return sample
