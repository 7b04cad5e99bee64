"""Heads of canned estimators: from logits to predictions, losses, metrics and an `EstimatorSpec`.

Source: TensorFlow 1's heads of `tf.estimator`, whose names of predictions and metrics are kept.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace import dtypes
from headrace.v1 import array_ops, check_ops, lookup, losses, math_ops, metrics, nn, strings
from headrace.v1.estimator import export
from headrace.v1.estimator.modes import ModeKeys
from headrace.v1.estimator.spec import AVERAGE_LOSS, EstimatorSpec
from headrace.v1.scoping import control_dependencies

Optimize = Callable[[Any], Any]  # from a loss to the operation of a training step


class Head(abc.ABC):
    """Base class of heads.

    Args:
      units: number of logits of an example.
      weight_column: name of the feature with the weights of the examples, or a numeric column, or None.
      reduction: `tf.losses.Reduction` of the losses of a batch.
    """

    def __init__(self, units: int, weight_column: Any, reduction: str) -> None:
        self.units, self._weight_column, self._reduction = units, weight_column, reduction

    def spec(self, features: Any, mode: str, logits: Any, labels: Any, optimize: Optimize) -> Any:
        """Returns the `EstimatorSpec` of a model.

        Args:
          features: the features.
          mode: a key of `ModeKeys`.
          logits: float tensor [batch, units].
          labels: the labels, or None.
          optimize: function from a loss to the operation of a training step.
        """
        predictions, outputs = self.predictions(logits)
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions, export_outputs=outputs)
        if labels is None:
            raise ValueError(
                "You must provide a labels Tensor. Given: None. Suggested troubleshooting steps: Check that your "
                "input_fn returns features and labels."
            )
        weights = self._weights(features, logits)
        labels = self.checked(labels, logits)
        each = self.losses(labels, logits)
        loss = losses.compute_weighted_loss(each, weights, reduction=self._reduction)
        if mode == ModeKeys.EVAL:
            found = {AVERAGE_LOSS: metrics.mean(each, weights=weights), **self.metrics(labels, predictions, weights)}
            return EstimatorSpec(mode, predictions, loss, eval_metric_ops=found)
        return EstimatorSpec(mode, predictions, loss, optimize(loss))

    def _weights(self, features: Any, logits: Any) -> Any:
        """Returns the weights of the examples, [batch, 1]; 1.0 without a column of weights."""
        column = self._weight_column
        if column is None:
            return 1.0
        name = column if isinstance(column, str) else column.name
        if name not in features:
            raise ValueError(f"the features have no column of weights {name!r}; they are {sorted(features)}")
        found = math_ops.cast(features[name], dtypes.float32)
        return array_ops.reshape(found, array_ops.stack([array_ops.shape(logits)[0], 1]))

    def checked(self, labels: Any, logits: Any) -> Any:
        """Returns the labels in the form [batch, n].

        Args:
          labels: the labels.
          logits: the logits.
        """
        labels = array_ops.convert_to_tensor(labels)
        return array_ops.expand_dims(labels, 1) if labels.get_shape().ndims == 1 else labels

    @abc.abstractmethod
    def predictions(self, logits: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the predictions, and the outputs of a served model, by name.

        Args:
          logits: the logits.
        """

    @abc.abstractmethod
    def losses(self, labels: Any, logits: Any) -> Any:
        """Returns the loss of each example, [batch, 1] or like the labels.

        Args:
          labels: the checked labels.
          logits: the logits.
        """

    @abc.abstractmethod
    def metrics(self, labels: Any, predictions: Mapping[str, Any], weights: Any) -> dict[str, Any]:
        """Returns the metrics other than the mean loss.

        Args:
          labels: the checked labels.
          predictions: the predictions.
          weights: the weights of the examples.
        """


