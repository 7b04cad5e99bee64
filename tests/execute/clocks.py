"""Clocks for tests of waits and deadlines, which then need not wait."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from headrace.execute.clock import Source

T = TypeVar("T")

GLANCE = 0.001  # seconds
PATIENCE = 20.0  # seconds


def soon(condition: Callable[[], bool]) -> bool:
    """Whether `condition` holds now or within `PATIENCE` seconds."""
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            return False
        threading.Event().wait(GLANCE)
    return True


class ManualClock:
    """A clock that stands still until `advance`.

    Args:
      expires: whether each wait for an empty queue ends at once, as if its time had passed. This fits steps for which
        no other thread works.

    Attributes:
      waiting: set when a thread waits for a queue that is empty.
      waits: number of waits that have begun.
    """

    def __init__(self, expires: bool = False) -> None:
        self._expires = expires
        self._now = 0.0
        self.waiting = threading.Event()
        self.waits = 0

    def monotonic(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        self._now += seconds

    def take(self, source: Source[T], timeout: float) -> T:
        self.waits += 1
        until = self._now + timeout
        while True:
            try:
                return source.get(timeout=GLANCE)
            except queue.Empty:
                if self._expires:
                    self.advance(timeout)
                if self._now >= until:
                    raise
                self.waiting.set()
