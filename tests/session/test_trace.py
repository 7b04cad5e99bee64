"""The events of a run, and the Chrome trace made of them."""

from __future__ import annotations

import collections
import io
import json
import pathlib
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import step_events
from headrace.errors import InvalidArgumentError
from headrace.ir.builder import Builder
from tests.execute.loops import Loop, counting
from tests.session.helpers import builder, call, session


def events_of(b: Builder, fetch: Any, feeds: Any = None, **options: Any) -> tuple[Any, list[step_events.Event]]:
    events: list[step_events.Event] = []
    with session(b) as s:
        return s.run(fetch, feeds, hr.RunOptions(listener=events.append, **options)), events


def nested(b: Builder) -> hr.Tensor:
    """Two outer iterations with three inner ones each."""
    outer = Loop(b, "outer", 2)
    i, x = outer.var(b.const(0)), outer.var(b.const(0))
    outer.goes_while(b.Less(i, outer.constant(b.const(2))))
    inner = Loop(b, "inner", 3)
    j, y = inner.var(outer.const(0)), inner.var(outer.body(x))
    inner.goes_while(b.Less(j, inner.constant(outer.const(3))))
    inner.next(j, b.AddV2(inner.body(j), inner.const(1)))
    inner.next(y, b.AddV2(inner.body(y), inner.const(10)))
    outer.next(x, inner.exit(y))
    outer.next(i, b.AddV2(outer.body(i), outer.const(1)))
    return outer.exit(x)


def test_every_start_has_its_end() -> None:
    b = builder()
    got, events = events_of(b, nested(b))
    assert got == 60
    assert isinstance(events[0], step_events.StepStart)
    assert isinstance(events[-1], step_events.StepEnd)
    assert events[-1].error == ""
    assert len({e.step for e in events}) == 1
    times = [e.time for e in events]
    assert times == sorted(times)
    running: set[tuple[str, str]] = set()
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    for e in events:
        if isinstance(e, step_events.NodeStart):
            assert (e.node, e.tag) not in running
            running.add((e.node, e.tag))
            seen[e.node, e.tag] += 1
        elif isinstance(e, step_events.NodeEnd):
            running.remove((e.node, e.tag))
    assert not running
    assert set(seen.values()) == {1}, "each node fires once in each iteration"


def test_tags_frames_and_iterations() -> None:
    b = builder()
    _, events = events_of(b, nested(b))
    tags = {(e.tag, e.frame, e.iteration) for e in events if isinstance(e, step_events.NodeStart)}
    assert ("", "", 0) in tags
    assert ("outer#1", "outer", 1) in tags
    assert ("outer#1/inner#2", "inner", 2) in tags
    for tag, frame, iteration in tags:
        assert tag.rpartition("/")[2] == (f"{frame}#{iteration}" if frame else "")


def test_iterations_are_opened_and_freed() -> None:
    b = builder()
    _, events = events_of(b, nested(b))
    opened = [e.tag for e in events if isinstance(e, step_events.IterationOpen)]
    freed = [e.tag for e in events if isinstance(e, step_events.IterationFree)]
    assert sorted(opened) == sorted(freed)
    assert len(set(opened)) == len(opened)
    assert {f"outer#{i}/inner#{j}" for i in range(2) for j in range(4)} <= set(opened)
    assert freed[-1] == ""


def test_dead_firings_are_marked() -> None:
    b = builder()
    no, yes = b.Switch(b.const(1), b.const(True), name="decide")
    gone, lives = b.Identity(no, name="gone"), b.Identity(yes, name="lives")
    _, events = events_of(b, [b.Merge([b.Identity(gone), lives])[0], gone.op])
    dead = {e.node: e.dead for e in events if isinstance(e, (step_events.NodeStart, step_events.NodeEnd))}
    assert dead["gone"]
    assert not dead["lives"]
    assert not dead["decide"]
    assert {e.type for e in events if isinstance(e, step_events.NodeStart)} >= {"Switch", "Merge", "Identity"}


class WithValues:
    """A listener that asks for the values."""

    wants_values = True

    def __init__(self) -> None:
        self.events: list[step_events.Event] = []

    def __call__(self, event: step_events.Event) -> None:
        self.events.append(event)


