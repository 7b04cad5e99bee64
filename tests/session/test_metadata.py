"""`RunMetadata`, compared with the events of the same run and with programs counted in Python."""

from __future__ import annotations

import collections
import dataclasses
import json
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import headrace as hr
import headrace.v1 as tf
from headrace import step_events, thresholds
from headrace.errors import DeadlineExceededError, InvalidArgumentError
from headrace.ir.builder import Builder
from headrace.metadata import counters
from tests.execute.loops import counting, dead
from tests.execute.machine import SeededReady
from tests.execute.programs import TRIPS, Assign, Block, If, Lowering, While, _holds, _value, show
from tests.execute.test_random_graphs import NAMES, PROGRAMS
from tests.multi.test_session import AT, pipeline
from tests.session.helpers import builder, call, session

some = settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
FULL = hr.RunOptions(trace_level=hr.RunOptions.FULL_TRACE)
CPU = "/job:localhost/replica:0/task:0/device:CPU:"


class Sizes:
    """A listener that asks for sizes and keeps events."""

    wants_sizes = True

    def __init__(self) -> None:
        self.events: list[Any] = []

    def __call__(self, event: step_events.Event) -> None:
        self.events.append(event)


def slowly(x: Any) -> Any:
    time.sleep(0.02)
    return x


def op_of(m: hr.RunMetadata, name: str) -> Any:
    (found,) = [op for op in m.ops if op.name == name]
    return found


def loop_of(m: hr.RunMetadata, name: str) -> Any:
    (found,) = [x for x in m.loops if x.name == name]
    return found


# *** loops ***


def loops_in(block: Block) -> int:
    return sum(
        loops_in(s.yes) + loops_in(s.no) if isinstance(s, If) else 1 + loops_in(s.body)
        for s in block
        if not isinstance(s, Assign)
    )


def count(block: Block, values: dict[str, int], first: int, trips: Any, unentered: Any) -> None:
    """Runs `block` and counts the trips of its loops.

    Loops have numbers from `first` on, as `Lowering` assigns them. `trips` receives the trips of each time a loop was
    entered. `unentered` counts the times it was not entered, in a branch not taken or in a body after the last trip.
    """

    def never(first: int, block: Block) -> None:
        for n in range(first, first + loops_in(block)):
            unentered[n] += 1

    n = first
    for s in block:
        if isinstance(s, Assign):
            values[s.name] = _value(s.value, values)
        elif isinstance(s, If):
            sides, yes_first = (s.no, s.yes), n + loops_in(s.no)
            taken = _holds(s.pred, values)
            count(sides[taken], values, yes_first if taken else n, trips, unentered)
            never(n if taken else yes_first, sides[not taken])
            n = yes_first + loops_in(s.yes)
        else:
            assert isinstance(s, While)
            made = 0
            for _ in range(_value(s.trips, values) % TRIPS):
                if s.pred is not None and not _holds(s.pred, values):
                    break
                count(s.body, values, n + 1, trips, unentered)
                made += 1
            trips[n].append(made)
            never(n + 1, s.body)
            n += 1 + loops_in(s.body)


def check_program(program: Block, starts: list[int]) -> None:
    trips: Any = collections.defaultdict(list)
    unentered: Any = collections.Counter()
    count(program, dict(zip(NAMES, starts, strict=True)), 1, trips, unentered)
    for parallel_iterations in (1, 2, 10):
        b = Builder(hr.Graph())
        feeds = {n: b.Placeholder(dtype="int32", shape=()) for n in NAMES}
        results = Lowering(b, parallel_iterations).lower(program, feeds)
        feed = {feeds[n]: np.int32(v) for n, v in zip(NAMES, starts, strict=True)}
        m = hr.RunMetadata()
        with session(b) as s:
            for ready in (None, SeededReady(1)):
                heard = Sizes()
                s.run(results, feed, dataclasses.replace(FULL, ready=ready, listener=heard), m)
                check_against_events(m, heard.events)
                for loop in m.loops:  # a loop whose results are not needed is missing
                    n = int(loop.name.removeprefix("loop"))
                    assert sorted(x.trips for x in loop.instances) == sorted(trips[n])
                    assert (loop.entered, loop.trips) == (len(trips[n]), sum(trips[n]))
                    assert (loop.fewest, loop.most) == (min(trips[n], default=0), max(trips[n], default=0))
                    assert loop.dead == unentered[n]
                    assert loop.parallel_iterations == parallel_iterations
                    assert loop.most_in_flight <= parallel_iterations
                    assert loop.most_in_flight >= min(2, loop.most + 1, parallel_iterations) or not loop.entered


