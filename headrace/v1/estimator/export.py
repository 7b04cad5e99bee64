"""Inputs and outputs of a served model: receivers of requests, and the tensors of answers."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import dtypes, public_names
from headrace.api.sparse_tensor import SparseTensor
from headrace.api.variable import Variable
from headrace.ir.tensor_type import Tensor
from headrace.v1 import array_ops, io

_FEATURE, _LABEL = "feature", "label"


class ExportOutput(abc.ABC):
    """Abstract base class of the outputs of a signature. Source: TensorFlow 1's `tf.estimator.export.ExportOutput`."""

    method: str = ""

    @property
    @abc.abstractmethod
    def tensors(self) -> dict[str, Any]:
        """Tensors of the signature by name."""


def _named(outputs: Any, single: str) -> dict[str, Any]:
    """Returns tensors by name, from a dict or one tensor.

    Raises:
      ValueError: a name is no text, or a value is no tensor.
    """
    found = dict(outputs) if isinstance(outputs, Mapping) else {single: outputs}
    for key, value in found.items():
        if not isinstance(key, str):
            raise ValueError(f"Prediction output key must be a string: {key}.")
        if not isinstance(value, (Tensor, Variable, SparseTensor)):
            raise ValueError(f"Prediction output value must be a Tensor: {value}.")
    return found


class PredictOutput(ExportOutput):
    """Outputs of any kind. Source: TensorFlow 1's `tf.estimator.export.PredictOutput`.

    Args:
      outputs: a tensor, or a dict of tensors.

    Raises:
      ValueError: a value is no tensor.
    """

    method = "tensorflow/serving/predict"

    def __init__(self, outputs: Any) -> None:
        self._outputs = _named(outputs, "output")

    @property
    def outputs(self) -> dict[str, Any]:
        """Tensors by name."""
        return self._outputs

    tensors = outputs


class RegressionOutput(ExportOutput):
    """Output of a regression. Source: TensorFlow 1's `tf.estimator.export.RegressionOutput`.

    Args:
      value: a float tensor.

    Raises:
      ValueError: it is none.
    """

    method = "tensorflow/serving/regress"

    def __init__(self, value: Any) -> None:
        if not isinstance(value, Tensor) or not value.dtype.is_floating:
            raise ValueError(f"Regression output value must be a float32 Tensor; got {value}")
        self._value = value

    @property
    def value(self) -> Any:
        """The tensor."""
        return self._value

    @property
    def tensors(self) -> dict[str, Any]:
        """See `ExportOutput.tensors`."""
        return {"outputs": self._value}


class ClassificationOutput(ExportOutput):
    """Output of a classification. Source: TensorFlow 1's `tf.estimator.export.ClassificationOutput`.

    Args:
      scores: a float tensor with the score of each class, or None.
      classes: a string tensor with the names of the classes, or None.

    Raises:
      ValueError: both are None, or one has a wrong dtype.
    """

    method = "tensorflow/serving/classify"

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

    @property
    def tensors(self) -> dict[str, Any]:
        """See `ExportOutput.tensors`."""
        given = {"scores": self._scores, "classes": self._classes}
        return {name: t for name, t in given.items() if t is not None}


def _checked(given: Any, single: str) -> Any:
    """Returns the tensors of a receiver by name; a single one gets a default name."""
    if given is None:
        raise ValueError(f"{single}s must be defined.")
    found = dict(given) if isinstance(given, Mapping) else {single: given}
    for name, t in found.items():
        if not isinstance(name, str):
            raise ValueError(f"{single} keys must be strings: {name}.")
        if not isinstance(t, (Tensor, Variable, SparseTensor)):
            raise ValueError(f"{single} {name} must be a Tensor or SparseTensor.")
    return found


class _Receiver(NamedTuple):
    features: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: Any


class ServingInputReceiver(_Receiver):
    """Features of requests, and the placeholders that receive the requests.

    Args:
      features: a tensor, or a dict of tensors, for the `model_fn`.
      receiver_tensors: a tensor, or a dict of tensors, that are fed.
      receiver_tensors_alternatives: dict from names to other groups of tensors that can be fed, or None.

    Raises:
      ValueError: a value is no tensor.

    Source: TensorFlow 1's `tf.estimator.export.ServingInputReceiver`.
    """

    __slots__ = ()

    def __new__(cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None) -> Any:
        others = receiver_tensors_alternatives
        if others is not None:
            if not isinstance(others, Mapping):
                raise ValueError(f"receiver_tensors_alternatives must be a dict: {others}.")
            others = {name: _checked(group, "receiver_tensor") for name, group in others.items()}
        return super().__new__(cls, _checked(features, _FEATURE), _checked(receiver_tensors, "input"), others)


class TensorServingInputReceiver(_Receiver):
    """Receiver whose features are one tensor, without a dict.

    Args:
      features: a tensor.
      receiver_tensors, receiver_tensors_alternatives: see `ServingInputReceiver`.

    Raises:
      ValueError: a value is no tensor.

    Source: TensorFlow 1's `tf.estimator.export.TensorServingInputReceiver`.
    """

    __slots__ = ()

    def __new__(cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None) -> Any:
        if not isinstance(features, (Tensor, Variable, SparseTensor)):
            raise ValueError("feature feature must be a Tensor or SparseTensor.")
        made = ServingInputReceiver(features, receiver_tensors, receiver_tensors_alternatives)
        return super().__new__(cls, features, made.receiver_tensors, made.receiver_tensors_alternatives)


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], Any]:
    """Returns a function that makes placeholders like features.

    Args:
      features: dict of tensors.
      default_batch_size: first dimension of the placeholders. None: not fixed.

    Source: TensorFlow 1's `tf.estimator.export.build_raw_serving_input_receiver_fn`.
    """

    def serving_input_receiver_fn() -> Any:
        made = {}
        for name, t in features.items():
            shape = t.get_shape().as_list()
            shape[0] = default_batch_size
            made[name] = array_ops.placeholder(t.dtype, shape, name=t.op.name)
        return ServingInputReceiver(made, made)

    return serving_input_receiver_fn


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], Any]:
    """Returns a function that makes a placeholder of serialized `tf.Example`s, and parses it.

    Args:
      feature_spec: dict of features, see `tf.parse_example`.
      default_batch_size: number of examples. None: not fixed.

    Source: TensorFlow 1's `tf.estimator.export.build_parsing_serving_input_receiver_fn`.

    Example:
      >>> import headrace.v1 as tf
      >>> spec = {"x": tf.FixedLenFeature([2], tf.float32)}
      >>> with tf.Graph().as_default():
      ...     receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)()
      ...     receiver.features["x"].shape.as_list(), receiver.receiver_tensors["examples"].name
      ([None, 2], 'input_example_tensor:0')
    """

    def serving_input_receiver_fn() -> Any:
        serialized = array_ops.placeholder(dtypes.string, [default_batch_size], name="input_example_tensor")
        return ServingInputReceiver(io.parse_example(serialized, dict(feature_spec)), {"examples": serialized})

    return serving_input_receiver_fn


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
        """


# fmt: off
__all__ = [
    "ClassificationOutput", "ExportOutput", "PredictOutput", "RegressionOutput", "ServingInputReceiver",
    "TensorServingInputReceiver", "build_parsing_serving_input_receiver_fn", "build_raw_serving_input_receiver_fn",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
