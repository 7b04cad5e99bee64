"""The kernel of a DLP: the greatest element of each window of an image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from headrace_dlp.device import DLPArray


def max_pool(attrs: Mapping[str, Any]) -> Callable[[DLPArray], DLPArray]:
    """The kernel of MaxPool for images [batch, height, width, channels]."""
    _, *window, _ = attrs["ksize"]
    _, *strides, _ = attrs["strides"]
    is_padded = attrs["padding"] == "SAME"

    def pool(x: DLPArray) -> DLPArray:
        if not isinstance(x, DLPArray):
            raise TypeError(f"a kernel of a DLP was given {x!r}, which is not in its memory")
        image = x._cells
        if is_padded:
            margins = [(0, 0), *map(_margins, image.shape[1:3], window, strides), (0, 0)]
            image = np.pad(image, margins, constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(image, window, (1, 2))
        return DLPArray(x.device, windows[:, :: strides[0], :: strides[1]].max((-2, -1)))

    return pool


def _margins(size: int, window: int, stride: int) -> tuple[int, int]:
    """Numbers of elements that are added before and after an axis.

    With them each `stride`th element begins a window.
    """
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2
