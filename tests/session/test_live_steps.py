"""Steps that a session keeps alive: a bounded number, of the newest graph."""

from __future__ import annotations

import gc
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import thresholds
from headrace.errors import InvalidArgumentError
from headrace.ir.graph import Graph

BOUND = 8
ONE = np.ones(2, np.float32)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Graph]]:
    """All graphs that are created in the test, the private graphs of steps among them."""
    found: list[weakref.ref[Graph]] = []
    begin = Graph.__init__

    def counted(self: Graph, *args: Any, **kwargs: Any) -> None:
        found.append(weakref.ref(self))
        begin(self, *args, **kwargs)

    monkeypatch.setattr(Graph, "__init__", counted)
    monkeypatch.setattr(thresholds, "SESSION_CALLS", BOUND)
    gc.collect()
    return found


def live(made: list[weakref.ref[Graph]]) -> list[Graph]:
    gc.collect()
    return [g for r in made if (g := r()) is not None]


def straight(x: Any, i: int) -> Any:
    return x + float(i + 2)  # an operation with 0 or 1 would be optimized away


def loop(x: Any, i: int) -> Any:
    return hr.while_loop(lambda n, y: n < 2, lambda n, y: (n + 1, y * float(i + 2)), [0, x])[1]


def conditional(x: Any, i: int) -> Any:
    return hr.cond(hr.reduce_sum(x) > 0.0, lambda: x * float(i + 2), lambda: x)


def python(x: Any, i: int) -> Any:
    return hr.py_func(lambda v: v * np.float32(i), [x], hr.float32)


def two_devices(x: Any, i: int) -> Any:
    with hr.device("/device:CPU:1"):
        y = x * float(i + 2)
    with hr.device("/device:CPU:0"):
        return y + x


KINDS: list[Callable[[Any, int], Any]] = [straight, loop, conditional, python, two_devices]


def session_of(kind: Callable[[Any, int], Any], n: int) -> tuple[hr.Session, Any, list[Any]]:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [None])
        ys = [kind(x, i) for i in range(n)]
    return hr.Session(graph=g, devices={"CPU": 2} if kind is two_devices else None), x, ys


def graphs_of_one_step(kind: Callable[[Any, int], Any], made: list[weakref.ref[Graph]]) -> int:
    """Number of graphs that a cached step of this kind keeps alive after its runs."""
    session, x, ys = session_of(kind, 1)
    before = len(live(made))
    session.run(ys[0], {x: ONE})
    n = len(live(made)) - before
    del session, x, ys
    made.clear()
    return n


MANY = pytest.param(straight, 300, marks=pytest.mark.matrix)


@pytest.mark.parametrize(("kind", "n"), [*((kind, 3 * BOUND) for kind in KINDS), MANY])
def test_runs_with_new_fetches_leave_at_most_the_bound(kind: Any, n: int, made: list[weakref.ref[Graph]]) -> None:
    of_one = graphs_of_one_step(kind, made)
    session, x, ys = session_of(kind, n)
    before = len(live(made))
    for y in ys:
        session.run(y, {x: ONE})
    assert session.statistics().steps == BOUND
    assert len(live(made)) - before <= BOUND * of_one


@pytest.mark.filterwarnings("ignore:the graph grows")
def test_runs_of_a_growing_graph_leave_one_step(made: list[weakref.ref[Graph]]) -> None:
    of_one = graphs_of_one_step(straight, made)
    session, x, _ = session_of(straight, 1)
    before = len(live(made))
    with session.graph:
        for i in range(100):
            session.run(x + float(i), {x: ONE})
    assert session.statistics().steps == 1
    assert len(live(made)) - before <= of_one


def test_partial_runs_leave_at_most_the_bound_when_they_are_done_or_failed(made: list[weakref.ref[Graph]]) -> None:
    def work(v: Any) -> Any:
        if v[0] < 0.0:
            raise ValueError("negative")
        return v

    session, x, ys = session_of(lambda x, i: hr.py_func(work, [x], hr.float32), 5 * BOUND)
    before = len(live(made))
    handles, of_one = [], 0
    for i, y in enumerate(ys):
        handle = session.partial_run_setup(y, [x])
        if i % 2:
            session.partial_run(handle, y, {x: ONE})
        else:
            with pytest.raises(InvalidArgumentError, match="negative"):
                session.partial_run(handle, y, {x: -ONE})
        handles.append(handle)
        of_one = len(live(made)) - before if i == 0 else of_one
    told = session.statistics()
    assert (told.partial_runs, told.active, told.steps) == (0, 0, BOUND)
    assert len(live(made)) - before <= BOUND * of_one
    for handle in handles:
        with pytest.raises(InvalidArgumentError, match="no running handle"):
            session.partial_run(handle, ys[0], {x: ONE})


