"""TensorFlow 1's `tf.estimator.export`: receivers of requests, and outputs of served models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace import dtypes, public_names
from headrace.api.sparse_tensor import SparseTensor
from headrace.api.variable import Variable
from headrace.ir.tensor_type import Tensor
from headrace.v1 import array_ops, io
from headrace.v1.estimator.export_outputs import (
    ClassificationOutput,
    EvalOutput,
    ExportOutput,
    PredictOutput,
    RegressionOutput,
)
from headrace.v1.ragged.ragged_tensor import RaggedTensor

_TENSORS: Final = (Tensor, Variable, SparseTensor, RaggedTensor)
# Field of a receiver -> name of its tensor, if it has one tensor and no dict.
_SINGLE: Final = {"feature": "feature", "label": "label", "receiver_tensor": "input"}


def _checked(given: Any, field: str, *, may_be_int: bool = False) -> Any:
    """Returns the tensors of a receiver by name; a single one gets a default name."""
    if given is None:
        raise ValueError(f"{field}s must be defined.")
    found = dict(given) if isinstance(given, Mapping) else {_SINGLE[field]: given}
    for name, t in found.items():
        if not isinstance(name, (str, int) if may_be_int else str):
            kinds = "strings or ints" if may_be_int else "strings"
            raise ValueError(f"{field} keys must be {kinds}: {name}.")
        _check_tensor(t, f"{field} {name}")
    return found


def _check_tensor(value: Any, label: str) -> None:
    if not isinstance(value, _TENSORS):
        raise ValueError(f"{label} must be a Tensor, SparseTensor, or RaggedTensor.")


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
        return super().__new__(
            cls,
            _checked(features, "feature", may_be_int=True),
            _checked(receiver_tensors, "receiver_tensor"),
            others,
        )


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
        if features is None:
            raise ValueError("features must be defined.")
        _check_tensor(features, "feature")
        made = ServingInputReceiver(features, receiver_tensors, receiver_tensors_alternatives)
        return super().__new__(cls, features, made.receiver_tensors, made.receiver_tensors_alternatives)


class _Supervised(NamedTuple):
    features: Any
    labels: Any
    receiver_tensors: Any


class SupervisedInputReceiver(_Supervised):
    """Features and labels of a graph that trains or evaluates, and its placeholders.

    Args:
      features: a tensor, or a dict of tensors.
      labels: a tensor, or a dict of tensors.
      receiver_tensors: a tensor, or a dict of tensors, that are fed.

    Raises:
      ValueError: a value is no tensor.
    """

    __slots__ = ()

    def __new__(cls, features: Any, labels: Any, receiver_tensors: Any) -> Any:
        _checked(features, "feature", may_be_int=True)
        _checked(labels, "label", may_be_int=True)
        return super().__new__(cls, features, labels, _checked(receiver_tensors, "receiver_tensor"))


def _placeholder(like: Any, batch: int | None) -> Any:
    """Returns a placeholder like a tensor, with another first dimension."""
    shape = like.get_shape().as_list()
    return array_ops.placeholder(like.dtype, [batch, *shape[1:]], name=None if like.op is None else like.op.name)


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
        made = {name: _placeholder(t, default_batch_size) for name, t in features.items()}
        return ServingInputReceiver(made, made)

    return serving_input_receiver_fn


def build_raw_supervised_input_receiver_fn(
    features: Any, labels: Any, default_batch_size: int | None = None
) -> Callable[[], Any]:
    """Returns a function that makes placeholders like features and labels.

    Args:
      features: a tensor, or a dict of tensors.
      labels: a tensor, or a dict of tensors.
      default_batch_size: first dimension of the placeholders. None: not fixed.

    Raises:
      ValueError: a feature and a label have the same name.

    Source: TensorFlow 1's `tf.estimator.experimental.build_raw_supervised_input_receiver_fn`.
    """
    groups = [dict(x) if isinstance(x, Mapping) else {name: x} for x, name in ((features, "input"), (labels, "label"))]
    both = set(groups[0]) & set(groups[1])
    if both:
        raise ValueError(f"Features and labels must have distinct keys. Found overlapping keys: {both}")

    def supervised_input_receiver_fn() -> Any:
        x, y = ({name: _placeholder(t, default_batch_size) for name, t in group.items()} for group in groups)
        return SupervisedInputReceiver(
            x if isinstance(features, Mapping) else x["input"],
            y if isinstance(labels, Mapping) else y["label"],
            {**x, **y},
        )

    return supervised_input_receiver_fn


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


# fmt: off
__all__ = [
    "ClassificationOutput", "EvalOutput", "ExportOutput", "PredictOutput", "RegressionOutput", "ServingInputReceiver",
    "TensorServingInputReceiver", "build_parsing_serving_input_receiver_fn", "build_raw_serving_input_receiver_fn",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
