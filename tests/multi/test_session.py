"""Sessions with several devices: threads, errors, cancelling, what may be shared, what a trace shows."""

from __future__ import annotations

import gc
import json
import os
import pathlib
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, step_events
from headrace.api import scopes
from headrace.errors import CancelledError, DeadlineExceededError, InternalError, InvalidArgumentError
from headrace.execute.devices import Stream, make_devices
from headrace.execute.executor import Executor
from headrace.execute.parts import Parts
from tests.execute.clocks import ManualClock
from tests.inside import environment_of, step_of, use_clock
from tests.multi.seeded import CPU
from tests.session.helpers import call, custom_ops

pytestmark = pytest.mark.one_engine


@pytest.fixture
def custom() -> Iterator[None]:
    with custom_ops():
        yield


def on(i: int) -> Any:
    return hr.device(f"/device:CPU:{i}")


def pipeline(trips: int = 20, parallel: int = 10) -> tuple[hr.Graph, Any, list[Any]]:
    """A loop whose counter is on device 0.

    The two halves of its body are on devices 0 and 1.
    """
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, (3,))

        def body(i: Any, y: Any) -> Any:
            with on(0):
                first = hr.sin(y)
                i = i + 1
            with on(1):
                return i, hr.cos(first) * 2.0

        i, y = hr.while_loop(lambda i, y: i < trips, body, [hr.constant(0), x], parallel_iterations=parallel)
        fetches = [i, y, hr.gradients(y, [x])[0]]
    return g, x, fetches


AT = np.array([0.1, 0.7, 2.0])


@pytest.mark.matrix
def test_a_loop_over_two_devices() -> None:
    g, x, fetches = pipeline()
    with hr.Session(graph=g, engine="interpret") as s:
        want = s.run(fetches, {x: AT})
    for engine in ("auto", "interpret"):
        with hr.Session(graph=g, devices={"CPU": 2}, engine=engine) as s:
            for _ in range(20):
                for a, b in zip(s.run(fetches, {x: AT}), want, strict=True):
                    np.testing.assert_array_equal(a, b)
            assert set(step_of(s, fetches, {x: AT}).general.placement.of.values()) == {CPU + "0", CPU + "1"}


def test_what_is_on_one_device_is_compiled() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
        y = x * 2.0 + 1.0
    with hr.Session(graph=g, engine="auto", devices={"CPU": 4}) as s:
        assert s.run(y, {x: 3.0}) == 7.0
        assert s.explain(y, [x]).engine == "compiled"


def test_compiled_alone_is_refused() -> None:
    g, x, fetches = pipeline()
    with (
        hr.Session(graph=g, devices={"CPU": 2}, engine="compiled") as s,
        pytest.raises(InvalidArgumentError, match="cannot be compiled: it runs on 2 devices"),
    ):
        s.run(fetches, {x: AT})


