"""State of a thread that runs a step: numpy's errors, denormal numbers, threads of libraries.

    with entered(plan.flushes, blas_threads):
        ...

Every thread that runs kernels of a step is in such a block. Within it numpy reports no floating-point errors (a
division by zero gives an infinity, as in TensorFlow), denormal numbers are flushed to zero if the step asks for it
(`denormals`), and the BLAS library has the threads that the session allows (`blas`). So does a library of kernels whose
number of threads belongs to the calling thread (`limit_in_steps`), in code that calls it. The one exception is compiled
code of a few pure kernels (`compile.Compiled.is_direct`), for which even this block would take too long.

**Cost.** A short step takes a microsecond, and `np.errstate` alone takes two; see `float_errors`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from headrace.denormals import flushed
from headrace.execute import blas
from headrace.float_errors import IGNORED, error_state


class Threaded(Protocol):
    """Code or plan of a step.

    Attributes:
      uses_threads: whether an operation may use several threads: by the BLAS library, or in machine code.
      is_threaded: whether one may have enough work for them.
      calls_library: whether kernels of another library than numpy compute on the processor.
    """

    @property
    def uses_threads(self) -> bool: ...
    @property
    def is_threaded(self) -> bool: ...
    @property
    def calls_library(self) -> bool: ...


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


def library_threads_of(code: Threaded, n: int) -> int:
    """Returns the number of threads for kernels of another library; 0 if it has none.

    Args:
      code: the code or plan.
      n: the number that the session allows.
    """
    return n if code.calls_library else 0


#: For each library, the functions that return and set the number of threads of the calling thread.
_libraries: Final[list[tuple[Callable[[], int], Callable[[int], object]]]] = []


def limit_in_steps(get: Callable[[], int], set: Callable[[int], object]) -> None:
    """Lets steps limit the threads of a library of kernels.

    Args:
      get: returns the number of threads that an operation has if the calling thread starts it.
      set: sets this number.
    """
    _libraries.append((get, set))


class entered:
    """Sets the state of this thread for kernels of a step in a `with` block.

    Args:
      flushes: whether denormal numbers are flushed to zero.
      blas_threads: number of threads that the BLAS library may use; 0: as many as before.
      library_threads: number of threads that libraries of kernels may use; 0: as many as before.

    Example:
      >>> import numpy as np
      >>> with entered():
      ...     np.float32(1) / np.float32(0)
      np.float32(inf)
    """

    __slots__ = ("_before", "_blas", "_flushes", "_library_threads", "_numbers")

    def __init__(self, flushes: bool = False, blas_threads: int = 0, library_threads: int = 0) -> None:
        self._flushes = flushes
        self._library_threads = library_threads
        self._blas = blas.threads(blas_threads) if blas_threads else None

    def __enter__(self) -> None:
        if self._blas is not None:
            self._blas.__enter__()
        if self._library_threads:
            self._numbers = [get() for get, _ in _libraries]
            for _, set in _libraries:
                set(self._library_threads)
        if self._flushes:
            _flush()
        self._before = error_state.set(IGNORED)

    def __exit__(self, *exc: object) -> None:
        error_state.reset(self._before)
        if self._flushes:
            _unflush()
        if self._library_threads:
            for (_, set), n in zip(_libraries, self._numbers):
                set(n)
        if self._blas is not None:
            self._blas.__exit__()


_flushed: Final = flushed()  # its state belongs to the thread, so one object serves all blocks
_flush, _unflush = _flushed.__enter__, _flushed.__exit__
