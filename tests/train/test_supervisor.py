"""Supervisors: their services, ends and errors; and how session managers treat targets and lost servers."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import pb
from headrace import session as sessions
from headrace.errors import AbortedError, DeadlineExceededError, GraphError, OutOfRangeError, UnavailableError
from headrace.files import events
from headrace.train import session_manager
from headrace.train.monitored import MonitoredTrainingSession, SingularMonitoredSession
from headrace.train.recovery import Recovery
from headrace.train.scaffold import report_uninitialized
from headrace.train.session_manager import SessionManager
from headrace.train.supervisor import Supervisor, basic_train_loop
from headrace.v1 import session as v1_sessions

system = pytest.mark.system  # files and threads
SECONDS = 20.0


class Model:
    """A graph that counts steps."""

    def __init__(self) -> None:
        with hr.Graph() as self.graph:
            self.step = hr.train.create_global_step()
            hr.summary.scalar("count", self.step)  # before the update: a later read waits for it, and would run it
            self.count = hr.identity(self.step.assign_add(1))

    def supervisor(self, **kwargs: Any) -> Supervisor:
        return Supervisor(graph=self.graph, **kwargs)


def written(folder: Path) -> list[Any]:
    """The events of all files in a folder."""
    return [e for path in sorted(folder.glob("events.*")) for e in events.read(path)]


def logs(folder: Path) -> list[tuple[int, int]]:
    return [(e.session_log.status, e.step) for e in written(folder) if e.HasField("session_log")]


# *** running ***


@system
def test_training_is_saved_written_and_resumed(tmp_path: Path) -> None:
    model = Model()
    supervisor = model.supervisor(logdir=tmp_path, save_model_secs=0)
    for last in (3, 5):
        with supervisor.managed_session() as session:
            while not supervisor.should_stop():
                n = session.run(model.count)
                if n == last:
                    supervisor.saver.save(session, supervisor.save_path, global_step=int(n))
                    supervisor.request_stop()
        assert n == last
    assert supervisor.save_path == str(tmp_path / "model.ckpt")
    assert (tmp_path / "graph.pbtxt").exists()
    assert list(tmp_path.glob("model.ckpt-3*"))
    assert list(tmp_path.glob("model.ckpt-5*"))
    found = logs(tmp_path)
    assert (found[0], found[-1]) == ((1, 0), (2, 0)), "a start and a stop"
    assert (1, 3) in found, "the second start is at the step of the checkpoint"
    assert [e for e in written(tmp_path) if e.graph_def]


@system
def test_services_work_at_intervals(tmp_path: Path) -> None:
    model = Model()
    supervisor = model.supervisor(logdir=tmp_path, save_summaries_secs=0.01, save_model_secs=0.01)
    saved = threading.Event()
    save = supervisor.saver.save
    supervisor.saver.save = lambda *args, **kwargs: (save(*args, **kwargs), saved.set())
    with supervisor.managed_session() as session:
        for _ in range(3):
            session.run(model.count)
            assert not supervisor._coord.wait_for_stop(0.03)
        assert saved.wait(SECONDS)
    tags = {v.tag for e in written(tmp_path) for v in e.summary.value}
    assert tags == {"count", "global_step/sec"}
    assert 3 in {status for status, _ in logs(tmp_path)}, "a checkpoint"


@system
def test_v1_programs(tmp_path: Path) -> None:
    with tf.Graph().as_default() as g:
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", initializer=4.0)
        train = tf.train.GradientDescentOptimizer(0.25).minimize(tf.square(w), global_step=step)
        tf.summary.scalar("w", w)
        sv = tf.train.Supervisor(logdir=str(tmp_path))
        with sv.managed_session() as sess:
            while not sv.should_stop():
                sess.run(train)
                if tf.train.global_step(sess, step) == 2:
                    sv.RequestStop()
            assert sess.run(w) == 1.0
        for key, piece in (
            ("READY_OP", "ready_op"),
            ("INIT_OP", "init_op"),
            ("SUMMARY_OP", "summary_op"),
            ("SAVERS", "saver"),
        ):
            assert g.get_collection(getattr(tf.GraphKeys, key)) == [getattr(sv, piece)]
        assert len(g.get_collection(tf.GraphKeys.LOCAL_INIT_OP)) == 1
        assert g.finalized
        assert isinstance(sv.session_manager, tf.train.SessionManager)
        again = tf.train.Supervisor(init_op=None, saver=None, summary_op=None, ready_op=None, logdir=str(tmp_path))
        assert (again.init_op, again.saver, again.summary_op, again.ready_op) == (None, None, None, None)
        assert again.global_step is step
        again.stop()


@system
def test_queues_are_filled_and_their_end_is_the_end() -> None:
    with hr.Graph() as g:
        number = hr.train.range_input_producer(3, num_epochs=1, shuffle=False).dequeue()
    supervisor = Supervisor(graph=g)
    seen = []
    with supervisor.managed_session() as session:
        while not supervisor.should_stop():
            seen.append(int(session.run(number)))
    assert seen == [0, 1, 2]
    assert supervisor.should_stop()


def test_initialization_is_that_of_the_arguments() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
        v, w = hr.Variable(1.0, name="v"), hr.Variable(2.0, name="w")
        init = hr.group(v.assign(x).op, w.initializer)
        local = w.assign(9.0).op
    calls: list[Any] = []
    supervisor = Supervisor(
        graph=g, init_op=init, init_feed_dict={x: 5.0}, local_init_op=local, init_fn=calls.append, global_step=None
    )
    with supervisor.managed_session(start_standard_services=False) as session:
        assert session.run([v, w]) == [5.0, 9.0]
    assert len(calls) == 1
    assert (supervisor.init_op, supervisor.init_feed_dict) == (init, {x: 5.0})
    with pytest.raises(RuntimeError, match="finalized"), g:
        hr.constant(1)


def test_a_collection_gives_its_first_element() -> None:
    with tf.Graph().as_default() as g:
        first, second = tf.no_op(), tf.no_op()
        ready = tf.constant([], tf.string)
        for x in (first, second):
            g.add_to_collection(tf.GraphKeys.INIT_OP, x)
        g.add_to_collection(tf.GraphKeys.READY_FOR_LOCAL_INIT_OP, ready)
        supervisor = tf.train.Supervisor()
    assert supervisor.init_op is first
    assert supervisor.ready_for_local_init_op is ready
    assert supervisor.saver is None, "there are no variables"
    assert supervisor.summary_op is None


# *** ends and errors ***


@system
def test_an_error_of_the_block_or_of_a_thread_is_raised(tmp_path: Path) -> None:
    supervisor = Model().supervisor(logdir=tmp_path)
    with pytest.raises(KeyError, match="mine"), supervisor.managed_session():
        raise KeyError("mine")

    def fails() -> None:
        raise ZeroDivisionError("its")

    with pytest.raises(ZeroDivisionError, match="its"), supervisor.managed_session():  # noqa: PT012
        supervisor.loop(None, fails)
        supervisor.wait_for_stop()
    with supervisor.managed_session():
        raise OutOfRangeError("no more")
    with supervisor.managed_session(), supervisor.stop_on_exception():
        raise OutOfRangeError("no more")
    assert [status for status, _ in logs(tmp_path)].count(2) == 4


def test_a_session_that_cannot_be_prepared_is_an_error() -> None:
    supervisor = Model().supervisor(init_op=None, local_init_op=None)
    with pytest.raises(RuntimeError, match="no init_op"), supervisor.managed_session():
        pass


@system
def test_a_thread_that_does_not_end_is_named() -> None:
    supervisor = Model().supervisor(stop_grace_secs=0.05)
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="slow", daemon=True)
    thread.start()
    supervisor.prepare_or_wait_for_session(start_standard_services=False).close()
    with pytest.raises(RuntimeError, match="threads still running: slow"):
        supervisor.stop([thread])
    supervisor.prepare_or_wait_for_session(start_standard_services=False).close()
    supervisor.stop([thread], ignore_live_threads=True)
    end.set()


@system
def test_summaries_of_the_program(tmp_path: Path) -> None:
    model = Model()
    supervisor = model.supervisor(logdir=tmp_path, summary_op=None)
    with supervisor.managed_session(close_summary_writer=False) as session:
        session.run(model.count)
        summary = pb.Summary(value=[{"tag": "mine", "simple_value": 1.0}])
        supervisor.summary_computed(session, summary)
        supervisor.summary_computed(session, summary, 7)
    supervisor.summary_writer.add_summary(summary, 8)
    supervisor.summary_writer.close()
    assert [e.step for e in written(tmp_path) if e.summary.value] == [1, 7, 8]
    with pytest.raises(RuntimeError, match="requires a summary writer"):
        Model().supervisor().summary_computed(None, summary)


def test_without_a_folder_there_are_no_services(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Model().supervisor()
    assert (supervisor.save_path, supervisor.summary_writer) == (None, None)
    with caplog.at_level(logging.WARNING, "headrace.train"):
        assert supervisor.start_standard_services(None) == []
    assert "need a 'logdir'" in caplog.text
    with pytest.raises(GraphError, match="no graph"):
        Supervisor()


# *** workers that are not the chief ***


def shared_model() -> tuple[Any, Any]:
    with hr.Graph() as g, hr.device("/cpu:0"):
        v = hr.Variable(1.0, name="v")
    return g, v


class Manager(SessionManager):
    """Gives the same session to every caller, as if it were of one cluster."""

    def __init__(self, session: Any, ready_after: int = 0, **kwargs: Any) -> None:
        super().__init__(graph=session.graph, **kwargs)
        self.session, self.asked, self.ready_after = session, [], ready_after  # type: ignore[var-annotated]

    def _new_session(self, master: str, config: Any) -> Any:
        self.asked.append((master, config))
        if len(self.asked) <= self.ready_after:
            raise UnavailableError("no server there yet")
        return self.session


def test_a_worker_waits_and_writes_nothing(tmp_path: Path) -> None:
    g, v = shared_model()
    with g:
        init = hr.variables_initializer()
    session = hr.Session(graph=g)
    session.run(init)
    manager = Manager(session)
    supervisor = Supervisor(graph=g, is_chief=False, logdir=tmp_path, session_manager=manager)
    with supervisor.managed_session("the address", "the config") as found:
        assert found is session
        assert found.run(v) == 1.0
    assert manager.asked == [("the address", "the config")]
    assert not supervisor.is_chief
    for name in ("save_path", "summary_writer", "save_summaries_secs", "save_model_secs"):
        assert getattr(supervisor, name) is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError, match="Only chief supervisor"):
        supervisor.start_standard_services(session)


def test_variables_of_a_worker_need_a_device() -> None:
    g, _ = shared_model()
    with g:
        hr.Variable(2.0, name="own")
    with pytest.raises(ValueError, match="all Variables must have their device set: 'own' has none"):
        Supervisor(graph=g, is_chief=False)
    with tf.Graph().as_default(), tf.device("/cpu:0"):
        tf.get_variable("v", [2])
        with tf.device(None):
            tf.get_variable("local", [2], collections=[tf.GraphKeys.LOCAL_VARIABLES], use_resource=True)
        tf.train.Supervisor(is_chief=False)


# *** the loop ***


def test_the_loop_continues_after_a_lost_session() -> None:
    model = Model()
    supervisor = model.supervisor()
    seen: list[int] = []

    def step(session: Any, last: int, *, fails_at: int) -> None:
        seen.append(int(session.run(model.count)))
        if len(seen) == fails_at:
            raise AbortedError("the server was started again")
        if seen[-1] == last:
            supervisor.request_stop()

    basic_train_loop(supervisor, step, [3], {"fails_at": 2}, recovery=Recovery(wait_secs=0.0))
    assert seen == [1, 2, 1, 2, 3]


def test_the_loop_gives_up() -> None:
    def step(session: Any) -> None:
        raise UnavailableError("no server")

    with pytest.raises(UnavailableError, match="no server") as caught:
        basic_train_loop(Model().supervisor(), step, recovery=Recovery(retries=2, wait_secs=0.0))
    assert "2 new sessions in a row did not help" in caught.value.__notes__[0]


# *** targets ***


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The targets of all sessions, which are of this process."""
    asked: list[str] = []

    def local(kind: Any) -> Any:
        def make(target: str, graph: Any, config: Any) -> Any:
            asked.append(target)
            return kind("", graph, config)

        return make

    monkeypatch.setattr(session_manager.sessions, "Session", local(sessions.Session))
    monkeypatch.setattr("headrace.v1.monitored.Session", local(v1_sessions.Session))
    return asked


