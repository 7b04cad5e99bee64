"""Pools of threads, and waiting for what they hand over.

They differ from those of `concurrent.futures` in how they end. The threads of a pool here

* end when the pool is closed or has no more references;
* never keep the process: one that waits for a queue does not wait when the program is over. Only kernels that compute
  at that moment are let finish, for a short while, since the libraries they are in are about to go;
* still take work when the main thread has ended and others go on;
* are there again in a forked process (`forking`).
"""

from __future__ import annotations

import atexit
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from headrace import denormals, forking

PATIENCE: Final = 1.0  # seconds that the end of the process waits for kernels
MOST_THREADS: Final = 4096  # of one session, for kernels that block
GLANCE: Final = 0.5  # seconds of a wait at a time

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_computing: Final[weakref.WeakSet[Pool]] = weakref.WeakSet()


class _Shared:
    """State that a pool shares with its threads, so that these do not refer to the pool.

    Attributes:
      lock: of all that follows.
      work: what is to be done; None ends a thread.
      threads: how many there are.
      open: how many pieces of work have been put in and are not done.
      is_closed: whether no more work is taken.
    """

    __slots__ = ("is_closed", "lock", "open", "threads", "work")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.threads = self.open = 0
        self.is_closed = False


class Pool:
    """See the module's text. Thread safe.

    Args:
      most: of threads; each is made when all others are busy.
      name: of the threads, before a number.
      computes: whether the work is short: the end of the process waits for it.

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
        """Has a thread do `work`, as soon as one is free. What it raises goes to `threading.excepthook`.

        Raises:
          RuntimeError: the pool is closed, or no thread can be had.
        """
        shared = self._shared
        with shared.lock:
            if shared.is_closed:
                raise RuntimeError(f"the threads {self._name!r} take no more work: their session was closed")
            if shared.open >= shared.threads < self._most:
                name = f"{self._name}_{shared.threads}"
                threading.Thread(target=_serve, args=(shared,), name=name, daemon=True).start()
                shared.threads += 1
            shared.open += 1
            shared.work.put(work)

    def close(self) -> None:
        """Takes no more work; what was put in is still done. May be called twice."""
        shared = self._shared
        with shared.lock:
            if not shared.is_closed:
                shared.is_closed = True
                for _ in range(shared.threads):
                    shared.work.put(None)

    @property
    def is_busy(self) -> bool:
        """Whether something that was put in is not done."""
        return self._shared.open > 0

    def _forked(self) -> None:
        """See `forking`: the threads, and those who waited for what they did, are not here."""
        was_closed, self._shared = self._shared.is_closed, _Shared()
        self._shared.is_closed = was_closed

    def __del__(self) -> None:
        shared = self._shared  # nobody else can put anything in, and the garbage collector may not wait for a lock
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
        del work  # what it refers to must not live until there is more to do
        with shared.lock:
            shared.open -= 1


def _at_exit() -> None:
    until = time.monotonic() + PATIENCE
    while any(p.is_busy for p in list(_computing)) and time.monotonic() < until:
        time.sleep(0.001)


atexit.register(_at_exit)


class Gives(Protocol[T_co]):
    """What `taken` takes from: a `queue.SimpleQueue`, or what has its `get`."""

    def get(self, block: bool = True, timeout: float | None = None) -> T_co: ...


def taken(from_: Gives[T], timeout: float) -> T:
    """What comes out of a queue within `timeout` seconds.

    Ctrl-C ends it within `GLANCE` seconds. A signal that comes between Python's last look for signals and the moment at
    which the thread really waits is seen only when that wait is over, so none is long.

    Raises:
      queue.Empty: nothing came.
    """
    until = time.monotonic() + timeout
    while True:
        left = until - time.monotonic()
        try:
            return from_.get(timeout=min(max(left, 0.0), GLANCE))
        except queue.Empty:
            if left <= GLANCE:
                raise