def test_devices_are_listed() -> None:
    with hr.Session(graph=hr.Graph(), devices={"CPU": 3}) as s:
        assert [d.name for d in s.list_devices()] == [f"{CPU}{i}" for i in range(3)]
        assert {d.device_type for d in s.list_devices()} == {"CPU"}
    with hr.Session(graph=hr.Graph(), config={"device_count": {"CPU": 2}}) as s:
        assert len(s.list_devices()) == 2


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        ({"CPU": 0}, "'CPU': 0.*expected the number"),
        ({"CPU": "two"}, "'CPU': 'two'"),
        ({"CPU": True}, "'CPU': True"),
        ({"TPU": 1}, "no device type 'TPU' is registered; the registered types are CPU"),
    ],
)
def test_devices_that_cannot_be(devices: Any, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        hr.Session(graph=hr.Graph(), devices=devices)


def test_placement_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    g, x, fetches = pipeline()
    with hr.Session(graph=g, devices={"CPU": 2}, config={"log_device_placement": True}) as s:
        s.run(fetches, {x: AT})
        s.run(fetches, {x: AT})
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count(f": (Sin): {CPU}0") == 1


def test_what_is_colocated_with_something_the_step_does_not_need() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
        with on(1):
            far = hr.sin(x, name="far")
        with on(0):
            y = x * 2.0
        with hr.colocate_with(far):
            z = y + 1.0
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        assert s.run(z, {x: 1.0}) == 3.0
        of = {op.name: d for op, d in step_of(s, z, {x: 1.0}).general.placement.of.items()}
        assert of[z.op.name] == CPU + "1"


def test_what_a_loop_keeps_stays_where_it_is_made() -> None:
    """Lists of values that the gradient needs do not cross between devices.

    The values do, where another device needs them.
    """
    with hr.Graph() as g, on(0):
        x = hr.placeholder(hr.float64, (3,))

        def body(i: Any, y: Any) -> Any:
            with on(1):
                z = hr.tanh(y)
            with on(0):
                return i + 1, hr.exp(-z * z)

        _, y = hr.while_loop(lambda i, y: i < 5, body, [hr.constant(0), x])
        d = hr.gradients(y, [x])[0]
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        s.run(d, {x: AT})
        plans = step_of(s, d, {x: AT}).observed.plans
    sent = [n.op for plan in plans.values() for n in plan.nodes if n.op.type == "_Send"]
    assert len(sent) > 5
    assert hr.dtypes.variant not in {op.attrs["T"] for op in sent}
    pushes = [n.op for n in plans[CPU + "1"].nodes if n.op.type == "TensorListPushBack"]
    assert pushes


def test_bfloat16_on_the_wire() -> None:
    """A value that crosses has the precision of bfloat16, another that of float32."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
        with on(0):
            y = x + 0.0
            here = y * 1.0
        with on(1):
            there = y * 1.0
    third = np.float32(1 / 3)
    for narrow in (False, True):
        with hr.Session(graph=g, devices={"CPU": 2}, config={"enable_bfloat16_sendrecv": narrow}) as s:
            a, b = s.run([here, there], {x: third})
        assert a == third
        assert (b == third) is np.bool_(not narrow)
        assert abs(b - third) < 0.002


def test_a_recv_is_held_back_until_it_is_needed(custom: None) -> None:
    """Only the last of three long operations needs a value of another device."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.int32, ())
        with on(1):
            y = x + 1
        with on(0):
            first = call(scopes.builder(), "Heavy", lambda v: v + 1, [x], scalar=True, name="first")
            second = call(scopes.builder(), "Heavy", lambda v: v + 1, [first], scalar=True, name="second")
            third = call(scopes.builder(), "Heavy", lambda v, w: v * w, [second, y], scalar=True, name="third")
    for held in (True, False):
        with hr.Session(graph=g, devices={"CPU": 2}, config={"enable_recv_scheduling": held}) as s:
            part = step_of(s, third, {x: 3}).general.plans[CPU + "0"]
            (recv,) = [n.op for n in part.nodes if n.op.type == "_Recv"]
            assert bool(recv.control_inputs) is held
            assert s.run(third, {x: 3}) == 20


def test_variables_stay_where_they_were_first() -> None:
    with hr.Graph() as g:
        with on(1):
            v = hr.Variable(np.zeros(4), name="v")
        v.assign_add(np.ones(4))
        with on(0):
            y = v.read_value() * 2.0
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        s.run(v.initializer)
        np.testing.assert_array_equal(s.run(y), np.full(4, 2.0))  # the addition comes before the read
        step = step_of(s, y, {}).general
        assert step.is_divided
        assert {d for op, d in step.placement.of.items() if op.name == "v"} == {CPU + "1"}
        assert environment_of(s).home("v") == CPU + "1"


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_state_counts_on_its_device_also_where_a_step_has_no_other(engine: str) -> None:
    with hr.Graph() as g:
        with on(1):
            v = hr.Variable(np.zeros(1000), name="v")
        with on(0):
            y = hr.reduce_sum(v.read_value())
    with hr.Session(graph=g, devices={"CPU": 2}, memory_limit=10**6, engine=engine) as s:
        s.run(v.initializer)
        assert not step_of(s, v.initializer, {}).general.is_divided
        assert {name: m.held for name, m in s.statistics().memory.items()} == {CPU + "0": 0, CPU + "1": 8000}
        assert s.run(y) == 0.0
        assert s.run([]) == []
        assert s.statistics().memory[CPU + "0"].held == 0


def test_partial_runs() -> None:
    with hr.Graph() as g:
        x, z = hr.placeholder(hr.float32, ()), hr.placeholder(hr.float32, ())
        with on(1):
            y = x * 2.0
        with on(0):
            w = y + z
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        h = s.partial_run_setup([y, w], [x, z])
        assert s.partial_run(h, y, {x: 3.0}) == 6.0
        assert s.partial_run(h, w, {z: 1.0}) == 7.0


def test_threads_share_a_session() -> None:
    g, x, fetches = pipeline(trips=5)
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        want = s.run(fetches, {x: AT})
        wrong: list[Any] = []

        def work() -> None:
            for _ in range(10):
                got = s.run(fetches, {x: AT})
                wrong.extend((a, b) for a, b in zip(got, want, strict=True) if not np.array_equal(a, b))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(30)
        assert not any(t.is_alive() for t in threads)
        assert wrong == []


def test_steps_that_wait_for_each_other(custom: None) -> None:
    """A step that waits for a queue does not occupy its device.

    The step that fills the queue runs there meanwhile.
    """
    with hr.Graph() as g:
        with on(0):
            b = scopes.builder()
            q = b.FIFOQueueV2(component_types=[hr.int32], shapes=[()])
            x = b.QueueDequeueV2(q, component_types=[hr.int32])
            put = b.QueueEnqueueV2(q, [hr.constant(7)])
        with on(1):
            y = x + 1
    clock = ManualClock()
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        use_clock(s, clock)
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(s.run(y)))
        thread.start()
        assert clock.waiting.wait(20)
        s.run(put)
        thread.join(20)
        assert got == [8]


