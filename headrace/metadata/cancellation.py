"""`Cancellation`: ends a run from another thread."""

from __future__ import annotations

import threading
from typing import Protocol

from headrace.errors import CancelledError


class Cancellable(Protocol):
    """A running step, see `execute.step.Step`."""

    def cancel(self, error: BaseException) -> None:
        """Makes the step fail with `error`."""
        ...


class Cancellation:
    """Cancels the runs whose `RunOptions` have it, those that begin later too. Thread-safe.

    A run that is one call of compiled code without loops and without waits ends by itself.

    Source: TensorFlow's `CancellationManager`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     got = hr.FIFOQueue(1, [hr.float32]).dequeue()
      >>> cancellation = Cancellation()
      >>> cancellation.cancel("the caller left")
      >>> hr.Session(graph=g).run(got, options=hr.RunOptions(cancellation=cancellation))
      Traceback (most recent call last):
      headrace.errors.CancelledError: the caller left
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: set[Cancellable] = set()
        self._reason: str | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._reason is not None

    @property
    def running(self) -> int:
        """Number of steps that have begun and not ended."""
        return len(self._steps)

    def cancel(self, reason: str) -> None:
        """Cancels all runs; they fail with `CancelledError`. Only the first call has an effect.

        Args:
          reason: the text of the error.
        """
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            steps, self._steps = self._steps, set()
        for step in steps:
            step.cancel(CancelledError(reason))

    def add(self, step: Cancellable) -> None:
        """Adds a step that begins; it is cancelled at once after `cancel`."""
        with self._lock:
            if self._reason is None:
                self._steps.add(step)
                return
        step.cancel(CancelledError(self._reason))

    def discard(self, step: Cancellable) -> None:
        """Removes a step that has ended."""
        with self._lock:
            self._steps.discard(step)
