"""Flushing of denormal numbers to zero while a step runs.

**The problem.** The numbers of a floating-point type that are nearest to 0 (for float32 those below 1.2e-38) are
*denormal*: they have fewer digits the smaller they are, and many processors need a hundred times as long for them. A
loop that decays a value produces them sooner or later: gradients that vanish over many time steps, or states that are
forgotten.

**The mode.** A processor can treat denormal numbers as 0 and produce 0 in their place, and TensorFlow's threads do so.
Here a step does so if it has a loop, or a kernel that may call the BLAS library. In other steps there are so few
denormal numbers that the change of mode would cost more. No promised result depends on the mode: it changes values by
less than 1.2e-38 (float64: 2.3e-308).

    with flushed():
        ...
        with unflushed():
            ...  # code of the user: the mode is the user's


The mode is in a register that each thread has, and which the C library keeps in its *floating-point environment*. On
systems for which this is not known (other than Linux with x86-64 or 64-bit Arm) nothing happens.

Source: TensorFlow's `ScopedFlushDenormal`; ISO C, `fenv.h`.
"""

from __future__ import annotations

import ctypes
import platform
import sys
import threading
from typing import Any, Final


class _X86(ctypes.Structure):
    """`fenv_t` on x86-64: the 28 bytes of the x87 unit, then the SSE control register."""

    _fields_ = (("rest", ctypes.c_uint32 * 7), ("control", ctypes.c_uint32))


class _Arm(ctypes.Structure):
    """`fenv_t` on 64-bit Arm."""

    _fields_ = (("control", ctypes.c_uint32), ("status", ctypes.c_uint32))


# the environment, and the bits set in its `control`: on x86 "flush to zero" and "denormals are zero", on Arm one bit
# for both
_KINDS: Final[dict[str, tuple[type[Any], int]]] = {"x86_64": (_X86, 0x8040), "aarch64": (_Arm, 1 << 24)}


class _Thread(threading.local):
    """State of a thread.

    Attributes:
      depth: number of open `flushed` blocks.
      registers: the memory to which the C library writes the registers.
      at: a pointer to `registers`.
      before: the register before the outermost block.
      inside: the register within the blocks.
    """

    depth = 0
    before = inside = 0

    def __init__(self) -> None:
        self.registers = _Environment()
        self.at = ctypes.byref(self.registers)


class flushed:
    """Flushes denormal numbers to 0 in this thread for the duration of a `with` block.

    The previous mode is restored at the end. This is a class that is used like a function, because it costs half as
    much as a generator's context manager.

    Args:
      wanted: whether to flush; False: the block has no effect.

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
    """Restores the user's floating-point mode in this thread for the duration of a `with` block.

    A Python function of the user within a step, and the threads that it starts, must not run in the mode of the step.
    Steps that run within the block flush as usual.

    Args:
      mode: the user's mode, as `user_mode` returned it in another thread; None: the mode of this thread before its
        outermost `flushed` block.

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
        self._outer: tuple[int, int, int, int] | None = None  # the state to restore: depth, before, inside, register

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
    """Floating-point mode of this thread outside of `flushed` blocks; see `unflushed`."""
    if not _is_known:
        return None
    t = _mine
    if t.depth:
        return t.before
    _get(t.at)
    control: int = t.registers.control
    return control


def register_bits() -> int:
    """Bits of the control register that flush denormal numbers; 0 if not known."""
    return _BITS if _is_known else 0


def begin_thread() -> None:
    """Resets the mode of a new thread, which inherits the register of its creator.

    A new thread calls this function first.
    """
    t = _mine
    if _is_known:
        _get(t.at)
        t.registers.control &= ~_BITS
        _put(t.at)


_Environment, _BITS = _KINDS.get(platform.machine(), (_X86, 0))
_process = ctypes.PyDLL(None)  # it keeps the interpreter's lock: to release the lock takes longer than the call
_get: Any = getattr(_process, "fegetenv", None)
_put: Any = getattr(_process, "fesetenv", None)
_is_known: Final = sys.platform == "linux" and bool(_BITS and _get and _put)
_mine: Final = _Thread()
