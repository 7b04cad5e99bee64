"""Recordings of running steps: the newest firings, and times without those of pauses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import thresholds
from headrace.observe import columns, recorded
from headrace.observe.assembly import document_of_step
from headrace.observe.live_recording import LiveRecording

pytestmark = pytest.mark.one_engine


def documents(monkeypatch: pytest.MonkeyPatch, firings: int, look: Any) -> dict[str, Any]:
    """The document of a loop of 200 iterations at its last one."""
    monkeypatch.setattr(thresholds, "LIVE_FIRINGS", firings)
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (50,), name="x")
        y = hr.while_loop(lambda i, h: i < 200, lambda i, h: (i + 1, hr.add(h, 1.0, name="up")), (0, x), name="loop")[1]
    live = LiveRecording(lambda log: None)
    made: list[dict[str, Any]] = []

    def on_pause(paused: Any) -> None:
        step = paused.machine.step.whole.id
        log = live.running(step)
        assert log is not None
        made.append(document_of_step(log, look(live, step, log)))

    point = hr.breakpoint_when("loop/up", lambda v: v[0] == 200.0, on_pause=on_pause)
    with hr.Session(graph=g) as s:
        s.run(y, {x: np.zeros(50, np.float32)}, options=hr.RunOptions(listener=live, breakpoints=[point]))
    assert live.running(1) is None
    recorded.check(made[0])
    return made[0]


def test_the_newest_firings_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    document = documents(monkeypatch, 40, lambda live, step, log: log.start + 1_000_000)
    nodes, tags = (columns.read(document["tokens"][name]).tolist() for name in ("node", "tag"))
    fired = [(document["nodes"][n]["name"], document["tags"][t]["text"]) for n, t in zip(nodes, tags, strict=True)]
    assert fired[-1] == ("loop/up", "loop#199")
    assert 40 <= len(fired) <= 100
    assert document["dropped"]["tokens"] > 1000
    assert document["step"]["seconds"] == 0.001
    opened = {document["tags"][t]["text"] for t in columns.read(document["iterations"]["tag"]).tolist()}
    assert "loop#0" not in opened
    assert "loop#199" in opened
    values = columns.read(document["tokens"]["value"])
    assert document["strings"][columns.read(document["values"]["elements"])[values[-1]]].startswith("200")


def test_the_time_of_a_pause_is_no_time_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def skip(live: LiveRecording, step: int, log: Any) -> int:
        before.append([t for part in log.parts for flat in (part.firings[2::5], part.iterations[2::3]) for t in flat])
        started.append(log.start)
        live.skip(step, 10**12)
        after.append([t for part in log.parts for flat in (part.firings[2::5], part.iterations[2::3]) for t in flat])
        started.append(log.start)
        return int(log.start)

    before: list[list[int]] = []
    after: list[list[int]] = []
    started: list[int] = []
    document = documents(monkeypatch, 5000, skip)
    assert after[0] == [t + 10**12 for t in before[0]]
    assert started[1] - started[0] == 10**12
    assert columns.read(document["tokens"]["end"]).max() < 10**9  # microseconds since the start