def check_against_events(m: hr.RunMetadata, events: list[Any]) -> None:
    """The sums are those of the events, which a run on one device has."""
    calls, unalive, sizes, seconds, starts = (collections.Counter[Any]() for _ in range(5))
    for e in events:
        if isinstance(e, step_events.NodeStart):
            starts[e.node, e.tag] = e.time
        elif isinstance(e, step_events.NodeEnd):
            (unalive if e.dead else calls)[e.node] += 1
            sizes[e.node] += sum(e.sizes or ())
            if not e.waited and not e.dead:
                seconds[e.node] += e.time - starts[e.node, e.tag]
    assert m.step_id == events[0].step
    assert {op.name: op.calls for op in m.ops if op.calls} == dict(calls)
    assert {op.name: op.dead for op in m.ops if op.dead} == dict(unalive)
    assert {op.name: op.bytes for op in m.ops} == {op.name: sizes[op.name] for op in m.ops}
    assert all(op.seconds == pytest.approx(seconds[op.name] / 1e9) for op in m.ops)
    (device,) = m.devices
    assert (m.calls, m.dead, m.bytes) == (calls.total(), unalive.total(), sizes.total())
    assert sum(op.seconds for op in m.ops) + device.dead_seconds == pytest.approx(device.busy)
    assert device.busy <= m.seconds
    assert len(m.step_stats.dev_stats[0].node_stats) + m.left_out == m.calls
    assert m.unfinished == []


@pytest.mark.system
@some
@given(PROGRAMS)
def test_random_programs(case: tuple[Block, list[int]]) -> None:
    try:
        check_program(*case)
    except BaseException as e:
        e.add_note(f"{show(case[0])}\nfrom {case[1]}")
        raise


@pytest.mark.parametrize("parallel_iterations", [1, 3])
def test_a_loop_that_is_held_back_is_one_loop(parallel_iterations: int) -> None:
    b = builder()
    loop, i = counting(b, 50, parallel_iterations=parallel_iterations)
    m = hr.RunMetadata()
    with session(b) as s:
        assert s.run(loop.exit(i), options=FULL, run_metadata=m) == 50
    (found,) = m.loops
    assert (found.name, found.trips, found.entered, found.dead) == ("count", 50, 1, 0)
    assert found.most_in_flight <= parallel_iterations
    assert found.held == (50 if parallel_iterations == 1 else 0)
    assert [dataclasses.astuple(x) for x in found.instances] == [("count", 50, found.most_in_flight)]


def test_a_full_window_is_seen() -> None:
    b = builder()
    loop, i = counting(b, 20, parallel_iterations=4)
    m = hr.RunMetadata()
    # operations that the next iteration does not need fire last, so no iteration ends before it must
    ready = SeededReady(last=frozenset(op.name for op in b.graph.operations if op.type == "Exit"))
    slow = b.Identity(loop.body(i), name="slow")
    ready.last |= {slow.op.name}
    with session(b) as s:
        s.run([loop.exit(i), slow.op], options=dataclasses.replace(FULL, ready=ready), run_metadata=m)
    (found,) = m.loops
    assert (found.most_in_flight, found.bound) == (4, "parallel_iterations")
    assert found.held > found.trips / 2


