"""The library of native functions for kernels."""

from __future__ import annotations

from headrace.targets.native.channels import NativeChannels
from headrace.targets.native.contiguous import NativeCopies
from headrace.targets.native.maps import NativeMaps
from headrace.targets.native.neighbors import NativeNeighbors
from headrace.targets.native.resampling import NativeResampling
from headrace.targets.native.rows import NativeRows
from headrace.targets.native.updates import NativeUpdates
from headrace.targets.native.whole_reductions import NativeReductions
from headrace.targets.native.windows.library import NativeWindows


class NativeLibrary(
    NativeMaps,
    NativeReductions,
    NativeCopies,
    NativeWindows,
    NativeChannels,
    NativeNeighbors,
    NativeRows,
    NativeResampling,
    NativeUpdates,
):
    """All native functions for kernels (`opkit.kernel_library`)."""
