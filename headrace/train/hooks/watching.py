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
    """Returns the tensor, variable or operation of the current graph that `given` denotes.

    Args:
      given: a tensor, variable or operation; or the name of a tensor, or of an operation with one output.

    Raises:
      ValueError: the object belongs to another graph, or the operation has several outputs.
      KeyError: the name does not exist.
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
    """Logs tensors periodically, at level INFO of the logger "headrace.train".

    To see them: `logging.basicConfig(level="INFO")`, or `tf.logging.set_verbosity(tf.logging.INFO)`.

    Args:
      tensors: a dict from labels to tensors or names of tensors, or a list of tensors or names.
      every_n_iter: period in steps of this session.
      every_n_secs: period in seconds, in place of `every_n_iter`.
      at_end: whether to log at the end of the training as well, by a separate run. If no period is given, only then.
      formatter: function from the dict of values to the text. None: "name = value, ...".

    Raises:
      ValueError: both periods are given, or neither and not `at_end`; `every_n_iter` is not positive.
      ValueError, KeyError: in `begin`: see `element`.

    Source: TensorFlow's `tf.train.LoggingTensorHook`.

    Example:
      >>> import headrace as hr
      >>> hook = hr.train.LoggingTensorHook(["loss:0"], every_n_iter=10)
      >>> isinstance(hook, hr.train.SessionRunHook)
      True
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
    """Returns the label of a tensor without one, as in TensorFlow."""
    return given if isinstance(given, str | Tensor | Operation) else given.name


class NanLossDuringTrainingError(RuntimeError):
    """Error of a loss that is NaN.

    Source: TensorFlow's `tf.train.NanLossDuringTrainingError`.
    """

    def __str__(self) -> str:
        return super().__str__() or "NaN loss during training."


class NanTensorHook(SessionRunHook):
    """Stops the training when the loss is NaN.

    Args:
      loss_tensor: the loss, of any shape. One element that is NaN suffices.
      fail_on_nan_loss: whether to raise an error. Otherwise the training ends as if it were complete.

    Raises:
      NanLossDuringTrainingError: after a step with such a loss, if `fail_on_nan_loss`.

    Source: TensorFlow's `tf.train.NanTensorHook`.

    Example:
      >>> import headrace as hr
      >>> isinstance(hr.train.NanTensorHook("loss:0"), hr.train.SessionRunHook)
      True
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
    """Runs operations at the end of the training.

    Args:
      final_ops: a tensor, operation or name, or a structure of them.
      final_ops_feed_dict: feeds of this run.

    Attributes:
      final_ops_values: results of the run, in the structure of `final_ops`. None before the end.

    Source: TensorFlow's `tf.train.FinalOpsHook`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     hook = hr.train.FinalOpsHook(hr.constant(7))
      ...     with hr.train.MonitoredSession(hooks=[hook]) as sess:
      ...         pass
      >>> hook.final_ops_values
      np.int32(7)
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
    """Feeds each step with the result of a function.

    Args:
      feed_fn: function without arguments that returns a dict from tensors or names to values.

    Attributes:
      feed_fn: the function.

    Source: TensorFlow's `tf.train.FeedFnHook`.

    Example:
      >>> import headrace as hr
      >>> hook = hr.train.FeedFnHook(lambda: {"x:0": 1.0})
      >>> hook.before_run(None).feed_dict
      {'x:0': 1.0}
    """

    def __init__(self, feed_fn: Callable[[], Mapping[Any, Any]]) -> None:
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """See `SessionRunHook.before_run`."""
        return SessionRunArgs(None, feed_dict=self.feed_fn())