def test_the_variable_that_bounds_a_loop_is_named() -> None:
    with hr.Graph() as g:
        body = lambda i, x, k: (i + 1, hr.sin(hr.sin(hr.sin(x))), k + 1)
        x = hr.while_loop(lambda i, x, k: i < 9, body, (0, 1.0, 0), name="loop")[1]
    m = hr.RunMetadata()
    with hr.Session(graph=g) as s:
        s.run(x, options=FULL, run_metadata=m)
    (found,) = m.loops
    assert (found.held, found.last, found.bound) == (0, {"loop/NextIteration_1": 9}, "loop/NextIteration_1")
    assert "the next iteration of loop waited for loop/NextIteration_1 in 9 of 9 iterations" in str(m)


def test_instances_say_where_they_were() -> None:
    with hr.Graph() as g:
        inner = lambda i: hr.while_loop(lambda j: j < i, lambda j: j + 1, [0], name="inner")
        out = hr.while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, s + inner(i)[0]), [0, 0], name="outer")
    m = hr.RunMetadata()
    hr.Session(graph=g).run(out, options=FULL, run_metadata=m)
    found = loop_of(m, "outer/inner")
    assert {x.tag: x.trips for x in found.instances} == {f"outer#{n}/outer/inner": n for n in range(4)}
    assert (found.fewest, found.most, found.entered, found.dead) == (0, 3, 4, 1)


def test_what_is_listed_one_by_one_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "LISTED_FIRINGS", 20)
    monkeypatch.setattr(thresholds, "LISTED_LOOP_FIRINGS", 5)
    with hr.Graph() as g:
        inner = lambda: hr.while_loop(lambda j: j < 2, lambda j: j + 1, [0])
        out = hr.while_loop(lambda i, s: i < 30, lambda i, s: (i + 1, s + inner()[0]), [0, 0])
    m = hr.RunMetadata()
    hr.Session(graph=g).run(out, options=FULL, run_metadata=m)
    assert len(m.step_stats.dev_stats[0].node_stats) == 20
    assert m.left_out == m.calls - 20
    found = max(m.loops, key=lambda x: x.entered)
    assert (found.entered, found.trips, len(found.instances)) == (30, 60, 5)


@pytest.mark.system
def test_counters_do_not_grow_with_a_loop() -> None:
    """Counters of a running loop are those of its open iterations, however many ran."""
    b = builder()
    loop, i = counting(b, 500)
    kept: list[int] = []
    made: list[Any] = []

    class Looking(counters._Counters):
        def __init__(self, device: str) -> None:
            super().__init__(device)
            made.append(self)

        def __call__(self, e: Any) -> None:
            super().__call__(e)
            kept.append(sum(len(on.late) + len(on.running) + len(on.ops) for on in self._on.values()))

    with pytest.MonkeyPatch.context() as patch, session(b) as s:
        patch.setattr(counters, "_Counters", Looking)
        s.run(loop.exit(i), options=FULL, run_metadata=hr.RunMetadata())
    assert len(made) == 1
    assert len(kept) > 5_000
    assert max(kept) < 30


# *** operations ***


def test_bytes_are_those_of_outputs() -> None:
    b = builder()
    p = b.Placeholder(dtype="float32", shape=(None,))
    square = b.Mul(p, p, name="square")
    text = b.Identity(b.const([b"four", b"fives"]), name="text")
    left, right = b.Split(b.const(0), square, num_split=2, name="split")
    no, yes = b.Switch(square, b.const(True), name="switch")
    m = hr.RunMetadata()
    with session(b) as s:
        s.run([left, right, text, yes, b.Identity(no, name="gone").op], {p: [1.0] * 6}, FULL, m)
    assert op_of(m, "square").bytes == 24
    assert op_of(m, "split").bytes == 24
    assert op_of(m, "text").bytes == 9
    assert op_of(m, "switch").bytes == 24
    assert op_of(m, "gone").dead == 1
    stats = {n.node_name: n for n in m.step_stats.dev_stats[0].node_stats}
    sizes = {
        name: [(o.slot, o.tensor_description.allocation_description.requested_bytes) for o in stats[name].output]
        for name in ("split", "switch")
    }
    assert sizes == {"split": [(0, 12), (1, 12)], "switch": [(1, 24)]}
    assert stats["split"].memory[0].total_bytes == 24
    assert "gone" not in stats


