"""Scaffolds, session managers and creators: objects found and made, and initialization of sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.errors import DeadlineExceededError, FailedPreconditionError, GraphError
from headrace.train import global_step
from headrace.train.monitored import MonitoredSession, MonitoredTrainingSession
from headrace.train.scaffold import (
    ChiefSessionCreator,
    Scaffold,
    SessionCreator,
    WorkerSessionCreator,
    report_uninitialized,
)
from headrace.train.session_manager import SessionManager
from headrace.v1 import monitored as tf_train


class Saver:
    """Gives `values` back as a checkpoint would."""

    def __init__(self, assign: Any = None, there_after: int = 0) -> None:
        self.assign, self.asked, self.there_after, self.restored = assign, 0, there_after, []  # type: ignore[var-annotated]

    def restore_latest(self, session: Any, folder: Any) -> str | None:
        self.asked += 1
        if self.assign is None or self.asked <= self.there_after:
            return None
        session.run(self.assign)
        return f"{folder}/ckpt-1"

    def restore(self, session: Any, path: Any) -> None:
        self.restored.append(path)
        session.run(self.assign)


class Model:
    def __init__(self) -> None:
        with hr.Graph(ordered=False) as self.graph:
            self.v = hr.Variable(1.0, name="v")
            self.w = hr.Variable(2.0, name="w")
            self.text = hr.strings.as_string(self.v)
            self.one = hr.group(self.v.assign(10.0).op, self.w.assign(20.0).op)
            self.ready = hr.constant([], hr.string)

    def manager(self, **kwargs: Any) -> SessionManager:
        return SessionManager(graph=self.graph, **kwargs)

    def values(self, session: Any) -> list[float]:
        got = [float(x) for x in session.run([self.v, self.w])]
        session.close()
        return got


# *** the global step ***


def test_the_global_step_is_made_once_and_found_again() -> None:
    with hr.Graph() as g, hr.name_scope("model"):
        assert global_step.get_global_step() is None
        made = global_step.get_or_create_global_step()
        assert (made.name, made.dtype, made.shape, made.trainable) == ("global_step:0", hr.int64, (), False)
        assert global_step.get_or_create_global_step() is made
        with pytest.raises(ValueError, match="already exists"):
            global_step.create_global_step()
        found = []
        hr.cond(
            hr.constant(True),
            lambda: found.append(global_step.get_global_step()) or 1,  # type: ignore[func-returns-value]
            lambda: 2,
        )
    assert found == [made]
    assert global_step.get_global_step(g) is made
    with pytest.raises(GraphError, match="no graph"):
        global_step.get_global_step()


def test_a_global_step_that_is_none() -> None:
    with hr.Graph() as g:
        hr.Variable(0.0, name="global_step")
    with pytest.raises(TypeError, match="must be of an integer dtype, it is float32"):
        global_step.get_global_step(g)
    with hr.Graph() as g:
        hr.Variable([0], name="global_step")
    with pytest.raises(GraphError, match="must be a scalar"):
        global_step.get_global_step(g)
    with tf.Graph().as_default() as v1:
        for n in "ab":
            v1.add_to_collection(tf.GraphKeys.GLOBAL_STEP, tf.Variable(0, name=n))
    with pytest.raises(GraphError, match="several global steps"):
        global_step.get_global_step(v1)
    with pytest.raises(TypeError, match="a variable or a tensor"):
        global_step.check_global_step(3)


# *** scaffolds ***


def test_what_is_made_of_a_graph() -> None:
    with hr.Graph() as g:
        v = hr.Variable(3, name="v")
        table = hr.lookup.StaticHashTable(hr.lookup.KeyValueTensorInitializer(["a"], [7]), -1)
        found = table.lookup(hr.constant(["a"]))
        hr.summary.scalar("v", v)
    first, again, later = Scaffold(), Scaffold(), Scaffold()
    with MonitoredSession(ChiefSessionCreator(again), graph=g):
        pass
    with MonitoredSession(ChiefSessionCreator(first), graph=g) as session:
        assert session.run(v) == 3
        assert session.run(found) == [7]
        assert b"v" in session.run(first.summary_op)
    assert first.init_op is again.init_op, "nothing was added in between"
    assert first.saver is again.saver
    assert first.summary_op.op.type == "MergeSummary"
    with g:
        w = hr.Variable(4, name="w")
    with MonitoredSession(ChiefSessionCreator(later), graph=g) as session:
        assert session.run([v, w]) == [3, 4]
    assert later.init_op is not first.init_op


def test_what_is_not_there_is_named() -> None:
    m = Model()
    with m.graph:
        init = m.v.initializer
    with pytest.raises(RuntimeError, match="Variables not initialized: w"):
        MonitoredSession(ChiefSessionCreator(Scaffold(init_op=init)), graph=m.graph)


def test_pieces_are_copied_but_not_what_was_made() -> None:
    m = Model()
    calls: list[Any] = []
    with m.graph:
        first = Scaffold(init_op=m.one, init_fn=lambda s, session: calls.append(s)).finalize()
        copy = Scaffold(copy_from_scaffold=first, init_feed_dict={})
    assert copy.init_op is m.one
    assert copy.init_feed_dict == {}
    assert copy.ready_op is first.ready_op
    assert copy.init_fn is not None
    copy.init_fn("session")
    assert calls == [copy], "the function is called with the scaffold that it is of"
    with pytest.raises(TypeError, match="not a Scaffold"):
        Scaffold(copy_from_scaffold=3)  # type: ignore[arg-type]


def test_v1_takes_from_its_collections_and_puts_there() -> None:
    with tf.Graph().as_default() as g:
        v = tf.get_variable("v", initializer=1.0)
        mine = tf.group(v.assign(5.0).op)
        g.add_to_collection(tf.GraphKeys.INIT_OP, mine)
        scaffold = tf_train.Scaffold().finalize()
        assert scaffold.init_op is mine
        for key, piece in (("READY_OP", "ready_op"), ("LOCAL_INIT_OP", "local_init_op"), ("SAVERS", "saver"),
                           ("READY_FOR_LOCAL_INIT_OP", "ready_for_local_init_op")):  # fmt: skip
            assert g.get_collection(getattr(tf.GraphKeys, key)) == [getattr(scaffold, piece)], key
        assert g.get_collection(tf.GraphKeys.SUMMARY_OP) == []
        assert g.finalized
        with pytest.raises(RuntimeError, match="finalized"):
            tf.constant(1)
    with tf.Graph().as_default() as g:
        for _ in range(2):
            g.add_to_collection(tf.GraphKeys.INIT_OP, tf.no_op())
        with pytest.raises(RuntimeError, match='More than one item in the collection "init_op"'):
            tf_train.Scaffold().finalize()


# *** session managers ***


def test_a_session_is_initialized_or_restored() -> None:
    m = Model()
    calls: list[Any] = []
    with m.graph:
        init = hr.variables_initializer()
    manager = m.manager()
    assert m.values(manager.prepare_session(init_op=init, init_fn=calls.append)) == [1.0, 2.0]
    assert len(calls) == 1
    saver = Saver(m.one)
    got = manager.prepare_session(init_op=init, init_fn=calls.append, saver=saver, checkpoint_dir="d")
    assert m.values(got) == [10.0, 20.0]
    assert len(calls) == 1, "what was restored is not initialized"
    assert m.values(manager.prepare_session(saver=saver, checkpoint_filename_with_path="p")) == [10.0, 20.0]
    assert saver.restored == ["p"]
    with pytest.raises(RuntimeError, match="no init_op or init_fn or local_init_op was given"):
        manager.prepare_session()
    with pytest.raises(ValueError, match="both checkpoint_dir and checkpoint_filename_with_path"):
        manager.prepare_session(saver=saver, checkpoint_dir="d", checkpoint_filename_with_path="p")


def test_what_is_fed_to_initialize() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
        v = hr.Variable(lambda: x, name="v")
        scaffold = Scaffold(init_feed_dict={x: 8.0})
    with MonitoredSession(ChiefSessionCreator(scaffold), graph=g) as session:
        assert session.run(v) == 8.0


def test_waiting_for_a_checkpoint_ends() -> None:
    m = Model()
    naps: list[float] = []
    manager = m.manager(recovery_wait_secs=2.0, sleep=naps.append)
    session, is_restored = manager.recover_session(
        saver=Saver(m.one, there_after=2), checkpoint_dir="d", wait_for_checkpoint=True
    )
    assert (m.values(session), is_restored, naps) == ([10.0, 20.0], True, [2.0, 2.0])
    naps.clear()
    _, is_restored = manager.recover_session(
        saver=Saver(), checkpoint_dir="d", wait_for_checkpoint=True, max_wait_secs=5.0
    )
    assert (is_restored, naps) == (False, [2.0, 2.0, 2.0])
    assert manager.recover_session(saver=Saver(), checkpoint_dir="d")[1] is False


def test_a_checkpoint_that_lacks_something_is_told() -> None:
    m = Model()
    with m.graph:
        ready = report_uninitialized([m.v, m.w])
        half = m.v.assign(1.0).op
    manager = m.manager(ready_op=ready)
    assert manager.recover_session(saver=Saver(half), checkpoint_dir="d")[1] is False
    with pytest.raises(RuntimeError, match=r"restored from a checkpoint, .*Variables not initialized: w"):
        manager.prepare_session(saver=Saver(half), checkpoint_dir="d")
    assert manager.recover_session(saver=Saver(m.one), checkpoint_dir="d")[1] is True


def test_waiting_for_a_session_ends() -> None:
    m = Model()
    naps: list[float] = []
    with m.graph:
        missing = hr.constant(["v", "w"])
    manager = m.manager(ready_op=missing, recovery_wait_secs=2.0, sleep=naps.append)
    with pytest.raises(
        DeadlineExceededError, match=r"after waiting 5 secs: Variables not initialized: v, w\. A worker"
    ):
        manager.wait_for_session(max_wait_secs=5.0)
    assert naps == [2.0, 2.0]
    m.manager(ready_op=m.ready).wait_for_session().close()


def test_what_is_run_in_every_session() -> None:
    m = Model()
    with m.graph:
        init = hr.variables_initializer()
        x = hr.placeholder(hr.float32, ())
        local = m.w.assign(x).op
        blocked = hr.constant(["v"])
    local_feed = {"local_init_op": local, "local_init_feed_dict": {x: 9.0}}
    assert m.values(m.manager(**local_feed).prepare_session(init_op=init)) == [1.0, 9.0]
    with pytest.raises(RuntimeError, match=r"ready for local_init\. Init op: init.*Variables not initialized: v"):
        m.manager(ready_for_local_init_op=blocked, **local_feed).prepare_session(init_op=init)
    with pytest.raises(ValueError, match="must also pass a local_init_op"):
        m.manager(ready_for_local_init_op=blocked)


def test_an_op_that_fails_as_something_has_no_value_means_not_ready() -> None:
    m = Model()
    with m.graph:
        other = hr.constant(1)
    with pytest.raises(RuntimeError, match=r"ready\. Init op.*uninitialized"):
        m.manager(ready_op=m.text).prepare_session(init_op=other)

    class Odd(SessionManager):
        def _new_session(self, master: str, config: Any) -> Any:
            class Session:
                def run(self, op: Any, **kwargs: Any) -> Any:
                    raise FailedPreconditionError("something else")

                def close(self) -> None:
                    pass

            return Session()

    with pytest.raises(FailedPreconditionError, match="something else"):
        Odd(ready_op=m.text, graph=m.graph).wait_for_session()


# *** creators ***


def test_a_worker_waits_for_what_nobody_does() -> None:
    m = Model()
    creator = WorkerSessionCreator(Scaffold(saver=Saver()), max_wait_secs=0.0)
    with pytest.raises(DeadlineExceededError, match="use a ChiefSessionCreator"):
        MonitoredSession(creator, graph=m.graph)
    with pytest.raises(DeadlineExceededError):
        MonitoredTrainingSession(is_chief=False, scaffold=Scaffold(saver=Saver()), max_wait_secs=0, graph=m.graph)


def test_a_checkpoint_of_another_place(tmp_path: Path) -> None:
    m = Model()
    with pytest.raises(ValueError, match="not a valid checkpoint"):
        MonitoredSession(ChiefSessionCreator(checkpoint_filename_with_path=tmp_path / "no"), graph=m.graph)


def test_ones_own_creator() -> None:
    m = Model()

    class Mine(SessionCreator):
        def create_session(self) -> Any:
            session = hr.Session(graph=global_step.root_of())
            session.run(m.one)
            return session

    with MonitoredSession(Mine(), graph=m.graph) as session:
        assert session.run(m.v) == 10.0
    with pytest.raises(TypeError, match="abstract"):
        SessionCreator()  # type: ignore[abstract]
