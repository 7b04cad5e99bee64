"""Mutexes: one holder at a time; the others wait in the order in which they came.

Nothing here blocks a thread: whoever wants the lock gives a function to call when it is theirs (`Mutex.lock`).

What the holder has is a `Hold`. The mutex is free again when the hold is released, or when nobody refers to it any
more: a hold is the value of a tensor, and is forgotten when the last operation that reads the tensor has fired.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace import forking
from headrace.errors import CancelledError

Done = Callable[[Any], None]  # takes the hold, or the exception
Cancel = Callable[[], bool]  # whether the request was still waiting


class Hold:
    """The right to be alone with what a mutex protects, until it is released."""

    __slots__ = ("__weakref__", "_mutex")

    def __init__(self, mutex: Mutex) -> None:
        self._mutex: Mutex | None = mutex

    def release(self) -> None:
        """Lets the next one have the mutex. May be called again."""
        mutex, self._mutex = self._mutex, None
        if mutex is not None:
            mutex._freed()

    def __del__(self) -> None:
        self.release()

    def __repr__(self) -> str:
        return "<Hold, released>" if self._mutex is None else f"<Hold of {self._mutex!r}>"


class Mutex:
    """Serves MutexV2 and MutexLock. Thread safe; no call waits.

    Attributes:
      name: for messages.
    """

    __slots__ = ("__weakref__", "_is_held", "_lock", "_waiting", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        # a hold can be forgotten anywhere, even by the garbage collector in the middle of a method of this class
        self._lock = threading.RLock()
        self._waiting: deque[Done] = deque()
        self._is_held = False
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """See `forking`: who waits does so in the parent."""
        self._lock = threading.RLock()
        self._waiting.clear()

    @property
    def is_held(self) -> bool:
        """Whether somebody has it."""
        return self._is_held

    def lock(self, done: Done) -> Cancel:
        """Asks for the mutex: `done(hold)` when it is free, `done(CancelledError)` if the mutex is dropped before.

        Returns:
          A function that gives the request up if it still waits.
        """

        # a function of its own for each request, so that it can be found again
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
        """Cancels whoever waits: the mutex is dropped."""
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
        """Gives the mutex to the first who waits, if it is free."""
        with self._lock:
            if self._is_held or not self._waiting:
                return
            self._is_held = True
            done = self._waiting.popleft()
        done(Hold(self))

    def __repr__(self) -> str:
        return f"Mutex({self.name!r}, {'held' if self._is_held else 'free'}, {len(self._waiting)} waiting)"


class Holds:
    """The holds that a step has got and not yet forgotten, so that they end with the step at the latest."""

    __slots__ = ("_holds",)

    def __init__(self) -> None:
        self._holds: weakref.WeakSet[Hold] = weakref.WeakSet()

    def add(self, hold: Hold) -> None:
        """Remembers one."""
        self._holds.add(hold)

    def release(self) -> None:
        """Releases those that are left."""
        for hold in list(self._holds):
            hold.release()
