"""Functions of native code that Python calls with numpy arrays.

add = loaded(module, "add", arrays=3, sizes=1)
add(out, x, y, len(x))
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.targets.native import engine

if TYPE_CHECKING:
    from headrace.targets.native.llvm_text import Module


def is_native(*arrays: np.ndarray) -> bool:
    """Whether arrays have a dtype with native functions, and native code is available."""
    dtype = arrays[0].dtype
    return dtype in (np.float32, np.float64) and all(a.dtype == dtype for a in arrays) and not engine.available()


def loaded(module: Module, name: str, arrays: int, sizes: int) -> Callable[..., None]:
    """Compiles a module, or loads it from the object cache.

    Args:
      module: The module.
      name: The name of its function, which returns nothing.
      arrays: The number of arguments that are addresses of arrays.
      sizes: The number of 64-bit integers that follow.

    Returns:
      A function of contiguous arrays and of integers. The code is loaded as long as it exists.
    """
    library = engine.compile_module(module.text(), [name])
    kinds = [ctypes.c_void_p] * arrays + [ctypes.c_int64] * sizes
    function = ctypes.CFUNCTYPE(None, *kinds)(library.address(name))

    def call(*args: Any, _library: Any = library) -> None:
        function(*(a if isinstance(a, int) else a.ctypes.data for a in args))

    return call