def test_the_master_is_the_target_of_each_session(targets: list[str], tmp_path: Path) -> None:
    g, v = shared_model()
    with MonitoredTrainingSession("address 1", graph=g, recovery=Recovery(wait_secs=0.0)) as session:
        session._live.session.close()
        assert session.run(v) == 1.0
    with g:
        creator = hr.train.ChiefSessionCreator(hr.train.Scaffold(), "address 2")
    with hr.train.MonitoredSession(creator, graph=g):
        pass
    with SingularMonitoredSession(master="address 3", graph=g):
        pass
    with tf.Graph().as_default():
        tf.get_variable("v", [2])
        with tf.train.MonitoredTrainingSession(master="address 4"):
            pass
        with tf.train.Supervisor().managed_session("address 5"):
            pass
    assert targets == ["address 1", "address 1", "address 2", "address 3", "address 4", "address 5"]


def test_a_worker_asks_until_the_chief_has_initialized(targets: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr(SessionManager.__init__, "__kwdefaults__", {"sleep": naps.append})
    g, _ = shared_model()
    with pytest.raises(
        DeadlineExceededError, match=r"after waiting 5 secs: Variables not initialized: v\. .* they share$"
    ):
        MonitoredTrainingSession(
            "the address", is_chief=False, graph=g, max_wait_secs=5, recovery=Recovery(longest_wait_secs=2.0)
        )
    assert naps == [2.0, 2.0]
    assert targets == ["the address"] * 3


def test_a_server_that_is_not_there_yet_is_waited_for() -> None:
    g, v = shared_model()
    with g:
        init = hr.variables_initializer()
    session = hr.Session(graph=g)
    session.run(init)
    naps: list[float] = []
    manager = Manager(session, ready_after=2, recovery_wait_secs=2.0, sleep=naps.append)
    assert manager.wait_for_session("the address").run(v) == 1.0
    assert naps == [2.0, 2.0]
    with pytest.raises(DeadlineExceededError, match="UnavailableError: no server there yet"):
        Manager(session, ready_after=9, recovery_wait_secs=2.0, sleep=naps.append).wait_for_session(
            "a", max_wait_secs=3
        )


def test_the_time_of_slow_servers_counts() -> None:
    g, _ = shared_model()
    with g:
        missing = report_uninitialized(g.variables)

    class Slow(SessionManager):
        def _new_session(self, master: str, config: Any) -> Any:
            threading.Event().wait(0.02)
            return super()._new_session(master, config)

    manager = Slow(graph=g, ready_op=missing, recovery_wait_secs=0.0, sleep=lambda _: None)
    with pytest.raises(DeadlineExceededError):
        manager.wait_for_session(max_wait_secs=0.05)


class Lost:
    """A session whose server is lost: it can be neither used nor closed."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        raise AbortedError("lost")

    def close(self) -> None:
        raise UnavailableError("cannot be reached")


@pytest.mark.parametrize("method", ["prepare_session", "recover_session"])
def test_the_first_error_of_a_lost_session_is_raised(method: str) -> None:
    g, _ = shared_model()

    class OfLost(SessionManager):
        def _new_session(self, master: str, config: Any) -> Any:
            return Lost()

    manager = OfLost(graph=g, local_init_op=g.operations[0])
    with pytest.raises(AbortedError, match="lost"):
        getattr(manager, method)()


@system
def test_a_new_session_after_a_lost_one_has_the_values_of_the_checkpoint(tmp_path: Path) -> None:
    model = Model()
    with MonitoredTrainingSession(
        graph=model.graph, checkpoint_dir=tmp_path, save_checkpoint_steps=2, recovery=Recovery(wait_secs=0.0)
    ) as session:
        assert [int(session.run(model.count)) for _ in range(3)] == [1, 2, 3]
        good = session._live.session
        session._live.session = Lost()
        again = int(session.run(model.count))
        good.close()
    assert again == 3, "the checkpoint is of step 2"
    np.testing.assert_array_equal(hr.train.load_variable(str(tmp_path), "global_step"), 3)
