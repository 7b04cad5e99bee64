"""`hr.profile`: times of the right ops, exact counts, unchanged results and errors."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.api import scopes
from headrace.errors import InvalidArgumentError
from headrace.metadata import scoped_options
from headrace.observe.profile import Profile
from headrace.targets.native import engine
from tests.inside import step_of
from tests.session.helpers import call, custom_ops

pytestmark = pytest.mark.one_engine

ENGINES = ["interpret", "python", pytest.param("native", marks=pytest.mark.system), "devices"]
WIDE = np.full((48, 48), 0.01, np.float32)  # a product of it is long enough for a timer of its own in machine code


@pytest.fixture(params=ENGINES)
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[[hr.Graph], hr.Session]]:
    """Opens sessions of one engine."""
    name = request.param
    with flags.override(NATIVE="on" if name == "native" else "off"):
        if name == "native" and engine.available():
            pytest.skip(engine.available())
        options: dict[str, Any] = {"devices": {"engine": "auto", "devices": {"CPU": 2}}}.get(
            name, {"engine": "interpret" if name == "interpret" else "compiled"}
        )
        yield lambda graph: hr.Session(graph=graph, **options)


def nested(trips: tuple[int, int]) -> tuple[hr.Graph, hr.Tensor]:
    """Loops with products in both bodies."""
    with hr.Graph() as g:
        start = hr.constant(WIDE)
        n, m = (hr.placeholder_with_default(k, ()) for k in trips)

        def outer(i: Any, x: Any) -> Any:
            def inner(j: Any, y: Any) -> Any:
                return j + 1, hr.matmul(y, start, name="inside")

            y = hr.while_loop(lambda j, y: j < m, inner, (0, x), name="inner")[1]
            return i + 1, hr.matmul(y, start, name="outside")

        with hr.device("/cpu:0"):
            first = hr.identity(start)
        return g, hr.while_loop(lambda i, x: i < n, outer, (0, first), name="outer")[1]


def calls(p: Profile, name: str) -> int:
    return sum(row.calls for row in p.rows if any(n.endswith(name) for n in row.names) and not row.is_loop)


def test_counts_are_the_trip_counts_on_every_engine(opened: Callable[[hr.Graph], hr.Session]) -> None:
    graph, y = nested((3, 5))
    with opened(graph) as session:
        want = session.run(y)
        with hr.profile() as p:
            np.testing.assert_array_equal(session.run(y), want)
        assert (calls(p, "inside"), calls(p, "outside")) == (15, 3)
        assert {loop.name.partition(" on ")[0]: loop.calls for loop in p.loops} == {"outer": 3, "outer / inner": 15}
        with p:
            session.run(y)
        assert (p.runs, calls(p, "inside"), calls(p, "outside")) == (2, 30, 6)


def test_a_function_that_calls_itself_has_counts_and_results(opened: Callable[[hr.Graph], hr.Session]) -> None:
    with hr.Graph() as g:
        fact = hr.Function(
            lambda k, x: hr.cond(k < 1, lambda: x, lambda: fact(k - 1, hr.matmul(x, WIDE, name="grow"))),
            results=hr.TensorSpec((48, 48), hr.float32),
            name="fact",
        )
        k = hr.placeholder(hr.int32, ())
        y = fact(k, hr.constant(WIDE))
    with opened(g) as session:
        want = session.run(y, {k: 7})
        p = hr.profile(lambda: session.run(y, {k: 7}))
        np.testing.assert_array_equal(p.result, want)
        assert calls(p, "grow") == 7
        assert {row.path for row in p.rows if any(n.endswith("grow") for n in row.names)} <= {("fact",), ()}


def test_short_loops_of_machine_code_count_without_a_clock(opened: Callable[[hr.Graph], hr.Session]) -> None:
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, ())

        def body(i: Any, x: Any) -> Any:
            return i + 1, hr.cond(x > 2.0, lambda: hr.sqrt(x, name="root"), lambda: x * 3.0)

        y = hr.while_loop(lambda i, x: i < n, body, (0, 1.5))[1]
    with opened(g) as session:
        p = hr.profile(lambda: session.run(y, {n: 60}))
        assert p.result == session.run(y, {n: 60})
    trips, x = 0, np.float32(1.5)
    for _ in range(60):
        trips, x = trips + int(x > 2), np.sqrt(x) if x > 2 else x * np.float32(3)
    assert calls(p, "root") == trips
    assert [loop.calls for loop in p.loops] == [60]


def test_an_error_keeps_its_diagnosis(opened: Callable[[hr.Graph], hr.Session]) -> None:
    with hr.Graph() as g:
        d = hr.placeholder(hr.int32, ())
        y = hr.while_loop(lambda i, k: i < 9, lambda i, k: (i + 1, hr.floordiv(8, d - i, name="quotient")), (0, 1))[1]
    with opened(g) as session:
        with pytest.raises(InvalidArgumentError) as plain:
            session.run(y, {d: 4})
        p = hr.profile()
        with p, pytest.raises(InvalidArgumentError) as error:
            session.run(y, {d: 4})
        texts = ["".join(traceback.format_exception_only(e.value)).split("\n") for e in (plain, error)]
        more = ("  fired: ", "  was ready: ")  # which errors have with events
        shown = ["\n".join(line for line in text if not line.startswith(more)) for text in texts]
        assert shown[0] == shown[1]
        assert "iteration 4 of loop 'while'" in shown[0]
        assert "quotient" in shown[0]
        assert p.runs == 1
        assert session.run(y, {d: 10}) == session.run(y, {d: 10})
    assert scoped_options.count == 0


class FakeClock:
    """A clock that only tests advance."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def work(self, nanoseconds: int, value: Any) -> Any:
        self.now += nanoseconds
        return value


