"""Limits on the threads of a single operation, in BLAS and in machine code.

The default of the library is one thread a core, and these threads spin between calls. On a busy machine this slowed
small products 10 to 100 times. So a step with products runs with `intra_op_threads`, which is 1 unless the session sets
more. The limit that the process had before is restored when the last such step ends. Machine code takes the same number
from `intra_op`.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from headrace import forking, intra_op

_lock = threading.Lock()
_libraries: list[Any] | None = None  # one controller for each BLAS library in the process
_SCIPY = {"scipy", "scipy.special", "scipy.linalg"}  # modules that load a BLAS library of their own
_scipy_seen: set[str] = set()
_active = 0
_limited: list[Any] = []  # the libraries that the running steps limit
_before: list[int] = []  # the limit of each of `_limited` before the first of these steps
_now = 0  # the limit that the running steps have set; 0 while none runs


def _forked() -> None:
    """Restores the limits in a forked process, where no step runs."""
    global _lock, _active, _now
    _lock = threading.Lock()
    if _active:
        _active = _now = 0
        intra_op.set_threads(1)
        for lib, before in zip(_limited, _before):
            lib.set_num_threads(before)


forking.run_after_fork(_forked)


def _find() -> list[Any]:
    """Controllers of the loaded BLAS libraries, SciPy's included once it is imported."""
    global _libraries, _scipy_seen
    scipy = _SCIPY & sys.modules.keys()
    if _libraries is None or scipy != _scipy_seen:
        from threadpoolctl import ThreadpoolController

        found = ThreadpoolController().lib_controllers
        _libraries = [lib for lib in found if lib.user_api == "blas"]
        _scipy_seen = scipy
    return _libraries


class threads:
    """Limits operations to `n` threads in a `with` block; of overlapping blocks the newest applies."""

    __slots__ = ("_libraries", "_n")

    def __init__(self, n: int) -> None:
        self._n = n

    def __enter__(self) -> None:
        global _active, _before, _limited, _now
        with _lock:
            if not _active:
                _limited = _find()
                _before = [lib.get_num_threads() for lib in _limited]
            self._libraries = _limited
            _active += 1
            if _now != self._n:  # a call of each library takes microseconds, as long as a short step
                intra_op.set_threads(self._n)
                for lib in _limited:
                    lib.set_num_threads(self._n)
                _now = self._n

    def __exit__(self, *exc: object) -> None:
        global _active, _now
        with _lock:
            _active = max(_active - 1, 0)  # a process that was forked inside the block does not count it
            if not _active:
                _now = 0
                intra_op.set_threads(1)
                for lib, before in zip(self._libraries, _before, strict=True):
                    lib.set_num_threads(before)