# *** errors ***


def test_a_device_fails_in_a_loop(custom: None) -> None:
    """The step ends everywhere, once, with that error, and the session goes on."""
    heard: list[str] = []
    with hr.Graph() as g:
        b = scopes.builder()
        x = hr.placeholder(hr.int32, ())

        def fail(i: Any) -> Any:
            if i == 5:
                heard.append("failed")
                raise InvalidArgumentError("the disk is full")
            return i

        def body(i: Any) -> Any:
            with on(1):
                j = call(scopes.builder(), "Pure", fail, [i], scalar=True, name="bad")
            with on(0):
                return j + 1

        y = hr.while_loop(lambda i: i < x, body, [hr.constant(0)])
    del b
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        for _ in range(5):
            heard.clear()
            with pytest.raises(InvalidArgumentError, match="the disk is full") as e:
                s.run(y, {x: 10})
            assert heard == ["failed"]
            assert any("while/bad'" in n and "iteration 5" in n for n in getattr(e.value, "__notes__", [])) or (
                "iteration 5" in str(e.value)
            )
            assert s.run(y, {x: 5}) == [5]
        assert not s.statistics().active


def test_a_deadline(custom: None) -> None:
    """Nothing comes for the queue on one device; the other waits for that device."""
    with hr.Graph() as g:
        with on(0):
            b = scopes.builder()
            q = b.FIFOQueueV2(component_types=[hr.int32], shapes=[()])
            x = b.QueueDequeueV2(q, component_types=[hr.int32], name="take")
        with on(1):
            y = x + 1
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        with pytest.raises(DeadlineExceededError, match="'take'"):
            s.run(y, timeout_ms=50)
        use_clock(s, ManualClock(expires=True))
        with pytest.raises(DeadlineExceededError, match=r"has waited 600 s without any progress; it waits for\n"):
            s.run(y)


