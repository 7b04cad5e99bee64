"""Native windows in kernels: functions for convolutions and poolings in place of numpy.

The choice depends on dtypes and shapes alone. A geometry takes LLVM about a tenth of a second, so small windows are
left to numpy, and so are groups of few channels, which would leave most of a vector unused.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from headrace import thresholds
from headrace.opkit.kernel_library import KernelLibrary, PoolingKind
from headrace.opkit.windows import Axis
from headrace.targets.native.functions import is_native
from headrace.targets.native.windows import kernels
from headrace.targets.native.windows.pooling import Kind
from headrace.targets.native.windows.specs import is_depthwise

Array: TypeAlias = np.ndarray
Axes: TypeAlias = tuple[Axis, ...]


class NativeWindows(KernelLibrary):
    """Convolutions and poolings by native functions."""

    def convolved(self, x: Array, w: Array, axes: Axes, groups: int) -> Array | None:
        """The convolution of `x` with the filter `w`; None if numpy is to compute it."""
        if not _pays(x, w, _work(len(x), axes, w.size), w.shape[-2], w.shape[-1], groups):
            return None
        return kernels.convolved(x, w, axes, groups)

    def by_input(self, w: Array, dy: Array, axes: Axes, groups: int) -> Array | None:
        """The gradient of a convolution by its input; None if numpy is to compute it."""
        if not _pays(w, dy, _work(len(dy), axes, w.size), w.shape[-2], w.shape[-1], groups):
            return None
        return kernels.by_input(w, dy, axes, groups)

    def by_filter(self, x: Array, dy: Array, axes: Axes, groups: int) -> Array | None:
        """The gradient of a convolution by its filter; None if numpy is to compute it."""
        channels = x.shape[-1] // groups
        size = math.prod(a.size for a in axes) * channels * dy.shape[-1]
        if not _pays(x, dy, _work(len(x), axes, size), channels, dy.shape[-1], groups):
            return None
        return kernels.by_filter(x, dy, axes, groups)

    def pooled(self, kind: PoolingKind, x: Array | None, g: Array | None, axes: Axes) -> Array | None:
        """The result of a pooling or of its gradient; None to leave it to numpy."""
        arrays = [a for a in (x, g) if a is not None]
        first, *spatial, last = axes
        if not (first.is_plain and last.is_plain) or not spatial or not all(a.size for a in arrays):
            return None
        work = first.count * last.count * math.prod(a.count * a.size for a in spatial)
        if len(spatial) > 3 or work < thresholds.NATIVE_POOLING or not is_native(*arrays):
            return None
        return kernels.pooled(Kind(kind), arrays[0], g if x is not None else None, tuple(spatial))


def _work(images: int, axes: Axes, filter_size: int) -> int:
    """The number of multiplications of a convolution with `filter_size` elements in its filter."""
    return images * math.prod(a.count for a in axes) * filter_size


def _pays(a: Array, b: Array, work: int, channels: int, outputs: int, groups: int) -> bool:
    """Whether native code computes a convolution of these arrays.

    Args:
      a: The first array.
      b: The second array.
      work: The number of multiplications.
      channels: The number of channels of a group.
      outputs: The number of all outputs.
      groups: The number of groups.
    """
    if is_depthwise(groups, channels):
        return work >= thresholds.NATIVE_POOLING and is_native(a, b)
    if groups > 1 and min(channels, outputs // groups) < thresholds.NATIVE_GROUP_CHANNELS:
        return False
    return work >= thresholds.NATIVE_CONVOLUTION and is_native(a, b)