def test_waiting_is_not_computing(custom: None) -> None:
    def later(ctx: Any, done: Any) -> None:
        import threading

        threading.Timer(0.05, done, [np.int32(3)]).start()

    b = builder()
    waited = call(b, "Async", later, name="waited")
    slept = call(b, "Stateful", lambda ctx, x: slowly(x), [waited], name="slept")
    m = hr.RunMetadata()
    with session(b) as s:
        s.run(slept, options=FULL, run_metadata=m)
    assert op_of(m, "waited").waited >= 0.04
    assert op_of(m, "waited").seconds == 0
    assert op_of(m, "slept").seconds >= 0.02
    assert op_of(m, "slept").longest == op_of(m, "slept").seconds
    assert m.devices[0].busy >= 0.02
    assert m.devices[0].busy + op_of(m, "waited").waited <= m.seconds
    assert m.ops[0].name == "slept"


def test_heavy_kernels_on_threads(custom: None) -> None:
    b = builder()
    heavy = [call(b, "Heavy", slowly, [b.const(i)], name=f"h{i}") for i in range(3)]
    m = hr.RunMetadata()
    with session(b, inter_op_threads=1) as s:
        s.run(heavy, options=FULL, run_metadata=m)
    seconds = [op_of(m, f"h{i}").seconds for i in range(3)]
    assert min(seconds) >= 0.02
    streamed = sum(m.devices[0].streams.values())
    assert streamed >= 0.04  # one may have been computed at once
    assert sum(op.seconds for op in m.ops) == pytest.approx(m.devices[0].busy + streamed, rel=0.01)


def test_calls_of_functions() -> None:
    def body(n: Any) -> Any:
        return hr.cond(n < 1, lambda: hr.constant(0), lambda: down(n - 1) + 1)

    down = hr.Function(body, results=hr.TensorSpec((), hr.int32))
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, ())
        y = down(n)
    m = hr.RunMetadata()
    with hr.Session(graph=g) as s:
        assert s.run(y, {n: 6}, FULL, m) == 6
    calls = [op for op in m.ops if "Call" in op.type]
    assert sum(op.calls for op in calls) == 7
    assert all(op.seconds == 0 and op.waited > 0 for op in calls)
    assert m.loops == []
    assert m.unfinished == []


# *** runs ***


def test_without_a_trace_the_run_is_the_usual_one() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
        y = x * 2.0
    for engine, told in (("auto", "compiled"), ("interpret", "interpret")):
        m = hr.RunMetadata()
        with hr.Session(graph=g, engine=engine) as s:
            assert s.run(y, {x: 3.0}, run_metadata=m) == 6.0
            assert (m.engine, m.step_id, m.ops, m.error) == (told, None, [], "")
            assert m.seconds > 0
            assert s.run(y, {x: 3.0}, hr.RunOptions(listener=lambda e: None), m) == 6.0
            assert (m.engine, m.ops) == ("interpret", [])


def test_each_run_fills_it_anew() -> None:
    b = builder()
    p = b.Placeholder(dtype="int32", shape=())
    loop, i = counting(b, p)
    m = hr.RunMetadata()
    with session(b) as s:
        run = s.make_callable(loop.exit(i), [p], accept_options=True)
        for trips in (5, 2):
            assert run(trips, options=FULL, run_metadata=m) == trips
            assert m.loops[0].trips == trips
            assert op_of(m, "AddV2").calls == trips
        run(1, run_metadata=m)
        assert m.loops == []
        assert m.engine
        with pytest.raises(TypeError, match="accept_options"):
            s.make_callable(loop.exit(i), [p])(1, run_metadata=m)


