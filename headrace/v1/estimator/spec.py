"""The result of a `model_fn`, descriptions of training and evaluation, base class of exporters."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from headrace.api.variable import Variable
from headrace.ir.graph import Operation
from headrace.ir.tensor_type import Tensor
from headrace.train import scaffold as scaffolds
from headrace.train.hooks import SessionRunHook
from headrace.v1 import array_ops, monitored
from headrace.v1.estimator.modes import ModeKeys
from headrace.v1.tensor_shape import TensorShape

LOSS: Final = "loss"
AVERAGE_LOSS: Final = "average_loss"
DEFAULT_SIGNATURE: Final = "serving_default"


class _Fields(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: dict[str, Any]
    export_outputs: Any
    training_chief_hooks: tuple[Any, ...]
    training_hooks: tuple[Any, ...]
    scaffold: Any
    evaluation_hooks: tuple[Any, ...]
    prediction_hooks: tuple[Any, ...]


class EstimatorSpec(_Fields):
    """Operations of a model, which a `model_fn` returns.

    Args:
      mode: a key of `ModeKeys`.
      predictions: a tensor or a dict of tensors. Required for prediction.
      loss: a scalar, or a tensor with one element. Required for training and evaluation.
      train_op: operation or tensor of a training step. Required for training.
      eval_metric_ops: dict from names to pairs of value and update operation, as those of `tf.metrics`.
      export_outputs: dict from signature names to objects of `tf.estimator.export`.
      training_chief_hooks, training_hooks: hooks for training.
      scaffold: a `tf.train.Scaffold`. None: a new one.
      evaluation_hooks: hooks for evaluation.
      prediction_hooks: hooks for prediction.

    Raises:
      ValueError: an argument that the mode requires is missing; the loss has several elements; or a tensor belongs to
        another graph.
      TypeError: an argument has a wrong type.

    Source: TensorFlow 1's `tf.estimator.EstimatorSpec`.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: Mapping[str, Any] | None = None,
        export_outputs: Mapping[str, Any] | None = None,
        training_chief_hooks: Iterable[Any] | None = None,
        training_hooks: Iterable[Any] | None = None,
        scaffold: Any = None,
        evaluation_hooks: Iterable[Any] | None = None,
        prediction_hooks: Iterable[Any] | None = None,
    ) -> Any:
        if train_op is None and mode == ModeKeys.TRAIN:
            raise ValueError("Missing train_op.")
        if train_op is not None and not isinstance(train_op, (Operation, Tensor, Variable)):
            raise TypeError(f"train_op must be Operation or Tensor, given: {train_op}")
        metrics = _checked_metrics(eval_metric_ops)
        given = (training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks)
        hooks = [_checked_hooks(h) for h in given]
        scaffold = scaffold if scaffold is not None else monitored.Scaffold()
        if not isinstance(scaffold, scaffolds.Scaffold):
            raise TypeError(f"scaffold must be tf.train.Scaffold. Given: {scaffold}")
        return super().__new__(
            cls,
            mode,
            _checked_predictions(predictions, mode),
            _checked_loss(loss, mode),
            train_op,
            metrics,
            _checked_outputs(export_outputs, predictions, mode),
            hooks[0],
            hooks[1],
            scaffold,
            hooks[2],
            hooks[3],
        )


def _checked_loss(loss: Any, mode: str) -> Any:
    if loss is None:
        if mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            raise ValueError("Missing loss.")
        return None
    if isinstance(loss, Variable):
        loss = array_ops.identity(loss)
    if not isinstance(loss, Tensor):
        raise TypeError(f"loss must be Tensor, given: {loss}")
    shape = TensorShape(loss.shape)
    if shape.num_elements() not in (None, 1):
        raise ValueError(f"Loss must be scalar, given: {loss}")
    return loss if shape.ndims == 0 else array_ops.reshape(loss, [])


def _checked_predictions(predictions: Any, mode: str) -> Any:
    if predictions is None:
        if mode == ModeKeys.PREDICT:
            raise ValueError("Missing predictions.")
        return {}
    if not isinstance(predictions, Mapping):
        if not isinstance(predictions, (Tensor, Variable)):
            raise TypeError(f"predictions must be Tensor, given: {predictions}")
        return predictions
    for name, value in predictions.items():
        if not isinstance(value, (Tensor, Variable)):
            raise TypeError(f"predictions[{name}] must be Tensor, given: {value}")
    return dict(predictions)


def _checked_metrics(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"eval_metric_ops must be a dict, given: {given}")
    for name, pair in given.items():
        is_object = hasattr(pair, "result") and hasattr(pair, "updates")
        if not is_object and (not isinstance(pair, tuple) or len(pair) != 2):
            raise TypeError(
                f"Values of eval_metric_ops must be (metric_value, update_op) tuples, given: {pair} for key: {name}"
            )
    return dict(given)


