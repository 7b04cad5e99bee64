"""Requests that wait until a resource satisfies them, without blocking a thread.

A request is an *attempt*, a function that is called with the resource's lock held. It does all that was requested and
returns the result, or it changes nothing and returns `NOT_YET`. A call that changes the resource retries all waiting
attempts, the oldest first, and then calls the `done` functions of the finished ones, with the lock released. (Queues,
whose requests stay in order, have an implementation of their own.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from headrace import forking
from headrace.errors import CancelledError

Done: TypeAlias = Callable[[Any], None]  # receives the result, or the exception
Cancel: TypeAlias = Callable[[], bool]  # returns whether the request was still waiting
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
        self.what = what  # its name in messages


class Waiting:
    """Resource whose requests may have to wait. Thread safe.

    Attributes:
      name: The name, for messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._requests: list[_Request] = []
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """See `forking`. Waiting requests belong to the parent."""
        self._lock = threading.Lock()
        self._requests.clear()

    def describe(self) -> str:
        """Kind and name of the resource, for messages."""
        return f"{type(self).__name__} '{self.name}'"

    def release(self) -> None:
        """Cancels all waiting requests, because the resource is dropped."""
        with self._lock:
            gone = list(self._requests)
            self._requests.clear()
        for request in gone:
            request.done(self._cancelled(request))

    def _ask(self, attempt: Attempt, done: Done, what: str) -> Cancel:
        """Calls `attempt` until it returns a result or raises.

        Args:
          attempt: The request.
          done: Receives the result or the exception, at once or later.
          what: The name of the request in messages.

        Returns:
          A function that cancels the request if it still waits.
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
        """Retries all waiting requests until none succeeds."""
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
            except Exception as e:  # the request fails with it
                result = e
            if result is NOT_YET:
                waiting.append(request)
            else:
                finished.append((request.done, result))
        self._requests = waiting
        return 0 < len(waiting) < before

    def _cancelled(self, request: _Request) -> CancelledError:
        return CancelledError(f"{request.what} was cancelled: it waited on {self.describe()}")