class _Classes(Head):
    """Base class of heads with classes, which may have names."""

    def __init__(self, n_classes: int, units: int, vocabulary: Any, weight_column: Any, reduction: str) -> None:
        super().__init__(units, weight_column, reduction)
        if vocabulary is not None and (not isinstance(vocabulary, (list, tuple)) or len(vocabulary) != n_classes):
            raise ValueError(
                f"Length of `label_vocabulary` must be equal to n_classes. Given: {vocabulary}, n_classes: {n_classes}."
            )
        self._count, self._vocabulary = n_classes, vocabulary

    def checked(self, labels: Any, logits: Any) -> Any:
        """Returns the numbers of the classes, int64, [batch, 1]."""
        labels = super().checked(labels, logits)
        if self._vocabulary is not None:
            if labels.dtype != dtypes.string:
                raise ValueError(f"Labels dtype should be string if there is a vocabulary. Instead got {labels.dtype}")
            numbers = array_ops.constant(list(range(self._count)), dtypes.int64)
            names = array_ops.constant(list(self._vocabulary), dtypes.string)
            table = lookup.StaticHashTable(lookup.KeyValueTensorInitializer(names, numbers), -1)
            return self._in_range(table.lookup(labels))
        if labels.dtype == dtypes.string:
            raise ValueError("Labels dtype should be integer. Instead got string; give label_vocabulary")
        return self._in_range(math_ops.cast(labels, dtypes.int64))

    def _in_range(self, ids: Any) -> Any:
        """Returns the numbers of classes, with a check that there are such classes."""
        most = array_ops.constant(self._count - 1, dtypes.int64)
        checks = [
            check_ops.assert_less_equal(ids, most, message="Labels must be <= n_classes - 1"),
            check_ops.assert_non_negative(ids, message="Labels must be >= 0"),
        ]
        with control_dependencies(checks):
            return array_ops.identity(ids)

    def _named(self, ids: Any) -> Any:
        """Returns the names of classes."""
        if self._vocabulary is None:
            return strings.as_string(ids, name="str_classes")
        names = array_ops.constant(list(self._vocabulary), dtypes.string)
        return array_ops.gather(names, ids, name="class_string_lookup")

    def _all(self, logits: Any) -> dict[str, Any]:
        """Returns the numbers and names of all classes, for each example."""
        ids = math_ops.cast(math_ops.range(self._count), dtypes.int32)
        names = self._named(ids)
        repeats = array_ops.stack([array_ops.shape(logits)[0], 1])
        return {
            "all_class_ids": array_ops.tile(array_ops.expand_dims(ids, 0), repeats),
            "all_classes": array_ops.tile(array_ops.expand_dims(names, 0), repeats),
        }

    def _outputs(self, found: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
        classes = export.ClassificationOutput(scores=found["probabilities"], classes=found["all_classes"])
        return {
            "serving_default": classes, "classification": classes, **others,
            "predict": export.PredictOutput(dict(found)),
        }  # fmt: skip


class BinaryHead(_Classes):
    """Head of two classes with one logit.

    Args:
      weight_column, reduction: see `Head`.
      vocabulary: names of the two classes, or None.
    """

    def __init__(self, vocabulary: Sequence[str] | None, weight_column: Any, reduction: str) -> None:
        super().__init__(2, 1, vocabulary, weight_column, reduction)

    def predictions(self, logits: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `Head.predictions`."""
        logistic = math_ops.sigmoid(logits, name="logistic")
        two = array_ops.concat([array_ops.zeros_like(logits), logits], -1, name="two_class_logits")
        ids = array_ops.expand_dims(math_ops.argmax(two, axis=-1), -1)
        found = {
            "logits": logits, "logistic": logistic, "probabilities": nn.softmax(two), "class_ids": ids,
            "classes": self._named(ids), **self._all(logits),
        }  # fmt: skip
        return found, self._outputs(found, {"regression": export.RegressionOutput(value=logistic)})

    def losses(self, labels: Any, logits: Any) -> Any:
        """See `Head.losses`."""
        return nn.sigmoid_cross_entropy_with_logits(labels=math_ops.cast(labels, dtypes.float32), logits=logits)

    def metrics(self, labels: Any, predictions: Mapping[str, Any], weights: Any) -> dict[str, Any]:
        """See `Head.metrics`."""
        ids, logistic = predictions["class_ids"], predictions["logistic"]
        w = None if isinstance(weights, float) else weights
        label_mean = metrics.mean(math_ops.cast(labels, dtypes.float32), weights=w)
        return {
            "accuracy": metrics.accuracy(labels, ids, w),
            "precision": metrics.precision(labels, ids, w),
            "recall": metrics.recall(labels, ids, w),
            "prediction/mean": metrics.mean(logistic, weights=w),
            "label/mean": label_mean,
            "accuracy_baseline": tuple(math_ops.maximum(x, 1.0 - x) for x in label_mean),
            "auc": metrics.auc(labels, logistic, w),
            "auc_precision_recall": metrics.auc(labels, logistic, w, curve="PR"),
        }


class MultiClassHead(_Classes):
    """Head of more than two classes with a logit for each.

    Args:
      n_classes: number of classes.
      weight_column, reduction: see `Head`.
      vocabulary: names of the classes, or None.
    """

    def __init__(self, n_classes: int, vocabulary: Sequence[str] | None, weight_column: Any, reduction: str) -> None:
        if n_classes <= 2:
            raise ValueError(f"n_classes must be > 2 for more than binary classification, given: {n_classes}")
        super().__init__(n_classes, n_classes, vocabulary, weight_column, reduction)

    def predictions(self, logits: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `Head.predictions`."""
        ids = array_ops.expand_dims(math_ops.argmax(logits, axis=-1), -1)
        found = {
            "logits": logits, "probabilities": nn.softmax(logits), "class_ids": ids, "classes": self._named(ids),
            **self._all(logits),
        }  # fmt: skip
        return found, self._outputs(found, {})

    def losses(self, labels: Any, logits: Any) -> Any:
        """See `Head.losses`."""
        each = nn.sparse_softmax_cross_entropy_with_logits(labels=array_ops.squeeze(labels, [1]), logits=logits)
        return array_ops.expand_dims(each, -1)

    def metrics(self, labels: Any, predictions: Mapping[str, Any], weights: Any) -> dict[str, Any]:
        """See `Head.metrics`."""
        w = None if isinstance(weights, float) else weights
        return {"accuracy": metrics.accuracy(labels, predictions["class_ids"], w)}


class RegressionHead(Head):
    """Head of a regression with squared errors.

    Args:
      label_dimension: number of values of an example.
      weight_column, reduction: see `Head`.
    """

    def predictions(self, logits: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `Head.predictions`."""
        value = export.RegressionOutput(value=logits)
        found = {"predictions": logits}
        return found, {"serving_default": value, "regression": value, "predict": export.PredictOutput(found)}

    def checked(self, labels: Any, logits: Any) -> Any:
        """Returns the labels as floats, [batch, label_dimension]."""
        return math_ops.cast(super().checked(labels, logits), dtypes.float32)

    def losses(self, labels: Any, logits: Any) -> Any:
        """See `Head.losses`."""
        return math_ops.squared_difference(logits, labels)

    def metrics(self, labels: Any, predictions: Mapping[str, Any], weights: Any) -> dict[str, Any]:
        """See `Head.metrics`."""
        w = None if isinstance(weights, float) else weights
        value = predictions["predictions"]
        w = None if w is None else w * array_ops.ones_like(value)
        return {
            "prediction/mean": metrics.mean(value, weights=w),
            "label/mean": metrics.mean(labels, weights=w),
        }


def classes_head(n_classes: int, vocabulary: Any, weight_column: Any, reduction: str) -> Head:
    """Returns the head of a classifier.

    Args:
      n_classes: number of classes, at least 2.
      vocabulary: names of the classes, or None.
      weight_column, reduction: see `Head`.
    """
    if n_classes == 2:
        return BinaryHead(vocabulary, weight_column, reduction)
    return MultiClassHead(n_classes, vocabulary, weight_column, reduction)
