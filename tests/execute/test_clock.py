"""Waits of the system clock."""

from __future__ import annotations

import queue
import threading

import pytest

from headrace import thresholds
from headrace.execute.clock import SYSTEM_CLOCK

pytestmark = pytest.mark.one_engine


def test_what_comes_after_many_glances_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "SIGNAL_POLL", 0.001)
    q: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.Timer(0.05, q.put, [3]).start()
    assert SYSTEM_CLOCK.take(q, 30) == 3


@pytest.mark.parametrize("timeout", [-1.0, 0.0, 0.01])
def test_a_queue_that_stays_empty(timeout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "SIGNAL_POLL", 0.002)
    q: queue.SimpleQueue[int] = queue.SimpleQueue()
    with pytest.raises(queue.Empty):
        SYSTEM_CLOCK.take(q, timeout)
    q.put(4)
    assert SYSTEM_CLOCK.take(q, timeout) == 4
