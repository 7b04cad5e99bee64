"""Compilation of modules of `llvm_text`, for tests of products and reductions."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from headrace.targets.native import blas
from headrace.targets.native.llvm_text import Module


@functools.cache
def _target() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name, address in blas.symbols().items():
        llvm.add_symbol(name, address)
    return llvm.Target.from_default_triple()


def machine(vector_bytes: int = 64) -> Any:
    """A new machine of this host, restricted to vectors of a size; an engine owns the machine that it takes."""
    without = {32: ("avx512",), 16: ("avx", "fma")}.get(vector_bytes, ())
    has = {name: is_on and not name.startswith(without) for name, is_on in llvm.get_host_cpu_features().items()}
    features = ",".join(f"{'+' if is_on else '-'}{name}" for name, is_on in has.items())
    return _target().create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True)


def optimized(module: Module, vector_bytes: int = 64) -> Any:
    """The optimized module of LLVM."""
    target = machine(vector_bytes)
    parsed = llvm.parse_assembly(module.text())
    parsed.triple, parsed.data_layout = target.triple, str(target.target_data)
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    passes = llvm.create_pass_builder(target, options)
    passes.getModulePassManager().run(parsed, passes)
    return parsed


class Compiled:
    """Machine code of a module whose function `name` is internal.

    Args:
      module: The module.
      name: The name of a function with `@`, which takes `pointers` addresses and then `sizes` numbers.
    """

    def __init__(self, module: Module, name: str, pointers: int, sizes: int = 0, vector_bytes: int = 64) -> None:
        params = [("ptr", f"p{i}") for i in range(pointers)] + [("i64", f"n{i}") for i in range(sizes)]
        f = module.function("entry", "void", params)
        f.line(f"call void {name}({', '.join(f'{kind} %{param}' for kind, param in params)})")
        f.line("ret void")
        self._engine = llvm.create_mcjit_compiler(optimized(module, vector_bytes), machine(vector_bytes))
        self._engine.finalize_object()
        kinds = [ctypes.c_void_p] * pointers + [ctypes.c_int64] * sizes
        self.function: Callable[..., None] = ctypes.CFUNCTYPE(None, *kinds)(self._engine.get_function_address("entry"))

    def __call__(self, *args: np.ndarray | int) -> None:
        self.function(*(a if isinstance(a, int) else a.ctypes.data for a in args))
