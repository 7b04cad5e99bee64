"""`Session.statistics()`: contents and activity of a session."""

from __future__ import annotations

import threading

import pytest

import headrace as hr


def test_steps_are_counted_by_engine() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [])
        y = x * 2.0
        q = hr.FIFOQueue(1, [hr.float32], [()])
        put, got = q.enqueue([y]), q.dequeue()
    with hr.Session(graph=g, engine="auto") as session:
        assert session.statistics().steps == 0
        for value in (1.0, 2.0):
            session.run(y, {x: value})
        session.run(put, {x: 3.0})
        assert session.run(got) == 6.0
        told = session.statistics()
    assert told.steps == told.made == 3
    assert told.engines == {"compiled": 1, "interpret": 2}


def test_a_step_that_is_made_and_not_run_has_no_engine() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [])
    with hr.Session(graph=g) as session:
        session.explain(x + 1.0, [x])
        before = session.statistics()
        handle = session.partial_run_setup([x], [x])
        during = session.statistics()
        session.partial_run(handle, x, {x: 1.0})
        after = session.statistics()
    assert before.partial_runs == before.active == 0
    assert during.partial_runs == during.active == 1
    assert after.partial_runs == after.active == 0


def test_a_waiting_run_is_active_until_the_session_is_closed() -> None:
    with hr.Graph() as g:
        got = hr.FIFOQueue(1, [hr.float32], [()]).dequeue()
    session = hr.Session(graph=g)

    def wait() -> None:
        with pytest.raises(hr.errors.CancelledError):
            session.run(got)

    thread = threading.Thread(target=wait)
    thread.start()
    while not session.statistics().active:
        thread.join(0.001)
        assert thread.is_alive()
    session.close()
    thread.join(10)
    assert session.statistics().active == 0


def test_resources_and_memory() -> None:
    with hr.Graph() as g:
        v = hr.Variable([1.0, 2.0], name="v")
    with hr.Session(graph=g, memory_limit=10**6) as session:
        assert session.statistics().resources == ()
        session.run(v.initializer)
        told = session.statistics()
        (memory,) = told.memory.values()
        assert told.resources == (("localhost", "Variable", "v"),)
        assert memory.held == memory.peak == 8
        assert memory.spilled == memory.bytes_out == memory.bytes_in == 0
        session.clear_container()
        assert session.statistics().resources == ()


def test_it_is_frozen() -> None:
    told = hr.Session(graph=hr.Graph()).statistics()
    with pytest.raises(AttributeError):
        told.steps = 1  # type: ignore[misc]
