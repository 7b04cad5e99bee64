"""State of a thread that runs a step: numpy's errors, denormal numbers, threads of BLAS.

    with entered(plan.flushes, blas_threads):
        ...

Every thread that runs kernels of a step is in such a block. Within it numpy reports no floating-point errors (a
division by zero gives an infinity, as in TensorFlow), denormal numbers are flushed to zero if the step asks for it
(`denormals`), and the BLAS library has the threads that the session allows (`blas`). The one exception is compiled code
of a few pure kernels (`compile.Compiled.is_direct`), for which even this block would take too long.

**Cost.** A short step takes a microsecond, and `np.errstate` alone takes two; see `float_errors`.
"""

from __future__ import annotations

from typing import Final, Protocol

from headrace.denormals import flushed
from headrace.execute import blas
from headrace.float_errors import IGNORED, error_state


class Threaded(Protocol):
    """Code or plan of a step.

    Attributes:
      uses_threads: whether an operation may use several threads: by the BLAS library, or in machine code.
      is_threaded: whether one may have enough work for them.
    """

    @property
    def uses_threads(self) -> bool: ...
    @property
    def is_threaded(self) -> bool: ...


def threads_of(code: Threaded, n: int) -> int:
    """Returns the number of threads for operations; 0 if none uses threads.

    Threads of the BLAS library spin while they wait. If all products of a step are small, it has one thread.

    Args:
      code: the code or plan.
      n: the number that the session allows.
    """
    if not code.uses_threads:
        return 0
    return n if code.is_threaded else min(n, 1)


class entered:
    """Sets the state of this thread for kernels of a step in a `with` block.

    Args:
      flushes: whether denormal numbers are flushed to zero.
      blas_threads: number of threads that the BLAS library may use; 0: as many as before.

    Example:
      >>> import numpy as np
      >>> with entered():
      ...     np.float32(1) / np.float32(0)
      np.float32(inf)
    """

    __slots__ = ("_before", "_blas", "_flushes")

    def __init__(self, flushes: bool = False, blas_threads: int = 0) -> None:
        self._flushes = flushes
        self._blas = blas.threads(blas_threads) if blas_threads else None

    def __enter__(self) -> None:
        if self._blas is not None:
            self._blas.__enter__()
        if self._flushes:
            _flush()
        self._before = error_state.set(IGNORED)

    def __exit__(self, *exc: object) -> None:
        error_state.reset(self._before)
        if self._flushes:
            _unflush()
        if self._blas is not None:
            self._blas.__exit__()


_flushed: Final = flushed()  # its state belongs to the thread, so one object serves all blocks
_flush, _unflush = _flushed.__enter__, _flushed.__exit__
