"""Threads for work that may take long outside of the processor: files, for instance.

They are made when there is work that no free one can take, and end when there has been none for a while, so that
nobody has to close them.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace import denormals, forking, thresholds


class Workers:
    """See the module's text. Thread safe.

    Args:
      name: of the threads, before a number.
      most: how many there may be; with one, pieces of work are done in order, one after the other.

    Example:
      >>> done = threading.Event()
      >>> Workers("example").submit(done.set)
      >>> done.wait(10)
      True
    """

    def __init__(self, name: str, most: int = 1) -> None:
        self._name = name
        self._most = most
        self._forked()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """See `forking`: what was to be done is done in the parent."""
        self._changed = threading.Condition()
        self._work: deque[Callable[[], object]] = deque()
        self._threads = self._free = 0
        self._number = 0

    def submit(self, work: Callable[[], object]) -> None:
        """Has a thread do `work`. What it raises goes to `threading.excepthook`."""
        with self._changed:
            self._work.append(work)
            if self._free >= len(self._work):
                self._changed.notify()
            elif self._threads < self._most:
                self._threads += 1
                self._number += 1
                name = f"{self._name}_{self._number}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()

    def release(self) -> None:
        """Forgets what has not begun."""
        with self._changed:
            self._work.clear()

    def _serve(self) -> None:
        denormals.begin_thread()
        while (work := self._next()) is not None:
            try:
                work()
            except BaseException:
                kind, error, at = sys.exc_info()
                args: Any = (kind, error, at, threading.current_thread())
                threading.excepthook(threading.ExceptHookArgs(args))
                del kind, error, at, args
            del work  # what it refers to must not live until there is more to do

    def _next(self) -> Callable[[], object] | None:
        """What is to be done next; None if the thread is to end."""
        with self._changed:
            self._free += 1
            try:
                if not self._work and not self._changed.wait_for(lambda: bool(self._work), thresholds.IDLE_THREAD):
                    self._threads -= 1
                    return None
                return self._work.popleft()
            finally:
                self._free -= 1
