"""Registration of the native functions for kernels, which are imported when one is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.opkit.kernel_library import provide

if TYPE_CHECKING:
    from headrace.opkit.kernel_library import KernelLibrary


def _library() -> KernelLibrary:
    """The library of kernels, which has no state."""
    from headrace.targets.native.library import NativeLibrary

    return NativeLibrary()


provide(_library)
