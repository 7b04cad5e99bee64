"""Compiled loops check regularly whether to stop.

The interval is measured by a clock that the test moves.
"""

from __future__ import annotations

from typing import Any

import pytest

from headrace.targets.python import runtime
from headrace.targets.python.runtime import RunState
from headrace.thresholds import FIRST_LOOK, SHORT_LOOP_LOOK


class Clock:
    """Stands for `time` and for the step: time passes with the iterations."""

    def __init__(self) -> None:
        self.now = 100.0
        self.looks = 0
        self.cancelled: Exception | None = None

    def monotonic(self) -> float:
        return self.now

    def look(self) -> None:
        self.looks += 1
        if self.cancelled is not None:
            raise self.cancelled


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(runtime, "time", made)
    return made


def go(clock: Clock, numbers: Any, seconds: float) -> list[int]:
    out = []
    for i in numbers:
        out.append(i)
        clock.now += seconds
    return out


@pytest.mark.parametrize(("first", "stop"), [(0, 0), (5, 2), (0, 1), (3, 19), (0, 17), (0, 512), (0, 513), (-7, 3000)])
@pytest.mark.parametrize("before", [0, 1, 40])
def test_all_numbers_in_order(clock: Clock, first: int, stop: int, before: int) -> None:
    run = RunState(clock, ())
    for _ in range(before):
        assert go(clock, run.span(0, 100), 1e-6) == list(range(100))
    assert go(clock, run.span(first, stop), 1e-6) == list(range(first, stop))


@pytest.mark.parametrize("n", [1, FIRST_LOOK, FIRST_LOOK + 1, 100, SHORT_LOOP_LOOK])
def test_short_loops_look_together(clock: Clock, n: int) -> None:
    run = RunState(clock, ())
    for _ in range(20 * SHORT_LOOP_LOOK // n):
        go(clock, run.span(0, n), 1e-7)
    assert 15 <= clock.looks <= 60 + 20 * (n == SHORT_LOOP_LOOK)


def test_slow_iterations_are_looked_at_soon(clock: Clock) -> None:
    run = RunState(clock, ())
    for _ in range(100):
        go(clock, run.span(0, 10), 1.0)
    assert clock.looks >= 1000 // (2 * FIRST_LOOK)


def test_a_short_loop_ends_when_it_is_cancelled(clock: Clock) -> None:
    run = RunState(clock, ())
    for _ in range(50):
        go(clock, run.span(0, 100), 1e-6)
    clock.cancelled = KeyError("stop")
    rounds = 0

    def endless() -> None:
        nonlocal rounds
        while True:
            go(clock, run.span(0, 100), 1e-6)
            rounds += 1

    with pytest.raises(KeyError):
        endless()
    assert rounds * 100 <= SHORT_LOOP_LOOK


def test_one_long_loop_looks_while_it_runs(clock: Clock) -> None:
    run = RunState(clock, ())
    assert len(go(clock, run.span(0, 10_000), 1e-3)) == 10_000
    assert clock.looks > 100