def test_closing_cancels() -> None:
    with hr.Graph() as g:
        with on(0):
            b = scopes.builder()
            q = b.FIFOQueueV2(component_types=[hr.int32], shapes=[()])
            x = b.QueueDequeueV2(q, component_types=[hr.int32])
        with on(1):
            y = x + 1
    clock = ManualClock()
    s = hr.Session(graph=g, devices={"CPU": 2})
    use_clock(s, clock)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            s.run(y)
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=work)
    thread.start()
    assert clock.waiting.wait(20)
    assert s.statistics().active
    s.close()
    thread.join(20)
    assert [type(e) for e in errors] == [CancelledError]


def test_ctrl_c() -> None:
    """The step ends, its waits are cancelled, and the session goes on."""
    with hr.Graph() as g:
        with on(0):
            b = scopes.builder()
            q = b.FIFOQueueV2(component_types=[hr.int32], shapes=[()])
            x = b.QueueDequeueV2(q, component_types=[hr.int32])
            put = b.QueueEnqueueV2(q, [hr.constant(7)])
        with on(1):
            y = x + 1
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            s.run(y, timeout_ms=20_000)
        timer.join()
        assert not s.statistics().active
        s.run(put)
        assert s.run(y) == 8  # no other receiver took it


def test_no_device_can_go_on() -> None:
    """A step with a Recv without its Send fails at once.

    The error names the nodes that wait and the tokens that they wait for.
    """
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, (3,))
        with on(0):
            y = hr.sin(x)
        with on(1):
            z = hr.cos(y)
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        step = step_of(s, z, {x: AT}).general
        parts = step.program.start(s._step(step, hr.RunOptions(), None))
        assert isinstance(parts, Parts)
        parts.feed(0, AT)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Executor, "_send", lambda *args: None)
            with pytest.raises(InternalError, match="every device waits for another") as e:
                parts.run()
        assert "'Sin:0 -> CPU_1': awaited, not sent" in str(e.value)
        assert "'Sin/from_CPU_0' (_Recv)" in str(e.value)


def test_a_step_leaves_nothing_behind(custom: None) -> None:
    """Values of a step are freed at its end, without a garbage collection."""
    alive: list[Any] = []

    def make(x: Any) -> Any:
        out = np.full(1000, x)
        alive.append(weakref.ref(out))
        return out

    with hr.Graph() as g:
        x = hr.placeholder(hr.int32, ())
        with on(1):
            y = call(scopes.builder(), "Pure", make, [x])
        with on(0):
            z = hr.reduce_sum(y * 2)
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        assert s.run(z, {x: 1}) == 2000
        gc.collect()
        gc.disable()
        try:
            alive.clear()
            for _ in range(3):
                assert s.run(z, {x: 1}) == 2000
            assert [r() for r in alive] == [None] * 3
        finally:
            gc.enable()


# *** buffers shared by devices ***


class Values:
    wants_values = True

    def __init__(self) -> None:
        self.events: list[Any] = []

    def __call__(self, event: Any) -> None:
        self.events.append(event)


def test_no_buffer_is_reachable_from_two_devices() -> None:
    """Kernels on different devices share no memory, Sends aside.

    This holds for their arguments, their results and the values that they hold.
    """
    big = np.arange(20_000.0)
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, (20_000,))
        with on(0):
            v = hr.Variable(big, name="v")
            c = hr.constant(np.ones(1000))

        def body(i: Any, y: Any) -> Any:
            with on(0):
                first = y * v.read_value() + x
                part = first[:1000] + c
            with on(1):
                return i + 1, hr.cos(first) + hr.reduce_sum(part * c)

        i, y = hr.while_loop(lambda i, y: i < 3, body, [hr.constant(0), x])
        fetches = [i, y, hr.gradients(y, [x])[0]]
    heard = Values()
    with flags.override(VERIFY=2), hr.Session(graph=g, devices={"CPU": 2}) as s:
        s.run(v.initializer)
        s.run(fetches, {x: big}, hr.RunOptions(listener=heard))
    seen: dict[str, dict[int, str]] = {}
    for e in heard.events:
        if isinstance(e, step_events.NodeEnd):
            for value in e.values or ():
                if isinstance(value, np.ndarray) and value.size:
                    base = value
                    while isinstance(base.base, np.ndarray):
                        base = base.base
                    seen.setdefault(e.device, {})[base.__array_interface__["data"][0]] = e.node
    assert len(seen) == 2
    a, b = seen.values()
    assert not {(a[k], b[k]) for k in a.keys() & b.keys()}


