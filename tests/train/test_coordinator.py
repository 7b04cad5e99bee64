"""Threads that stop together, and queue runners."""

from __future__ import annotations

import logging
import sys
import threading

import pytest

import headrace as hr
from headrace.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from headrace.train import Coordinator, QueueRunner
from headrace.train.coordinator import LooperThread

SECONDS = 20.0


def started(work: object, n: int = 1) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, daemon=True, name=f"worker-{i}") for i in range(n)]  # type: ignore[arg-type]
    for t in threads:
        t.start()
    return threads


def test_a_stop_reaches_every_thread() -> None:
    coord = Coordinator()
    ended = []

    def work() -> None:
        coord.wait_for_stop(SECONDS)
        ended.append(coord.should_stop())

    threads = started(work, 3)
    assert not coord.should_stop()
    coord.request_stop()
    coord.join(threads)
    assert ended == [True] * 3
    assert coord.joined
    coord.clear_stop()
    assert not coord.should_stop()


def test_the_first_error_is_raised_by_join() -> None:
    coord = Coordinator()

    def work() -> None:
        with coord.stop_on_exception():
            raise InvalidArgumentError("first")

    threads = started(work)
    threads[0].join(SECONDS)
    coord.request_stop(ValueError("second"))
    with pytest.raises(InvalidArgumentError, match="first"):
        coord.join(threads)


@pytest.mark.parametrize("error", [OutOfRangeError("no more"), CancelledError("closed")])
def test_the_end_of_the_data_is_no_error(error: Exception) -> None:
    coord = Coordinator()
    coord.request_stop(error)
    coord.join()
    for types in ((ValueError,), ()):
        strict = Coordinator(clean_stop_exception_types=types)
        strict.request_stop(error)
        with pytest.raises(type(error)):
            strict.join()


def test_what_exc_info_gives_is_an_error_too() -> None:
    coord = Coordinator()
    try:
        raise KeyError("k")
    except KeyError:
        coord.request_stop(sys.exc_info())
    with pytest.raises(KeyError):
        coord.join()


def test_an_error_after_the_end_is_raised_where_it_is() -> None:
    coord = Coordinator()
    coord.request_stop()
    coord.request_stop(ValueError("too late to count"))
    coord.join()
    coord.request_stop(OutOfRangeError("no error"))
    with pytest.raises(ValueError, match="nobody else hears of it"), coord.stop_on_exception():
        raise ValueError("nobody else hears of it")
    coord.clear_stop()
    with coord.stop_on_exception():
        raise ValueError("now it is heard of")
    with pytest.raises(ValueError, match="now it is heard of"):
        coord.raise_requested_exception()
    with pytest.raises(TypeError, match="takes an error"):
        coord.request_stop("because")


def test_a_thread_does_not_wait_for_itself() -> None:
    coord, ended = Coordinator(), threading.Event()

    def work() -> None:
        coord.request_stop()
        coord.join(stop_grace_period_secs=SECONDS)
        ended.set()

    thread = threading.Thread(target=work, daemon=True)
    coord.register_thread(thread)
    coord.register_thread(thread)
    thread.start()
    assert ended.wait(SECONDS)


def test_a_looper_works_until_it_is_told_to_stop() -> None:
    coord, told = Coordinator(), []

    class Looper(LooperThread):
        def start_loop(self) -> None:
            told.append("start")

        def stop_loop(self) -> None:
            told.append("stop")

        def run_loop(self) -> None:
            super().run_loop()
            if len(told) == 4:
                coord.request_stop()

    Looper(coord, None, lambda *args, **kwargs: told.append((args, kwargs)), [1], {"k": 2}).start()
    coord.join(stop_grace_period_secs=SECONDS)
    assert told == ["start", *[((1,), {"k": 2})] * 3, "stop"]