def test_time_belongs_to_the_op_that_takes_it() -> None:
    clock = FakeClock()
    with custom_ops(), hr.Graph() as g:

        def body(i: Any, x: Any) -> Any:
            b = scopes.builder()
            slow = call(b, "Pure", lambda v: clock.work(1_000_000, v), [x], name="slow", scalar=True)
            return i + 1, call(b, "Pure", lambda v: clock.work(1_000, v), [slow], name="quick", scalar=True)

        y = hr.while_loop(lambda i, x: i < 10, body, (0, 7), name="loop")[1]
        with hr.Session(graph=g, engine="compiled") as session, Profile(clock) as p:
            assert session.run(y) == 7
    times = {row.label: row.seconds for row in p.rows}
    assert times["slow"] == pytest.approx(0.01)
    assert times["quick"] == pytest.approx(0.00001)
    assert p.timed_seconds == pytest.approx(p.seconds) == pytest.approx(0.01001)
    assert [(s.name, s.calls) for s in p.loops] == [("loop", 10)]
    assert p.loops[0].seconds == pytest.approx(0.01001)
    assert sum(s.seconds for s in p.lines) == pytest.approx(0.01001)


def test_a_step_without_a_profile_is_unchanged() -> None:
    graph, y = nested((2, 2))
    with flags.override(NATIVE="off"), hr.Session(graph=graph, engine="compiled") as session:
        session.run(y)
        code = step_of(session, y).general.compiled
        assert code is not None
        source = code.source
        hr.profile(lambda: session.run(y))
        assert code.source == source
        assert "laps" not in source
        assert not code.sites
        assert step_of(session, y).general.compiled is code
        timed = code.timed
        assert "laps" in timed.source
        lines = [line for line in timed.source.split("\n") if "run.laps." not in line]
        assert [line.split("=")[-1] for line in lines] == [line.split("=")[-1] for line in source.split("\n")]
        hr.profile(lambda: session.run(y))
        assert code.timed is timed


def test_other_threads_are_not_in_the_profile() -> None:
    with hr.Graph() as g:
        y = hr.tanh(hr.placeholder_with_default(1.0, ()))
    with hr.Session(graph=g) as session:
        other = threading.Thread(target=lambda: session.run(y))
        with hr.profile() as p:
            other.start()
            other.join(30)
            with hr.profile() as inner:
                session.run(y)
            session.run(y)
            with pytest.raises(RuntimeError, match="this profile is open"):
                p.__enter__()
    assert (p.runs, inner.runs) == (1, 1)
    assert scoped_options.count == 0


def test_jitted_functions_and_callables_are_in_the_profile() -> None:
    f = hr.jit(lambda x: hr.tanh(x) + 1.0)
    x = np.ones((3, 3), np.float32)
    want = f(x)
    p = hr.profile(lambda: [f(x) for _ in range(4)])
    assert p.runs == 4
    np.testing.assert_array_equal(p.result[-1], want)
    assert {row.calls for row in p.rows if "Tanh" in row.types} == {4}
    with hr.Graph() as g:
        v = hr.placeholder(hr.float32, ())
        with hr.Session(graph=g) as session:
            run = session.make_callable(hr.exp(v), [v])
            assert run(0.0) == 1.0
            with hr.profile() as p:
                assert run(0.0) == 1.0
    assert [row.types for row in p.rows if row.names] == [("Exp",)]


def test_steps_with_effects_and_waits_are_profiled() -> None:
    with hr.Graph() as g:
        total = hr.Variable(0.0)
        queue = hr.FIFOQueue(4, [hr.float32], shapes=[[]])
        put = queue.enqueue(2.0)
        add = total.assign_add(queue.dequeue() + 1.0)
        seen = hr.py_func(lambda: np.float32(5.0), [], hr.float32)
    with hr.Session(graph=g) as session:
        session.run(total.initializer)
        with hr.profile() as p:
            session.run(put)
            assert session.run(add) == 3.0
            assert session.run(seen) == 5.0
        assert session.run(total) == 3.0
    assert p.runs == 3
    assert {"QueueEnqueueV2", "QueueDequeueV2"} <= {t for row in p.rows for t in row.types}
    assert "interpreted" in str(p)
    assert "waited" in str(p)


def test_the_table_has_ops_loops_and_lines() -> None:
    graph, y = nested((2, 3))
    assert str(hr.profile()) == "no run yet"
    with flags.override(NATIVE="off"), hr.Session(graph=graph, engine="compiled") as session:
        p = hr.profile(lambda: session.run(y))
    text = str(p).split("\n")
    assert text[0].startswith("profile of 1 run: ")
    assert text[0].endswith(", compiled")
    assert "of which the timers took about" in text[1]
    heads = [line.split() for line in text]
    assert ["time", "share", "calls", "op", "type", "loop", "line"] in heads
    assert ["time", "share", "iterations", "loop"] in heads
    assert ["time", "share", "line"] in heads
    (row,) = [line for line in text if " inside " in line]
    assert "MatMul  outer / inner" in row
    assert "test_profile.py:" in row
    assert p.timer_seconds > 0


def test_variants_for_shapes_have_timers() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None, 4))
        y = hr.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, hr.tanh(v)), (0, x))[1]
    with hr.Session(graph=g) as session, hr.profile() as p:
        for rows in (2, 5):
            assert session.run(y, {x: np.ones((rows, 4), np.float32)}).shape == (rows, 4)
    assert sum(row.calls for row in p.rows if row.types == ("Tanh",)) == 6
