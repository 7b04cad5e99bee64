"""Monitored sessions: the order of calls, their end, and training that resumes."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.errors import AbortedError, InvalidArgumentError, OutOfRangeError
from headrace.files import events
from headrace.train import global_step
from headrace.train.event_writer import FileWriterCache
from headrace.train.hooks import NanTensorHook, SessionRunArgs, SessionRunHook, StopAtStepHook, StopOnSignalHook
from headrace.train.monitored import MonitoredSession, MonitoredTrainingSession, SingularMonitoredSession
from headrace.train.queue_runner import QueueRunner
from headrace.v1 import monitored as tf_train

SECONDS = 20.0


class Story(SessionRunHook):
    """A hook that records its calls."""

    def __init__(self, told: list[str], name: str = "hook", **fails: BaseException) -> None:
        self.told, self.name, self.fails = told, name, fails

    def _tell(self, method: str) -> None:
        self.told.append(f"{self.name}.{method}")
        if method in self.fails:
            raise self.fails.pop(method)

    def begin(self) -> None:
        self._tell("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._tell("after_create_session")

    def before_run(self, run_context: Any) -> None:
        self._tell("before_run")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._tell("after_run")

    def end(self, session: Any) -> None:
        self._tell("end")

    def session_lost(self, error: BaseException) -> None:
        self._tell("session_lost")

    def release(self) -> None:
        self._tell("release")


@pytest.fixture
def counter() -> Any:
    """A graph whose `count` adds one to the global step."""
    with hr.Graph() as g:
        count = hr.identity(global_step.create_global_step().assign_add(1), name="count")
    return g, count


@pytest.fixture(autouse=True)
def _writers() -> Any:
    yield
    FileWriterCache.clear()


# *** order of calls ***


def test_hooks_are_called_in_order(counter: Any) -> None:
    g, count = counter
    told: list[str] = []
    with MonitoredSession(graph=g, hooks=[Story(told, "a"), Story(told, "b")]) as session:
        told.append("run")
        assert session.run(count) == 1
        assert not session.should_stop()
    assert told == [
        "a.begin", "b.begin", "a.after_create_session", "b.after_create_session", "run",
        "a.before_run", "b.before_run", "a.after_run", "b.after_run", "a.end", "b.end", "a.release", "b.release",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [MonitoredSession, SingularMonitoredSession])
def test_after_an_error_there_is_no_end_but_a_release(counter: Any, kind: Any) -> None:
    g, count = counter
    told: list[str] = []
    with pytest.raises(KeyError), kind(graph=g, hooks=[Story(told)]) as session:  # noqa: PT012
        session.run(count)
        raise KeyError("the user's own")
    assert told[-2:] == ["hook.after_run", "hook.release"]
    assert session.should_stop()
    assert session.graph is None
    with pytest.raises(RuntimeError, match="closed"):
        session.run(count)
    with pytest.raises(RuntimeError, match="already closed"):
        session.close()


@pytest.mark.parametrize("error", [OutOfRangeError("no more"), StopIteration("enough")])
def test_the_end_of_the_data_is_no_error(counter: Any, error: Exception) -> None:
    told: list[str] = []
    with MonitoredSession(graph=counter[0], hooks=[Story(told)]):
        raise error
    assert told[-2:] == ["hook.end", "hook.release"]


@pytest.mark.parametrize("method", ["begin", "after_create_session", "before_run", "after_run", "end"])
def test_an_error_of_a_hook_names_it(counter: Any, method: str) -> None:
    g, count = counter
    told: list[str] = []
    bad = Story(told, **{method: ZeroDivisionError("mine")})
    with pytest.raises(ZeroDivisionError, match="mine") as caught:  # noqa: SIM117
        with MonitoredSession(graph=g, hooks=[bad, Story(told, "other")]) as session:
            session.run(count)
    assert caught.value.__notes__ == [f"(raised by the hook Story, in {method}())"]
    assert told[-2:] == ["hook.release", "other.release"], "both let go of what they have"
    assert ("other.end" in told) == (method == "end"), "one that saves still does"


def test_a_hook_stops_and_a_run_after_that_is_an_error(counter: Any) -> None:
    g, count = counter
    with MonitoredSession(graph=g, hooks=[StopAtStepHook(2)]) as session:
        assert [session.run(count), session.run(count)] == [1, 2]
        assert session.should_stop()
        with pytest.raises(RuntimeError, match="after should_stop"):
            session.run(count)


def test_what_hooks_fetch_and_feed_goes_with_the_users_step(counter: Any) -> None:
    g, count = counter
    with g:
        x = hr.placeholder_with_default(1.0, (), name="x")
        y = hr.add(x, x, name="y")
    seen = []

    class Wants(SessionRunHook):
        def before_run(self, run_context: Any) -> SessionRunArgs:
            assert run_context.original_args == SessionRunArgs(count, None)
            return SessionRunArgs({"y": y, "both": [x, "y:0"]}, {x: 3.0})

        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append(run_values.results)

    with MonitoredSession(graph=g, hooks=[Wants(), Story([])]) as session:
        assert session.run(count) == 1
        assert session.run(count) == 2
    assert seen == [{"y": 6.0, "both": [3.0, 6.0]}] * 2


def test_a_step_function(counter: Any) -> None:
    g, count = counter
    told: list[str] = []
    with MonitoredSession(graph=g, hooks=[Story(told)]) as session:

        def step(step_context: Any) -> Any:
            first = step_context.session.run(count)
            return first, step_context.run_with_hooks(count)

        assert session.run_step_fn(step) == (1, 2)
        assert told.count("hook.before_run") == 1
        with pytest.raises(ValueError, match="step_context"):
            session.run_step_fn(lambda x: x)
        session.run_step_fn(lambda step_context: step_context.request_stop())
        raise AssertionError("not reached")  # pragma: no cover
    assert told[-2:] == ["hook.end", "hook.release"]


# *** threads ***


def test_queue_runners_of_v1_are_started_and_their_end_is_the_end() -> None:
    with tf.Graph().as_default():
        source = tf.FIFOQueue(10, [tf.int32], shapes=[()])
        q = tf.FIFOQueue(2, [tf.int32], shapes=[()])
        fill = tf.group(source.enqueue_many([[1, 2, 3]]))
        with tf.control_dependencies([fill]):
            init = source.close()
        tf.train.add_queue_runner(tf.train.QueueRunner(q, [q.enqueue(source.dequeue())]))
        got = q.dequeue()
        scaffold = tf_train.Scaffold(init_op=init)
        seen = []
        with tf_train.MonitoredSession(tf_train.ChiefSessionCreator(scaffold)) as session:
            while not session.should_stop():
                seen.append(int(session.run(got)))
        assert seen == [1, 2, 3]


def bad_queue() -> Any:
    """A graph with a queue whose runner fails."""
    with hr.Graph(ordered=False) as g:
        q = hr.FIFOQueue(2, [hr.int32], shapes=[()])
        runner = QueueRunner(q, [q.enqueue(hr.constant(1) // hr.placeholder_with_default(0, ()))])
        got = q.dequeue()
        g.kept.append(runner)
    return g, got


@pytest.mark.parametrize("kind", [MonitoredSession, SingularMonitoredSession])
def test_an_error_of_a_thread_reaches_the_user(kind: Any) -> None:
    g, got = bad_queue()
    with pytest.raises(InvalidArgumentError, match="division by zero"):  # noqa: PT012, SIM117
        with kind(graph=g, stop_grace_period_secs=SECONDS) as session:
            while not session.should_stop():
                session.run(got)


def test_the_graph_is_closed_while_it_trains() -> None:
    with tf.Graph().as_default() as g:
        x = tf.constant(1)
        with tf_train.MonitoredSession() as session:
            assert g.finalized
            with pytest.raises(RuntimeError, match="finalized"):
                tf.constant(2)
            session.run(x)
        assert not g.finalized
        tf.constant(3)


# *** training, stopping, going on ***


def linear(seed: int = 3) -> Any:
    """A graph that learns, with random numbers in each step: train op, loss, weights."""
    with hr.Graph() as g:
        step = global_step.create_global_step()
        w = hr.Variable(np.zeros(3, np.float32), name="w")
        x = hr.random.normal((3,), seed=seed)
        loss = hr.reduce_sum(hr.square(hr.reduce_sum(w * x) - hr.reduce_sum(x)))
        (gradient,) = hr.gradients(loss, w)
        with hr.control_dependencies([w.assign_sub(0.05 * gradient)]):
            train = step.assign_add(1)
        hr.summary.scalar("loss", loss)
    return g, train, w


def trained(folder: Path, *lasts: int, **kwargs: Any) -> tuple[list[int], np.ndarray]:
    """Runs one monitored session after the other; returns all steps done and the last weights."""
    g, train, w = linear()
    seen = []
    for last in lasts:
        with MonitoredTrainingSession(
            checkpoint_dir=folder, graph=g, hooks=[StopAtStepHook(last_step=last)], **kwargs
        ) as session:
            while not session.should_stop():
                seen.append(int(session.run(train)))
            weights = session._raw.run(w)
    return seen, weights


def test_a_run_that_is_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    whole, expected = trained(tmp_path / "whole", 12)
    parts, got = trained(tmp_path / "parts", 5, 12, save_summaries_steps=2, log_step_count_steps=2)
    assert parts == whole == list(range(1, 13))
    np.testing.assert_array_equal(got, expected)
    names = {p.name for p in (tmp_path / "parts").iterdir()}
    assert {"checkpoint", "graph.pbtxt", "model.ckpt-0.meta", "model.ckpt-5.meta", "model.ckpt-12.meta"} <= names
    (log,) = events.files_in(tmp_path / "parts")
    scalars: dict[str, list[int]] = {}
    for event in events.read(log):
        for value in event.summary.value:
            scalars.setdefault(value.tag, []).append(event.step)
    assert scalars["loss"] == [1, 3, 5, 6, 8, 10, 12]
    assert set(scalars["global_step/sec"]) <= set(range(1, 13))
    assert len(scalars["global_step/sec"]) >= 4


def test_a_newer_checkpoint_that_is_damaged_is_not_used(tmp_path: Path) -> None:
    trained(tmp_path, 4, save_checkpoint_steps=2)
    (data,) = tmp_path.glob("model.ckpt-4*.safetensors")
    raw = bytearray(data.read_bytes())
    raw[-1] ^= 1
    data.write_bytes(raw)
    with pytest.warns(hr.errors.HeadraceWarning, match=r"model.ckpt-4(.|\n)*model.ckpt-2"):
        again, _ = trained(tmp_path, 5, save_checkpoint_steps=100)
    assert again == [3, 4, 5]


def test_the_same_in_tensorflow_1s_names(tmp_path: Path) -> None:
    def train(last: int) -> list[Any]:
        with tf.Graph().as_default():
            step = tf.get_variable(
                "global_step", (), tf.int64, tf.zeros_initializer(), trainable=False,
                collections=[tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.GLOBAL_STEP],
            )  # fmt: skip
            w = tf.get_variable("w", initializer=1.0)
            local = tf.get_local_variable("local", initializer=10.0)
            words = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [7]), -1)
            found = words.lookup(tf.constant("a"))
            with tf.control_dependencies([w.assign(w * 2.0), tf.assign_add(local, 1.0)]):
                train_op = tf.assign_add(step, 1)
            hooks = [StopAtStepHook(last_step=last)]
            with tf_train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks) as session:
                while not session.should_stop():
                    session.run(train_op)
            with tf_train.SingularMonitoredSession(checkpoint_dir=str(tmp_path)) as session:
                return [v.item() for v in session.raw_session().run([step, w, local, found])]

    assert train(2) == [2, 4.0, 10.0, 7]
    assert train(5) == [5, 32.0, 10.0, 7]
    assert {p.name for p in tmp_path.iterdir()} >= {"model.ckpt-5.index", "model.ckpt-5.meta"}


def test_nan_stops_the_training(tmp_path: Path) -> None:
    with hr.Graph() as g:
        step = global_step.create_global_step()
        after = hr.cast(step.assign_add(1), hr.float32)
        loss = hr.sqrt(2.5 - after, name="loss")
    hooks = [NanTensorHook(loss, fail_on_nan_loss=False)]
    with MonitoredTrainingSession(checkpoint_dir=tmp_path, graph=g, hooks=hooks) as session:
        while not session.should_stop():
            session.run(loss)
    assert (tmp_path / "model.ckpt-3.meta").exists()


def test_without_a_folder_nothing_is_written_and_no_step_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with hr.Graph() as g:
        x = hr.constant(1)
    with MonitoredTrainingSession(graph=g) as session:
        assert session.run(x) == 1
    assert list(tmp_path.iterdir()) == []


def test_seconds_and_steps_are_one_too_many(counter: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="both every_secs and every_steps"):
        MonitoredTrainingSession(
            checkpoint_dir=tmp_path, graph=counter[0], save_checkpoint_secs=1, save_checkpoint_steps=1
        )
    with MonitoredTrainingSession(
        checkpoint_dir=tmp_path, graph=counter[0], save_checkpoint_secs=None, save_summaries_steps=None,
        log_step_count_steps=None,
    ) as session:  # fmt: skip
        session.run(counter[1])
    assert list(tmp_path.iterdir()) == []


# *** stopped by a signal ***

PROGRAM = """
import sys, time
import headrace as hr
from headrace.train import global_step, monitored
with hr.Graph() as g:
    count = global_step.create_global_step().assign_add(1)
