"""Steps over workers without sockets, in many orders: their results are those of one device."""

from __future__ import annotations

import contextlib
import gc
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, thresholds
from headrace.api import scopes
from headrace.dist.client import RemoteRun
from headrace.dist.share_run import ShareRun
from headrace.dist.worker_run import PartsRun
from headrace.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    OutOfRangeError,
    UnavailableError,
)
from headrace.ir.builder import Builder
from tests.dist.memory import MemoryCluster

pytestmark = [pytest.mark.system, pytest.mark.one_engine, pytest.mark.timeout(120)]

SEEDS = range(4)
LIMIT = {"operation_timeout_in_ms": 20_000}
# the first error wins: that of the master, or that of a worker which sends tokens to the lost one
LOST = "worker {} (was lost|has ended|is not connected)"
INT = hr.TensorSpec((), hr.int32)


def on(i: int) -> Any:
    return hr.device(f"/job:worker/task:{i}/device:CPU:0")


@contextlib.contextmanager
def cluster(seed: int, workers: int = 2, devices: int = 1) -> Iterator[MemoryCluster]:
    """A cluster, which has no step left when the test is over."""
    made = MemoryCluster(workers, devices, seed)
    try:
        yield made
        made.settle(lambda: not made.left())
    finally:
        made.close()


def session(target: Any, graph: hr.Graph) -> hr.Session:
    return hr.Session(target, graph=graph, config=LIMIT)


# *** programs ***


def conditional() -> Any:
    x, p = hr.placeholder(hr.float32, (2,)), hr.placeholder(hr.bool, ())

    def left() -> Any:
        with on(0):
            y = x * 2.0
        with on(1):
            return y + 1.0

    def right() -> Any:
        with on(1):
            y = hr.sin(x)
        with on(0):
            return y - 1.0

    y = hr.cond(p, left, right)
    with on(1):
        z = y * y
    at = np.float32([0.5, -2.0])
    return [y, z], [{x: at, p: True}, {x: at, p: False}]


def nested_loops() -> Any:
    n = hr.placeholder(hr.int32, ())

    def outer(i: Any, s: Any) -> Any:
        def inner(j: Any, t: Any) -> Any:
            with on(0):
                t = t + i * j
            with on(1):
                return j + 1, t + 1

        with on(1):
            s = s + 1
        _, s = hr.while_loop(lambda j, t: j < i, inner, [hr.constant(0), s])
        with on(0):
            return i + 1, s

    return list(hr.while_loop(lambda i, s: i < n, outer, [hr.constant(0), hr.constant(0)])), [{n: 5}, {n: 0}]


def gradients() -> Any:
    x = hr.placeholder(hr.float64, (3,))

    def body(i: Any, y: Any) -> Any:
        with on(0):
            first = hr.sin(y)
            i = i + 1
        with on(1):
            return i, hr.cos(first) * 2.0

    _, y = hr.while_loop(lambda i, y: i < 4, body, [hr.constant(0), x])
    return [y, *hr.gradients(y, [x])], [{x: np.array([0.1, 0.7, 2.0])}]


def tensor_arrays() -> Any:
    x = hr.placeholder(hr.float32, (4,))
    with on(0):
        source = hr.TensorArray(hr.float32, size=4, element_shape=()).unstack(x)
        result = hr.TensorArray(hr.float32, size=4, element_shape=())

    def body(i: Any, out: Any) -> Any:
        with on(1):
            y = source.read(i) * 3.0
        with on(0):
            return i + 1, out.write(i, y)

    _, result = hr.while_loop(lambda i, out: i < 4, body, [hr.constant(0), result])
    with on(1):
        y = result.stack()
    return [y, hr.gradients(y, [x])[0]], [{x: np.float32([1, 2, 3, 4])}]


def recursion() -> Any:
    n = hr.placeholder(hr.int32, ())

    def fn(k: Any) -> Any:
        def more() -> Any:
            with on(1):
                a = fib(k - 1)
            with on(0):
                b = fib(k - 2)
            return a + b

        return hr.cond(k < 2, lambda: k, more)

    fib = hr.Function(fn, results=INT, name="fib")
    with on(0):
        y = fib(n)
    with on(1):
        return [y * 2], [{n: 8}, {n: 1}]


