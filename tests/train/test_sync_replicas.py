"""Synchronous training: updates by the gradients of several workers, and the end of training.

All workers are in one process: each has operations of its own in one graph, and they share a session, and by their
names the accumulators and the queue of tokens, as the graphs of several processes do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.errors import AbortedError, GraphError, InvalidArgumentError, OutOfRangeError
from headrace.train.hooks import SessionRunHook
from headrace.train.monitored import MonitoredSession
from headrace.train.optimizers import sync_replicas
from headrace.train.optimizers.sync_replicas import SyncReplicasOptimizer
from headrace.train.recovery import Recovery
from headrace.train.supervisor import Supervisor

system = pytest.mark.system  # threads and waiting
SECONDS = 20.0


class Workers:
    """Graph with workers: their gradients are `x` for a variable and ones for table rows.

    Args:
      n: number of workers.
      required: number of gradients of an update.
      inner: gives the optimizer that applies the means.
      kwargs: further arguments of the `SyncReplicasOptimizer`s.
    """

    def __init__(self, n: int, required: int, inner: Callable[[], Any] | None = None, **kwargs: Any) -> None:
        with hr.Graph() as self.graph:
            self.w = hr.Variable([0.0, 0.0], name="w")
            self.table = hr.Variable(np.zeros((4, 2), np.float32), name="table")
            self.global_step = hr.train.create_global_step()
            self.inner = inner() if inner is not None else hr.train.SGD(1.0)
            self.x = [hr.placeholder(hr.float32, (2,)) for _ in range(n)]
            self.rows = [hr.placeholder(hr.int32, (None,)) for _ in range(n)]
            self.opts, self.steps = [], []
            for x, rows in zip(self.x, self.rows, strict=True):
                loss = hr.reduce_sum(self.w * x) + hr.reduce_sum(hr.gather(self.table, rows))
                opt = SyncReplicasOptimizer(self.inner, required, n, **kwargs)
                self.steps.append(opt.minimize(loss, global_step=self.global_step))
                self.opts.append(opt)

    def monitored(self, num_tokens: int = 0, **kwargs: Any) -> Any:
        """The chief's session; the other workers' local steps are initialized too."""
        hooks = [self.opts[0].make_session_run_hook(True, num_tokens), Others(self), *kwargs.pop("hooks", ())]
        return MonitoredSession(graph=self.graph, hooks=hooks, **kwargs)

    def feed(self, k: int, x: Any, rows: Any = ()) -> dict[Any, Any]:
        return {self.x[k]: np.broadcast_to(np.float32(x), (2,)), self.rows[k]: np.array(rows, np.int32)}

    def run(self, session: Any, k: int, x: Any, rows: Any = ()) -> int:
        return int(session.run(self.steps[k], self.feed(k, x, rows)))


class Others(SessionRunHook):
    """Does in each session what the hooks of the other workers do."""

    def __init__(self, workers: Workers) -> None:
        self.hooks = [opt.make_session_run_hook(is_chief=False) for opt in workers.opts[1:]]

    def begin(self) -> None:
        for hook in self.hooks:
            hook.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.session = session
        for hook in self.hooks:
            hook.after_create_session(session, coord)


def raw(session: Any) -> Any:
    return session._live.session


def in_threads(*tasks: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=task, daemon=True) for task in tasks]
    for t in threads:
        t.start()
    return threads


def joined(threads: list[threading.Thread]) -> None:
    for t in threads:
        t.join(SECONDS)
        assert not t.is_alive()


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


# *** the same as one process with mean gradients ***

OPTIMIZERS = [lambda: hr.train.SGD(0.5), lambda: hr.train.Momentum(0.1), lambda: hr.train.Adam(0.1)]


@system
@pytest.mark.parametrize("inner", OPTIMIZERS)
def test_steps_equal_those_of_one_process_with_mean_gradients(inner: Any) -> None:
    n, steps = 3, 4
    xs = np.random.default_rng(0).normal(size=(steps, n, 2)).astype(np.float32)
    rows = [[2, 0, 2], [2, 1, 2], [0, 2, 2]]  # unsorted, and with duplicates
    workers = Workers(n, n, inner)
    got: list[list[int]] = [[] for _ in range(n)]
    with workers.monitored() as session:
        shared = raw(session)

        def work(k: int) -> None:
            for t in range(steps):
                got[k].append(workers.run(shared, k, xs[t, k], rows[k]))

        joined(in_threads(*(lambda k=k: work(k) for k in range(n))))
        values = shared.run([workers.w, workers.table, workers.global_step])
    assert got == [[1, 2, 3, 4]] * n
    with hr.Graph() as g:
        w, table = hr.Variable([0.0, 0.0]), hr.Variable(np.zeros((4, 2), np.float32))
        x = hr.placeholder(hr.float32, (2,))
        # the mean of a row is that of the gradients that contain it
        grad = hr.IndexedSlices(hr.constant([[1.0] * 2, [1.0] * 2, [2.0] * 2]), hr.constant([0, 1, 2]))
        step = inner().apply_gradients([(x, w), (grad, table)])
        init = hr.variables_initializer()
    with hr.Session(graph=g) as alone:
        alone.run(init)
        for t in range(steps):
            alone.run(step, {x: xs[t].mean(axis=0)})
        expected = alone.run([w, table])
    np.testing.assert_allclose(values[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(values[1], expected[1], rtol=1e-5)
    assert values[2] == steps


@system
def test_v1_with_partitioned_variables() -> None:
    with tf.Graph().as_default() as g:
        p = tf.get_variable("p", [4, 2], initializer=tf.zeros_initializer(), partitioner=tf.fixed_size_partitioner(2))
        global_step = tf.train.get_or_create_global_step()
        opts = [tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 2) for _ in range(2)]
        steps = [
            opt.minimize(tf.reduce_sum(tf.identity(p) * k), global_step=global_step)
            for k, opt in zip([1.0, 5.0], opts, strict=True)
        ]
        hook = opts[0].make_session_run_hook(True, 0)
        with tf.train.MonitoredTrainingSession(hooks=[hook]) as session:
            shared = raw(session)
            joined(in_threads(*(lambda step=step: [shared.run(step) for _ in range(2)] for step in steps)))
            np.testing.assert_array_equal(np.concatenate(shared.run(list(p))), np.full((4, 2), -6.0))
        assert [v.op.name for v in tf.local_variables()] == ["sync_rep_local_step", "sync_rep_local_step_1"]
        assert not {v for v in tf.global_variables() if "local_step" in v.name}
        assert [op.type for op in g.get_collection("train_op")] == ["AssignAdd"] * 2, "the updates"
        runner = opts[0].get_chief_queue_runner()
        assert isinstance(runner, tf.train.QueueRunner)
        assert runner.to_proto().queue_name == "sync_token_q"


# *** stale gradients, and numbers of workers ***


@system
def test_a_stale_gradient_of_a_backup_worker_is_dropped() -> None:
    workers = Workers(2, 1)
    with workers.monitored() as session:
        shared = raw(session)
        assert workers.run(shared, 0, 1.0, [0]) == 1
        assert workers.run(shared, 1, 100.0, [1, 0]) == 1, "a token is there, as for every worker"
        np.testing.assert_array_equal(shared.run(workers.w), [-1.0, -1.0])
        np.testing.assert_array_equal(shared.run(workers.table)[:2], [[-1.0, -1.0], [0.0, 0.0]])
        assert workers.run(shared, 1, 2.0, [1]) == 2, "its next gradient is of the current step"
        np.testing.assert_array_equal(shared.run(workers.w), [-3.0, -3.0])
        np.testing.assert_array_equal(shared.run(workers.table)[:2], [[-1.0, -1.0], [-1.0, -1.0]])


@system
def test_one_worker_computes_all_gradients_of_an_update() -> None:
    workers = Workers(1, 3)
    with workers.monitored(num_tokens=2) as session:
        shared = raw(session)
        assert [workers.run(shared, 0, x) for x in (1.0, 2.0, 6.0)] == [0, 0, 1]
        np.testing.assert_array_equal(shared.run(workers.w), [-3.0, -3.0])


@system
def test_the_hook_of_a_monitored_session_is_enough_for_a_chief() -> None:
    workers = Workers(1, 1)
    stop = hr.train.StopAtStepHook(last_step=3)
    begin = time.monotonic()
    with workers.monitored(hooks=[stop]) as session:
        seen = []
        while not session.should_stop():
            seen.append(workers.run(session, 0, 1.0))
    assert seen == [1, 2, 3]
    assert time.monotonic() - begin < sync_replicas.PATIENCE, "the end does not wait for the thread of the updates"


@system
def test_averages_are_updated_after_each_update() -> None:
    with hr.Graph() as g:
        w = hr.Variable(4.0, name="w")
        average = hr.train.ExponentialMovingAverage(0.5)
        opt = SyncReplicasOptimizer(hr.train.SGD(1.0), 1, variable_averages=average, variables_to_average=[w])
        step = opt.minimize(w * 2.0, global_step=hr.train.create_global_step())
    with MonitoredSession(graph=g, hooks=[opt.make_session_run_hook(True, 0)]) as session:
        session.run(step)
        until(lambda: raw(session).run(average.average(w)) == 3.0)


# *** the end, errors and recovery ***


@system
def test_a_waiting_worker_ends_with_the_chief() -> None:
    workers = Workers(2, 2)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            workers.run(shared, 1, 1.0)
        except BaseException as e:
            errors.append(e)

    class Joins(SessionRunHook):
        def end(self, session: Any) -> None:
            joined(threads)  # before the session is closed, which a worker in another process would not notice

    with workers.monitored(hooks=[Joins()]) as session:
        shared = raw(session)
        threads = in_threads(wait)
        until(lambda: shared.statistics().active == 2)  # the worker waits for a token, and the update for a gradient
    assert [type(e) for e in errors] == [OutOfRangeError]


@system
def test_an_error_of_an_update_ends_the_chief() -> None:
    def bad() -> Any:
        return hr.check_numerics(hr.constant(np.float32("nan")), "the learning rate")

    workers = Workers(1, 1, lambda: hr.train.SGD(bad))
    with pytest.raises(InvalidArgumentError, match="the learning rate"), workers.monitored() as session:
        workers.run(session, 0, 1.0)


@system
def test_a_stop_request_wakes_a_chief_that_waits_for_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_replicas, "PATIENCE", 0.1)
    workers = Workers(2, 2)
    with workers.monitored() as session:
        live, shared = session._live, raw(session)

        def stop() -> None:
            until(lambda: shared.statistics().active == 2)
            live.coord.request_stop()

        threads = in_threads(stop)
        workers.run(session, 0, 1.0)  # ends by OutOfRangeError, the end of the data
        raise AssertionError("no token was there")
    joined(threads)


@system
def test_a_chief_that_loses_its_session_starts_again() -> None:
    workers = Workers(2, 2)
    threads: list[threading.Thread] = []

    def lose(session: Any, coord: Any) -> None:
        until(lambda: session.statistics().active == 2)  # the chief waits for a token, and the update for a gradient
        coord.request_stop(AbortedError("the parameter server is lost"))

    class Loses(SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            again = bool(threads)
            threads.extend(
                in_threads(lambda: workers.run(session, 1, 3.0) if again else lose(session, coord)),
            )

    with workers.monitored(hooks=[Loses()], recovery=Recovery(wait_secs=0.0)) as session:
        assert workers.run(session, 0, 1.0) == 1
        joined(threads)
        np.testing.assert_array_equal(raw(session).run(workers.w), [-2.0, -2.0])


@system
def test_with_a_supervisor_the_program_starts_the_updates() -> None:
    workers = Workers(1, 1)
    opt = workers.opts[0]
    with workers.graph:
        tokens = opt.get_init_tokens_op(0)
    supervisor = Supervisor(
        graph=workers.graph,
        local_init_op=opt.chief_init_op,
        ready_for_local_init_op=opt.ready_for_local_init_op,
        stop_grace_secs=SECONDS,
    )
    begin = time.monotonic()
    with supervisor.managed_session() as session:
        session.run(tokens)
        supervisor.start_queue_runners(session, [opt.get_chief_queue_runner()])
        assert [workers.run(session, 0, 1.0) for _ in range(2)] == [1, 2]
    assert time.monotonic() - begin < SECONDS / 2


def test_a_session_that_is_not_ready_is_named() -> None:
    workers = Workers(1, 1)
    hook = workers.opts[0].make_session_run_hook(True)
    with workers.graph:
        hook.begin()
    with (
        hr.Session(graph=workers.graph) as session,
        pytest.raises(
            RuntimeError, match=r"did not make model ready .* Init op: chief_init, .*: w, table, global_step"
        ),
    ):
        hook.after_create_session(session, hr.train.Coordinator())


# *** the graph ***


def reached(*ops: Any) -> set[Any]:
    """The operations that a run of `ops` needs."""
    found: set[Any] = set()
    left = list(ops)
    while left:
        op = left.pop()
        if op not in found:
            found.add(op)
            left += [*(t.op for t in op.inputs), *op.control_inputs]
    return found


def test_the_parts_share_no_operation_of_the_model() -> None:
    with hr.Graph():
        w, x, seen = hr.Variable(1.0), hr.placeholder(hr.float32, ()), hr.Variable(0, name="seen")
        opt = SyncReplicasOptimizer(hr.train.Adam(0.1), 2)
        with hr.control_dependencies([seen.assign_add(1).op]):
            step = opt.minimize(w * x, global_step=hr.train.create_global_step())
        later = w.value()
        tokens = opt.get_init_tokens_op()
    (update,) = opt.get_chief_queue_runner().enqueue_ops
    for op in (update, opt.chief_init_op, opt.local_step_init_op, tokens, opt.ready_for_local_init_op.op, later.op):
        needed = reached(op)
        assert not {x.op, *(o for o in needed if o.type == "AssignAddVariableOp" and seen.op in reached(o))} & needed
        assert op is update or not [o for o in needed if o.type.startswith("ResourceApply")], (
            "a later read is no update"
        )
    types = {o.type for o in reached(step.op)}
    assert types >= {"Placeholder", "AssignAddVariableOp", "ResourceAccumulatorApplyGradient", "QueueDequeueV2"}
    assert not types & {"ResourceAccumulatorTakeGradient", "ResourceApplyAdam", "QueueEnqueueManyV2"}


def test_the_local_step_is_the_workers_own() -> None:
    workers = Workers(2, 2)
    assert "sync_rep_local_step" in workers.graph
    assert not [v for v in workers.graph.variables if "local_step" in v.name]
    assert workers.opts[0].variables() == []


def test_state_is_that_of_the_other_optimizer() -> None:
    workers = Workers(1, 1, lambda: hr.train.Momentum(0.1))
    opt = workers.opts[0]
    assert opt.get_slot_names() == ["momentum"]
    assert opt.get_slot(workers.w, "momentum") is workers.inner.get_slot(workers.w, "momentum")
    with workers.graph:
        assert opt.variables() == workers.inner.variables() != []
    assert opt.get_name() == "sync_replicas"
    state = opt.init([1.0])
    (after,), _ = opt.update([hr.constant(2.0)], state, [hr.constant(1.0)])
    assert round(float(after), 6) == 0.8


def test_a_variable_without_a_gradient_does_not_change() -> None:
    with hr.Graph() as g:
        v, w = hr.Variable(1.0), hr.Variable(2.0)
        step = hr.train.create_global_step()
        opt = SyncReplicasOptimizer(hr.train.SGD(1.0), 1)
        opt.apply_gradients([(None, v), (hr.constant(1.0), w)], global_step=step)
        assert len([op for op in g.operations if op.type == "ResourceConditionalAccumulator"]) == 1
        with pytest.raises(ValueError, match="No gradients provided for any variable"):
            opt.apply_gradients([(None, v)], global_step=step)


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="opt must be an optimizer"):
        SyncReplicasOptimizer(3, 1)  # type: ignore[arg-type]
    for numbers in ((0,), (2, 0)):
        with pytest.raises(ValueError, match="must be positive, got 0"):
            SyncReplicasOptimizer(hr.train.SGD(1.0), *numbers)
    with hr.Graph():
        w = hr.Variable(1.0)
        step = hr.train.create_global_step()
        opt = SyncReplicasOptimizer(hr.train.SGD(1.0), 3, 1)
        with pytest.raises(ValueError, match="Must supply at least one variable"):
            opt.apply_gradients([], step)
        with pytest.raises(ValueError, match="Global step is required"):
            opt.minimize(w * w)
        with pytest.raises(TypeError, match="global_step must be a variable"):
            opt.minimize(w * w, global_step=hr.constant(0))
        with pytest.raises(GraphError, match="cannot be in a branch"):
            hr.cond(hr.constant(True), lambda: opt.minimize(w * w, step), lambda: hr.constant(0))
        for early in (opt.get_chief_queue_runner, opt.get_init_tokens_op, opt.make_session_run_hook(True).begin):
            with pytest.raises(ValueError, match="called"):
                early()
        opt.minimize(w * w, step)
        with pytest.raises(ValueError, match=r"Too few tokens to finish the first step: 1 \(given\) vs 2 \(needed\)"):
            opt.get_init_tokens_op(1)
    with pytest.raises(GraphError, match="needs a graph"):
        opt.apply_gradients([(1.0, hr.Variable(1.0))], global_step=hr.Variable(0))
