"""Training with an evaluation after checkpoints: `train_and_evaluate`."""

from __future__ import annotations

import os
from typing import Any

from headrace.train.hooks import CheckpointSaverListener, SecondOrStepTimer
from headrace.v1.estimator.estimator import Estimator
from headrace.v1.estimator.spec import EvalSpec, TrainSpec
from headrace.v1.logging import info


class _Evaluation(CheckpointSaverListener):
    """Evaluates after a checkpoint, not more often than `throttle_secs`, and after the last one."""

    def __init__(self, estimator: Estimator, spec: EvalSpec, max_steps: int | None) -> None:
        self._estimator, self._spec, self._last = estimator, spec, max_steps
        self.results: Any = None
        self.exports: list[Any] = []

    def begin(self) -> None:
        """See `CheckpointSaverListener.begin`."""
        self._timer = SecondOrStepTimer(every_secs=self._spec.throttle_secs)
        self._is_first = True

    def after_save(self, session: Any, global_step_value: int) -> None:
        """See `CheckpointSaverListener.after_save`."""
        if self._is_first:  # the checkpoint at the start of the session
            self._is_first = False
        elif self._timer.should_trigger_for_step(global_step_value):
            self._evaluate(global_step_value)
        else:
            info("Skip the current checkpoint eval due to throttle secs (%s secs).", self._spec.throttle_secs)

    def end(self, session: Any, global_step_value: int) -> None:
        """See `CheckpointSaverListener.end`."""
        if global_step_value != self._timer.last_triggered_step():
            self._evaluate(global_step_value)

    def _evaluate(self, step: int) -> None:
        self._timer.update_last_triggered_step(step)
        spec, estimator = self._spec, self._estimator
        path = estimator.latest_checkpoint()
        self.results = estimator.evaluate(spec.input_fn, spec.steps, spec.hooks, path, spec.name)
        is_last = self._last is not None and int(self.results["global_step"]) >= self._last
        self.exports = [
            exporter.export(
                estimator=estimator,
                export_path=os.path.join(estimator.model_dir, "export", exporter.name),
                checkpoint_path=path,
                eval_result=self.results,
                is_the_final_export=is_last,
            )
            for exporter in spec.exporters
        ]


def train_and_evaluate(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> tuple[Any, list[Any]]:
    """Trains an estimator in this process, and evaluates it after checkpoints and at the end.

    Args:
      estimator: the estimator.
      train_spec: description of the training.
      eval_spec: description of the evaluation.

    Returns:
      The metrics of the last evaluation, and the results of its exporters. None and an empty list if the training had
      reached `max_steps` already.

    Raises:
      TypeError: an argument has a wrong type.

    Source: TensorFlow 1's `tf.estimator.train_and_evaluate`.
    """
    for name, value, cls in (
        ("estimator", estimator, Estimator), ("train_spec", train_spec, TrainSpec), ("eval_spec", eval_spec, EvalSpec),
    ):  # fmt: skip
        if not isinstance(value, cls):
            raise TypeError(f"`{name}` must have type `tf.estimator.{cls.__name__}`, given {type(value)}")
    listener = _Evaluation(estimator, eval_spec, train_spec.max_steps)
    estimator.train(
        train_spec.input_fn, train_spec.hooks, None, train_spec.max_steps, [listener, *train_spec.saving_listeners]
    )
    return listener.results, listener.exports