stop = monitored.StopOnSignalHook()
with monitored.MonitoredTrainingSession(checkpoint_dir=sys.argv[1], graph=g, hooks=[stop]) as session:
    while not session.should_stop():
        n = session.run(count)
        if n == 3:
            print("training", flush=True)
        time.sleep(0.001)
print("stopped at", n, flush=True)
sys.exit(128 + stop.received if stop.received else 0)
"""


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_ends_well(tmp_path: Path, number: int) -> None:
    env = dict(os.environ, PYTHONPATH=str(Path(hr.__file__).parents[1]))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as child:
        try:
            assert child.stdout is not None
            began = child.stdout.readline()
            child.send_signal(number)
            out, err = child.communicate(timeout=60)
        finally:
            child.kill()
    assert began == "training\n", err
    assert child.returncode == 128 + number, err
    found = re.fullmatch(r"stopped at (\d+)\n", out)
    assert found is not None, out
    assert (tmp_path / f"model.ckpt-{found[1]}.meta").exists()
    assert "the training stops after this step" in err
    assert "Traceback" not in err


def test_handlers_are_what_they_were(counter: Any, caplog: pytest.LogCaptureFixture) -> None:
    g, count = counter
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    hook = StopOnSignalHook()
    with pytest.raises(KeyError), MonitoredSession(graph=g, hooks=[hook]) as session:  # noqa: PT012
        session.run(count)
        assert signal.getsignal(signal.SIGTERM) not in before
        raise KeyError
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
    again = MonitoredSession(graph=g, hooks=[StopOnSignalHook()])
    with pytest.raises(KeyboardInterrupt), again as session:  # noqa: PT012
        for _ in range(2):  # the second one counts at once
            os.kill(os.getpid(), signal.SIGINT)
            session.run(count)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
    limit = time.monotonic() + 20
    while not caplog.messages:  # a thread logs it: one that comes late would log into the next test
        assert time.monotonic() < limit
        time.sleep(0.001)
    assert caplog.messages == ["SIGINT: the training stops after this step (again: at once)"]


@pytest.mark.system
def test_a_step_that_waits_for_data_ends_by_a_signal() -> None:
    with hr.Graph(ordered=False) as g:
        q = hr.FIFOQueue(1, [hr.int32], shapes=[()])
        never = hr.FIFOQueue(1, [hr.int32], shapes=[()])
        g.kept.append(QueueRunner(q, [q.enqueue(never.dequeue())]))
        got = q.dequeue()
    told: list[str] = []

    class Soon(SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()

    hooks = [StopOnSignalHook(), Story(told), Soon()]
    with MonitoredSession(graph=g, hooks=hooks, stop_grace_period_secs=0.2) as session:
        session.run(got, options=hr.RunOptions(timeout_in_ms=int(SECONDS * 1000)))
    assert told[-2:] == ["hook.end", "hook.release"]


def test_signals_need_the_main_thread(counter: Any) -> None:
    errors: list[BaseException] = []

    def train() -> None:
        try:
            MonitoredSession(graph=counter[0], hooks=[StopOnSignalHook()])
        except ValueError as e:
            errors.append(e)

    t = threading.Thread(target=train)
    t.start()
    t.join(SECONDS)
    assert "main thread only" in str(errors[0])


# *** a step that failed ***


def test_a_step_that_was_aborted_is_done_again_from_the_last_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, expected = trained(tmp_path / "whole", 8)
    g, train, w = linear()
    told: list[str] = []

    class Abort(SessionRunHook):
        is_over = False

        def after_run(self, run_context: Any, run_values: Any) -> None:
            if run_context.session.run(g.variables[0]) == 5 and not self.is_over:
                self.is_over = True
                raise AbortedError("preempted")

    seen = []
    with MonitoredTrainingSession(
        checkpoint_dir=tmp_path / "parts", graph=g, save_checkpoint_steps=3,
        hooks=[StopAtStepHook(last_step=8), Story(told), Abort()], recovery=hr_recovery(),
    ) as session:  # fmt: skip
        while not session.should_stop():
            seen.append(int(session.run(train)))
        got = session._raw.run(w)
    assert seen == [1, 2, 3, 4, 4, 5, 6, 7, 8], "step 4 was done again, as the checkpoint is of step 3"
    np.testing.assert_array_equal(got, expected)
    assert told.count("hook.after_create_session") == 2
    assert told.count("hook.session_lost") == 1
    assert told.count("hook.begin") == told.count("hook.end") == 1
    (said,) = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert "a step failed with AbortedError: preempted" in said
    assert "A new session is made from the last checkpoint (attempt 1 of 10, in 0 s)" in said


def hr_recovery() -> Any:
    from headrace.train.recovery import Recovery

    return Recovery(wait_secs=0.0)
