"""Python functions that wait for one another, for a queue or for ever.

The tests end their steps while they wait.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import flags
from headrace.api.scopes import current_graph
from headrace.compile.blockers import blockers
from headrace.errors import CancelledError, DeadlineExceededError, InvalidArgumentError, OpError
from tests.execute.clocks import ManualClock, soon
from tests.inside import target_of, use_clock

PATIENCE = 20.0  # seconds that a function waits before the test fails


@pytest.fixture(params=["auto", "interpret"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def meeting(n: int) -> Callable[..., np.float32]:
    """A function that returns when `n` calls of it are under way."""
    barrier = threading.Barrier(n)

    def function(x: Any = 1.0) -> np.float32:
        barrier.wait(PATIENCE)
        return np.float32(x)

    return function


@pytest.mark.parametrize("stateful", [True, False])
def test_two_calls_that_wait_for_each_other(engine: str, stateful: bool) -> None:
    f = meeting(2)
    with tf.Graph().as_default() as g:
        both = [tf.py_func(f, [x], tf.float32, stateful=stateful) for x in (1.0, 2.0)]
    with hr.Session(graph=g, engine=engine) as session:
        for _ in range(3):
            assert session.run(both) == [1, 2]


def test_a_call_and_one_in_a_branch_wait_for_each_other(engine: str) -> None:
    f = meeting(2)
    with tf.Graph().as_default() as g:
        p = tf.placeholder(tf.bool, ())
        inner = tf.cond(p, lambda: tf.py_func(f, [1.0], tf.float32), lambda: 0.0)
        outer = tf.py_func(f, [2.0], tf.float32)
    with hr.Session(graph=g, engine=engine) as session:
        assert session.run([inner, outer], {p: True}) == [1, 2]


def test_calls_of_several_iterations_wait_for_one_another(engine: str) -> None:
    f = meeting(4)
    with tf.Graph().as_default() as g:
        y = tf.map_fn(lambda x: tf.py_func(f, [x], tf.float32), tf.constant([1.0, 2.0, 3.0, 4.0]))
    with hr.Session(graph=g, engine=engine) as session:
        assert session.run(y).tolist() == [1, 2, 3, 4]


def test_a_call_waits_for_a_queue_of_the_same_step(engine: str) -> None:
    with tf.Graph().as_default() as g:
        queue = tf.FIFOQueue(1, [tf.float32], [()], shared_name="q")
        put = queue.enqueue(3.0)
        other = queue.dequeue()

        def take() -> np.float32:
            return np.float32(session.run(other))

        taken = tf.py_func(take, [], tf.float32)
    with hr.Session(graph=g, engine=engine) as session:
        assert session.run([taken, put])[0] == 3


def test_calls_on_two_devices_wait_for_each_other() -> None:
    f = meeting(2)
    with tf.Graph().as_default() as g:
        both = []
        for i in range(2):
            with tf.device(f"/cpu:{i}"):
                both.append(tf.py_func(f, [float(i)], tf.float32))
    with hr.Session(graph=g, devices={"CPU": 2}) as session:
        assert session.run(both) == [0, 1]


def compiled(graph: hr.Graph, fetches: Any) -> bool:
    with hr.Session(graph=graph, engine="auto") as session:
        return session.explain(fetches).engine == "compiled"


def doubled(x: Any) -> Any:
    return tf.py_func(lambda a: a * 2, [x], tf.float32)


def loop(body: Callable[[Any, Any], Any], **how: Any) -> Any:
    return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, body(i, x)), (0, 1.0), [(), None], **how)[1]


def test_what_is_ordered_is_compiled() -> None:
    def both(i: Any, x: Any) -> Any:
        return doubled(doubled(x))

    def free(i: Any, x: Any) -> Any:
        return x + doubled(tf.cast(i, tf.float32))

    with tf.Graph().as_default() as g:
        alone, chained = doubled(1.0), doubled(doubled(1.0))
        after = doubled(1.0)
        with tf.control_dependencies([after]):
            controlled = doubled(2.0)
        loops = [loop(both), loop(free, parallel_iterations=1)]
        test = tf.while_loop(lambda x: tf.reshape(doubled(x), ()) < 9.0, lambda x: x + 1, (1.0,))
        not_ordered = [[doubled(1.0), doubled(2.0)], loop(free), loop(lambda i, x: x + doubled(doubled(1.0)))]
    for fetches in (alone, chained, [controlled, after], *loops, test):
        assert compiled(g, fetches), fetches
    for fetches in not_ordered:
        assert not compiled(g, fetches), fetches
    with hr.Graph() as ordered:
        pair = [hr.py_func(np.negative, [1.0], hr.float32) for _ in range(2)]
        pure = [hr.py_func(np.negative, [1.0], hr.float32, stateful=False) for _ in range(2)]
        y = hr.map_fn(lambda x: hr.py_func(np.negative, [x], hr.float32), hr.constant([1.0, 2.0]))
    for fetches in (pair, pure, y):
        assert compiled(ordered, fetches), fetches


def test_the_reason_names_both_functions() -> None:
    with tf.Graph().as_default() as g:
        doubled(1.0), doubled(2.0)
    (line,) = blockers(g.operations)
    assert "'PyFunc' (PyFunc)" in line
    assert "may wait for that of 'PyFunc_1' (PyFunc)" in line


@contextlib.contextmanager
def stuck(
    engine: str, is_alone: bool = True
) -> Iterator[tuple[hr.Session, Any, Any, threading.Event, threading.Event]]:
    """A step with a function that waits, and the events that control it.

    Yields (session, fetch, variable, the event that the function has begun, the event that it awaits). The operation
    after the function adds to the variable.
    """
    began, go = threading.Event(), threading.Event()

    def wait() -> np.float32:
        began.set()
        assert go.wait(PATIENCE)
        return np.float32(1)

    with tf.Graph().as_default() as g:
        v = tf.Variable(0.0)
        calls = [tf.py_func(wait, [], tf.float32) for _ in range(1 if is_alone else 2)]
        with tf.control_dependencies(calls):
            step = v.assign_add(1.0)
    with hr.Session(graph=g, engine=engine) as session:
        session.run(v.initializer)
        try:
            yield session, step, v, began, go
        finally:
            go.set()


@pytest.mark.system
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_deadline_ends_the_step_and_nothing_happens_afterwards(engine: str, is_alone: bool) -> None:
    threads = threading.active_count()
    with stuck(engine, is_alone) as (session, step, v, _, go):
        with pytest.raises(DeadlineExceededError, match=r"ran past its time limit; it waits for 'PyFunc"):
            session.run(step, timeout_ms=50)
        go.set()
        assert soon(lambda: not target_of(session)._blocking.is_busy)
        assert session.run(v) == 0
        assert session.run(step) == 1
    assert soon(lambda: threading.active_count() == threads)


@pytest.mark.system
@pytest.mark.parametrize("is_alone", [True, False])
def test_closing_the_session_ends_the_step(engine: str, is_alone: bool) -> None:
    errors: list[OpError] = []
    with stuck(engine, is_alone) as (session, step, _, began, _go):

        def run() -> None:
            with pytest.raises(CancelledError, match="the session was closed") as e:
                session.run(step)
            errors.append(e.value)

        thread = threading.Thread(target=run)
        thread.start()
        assert began.wait(PATIENCE)
        start = time.monotonic()
        session.close()
        thread.join(PATIENCE)
        assert time.monotonic() - start < 2
    assert len(errors) == 1


@pytest.mark.system
@pytest.mark.parametrize("is_alone", [True, False])
def test_ctrl_c_ends_the_step(engine: str, is_alone: bool) -> None:
    with stuck(engine, is_alone) as (session, step, v, began, go):

        def interrupt() -> None:
            assert began.wait(PATIENCE)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            session.run(step)
        thread.join(PATIENCE)
        go.set()
        assert session.run(v) == 0


def test_the_error_of_one_call_ends_the_step_while_another_waits(engine: str) -> None:
    go = threading.Event()

    def fail() -> None:
        raise ValueError("enough")

    with tf.Graph().as_default() as g:
        waiting = tf.py_func(lambda: go.wait(PATIENCE), [], tf.bool)
        failing = tf.py_func(fail, [], [])
    with hr.Session(graph=g, engine=engine) as session:
        with pytest.raises(InvalidArgumentError, match="ValueError: enough"):
            session.run([waiting, failing])
        go.set()


@pytest.mark.parametrize("timeout", [None, 60_000])
def test_a_function_that_runs_sessions(engine: str, timeout: float | None) -> None:
    def inner() -> np.float32:
        assert current_graph() is None
        with hr.Graph() as g2, hr.Session(graph=g2, engine=engine) as other:
            return np.float32(session.run(c) + other.run(hr.constant(2.0) * 1.0, timeout_ms=timeout))

    with tf.Graph().as_default() as g:
        c = tf.py_func(lambda: np.float32(1), [], tf.float32)
        y = tf.py_func(inner, [], tf.float32)
    with hr.Session(graph=g, engine=engine) as session:
        assert session.run(y, timeout_ms=timeout) == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_passes_through(engine: str, error: type[BaseException]) -> None:
    def leave() -> None:
        raise error("now")

    with tf.Graph().as_default() as g:
        alone, other = tf.py_func(leave, [], []), tf.py_func(lambda: None, [], [])
    with hr.Session(graph=g, engine=engine) as session:
        for fetches, timeout in ((alone, None), (alone, 60_000), ([alone, other], None)):
            with pytest.raises(error, match="now"):
                session.run(fetches, timeout_ms=timeout)


def test_a_function_may_take_longer_than_a_queue_may(engine: str) -> None:
    clock, was_waiting = ManualClock(), []

    def take_long() -> None:
        assert clock.waiting.wait(PATIENCE)
        before = clock.waits
        clock.advance(2 * flags.WAIT_LIMIT.value)
        was_waiting.append(soon(lambda: clock.waits > before))  # the step has noticed the time, and waits again

    with tf.Graph().as_default() as g:
        slow = [tf.py_func(take_long, [], []) for _ in range(2)]
    with hr.Session(graph=g, engine=engine) as session:
        use_clock(session, clock)
        session.run(slow)
    assert was_waiting == [True, True]


def test_a_partial_run_with_calls_that_wait() -> None:
    f = meeting(2)
    with tf.Graph().as_default() as g:
        x = tf.placeholder(tf.float32, ())
        both = [tf.py_func(f, [x + i], tf.float32) for i in (1.0, 2.0)]
    with hr.Session(graph=g) as session:
        handle = session.partial_run_setup(both, [x])
        assert session.partial_run(handle, both, {x: 1.0}) == [2, 3]