def unused_branch() -> Any:
    """A fetch that is alive, while dead tokens cross."""
    p = hr.placeholder(hr.bool, ())
    with on(0):
        x = hr.constant(3) * 2

    def taken() -> Any:
        with on(1):
            return x + 1

    def other() -> Any:
        with on(0):
            a = x - 1
        with on(1):
            return a * a

    return [hr.cond(p, taken, other)], [{p: True}, {p: False}]


def queues() -> Any:
    """One worker fills a queue, which another one reads in the same step."""
    with on(0):
        b = scopes.builder()
        q = b.FIFOQueueV2(component_types=[hr.int32], shapes=[()], shared_name="numbers")
        put = [b.QueueEnqueueV2(q, [hr.constant(k)], Tcomponents=[hr.int32]) for k in (3, 4)]
    with on(1):
        total = hr.constant(0)
        for _ in put:
            total = total + b.QueueDequeueV2(q, component_types=[hr.int32])
        total = total * 10
    return [total, *put], [{}]


PROGRAMS: dict[str, Callable[[], Any]] = {
    f.__name__: f for f in (conditional, nested_loops, gradients, tensor_arrays, recursion, unused_branch, queues)
}


@pytest.mark.parametrize("optimize", ["on", "off"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_the_results_of_one_device(name: str, optimize: str) -> None:
    with hr.Graph() as g:
        fetches, feeds = PROGRAMS[name]()
    with session("", g) as s:
        want = [s.run(fetches, feed) for feed in feeds]
    for seed in SEEDS:
        with flags.override(OPTIMIZE=optimize), cluster(seed, devices=1 + seed % 2) as c, session(c, g) as s:
            for _ in range(2):
                for feed, values in zip(feeds, want, strict=True):
                    for a, b in zip(s.run(fetches, feed), values, strict=True):
                        assert (a is None) == (b is None)
                        if a is not None:
                            np.testing.assert_allclose(a, b, rtol=1e-6, err_msg=f"{name}, seed {seed}")


# *** state ***


@pytest.mark.parametrize("seed", SEEDS)
def test_variables_live_on_their_workers_for_all_sessions(seed: int) -> None:
    with hr.Graph() as g:
        with on(0):
            a = hr.Variable(np.float32(1.0), name="a")
        with on(1):
            b = hr.Variable(np.float32(2.0), name="b")
        with on(0):
            add = a.assign_add(b.read_value())
        with on(1):
            total = a.read_value() + b.read_value()
    with cluster(seed) as c, session(c, g) as s, session(c, g) as other:
        s.run([a.initializer, b.initializer])
        assert [s.run(add) for _ in range(3)] == [3.0, 5.0, 7.0]
        assert other.run(total) == 11.0  # the addition comes before the read
        resources = [[r[2] for r in w.target.statistics().resources] for w in c.workers.values()]
        assert resources == [["a"], ["b"]]
        s.clear_container()
        assert not any(w.target.statistics().resources for w in c.workers.values())
        with pytest.raises(hr.errors.FailedPreconditionError):
            other.run(total)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_session_finds_variables_where_another_one_has_placed_them(seed: int) -> None:
    with hr.Graph() as g:
        with on(1):
            start = hr.random.normal((100, 100), seed=1)
        v = hr.Variable(start, name="v")  # next to its initial value
        y = hr.reduce_sum(v.read_value())
        z = hr.reduce_max(v.read_value())
    with cluster(seed) as c, session(c, g) as s, session(c, g) as other:
        s.run(v.initializer)
        other.run(v.initializer)  # the program of the first session
        assert np.isfinite(other.run(y))
        assert np.isfinite(s.run(z))


@pytest.mark.parametrize("seed", SEEDS)
def test_sessions_with_a_common_program_have_random_streams_of_their_own(seed: int) -> None:
    with hr.Graph() as g:
        with on(0):
            x = hr.random.uniform((), seed=7)
        with on(1):
            y = x * 1.0
    with session("", g) as s:
        want = [s.run(y) for _ in range(4)]
    with cluster(seed) as c, session(c, g) as s:
        with session(c, g) as other:
            assert [s.run(y), other.run(y), s.run(y), other.run(y)] == [want[0], want[0], want[1], want[1]]
        assert [s.run(y), s.run(y)] == want[2:], "closing a session does not rewind the stream of another one"


@pytest.mark.parametrize("seed", SEEDS)
def test_two_sessions_in_two_threads_exchange_values_by_queues(seed: int) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.int32, ())
        with on(0):
            b = scopes.builder()
            there = b.FIFOQueueV2(component_types=[hr.int32], shapes=[()], shared_name="there")
        with on(1):
            b = scopes.builder()
            back = b.FIFOQueueV2(component_types=[hr.int32], shapes=[()], shared_name="back")
            doubled = x * 2
            got = b.QueueDequeueV2(back, component_types=[hr.int32])
        with on(0):
            b = scopes.builder()
            put = b.QueueEnqueueV2(there, [doubled], Tcomponents=[hr.int32])
            taken = b.QueueDequeueV2(there, component_types=[hr.int32]) + 1
        with on(1):
            serve = scopes.builder().QueueEnqueueV2(back, [taken], Tcomponents=[hr.int32])
    with cluster(seed) as c, session(c, g) as s, session(c, g) as other:
        errors: list[BaseException] = []

        def work() -> None:
            try:
                for _ in range(5):
                    other.run(serve)
            except BaseException as e:
                errors.append(e)

        thread = threading.Thread(target=work)
        thread.start()
        found = []
        for k in range(5):
            s.run(put, {x: k})
            found.append(s.run(got))
        thread.join(20)
        assert not thread.is_alive()
        assert (found, errors) == ([1, 3, 5, 7, 9], [])


@pytest.mark.parametrize("seed", SEEDS)
def test_two_clients_run_steps_at_once(seed: int) -> None:
    with hr.Graph() as g:
        fetches, (feed, _) = nested_loops()
    with session("", g) as s:
        want = s.run(fetches, feed)
    wrong: list[Any] = []
    with cluster(seed) as c:

        def work() -> None:
            try:
                with session(c, g) as mine:
                    wrong.extend(got for _ in range(5) if (got := mine.run(fetches, feed)) != want)
            except BaseException as e:
                wrong.append(e)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(30)
        assert wrong == []
        assert c.call(lambda: c.master._state.description())["programs"] == 0
        assert all(w.description()["programs"] == 0 for w in c.workers.values())


# *** errors ***


def failing_loop() -> Any:
    n = hr.placeholder(hr.int32, ())
    with on(0):
        data = hr.constant([1, 2, 3])

    def body(i: Any, s: Any) -> Any:
        with on(1):
            x = hr.gather(data, i, name="read")
        with on(0):
            return i + 1, s + x

    return list(hr.while_loop(lambda i, s: i < n, body, [hr.constant(0), hr.constant(0)], name="sum")), {n: 5}


def dead_fetch() -> Any:
    p = hr.placeholder(hr.bool, (), name="p")
    with on(0):
        b = scopes.builder()
        gone, _ = b.Switch(hr.constant(1), p, name="decide")
    with on(1):
        b = scopes.builder()
        return [b.Neg(gone, name="after"), hr.constant(3)], {p: True}


def empty_queue() -> Any:
    with on(1):
        b = scopes.builder()
        q = b.FIFOQueueV2(component_types=[hr.int32], shapes=[()], shared_name="closed")
        close = b.QueueCloseV2(q)
        with hr.control_dependencies([close]):
            x = scopes.builder().QueueDequeueV2(q, component_types=[hr.int32], name="take")
    with on(0):
        return [x + 1], {}


def failing_assertion() -> Any:
    x = hr.placeholder(hr.float32, (), name="x")
    with on(1):
        check = hr.Assert(x < 1.0, [x], name="check")
    with on(0), hr.control_dependencies([check]):
        return [x * 2.0], {x: 3.0}


FAILURES: dict[str, tuple[Callable[[], Any], type[BaseException]]] = {
    "loop": (failing_loop, InvalidArgumentError),
    "dead": (dead_fetch, InvalidArgumentError),
    "queue": (empty_queue, OutOfRangeError),
    "assertion": (failing_assertion, InvalidArgumentError),
}


def described(error: BaseException) -> tuple[Any, ...]:
    """Class, text, operation and notes of an error, without the last events."""
    notes = [n for n in getattr(error, "__notes__", []) if not n.startswith("the last events of the step")]
    return type(error), str(error), getattr(error, "node", None), notes


@pytest.mark.parametrize("name", FAILURES)
def test_an_error_is_that_of_one_device(name: str) -> None:
    program, kind = FAILURES[name]
    with hr.Graph() as g:
        fetches, feed = program()
    with hr.Session(graph=g, engine="interpret") as s, pytest.raises(kind) as want:
        s.run(fetches, feed)
    for seed in SEEDS:
        for engine in ("auto", "interpret"):
            with cluster(seed) as c, hr.Session(c, graph=g, config=LIMIT, engine=engine) as s:
                for _ in range(2):
                    with pytest.raises(kind) as e:
                        s.run(fetches, feed)
                    assert described(e.value) == described(want.value)
                    s.clear_container()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_value_that_cannot_be_sent_fails_the_step(seed: int) -> None:
    with hr.Graph() as g:
        with on(1):
            table = scopes.builder().AnonymousMutableHashTable(key_dtype=hr.string, value_dtype=hr.int32)
            x = hr.constant(1) + 1
        with on(0):
            there, y = scopes.builder().Identity(table), x * 2
    with cluster(seed) as c, session(c, g) as s:
        for fetches in (table, there, [table, y], [there, y]):
            with pytest.raises(InvalidArgumentError, match="an object of this process, and so it cannot be sent"):
                s.run(fetches)
        assert s.run(y) == 4


# *** partial runs ***


def two_halves() -> Any:
    x, z = hr.placeholder(hr.float32, ()), hr.placeholder(hr.float32, ())
    with on(1):
        y = x * 2.0
    with on(0):
        w = y + z
        v = hr.reduce_sum(hr.while_loop(lambda i, s: i < 5, lambda i, s: (i + 1, s + x), [hr.constant(0), z])[1])
    with on(1):
        u = v * w
    return x, z, y, w, u


@pytest.mark.parametrize("seed", range(8))
def test_a_partial_run_is_fed_in_several_calls(seed: int) -> None:
    with hr.Graph() as g:
        x, z, y, w, u = two_halves()
    with cluster(seed) as c, session(c, g) as s:
        for _ in range(3):
            h = s.partial_run_setup([y, w, u], [x, z])
            assert s.partial_run(h, y, {x: 3.0}) == 6.0
            assert s.partial_run(h, w, {z: 1.0}) == 7.0
            assert s.partial_run(h, u) == 16.0 * 7.0
        h = s.partial_run_setup([y, w, u], [x, z])
        assert s.partial_run(h, [y, u, w], {x: 3.0, z: 1.0}) == [6.0, 112.0, 7.0]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rest_of_a_partial_run_is_fetched_after_its_end(seed: int) -> None:
    with hr.Graph() as g:
        x, z, y, w, u = two_halves()
    with cluster(seed) as c, session(c, g) as s:
        h = s.partial_run_setup([y, w, u], [x, z])
        assert s.partial_run(h, y, {x: 3.0, z: 1.0}) == 6.0
        time.sleep(0.05)  # everything is computed in the meantime
        assert s.partial_run(h, u) == 112.0
        assert s.partial_run(h, w) == 7.0
        with pytest.raises(InvalidArgumentError, match="is no running handle"):
            s.partial_run(h, w)


@pytest.mark.parametrize("seed", range(12))
def test_a_partial_run_is_fed_while_a_loop_of_it_runs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    work = PartsRun._work
    wrong: list[Any] = []

    def checked(self: PartsRun, part: Any) -> None:
        if part.executor.finished or part in self._parked:
            wrong.append(part.name)  # another job drives it, or has driven it to its end
        work(self, part)

    monkeypatch.setattr(PartsRun, "_work", checked)
    with hr.Graph() as g:
        x, z = hr.placeholder(hr.int32, ()), hr.placeholder(hr.int32, ())
        with on(1):
            y = x * 2

        def body(i: Any, s: Any) -> Any:
            with on(0):
                s = s + x
            with on(1):
                return i + 1, s + z if seed % 2 else s + 1

        _, s = hr.while_loop(lambda i, s: i < 300, body, [hr.constant(0), hr.constant(0)])
        with on(0):
            w = s + z
    with cluster(seed) as c, session(c, g) as s:
        for _ in range(3):
            h = s.partial_run_setup([y, w], [x, z])
            assert s.partial_run(h, y, {x: 3}) == 6
            assert s.partial_run(h, w, {z: 1}) == 1201
    assert wrong == []


@pytest.mark.parametrize("seed", SEEDS)
def test_an_error_ends_a_partial_run(seed: int) -> None:
    with hr.Graph() as g:
        x, k = hr.placeholder(hr.float32, ()), hr.placeholder(hr.int32, ())
        with on(1):
            y = x * 2.0
        with on(0):
            z = hr.gather(hr.constant([1.0, 2.0]), k) + y
    with cluster(seed) as c, session(c, g) as s:
        h = s.partial_run_setup([y, z], [x, k])
        assert s.partial_run(h, y, {x: 1.0}) == 2.0
        with pytest.raises(InvalidArgumentError, match="not in"):
            s.partial_run(h, z, {k: 7})
        with pytest.raises(InvalidArgumentError, match="is no running handle"):
            s.partial_run(h, z)
        h = s.partial_run_setup([y, z], [x, k])
        assert s.partial_run(h, z, {x: 1.0, k: 1}) == 4.0
        assert s.partial_run(h, y) == 2.0
        s.partial_run(s.partial_run_setup([y, z], [x, k]), y, {x: 1.0})  # never ended by its user


@pytest.mark.parametrize("seed", SEEDS)
def test_a_worker_that_is_lost_between_two_calls_ends_a_partial_run(seed: int) -> None:
    with hr.Graph() as g:
        x, z, y, w, u = two_halves()
    with cluster(seed) as c, session(c, g) as s:
        fresh = s.partial_run_setup([y, w, u], [x, z])
        paused = s.partial_run_setup([y, w, u], [x, z])
        assert s.partial_run(paused, y, {x: 3.0}) == 6.0
        c.cut(c.tasks[1])
        c.settle(lambda: not c.master._state.workers[c.tasks[1]].is_up)
        for handle in (fresh, paused):
            with pytest.raises(UnavailableError, match=LOST.format(c.tasks[1])):
                s.partial_run(handle, w, {x: 1.0, z: 1.0} if handle == fresh else {z: 1.0})
        c.join(c.tasks[1])
        h = s.partial_run_setup([y, w, u], [x, z])
        assert s.partial_run(h, [y, w, u], {x: 3.0, z: 1.0}) == [6.0, 7.0, 112.0]


# *** ends ***


def waiting() -> Any:
    """A step that waits on both workers: for a queue, and for a token."""
    with on(1):
        b = scopes.builder()
        q = b.FIFOQueueV2(component_types=[hr.int32], shapes=[()], shared_name="silent")
        x = b.QueueDequeueV2(q, component_types=[hr.int32], name="take")
        n = b.QueueSizeV2(q)
    with on(0):
        return x + 1, n


def started(c: MemoryCluster, is_idle: bool = True) -> None:
    """Waits until the step runs on both workers; `is_idle`: until the master knows its waits."""

    def is_started() -> bool:
        runs = [r for r in c.master._state.runs.values() if not is_idle or len(r.waits) == 2]
        return any(all((e := w._steps.get(r.step)) and e.run for w in c.workers.values()) for r in runs)

    c.settle(is_started)


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []

    def job() -> None:
        try:
            results.append(work())
        except BaseException as e:
            results.append(e)

    thread = threading.Thread(target=job)
    thread.start()
    return thread, results


@pytest.mark.parametrize("seed", SEEDS)
def test_closing_a_session_ends_its_steps_only(seed: int) -> None:
    with hr.Graph() as g:
        y, n = waiting()
    with cluster(seed) as c, session(c, g) as other:
        s = session(c, g)
        thread, results = in_thread(lambda: s.run(y))
        started(c)
        s.close()
        thread.join(20)
        assert [type(r) for r in results] == [CancelledError]
        assert other.run(n) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lost_client_ends_its_steps(seed: int) -> None:
    with hr.Graph() as g:
        y, n = waiting()
    with cluster(seed) as c, session(c, g) as other:
        s = session(c, g)
        thread, results = in_thread(lambda: s.run(y))
        started(c)
        c.call(lambda: c.master.lose_client(2))
        s._target._calls.lost("it was unplugged")
        thread.join(20)
        assert [type(r) for r in results] == [UnavailableError]
        s.close()
        assert other.run(n) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_ends_at_its_time_limit(seed: int) -> None:
    with hr.Graph() as g:
        y, n = waiting()
    with cluster(seed) as c, session(c, g) as s:
        for _ in range(2):
            with pytest.raises(
                DeadlineExceededError, match=r"Timed out.*ran past its time limit; it waits for\n(.|\n)*'take'"
            ):
                s.run(y, timeout_ms=300)
        assert s.run(n) == 0


def test_an_interrupted_step_names_its_waits_and_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    with hr.Graph() as g:
        y, n = waiting()
    answer = RemoteRun._answer

    def interrupted(run: RemoteRun, number: int, completions: Any) -> Any:
        deadline = time.monotonic() + 20
        while not any(step["waits"] for step in s._target.describe()["steps"]):
            assert time.monotonic() < deadline
        monkeypatch.setattr(RemoteRun, "_answer", answer)
        raise KeyboardInterrupt

    with cluster(0) as c, session(c, g) as s:
        monkeypatch.setattr(RemoteRun, "_answer", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            s.run(y)
        (note,) = caught.value.__notes__
        assert re.search(r"interrupted while the cluster ran it; it waits for\n.*/task:\d.*:\n(.|\n)*'take'", note)
        deadline = time.monotonic() + 20
        while s._target.describe()["steps"]:
            assert time.monotonic() < deadline
        assert s.run(n) == 0


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_worker_that_is_lost_in_a_step_fails_it(seed: int, victim: int) -> None:
    with hr.Graph() as g:
        y, n = waiting()
        fetches, (feed, _) = nested_loops()
    with cluster(seed) as c, session(c, g) as s:
        want = s.run(fetches, feed)
        thread, results = in_thread(lambda: s.run(y))
        started(c)
        c.cut(c.tasks[victim], "it burned down")
        thread.join(20)
        assert [type(r) for r in results] == [UnavailableError]
        assert re.search(LOST.format(c.tasks[victim]), str(results[0]))
        with pytest.raises(UnavailableError, match=f"worker {c.tasks[victim]} is not connected: it burned down"):
            s.run(fetches, feed)
        c.join(c.tasks[victim])
        assert s.run(fetches, feed) == want
        assert s.run(n) == 0


@pytest.mark.parametrize("seed", range(12))
def test_a_worker_that_is_lost_at_any_time_gives_a_result_or_an_error(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a worker holds tokens of a step whose start message has not arrived for this time
    monkeypatch.setattr(thresholds, "EARLY_TOKENS", 5.0)
    with hr.Graph() as g:
        fetches, (feed, _) = nested_loops()
    with cluster(seed) as c, session(c, g) as s:
        want = s.run(fetches, feed)
        for trial in range(6):
            thread, results = in_thread(lambda: s.run(fetches, feed))
            time.sleep(0.002 * trial)
            victim = c.tasks[(seed + trial) % 2]
            c.cut(victim)
            thread.join(20)
            assert not thread.is_alive()
            assert results == [want] or isinstance(results[0], UnavailableError)
            c.settle(lambda victim=victim: not c.master._state.workers[victim].is_up)
            c.join(victim)
            assert s.run(fetches, feed) == want


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("restores", [True, False])
def test_a_cut_between_two_workers_fails_the_step(seed: int, restores: bool) -> None:
    """The master reaches both workers, which do not reach each other."""
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, ())

        def body(i: Any) -> Any:
            with on(1):
                j = i + 1
            with on(0):
                return j * 1

        y = hr.while_loop(lambda i: i < n, body, [hr.constant(0)])[0]
    with cluster(seed) as c, session(c, g) as s:
        assert s.run(y, {n: 3}) == 3
        c.restores = restores
        wire = c.token_wire(c.tasks[0], c.tasks[1])
        thread, results = in_thread(lambda: s.run(y, {n: 10_000}))
        started(c, is_idle=False)
        c.call(wire.cut)
        thread.join(20)
        assert [type(r) for r in results] == [UnavailableError]
        assert re.search("connection .*task:0 to .*task:1 (is cut|has ended)", str(results[0]))
        if restores:
            assert s.run(y, {n: 3}) == 3
        else:
            with pytest.raises(UnavailableError, match="is cut"):
                s.run(y, {n: 3})
        c.restores = True
        assert s.run(y, {n: 3}) == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_clearing_containers_does_not_wait_for_a_lost_worker(seed: int) -> None:
    with hr.Graph() as g:
        with on(0):
            a = hr.Variable(np.float32(1.0), name="a")
        with on(1):
            b = hr.Variable(np.float32(2.0), name="b")
    with cluster(seed, workers=3) as c, session(c, g) as s:
        s.run([a.initializer, b.initializer])
        c.cut(c.tasks[1])
        s.clear_container()
        assert not c.workers[c.tasks[0]].target.statistics().resources


@pytest.mark.parametrize(("size", "is_apart"), [(4, False), (128, True)])
def test_shares_of_one_worker_with_long_work_have_threads_of_their_own(size: int, is_apart: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)).astype(np.float32) / size for _ in range(2))
    devices = [hr.device(f"/job:worker/task:0/device:CPU:{i}") for i in range(2)]

    def body(i: Any, x: Any, y: Any) -> Any:
        with devices[0]:
            p = hr.matmul(x, a) + 1.0
        with devices[1]:
            q = hr.matmul(y, b) + p
        return i + 1, p, q

    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (size, size))
        _, p, q = hr.while_loop(lambda i, x, y: i < 20, body, (0, x, x))
    with hr.Session(graph=g) as local:
        want = local.run([p, q], {x: a})
    with cluster(0, 1, devices=2) as target, session(target, g) as s:
        for _ in range(3):
            for got, expected in zip(s.run([p, q], {x: a}), want, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-5)
        (program,) = target.workers[target.tasks[0]]._programs.values()
        assert [share.is_apart for share in program.shares] == [is_apart] * 2


def test_a_transfer_of_the_users_graph_is_an_invalid_argument() -> None:
    attrs = {"T": hr.float32, "tensor_name": "mine", "send_device": "a", "recv_device": "b"}
    with hr.Graph() as g:
        with on(0):
            x = hr.placeholder(hr.float32, (), name="x")
            mine = Builder(g).make("_StepSend", (x,), attrs, "transfer")
        with on(1), hr.control_dependencies([mine]):
            y = x * 2.0
    with cluster(0) as target, session(target, g) as s, pytest.raises(InvalidArgumentError, match="edge 'mine'"):
        s.run(y, {x: 1.0})


def test_a_step_of_shares_leaves_nothing_to_the_collector_of_garbage() -> None:
    """Its feeds, fetches and transfers can be large."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (3,))
        with on(0):
            y = x * 2.0
        with on(1):
            z = y + x
    with cluster(0) as target, session(target, g) as s:
        for _ in range(3):
            s.run(z, {x: [1, 2, 3]})
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                s.run(z, {x: [1, 2, 3]})
            left = [o for o in gc.get_objects() if isinstance(o, ShareRun)]
        finally:
            gc.enable()
    assert len(left) <= 4  # of the last step, of which the workers have not been told that it is over
