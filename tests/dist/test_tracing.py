"""Trace events and metadata of steps over several worker processes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import step_events, thresholds
from headrace.diagnosis import OpRef
from headrace.dist import tracing
from headrace.errors import ResourceExhaustedError, UnimplementedError
from headrace.execute.records import DeadCause
from headrace.observe.recorded import check
from headrace.observe.summaries import NO_VALUE
from tests.observe import reading

pytestmark = [pytest.mark.system, pytest.mark.one_engine, pytest.mark.timeout(60)]

TASK = "/job:worker/replica:0/task:"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with hr.cluster.local(2) as made:
        yield made


def looping() -> tuple[hr.Graph, Any, Any]:
    """A loop whose body is on two workers."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())

        def body(i: Any, t: Any) -> Any:
            with hr.device("/job:worker/task:1"):
                u = t * 2
            with hr.device("/job:worker/task:0"):
                return i + 1, u + 1

        return g, x, hr.while_loop(lambda i, t: i < 3, body, [0, x])[1]


def test_the_events_of_all_workers_are_on_one_time_line(cluster: Any, tmp_path: Path) -> None:
    g, x, y = looping()
    events: list[Any] = []
    with hr.Session(cluster, graph=g) as session:
        assert session.run(y, {x: 1.0}, hr.RunOptions(listener=events.append)) == 15.0
    ended = {e.device for e in events if isinstance(e, step_events.NodeEnd)}
    assert ended == {f"{TASK}{i}/device:CPU:0" for i in range(2)}
    assert len({e.step for e in events}) == 1
    received = {(e.edge, e.tag): e.time for e in events if isinstance(e, step_events.TokenReceived)}
    sent = {(e.edge, e.tag): e.time for e in events if isinstance(e, step_events.TokenSent)}
    assert sent.keys() == received.keys()
    assert len(sent) >= 6
    # the error of the offset is at most half of the shortest round trip
    assert all(received[k] - sent[k] > -5e6 for k in sent)
    step_events.write_chrome(events, str(tmp_path / "trace.json"))
    assert json.loads((tmp_path / "trace.json").read_text())


def test_a_listener_that_asks_gets_the_causes_of_dead_tokens(cluster: Any) -> None:
    class Causes(list[Any]):
        wants_causes = True

        def __call__(self, event: Any) -> None:
            self.append(event)

    g, x, y = looping()
    asked, plain = Causes(), list[Any]()
    with hr.Session(cluster, graph=g) as session:
        for listener in (asked, plain.append):
            session.run(y, {x: 1.0}, hr.RunOptions(listener=listener))
    dead = [e for e in asked if isinstance(e, step_events.NodeEnd) and e.dead]
    assert {type(e.cause) for e in dead} == {DeadCause}
    assert {e.cause.where for e in dead} == {"iteration 3 of loop 'while'"}
    assert all(e.cause is None for e in plain if isinstance(e, step_events.NodeEnd))


def test_a_malformed_cause_is_left_out() -> None:
    event = step_events.NodeEnd(5, 1, "a", "Neg", "", "", 0, True, None)
    collector = tracing.Collector(3)
    collector(dataclasses.replace(event, cause=DeadCause(OpRef("s", "Switch"), "", "p:0", 1, 2)))
    (good,) = collector.take()
    assert tracing.decode([good], 1)[0].cause == DeadCause(OpRef("s", "Switch"), "", "p:0", 1, 2)
    for bad in (3, ["s"], [["s", "Switch", ""], "", "p:0", "1", 2]):
        assert tracing.decode([[bad if isinstance(x, list) else x for x in good]], 1) == []


def test_a_profile_has_the_trips_on_each_worker(cluster: Any) -> None:
    g, x, y = looping()
    with hr.Session(cluster, graph=g) as session:
        p = hr.profile(lambda: session.run(y, {x: 1.0}))
    assert p.result == 15.0
    calls = {row.types[0]: (row.device, row.calls) for row in p.rows if row.types in (("Mul",), ("LoopCond",))}
    assert calls == {"Mul": (f"{TASK}1/device:CPU:0", 3), "LoopCond": (f"{TASK}0/device:CPU:0", 4)}
    assert [loop.calls for loop in p.loops if loop.name == "while"] == [3]
    assert f"{TASK}1/device:CPU:0" in str(p)


