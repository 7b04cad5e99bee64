"""Tensors that the signatures of an exported model give: `tf.estimator.export.PredictOutput` and the others."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.ir.graph import Operation
from headrace.ir.tensor_type import Tensor
from headrace.v1 import array_ops
from headrace.v1.saved_model import signature_def_utils
from headrace.v1.saved_model.tensor_infos import build_tensor_info
from headrace.v1.scoping import control_dependencies

if TYPE_CHECKING:
    from headrace.pb import SignatureDef


class ExportOutput(abc.ABC):
    """Abstract base class of the outputs of a signature. Source: TensorFlow 1's `tf.estimator.export.ExportOutput`."""

    @abc.abstractmethod
    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> SignatureDef:
        """Returns the description of the call, a `SignatureDef` message.

        Args:
          receiver_tensors: the tensors that are fed, by name.

        Raises:
          ValueError: a call of this kind takes other tensors.
        """


def _named(outputs: Any, single: str, label: str) -> dict[str, Any]:
    """Returns tensors by name, from a dict or one tensor.

    The parts of a tuple as a name are joined by "/".

    Raises:
      ValueError: a name is no text, or a value is no tensor.
    """
    found = {}
    for key, value in outputs.items() if isinstance(outputs, Mapping) else [(single, outputs)]:
        name = _text(key, label)
        if not isinstance(value, Tensor):
            raise ValueError(f"{label} output value must be a Tensor; got {value}.")
        found[name] = value
    return found


def _text(key: Any, label: str) -> str:
    name = "/".join(key) if isinstance(key, tuple) else key
    if not isinstance(name, str):
        raise ValueError(f"{label} output key must be a string; got {name}.")
    return name


def _examples(kind: str, receiver_tensors: Mapping[str, Any]) -> Any:
    """Returns the one tensor of serialized examples that is fed.

    Raises:
      ValueError: other tensors are fed.
    """
    fed = list(receiver_tensors.values())
    if len(fed) != 1 or fed[0].dtype != dtypes.string:
        raise ValueError(
            f"{kind} signatures can only accept a single tensor input of type tf.string. Please check to make sure "
            "that you have structured the serving_input_receiver_fn so that it creates a single string placeholder. If "
            "your model function expects multiple inputs, then use `tf.io.parse_example()` to parse the string into "
            f"multiple tensors.\n Received: {receiver_tensors}"
        )
    return fed[0]


class PredictOutput(ExportOutput):
    """Outputs of any kind. Source: TensorFlow 1's `tf.estimator.export.PredictOutput`.

    Args:
      outputs: a tensor, or a dict of tensors.

    Raises:
      ValueError: a value is no tensor.
    """

    def __init__(self, outputs: Any) -> None:
        self._outputs = _named(outputs, "output", "Prediction")

    @property
    def outputs(self) -> dict[str, Any]:
        """Tensors by name."""
        return self._outputs

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> SignatureDef:
        """See `ExportOutput.as_signature_def`."""
        return signature_def_utils.predict_signature_def(receiver_tensors, self._outputs)


class RegressionOutput(ExportOutput):
    """Output of a regression. Source: TensorFlow 1's `tf.estimator.export.RegressionOutput`.

    Args:
      value: a float tensor.

    Raises:
      ValueError: it is none.
    """

    def __init__(self, value: Any) -> None:
        if not isinstance(value, Tensor) or not value.dtype.is_floating:
            raise ValueError(f"Regression output value must be a float32 Tensor; got {value}")
        self._value = value

    @property
    def value(self) -> Any:
        """The tensor."""
        return self._value

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> SignatureDef:
        """See `ExportOutput.as_signature_def`. The one tensor that is fed has serialized examples."""
        examples = _examples("Regression", receiver_tensors)
        return signature_def_utils.regression_signature_def(examples, self._value)


