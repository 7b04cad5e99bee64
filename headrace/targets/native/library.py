"""The library of native functions for kernels."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

from headrace import memo
from headrace.opkit.kernel_library import KernelLibrary

#: Parts of the library: the module, which is imported when a function is first called, the class, and the functions.
_PARTS: Final = (
    ("maps", "NativeMaps", "elementwise"),
    ("whole_reductions", "NativeReductions", "reduced"),
    ("contiguous", "NativeCopies", "contiguous"),
    ("windows.library", "NativeWindows", "convolved by_input by_filter pooled"),
    ("channels", "NativeChannels", "moments scaled products centred"),
    ("neighbors", "NativeNeighbors", "neighbors"),
    ("resampling", "NativeResampling", "resampled spread slopes"),
    ("rows", "NativeRows", "accumulated"),
    ("updates", "NativeUpdates", "updated"),
)


class NativeLibrary(KernelLibrary):
    """All native functions for kernels (`opkit.kernel_library`)."""


@memo.cached(len(_PARTS), "parts of the native library")
def _part(module: str, name: str) -> KernelLibrary:
    found: KernelLibrary = getattr(importlib.import_module(f"headrace.targets.native.{module}"), name)()
    return found


def _function(module: str, part: str, name: str) -> Callable[..., Any]:
    def call(self: NativeLibrary, *args: Any) -> Any:
        return getattr(_part(module, part), name)(*args)

    return call


for _module, _class, _names in _PARTS:
    for _name in _names.split():
        setattr(NativeLibrary, _name, _function(_module, _class, _name))
