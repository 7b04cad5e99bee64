"""Partial runs: one step, fed and fetched in several calls."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import CancelledError, FeedError, InvalidArgumentError
from tests.execute.loops import counting
from tests.session.helpers import builder, call, session


@pytest.fixture
def chain() -> Any:
    """`z = (a + b) * c`, with `y = a + b`."""
    b = builder()
    a, c, d = (b.Placeholder(dtype="float32", shape=(), name=n) for n in "acd")
    y = b.AddV2(a, c, name="y")
    z = b.Mul(y, d, name="z")
    with session(b) as s:
        yield s, (a, c, d), (y, z)


def test_in_steps(chain: Any) -> None:
    s, (a, c, d), (y, z) = chain
    for _ in range(2):
        h = s.partial_run_setup([y, z], [a, c, d])
        assert s.partial_run(h, y, {a: 1, c: 2}) == 3
        assert s.partial_run(h, z, {d: 10}) == 30


def test_names_and_structures(chain: Any) -> None:
    s, _, _ = chain
    h = s.partial_run_setup(["y:0", ["z:0"]], ["a:0", "c:0", "d:0"])
    assert s.partial_run(h, {"sum": "y:0"}, {"a:0": 1, "c:0": 2}) == {"sum": 3}
    assert s.partial_run(h, ("z:0",), {"d:0": 3}) == (9,)


def test_feeding_without_fetching(chain: Any) -> None:
    s, (a, c, d), (y, z) = chain
    h = s.partial_run_setup([y, z], [a, c, d])
    assert s.partial_run(h, [], {a: 1}) == []
    assert s.partial_run(h, [], {c: 1}) == []
    assert s.partial_run(h, [y]) == [2]
    assert s.partial_run(h, [z], {d: 4}) == [8]


def test_two_partial_runs_side_by_side(chain: Any) -> None:
    s, (a, c, d), (y, z) = chain
    one, two = s.partial_run_setup([y, z], [a, c, d]), s.partial_run_setup([y, z], [a, c, d])
    assert one != two
    assert s.partial_run(one, y, {a: 1, c: 1}) == 2
    assert s.partial_run(two, y, {a: 5, c: 5}) == 10
    assert s.run(y, {a: 0, c: 0}) == 0
    assert s.partial_run(one, z, {d: 2}) == 4
    assert s.partial_run(two, z, {d: 2}) == 20


@pytest.mark.parametrize(
    ("fetch", "feed", "why"),
    [
        ("z:0", {}, r"fetch 'z:0' can't be computed from the feeds that have been fed so far: it needs \['d:0'\]"),
        ("y:0", {}, "fetch 'y:0' has already been fetched"),
        ("a:0", {}, "fetch 'a:0' was not named in partial_run_setup"),
        ("z:0", {"a:0": 1.0, "d:0": 1.0}, "feed 'a:0' has already been fed"),
        ("z:0", {"y:0": 1.0, "d:0": 1.0}, "feed 'y:0' was not named in partial_run_setup"),
        ("stranger", {"d:0": 1.0}, "operation 'stranger' was not named in partial_run_setup"),
    ],
)
def test_mistakes_leave_the_run_usable(chain: Any, fetch: str, feed: dict[str, float], why: str) -> None:
    s, (a, c, d), (y, z) = chain
    hr.import_graph_def('node { name: "stranger" op: "NoOp" }', graph=s.graph)
    h = s.partial_run_setup([y, z], [a, c, d])
    s.partial_run(h, y, {a: 1, c: 2})
    with pytest.raises(InvalidArgumentError, match=why):
        s.partial_run(h, fetch, feed)
    assert s.partial_run(h, z, {d: 3}) == 9


def test_a_bad_value_leaves_the_run_usable(chain: Any) -> None:
    s, (a, c, d), (y, z) = chain
    h = s.partial_run_setup([y, z], [a, c, d])
    with pytest.raises(FeedError, match="'a:0'"):
        s.partial_run(h, y, {a: "text", c: 2})
    assert s.partial_run(h, y, {a: 1, c: 2}) == 3


def test_a_handle_is_used_up(chain: Any) -> None:
    s, (a, c, _), (y, _) = chain
    h = s.partial_run_setup([y], [a, c])
    assert s.partial_run(h, y, {a: 1, c: 2}) == 3
    for wrong in (h, "nothing"):
        with pytest.raises(InvalidArgumentError, match="Must run 'setup' before performing partial runs"):
            s.partial_run(wrong, y, {})


def test_a_mistake_in_the_set_up(chain: Any) -> None:
    s, (a, _, _), (y, _) = chain
    with pytest.raises(ValueError, match="cannot be interpreted"):
        s.partial_run_setup(["nothing:0"], [a])
    with pytest.raises(FeedError, match="Cannot interpret"):
        s.partial_run_setup([y], ["nothing:0"])
    with pytest.raises(FeedError, match="fed twice"):
        s.partial_run_setup([y], [a, "a:0"])


def test_a_kernel_that_fails_ends_the_run() -> None:
    b = builder()
    p, q = b.Placeholder(dtype="int32", shape=()), b.Placeholder(dtype="int32", shape=())
    x = b.FloorDiv(b.const(1), p, name="divide")
    y = b.AddV2(q, q)
    with session(b) as s:
        h = s.partial_run_setup([x, y], [p, q])
        with pytest.raises(InvalidArgumentError) as e:
            s.partial_run(h, x, {p: 0})
        assert e.value.node == "divide"
        assert e.value.op is x.op
        with pytest.raises(InvalidArgumentError, match="Must run 'setup'"):
            s.partial_run(h, y, {q: 1})
        assert s.run(y, {q: 1}) == 2


def test_a_node_runs_once_however_many_calls_there_are(custom: None) -> None:
    b = builder()
    runs: list[int] = []
    p, q = b.Placeholder(dtype="int32", shape=()), b.Placeholder(dtype="int32", shape=())
    x = call(b, "Stateful", lambda ctx, v: runs.append(int(v)) or v, [p], scalar=True)
    y, z = b.AddV2(x, x), b.AddV2(x, q)
    with session(b) as s:
        h = s.partial_run_setup([x, y, z], [p, q])
        assert s.partial_run(h, x, {p: 3}) == 3
        assert s.partial_run(h, y) == 6
        assert s.partial_run(h, z, {q: 1}) == 4
        assert runs == [3]


def test_a_loop_in_a_partial_run() -> None:
    b = builder()
    trips, p = b.Placeholder(dtype="int32", shape=()), b.Placeholder(dtype="int32", shape=())
    loop, i = counting(b, trips)
    out = loop.exit(i)
    total = b.AddV2(out, p)
    with session(b) as s:
        h = s.partial_run_setup([out, total], [trips, p])
        assert s.partial_run(h, out, {trips: 7}) == 7
        assert s.partial_run(h, total, {p: 1}) == 8


def test_targets_run() -> None:
    b = builder()
    p = b.Placeholder(dtype="float32", shape=())
    v = b.VarHandleOp(dtype="float32", shape=())
    assign = b.AssignVariableOp(v, p)
    y = b.Mul(p, p)
    with session(b) as s:
        h = s.partial_run_setup([assign, y], [p])
        assert s.partial_run(h, [assign, y], {p: 3}) == [None, 9]
        assert s.run(b.ReadVariableOp(v, dtype="float32")) == 3


def test_the_last_call_runs_what_only_a_target_reaches() -> None:
    calls = []
    with hr.Graph() as g:
        x, z = hr.placeholder(hr.float32, (), "x"), hr.placeholder(hr.float32, (), "z")
        y = hr.identity(z, name="y")
        say = hr.py_func(lambda v: calls.append(v) or v, [x], hr.float32)
    with hr.Session(graph=g) as s:
        h = s.partial_run_setup([y, say.op], [x, z])
        s.partial_run(h, [], {x: 2.0})
        assert s.partial_run(h, [y, say.op], {z: 1.0}) == [1.0, None]
    assert calls == [2.0]


def test_a_fetch_that_is_there_is_returned_while_something_else_waits() -> None:
    b = builder()
    p = b.Placeholder(dtype="int32", shape=())
    q = b.FIFOQueueV2(component_types=["int32"])
    (waiting,) = _dequeued(b, q)
    quick = b.AddV2(p, p)
    put = b.QueueEnqueueV2(q, [b.const(5)])
    with session(b, config={"operation_timeout_in_ms": 20_000}) as s:
        h = s.partial_run_setup([quick, waiting], [p])
        assert s.partial_run(h, quick, {p: 2}) == 4
        s.run(put)
        assert s.partial_run(h, waiting) == 5


def _dequeued(b: Any, q: Any) -> tuple[Any, ...]:
    out = b.QueueDequeueV2(q, component_types=["int32"])
    return out if isinstance(out, tuple) else (out,)


def test_closing_while_a_partial_run_waits(custom: None) -> None:
    b = builder()
    p = b.Placeholder(dtype="int32", shape=())
    q = b.FIFOQueueV2(component_types=["int32"])
    begun = threading.Event()
    signal = call(b, "Stateful", lambda ctx, v: begun.set() or v, [p], scalar=True)
    (waiting,) = _dequeued(b.after(signal), q)
    s = session(b)
    h = s.partial_run_setup([waiting], [p])
    errors: list[BaseException] = []

    def go() -> None:
        try:
            s.partial_run(h, waiting, {p: 1})
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=go)
    thread.start()
    assert begun.wait(30)
    s.close()
    thread.join(30)
    assert not thread.is_alive()
    assert [type(e) for e in errors] == [CancelledError]


def test_closing_during_the_set_up_leaves_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
        y = x * 2.0
    s = hr.Session(graph=g)
    step = s._step
    monkeypatch.setattr(s, "_step", lambda *args: (s.close(), step(*args))[1])
    with pytest.raises(CancelledError, match="closed before"):
        s.partial_run_setup(y, [x])
    assert not s._active
    assert not s._partial


@pytest.mark.system
def test_another_step_wakes_a_partial_run_from_a_thread_that_served_it() -> None:
    with hr.Graph() as g:
        x, y, z = (hr.placeholder(hr.float32, ()) for _ in range(3))
        with hr.device("/cpu:1"):
            first = x * 2.0
        with hr.device("/cpu:0"):
            q = hr.FIFOQueue(1, hr.float32, ())
            last = q.dequeue() + y
            there = z + 1.0
        with hr.device("/cpu:1"):
            back = there * 2.0
        with hr.device("/cpu:0"):
            put = q.enqueue(back)  # driven by the thread of the second device, which sends `back`
    s = hr.Session(graph=g, devices={"CPU": 2})
    handle = s.partial_run_setup([first, last], [x, y])
    assert s.partial_run(handle, first, {x: 1.0}) == 2.0  # the part on the second device is over
    out: list[Any] = []
    waiting = threading.Thread(target=lambda: out.append(s.partial_run(handle, last, {y: 1.0})), daemon=True)
    waiting.start()
    for run in list(s._partial.values()):
        while not run.run.statistics().waiting or not run.is_running:
            time.sleep(0.001)
    s.run(put, {z: 3.0})
    waiting.join(5)
    assert out == [9.0]
    s.close()


def test_values_are_the_callers_own(chain: Any) -> None:
    b = builder()
    p, q = b.Placeholder(dtype="float32", shape=(2,)), b.Placeholder(dtype="float32", shape=(2,))
    x = b.Identity(p)
    y = b.AddV2(x, q)
    with session(b) as s:
        mine = np.ones(2, np.float32)
        h = s.partial_run_setup([x, y], [p, q])
        got = s.partial_run(h, x, {p: mine})
        got[...] = 50
        mine[...] = 70
        assert s.partial_run(h, y, {q: np.zeros(2, np.float32)}).tolist() == [1, 1]
