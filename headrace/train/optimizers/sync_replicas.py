"""Synchronous training with several workers: one update for the gradients of all of them.

Each worker computes gradients at the same values of the variables. An accumulator for each variable adds the gradients.
When there are enough, the chief takes their means, applies them once, and increments the global step. Then it puts a
token for each worker into a queue, and each worker starts its next step when it gets one.

*The parts*. A worker's step adds its gradients and waits for a token, which is the new global step. The worker stores
it as its *local step*. The chief's updates run in a thread of their own, a queue runner (`get_chief_queue_runner`).
They share no operation with a worker's step, so that an update runs no part of the model.

*Stale gradients*. Each gradient has the local step of its worker, and each accumulator counts the updates. A gradient
of an earlier step is dropped. So there may be more workers than an update needs (backup workers): the gradients of the
slowest ones are dropped, and these workers continue with the current values.

*The end*. When the chief ends, the queue is closed, and a worker that waits for a token gets an `OutOfRangeError`, the
normal end of a monitored session. If the chief loses its session and creates another one, the queue stays open, and the
other workers continue.

The accumulators and the queue have names that are equal in the graphs of all workers, so the workers share them.

Source: TensorFlow's `tf.train.SyncReplicasOptimizer`; Chen and others 2016.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final

import numpy as np

from headrace import shapes
from headrace.api import grouping, scopes, sorting
from headrace.api.storage.accumulators import ConditionalAccumulator, SparseConditionalAccumulator
from headrace.api.storage.queues import FIFOQueue
from headrace.api.variable import Variable
from headrace.dtypes import DType
from headrace.errors import CancelledError, GraphError
from headrace.ir.indexed_slices import IndexedSlices
from headrace.train.coordinator import Coordinator
from headrace.train.hooks.base import SessionRunHook, log
from headrace.train.optimizers import tensors
from headrace.train.optimizers.base import Optimizer, Pairs
from headrace.train.optimizers.places import entered
from headrace.train.optimizers.rule import Rule
from headrace.train.queue_runner import QueueRunner
from headrace.train.recovery import PREEMPTION
from headrace.train.scaffold import global_variables, report_uninitialized
from headrace.train.session_manager import missing_variables

PATIENCE: Final = 5.0  # seconds after a stop request until a step that waits for a token is woken


class ChiefQueueRunner(QueueRunner):
    """Queue runner whose thread runs the updates.

    The thread waits for gradients. A stop request cannot end this wait, but the end of the session does. So a
    coordinator stops the thread and does not wait for it in `join`.
    """

    def create_threads(
        self, sess: Any, coord: Coordinator | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """See `QueueRunner.create_threads`. A stop request closes the queue of tokens."""
        if coord is None:
            return super().create_threads(sess, None, daemon, start)
        threads = super().create_threads(sess, _Unjoined(coord), daemon)
        for t in threads[-1:]:  # it closes the queue
            coord.register_thread(t)
        if start:
            for t in threads:
                t.start()
        return threads

    def start_updates(self, sess: Any, coord: Coordinator) -> _Unjoined:
        """Starts the threads for a monitored session.

        A stop request does not close the queue of tokens at once. If the session is lost, a new session needs an open
        queue.

        Args:
          sess: the session.
          coord: the coordinator of the session's threads.

        Returns:
          The coordinator of the thread that runs the updates.
        """
        unjoined = _Unjoined(coord)
        threads = super().create_threads(sess, unjoined, daemon=True)[:-1]
        threads.append(threading.Thread(target=self._wake, args=(sess, coord), daemon=True, name="sync_replicas-wake"))
        for t in threads:
            t.start()
        return unjoined

    def _wake(self, sess: Any, coord: Coordinator) -> None:
        """Ends a step of `sess` that still waits for a token after a stop request.

        Such a step would not notice the stop. It fails when the queue is closed or, after an error from which the
        training recovers, when the session is closed.
        """
        while not coord.wait_for_stop(1.0):
            if _is_closed(sess):
                return
        error: BaseException | None = None
        try:
            coord.raise_requested_exception()
        except Exception as e:
            error = e
        until = time.monotonic() + (PATIENCE if error is None else 0.0)
        while time.monotonic() < until:  # without an error the session is about to be closed, unless a step is waiting
            if _is_closed(sess):
                return
            time.sleep(0.05)
        try:
            if isinstance(error, PREEMPTION):
                sess.close()
            else:
                sess.run(self.cancel_op)
        except Exception as e:
            log.debug("waking a step that waits for a token: %s", e)


def _is_closed(sess: Any) -> bool:
    return bool(getattr(sess, "_closed", ""))


class _Unjoined(Coordinator):
    """Coordinator for threads that another coordinator stops, and for which it does not wait.

    Args:
      coord: the other coordinator.

    Attributes:
      ends: whether the queue of tokens has been closed, so that a cancelled update is no error.
    """

    def __init__(self, coord: Coordinator) -> None:
        self._coord = coord
        self.ends = False
        super().__init__()

    @property
    def joined(self) -> bool:
        """See `Coordinator`."""
        return self._coord.joined

    @joined.setter
    def joined(self, value: bool) -> None:
        """Ignored: it is a property of the other coordinator."""

    def should_stop(self) -> bool:
        """See `Coordinator.should_stop`."""
        return self._coord.should_stop()

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """See `Coordinator.wait_for_stop`."""
        return self._coord.wait_for_stop(timeout)

    def request_stop(self, ex: Any = None) -> None:
        """See `Coordinator.request_stop`."""
        if not (self.ends and isinstance(ex, CancelledError)):
            self._coord.request_stop(ex)


class SyncReplicasOptimizer(Optimizer):
    """Optimizer that applies the mean gradient of several workers.

    `apply_gradients` returns the step of a worker. The chief also runs a queue runner, which a hook starts
    (`make_session_run_hook`). The mean of a row of a sparse gradient is taken over the gradients that contain the row.

    Args:
      opt: the optimizer that applies the mean gradients.
      replicas_to_aggregate: number of gradients of an update.
      total_num_replicas: number of workers. None: `replicas_to_aggregate`. If it is larger, the other workers are
        backups. If it is smaller, workers compute several gradients for an update.
      variable_averages: an `ExponentialMovingAverage` that is updated after each update, or None.
      variables_to_average: the variables of `variable_averages`. None: the trainable variables.
      use_locking: accepted as in TensorFlow, without effect: updates are atomic.
      name: name of the operations.

    Attributes:
      local_step_init_op: operation that sets the local step of a worker to the global step.
      chief_init_op: operation that also sets the step of the accumulators. The chief runs it in place of
        `local_step_init_op`.
      ready_for_local_init_op: string vector with the names of uninitialized variables. If it is empty, the two
        operations can run. All three are None before `apply_gradients`.

    Raises:
      TypeError: `opt` is not an optimizer.
      ValueError: a number of workers is not positive.

    Source: TensorFlow's `tf.train.SyncReplicasOptimizer`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     w, x = hr.Variable(0.0), hr.placeholder(hr.float32, ())
      ...     opt = hr.train.SyncReplicasOptimizer(hr.train.SGD(1.0), replicas_to_aggregate=2, total_num_replicas=1)
      ...     step = opt.minimize(w * x, global_step=hr.train.create_global_step())
      >>> hook = opt.make_session_run_hook(is_chief=True, num_tokens=1)
      >>> with hr.train.MonitoredSession(hooks=[hook], graph=g) as session:
      ...     for gradient in (1.0, 3.0, 5.0):
      ...         print(session.run(step, {x: gradient}))
      ...     session.run(w)
      0
      1
      1
      np.float32(-2.0)
    """

    runner_class: ClassVar[type[ChiefQueueRunner]] = ChiefQueueRunner

    def __init__(
        self,
        opt: Optimizer,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        variable_averages: Any = None,
        variables_to_average: Iterable[Any] | None = None,
        use_locking: bool = False,
        name: str = "sync_replicas",
    ) -> None:
        if not isinstance(opt, Optimizer):
            raise TypeError(f"opt must be an optimizer, got {opt!r}")
        total = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        for what, n in (("replicas_to_aggregate", replicas_to_aggregate), ("total_num_replicas", total)):
            if n < 1:
                raise ValueError(f"{what} must be positive, got {n}")
        if not name:
            raise ValueError("Must specify the optimizer name")
        Rule.__init__(self, None)
        self._name = name
        self._optimizer = opt
        self._required = replicas_to_aggregate
        self._total = total
        self._averages = variable_averages
        self._averaged = None if variables_to_average is None else list(variables_to_average)
        self._runner: ChiefQueueRunner | None = None
        self._global_step: Any = None
        self.local_step_init_op: Any = None
        self.chief_init_op: Any = None
        self.ready_for_local_init_op: Any = None

    # *** gradients ***

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> Pairs:
        """See `Optimizer.compute_gradients`. The gradients are those of this worker."""
        return self._optimizer.compute_gradients(
            loss, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss
        )

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Adds gradients to those of the other workers.

        The operations of the update wait for no control inputs of surrounding blocks; the worker's step does.

        Args:
          grads_and_vars: pairs (gradient, variable), as `compute_gradients` returns them. A variable whose gradient is
            None does not change.
          global_step: a variable that each update increments by 1. It is required.
          name: name of the scope of the accumulators. None: the name of the optimizer.

        Returns:
          The step of the worker, which ends when the variables have changed. Its value is the new global step.

        Raises:
          ValueError: there are no pairs, no gradient or no global step.
          TypeError: `global_step` is not a variable.
          GraphError: no graph has been entered, or a branch or a loop's body has been entered.
          Others: see `Optimizer.apply_gradients`.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            raise ValueError("Global step is required to check staleness")
        if not isinstance(global_step, Variable):
            raise TypeError(f"global_step must be a variable to count in, got {global_step!r}")
        with entered(global_step), _unordered():
            self._global_step = global_step
            self._local_step = self._make_local_step(global_step.dtype.base)
            return self._synchronized(pairs, name)

    def _synchronized(self, pairs: Pairs, name: str | None) -> Any:
        """Creates all operations. Returns the step of the worker."""
        local_step = self._local_step.value()  # outside of device blocks, so that it is read on the worker
        applied, set_steps, means = [], [], []
        with scopes.name_scope(name, self._name):
            for grad, v in pairs:
                if grad is None:
                    means.append((None, v))
                    continue
                sums = _Sums(self._gradient(grad, v), v)
                applied.append(sums.apply(local_step))
                with _alone(), scopes.device(v.device):
                    means.append((sums.take(self._required), v))
                    set_steps.append(sums.accumulator.set_global_step(self._global_step.value(), "SetGlobalStep"))
        if not applied:
            raise ValueError(f"No gradients provided for any variable: {[v.name for _, v in pairs]}.")
        with scopes.name_scope(None):
            with _alone(), scopes.device(self._global_step.device):
                queue = self._queue = FIFOQueue(
                    -1, self._global_step.dtype.base, shapes=[()], shared_name="sync_token_q", name="sync_token_q"
                )
                self._runner = self.runner_class(queue, [self._update(means)])
            with scopes.device(self._global_step.device), scopes.control_dependencies(applied):
                token = queue.dequeue()
            with _alone():
                self.local_step_init_op = self._local_step.assign(self._global_step.value(), read_value=False)
                self.chief_init_op = grouping.group(self.local_step_init_op, *set_steps, name="chief_init")
                self.ready_for_local_init_op = report_uninitialized(global_variables(self._global_step.graph))
            return self._local_step.assign(token)

    def _update(self, means: Pairs) -> Any:
        """Returns the operation that changes the variables and then adds tokens to the queue."""
        update = self._optimizer.apply_gradients(means, self._global_step)
        with scopes.control_dependencies([update]):
            done = self._tokens(max(self._total, self._required))
        if self._averages is None:
            return done
        with scopes.control_dependencies([done]):
            return self._averages.apply(self._averaged)

    def _tokens(self, n: int) -> Any:
        """Returns the operation that adds `n` tokens to the queue."""
        step = self._global_step.value()
        return self._queue.enqueue_many([scopes.builder().Fill(np.array([n], np.int32), step)])

    def _make_local_step(self, dtype: DType) -> Any:
        """Creates the variable of a worker's step, on the worker.

        The chief cannot initialize it. So the graph does not list it among the variables that it initializes and saves.
        """
        anchor = grouping.no_op()
        with scopes.colocate_with(anchor):
            return self._make_local(np.zeros((), dtype.numpy)[()], "sync_rep_local_step")

    def _make_local(self, initial: Any, name: str) -> Any:
        made = Variable(initial, trainable=False, name=name)
        listed: Any = getattr(made.graph, "variables", [])
        listed[:] = [v for v in listed if v is not made]
        return made

    # *** the chief ***

    def get_chief_queue_runner(self) -> ChiefQueueRunner:
        """Returns the queue runner whose thread runs the updates, for the chief alone.

        The hook of `make_session_run_hook` starts it. Without the hook, run `chief_init_op` and the operation of
        `get_init_tokens_op` first, then call `create_threads` of the runner.

        Raises:
          ValueError: `apply_gradients` has not been called.
        """
        if self._runner is None:
            raise ValueError("Should be called after apply_gradients().")
        return self._runner

    def get_init_tokens_op(self, num_tokens: int = -1) -> Any:
        """Returns an operation that adds the first tokens to the queue.

        Args:
          num_tokens: number of tokens. A worker that takes one does not wait for the first update. If there are fewer
            workers than `replicas_to_aggregate`, the difference is needed at least, because a worker takes a token
            after each gradient. With this number, or else 0, no gradient is stale at the beginning. -1:
            `replicas_to_aggregate`.

        Raises:
          ValueError: `apply_gradients` has not been called, or there are too few tokens for the first update.
        """
        if self._runner is None:
            raise ValueError("get_init_tokens_op() should be called after apply_gradients().")
        needed = self._required - self._total
        n = self._required if num_tokens == -1 else num_tokens
        if n < needed:
            raise ValueError(f"Too few tokens to finish the first step: {n} (given) vs {needed} (needed)")
        with entered(self._global_step), _unordered(), scopes.name_scope(None):
            if n <= 0:
                return grouping.no_op(name="no_init_tokens")
            with scopes.device(self._global_step.device):
                return self._tokens(n)

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> SyncReplicasHook:
        """Returns a hook that prepares a monitored session for synchronous training.

        Args:
          is_chief: whether the session is that of the chief, which runs the updates.
          num_tokens: see `get_init_tokens_op`.
        """
        return SyncReplicasHook(self, is_chief, num_tokens)

    # *** the state of the other optimizer ***

    def get_slot(self, var: Any, name: str) -> Any:
        """See `Optimizer.get_slot`."""
        return self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """See `Optimizer.get_slot_names`."""
        return self._optimizer.get_slot_names()

    def variables(self) -> list[Any]:
        """See `Optimizer.variables`. The local step is not included."""
        return self._optimizer.variables()

    def init(self, params: Any) -> dict[str, Any]:
        """See `Optimizer.init`. As a function of tensors, this is the optimizer `opt`."""
        return self._optimizer.init(params)

    def update(self, grads: Any, state: Any, params: Any) -> tuple[Any, dict[str, Any]]:
        """See `Optimizer.update`."""
        return self._optimizer.update(grads, state, params)


class _Sums:
    """Accumulator of the gradients of one variable, on the device of the variable.

    Args:
      grad: the gradient of this worker.
      v: the variable.

    Attributes:
      accumulator: the accumulator.
    """

    def __init__(self, grad: Any, v: Any) -> None:
        self._grad = _sorted(grad) if tensors.is_sparse(grad) else grad
        self._v = v
        kind = SparseConditionalAccumulator if tensors.is_sparse(grad) else ConditionalAccumulator
        shape = shapes.as_shape(v.shape)
        with _alone(), scopes.device(v.device):
            self.accumulator: Any = kind(v.dtype.base, shape, shared_name=f"{v.name}/grad_accum")

    def apply(self, local_step: Any) -> Any:
        """Returns the operation that adds the gradient."""
        with scopes.device(self._v.device):
            if tensors.is_sparse(self._grad):
                return self.accumulator.apply_indexed_slices_grad(self._grad, local_step)
            return self.accumulator.apply_grad(self._grad, local_step)

    def take(self, required: int) -> Any:
        """Returns the mean gradient, for which the step waits until there are `required`."""
        if not tensors.is_sparse(self._grad):
            return self.accumulator.take_grad(required)
        mean = self.accumulator.take_indexed_slices_grad(required)
        shape = shapes.as_shape(self._v.shape)
        if shape is not None:
            mean.values.refine((None, *shape[1:]))
        return mean


def _sorted(grad: IndexedSlices) -> IndexedSlices:
    """Returns a sparse gradient with ascending and different indices, as accumulators expect it."""
    rows, indices = tensors.unique_rows(grad)
    order = sorting.argsort(indices)
    return IndexedSlices(tensors.gather(rows, order), tensors.gather(indices, order), grad.dense_shape)


@contextlib.contextmanager
def _unordered() -> Iterator[None]:
    """Creates operations outside of the graph's order of reads and changes.

    With that order, a later read of a variable would wait for the update, which the chief runs in another step.
    """
    b = scopes.graph_builder("SyncReplicasOptimizer")
    if b.graph.outer is not None:
        raise GraphError(
            "SyncReplicasOptimizer: its operations cannot be in a branch or a loop's body, because the chief runs some "
            "of them in steps of their own"
        )
    with scopes.entered(dataclasses.replace(b, is_ordered=False)):
        yield


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Creates operations that do not wait for the control inputs of surrounding blocks."""
    with scopes.control_dependencies(None):
        yield


