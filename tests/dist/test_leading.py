"""Threads that lead the reactor while they wait: jobs (`wait`), and threads outside it (`take`)."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.dist.reactor import Reactor
from headrace.errors import UnavailableError

pytestmark = [pytest.mark.system, pytest.mark.one_engine, pytest.mark.timeout(60)]


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    errors: list[BaseException] = []
    made = Reactor("test-leading", on_error=errors.append)
    yield made
    assert made.close()
    assert not errors


def run_in(reactor: Reactor, job: Callable[[], Any]) -> Any:
    """The result of a job, awaited without leading."""
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    reactor.submit(lambda: done.put(job()))
    return done.get(timeout=20)


def test_a_job_that_waits_runs_the_jobs_that_fulfil_its_condition(reactor: Reactor) -> None:
    found: list[int] = []
    threads: set[int] = set()

    def add() -> None:
        threads.add(threading.get_ident())
        found.append(len(found))
        if len(found) < 5:
            reactor.submit(add)

    def job() -> bool:
        threads.add(threading.get_ident())
        reactor.submit(add)
        return reactor.wait(lambda: len(found) == 5)

    assert run_in(reactor, job)
    assert found == [0, 1, 2, 3, 4]
    assert len(threads) == 1


def test_another_thread_ends_a_wait_by_a_submit(reactor: Reactor) -> None:
    found: list[int] = []

    def later() -> None:
        time.sleep(0.05)
        found.append(1)
        reactor.submit(lambda: None)

    def job() -> bool:
        threading.Thread(target=later).start()
        return reactor.wait(lambda: found)

    assert run_in(reactor, job)


def test_a_job_inside_a_wait_does_not_wait_itself(reactor: Reactor) -> None:
    seen: list[Any] = []

    def inner() -> None:
        seen.append((reactor.is_waiting(), reactor.wait(lambda: False)))

    def job() -> bool:
        reactor.submit(inner)
        return reactor.wait(lambda: seen)

    assert run_in(reactor, job)
    assert seen == [(True, False)]


def test_two_jobs_wait_for_each_other_in_threads_of_their_own(reactor: Reactor) -> None:
    """The first leads while it waits; the second, spawned, waits without leading."""
    pings: queue.SimpleQueue[int] = queue.SimpleQueue()
    pongs: list[int] = []

    def second() -> None:
        for _ in range(100):
            n = pings.get(timeout=20)
            pongs.append(n)
            reactor.submit(lambda: None)

    def first() -> int:
        reactor.spawn(second)
        for i in range(100):
            pings.put(i)
            while len(pongs) <= i:
                reactor.wait(lambda i=i: len(pongs) > i)  # type: ignore[misc]
        return len(pongs)

    assert run_in(reactor, first) == 100


def test_a_closing_reactor_ends_a_wait() -> None:
    reactor = Reactor("test-closing")
    results: queue.SimpleQueue[bool] = queue.SimpleQueue()
    reactor.submit(lambda: results.put(reactor.wait(lambda: False)))
    time.sleep(0.05)
    assert reactor.close()
    assert results.get(timeout=20) is False
    with pytest.raises(UnavailableError):
        reactor.spawn(lambda: None)


def test_a_thread_outside_serves_itself_after_its_first_wait(reactor: Reactor) -> None:
    me = threading.get_ident()
    source: queue.SimpleQueue[int] = queue.SimpleQueue()
    served, deadline = 0, time.monotonic() + 20.0
    while served < 20 and time.monotonic() < deadline:
        reactor.submit(lambda: source.put(threading.get_ident()))
        served += reactor.take(source, 20.0) == me
    assert served == 20  # the others were served before the leader stepped down


def test_a_wait_outside_ends_in_time(reactor: Reactor) -> None:
    source: queue.SimpleQueue[int] = queue.SimpleQueue()
    for _ in range(3):
        began = time.monotonic()
        with pytest.raises(queue.Empty):
            reactor.take(source, 0.05)
        assert 0.04 < time.monotonic() - began < 5.0


def test_the_reactor_goes_on_after_a_thread_that_led_has_left(reactor: Reactor) -> None:
    source: queue.SimpleQueue[int] = queue.SimpleQueue()
    for _ in range(20):
        reactor.submit(lambda: source.put(1))
        reactor.take(source, 20.0)
    for _ in range(20):  # no thread leads now, until the watcher does
        assert run_in(reactor, lambda: 7) == 7


def test_many_threads_outside_wait_at_once(reactor: Reactor) -> None:
    errors: list[BaseException] = []

    def client() -> None:
        try:
            source: queue.SimpleQueue[int] = queue.SimpleQueue()
            for i in range(100):
                reactor.submit(lambda i=i: source.put(i))  # type: ignore[misc]
                assert reactor.take(source, 20.0) == i
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=client) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(40)
    assert not errors


def test_an_interrupt_ends_a_wait_outside_and_leaves_the_reactor_alive(reactor: Reactor) -> None:
    source: queue.SimpleQueue[int] = queue.SimpleQueue()
    reactor.submit(lambda: source.put(1))
    reactor.take(source, 20.0)
    timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        reactor.take(source, 20.0)
    timer.join()
    assert run_in(reactor, lambda: 3) == 3
