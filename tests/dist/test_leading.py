"""Threads outside of a reactor that lead it (`take`), and jobs apart (`spawn`)."""

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


def test_a_job_runs_in_a_thread_of_its_own(reactor: Reactor) -> None:
    """It waits for jobs of the reactor, which goes on."""
    pings: queue.SimpleQueue[int] = queue.SimpleQueue()
    pongs: queue.SimpleQueue[int] = queue.SimpleQueue()

    def apart() -> None:
        for _ in range(100):
            n = pings.get(timeout=20)
            reactor.submit(lambda n=n: pongs.put(n))  # type: ignore[misc]

    reactor.spawn(apart)
    for i in range(100):
        pings.put(i)
        assert pongs.get(timeout=20) == i


def test_a_closed_reactor_spawns_nothing() -> None:
    reactor = Reactor("test-closing")
    assert reactor.close()
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