class ClassificationOutput(ExportOutput):
    """Output of a classification. Source: TensorFlow 1's `tf.estimator.export.ClassificationOutput`.

    Args:
      scores: a float tensor with the score of each class, or None.
      classes: a string tensor with the names of the classes, or None.

    Raises:
      ValueError: both are None, or one has a wrong dtype.
    """

    def __init__(self, scores: Any = None, classes: Any = None) -> None:
        if scores is not None and not (isinstance(scores, Tensor) and scores.dtype.is_floating):
            raise ValueError(f"Classification scores must be a float32 Tensor; got {scores}")
        if classes is not None and not (isinstance(classes, Tensor) and classes.dtype == dtypes.string):
            raise ValueError(f"Classification classes must be a string Tensor; got {classes}")
        if scores is None and classes is None:
            raise ValueError("Cannot create a ClassificationOutput with empty arguments. At least one of `scores` and "
                             "`classes` must be defined.")  # fmt: skip
        self._scores, self._classes = scores, classes

    @property
    def scores(self) -> Any:
        """Scores of the classes."""
        return self._scores

    @property
    def classes(self) -> Any:
        """Names of the classes."""
        return self._classes

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> SignatureDef:
        """See `ExportOutput.as_signature_def`. The one tensor that is fed has serialized examples."""
        examples = _examples("Classification", receiver_tensors)
        return signature_def_utils.classification_signature_def(examples, self._classes, self._scores)


class _SupervisedOutput(ExportOutput):
    """Base class of the outputs of a training step or an evaluation.

    Args:
      loss: a tensor, or a dict of tensors.
      predictions: a tensor, or a dict of tensors.
      metrics: a pair of value and update operation, or a dict of pairs.

    Raises:
      ValueError: a value is no tensor.
    """

    _method = ""

    def __init__(self, loss: Any = None, predictions: Any = None, metrics: Any = None) -> None:
        self._loss = None if loss is None else _prefixed(_named(loss, "loss", "loss"), "loss")
        self._predictions = None
        if predictions is not None:
            self._predictions = _prefixed(_named(predictions, "predictions", "predictions"), "predictions")
        self._metrics = None if metrics is None else _metrics(metrics)

    @property
    def loss(self) -> dict[str, Any] | None:
        """Losses by name, which begins with "loss"; or None."""
        return self._loss

    @property
    def predictions(self) -> dict[str, Any] | None:
        """Predictions by name, which begins with "predictions"; or None."""
        return self._predictions

    @property
    def metrics(self) -> dict[str, Any] | None:
        """Values and updates of metrics by name, as "metrics/mean/value" and "metrics/mean/update_op"; or None."""
        return self._metrics

    def as_signature_def(self, receiver_tensors: Mapping[str, Any]) -> SignatureDef:
        """See `ExportOutput.as_signature_def`."""
        outputs = {**(self._predictions or {}), **(self._loss or {}), **(self._metrics or {})}
        return signature_def_utils.build_signature_def(
            {name: build_tensor_info(x) for name, x in receiver_tensors.items()},
            {name: build_tensor_info(x) for name, x in outputs.items()},
            self._method,
        )


def _prefixed(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name if name.startswith(prefix) else f"{prefix}/{name}": t for name, t in tensors.items()}


def _metrics(given: Any) -> dict[str, Any]:
    """Returns values and updates of metrics by name, all as tensors."""
    found: dict[str, Any] = {}
    for key, pair in given.items() if isinstance(given, Mapping) else [("metrics", given)]:
        value, update = pair if isinstance(pair, tuple) else (pair.result(), pair.updates[0])
        (name,) = _prefixed({_text(key, "metrics"): value}, "metrics")
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} output value must be a Tensor; got {value}.")
        if not isinstance(update, (Tensor, Operation)):
            raise ValueError(f"{name} update_op must be a Tensor or Operation; got {update}.")
        if isinstance(update, Operation):
            with control_dependencies([update]):
                update = array_ops.constant([], name="metric_op_wrapper")
        found[f"{name}/value"], found[f"{name}/update_op"] = value, update
    return found


class EvalOutput(_SupervisedOutput):
    """Outputs of an evaluation: the loss, predictions and metrics.

    Args:
      loss: a tensor, or a dict of tensors.
      predictions: a tensor, or a dict of tensors.
      metrics: a pair of value and update operation, or a dict of pairs.

    Raises:
      ValueError: a value is no tensor.

    Source: TensorFlow 1's `tf.estimator.export.EvalOutput`.
    """

    _method = "tensorflow/supervised/eval"


class TrainOutput(_SupervisedOutput):
    """Outputs of a training step: the loss, predictions and metrics. See `EvalOutput`."""

    _method = "tensorflow/supervised/training"
