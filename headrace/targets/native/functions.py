"""Functions of native code that Python calls with numpy arrays.

add = loaded(module, "add", arrays=3, sizes=1)
add(out, x, y, len(x))
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace.targets.native import engine, object_layout

if TYPE_CHECKING:
    from headrace.targets.native.llvm_text import Module

_ENTRY: Final = "of_objects"


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
      A function of arrays and of integers, which are not checked. The code is loaded as long as it exists.
    """
    _add_entry(module, name, arrays, sizes)
    library = engine.compile_module(module.text(), [_ENTRY])
    kinds = [ctypes.py_object] * arrays + [ctypes.c_int64] * sizes
    function: Any = ctypes.CFUNCTYPE(None, *kinds)(library.address(_ENTRY))
    function.library = library  # which drops the code when it is freed
    found: Callable[..., None] = function
    return found


def _add_entry(module: Module, name: str, arrays: int, sizes: int) -> None:
    """Adds a function of array objects that reads their addresses.

    `ctypes.data` takes a microsecond for each.
    """
    params = [*(("ptr", f"a{k}") for k in range(arrays)), *(("i64", f"n{k}") for k in range(sizes))]
    f = module.function(_ENTRY, "void", params, "nounwind")
    at = object_layout.Array.data.offset
    data = [f.op(f"load ptr, ptr {f.op(f'getelementptr i8, ptr %a{k}, i64 {at}')}, align 8") for k in range(arrays)]
    args = [*(f"ptr {d}" for d in data), *(f"i64 %n{k}" for k in range(sizes))]
    f.line(f"call void @{name}({', '.join(args)}) noinline")
    f.line("ret void")
