"""Long waits and Ctrl-C: the text about the operation that a step waits for."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import headrace as hr
from headrace import flags
from headrace.errors import DeadlineExceededError
from headrace.execute.clock import Source
from tests.execute.clocks import ManualClock
from tests.inside import use_clock

pytestmark = pytest.mark.one_engine


class Interrupting(ManualClock):
    """A clock on which Ctrl-C ends the first wait."""

    def take(self, source: Source[Any], timeout: float) -> Any:
        if not self.waits:
            self.waits = 1
            raise KeyboardInterrupt
        return super().take(source, timeout)


def in_a_loop() -> Any:
    q = hr.FIFOQueue(3, [hr.float32], shapes=[()], name="q")
    return hr.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v + q.dequeue(name="get")), (0, 0.0), name="w")[1]


def of_a_pipeline() -> Any:
    return hr.train.range_input_producer(3, shuffle=False).dequeue(name="get")


def run(build: Any, clock: ManualClock, **session: Any) -> Any:
    with hr.Graph() as g:
        y = build()
    with hr.Session(graph=g, **session) as s:
        use_clock(s, clock)
        return s.run(y)


def interrupted(build: Any, **session: Any) -> str:
    with pytest.raises(KeyboardInterrupt) as caught:
        run(build, Interrupting(), **session)
    (note,) = caught.value.__notes__
    return str(note)


# *** long waits ***


def test_a_long_wait_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DeadlineExceededError, match="has waited 600 s without any progress for 'w/get'"):
        run(in_a_loop, ManualClock(expires=True))
    (line,) = capfd.readouterr().err.splitlines()
    assert " has waited 30 s for 'w/get' (QueueDequeueV2), made at " in line
    assert " in iteration 0 of loop 'w', on the empty FIFOQueue 'q'. HEADRACE_SILENT_WAIT sets" in line


def test_a_long_wait_is_a_record_where_the_program_logs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace.session"), pytest.raises(DeadlineExceededError):
        run(of_a_pipeline, ManualClock(expires=True), devices={"CPU": 2})
    (line,) = [r.getMessage() for r in caplog.records if "has waited" in r.getMessage()]
    assert line.count("call hr.train.start_queue_runners(session)") == 1


def test_the_flag_sets_the_time_or_none(capfd: pytest.CaptureFixture[str]) -> None:
    with flags.override(SILENT_WAIT=0), pytest.raises(DeadlineExceededError):
        run(in_a_loop, ManualClock(expires=True))
    assert not capfd.readouterr().err
    with flags.override(SILENT_WAIT=7.5), pytest.raises(DeadlineExceededError):
        run(in_a_loop, ManualClock(expires=True))
    assert "has waited 7.5 s" in capfd.readouterr().err


# *** Ctrl-C ***


def test_ctrl_c_names_the_operation_its_loop_and_its_queue() -> None:
    note = interrupted(in_a_loop)
    assert note.startswith("the step was interrupted while it waited for 'w/get' (QueueDequeueV2), made at ")
    assert note.endswith("in iteration 0 of loop 'w', on the empty FIFOQueue 'q'")


@pytest.mark.parametrize("devices", [1, 2])
def test_ctrl_c_names_queue_runners_that_were_not_started(devices: int) -> None:
    def build() -> Any:
        got = of_a_pipeline()
        with hr.device(f"/cpu:{devices - 1}"):
            return hr.identity(got)

    assert interrupted(build, devices={"CPU": devices}).endswith(
        "on the empty FIFOQueue 'input_producer'; its queue runners were not started: "
        "call hr.train.start_queue_runners(session)"
    )


def test_queue_runners_that_have_run_are_not_named() -> None:
    with hr.Graph() as g:
        source = hr.FIFOQueue(1, [hr.int32], shapes=[()], name="source")
        q = hr.FIFOQueue(1, [hr.int32], shapes=[()], name="q")
        runner = hr.train.QueueRunner(q, [q.enqueue([source.dequeue()])])
        hr.train.add_queue_runner(runner)
        got = q.dequeue()
    with hr.Session(graph=g) as s:
        runner.create_threads(s)  # not started: no other thread waits by the clock
        use_clock(s, Interrupting())
        with pytest.raises(KeyboardInterrupt) as caught:
            s.run(got)
        assert caught.value.__notes__[0].endswith("on the empty FIFOQueue 'q'")


@pytest.mark.parametrize("engine", ["auto", "interpret"])
@pytest.mark.parametrize("native", ["off", "on"])
def test_ctrl_c_while_an_operation_computes_names_it(engine: str, native: str) -> None:
    def interrupt(v: Any) -> Any:
        if v == 2:
            raise KeyboardInterrupt
        return v

    def build() -> Any:
        body = lambda i: (hr.numpy_function(interrupt, [i], hr.int32, name="f") + 1,)
        return hr.while_loop(lambda i: i < 5, lambda i: (hr.ensure_shape(body(i)[0], ()),), (0,), name="w")[0]

    with flags.override(NATIVE=native), pytest.raises(KeyboardInterrupt) as caught:
        run(build, ManualClock(), engine=engine)
    assert "interrupted in 'w/f' (" in caught.value.__notes__[0]
    assert "iteration 2 of loop 'w'" in caught.value.__notes__[0]