# *** the trace ***


def test_the_trace_has_lanes_and_arrows(tmp_path: pathlib.Path) -> None:
    g, x, fetches = pipeline()
    events: list[Any] = []
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        s.run(fetches, {x: AT}, hr.RunOptions(listener=events.append))
    step_events.write_chrome(events, str(tmp_path / "t.json"))
    drawn = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    groups = {e["args"]["name"] for e in drawn if e["name"] == "process_name"}
    assert groups == {CPU + "0", CPU + "1"}
    starts = {e["id"]: e for e in drawn if e["ph"] == "s"}
    ends = {e["id"]: e for e in drawn if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) > 60
    assert all(starts[i]["pid"] != ends[i]["pid"] for i in starts)
    assert all(starts[i]["ts"] <= ends[i]["ts"] for i in starts)
    bars = [e for e in drawn if e["ph"] == "X"]
    for end in [*starts.values(), *ends.values()]:  # an arrow's end lies in a bar of its row
        assert any(
            b["pid"] == end["pid"] and b["tid"] == end["tid"] and b["ts"] <= end["ts"] <= b["ts"] + b["dur"]
            for b in bars
        )


def test_iterations_in_flight_have_rows() -> None:
    g, x, fetches = pipeline(trips=12, parallel=4)
    events: list[Any] = []
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        s.run(fetches[:2], {x: AT}, hr.RunOptions(listener=events.append))
    rows: dict[int, set[int]] = {}
    for e in step_events.chrome_events(events):
        if e["name"] == "thread_name" and e["args"]["name"].startswith("open iteration"):
            rows.setdefault(e["pid"], set()).add(int(e["args"]["name"].split(",")[0].split()[-1]))
    assert rows
    assert all(len(r) <= 1 + 4 for r in rows.values())  # the root, and as many iterations as may be open


# *** streams ***


def test_a_stream_keeps_order() -> None:
    stream = Stream("test")
    done: list[int] = []
    for i in range(50):
        stream.submit(lambda i=i: done.append(i))
    stream.wait()
    assert done == list(range(50))
    stream.close()


def test_heavy_kernels_of_one_device_do_not_overlap(custom: None) -> None:
    running, most = 0, 0
    lock = threading.Lock()

    def heavy(x: Any) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1
        return x

    with hr.Graph() as g:
        b = scopes.builder()
        x = hr.placeholder(hr.int32, ())
        with on(0):
            ys = [call(scopes.builder(), "Heavy", heavy, [x], scalar=True) for _ in range(4)]
        with on(1):
            z = x + 1
    del b
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        assert s.run([*ys, z], {x: 3}) == [3, 3, 3, 3, 4]
    assert most == 1


def test_a_slow_function_does_not_keep_the_other_device(custom: None) -> None:
    """A node runs while the thread that made it ready is in a slow kernel.

    The node is on another device.
    """
    begun, ended = threading.Event(), threading.Event()

    def slow(ctx: Any, x: Any) -> Any:
        begun.set()
        assert ended.wait(20), "the other device waits for this one"
        return x

    def quick(ctx: Any, x: Any) -> Any:
        assert begun.wait(20)
        ended.set()
        return x

    with hr.Graph() as g:
        x = hr.placeholder(hr.int32, ())
        with on(0):
            first = x + 1
            a = call(scopes.builder(), "Stateful", slow, [first], scalar=True)
        with on(1):
            b = call(scopes.builder(), "Stateful", quick, [first * 2], scalar=True)
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        for _ in range(5):
            begun.clear()
            ended.clear()
            assert s.run([a, b], {x: 3}) == [4, 8]


def test_devices_close() -> None:
    devices = make_devices({"CPU": 2})
    d = devices[CPU + "1"]
    ran = threading.Event()
    d.run(ran.set)
    assert ran.wait(10)
    d.close()
    d.close()