def test_metadata_has_a_part_for_each_worker(cluster: Any) -> None:
    g, x, y = looping()
    metadata = hr.RunMetadata()
    with hr.Session(cluster, graph=g) as session:
        session.run(y, {x: 1.0}, hr.RunOptions(trace_level=hr.RunOptions.FULL_TRACE), metadata)
    assert sorted(d.name for d in metadata.devices) == [f"{TASK}{i}/device:CPU:0" for i in range(2)]
    assert all(d.calls for d in metadata.devices)


def test_a_listener_gets_no_values(cluster: Any) -> None:
    g, x, y = looping()

    class Values(list[Any]):
        wants_values = True

        def __call__(self, event: Any) -> None:
            self.append(event)

    with hr.Session(cluster, graph=g) as session, pytest.raises(UnimplementedError, match="gets no values"):
        session.run(y, {x: 1.0}, hr.RunOptions(listener=Values()))


def test_malformed_events_are_left_out() -> None:
    event = step_events.IterationFree(5, 1, "a#0", "a", 0, "d")
    collector = tracing.Collector(1)
    collector(event)
    (good,) = collector.take()
    bad = [[], ["Nothing", 1], ["IterationFree", 1], ["IterationFree", "5", 1, "a#0", "a", 0, "d"], 7, None]
    assert tracing.decode([*bad, good], 1) == [event]
    assert tracing.shifted([*bad[1:3], good], 3)[-1][1] == 2


def test_a_recording_has_summaries_of_the_values_of_all_workers(cluster: Any) -> None:
    g, x, y = looping()
    with hr.Session(cluster, graph=g) as session, hr.record() as recording:
        session.run(y, {x: 1.0})
    document = json.loads(json.dumps(recording.document()))
    check(document)
    with hr.Session(graph=g, engine="interpret") as session, hr.record() as local:
        session.run(y, {x: 1.0})
    for name in ("while/mul", "while/add_1", "while/Less", "while/Merge_1"):
        assert reading.values_of(document, name) == reading.values_of(local.document(), name) != {}
    switch = [t.values for t in reading.tokens(document) if t.node == "while/Switch_1"]
    assert switch[0] == (("", "", ""), ("float32", "[]", "1"))
    assert switch[-1] == (("float32", "[]", "15"), ("", "", ""))


def test_summaries_are_made_before_they_hold_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "STEP_TRACE_HELD", 100)
    collector = tracing.Collector(4)
    for k in range(3):
        collector(step_events.NodeEnd(k, 1, "a", "Neg", "", "", 0, False, (np.full(20, k, np.float32), None)))
        assert len(collector._held) == (k + 1) % 2
    found = tracing.decode(collector.take(), 1)
    assert [(v[0].mean, v[1]) for e in found for v in [e.values]] == [(float(k), NO_VALUE) for k in range(3)]


def test_a_malformed_value_is_left_out() -> None:
    collector = tracing.Collector(4, {"b"})
    for node, value in (("a", np.float32(0.5)), ("b", np.arange(3))):
        collector(step_events.NodeEnd(5, 1, node, "Neg", "", "", 0, False, (value,)))
    a, b = collector.take()
    found = tracing.decode([a, b], 1)
    assert found[0].values[0].elements == "0.5"
    assert found[1].values[0].tolist() == [0, 1, 2]
    at = next(i for i, x in enumerate(a) if isinstance(x, list))
    for bad in (3, [3], [[]], [a[at][0][:-1]], [["float32", "[]", "0", *a[at][0][3:]]], [b"\xff"], [b[at][0] + b"0"]):
        assert tracing.decode([[*a[:at], bad, *a[at + 1 :]]], 1) == []


def test_watched_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "STEP_TRACE_VALUES", 1000)
    collector = tracing.Collector(0, {"a"})
    event = step_events.NodeEnd(5, 1, "a", "Neg", "", "", 0, False, (np.zeros(100),))
    collector(dataclasses.replace(event, node="b"))
    collector(event)
    with pytest.raises(ResourceExhaustedError, match="watched values of this step have more than 1,000 bytes"):
        collector(event)
    assert [e[3] for e in collector.take()] == ["a"]