def test_values_come_on_request_only(custom: None) -> None:
    b = builder()
    p = b.Placeholder(dtype="int32", shape=(2,))
    x = b.AddV2(p, p, name="sum")
    several = call(b, "Stateful", lambda ctx, x: (x, np.int32(7)), [x], out=("int32", "int32"), name="several")
    heavy = call(b, "Heavy", lambda x: x * 10, [x], name="heavy")
    waited = call(b, "Async", lambda ctx, x, done: done(x * 100), [x], name="waited")
    fetches = [*several, heavy, waited]
    _, events = events_of(b, fetches, {p: [1, 2]})
    assert {e.values for e in events if isinstance(e, step_events.NodeEnd)} == {None}
    listener = WithValues()
    with session(b) as s:
        s.run(fetches, {p: [1, 2]}, hr.RunOptions(listener=listener))
    values = {e.node: e.values for e in listener.events if isinstance(e, step_events.NodeEnd)}
    assert [v.tolist() for v in values["sum"] or ()] == [[2, 4]]
    assert [np.asarray(v).tolist() for v in values["several"] or ()] == [[2, 4], 7]
    assert [v.tolist() for v in values["heavy"] or ()] == [[20, 40]]
    assert [v.tolist() for v in values["waited"] or ()] == [[200, 400]]


def test_values_of_primitives() -> None:
    b = builder()
    loop, i = counting(b, 2)
    listener = WithValues()
    with session(b) as s:
        s.run(loop.exit(i), options=hr.RunOptions(listener=listener))
    values = {(e.node, e.tag): e.values for e in listener.events if isinstance(e, step_events.NodeEnd) and not e.dead}
    assert values[i.op.name, "count#2"] is not None
    assert values[i.op.name, "count#2"][0] == 2  # type: ignore[index]
    assert [v[0] for (n, _), v in values.items() if n == loop.cond.op.name and v is not None] == [True, True, False]
    assert values[loop.exit(i).op.name, "count#2"] == (2,)


def test_a_failed_step_ends_with_its_error() -> None:
    b = builder()
    p = b.Placeholder(dtype="int32", shape=())
    x = b.FloorDiv(b.const(1), p)
    events: list[step_events.Event] = []
    with session(b) as s, pytest.raises(InvalidArgumentError):
        s.run(x, {p: 0}, hr.RunOptions(listener=events.append))
    assert isinstance(events[-1], step_events.StepEnd)
    assert "division by zero" in events[-1].error


def test_a_listener_changes_no_result() -> None:
    b = builder()
    p = b.Placeholder(dtype="int32", shape=())
    loop, i = counting(b, p)
    fetches = [loop.exit(i), b.Mul(loop.exit(i), p)]
    with session(b) as s:
        for n in (0, 1, 5):
            plain = s.run(fetches, {p: n})
            assert s.run(fetches, {p: n}, hr.RunOptions(listener=lambda e: None)) == plain


def test_a_listener_that_fails_fails_the_run() -> None:
    def broken(event: step_events.Event) -> None:
        if isinstance(event, step_events.NodeEnd):
            raise ZeroDivisionError("in the listener")

    b = builder()
    x = b.AddV2(b.const(1), b.const(2))
    with session(b) as s:
        with pytest.raises(ZeroDivisionError, match="in the listener"):
            s.run(x, options=hr.RunOptions(listener=broken))
        assert s.run(x) == 3


# *** Chrome's format ***


def test_the_chrome_trace_has_a_row_for_each_frame_and_iteration(tmp_path: pathlib.Path) -> None:
    b = builder()
    _, events = events_of(b, nested(b))
    path = tmp_path / "trace.json"
    step_events.write_chrome(events, str(path))
    data = json.loads(path.read_text(encoding="utf-8"))
    bars = [e for e in data["traceEvents"] if e["ph"] == "X"]
    groups = {e["pid"]: e["args"]["name"] for e in data["traceEvents"] if e["name"] == "process_name"}
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in data["traceEvents"] if e["name"] == "thread_name"}
    assert len(bars) == sum(isinstance(e, step_events.NodeEnd) for e in events)
    for bar in bars:
        assert bar["dur"] >= 0
        assert rows[bar["pid"], bar["tid"]] == f"iteration {bar['tid']}"
        tag = bar["args"]["tag"]
        assert groups[bar["pid"]].endswith(": " + (tag.rpartition("#")[0] or "root"))
        assert bar["tid"] == int(tag.rpartition("#")[2] or 0)
    names = {name.partition(": ")[2] for name in groups.values()}
    assert {"root", "outer", "outer#0/inner", "outer#1/inner"} <= names
    inner = [pid for pid, name in groups.items() if name.endswith("outer#0/inner")]
    assert {tid for pid, tid in rows if pid in inner} == {0, 1, 2, 3}


def test_a_chrome_trace_of_several_steps_into_an_open_file() -> None:
    b = builder()
    x = b.Identity(b.Placeholder(dtype="float32", shape=()))
    events: list[step_events.Event] = []
    with session(b) as s:
        for _ in range(3):
            s.run(x, {"Placeholder:0": 1.0}, hr.RunOptions(listener=events.append))
    file = io.StringIO()
    step_events.write_chrome(events, file)
    data = json.loads(file.getvalue())
    assert len({e["pid"] for e in data["traceEvents"]}) == 3
    assert step_events.chrome_events([]) == []
