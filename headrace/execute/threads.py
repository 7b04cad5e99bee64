"""Pools of threads.

These pools differ from those of `concurrent.futures` in how they end. The threads of a pool

* end when the pool is closed or has no more references;
* never keep the process alive: its end does not wait for a thread that waits for a queue. It waits for kernels that
  compute at that moment, for a short while, because the libraries that they use are about to be unloaded;
* still take work when the main thread has ended and others continue;
* are created again in a forked process (`forking`).
"""

from __future__ import annotations

import atexit
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Final

from headrace import denormals, forking
from headrace.file_access import carried

PATIENCE: Final = 1.0  # the longest wait for kernels at the end of the process, in seconds

_computing: Final[weakref.WeakSet[Pool]] = weakref.WeakSet()


class _Shared:
    """State that a pool shares with its threads. It does not refer to the pool.

    Attributes:
      lock: guards the other fields.
      work: the queue of work; an entry None ends a thread.
      threads: number of threads.
      open: number of submitted pieces of work that are not done.
      is_closed: whether the pool accepts no more work.
    """

    __slots__ = ("is_closed", "lock", "open", "threads", "work")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.threads = self.open = 0
        self.is_closed = False


class Pool:
    """Threads for submitted work, created when they are needed. Thread-safe.

    Args:
      most: the largest number of threads. A thread is created when all others are busy.
      name: the prefix of the names of the threads.
      computes: whether the work is short, so that the end of the process waits for it.

    Example:
      >>> pool, done = Pool(2, "example"), threading.Event()
      >>> pool.submit(done.set)
      >>> done.wait(10)
      True
      >>> pool.close()
    """

    def __init__(self, most: int, name: str, computes: bool = True) -> None:
        self._most = most
        self._name = name
        self._shared = _Shared()
        forking.register_at_fork(self)
        if computes:
            _computing.add(self)

    def submit(self, work: Callable[[], object]) -> None:
        """Runs `work` on a thread of the pool, as soon as one is free.

        An error of `work` goes to `threading.excepthook`. `work` has the file access of the calling thread.

        Raises:
          RuntimeError: the pool is closed, or no thread can be started.
        """
        shared = self._shared
        with shared.lock:
            if shared.is_closed:
                raise RuntimeError(f"the threads {self._name!r} accept no work: their session was closed")
            if shared.open >= shared.threads < self._most:
                name = f"{self._name}_{shared.threads}"
                threading.Thread(target=_serve, args=(shared,), name=name, daemon=True).start()
                shared.threads += 1
            shared.open += 1
            shared.work.put(carried(work))

    def close(self) -> None:
        """Accepts no more work. Submitted work is still done. May be called twice."""
        shared = self._shared
        with shared.lock:
            if not shared.is_closed:
                shared.is_closed = True
                for _ in range(shared.threads):
                    shared.work.put(None)

    @property
    def is_busy(self) -> bool:
        """Whether some submitted work is not done."""
        return self._shared.open > 0

    def _forked(self) -> None:
        """Starts again without threads in a forked process, see `forking`."""
        was_closed, self._shared = self._shared.is_closed, _Shared()
        self._shared.is_closed = was_closed

    def __del__(self) -> None:
        shared = self._shared  # no other thread can submit work now, and the garbage collector may not wait for a lock
        if not shared.is_closed:
            shared.is_closed = True
            for _ in range(shared.threads):
                shared.work.put(None)


def _serve(shared: _Shared) -> None:
    denormals.begin_thread()
    while (work := shared.work.get()) is not None:
        try:
            work()
        except BaseException:
            kind, error, at = sys.exc_info()
            args: Any = (kind, error, at, threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(args))
            del kind, error, at, args
        del work  # the objects that it refers to must not live until the next work arrives
        with shared.lock:
            shared.open -= 1


def _at_exit() -> None:
    until = time.monotonic() + PATIENCE
    while any(p.is_busy for p in list(_computing)) and time.monotonic() < until:
        time.sleep(0.001)


atexit.register(_at_exit)
