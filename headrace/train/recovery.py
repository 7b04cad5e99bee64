"""Retries of a monitored session with new sessions: number, causes and pauses.

A step that fails with `AbortedError` or `UnavailableError` may succeed when it runs again, from the last checkpoint, in
a new session. If it fails repeatedly, success is unlikely. So attempts are counted until one succeeds, and the pauses
between them grow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from headrace.errors import AbortedError, CancelledError, UnavailableError
from headrace.train.hooks.base import log

PREEMPTION = (AbortedError, UnavailableError)  # what is worth another attempt


@dataclasses.dataclass(frozen=True)
class Recovery:
    """How a `MonitoredSession` recovers from a step that failed.

    Attributes:
      retries: how many times in a row a new session is tried; then the error is the user's. A step that does not fail
        makes it begin anew.
      wait_secs: seconds before the first new session; twice as many before each further one in a row.
      longest_wait_secs: largest number of seconds before a session.
      errors: what is recovered from; a session that somebody else closed counts, too.

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
        """The seconds to wait before the new session number `attempt`, from 1 on."""
        wait: float = self.wait_secs * 2.0 ** min(attempt - 1, 62)
        return min(wait, self.longest_wait_secs)


def is_lost(session: Any, error: BaseException) -> bool:
    """Whether `error` came of `session` having been closed by somebody else."""
    return isinstance(error, RuntimeError | CancelledError) and bool(getattr(session, "_closed", ""))


class Attempts:
    """Counts the attempts since the last step that did not fail.

    Args:
      recovery: see there.
      wait: waits so many seconds; whether that was cut short, because the session is being closed.
    """

    def __init__(self, recovery: Recovery, wait: Callable[[float], bool]) -> None:
        self._recovery = recovery
        self._wait = wait
        self._errors: list[BaseException] = []

    def succeeded(self) -> None:
        """A step did not fail."""
        if self._errors:
            self._errors.clear()

    def failed(self, error: BaseException, what: str) -> None:
        """Waits until it is time for another attempt.

        Args:
          error: what has failed with; `what` says what that was, as text.

        Raises:
          `error`, with a note that says what was tried: there were enough attempts, or the session is being closed.
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