class SyncReplicasHook(SessionRunHook):
    """Hook that prepares the sessions of a worker for synchronous training.

    Args:
      optimizer: the optimizer.
      is_chief: whether the session is that of the chief.
      num_tokens: see `SyncReplicasOptimizer.get_init_tokens_op`.
    """

    def __init__(self, optimizer: SyncReplicasOptimizer, is_chief: bool, num_tokens: int = -1) -> None:
        self._optimizer = optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens
        self._updates: _Unjoined | None = None

    def begin(self) -> None:
        """See `SessionRunHook.begin`.

        Raises:
          ValueError: the optimizer has not been used in the graph.
        """
        opt = self._optimizer
        if opt.chief_init_op is None:
            raise ValueError("SyncReplicasOptimizer.apply_gradient should be called before using the hook.")
        self._init = opt.chief_init_op if self._is_chief else opt.local_step_init_op
        self._tokens = opt.get_init_tokens_op(self._num_tokens) if self._is_chief else None

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """See `SessionRunHook.after_create_session`.

        Raises:
          RuntimeError: a variable is uninitialized.
        """
        missing = missing_variables(self._optimizer.ready_for_local_init_op, session)
        if missing is not None:
            raise RuntimeError(
                "Init operations did not make model ready for SyncReplicasOptimizer local_init. Init op: "
                f"{self._init.name}, error: {missing}"
            )
        session.run(self._init)
        if self._is_chief:
            session.run(self._tokens)
            self._updates = self._optimizer.get_chief_queue_runner().start_updates(session, coord)

    def end(self, session: Any) -> None:
        """See `SessionRunHook.end`. The chief closes the queue, so that waiting workers end too."""
        if self._updates is not None:
            self._updates.ends = True
            with contextlib.suppress(CancelledError):  # it may be closed already
                session.run(self._optimizer.get_chief_queue_runner().close_op)


__all__ = ["SyncReplicasOptimizer"]
