"""Sums of neighboring channels, for local response normalization.

A row of channels is copied between zeros, so that each channel has all its neighbors. A function has the number of
channels as a constant, since a row may be short.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from headrace import thresholds
from headrace.opkit.kernel_library import KernelLibrary
from headrace.targets.native.functions import is_native
from headrace.targets.native.loops import Loops, compiled

Array: TypeAlias = np.ndarray


class NativeNeighbors(KernelLibrary):
    """Sums of neighboring channels by native code."""

    def neighbors(self, x: Array, radius: int) -> Array | None:
        """The sums; None if numpy is to compute them."""
        channels = x.shape[-1]
        if x.size < thresholds.NATIVE_CHANNELS or not is_native(x):
            return None
        reach = min(radius, channels - 1)
        function = compiled(("neighbors", x.dtype, channels), lambda: _neighbors(x.dtype, channels))
        out, row = np.empty(x.shape, x.dtype), np.zeros(channels + 2 * reach, x.dtype)
        function(out, row, np.ascontiguousarray(x), x.size // channels, reach)
        return out


def _neighbors(dtype: np.dtype, channels: int) -> Loops:
    loops = Loops([dtype] * 3, ["rows", "reach"])
    (out, row, x), (rows, reach) = loops.arrays, loops.sizes
    middle = row.part(reach)
    with loops.each(0, rows) as i:
        into, from_ = out.part(i * channels), x.part(i * channels)
        with loops.each(0, channels) as j:
            middle[j] = from_[j]
            into[j] = from_[j]
        with loops.each(1, reach + 1) as k:
            before, behind = row.part(reach - k), row.part(reach + k)
            with loops.each(0, channels) as j:
                into[j] = into[j] + before[j] + behind[j]
    return loops
