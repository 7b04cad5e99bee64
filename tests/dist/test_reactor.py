"""The reactor: one thread leads, wake-ups are not lost, long jobs do not stop it."""

from __future__ import annotations

import gc
import itertools
import os
import random
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.dist import reactor as module
from headrace.dist.reactor import READ, WRITE, Reactor
from headrace.errors import FailedPreconditionError, UnavailableError
from tests.dist.waits import SECONDS, ManualClock, await_, until

pytestmark = pytest.mark.system

FOREVER = 1000.0  # period of a watchdog that does nothing


@pytest.fixture(params=["native", "portable"])
def poller(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "portable":
        monkeypatch.setattr(module, "make_poller", module._PortablePoller)


@pytest.fixture
def make(poller: None) -> Iterator[Callable[..., Reactor]]:
    """Makes reactors, which must have no errors that the test does not take from `errors`."""
    made: list[Reactor] = []
    errors: list[BaseException] = []

    def make(**options: Any) -> Reactor:
        r = Reactor("test", **{"on_error": errors.append, **options})
        r.errors = errors  # type: ignore[attr-defined]
        made.append(r)
        return r

    threads, files = threading.active_count(), open_files()
    yield make
    for r in made:
        assert r.close(SECONDS)
    assert errors == []
    until(lambda: threading.active_count() == threads)
    assert open_files() == files


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


# *** jobs ***


def test_jobs_run_in_the_order_of_their_submission(make: Callable[..., Reactor]) -> None:
    r, seen, done = make(), [], threading.Event()
    for i in range(1000):
        r.submit(lambda i=i: seen.append(i))
    r.submit(done.set)
    await_(done)
    assert seen == list(range(1000))


def test_no_wake_up_is_lost_with_many_threads(make: Callable[..., Reactor]) -> None:
    r = make()

    def run(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(300):
            done = threading.Event()
            r.submit(done.set)
            await_(done)  # a lost wake-up fails here
            if rng.random() < 0.2:
                time.sleep(rng.random() * 0.001)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(SECONDS)
        assert not t.is_alive()


def test_no_wake_up_is_lost_between_two_reactors(make: Callable[..., Reactor]) -> None:
    a, b, left, done = make(), make(), [3000], threading.Event()

    def step() -> None:
        left[0] -= 1
        if left[0] < 0:
            done.set()
        else:
            (a, b)[left[0] % 2].submit(step)

    a.submit(step)
    await_(done)


def test_a_job_may_submit_jobs(make: Callable[..., Reactor]) -> None:
    r, done = make(), threading.Event()
    r.submit(lambda: r.submit(lambda: r.submit(done.set)))
    await_(done)


def test_an_error_of_a_job_is_reported_and_the_next_job_runs(make: Callable[..., Reactor]) -> None:
    errors: list[BaseException] = []
    r, done = make(on_error=errors.append), threading.Event()
    r.submit(lambda: 1 // 0)
    r.submit(lambda: sys.exit(3))
    r.submit(done.set)
    await_(done)
    assert [type(e) for e in errors] == [ZeroDivisionError, SystemExit]


def test_an_error_of_on_error_is_logged(make: Callable[..., Reactor], caplog: pytest.LogCaptureFixture) -> None:
    r, done = make(on_error=lambda e: [][0]), threading.Event()
    r.submit(lambda: 1 // 0)
    r.submit(done.set)
    await_(done)
    assert "IndexError" in caplog.text


def test_by_default_errors_are_logged_with_their_traceback(
    make: Callable[..., Reactor], caplog: pytest.LogCaptureFixture
) -> None:
    r, done = make(on_error=None), threading.Event()
    r.submit(lambda: 1 // 0)
    r.submit(done.set)
    await_(done)
    (record,) = caplog.records
    assert record.name == "headrace.dist"
    assert record.levelname == "WARNING"
    assert "r.submit(lambda: 1 // 0)" in caplog.text


def test_a_job_is_dropped_after_it_has_run(make: Callable[..., Reactor]) -> None:
    class Job:
        def __call__(self) -> None:
            pass

        def __del__(self) -> None:
            gone.set()

    r, gone = make(), threading.Event()
    r.submit(Job())
    await_(gone)


# *** the lead ***


def test_busy_hands_over_the_lead(make: Callable[..., Reactor]) -> None:
    r, entered, released, left = make(watch_period=FOREVER), *(threading.Event() for _ in range(3))
    active: list[bool] = []

    def long() -> None:
        active.append(r.is_active())
        r.busy()
        active.append(r.is_active())
        r.busy()  # without effect now
        entered.set()
        await_(released)
        left.set()

    r.submit(long)
    r.submit(released.set)  # only another thread can run it
    await_(left)
    assert active == [True, False]
    assert not r.is_active()
    r.busy()  # without effect in other threads


def test_threads_that_were_busy_are_used_again(make: Callable[..., Reactor]) -> None:
    r = make(watch_period=FOREVER)
    threads: set[str] = set()
    for _ in range(50):
        done = threading.Event()

        def job(done: threading.Event = done) -> None:
            threads.add(threading.current_thread().name)
            r.busy()
            done.set()

        r.submit(job)
        await_(done)
        time.sleep(0.001)
    assert len(threads) <= 4


def test_many_jobs_are_busy_at_once(make: Callable[..., Reactor]) -> None:
    r, barrier, done = make(watch_period=FOREVER), threading.Barrier(10), threading.Semaphore(0)

    def job() -> None:
        r.busy()
        barrier.wait(SECONDS)
        done.release()

    for _ in range(10):
        r.submit(job)
    for _ in range(10):
        assert done.acquire(timeout=SECONDS)


def test_surplus_spare_threads_end(make: Callable[..., Reactor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPARE_LIFE", 0.05)
    before = threading.active_count()
    r, barrier = make(), threading.Barrier(6)

    def job() -> None:
        r.busy()
        barrier.wait(SECONDS)

    for _ in range(6):
        r.submit(job)
    until(lambda: threading.active_count() >= before + 6)
    until(lambda: threading.active_count() == before + 2)  # the leader and the watcher
    done = threading.Event()
    r.submit(done.set)
    await_(done)


def test_busy_has_no_effect_if_all_threads_are_in_jobs(make: Callable[..., Reactor]) -> None:
    r, entered, released, done = make(most_threads=1), *(threading.Event() for _ in range(3))

    def job() -> None:
        r.busy()
        assert r.is_active()
        entered.set()
        await_(released)

    r.submit(job)
    r.submit(done.set)
    await_(entered)
    assert not done.wait(0.1)
    released.set()
    await_(done)


def test_busy_while_another_thread_takes_the_lead(make: Callable[..., Reactor]) -> None:
    """A thread with the baton notes itself as the leader only with the lock."""
    r = make(watch_period=FOREVER)
    results: list[bool] = []
    done = threading.Event()

    def job() -> None:
        baton = r._baton.pop()  # as another thread does after its job, before it takes the lock
        results.append(r.is_active())
        r.busy()
        results.append(r.is_active())
        r._leader = baton
        r._baton.append(baton)
        done.set()

    r.submit(job)
    await_(done)
    assert results == [True, False]


def test_the_watchdog_takes_the_lead_from_a_long_job(make: Callable[..., Reactor]) -> None:
    r = make()
    for _ in range(5):
        released, done = threading.Event(), threading.Event()

        def job(released: threading.Event = released, done: threading.Event = done) -> None:
            await_(released)
            done.set()

        r.submit(job)
        r.submit(released.set)
        await_(done)
        time.sleep(0.01)


def test_the_watchdog_takes_the_lead_from_several_long_jobs(make: Callable[..., Reactor]) -> None:
    r, barrier, done = make(watch_period=0.002), threading.Barrier(8), threading.Semaphore(0)

    def job() -> None:
        barrier.wait(SECONDS)
        done.release()

    for _ in range(8):
        r.submit(job)
    for _ in range(8):
        assert done.acquire(timeout=SECONDS)


def test_the_watchdog_leaves_short_jobs_alone(make: Callable[..., Reactor]) -> None:
    r, threads, done = make(watch_period=0.1), set(), threading.Event()
    end = time.monotonic() + 0.35

    def job() -> None:
        threads.add(threading.get_ident())
        if time.monotonic() < end:
            time.sleep(0.001)
            r.submit(job)
        else:
            done.set()

    r.submit(job)
    await_(done)
    assert len(threads) == 1


def test_one_thread_polls_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs are long or short, and the watchdog takes the lead all the time."""
    overlaps, polling = [], threading.Lock()

    class Poller(module._PortablePoller):
        def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
            if not polling.acquire(blocking=False):
                overlaps.append(1)
                return []
            try:
                return super().poll(timeout, maxevents)
            finally:
                polling.release()

    monkeypatch.setattr(module, "make_poller", Poller)
    errors: list[BaseException] = []
    r, rng, count, lock, done = (
        Reactor("x", on_error=errors.append, watch_period=0.0005),
        random.Random(1),
        [0],
        threading.Lock(),
        threading.Event(),
    )
    total = 1500

    def job() -> None:
        with lock:
            kind, pause = rng.randrange(6), rng.random() * 0.002
        if kind == 0:
            r.busy()
        if kind <= 1:
            time.sleep(pause)
        if kind == 2:
            r.call_later(pause, finish)
        else:
            finish()

    def finish() -> None:
        with lock:
            count[0] += 1
            if count[0] == total:
                done.set()

    for i in range(total):
        r.submit(job)
        if i % 50 == 0:
            time.sleep(0.001)
    await_(done)
    assert r.close(SECONDS)
    assert (overlaps, errors) == ([], [])


# *** timers ***


def test_timers_run_in_the_order_of_their_times(make: Callable[..., Reactor]) -> None:
    clock = ManualClock()
    r, seen = make(clock=clock), []
    for seconds in (3.0, 1.0, 2.0, 1.0):
        r.call_later(seconds, lambda s=seconds: seen.append(s))
    clock.advance(0.99, r)
    time.sleep(0.01)
    assert seen == []
    clock.advance(0.01, r)
    until(lambda: seen == [1.0, 1.0])
    clock.advance(5.0, r)
    until(lambda: seen == [1.0, 1.0, 2.0, 3.0])


def test_a_timer_wakes_the_poll(make: Callable[..., Reactor]) -> None:
    r = make()
    time.sleep(0.01)  # it polls
    for _ in range(20):
        done, start = threading.Event(), time.monotonic()
        r.call_later(0.003, done.set)
        await_(done)
        assert time.monotonic() - start >= 0.003


def test_a_cancelled_timer_does_not_run(make: Callable[..., Reactor]) -> None:
    clock = ManualClock()
    r, seen = make(clock=clock), []
    timers = [r.call_later(1.0, lambda i=i: seen.append(i)) for i in range(10)]
    for t in timers[1:]:
        t.cancel()
        t.cancel()
    clock.advance(2.0, r)
    until(lambda: seen == [0])
    timers[0].cancel()  # too late


def test_cancelled_timers_are_removed(make: Callable[..., Reactor]) -> None:
    r = make()
    kept = r.call_later(3600.0, lambda: None)
    for _ in range(5000):
        r.call_later(3600.0, lambda: None).cancel()
    assert len(r._timers) < 500
    kept.cancel()


# *** sockets ***


def test_callbacks_of_sockets_run_while_jobs_never_end(make: Callable[..., Reactor]) -> None:
    r, (a, b), got, is_on = make(), socket.socketpair(), threading.Event(), [True]

    def again() -> None:
        if is_on:
            r.submit(again)

    r.submit(again)
    r.register(a.fileno(), got.set, lambda: None)
    b.send(b"x")
    await_(got)
    is_on.clear()
    r.unregister(a.fileno())
    a.close(), b.close()


def test_interests_take_effect_during_a_poll(make: Callable[..., Reactor]) -> None:
    r, (a, b), got = make(), socket.socketpair(), []
    writable = threading.Event()

    def is_writable() -> None:
        r.set_interest(a.fileno(), 0)
        writable.set()

    r.register(a.fileno(), lambda: got.append(a.recv(10)), is_writable, 0)
    b.send(b"x")
    time.sleep(0.02)
    assert got == []
    r.set_interest(a.fileno(), READ)
    until(lambda: got == [b"x"])
    r.set_interest(a.fileno(), READ | WRITE)
    await_(writable)
    b.send(b"y")
    time.sleep(0.02)
    assert got == [b"x"]
    r.unregister(a.fileno())
    a.close(), b.close()


# *** the end ***


def test_close_runs_submitted_jobs_and_refuses_others(make: Callable[..., Reactor]) -> None:
    r, seen = make(), []
    for i in range(100):
        r.submit(lambda i=i: seen.append(i))
    assert r.close()
    assert seen == list(range(100))
    for refused in (lambda: r.submit(print), lambda: r.call_later(1.0, print), lambda: r.register(0, print, print)):
        with pytest.raises(UnavailableError, match="the reactor is closed"):
            refused()
    assert r.close()


def test_a_job_may_close_the_reactor(make: Callable[..., Reactor]) -> None:
    before = threading.active_count()
    for most in (1, 64):
        r = make(most_threads=most)
        r.submit(r.close)
        until(lambda: threading.active_count() == before)


def test_several_threads_may_close_the_reactor(make: Callable[..., Reactor]) -> None:
    r, results = make(), []
    threads = [threading.Thread(target=lambda: results.append(r.close(SECONDS))) for _ in range(4)]
    for _ in range(4):
        r.submit(r.close)
    for t in threads:
        t.start()
    for t in threads:
        t.join(SECONDS)
    assert len(results) == 4


def test_close_does_not_wait_for_a_long_job_beyond_its_deadline(make: Callable[..., Reactor]) -> None:
    r, entered, released = make(), threading.Event(), threading.Event()

    def job() -> None:
        r.busy()
        entered.set()
        await_(released)

    r.submit(job)
    await_(entered)
    start = time.monotonic()
    assert not r.close(0.05)
    assert time.monotonic() - start < 5.0
    released.set()


def test_a_forked_process_gets_a_clear_error(make: Callable[..., Reactor]) -> None:
    r, done = make(), threading.Event()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of a fork with threads
        pid = os.fork()
    if not pid:
        code = 1
        try:
            for refused in (lambda: r.submit(print), lambda: r.call_later(0, print)):
                with pytest.raises(FailedPreconditionError, match="forked"):
                    refused()
            assert r.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    r.submit(done.set)
    await_(done)


def test_the_alarm_of_a_closed_reactor_reads_no_descriptor() -> None:
    """A thread may be about to silence the alarm while another one closes the reactor."""
    reactor = Reactor("test-alarm")
    assert reactor.close()
    reactor._silence()


def test_a_job_of_another_thread_at_the_end_is_run_or_refused(make: Callable[..., Reactor]) -> None:
    """A thread submits while the leader empties the queue for the last time."""
    for _ in range(50):
        r, ran, refused = make(), [], []

        def run(r: Reactor = r, ran: list[int] = ran, refused: list[int] = refused) -> None:
            for i in itertools.count():
                try:
                    r.submit(lambda i=i: ran.append(i))  # type: ignore[misc]
                except UnavailableError:
                    refused.append(i)
                    return

        thread = threading.Thread(target=run)
        thread.start()
        assert r.close(SECONDS)
        thread.join(SECONDS)
        until(lambda ran=ran, refused=refused: len(ran) == refused[0])


def test_a_job_that_is_submitted_in_the_last_round_is_run(
    make: Callable[..., Reactor], monkeypatch: pytest.MonkeyPatch
) -> None:
    r, ran = make(), []
    close = r._poller.close
    # after the last round of `_shut`, and before its end
    monkeypatch.setattr(r, "_poller", Poller(r._poller, lambda: (r._jobs.append(lambda: ran.append(1)), close())))
    assert r.close()
    assert ran == [1]


class Poller:
    """A poller with another `close`."""

    def __init__(self, poller: Any, close: Callable[[], object]) -> None:
        self._poller = poller
        self.close = close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poller, name)
