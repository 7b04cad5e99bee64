"""Denormal numbers as zeros, while a step runs.

The smallest numbers of a floating-point type, closer to 0 than its exponents reach (of float32 those below 1.2e-38),
are *denormal*: they have fewer digits the smaller they are, and many processors take a hundred times as long for them.
Who decays something in a loop meets them sooner or later: gradients that vanish over many time steps, states that are
forgotten. So a processor can be told to take them for 0 and to give 0 in their place, and TensorFlow's threads do. Here
a step does that has a loop, or a kernel that may call the BLAS library; in all others so few numbers come about that
looking after it would cost more. No result that is promised depends on it: what flushing can change is smaller than
1.2e-38 (float64: 2.3e-308).

    with flushed():
        ...
        with unflushed():
            ...  # code of the user's: the mode is the user's


What says so is a register that each thread has for itself, and which the C library keeps in its *floating-point
environment*. Where that is not known (elsewhere than on Linux with x86-64 or 64-bit Arm) nothing happens.

Source: TensorFlow's `ScopedFlushDenormal`; ISO C, `fenv.h`.
"""

from __future__ import annotations

import ctypes
import platform
import sys
import threading
from typing import Any, Final


class _X86(ctypes.Structure):
    """`fenv_t` on x86-64: the old unit's 28 bytes, then the register that decides."""

    _fields_ = (("rest", ctypes.c_uint32 * 7), ("control", ctypes.c_uint32))


class _Arm(ctypes.Structure):
    """`fenv_t` on 64-bit Arm."""

    _fields_ = (("control", ctypes.c_uint32), ("status", ctypes.c_uint32))


# the environment, and what is set in its `control`: on x86 "flush to zero" and "denormals are zero", on Arm both in one
_KINDS: Final[dict[str, tuple[type[Any], int]]] = {"x86_64": (_X86, 0x8040), "aarch64": (_Arm, 1 << 24)}


class _Thread(threading.local):
    """What a thread has for it.

    Attributes:
      depth: of the blocks that it is in.
      registers, at: where the C library writes them to.
      before: the register as it was before the outermost block.
      inside: the register within the blocks.
    """

    depth = 0
    before = inside = 0

    def __init__(self) -> None:
        self.registers = _Environment()
        self.at = ctypes.byref(self.registers)


class flushed:
    """Flushes denormal numbers for the length of a `with` block, in this thread; then what was before is back.

    A class, which costs half of what a generator's context costs, that is used like a function.

    Args:
      wanted: whether to do so at all.

    Example:
      >>> import numpy as np
      >>> tiny = np.float32([1e-39])
      >>> with flushed():
      ...     inside = tiny / 2
      >>> bool(inside[0] > 0) == (not _is_known), bool((tiny / 2)[0] > 0)
      (True, True)
    """

    __slots__ = ("_wanted",)

    def __init__(self, wanted: bool = True) -> None:
        self._wanted = wanted and _is_known

    def __enter__(self) -> None:
        if not self._wanted:
            return
        t = _mine
        t.depth += 1
        if t.depth == 1:
            _get(t.at)
            t.before = t.registers.control
            t.inside = t.registers.control = t.before | _BITS
            _put(t.at)

    def __exit__(self, *exc: object) -> None:
        if not self._wanted:
            return
        t = _mine
        t.depth -= 1
        if t.depth == 0:
            t.registers.control = t.before
            _put(t.at)


class unflushed:
    """The user's floating-point mode for the length of a `with` block, in this thread.

    What a Python function of the user's computes within a step, and the threads that it starts, must not see the mode
    of the step. Steps that run within the block flush as others do.

    Args:
      mode: the user's mode, as `user_mode` gave it in another thread; None: what this thread had before its outermost
        `flushed` block.

    Example:
      >>> import numpy as np
      >>> with flushed(), unflushed():
      ...     inside = np.float32([1e-39]) / 2
      >>> bool(inside[0] > 0)
      True
    """

    __slots__ = ("_mode", "_outer")

    def __init__(self, mode: int | None = None) -> None:
        self._mode = mode
        self._outer: tuple[int, int, int, int] | None = None  # what is put back: depth, before, inside, register

    def __enter__(self) -> None:
        t = _mine
        if t.depth:
            control, mode = t.inside, t.before if self._mode is None else self._mode
        elif self._mode is None:
            return
        else:
            _get(t.at)
            control, mode = t.registers.control, self._mode
        self._outer = t.depth, t.before, t.inside, control
        t.depth = 0
        t.registers.control = mode
        _put(t.at)

    def __exit__(self, *exc: object) -> None:
        if self._outer is None:
            return
        t = _mine
        t.depth, t.before, t.inside, t.registers.control = self._outer
        _put(t.at)


def user_mode() -> int | None:
    """The floating-point mode of this thread outside of all `flushed` blocks, for `unflushed` in another thread."""
    if not _is_known:
        return None
    t = _mine
    if t.depth:
        return t.before
    _get(t.at)
    control: int = t.registers.control
    return control


def begin_thread() -> None:
    """To be called first in a new thread, which has the register of the one that made it."""
    t = _mine
    if _is_known:
        _get(t.at)
        t.registers.control &= ~_BITS
        _put(t.at)


_Environment, _BITS = _KINDS.get(platform.machine(), (_X86, 0))
_process = ctypes.PyDLL(None)  # it keeps the interpreter's lock: to let go of it takes longer than the call
_get: Any = getattr(_process, "fegetenv", None)
_put: Any = getattr(_process, "fesetenv", None)
_is_known: Final = sys.platform == "linux" and bool(_BITS and _get and _put)
_mine: Final = _Thread()