@pytest.mark.parametrize("level", [hr.RunOptions.SOFTWARE_TRACE, hr.RunOptions.HARDWARE_TRACE])
def test_all_levels_are_one(level: int) -> None:
    b = builder()
    m = hr.RunMetadata()
    with session(b) as s:
        s.run(b.Neg(b.const(1)), options=hr.RunOptions(trace_level=level), run_metadata=m)
    assert op_of(m, "Neg").calls == 1


def test_what_cannot_be_used_is_said() -> None:
    b = builder()
    x = b.Neg(b.const(1))
    with session(b) as s:
        with pytest.raises(ValueError, match=r"trace_level must be one of RunOptions' .*, got 4"):
            s.run(x, options=hr.RunOptions(trace_level=4), run_metadata=hr.RunMetadata())
        with pytest.raises(TypeError, match=r"run_metadata must be a RunMetadata, got \{\}"):
            s.run(x, run_metadata={})  # type: ignore[arg-type]
        assert s.run(x, options=FULL) == -1  # nothing to fill


def test_a_run_that_fails_tells_how_far_it_came() -> None:
    b = builder()
    p = b.Placeholder(dtype="int32", shape=())
    m = hr.RunMetadata()
    with session(b) as s, pytest.raises(InvalidArgumentError):
        s.run(b.FloorDiv(b.const(1), p, name="bad"), {p: 0}, FULL, m)
    assert "division by zero" in m.error
    assert m.unfinished == ["bad"]
    assert m.engine == "interpret"
    assert "failed" in str(m)
    assert "begun and not ended: bad" in str(m)


def test_a_loop_that_fails_tells_its_iteration(custom: None) -> None:
    b = builder()
    loop, i = counting(b, 10, parallel_iterations=2)

    def at_most_three(ctx: Any, x: Any) -> Any:
        if x > 3:
            raise ValueError("too far")
        return x

    checked = call(b, "Stateful", at_most_three, [loop.body(i)], name="check")
    m = hr.RunMetadata()
    with session(b) as s, pytest.raises(Exception, match="too far"):
        s.run([loop.exit(i), checked.op], options=FULL, run_metadata=m)
    assert m.unfinished == ["check in count#4"]
    assert op_of(m, "check").calls == 4
    assert 4 <= m.loops[0].trips <= 5


def test_a_dead_fetch_and_a_run_that_waits(custom: None) -> None:
    b = builder()
    m = hr.RunMetadata()
    gone = b.Identity(dead(b), name="gone")
    stop = call(b, "Async", lambda ctx, done: None, name="stop")
    with session(b) as s:
        with pytest.raises(InvalidArgumentError):
            s.run(gone, options=FULL, run_metadata=m)
        assert m.error
        assert op_of(m, "gone").dead == 1
        with pytest.raises(DeadlineExceededError):
            s.run(stop, options=dataclasses.replace(FULL, timeout_in_ms=30), run_metadata=m)
        assert m.unfinished == ["stop"]


def test_with_a_listener_of_ones_own() -> None:
    class Values(Sizes):
        wants_sizes = False
        wants_values = True

    b = builder()
    x = b.Neg(b.const(1), name="x")
    heard, m = Values(), hr.RunMetadata()
    with session(b) as s:
        s.run(x, options=dataclasses.replace(FULL, listener=heard), run_metadata=m)
    (end,) = [e for e in heard.events if isinstance(e, step_events.NodeEnd) and e.node == "x"]
    assert end.values == (-1,)
    assert end.sizes == (4,)
    assert op_of(m, "x").bytes == 4
    plain = Values()
    with session(b) as s:
        s.run(x, options=hr.RunOptions(listener=plain))
    assert {e.sizes for e in plain.events if isinstance(e, step_events.NodeEnd)} == {None}


# *** devices ***


