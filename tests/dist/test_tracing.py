"""Trace events and metadata of steps over several worker processes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import step_events
from headrace.diagnosis import OpRef
from headrace.dist import tracing
from headrace.errors import UnimplementedError
from headrace.execute.records import DeadCause

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
    dead = [e for e in asked if isinstance(e, step_events.NodeEnd) and e.dead and e.type != "_Recv"]
    assert {type(e.cause) for e in dead} == {DeadCause}
    assert {e.cause.where for e in dead} == {"iteration 3 of loop 'while'"}
    assert all(e.cause is None for e in plain if isinstance(e, step_events.NodeEnd))


def test_a_malformed_cause_is_left_out() -> None:
    event = step_events.NodeEnd(5, 1, "a", "Neg", "", "", 0, True, None)
    collector = tracing.Collector(False, True)
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
    collector = tracing.Collector(False)
    collector(event)
    (good,) = collector.take()
    bad = [[], ["Nothing", 1], ["IterationFree", 1], ["IterationFree", "5", 1, "a#0", "a", 0, "d"], 7, None]
    assert tracing.decode([*bad, good], 1) == [event]
    assert tracing.shifted([*bad[1:3], good], 3)[-1][1] == 2
