"""Registration of the native functions for kernels, which are imported when one is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import philox_rounds
from headrace.opkit import kernel_library

if TYPE_CHECKING:
    import numpy as np

    from headrace.opkit.kernel_library import KernelLibrary


def _library() -> KernelLibrary:
    """The library of kernels, which has no state."""
    from headrace.targets.native.library import NativeLibrary

    return NativeLibrary()


def _filled(key: int, counter: int, offsets: np.ndarray, out: np.ndarray) -> bool:
    """Computes blocks of random numbers (`philox_rounds.Fill`)."""
    from headrace.targets.native.random_blocks import filled

    return filled(key, counter, offsets, out)


kernel_library.provide(_library)
philox_rounds.provide(_filled)
