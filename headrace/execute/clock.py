"""Clock of a step: the time, and waiting for a queue.

The deadline of a step, its wait limit and all waits of its threads go through one clock, so that a test can replace it
(`Step.clock`) and need not wait.
"""

from __future__ import annotations

import queue
import time
from typing import Final, Protocol, TypeVar

from headrace import thresholds

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[T_co]):
    """Source of `Clock.take`: a `queue.SimpleQueue`, or an object with the same `get`."""

    def get(self, block: bool = True, timeout: float | None = None) -> T_co: ...


class Clock(Protocol):
    """The time, and waits that end with it. Thread-safe."""

    def monotonic(self) -> float:
        """Returns the time in seconds since an arbitrary moment. It never decreases."""
        ...

    def take(self, source: Source[T], timeout: float) -> T:
        """Returns the next entry of a queue, waiting at most `timeout` seconds.

        Raises:
          queue.Empty: no entry arrived in time.
        """
        ...


class SystemClock:
    """The clock of the machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def take(self, source: Source[T], timeout: float) -> T:
        """Returns the next entry of a queue, waiting at most `timeout` seconds.

        Ctrl-C ends the wait within `thresholds.SIGNAL_POLL` seconds. A signal that arrives between Python's last check
        for signals and the start of the actual wait is handled only after that wait, so each single wait is short.
        """
        until = time.monotonic() + timeout
        while True:
            left = until - time.monotonic()
            try:
                return source.get(timeout=min(max(left, 0.0), thresholds.SIGNAL_POLL))
            except queue.Empty:
                if left <= thresholds.SIGNAL_POLL:
                    raise


SYSTEM_CLOCK: Final = SystemClock()
