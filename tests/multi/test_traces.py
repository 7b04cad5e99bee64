"""Chrome traces of random programs: no two bars of a row overlap partially."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

import headrace as hr
from headrace import step_events
from tests.multi.drawn import drawn
from tests.multi.scattering import scatter

pytestmark = [pytest.mark.system, pytest.mark.one_engine]


def overlaps(bars: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs of bars of one row, neither of which contains the other, that share time."""
    rows: dict[tuple[int, int], list[tuple[int, int, dict[str, Any]]]] = {}
    for bar in bars:
        start = round(bar["ts"] * 1000)
        rows.setdefault((bar["pid"], bar["tid"]), []).append((start, start + round(bar["dur"] * 1000), bar))
    found = []
    for row in rows.values():
        around: list[tuple[int, int, dict[str, Any]]] = []
        for one in sorted(row, key=lambda x: (x[0], -x[1])):
            while around and around[-1][1] <= one[0]:
                around.pop()
            if around and around[-1][1] < one[1]:
                found.append((around[-1][2], one[2]))
            around.append(one)
    return found


def bars_of(events: list[step_events.Event]) -> list[dict[str, Any]]:
    return [e for e in step_events.chrome_events(events) if e["ph"] == "X"]


def test_overlaps_finds_a_partial_overlap() -> None:
    row = {"pid": 1, "tid": 1}
    bars = [{"ts": 0.0, "dur": 4.0, **row}, {"ts": 1.0, "dur": 1.0, **row}, {"ts": 3.0, "dur": 4.0, **row}]
    assert overlaps(bars) == [(bars[0], bars[2])]
    assert not overlaps(bars[:2])


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_bars_of_a_row_nest_or_are_disjoint(seed: int, devices: int) -> None:
    rng = random.Random(seed)
    program = drawn(rng, stateful=False)
    if devices > 1:
        scatter(program.graph, rng, devices)
    events: list[step_events.Event] = []
    with hr.Session(graph=program.graph, devices={"CPU": devices}) as session:
        options = hr.RunOptions(listener=events.append)
        if program.failure is None:
            session.run(program.values, program.build.feeds, options)
        else:
            with pytest.raises(hr.errors.InvalidArgumentError):
                session.run(program.values, program.build.feeds, options)
    bars = bars_of(events)
    assert len(bars) >= sum(isinstance(e, step_events.NodeEnd) for e in events) > 0
    assert not overlaps(bars)


def test_kernels_on_threads_and_waits_have_rows_of_their_own() -> None:
    with hr.Graph() as g:
        queue = hr.FIFOQueue(1, [hr.float32], shapes=[[]])
        waits = [queue.dequeue() for _ in range(3)]
        puts = [queue.enqueue(float(k)) for k in range(3)]
    events: list[step_events.Event] = []
    with hr.Session(graph=g) as session:
        got = session.run([*waits, *puts], options=hr.RunOptions(listener=events.append))
    assert sorted(got[:3]) == [0.0, 1.0, 2.0]
    bars = bars_of(events)
    assert not overlaps(bars)
    waited = {e.node for e in events if isinstance(e, step_events.NodeEnd) and e.waited}
    named = {e["tid"]: e["args"]["name"] for e in step_events.chrome_events(events) if e["name"] == "thread_name"}
    assert waited
    assert all(", waiting" in named[bar["tid"]] for bar in bars if bar["name"] in waited)


def test_bars_have_the_line_and_the_shapes() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (2, None), name="x")
        y = hr.tanh(x, name="y")
    events: list[step_events.Event] = []
    with hr.Session(graph=g) as session:
        session.run(y, {x: [[1.0], [2.0]]}, hr.RunOptions(listener=events.append))
    about = next(bar["args"] for bar in bars_of(events) if bar["name"] == "y")
    assert __file__ in about["source"]
    assert about["shapes"] == "float32[2,?]"


def test_lanes_of_random_spans_are_few_and_correct() -> None:
    rng = random.Random(4)
    for _ in range(200):
        spans = [(start := rng.randrange(30), start + rng.randrange(12)) for _ in range(rng.randrange(12))]
        lanes = step_events.lanes(spans)
        bars = [
            {"ts": a / 1000, "dur": (b - a) / 1000, "pid": 1, "tid": n} for (a, b), n in zip(spans, lanes, strict=True)
        ]
        assert not overlaps(bars)
        assert sorted(set(lanes)) == list(range(len(set(lanes))))
    assert step_events.lanes([(k, k + 1) for k in range(9)]) == [0] * 9
    assert all(a != b for a, b in pairwise(step_events.lanes([(0, 3), (1, 4), (2, 5)])))
