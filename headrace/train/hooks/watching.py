"""Hooks that read values (logging, NaN checks, a final computation), and a hook that feeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from headrace.errors import OutOfRangeError
from headrace.ir.graph import Operation, Tensor
from headrace.train.global_step import root_of
from headrace.train.hooks.base import (
    Never,
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    log,
)


def element(given: Any) -> Any:
    """What `given` stands for in the graph entered: a tensor, variable or operation, or the name of a tensor, which may
    be that of an operation with one output.

    Raises:
      ValueError: it is of another graph, or the operation has several outputs. KeyError: there is no such name.
    """
    graph = root_of()
    if isinstance(given, str):
        if ":" in given:
            return graph.as_graph_element(given)
        op = graph.get_operation_by_name(given)
        if len(op.outputs) > 1:
            raise ValueError(f"Name {given} is ambiguous: the operation has {len(op.outputs)} outputs; write {given}:0")
        return graph.get_tensor_by_name(given + ":0")
    of = getattr(given, "graph", None)
    if of is not graph:
        raise ValueError(f"Passed {given!r} should be of the graph that is trained, {graph!r}, it is of {of!r}")
    return given


class LoggingTensorHook(SessionRunHook):
    """Logs tensors now and then, at level INFO of the logger "headrace.train".

    To see them: `logging.basicConfig(level="INFO")`, or `tf.logging.set_verbosity(tf.logging.INFO)`.

    Args:
      tensors: a dict from what they are called to tensors or names of tensors; or a list of these.
      every_n_iter: log every so many steps of this session.
      every_n_secs: every so many seconds, in place of `every_n_iter`.
      at_end: whether to log at the end, in a step of its own, too. With neither of the two, only then.
      formatter: makes the text from the dict of values; None: "name = value, ...".

    Raises:
      ValueError: how often is said twice or not at all; `every_n_iter` is not positive. In `begin`: see `element`.

    Source: TensorFlow's `tf.train.LoggingTensorHook`.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Iterable[Any],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[Any, Any]], str] | None = None,
    ) -> None:
        is_only_at_end = at_end and every_n_iter is None and every_n_secs is None
        if not is_only_at_end and (every_n_iter is None) == (every_n_secs is None):
            raise ValueError("either at_end and/or exactly one of every_n_iter and every_n_secs must be provided.")
        if every_n_iter is not None and every_n_iter <= 0:
            raise ValueError(f"invalid every_n_iter={every_n_iter}: it must be at least 1")
        if isinstance(tensors, Mapping):
            self._tensors: dict[Any, Any] = {k: tensors[k] for k in sorted(tensors)}
        else:
            self._tensors = {_tag(t): t for t in tensors}
        self._timer: Any = Never() if is_only_at_end else SecondOrStepTimer(every_n_secs, every_n_iter)
        self._at_end = at_end
        self._format = formatter

    def begin(self) -> None:
        """See `SessionRunHook.begin`."""
        self._timer.reset()
        self._steps = 0
        self._fetches = {tag: element(t) for tag, t in self._tensors.items()}

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """See `SessionRunHook.before_run`."""
        self._is_due = self._timer.should_trigger_for_step(self._steps)
        return SessionRunArgs(self._fetches) if self._is_due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """See `SessionRunHook.after_run`."""
        if self._is_due:
            self._tell(run_values.results)
        self._steps += 1

    def end(self, session: Any) -> None:
        """See `SessionRunHook.end`."""
        if self._at_end:
            self._tell(session.run(self._fetches))

    def _tell(self, values: dict[Any, Any]) -> None:
        seconds, _ = self._timer.update_last_triggered_step(self._steps)
        if self._format is not None:
            log.info("%s", self._format(values))
            return
        with np.printoptions(suppress=True):
            text = ", ".join(f"{tag} = {value}" for tag, value in values.items())
        log.info("%s%s", text, "" if seconds is None else f" ({seconds:.3f} sec)")


def _tag(given: Any) -> Any:
    """What a tensor that was given without a name is called: what was given, as TensorFlow has it."""
    return given if isinstance(given, str | Tensor | Operation) else given.name


class NanLossDuringTrainingError(RuntimeError):
    """The loss is not a number.

    Source: TensorFlow's `tf.train.NanLossDuringTrainingError`.
    """

    def __str__(self) -> str:
        return super().__str__() or "NaN loss during training."


class NanTensorHook(SessionRunHook):
    """Stops the training when the loss is NaN.

    Args:
      loss_tensor: the loss; of any shape: one element that is NaN suffices.
      fail_on_nan_loss: whether that is an error; else the training ends as if it were over.

    Raises:
      NanLossDuringTrainingError: after the step with that loss.

    Source: TensorFlow's `tf.train.NanTensorHook`.
    """

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True) -> None:
        self._loss = loss_tensor
        self._fails = fail_on_nan_loss

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """See `SessionRunHook.before_run`."""
        return SessionRunArgs(self._loss)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """See `SessionRunHook.after_run`."""
        if not np.isnan(run_values.results).any():
            return
        name = self._loss if isinstance(self._loss, str) else self._loss.name
        if self._fails:
            log.error("Model diverged with loss = NaN ('%s').", name)
            raise NanLossDuringTrainingError(f"NaN loss during training: '{name}' is {run_values.results}")
        log.warning("Model diverged with loss = NaN ('%s').", name)
        run_context.request_stop()


class FinalOpsHook(SessionRunHook):
    """Computes something at the end of the training.

    Args:
      final_ops: what to run: a tensor, operation or name, or a structure of them.
      final_ops_feed_dict: what to feed for it.

    Attributes:
      final_ops_values: what came of it; None before the end.

    Source: TensorFlow's `tf.train.FinalOpsHook`.
    """

    def __init__(self, final_ops: Any, final_ops_feed_dict: Any = None) -> None:
        self._ops = final_ops
        self._feed = final_ops_feed_dict
        self.final_ops_values: Any = None

    def end(self, session: Any) -> None:
        """See `SessionRunHook.end`."""
        if self._ops is None:
            return
        try:
            self.final_ops_values = session.run(self._ops, feed_dict=self._feed)
        except (OutOfRangeError, StopIteration) as e:
            e.add_note(
                "(at the end of the training there is no more data: what FinalOpsHook runs must need none, only what "
                "variables hold)"
            )
            raise


class FeedFnHook(SessionRunHook):
    """Feeds each step what a function gives.

    Args:
      feed_fn: takes nothing, and returns a dict of tensors (or names) and values.

    Source: TensorFlow's `tf.train.FeedFnHook`.
    """

    def __init__(self, feed_fn: Callable[[], Mapping[Any, Any]]) -> None:
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """See `SessionRunHook.before_run`."""
        return SessionRunArgs(None, feed_dict=self.feed_fn())
