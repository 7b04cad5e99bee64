"""Waits of the tests of reactors and links, and their clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from headrace.dist.reactor import Reactor

SECONDS: Final = 20.0  # deadline of each wait


class ManualClock:
    """A clock that `advance` moves; waits for queues take real time."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def take(self, source: Any, timeout: float) -> Any:
        return source.get(timeout=timeout)

    def advance(self, seconds: float, *reactors: Reactor) -> None:
        self.now += seconds
        for r in reactors:
            r.submit(lambda: None)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def await_(event: threading.Event) -> None:
    assert event.wait(SECONDS)
