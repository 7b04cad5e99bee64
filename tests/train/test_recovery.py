"""Recovery: the errors that are retried, the number of attempts, and the final message."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import headrace as hr
from headrace.errors import AbortedError, CancelledError, InternalError, UnavailableError
from headrace.train import global_step
from headrace.train.hooks import SessionRunHook
from headrace.train.monitored import MonitoredSession, SingularMonitoredSession
from headrace.train.recovery import Recovery
from headrace.train.scaffold import ChiefSessionCreator, Scaffold, SessionCreator

AT_ONCE = Recovery(retries=3, wait_secs=0.0)


class Saver:
    """Nothing is ever saved."""

    def restore_latest(self, session: Any, folder: Any) -> None:
        return None


class Creator(ChiefSessionCreator):
    """Counts the sessions it has made; the first ones fail with `errors`."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__(Scaffold(saver=Saver()))
        self.errors, self.made = list(errors), 0

    def create_session(self) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        self.made += 1
        return super().create_session()


class Fails(SessionRunHook):
    """Fails in the steps that come first with `errors`, None for one that works."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.lost: list[BaseException] = []

    def before_run(self, run_context: Any) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error

    def session_lost(self, error: BaseException) -> None:
        self.lost.append(error)


@pytest.fixture
def counter() -> Any:
    with hr.Graph() as g:
        count = hr.identity(global_step.create_global_step().assign_add(1))
    return g, count


@pytest.mark.parametrize("kind", [AbortedError, UnavailableError])
def test_what_is_tried_again(counter: Any, kind: Any) -> None:
    g, count = counter
    creator, fails = Creator(), Fails(None, kind("once"), None, kind("twice"), kind("thrice"))
    with MonitoredSession(creator, [fails], graph=g, recovery=AT_ONCE) as session:
        assert [int(session.run(count)) for _ in range(4)] == [1, 1, 1, 2], "from the beginning: nothing was saved"
    assert creator.made == 4
    assert [str(e) for e in fails.lost] == ["once", "twice", "thrice"]


def test_what_is_not(counter: Any) -> None:
    g, count = counter
    creator = Creator()
    with pytest.raises(InternalError), MonitoredSession(creator, [Fails(InternalError("no"))], graph=g) as session:
        session.run(count)
    assert creator.made == 1
    hooks = [Fails(AbortedError("no"))]
    with pytest.raises(AbortedError), SingularMonitoredSession(hooks, Scaffold(saver=Saver()), graph=g) as single:
        single.run(count)
    wide = Recovery(wait_secs=0.0, errors=(InternalError,))
    with MonitoredSession(creator, [Fails(InternalError("yes"))], graph=g, recovery=wide) as session:
        assert session.run(count) == 1


def test_it_is_given_up_in_the_end(counter: Any, caplog: pytest.LogCaptureFixture) -> None:
    g, count = counter
    errors = [AbortedError("0"), UnavailableError("1"), AbortedError("2"), AbortedError("3")]
    creator = Creator()
    made = MonitoredSession(creator, [Fails(None, *errors)], graph=g, recovery=AT_ONCE)
    with pytest.raises(AbortedError, match="3") as caught, made as session:  # noqa: PT012
        session.run(count)
        session.run(count)
    assert creator.made == 4
    assert caught.value.__notes__ == [
        "(raised by the hook Fails, in before_run())",
        "(given up: 3 new sessions in a row did not help, the errors were AbortedError, UnavailableError; "
        "Recovery(retries=3) says how many are tried)",
    ]
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert [w.split(". A new")[0] for w in warned] == [
        "a step failed with AbortedError: 0", "a step failed with UnavailableError: 1",
        "a step failed with AbortedError: 2",
    ]  # fmt: skip


def test_a_session_that_cannot_be_made_is_tried_again_too(counter: Any) -> None:
    g, count = counter
    creator = Creator(UnavailableError("not yet"), UnavailableError("not yet"))
    with MonitoredSession(creator, graph=g, recovery=AT_ONCE) as session:
        assert session.run(count) == 1
    with pytest.raises(UnavailableError, match="never"):
        MonitoredSession(Creator(*[UnavailableError("never")] * 4), graph=g, recovery=AT_ONCE)
    with pytest.raises(ValueError, match="at all"):
        MonitoredSession(Creator(ValueError("at all")), graph=g, recovery=AT_ONCE)


def test_a_session_that_somebody_closed_is_replaced(counter: Any) -> None:
    g, count = counter
    creator = Creator()
    with MonitoredSession(creator, graph=g, recovery=AT_ONCE) as session:
        assert session.run(count) == 1
        session._raw.close()
        assert session.run(count) == 1
    assert creator.made == 2
    with (
        pytest.raises(CancelledError),
        MonitoredSession(creator, [Fails(CancelledError("of its own"))], graph=g, recovery=AT_ONCE) as session,
    ):
        session.run(count)


def test_a_step_function_is_called_again_with_the_new_session(counter: Any) -> None:
    g, count = counter
    seen = []

    def step(step_context: Any) -> Any:
        seen.append(step_context.session)
        return step_context.run_with_hooks(count)

    with MonitoredSession(Creator(), [Fails(AbortedError("once"))], graph=g, recovery=AT_ONCE) as session:
        assert session.run_step_fn(step) == 1
    assert len(seen) == len(set(map(id, seen))) == 2


def test_a_thread_that_was_preempted_is_the_cause(counter: Any) -> None:
    """The error of an aborted thread counts as the cause of a failed step.

    The step fails as its queue is closed, because the thread that filled it was aborted.
    """
    g, count = counter
    creator = Creator()

    class Thread(SessionRunHook):
        is_over = False

        def after_create_session(self, session: Any, coord: Any) -> None:
            self.coord = coord

        def before_run(self, run_context: Any) -> None:
            if not self.is_over:
                self.is_over = True
                self.coord.request_stop(AbortedError("the thread"))
                raise ValueError("what came of it")

    with MonitoredSession(creator, [Thread()], graph=g, recovery=AT_ONCE) as session:
        assert session.run(count) == 1
    assert creator.made == 2


def test_should_stop_replaces_a_session_whose_thread_was_preempted(counter: Any) -> None:
    g, count = counter
    creator = Creator()
    coords = []

    class Keep(SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            coords.append(coord)

    with MonitoredSession(creator, [Keep()], graph=g, recovery=AT_ONCE) as session:
        coords[0].request_stop(AbortedError("the thread"))
        assert not session.should_stop()
        assert session.run(count) == 1
        assert len(coords) == 2
        coords[1].request_stop()
        assert session.should_stop()
    assert creator.made == 2


def test_closing_ends_the_wait_for_another_attempt(counter: Any) -> None:
    g, count = counter
    slow = Recovery(wait_secs=1000.0, longest_wait_secs=1000.0)
    session = MonitoredSession(Creator(), [Fails(AbortedError("a"))], graph=g, recovery=slow)
    is_waiting = threading.Event()
    wait = session._attempts._wait
    session._attempts._wait = lambda seconds: is_waiting.set() or wait(seconds)  # type: ignore[func-returns-value]
    errors: list[BaseException] = []

    def train() -> None:
        try:
            session.run(count)
        except AbortedError as e:
            errors.append(e)

    t = threading.Thread(target=train)
    t.start()
    assert is_waiting.wait(20.0)
    session.close()
    t.join(20.0)
    assert not t.is_alive()
    assert errors[0].__notes__[-1] == "(not tried again: the session is being closed)"


def test_pauses_grow_up_to_a_limit() -> None:
    r = Recovery(wait_secs=0.5, longest_wait_secs=3.0)
    assert [r.wait_before(n) for n in (1, 2, 3, 4, 5, 10_000)] == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]
    for name in ("retries", "wait_secs", "longest_wait_secs"):
        with pytest.raises(ValueError, match=f"{name} must not be negative"):
            Recovery(**{name: -1})


def test_a_creator_need_not_be_ours(counter: Any) -> None:
    g, count = counter

    class Mine(SessionCreator):
        def create_session(self) -> Any:
            session = hr.Session(graph=g)
            session.run(g.variables[0].initializer)
            return session

    with MonitoredSession(Mine(), [Fails(AbortedError("a"))], graph=g, recovery=AT_ONCE) as session:
        assert session.run(count) == 1
