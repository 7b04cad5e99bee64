"""`tf.contrib.slim.learning`: the operation of a training step, and the loop that runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.api import scopes, tensors
from headrace.ir.indexed_slices import IndexedSlices
from headrace.train.coordinator import GRACE_SECONDS
from headrace.v1 import check_ops, logging, math_ops, summary
from headrace.v1 import global_step as steps
from headrace.v1.contrib import equivalents
from headrace.v1.graph import GraphKeys, get_collection, get_default_graph, in_default_graph
from headrace.v1.replicas import Supervisor
from headrace.v1.saver import Saver
from headrace.v1.variables import trainable_variables

_USE_GLOBAL_STEP = 0  # the global step of the graph


def clip_gradient_norms(gradients_to_variables: Sequence[tuple[Any, Any]], max_norm: float) -> list[tuple[Any, Any]]:
    """Returns pairs of gradient and variable; each gradient has a norm of at most `max_norm`.

    Source: TensorFlow's `tf.contrib.slim.learning.clip_gradient_norms`.
    """

    def clipped(g: Any) -> Any:
        if isinstance(g, IndexedSlices):
            return IndexedSlices(math_ops.clip_by_norm(g.values, max_norm), g.indices, g.dense_shape)
        return math_ops.clip_by_norm(g, max_norm)

    return [(None if g is None else clipped(g), v) for g, v in gradients_to_variables]


def multiply_gradients(
    grads_and_vars: Sequence[tuple[Any, Any]], gradient_multipliers: Mapping[Any, Any]
) -> list[tuple[Any, Any]]:
    """Returns pairs of gradient and variable; the gradients of some variables are multiplied by numbers.

    Args:
      grads_and_vars: the pairs.
      gradient_multipliers: the numbers, by variable or its name.

    Raises:
      ValueError: a variable of `gradient_multipliers` has no gradient.

    Source: TensorFlow's `tf.contrib.slim.learning.multiply_gradients`.
    """
    if not isinstance(gradient_multipliers, Mapping) or not gradient_multipliers:
        raise ValueError("`gradient_multipliers` must be a dict with one element at least.")
    out = []
    for g, v in grads_and_vars:
        key = next((k for k in gradient_multipliers if k is v or (isinstance(k, str) and k == v.op.name)), None)
        if key is not None:
            if g is None:
                raise ValueError("Requested multiple of `None` gradient.")
            factor = math_ops.cast(gradient_multipliers[key], g.dtype.base)
            if isinstance(g, IndexedSlices):
                g = IndexedSlices(g.values * factor, g.indices, g.dense_shape)
            else:
                g = g * factor
        out.append((g, v))
    return out


def add_gradients_summaries(grads_and_vars: Sequence[tuple[Any, Any]]) -> list[Any]:
    """Returns summaries of gradients: a histogram and the norm of each.

    Source: TensorFlow's `tf.contrib.slim.learning.add_gradients_summaries`.
    """
    out = []
    for g, v in grads_and_vars:
        if g is not None:
            values = g.values if isinstance(g, IndexedSlices) else g
            out.append(summary.histogram(f"{v.op.name}/gradient", values))
            out.append(summary.scalar(f"{v.op.name}/gradient_norm", math_ops.global_norm([values])))
    return out


@in_default_graph
def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = _USE_GLOBAL_STEP,
    update_ops: Sequence[Any] | None = None,
    variables_to_train: Sequence[Any] | None = None,
    clip_gradient_norm: float = 0,
    summarize_gradients: bool = False,
    gate_gradients: int = 1,
    aggregation_method: Any = None,
    colocate_gradients_with_ops: bool = False,
    gradient_multipliers: Mapping[Any, Any] | None = None,
    check_numerics: bool = True,
) -> Any:
    """Returns a tensor whose value is the loss, after a step of an optimizer.

    Args:
      total_loss: the loss.
      optimizer: the optimizer.
      global_step: the variable that counts steps, or None for none; by default the global step of the graph.
      update_ops: operations that run before the step; None: those of GraphKeys.UPDATE_OPS.
      variables_to_train: variables; None: all trainable ones.
      clip_gradient_norm: bound of the norm of each gradient; 0: no bound.
      summarize_gradients: whether gradients have summaries.
      gate_gradients, aggregation_method, colocate_gradients_with_ops: see `tf.train.Optimizer.compute_gradients`.
      gradient_multipliers: factors of gradients, by variable or its name.
      check_numerics: whether a loss that is not finite is an error.

    Source: TensorFlow's `tf.contrib.slim.learning.create_train_op`.
    """
    if isinstance(global_step, int) and global_step == _USE_GLOBAL_STEP:
        global_step = steps.get_or_create_global_step()
    before = list(get_collection(GraphKeys.UPDATE_OPS) if update_ops is None else update_ops)
    if before:
        with scopes.control_dependencies(before):
            total_loss = tensors.identity(total_loss)
    pairs = optimizer.compute_gradients(
        total_loss, trainable_variables() if variables_to_train is None else list(variables_to_train),
        gate_gradients=gate_gradients, aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
    )  # fmt: skip
    if gradient_multipliers:
        pairs = multiply_gradients(pairs, gradient_multipliers)
    if clip_gradient_norm > 0:
        pairs = clip_gradient_norms(pairs, clip_gradient_norm)
    if summarize_gradients:
        add_gradients_summaries(pairs)
    updates = optimizer.apply_gradients(pairs, global_step=global_step)
    with scopes.name_scope("train_op"):
        if check_numerics:
            total_loss = check_ops.check_numerics(total_loss, "LossTensor is inf or nan")
        with scopes.control_dependencies([updates]):
            train_op = tensors.identity(total_loss)
    kept = get_default_graph().get_collection_ref(GraphKeys.TRAIN_OP)
    if train_op not in kept:
        kept.append(train_op)
    return train_op


def train_step(sess: Any, train_op: Any, global_step: Any, train_step_kwargs: Mapping[str, Any]) -> tuple[Any, bool]:
    """Runs a step, and returns the loss and whether training should stop.

    Args:
      sess: the session.
      train_op: the operation of a step.
      global_step: the global step.
      train_step_kwargs: "should_stop" and "should_log", boolean scalars that are read after the step, if any.

    Source: TensorFlow's `tf.contrib.slim.learning.train_step`.
    """
    began = time.monotonic()
    loss, step = sess.run([train_op, global_step])
    duration = time.monotonic() - began
    if "should_log" in train_step_kwargs and sess.run(train_step_kwargs["should_log"]):
        logging.info("global step %d: loss = %.4f (%.3f sec/step)", step, loss, duration)
    return loss, "should_stop" in train_step_kwargs and bool(sess.run(train_step_kwargs["should_stop"]))


def train(
    train_op: Any,
    logdir: Any,
    train_step_fn: Callable[..., tuple[Any, bool]] = train_step,
    train_step_kwargs: Mapping[str, Any] | None = None,
    log_every_n_steps: int = 1,
    graph: Any = None,
    master: str = "",
    is_chief: bool = True,
    global_step: Any = None,
    number_of_steps: int | None = None,
    init_op: Any = Supervisor.USE_DEFAULT,
    init_feed_dict: Any = None,
    local_init_op: Any = Supervisor.USE_DEFAULT,
    init_fn: Callable[[Any], Any] | None = None,
    ready_op: Any = Supervisor.USE_DEFAULT,
    summary_op: Any = Supervisor.USE_DEFAULT,
    save_summaries_secs: float = 600,
    summary_writer: Any = Supervisor.USE_DEFAULT,
    startup_delay_steps: int = 0,
    saver: Any = None,
    save_interval_secs: float = 600,
    sync_optimizer: Any = None,
    session_config: Any = None,
    session_wrapper: Callable[[Any], Any] | None = None,
    trace_every_n_steps: int | None = None,
    ignore_live_threads: bool = False,
) -> Any:
    """Runs training steps until `number_of_steps`, with summaries and checkpoints in a folder.

    Args:
      train_op: the operation of a step, as `create_train_op` returns it.
      logdir: folder of checkpoints and summaries; None: there are none.
      train_step_fn: a function (session, train_op, global_step, train_step_kwargs) that runs a step.
      train_step_kwargs: its last argument; None: `number_of_steps` and `log_every_n_steps` decide.
      log_every_n_steps: number of steps between log lines.
      graph: the graph; None: the default graph.
      number_of_steps: the global step at which training ends; None: no end.
      session_wrapper: a function from a session to the session to use.
      startup_delay_steps, sync_optimizer, trace_every_n_steps, ignore_live_threads: only the defaults.
      master, is_chief, global_step, init_op, init_feed_dict, local_init_op, init_fn, ready_op, summary_op,
        save_summaries_secs, summary_writer, saver, save_interval_secs, session_config: see `tf.train.Supervisor`.

    Returns:
      The loss of the last step; None if no step ran.

    Raises:
      ValueError: there is no `train_op`, no global step, or `number_of_steps` is not positive.

    Source: TensorFlow's `tf.contrib.slim.learning.train`.
    """
    if train_op is None:
        raise ValueError("train_op cannot be None.")
    if number_of_steps is not None and number_of_steps <= 0:
        raise ValueError("`number_of_steps` must be either None or a positive number.")
    for what, value in (
        ("startup_delay_steps", startup_delay_steps), ("sync_optimizer", sync_optimizer),
        ("trace_every_n_steps", trace_every_n_steps),
    ):  # fmt: skip
        if value:
            raise ValueError(f"train({what}={value!r}) is not supported; leave {what} out")
    graph = graph or get_default_graph()
    with graph.as_default():
        step = steps.get_or_create_global_step() if global_step is None else global_step
        made = saver or Saver()
        if train_step_kwargs is None:
            train_step_kwargs = {}
            if number_of_steps is not None:
                train_step_kwargs["should_stop"] = math_ops.greater_equal(step, number_of_steps)
            if log_every_n_steps > 0:
                train_step_kwargs["should_log"] = math_ops.equal(math_ops.mod(step, log_every_n_steps), 0)
        supervisor = Supervisor(
            graph=graph, is_chief=is_chief, logdir=logdir, init_op=init_op, init_feed_dict=init_feed_dict,
            local_init_op=local_init_op, ready_op=ready_op, summary_op=summary_op if logdir else None,
            summary_writer=summary_writer, global_step=step, saver=made, save_summaries_secs=save_summaries_secs,
            save_model_secs=save_interval_secs if logdir else 0, init_fn=init_fn,
        )  # fmt: skip
        loss = None
        with supervisor.managed_session(master, config=session_config, start_standard_services=False) as raw:
            session = raw if session_wrapper is None else session_wrapper(raw)
            saves = bool(logdir) and is_chief
            services = supervisor.start_standard_services(session) if saves else []
            supervisor.start_queue_runners(session)
            while not supervisor.should_stop():
                loss, stops = train_step_fn(session, train_op, step, train_step_kwargs)
                if stops:
                    supervisor.request_stop()
            # A save of theirs that ended after the last one would name an older checkpoint as the newest.
            for service in services:
                service.join(GRACE_SECONDS)
            if saves:
                made.save(session, supervisor.save_path, global_step=step)
        return loss


__all__ = [
    "add_gradients_summaries", "clip_gradient_norms", "create_train_op", "multiply_gradients", "train", "train_step",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