def test_a_looper_keeps_to_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call is late, and the third makes up for it.

    The clock advances as the looper waits and works.
    """
    now, waits, began = [0.0], [], []
    coord = Coordinator()
    monkeypatch.setattr("headrace.train.coordinator.time.monotonic", lambda: now[0])

    def wait(timeout: float) -> bool:
        waits.append(timeout)
        now[0] += timeout
        return len(began) == 4

    def work() -> None:
        began.append(now[0])
        now[0] += 2.5 if len(began) == 2 else 0.0

    monkeypatch.setattr(coord, "wait_for_stop", wait)
    LooperThread(coord, 1.0, work).run()
    assert began == [0.0, 1.0, 3.5, 3.5]
    assert waits == [0.0, 1.0, 0.0, 0.0, 0.5]


def test_an_error_of_a_looper_stops_all() -> None:
    coord = Coordinator()
    LooperThread.loop(coord, None, lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        coord.join(stop_grace_period_secs=SECONDS)
    with pytest.raises(TypeError, match="must be a Coordinator"):
        LooperThread(None, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="also pass 'target'"):
        LooperThread(coord, None, args=[1])


@pytest.mark.system
def test_threads_that_do_not_stop() -> None:
    coord, end = Coordinator(), threading.Event()
    threads = started(lambda: end.wait(SECONDS))
    coord.request_stop()
    with pytest.raises(RuntimeError, match="threads still running: worker-0; they must look at should_stop"):
        coord.join(threads, stop_grace_period_secs=0.1)
    coord.join(threads, stop_grace_period_secs=0.1, ignore_live_threads=True)
    end.set()


@pytest.fixture
def q() -> hr.FIFOQueue:
    with hr.Graph(ordered=False):
        return hr.FIFOQueue(3, [hr.int32], shapes=[()])


def test_a_runner_fills_a_queue_until_it_is_told_to_stop(q: hr.FIFOQueue) -> None:
    with q.queue_ref.graph:
        runner = QueueRunner(q, [q.enqueue(7)] * 2)
        one = q.dequeue()
    with hr.Session(graph=one.graph) as sess:
        coord = Coordinator()
        threads = runner.create_threads(sess, coord, daemon=True, start=True)
        assert len(threads) == 3
        assert runner.create_threads(sess, coord) == []  # they are running
        assert [sess.run(one) for _ in range(10)] == [7] * 10
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=SECONDS)  # the enqueues that wait are cancelled
        assert not any(t.is_alive() for t in threads)


def test_the_queue_is_closed_after_the_last_element(q: hr.FIFOQueue) -> None:
    with q.queue_ref.graph as g:
        source = hr.FIFOQueue(10, [hr.int32], shapes=[()])
        fill, end = source.enqueue_many([[1, 2, 3, 4]]), source.close()
        runner = QueueRunner(q, [q.enqueue(source.dequeue())])
        one = q.dequeue()
    with hr.Session(graph=g) as sess:
        sess.run(fill)
        sess.run(end)
        coord = Coordinator()
        threads = runner.create_threads(sess, coord, daemon=True, start=True)
        assert [sess.run(one) for _ in range(4)] == [1, 2, 3, 4]
        with pytest.raises(OutOfRangeError):
            sess.run(one, timeout_ms=20_000)
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=SECONDS)


def test_an_error_reaches_the_coordinator_or_is_kept(q: hr.FIFOQueue, caplog: pytest.LogCaptureFixture) -> None:
    with q.queue_ref.graph as g:
        bad = q.enqueue(hr.constant(1) // hr.placeholder_with_default(0, ()))
        runner = QueueRunner(q, [bad])
    with hr.Session(graph=g) as sess:
        coord = Coordinator()
        threads = runner.create_threads(sess, coord, daemon=True, start=True)
        with pytest.raises(InvalidArgumentError, match="division by zero"):
            coord.join(threads, stop_grace_period_secs=SECONDS)
        with caplog.at_level(logging.ERROR, "headrace"):
            (thread,) = runner.create_threads(sess, daemon=True, start=True)
            thread.join(SECONDS)
        assert [type(e) for e in runner.exceptions_raised] == [InvalidArgumentError]
        assert "division by zero" in caplog.text


def test_an_error_that_comes_when_nobody_waits_any_more(q: hr.FIFOQueue, caplog: pytest.LogCaptureFixture) -> None:
    """A thread that outlived the grace period fails as the session is closed.

    The failure is reported, without further effect.
    """
    with q.queue_ref.graph as g:
        never = hr.FIFOQueue(1, [hr.int32], shapes=[()])
        runner = QueueRunner(q, [q.enqueue(never.dequeue())])
    assert runner.queue_closed_exception_types == (OutOfRangeError,)
    sess, coord = hr.Session(graph=g), Coordinator(clean_stop_exception_types=[])
    threads = runner.create_threads(sess, coord, daemon=True, start=True)
    coord.request_stop()
    coord.join(stop_grace_period_secs=0.05, ignore_live_threads=True)
    with caplog.at_level(logging.DEBUG, "headrace"):
        sess.close()
        threads[0].join(SECONDS)
    assert not threads[0].is_alive()


def test_bad_runners(q: hr.FIFOQueue) -> None:
    with pytest.raises(ValueError, match="needs enqueue_ops"):
        QueueRunner(q, [])
    with pytest.raises(ValueError, match="needs a queue, or a close_op and a cancel_op"):
        QueueRunner(None, [hr.constant(1)])
