"""Retries of a monitored session with new sessions: number, causes and pauses.

A step that fails with `AbortedError` or `UnavailableError` may succeed when it runs again, from the last checkpoint, in
a new session. If it fails repeatedly, success is unlikely. So attempts are counted until one succeeds, and the pauses
between them grow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.errors import AbortedError, CancelledError, UnavailableError
from headrace.records import record
from headrace.train.hooks.base import log

PREEMPTION = (AbortedError, UnavailableError)  # errors after which a new attempt may succeed


@record(frozen=True)
class Recovery:
    """Policy by which a `MonitoredSession` recovers from a failed step.

    Attributes:
      retries: largest number of consecutive new sessions. After that the error is raised. A successful step resets the
        count.
      wait_secs: seconds before the first new session. The wait doubles with each consecutive attempt.
      longest_wait_secs: longest wait before a new session, in seconds.
      errors: error classes that lead to a new session. So does a session that another caller has closed.

    Raises:
      ValueError: a number is negative.

    Example:
      >>> import headrace as hr
      >>> hr.train.Recovery(retries=3, wait_secs=1.0).wait_before(3)
      4.0
    """

    retries: int = 10
    wait_secs: float = 0.1
    longest_wait_secs: float = 30.0
    errors: tuple[type[BaseException], ...] = PREEMPTION

    def __post_init__(self) -> None:
        for name in ("retries", "wait_secs", "longest_wait_secs"):
            if getattr(self, name) < 0:
                raise ValueError(f"Recovery: {name} must not be negative, got {getattr(self, name)}")

    def wait_before(self, attempt: int) -> float:
        """Returns the seconds to wait before a new session.

        Args:
          attempt: number of the attempt, at least 1.
        """
        wait: float = self.wait_secs * 2.0 ** min(attempt - 1, 62)
        return min(wait, self.longest_wait_secs)


def is_lost(session: Any, error: BaseException) -> bool:
    """Whether `error` occurred because another caller had closed `session`."""
    return isinstance(error, RuntimeError | CancelledError) and bool(getattr(session, "_closed", ""))


class Attempts:
    """Counts the attempts since the last successful step.

    Args:
      recovery: the policy.
      wait: function that waits a number of seconds and returns whether the wait was cut short, because the session is
        being closed.
    """

    def __init__(self, recovery: Recovery, wait: Callable[[float], bool]) -> None:
        self._recovery = recovery
        self._wait = wait
        self._errors: list[BaseException] = []

    def succeeded(self) -> None:
        """Resets the count after a successful step."""
        if self._errors:
            self._errors.clear()

    def failed(self, error: BaseException, what: str) -> None:
        """Counts a failure, and waits until the next attempt is due.

        Args:
          error: the error.
          what: description of the call that failed, for messages.

        Raises:
          Exception: `error` with a note, if there were enough attempts or the session is being closed.
        """
        self._errors.append(error)
        n = len(self._errors)
        if n > self._recovery.retries:
            kinds = ", ".join(dict.fromkeys(type(e).__name__ for e in self._errors))
            error.add_note(
                f"(given up: {n - 1} new sessions in a row did not help, the errors were {kinds}; "
                f"Recovery(retries={self._recovery.retries}) says how many are tried)"
            )
            raise error
        wait = self._recovery.wait_before(n)
        log.warning(
            "%s failed with %s: %s. A new session is made from the last checkpoint (attempt %d of %d, in %g s)",
            what, type(error).__name__, error, n, self._recovery.retries, wait,
        )  # fmt: skip
        if self._wait(wait):
            error.add_note("(not tried again: the session is being closed)")
            raise error
