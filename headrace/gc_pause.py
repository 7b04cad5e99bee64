"""Python's cycle collector, paused while large object graphs are made.

The collector looks through all objects each time that their number has grown by a quarter. A graph of 30,000 operations
is half a million objects, and each stage of a step makes as many again, none of which is garbage before the stage is
over: the collections find nothing, and took half of the time to the first result.

    with paused():
        ...

The switch is the process's, so other threads make no collections meanwhile either. Blocks may be nested and may
overlap in several threads; the collector is on again after the last one if it was on before the first.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from typing import Final

from headrace import forking


class paused(contextlib.ContextDecorator):
    """Pauses the cycle collector for the length of a `with` block, or of a function that it decorates.

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
    """The blocks that are open, in all threads."""

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
            self._open = max(self._open - 1, 0)  # 0 already: the process was forked inside the block
            if not self._open and self._was_on:
                gc.enable()

    def forked(self) -> None:
        """See `forking`: the threads that were in the blocks are not there."""
        self._lock = threading.Lock()
        if self._open and self._was_on:
            gc.enable()
        self._open = 0


_pauses: Final = _Pauses()
forking.run_after_fork(_pauses.forked)
