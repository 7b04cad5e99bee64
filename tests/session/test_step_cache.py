"""A session's cache of steps: those of the current graph, in a bounded number."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

import headrace as hr
from headrace import memo, thresholds
from tests.inside import growth_of, step_of, steps_of


def test_steps_of_an_older_graph_go_when_it_has_grown() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, ())
        session = hr.Session()

        def grow() -> None:
            for i in range(30):
                assert session.run(x * float(i), {x: 2.0}) == 2.0 * i

        with pytest.warns(hr.errors.HeadraceWarning, match="the graph grows between runs"):
            grow()
    told = session.statistics()
    assert (told.steps, told.made) == (1, 30)


def test_a_dropped_step_is_freed() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, ())
        y = x + 1.0
        session = hr.Session()
        session.run(y, {x: 1.0})
        old = weakref.ref(step_of(session, y, [x]))
        session.run(y * 2.0, {x: 1.0})
    gc.collect()
    assert old() is None


def test_steps_of_one_graph_stay_while_others_are_added() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, ())
        ys = [x + float(i) for i in range(20)]
    session = hr.Session(graph=x.graph)
    for _ in range(3):
        for y in ys:
            session.run(y, {x: 1.0})
    told = session.statistics()
    assert (told.steps, told.made) == (20, 20)


def test_the_least_recently_used_step_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "SESSION_CALLS", 3)
    with hr.Graph():
        x = hr.placeholder(hr.float32, ())
        ys = [x + float(i) for i in range(5)]
    session = hr.Session(graph=x.graph)
    first, second = (step_of(session, y, [x]) for y in ys[:2])
    for y in ys[2:]:
        assert step_of(session, ys[0], [x]) is first  # used again and again
        session.run(y, {x: 1.0})
    assert session.statistics().steps == 3
    assert first in steps_of(session)
    assert second not in steps_of(session)
    assert session.run(ys[1], {x: 1.0}) == 2.0  # made again
    assert session.statistics().made == 6


def test_300_different_fetches_leave_at_most_256_live_steps() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
        ys = [x + float(i) for i in range(300)]
    session = hr.Session(graph=g)
    made = [weakref.ref(step_of(session, y, [x])) for y in ys]
    gc.collect()
    live = [step() is not None for step in made]
    assert session.statistics().steps == sum(live) <= 256
    assert live == sorted(live)  # the newest
    assert session.run(ys[0], {x: 1.0}) == 1.0
    assert session.statistics().steps <= 256


def test_what_is_counted_of_a_growing_graph_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "SESSION_CALLS", 3)
    with hr.Graph():
        x = hr.placeholder(hr.float32, ())
        session = hr.Session()
        # ten lines, each of which makes the operation that a run fetches
        program = "\n".join("session.run(x * 2.0, {x: 1.0})" for _ in range(10))
        exec(compile(program, __file__, "exec"), {"session": session, "x": x})
    assert session.statistics().made == 10
    assert growth_of(session) <= 3


def test_the_hits_and_misses_of_a_session_are_in_the_report() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
        ys = [x + 1.0, x + 2.0]
    session = hr.Session(graph=g)
    before = of_sessions()
    for y in (ys[0], ys[0], ys[1], ys[0]):
        session.run(y, {x: 1.0})
    after = of_sessions()
    assert (after.hits - before.hits, after.misses - before.misses) == (2, 2)
    (line,) = [t for t in hr.report().splitlines() if t.startswith("memo session calls: ")]
    assert line.endswith(f"{after.hits} hits, {after.misses} misses")


def of_sessions() -> memo.MemoStatistics:
    gc.collect()  # sessions of other tests
    return next(m for m in memo.statistics() if m.name == "session calls")


def test_a_callable_keeps_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "SESSION_CALLS", 1)
    with hr.Graph():
        x = hr.placeholder(hr.float32, ())
        y, z = x + 1.0, x * 3.0
    session = hr.Session(graph=x.graph)
    f, g = session.make_callable(y, [x]), session.make_callable(z, [x])
    for i in range(3):
        assert (f(float(i)), g(float(i))) == (i + 1, i * 3)
    told = session.statistics()
    assert (told.steps, told.made) == (1, 2)


def test_a_callable_follows_a_graph_that_grows() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, ())
        y = x + 1.0
        session = hr.Session()
        f = session.make_callable(y, [x])
        _ = y * 2.0
        assert f(1.0) == 2.0
    assert session.statistics().steps == 1


@pytest.mark.system
def test_threads_that_ask_for_the_same_step_make_it_once() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, ())
        y = x + 1.0
    session = hr.Session(graph=x.graph)
    barrier = threading.Barrier(8)
    got = []

    def ask() -> None:
        barrier.wait(10)
        got.append(step_of(session, y, [x]))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(10)
    assert len(got) == 8
    assert len(set(map(id, got))) == 1
    assert session.statistics().made == 1
