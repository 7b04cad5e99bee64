"""Compilation of modules of `llvm_text`, for tests of products and reductions."""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from headrace.targets.native import blas
from headrace.targets.native.llvm_text import FINAL, Module


@functools.cache
def _target() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name, address in blas.symbols().items():
        llvm.add_symbol(name, address)
    return llvm.Target.from_default_triple()


def machine(vector_bytes: int = 64) -> Any:
    """A new machine of this host, restricted to vectors of a size.

    An engine owns the machine that it takes.
    """
    without = {32: ("avx512",), 16: ("avx", "fma")}.get(vector_bytes, ())
    has = {name: is_on and not name.startswith(without) for name, is_on in llvm.get_host_cpu_features().items()}
    features = ",".join(f"{'+' if is_on else '-'}{name}" for name, is_on in has.items())
    return _target().create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True)


def optimized(module: Module, vector_bytes: int = 64) -> Any:
    """The module as LLVM has it, after the passes that products and reductions need."""
    target = machine(vector_bytes)
    usual, _, final = module.text().partition(FINAL)
    parsed = llvm.parse_assembly(usual)
    parsed.link_in(llvm.parse_assembly(final))
    parsed.triple, parsed.data_layout = target.triple, str(target.target_data)
    parsed.verify()
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(parsed, builder)
    return parsed


class Compiled:
    """Machine code of the functions of a module.

    Args:
      module: The module.
      names: The names of functions with `@`; each takes some addresses and then some i64.
      vector_bytes: The size of the vectors.
    """

    def __init__(self, module: Module, names: dict[str, tuple[int, int]], vector_bytes: int = 64) -> None:
        for name, (pointers, sizes) in names.items():
            params = [("ptr", f"p{i}") for i in range(pointers)] + [("i64", f"n{i}") for i in range(sizes)]
            f = module.function(f"entry_{name[1:]}", "void", params)
            f.line(f"call void {name}({', '.join(f'{kind} %{param}' for kind, param in params)})")
            f.line("ret void")
        self._engine = llvm.create_mcjit_compiler(optimized(module, vector_bytes), machine(vector_bytes))
        self._engine.finalize_object()
        self._functions: dict[str, Callable[..., None]] = {}
        for name, (pointers, sizes) in names.items():
            kinds = [ctypes.c_void_p] * pointers + [ctypes.c_int64] * sizes
            address = self._engine.get_function_address(f"entry_{name[1:]}")
            self._functions[name] = ctypes.CFUNCTYPE(None, *kinds)(address)

    def __call__(self, name: str, *args: np.ndarray | int) -> None:
        """Runs a function on the memory of arrays and on numbers."""
        self._functions[name](*(a if isinstance(a, int) else a.ctypes.data for a in args))


class Guarded:
    """Array next to protected pages: an access out of bounds ends the process.

    Args:
      values: The elements.
      at_end: Whether the page lies behind the array, else before it.
    """

    def __init__(self, values: np.ndarray, at_end: bool) -> None:
        page = mmap.PAGESIZE
        inside = -(-max(values.nbytes, 1) // page) * page
        self._memory = mmap.mmap(-1, inside + 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        libc = ctypes.CDLL(None, use_errno=True)
        for guard in start, start + page + inside:
            if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0):
                raise OSError(ctypes.get_errno(), "mprotect failed")
        first = page + (inside - values.nbytes if at_end else 0)
        self.array = np.frombuffer(self._memory, values.dtype, values.size, first).reshape(values.shape)
        self.array[...] = values
