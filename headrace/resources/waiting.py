"""Requests that wait until a resource is as they need it. Nothing blocks and no thread is started.

A request is an *attempt*, a function that is called with the resource's lock held: it does all that was asked for and
returns the result, or changes nothing and returns `NOT_YET`. Whoever changes the resource has all that wait try again,
the oldest first, and then, with the lock released, tells the finished ones' `done`. (Queues, whose requests keep their
places in a line, have machinery of their own.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from headrace import forking
from headrace.errors import CancelledError

Done: TypeAlias = Callable[[Any], None]  # takes the result, or the exception
Cancel: TypeAlias = Callable[[], bool]  # whether the request was still waiting
Attempt: TypeAlias = Callable[[], Any]


class _NotYet:
    def __repr__(self) -> str:
        return "NOT_YET"


NOT_YET: Final = _NotYet()


class _Request:
    __slots__ = ("attempt", "done", "what")

    def __init__(self, attempt: Attempt, done: Done, what: str) -> None:
        self.attempt = attempt
        self.done = done
        self.what = what  # it is, for messages


class Waiting:
    """A resource whose requests may have to wait. Thread safe.

    Attributes:
      name: for messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._requests: list[_Request] = []
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """See `forking`: who waits does so in the parent."""
        self._lock = threading.Lock()
        self._requests.clear()

    def describe(self) -> str:
        """Its kind and name, as messages show them."""
        return f"{type(self).__name__} '{self.name}'"

    def release(self) -> None:
        """Cancels everything that waits: the resource is dropped."""
        with self._lock:
            gone = list(self._requests)
            self._requests.clear()
        for request in gone:
            request.done(self._cancelled(request))

    def _ask(self, attempt: Attempt, done: Done, what: str) -> Cancel:
        """Has `attempt` called until it gives a result or raises; `done` gets that, at once or later.

        Returns:
          A function that gives the request up if it still waits.
        """
        request = _Request(attempt, done, what)
        with self._lock:
            self._requests.append(request)
        self._serve()

        def cancel() -> bool:
            with self._lock:
                if request not in self._requests:
                    return False
                self._requests.remove(request)
            done(self._cancelled(request))
            return True

        return cancel

    def _serve(self) -> None:
        """Lets all that wait try, until none gets further."""
        finished: list[tuple[Done, Any]] = []
        with self._lock:
            while self._try_all(finished):
                pass
        for done, result in finished:
            done(result)

    def _try_all(self, finished: list[tuple[Done, Any]]) -> bool:
        before = len(self._requests)
        waiting = []
        for request in self._requests:
            try:
                result = request.attempt()
            except Exception as e:  # whoever asked is told
                result = e
            if result is NOT_YET:
                waiting.append(request)
            else:
                finished.append((request.done, result))
        self._requests = waiting
        return 0 < len(waiting) < before

    def _cancelled(self, request: _Request) -> CancelledError:
        return CancelledError(f"{request.what} was cancelled: it waited on {self.describe()}")
