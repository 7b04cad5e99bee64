"""Exporters, which `train_and_evaluate` calls after an evaluation to write SavedModels."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from headrace.v1 import gfile
from headrace.v1.estimator.functions import argument_names
from headrace.v1.estimator.spec import LOSS, Exporter
from headrace.v1.logging import info
from headrace.v1.summary import summary_iterator

_DIGITS = 10  # of the names of folders, which are times in seconds


class _Writer(Exporter):
    """Exporter with the arguments of `Estimator.export_saved_model`."""

    def __init__(
        self, name: str, serving_input_receiver_fn: Any, assets_extra: Any, as_text: bool, exports_to_keep: int | None
    ) -> None:
        if exports_to_keep is not None and exports_to_keep <= 0:
            raise ValueError(f"`exports_to_keep`, if provided, must be a positive number. Got {exports_to_keep}")
        self._name = name
        self._function, self._assets, self._as_text = serving_input_receiver_fn, assets_extra, as_text
        self._to_keep = exports_to_keep

    @property
    def name(self) -> str:
        """See `Exporter.name`."""
        return self._name

    def _write(self, estimator: Any, folder: str, checkpoint: str) -> Any:
        """Writes a SavedModel, and deletes the oldest beyond the number to keep."""
        path = estimator.export_saved_model(folder, self._function, self._assets, self._as_text, checkpoint)
        if self._to_keep is not None:
            names = [name for name in os.listdir(folder) if len(name) == _DIGITS and name.isdigit()]
            for name in sorted(names)[: -self._to_keep]:
                gfile.DeleteRecursively(os.path.join(folder, name))
        return path


class LatestExporter(_Writer):
    """Exports the model after each evaluation.

    Args:
      name: name of the exporter, the folder below `model_dir`/export.
      serving_input_receiver_fn: function that returns a `ServingInputReceiver`.
      assets_extra, as_text: see `Estimator.export_saved_model`.
      exports_to_keep: number of newest exports that are not deleted. None: all.

    Raises:
      ValueError: `exports_to_keep` is not positive.

    Source: TensorFlow 1's `tf.estimator.LatestExporter`.
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """See `Exporter.export`."""
        return self._write(estimator, export_path, checkpoint_path)


class FinalExporter(_Writer):
    """Exports the model once, at the end of the training.

    Args:
      name, serving_input_receiver_fn, assets_extra, as_text: see `LatestExporter`.

    Source: TensorFlow 1's `tf.estimator.FinalExporter`.
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, None)

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """See `Exporter.export`."""
        if not is_the_final_export:
            return None
        info("Performing the final export in the end of training.")
        return self._write(estimator, export_path, checkpoint_path)


def _has_smaller_loss(best_eval_result: Any, current_eval_result: Any) -> bool:
    """Whether the second of two evaluations has the smaller loss."""
    for name, result in (("best_eval_result", best_eval_result), ("current_eval_result", current_eval_result)):
        if not result or LOSS not in result:
            raise ValueError(f"{name} cannot be empty or no loss is found in it.")
    return bool(best_eval_result[LOSS] > current_eval_result[LOSS])


class BestExporter(_Writer):
    """Exports the model after each evaluation that is better than all before.

    The first evaluation counts as better.

    Args:
      name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep: see `LatestExporter`.
      event_file_pattern: pattern of the event files below `model_dir` with the metrics of earlier evaluations, so that
        a program that is started again knows the best. None: none is read.
      compare_fn: function of `best_eval_result` and `current_eval_result`, dicts of metrics, that returns whether the
        second one is better. The default compares losses.

    Raises:
      ValueError: `compare_fn` is None or takes other arguments, or `exports_to_keep` is not positive.

    Source: TensorFlow 1's `tf.estimator.BestExporter`.
    """

    def __init__(
        self,
        name: str = "best_exporter",
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        event_file_pattern: str | None = "eval/*.tfevents.*",
        compare_fn: Callable[..., Any] = _has_smaller_loss,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        if compare_fn is None:
            raise ValueError("`compare_fn` must not be None.")
        names = set(argument_names(compare_fn))
        needed = ("best_eval_result", "current_eval_result")
        for one in needed:
            if one not in names:
                raise ValueError(f"compare_fn ({compare_fn}) must include {one} argument.")
        if others := sorted(names - set(needed)):
            raise ValueError(f"compare_fn ({compare_fn}) has following not expected args: {others}")
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)
        self._is_better, self._pattern = compare_fn, event_file_pattern
        self._folder: str | None = None  # of the estimator whose event files are read
        self._best: Any = None
        self._has_exported = False

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        """See `Exporter.export`."""
        if self._pattern and self._folder != estimator.model_dir:
            info("Loading best metric from event files.")
            self._folder = estimator.model_dir
            self._best = self._best_of(os.path.join(estimator.model_dir, self._pattern))
        given = {"best_eval_result": self._best, "current_eval_result": eval_result}
        if self._best is not None and self._has_exported and not self._is_better(**given):
            return None
        info("Performing best model export.")
        self._best = eval_result
        path = self._write(estimator, export_path, checkpoint_path)
        self._has_exported = True
        return path

    def _best_of(self, pattern: str) -> Any:
        """Returns the best metrics in event files; None if they have none."""
        best: Any = None
        for path in gfile.Glob(pattern):
            for event in summary_iterator(path):
                found = {x.tag: x.simple_value for x in event.summary.value if x.HasField("simple_value")}
                if found and (best is None or self._is_better(best_eval_result=best, current_eval_result=found)):
                    best = found
        return best
