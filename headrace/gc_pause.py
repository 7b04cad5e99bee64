"""Pauses of Python's cycle collector while large object graphs are created.

The collector traverses all objects each time their number has grown by a quarter. A graph of 30,000 operations has half
a million objects, and each stage of a step creates as many again. None of them is garbage before the end of the stage.
So the collections find nothing, and they took half of the time to the first result.

    with paused():
        ...

The switch is global to the process, so there are no collections in other threads either. Blocks may be nested, and may
overlap in several threads. After the last block the collector is on again if it was on before the first.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from typing import Final

from headrace import forking


class paused(contextlib.ContextDecorator):
    """Pauses the cycle collector for the duration of a `with` block or a decorated function.

    Example:
      >>> import gc
      >>> with paused():
      ...     inside = gc.isenabled()
      >>> inside, gc.isenabled()
      (False, True)
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _pauses.begin()

    def __exit__(self, *exc: object) -> None:
        _pauses.end()


class _Pauses:
    """The open blocks of all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._was_on = False

    def begin(self) -> None:
        with self._lock:
            if not self._open:
                self._was_on = gc.isenabled()
                gc.disable()
            self._open += 1

    def end(self) -> None:
        with self._lock:
            self._open = max(self._open - 1, 0)  # the count is 0 if the process was forked inside the block
            if not self._open and self._was_on:
                gc.enable()

    def forked(self) -> None:
        """Ends the pause in a forked process, without the blocks of its parent's threads."""
        self._lock = threading.Lock()
        if self._open and self._was_on:
            gc.enable()
        self._open = 0


_pauses: Final = _Pauses()
forking.run_after_fork(_pauses.forked)
