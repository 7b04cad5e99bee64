"""Mutexes: one holder at a time; others wait in the order of their requests.

No call blocks a thread: a request for the lock passes a function, which is called when the lock is free (`Mutex.lock`).

The holder receives a `Hold`. The mutex is free again when the hold is released or deleted. A hold is the value of a
tensor, and is deleted when the last operation that reads the tensor has fired.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace import forking
from headrace.errors import CancelledError

Done = Callable[[Any], None]  # receives the hold, or the exception
Cancel = Callable[[], bool]  # returns whether the request was still waiting


class Hold:
    """Exclusive right to what a mutex protects, until it is released."""

    __slots__ = ("__weakref__", "_mutex")

    def __init__(self, mutex: Mutex) -> None:
        self._mutex: Mutex | None = mutex

    def release(self) -> None:
        """Frees the mutex for the next request. Further calls have no effect."""
        mutex, self._mutex = self._mutex, None
        if mutex is not None:
            mutex._freed()

    def __del__(self) -> None:
        self.release()

    def __repr__(self) -> str:
        return "<Hold, released>" if self._mutex is None else f"<Hold of {self._mutex!r}>"


class Mutex:
    """Mutex behind MutexV2 and MutexLock. Thread safe; no call waits.

    Attributes:
      name: The name, for messages.
    """

    __slots__ = ("__weakref__", "_is_held", "_lock", "_waiting", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        # a hold can be deleted anywhere, even by the garbage collector inside a method of this class
        self._lock = threading.RLock()
        self._waiting: deque[Done] = deque()
        self._is_held = False
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the locks after a fork and drops requests of the parent; see `forking`."""
        self._lock = threading.RLock()
        self._waiting.clear()

    @property
    def is_held(self) -> bool:
        """Whether the mutex has a holder."""
        return self._is_held

    def lock(self, done: Done) -> Cancel:
        """Requests the mutex.

        Args:
          done: Receives the hold when the mutex is free, or a CancelledError if the mutex is dropped before.

        Returns:
          A function that cancels the request if it still waits.
        """

        # each request has a function of its own, so that it can be found in the queue
        def asked(result: Any) -> None:
            done(result)

        with self._lock:
            self._waiting.append(asked)
        self._serve()

        def cancel() -> bool:
            with self._lock:
                if asked not in self._waiting:
                    return False
                self._waiting.remove(asked)
            done(CancelledError(f"the lock was cancelled while it waited for mutex '{self.name}'"))
            return True

        return cancel

    def release(self) -> None:
        """Cancels all waiting requests, because the mutex is dropped."""
        with self._lock:
            gone = list(self._waiting)
            self._waiting.clear()
        for done in gone:
            done(CancelledError(f"mutex '{self.name}' was dropped while a lock waited for it"))

    def _freed(self) -> None:
        with self._lock:
            self._is_held = False
        self._serve()

    def _serve(self) -> None:
        """Gives the mutex to the first waiting request, if it is free."""
        with self._lock:
            if self._is_held or not self._waiting:
                return
            self._is_held = True
            done = self._waiting.popleft()
        done(Hold(self))

    def __repr__(self) -> str:
        return f"Mutex({self.name!r}, {'held' if self._is_held else 'free'}, {len(self._waiting)} waiting)"


class Holds:
    """Existing holds of a step, which end with the step at the latest."""

    __slots__ = ("_holds",)

    def __init__(self) -> None:
        self._holds: weakref.WeakSet[Hold] = weakref.WeakSet()

    def add(self, hold: Hold) -> None:
        """Adds a hold."""
        self._holds.add(hold)

    def release(self) -> None:
        """Releases the holds that still exist."""
        for hold in list(self._holds):
            hold.release()
