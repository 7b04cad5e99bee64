"""The gradient of max pooling in blocks of a batch equals that by window."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from headrace import thresholds
from headrace.opkit.windows import Axis
from headrace.ops.nn import greatest


def by_window(x: np.ndarray, g: np.ndarray, axes: tuple[Axis, ...]) -> np.ndarray:
    """Adds each element of `g` to the greatest element of its window.

    Of several greatest elements it is the first, as a loop would do it.
    """
    dx = np.zeros(x.shape, g.dtype)
    for at in np.ndindex(g.shape):
        best, where = -np.inf, None
        for tap in itertools.product(*(range(a.size) for a in axes)):
            place = tuple(i * a.stride + k * a.dilation - a.before for i, k, a in zip(at, tap, axes, strict=True))
            if all(0 <= p < a.length for p, a in zip(place, axes, strict=True)) and (x[place] > best or where is None):
                best, where = x[place], place
        if where is not None:
            dx[where] += g[at]
    return dx


def axis(length: int, size: int, stride: int, before: int = 0) -> Axis:
    return Axis(length, (length + 2 * before - size) // stride + 1, size, stride, 1, before)


@pytest.mark.parametrize("block", [1, 200, 1 << 19])
@pytest.mark.parametrize(
    "windows",
    [
        [axis(5, 3, 2), axis(6, 3, 1)],
        [axis(6, 2, 2), axis(4, 2, 2)],
        [axis(5, 3, 2, 1), axis(6, 3, 2, 1)],
        [axis(7, 1, 1), axis(7, 3, 2)],
        [axis(4, 2, 1), axis(3, 3, 1), axis(5, 2, 2)],
    ],
    ids=["overlap", "apart", "padded", "one", "three"],
)
def test_the_gradient_goes_to_the_first_of_the_greatest(
    windows: list[Axis], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "MAX_POOL_BYTES", block)
    rng = np.random.default_rng(1)
    axes = (axis(5, 1, 1), *windows, axis(2, 1, 1))
    x = rng.integers(0, 3, [a.length for a in axes]).astype(np.float32)  # many are equal
    g = rng.integers(1, 9, [a.count for a in axes]).astype(np.float32)
    np.testing.assert_array_equal(greatest.to_greatest(x, g, axes), by_window(x, g, axes))
