"""TensorFlow 1's `tf.contrib.metrics`: those of `tf.metrics` as `streaming_*`, with predictions before labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.api import math, reductions, scopes
from headrace.v1 import math_ops, metrics
from headrace.v1.contrib import equivalents
from headrace.v1.contrib.swapped import swapped
from headrace.v1.graph import in_default_graph
from headrace.v1.sets import difference as set_difference
from headrace.v1.sets import intersection as set_intersection
from headrace.v1.sets import size as set_size
from headrace.v1.sets import union as set_union

confusion_matrix = math_ops.confusion_matrix
streaming_mean = metrics.mean
streaming_mean_tensor = metrics.mean_tensor
streaming_percentage_less = metrics.percentage_below


def _streaming(name: str) -> Any:
    return swapped(getattr(metrics, name), "predictions", "labels", f"tf.contrib.metrics.streaming_{name}")


streaming_accuracy = _streaming("accuracy")
streaming_auc = _streaming("auc")
streaming_false_negatives = _streaming("false_negatives")
streaming_false_negatives_at_thresholds = _streaming("false_negatives_at_thresholds")
streaming_false_positives = _streaming("false_positives")
streaming_false_positives_at_thresholds = _streaming("false_positives_at_thresholds")
streaming_mean_absolute_error = _streaming("mean_absolute_error")
streaming_mean_cosine_distance = _streaming("mean_cosine_distance")
streaming_mean_iou = _streaming("mean_iou")
streaming_mean_relative_error = _streaming("mean_relative_error")
streaming_mean_squared_error = _streaming("mean_squared_error")
streaming_precision = _streaming("precision")
streaming_precision_at_thresholds = _streaming("precision_at_thresholds")
streaming_recall = _streaming("recall")
streaming_recall_at_thresholds = _streaming("recall_at_thresholds")
streaming_root_mean_squared_error = _streaming("root_mean_squared_error")
streaming_sensitivity_at_specificity = _streaming("sensitivity_at_specificity")
streaming_sparse_precision_at_k = _streaming("precision_at_k")
streaming_sparse_recall_at_k = _streaming("recall_at_k")
streaming_specificity_at_sensitivity = _streaming("specificity_at_sensitivity")
streaming_true_negatives = _streaming("true_negatives")
streaming_true_negatives_at_thresholds = _streaming("true_negatives_at_thresholds")
streaming_true_positives = _streaming("true_positives")
streaming_true_positives_at_thresholds = _streaming("true_positives_at_thresholds")


@in_default_graph
def accuracy(predictions: Any, labels: Any, weights: Any = None, name: str | None = None) -> Any:
    """Returns the fraction of predictions that are equal to their labels, of this run alone.

    Raises:
      ValueError: the dtypes of predictions and labels differ.

    Source: TensorFlow's `tf.contrib.metrics.accuracy`.
    """
    b = scopes.builder(predictions, labels)
    predictions, labels = b.tensor(predictions, None, "predictions"), b.tensor(labels, None, "labels")
    if predictions.dtype.base is not labels.dtype.base or predictions.dtype.is_floating:
        raise ValueError(
            f"Dtypes must match and be bool, integer or string, got predictions of {predictions.dtype.name} and labels "
            f"of {labels.dtype.name}"
        )
    with scopes.name_scope(name, "accuracy", [predictions, labels]):
        found = math.cast(math.equal(predictions, labels), dtypes.float32)
        if weights is None:
            return reductions.reduce_mean(found)
        factors = math.cast(weights, dtypes.float32)
        return reductions.reduce_sum(found * factors) / reductions.reduce_sum(factors)


def aggregate_metrics(*value_update_tuples: tuple[Any, Any]) -> tuple[list[Any], list[Any]]:
    """Returns the list of values and the list of updates of metrics.

    Raises:
      ValueError: there are no metrics.

    Source: TensorFlow's `tf.contrib.metrics.aggregate_metrics`.
    """
    if not value_update_tuples:
        raise ValueError("Expected at least one value_tensor/update_op pair")
    values, updates = zip(*value_update_tuples, strict=True)
    return list(values), list(updates)


def aggregate_metric_map(
    names_to_tuples: Mapping[str, tuple[Any, Any]],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the values and the updates of metrics by name.

    Source: TensorFlow's `tf.contrib.metrics.aggregate_metric_map`.
    """
    return {n: v for n, (v, _) in names_to_tuples.items()}, {n: u for n, (_, u) in names_to_tuples.items()}


__all__ = [
    "accuracy", "aggregate_metric_map", "aggregate_metrics", "confusion_matrix", "set_difference", "set_intersection",
    "set_size", "set_union", "streaming_accuracy", "streaming_auc", "streaming_false_negatives",
    "streaming_false_negatives_at_thresholds", "streaming_false_positives", "streaming_false_positives_at_thresholds",
    "streaming_mean", "streaming_mean_absolute_error", "streaming_mean_cosine_distance", "streaming_mean_iou",
    "streaming_mean_relative_error", "streaming_mean_squared_error", "streaming_mean_tensor",
    "streaming_percentage_less", "streaming_precision", "streaming_precision_at_thresholds", "streaming_recall",
    "streaming_recall_at_thresholds", "streaming_root_mean_squared_error", "streaming_sensitivity_at_specificity",
    "streaming_sparse_precision_at_k", "streaming_sparse_recall_at_k", "streaming_specificity_at_sensitivity",
    "streaming_true_negatives", "streaming_true_negatives_at_thresholds", "streaming_true_positives",
    "streaming_true_positives_at_thresholds",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