@pytest.mark.one_engine
def test_several_devices() -> None:
    g, x, fetches = pipeline(trips=12, parallel=4)
    m, heard = hr.RunMetadata(), Sizes()
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        s.run(fetches, {x: AT}, dataclasses.replace(FULL, listener=heard), m)
    assert [d.name for d in m.devices] == [CPU + "0", CPU + "1"]
    assert [d.device for d in m.step_stats.dev_stats] == [CPU + "0", CPU + "1"]
    loop = loop_of(m, "while")
    assert (loop.trips, loop.entered, loop.dead, loop.parallel_iterations) == (12, 1, 0, 4)
    assert loop.devices == [CPU + "0", CPU + "1"]
    assert 1 < loop.most_in_flight <= 4
    assert [op.device for op in m.ops if op.name == "while/Cos"] == [CPU + "1"]
    sent: Any = collections.Counter()
    for e in heard.events:
        if isinstance(e, step_events.TokenSent):
            sent[e.device, e.to, "dead" if e.dead else "live"] += 1
            sent[e.device, e.to, "bytes"] += e.size
    assert len(m.sent) == 2
    for t in m.sent:
        about = t.source, t.to
        assert (t.tokens, t.dead, t.bytes) == (sent[*about, "live"], sent[*about, "dead"], sent[*about, "bytes"])
        assert t.bytes >= 12 * AT.nbytes
    received = [e for e in heard.events if isinstance(e, step_events.TokenReceived)]
    assert sum(e.size for e in received) == sum(t.bytes for t in m.sent)
    ends = [e for e in heard.events if isinstance(e, step_events.NodeEnd)]
    assert m.calls + m.dead == len(ends)
    assert sum(op.seconds for op in m.ops) + sum(d.dead_seconds for d in m.devices) == pytest.approx(
        sum(d.busy + d.streams.get("compute", 0.0) for d in m.devices)
    )
    assert "CPU:0 to CPU:1" in str(m)


# *** as text and data ***


def test_as_text_and_data() -> None:
    b = builder()
    loop, i = counting(b, 7)
    m = hr.RunMetadata()
    assert str(m) == "no run yet"
    with session(b) as s:
        s.run(loop.exit(i), run_metadata=m)
        assert "no trace" in str(m)
        s.run(loop.exit(i), options=FULL, run_metadata=m)
    text = str(m)
    assert "interpreted" in text
    assert "(AddV2)" in text
    (line,) = [x for x in text.splitlines() if x.endswith("  count")]
    assert line.split()[:3] == ["7", "1", "7"]
    data = json.loads(m.to_json())
    assert data["loops"][0]["trips"] == 7
    assert {op["name"]: op["calls"] for op in data["ops"]}["AddV2"] == 7
    assert "step_stats" not in data
    (device,) = json.loads(m.to_json(step_stats=True))["step_stats"]["dev_stats"]
    assert len(device["node_stats"]) == m.calls == data["calls"]


def test_tensorflows_records() -> None:
    """Fields that programs written for TensorFlow read."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, [4])
        y = tf.sqrt(x, name="root")
    m = tf.RunMetadata()
    before = time.time() * 1e6
    with tf.Session(graph=graph) as s:
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        s.run(y, {x: [1.0, 4.0, 9.0, 16.0]}, options=options, run_metadata=m)
    after = time.time() * 1e6
    (device,) = m.step_stats.dev_stats
    assert device.device == CPU + "0"
    (node,) = [n for n in device.node_stats if n.node_name == "root"]
    assert before - 1e4 <= node.all_start_micros <= after + 1e4  # two clocks
    assert 0 <= node.op_start_rel_micros <= node.op_end_rel_micros <= node.all_end_rel_micros
    assert node.memory[0].total_bytes == 16
    assert node.output[0].tensor_description.allocation_description.requested_bytes == 16
    assert node.timeline_label == "root = Sqrt()"
    assert node.all_start_nanos // 1000 == node.all_start_micros
