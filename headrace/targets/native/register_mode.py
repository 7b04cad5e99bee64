"""Floating-point mode of the processor while a core runs.

Denormal numbers are flushed to zero if the entry asks for it. Python sets the mode by the C library (`denormals`), in
two microseconds; machine code writes the register itself.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace import denormals

if TYPE_CHECKING:
    from headrace.targets.native.llvm_text import Function


@contextlib.contextmanager
def flushed(f: Function, condition: str) -> Iterator[None]:
    """Prints instructions that flush denormal numbers to zero if the i1 `condition` is true.

    The block must have no branch out of it. The mode before is restored at its end.
    """
    bits = denormals.register_bits()
    if not bits:
        yield
        return
    outer, (flush, run, restore, restored) = f.current, map(f.new, ("flush", "run", "restore", "restored"))
    f.branch(condition, flush, run)
    f.begin(flush)
    before = read(f)
    write(f, f.op(f"or i64 {before}, {bits}"))
    f.jump(run)
    f.begin(run)
    mode = f.op(f"phi i64 [ {before}, %{flush} ], [ 0, %{outer} ]")
    yield
    f.branch(condition, restore, restored)
    f.begin(restore)
    write(f, mode)
    f.jump(restored)
    f.begin(restored)


def read(f: Function) -> str:
    """Prints a read of the register, an i64; 0 if it is not known."""
    if not denormals.register_bits():
        return "0"
    if platform.machine() == "x86_64":
        slot = f.alloca("i64", 8)  # the instructions take an address
        f.line(f"store i64 0, ptr {slot}, align 8")
        f.line(f"call void {f.module.declare('llvm.x86.sse.stmxcsr', 'void', ['ptr'])}(ptr {slot})")
        return f.op(f"load i64, ptr {slot}, align 8")
    return f.op(f"call i64 {f.module.declare('llvm.aarch64.get.fpcr', 'i64', [])}()")


def write(f: Function, mode: str) -> None:
    """Prints that the register takes the result of `read`."""
    if not denormals.register_bits():
        return
    if platform.machine() == "x86_64":
        slot = f.alloca("i64", 8)
        f.line(f"store i64 {mode}, ptr {slot}, align 8")
        f.line(f"call void {f.module.declare('llvm.x86.sse.ldmxcsr', 'void', ['ptr'])}(ptr {slot})")
    else:
        f.line(f"call void {f.module.declare('llvm.aarch64.set.fpcr', 'void', ['i64'])}(i64 {mode})")
