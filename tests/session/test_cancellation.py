"""`Cancellation`: a run ends when another thread cancels it, and others go on."""

from __future__ import annotations

import threading

import pytest

import headrace as hr
from headrace.errors import CancelledError
from headrace.metadata import Cancellation


@pytest.fixture
def waiting() -> tuple[hr.Session, object, object]:
    """A session, a dequeue that waits, and the enqueue that would end the wait."""
    with hr.Graph() as g:
        queue = hr.FIFOQueue(2, [hr.float32], [()])
        return hr.Session(graph=g), queue.dequeue(), queue.enqueue(1.0)


def test_a_run_that_waits_is_cancelled(waiting: tuple[hr.Session, object, object]) -> None:
    session, got, put = waiting
    cancellation = Cancellation()
    timer = threading.Timer(0.05, cancellation.cancel, ["the caller left"])
    timer.start()
    with pytest.raises(CancelledError, match="the caller left"):
        session.run(got, options=hr.RunOptions(cancellation=cancellation, timeout_in_ms=10_000))
    timer.join()
    assert cancellation.is_cancelled
    assert cancellation.running == 0
    session.run(put)
    assert session.run(got, options=hr.RunOptions(cancellation=Cancellation())) == 1.0


def test_a_run_that_begins_after_the_cancellation_fails(waiting: tuple[hr.Session, object, object]) -> None:
    session, got, _ = waiting
    cancellation = Cancellation()
    cancellation.cancel("the first reason")
    cancellation.cancel("the second reason")
    with pytest.raises(CancelledError, match="the first reason"):
        session.run(got, options=hr.RunOptions(cancellation=cancellation))


def test_a_run_that_ended_is_not_kept(waiting: tuple[hr.Session, object, object]) -> None:
    session, got, put = waiting
    cancellation = Cancellation()
    session.run(put)
    session.run(got, options=hr.RunOptions(cancellation=cancellation))
    assert cancellation.running == 0


def test_a_partial_run_is_cancelled() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (), name="x")
        y = hr.FIFOQueue(1, [hr.float32], [()]).dequeue() + x
    session, cancellation = hr.Session(graph=g), Cancellation()
    handle = session.partial_run_setup(y, [x], options=hr.RunOptions(cancellation=cancellation))
    assert cancellation.running == 1
    cancellation.cancel("the caller left")
    with pytest.raises(CancelledError, match="the caller left"):
        session.partial_run(handle, y, {x: 1.0})