def _checked_outputs(given: Any, predictions: Any, mode: str) -> Any:
    """Returns the outputs, of which one is the default signature."""
    if mode != ModeKeys.PREDICT:
        return given
    from headrace.v1.estimator.export_outputs import ExportOutput, PredictOutput

    found = {DEFAULT_SIGNATURE: PredictOutput(predictions)} if given is None else given
    if not isinstance(found, Mapping):
        raise TypeError(f"`export_outputs` must be dict, received: {found}")
    for value in found.values():
        if not isinstance(value, ExportOutput):
            raise TypeError(f"Values in `export_outputs` must be ExportOutput objects. Given: {found}")
    found = dict(found)
    if len(found) == 1:
        ((key, value),) = found.items()
        if key != DEFAULT_SIGNATURE:
            found[DEFAULT_SIGNATURE] = value
    elif found and DEFAULT_SIGNATURE not in found:
        raise ValueError(
            f"Multiple `export_outputs` were provided, but none of them is specified as the default.  Do this by "
            f"naming one of them with {DEFAULT_SIGNATURE!r}."
        )
    return found


def _checked_hooks(hooks: Any) -> tuple[Any, ...]:
    found = tuple(hooks or ())
    for hook in found:
        if not isinstance(hook, SessionRunHook) and not hasattr(hook, "after_create_session"):
            raise TypeError(f"All hooks must be SessionRunHook instances, given: {hook}")
    return found


class _Train(NamedTuple):
    input_fn: Callable[..., Any]
    max_steps: int | None
    hooks: tuple[Any, ...]
    saving_listeners: tuple[Any, ...]


class TrainSpec(_Train):
    """Description of the training for `train_and_evaluate`.

    Args:
      input_fn, max_steps, hooks, saving_listeners: see `Estimator.train`.

    Raises:
      ValueError: `max_steps` is not positive.
      TypeError: a hook is no `tf.train.SessionRunHook`.

    Source: TensorFlow 1's `tf.estimator.TrainSpec`.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        max_steps: int | None = None,
        hooks: Iterable[Any] | None = None,
        saving_listeners: Iterable[Any] | None = None,
    ) -> Any:
        _check_function(input_fn)
        if max_steps is not None and max_steps <= 0:
            raise ValueError(f"Must specify max_steps > 0, given: {max_steps}")
        return super().__new__(cls, input_fn, max_steps, _checked_hooks(hooks), tuple(saving_listeners or ()))


class Exporter(abc.ABC):
    """Abstract base class of exporters, which `train_and_evaluate` calls after an evaluation.

    Source: TensorFlow 1's `tf.estimator.Exporter`.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Name of the exporter, the folder below `model_dir`/export."""

    @abc.abstractmethod
    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """Exports the model.

        Args:
          estimator: the estimator.
          export_path: the folder of the exporter.
          checkpoint_path: the checkpoint that was evaluated.
          eval_result: its metrics.
          is_the_final_export: whether the training has reached `max_steps`.

        Returns:
          The path of the SavedModel as `bytes`, or None if there is none.
        """


class _Eval(NamedTuple):
    input_fn: Callable[..., Any]
    steps: int | None
    name: str | None
    hooks: tuple[Any, ...]
    exporters: tuple[Any, ...]
    start_delay_secs: float
    throttle_secs: float


class EvalSpec(_Eval):
    """Description of the evaluation for `train_and_evaluate`.

    Args:
      input_fn, steps, name, hooks: see `Estimator.evaluate`.
      exporters: objects of `Exporter`, called after each evaluation.
      start_delay_secs: accepted as in TensorFlow; in one process an evaluation follows a checkpoint.
      throttle_secs: least number of seconds between the starts of two evaluations.

    Raises:
      ValueError: `steps` is not positive, a time is negative, or two exporters have the same name.
      TypeError: a hook, an exporter or the name has a wrong type.

    Source: TensorFlow 1's `tf.estimator.EvalSpec`.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        steps: int | None = 100,
        name: str | None = None,
        hooks: Iterable[Any] | None = None,
        exporters: Any = None,
        start_delay_secs: float = 120,
        throttle_secs: float = 600,
    ) -> Any:
        _check_function(input_fn)
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"`name` must be string, given: {name}")
        if start_delay_secs < 0:
            raise ValueError(f"Must specify start_delay_secs >= 0, given: {start_delay_secs}")
        if throttle_secs < 0:
            raise ValueError(f"Must specify throttle_secs >= 0, given: {throttle_secs}")
        given = (exporters,) if isinstance(exporters, Exporter) else tuple(exporters or ())
        for e in given:
            if not isinstance(e, Exporter):
                raise TypeError(f"`exporters` must be Exporter instances, given: {e}")
        names = [e.name for e in given]
        for found in names:
            if names.count(found) > 1:
                raise ValueError(f"`exporters` must have unique names. Such a name cannot be found twice: {found!r}")
        return super().__new__(
            cls, input_fn, steps, name, _checked_hooks(hooks), given, start_delay_secs, throttle_secs
        )


def _check_function(input_fn: Any) -> None:
    if not callable(input_fn):
        raise TypeError(f"`input_fn` must be callable, given: {input_fn}")
