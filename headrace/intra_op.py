"""Number of threads that one operation may use in machine code.

A step sets it while it runs (`execute.blas`). Machine code reads it where it divides work (`targets.native.threads`),
so it is a number in memory and no attribute. Outside of steps it is 1.
"""

from __future__ import annotations

import ctypes
from typing import Final

_threads: Final = ctypes.c_int64(1)

#: The address of the number, an i64.
ADDRESS: Final = ctypes.addressof(_threads)


def threads() -> int:
    """Returns the number of threads that one operation may use."""
    return _threads.value


def set_threads(n: int) -> None:
    """Sets the number of threads that one operation may use."""
    _threads.value = n