def test_open_partial_runs_outlive_the_growth_of_the_graph_and_end_with_the_session(
    made: list[weakref.ref[Graph]],
) -> None:
    session, x, ys = session_of(straight, 3)
    before = len(live(made))
    handles = [session.partial_run_setup(y, [x]) for y in ys]
    with session.graph:
        z = x * 5.0
    session.run(z, {x: ONE})
    assert session.statistics().steps == 1
    np.testing.assert_array_equal(session.partial_run(handles[2], ys[2], {x: ONE}), ONE + 4.0)
    session.close()
    assert session.statistics().partial_runs == 0
    assert len(live(made)) - before <= 4  # the step of `z`


def test_callables_keep_their_own_step_and_no_other(made: list[weakref.ref[Graph]]) -> None:
    of_one = graphs_of_one_step(straight, made)
    session, x, ys = session_of(straight, 3 * BOUND)
    before = len(live(made))
    calls = [session.make_callable(y, [x]) for y in ys]
    for call in calls:
        call(ONE)
    assert len(live(made)) - before <= 3 * BOUND * of_one
    del calls[1:], call
    assert len(live(made)) - before <= (BOUND + 1) * of_one
    np.testing.assert_array_equal(calls[0](ONE), ONE + 2.0)
    del calls
    assert len(live(made)) - before <= BOUND * of_one


@pytest.mark.filterwarnings("ignore:the graph grows")
def test_a_callable_of_a_growing_graph_keeps_one_step(made: list[weakref.ref[Graph]]) -> None:
    of_one = graphs_of_one_step(straight, made)
    session, x, ys = session_of(straight, 1)
    before = len(live(made))
    call = session.make_callable(ys[0], [x])
    with session.graph:
        for i in range(50):
            _ = x * float(i)
            call(ONE)
    assert len(live(made)) - before <= of_one


def reachable(root: Any, stop: set[int]) -> set[int]:
    """Ids of the objects that `root` keeps alive; not modules, classes and the ids `stop`."""
    stop = stop | {id(vars(m)) for m in list(sys.modules.values()) if isinstance(m, types.ModuleType)}
    seen, todo = {id(root)}, [root]
    while todo:
        for x in gc.get_referents(todo.pop()):
            if id(x) not in seen and id(x) not in stop and not isinstance(x, (type, types.ModuleType)):
                seen.add(id(x))
                todo.append(x)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_steps_do_not_refer_to_graphs_of_other_steps(kind: Any, made: list[weakref.ref[Graph]]) -> None:
    session, x, ys = session_of(kind, 3)
    outer = [g for r in made if (g := r()) is not None]
    stop = {id(o) for g in outer for o in (g, *g.operations, *(t for op in g.operations for t in op.outputs))}
    of_steps = []
    for y in ys:
        del made[:]
        session.run(y, {x: ONE})
        of_steps.append(live(made))
    assert all(of_steps)
    calls = [session._call(y, {x: None}) for y in ys]
    for i, call in enumerate(calls):
        found = reachable(call, stop)
        assert any(id(g) in found for g in of_steps[i])
        others = [g for k, graphs in enumerate(of_steps) for g in graphs if k != i]
        assert not [g for g in others if id(g) in found]
        assert id(session) not in found


def test_a_dropped_session_with_an_open_partial_run_leaves_no_graph_and_no_thread(
    made: list[weakref.ref[Graph]],
) -> None:
    session, x, ys = session_of(two_devices, 2)
    before = len(live(made))
    before_threads = set(threading.enumerate())
    session.run(ys[0], {x: ONE})
    assert set(threading.enumerate()) - before_threads
    session.partial_run_setup(ys[1], [x])
    del session
    assert len(live(made)) == before
    mine = [t for t in threading.enumerate() if t.name.startswith("headrace") and t not in before_threads]
    for t in mine:
        t.join(20)
    assert not any(t.is_alive() for t in mine)
