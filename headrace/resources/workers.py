"""Worker threads for work that waits, such as file access.

A thread is started if there is work and no thread is free. It ends after a time without work, so no caller has to close
the threads.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace import denormals, forking, thresholds
from headrace.file_access import carried


class Workers:
    """Pool of worker threads; see the module's text. Thread safe.

    Args:
      name: The name of the threads, which is followed by a number.
      most: The largest number of threads; with one, work is done in order.

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
        """See `forking`. Submitted work is done in the parent."""
        self._changed = threading.Condition()
        self._work: deque[Callable[[], object]] = deque()
        self._threads = self._free = 0
        self._number = 0

    def submit(self, work: Callable[[], object]) -> None:
        """Runs `work` on a thread, with the file access of the caller.

        Its exceptions go to `threading.excepthook`.
        """
        work = carried(work)
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
        """Drops work that has not begun."""
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
            del work  # so that objects it refers to do not live until the next work

    def _next(self) -> Callable[[], object] | None:
        """The next work; None if the thread must end."""
        with self._changed:
            self._free += 1
            try:
                if not self._work and not self._changed.wait_for(lambda: bool(self._work), thresholds.IDLE_THREAD):
                    self._threads -= 1
                    return None
                return self._work.popleft()
            finally:
                self._free -= 1
