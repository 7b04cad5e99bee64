"""TensorFlow 1's `tf.saved_model.signature_def_utils`: calls of a graph as `SignatureDef` messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace import pb
from headrace.ir.tensor_type import Tensor
from headrace.v1.saved_model import signature_constants as names
from headrace.v1.saved_model.method_names import MethodNameUpdater
from headrace.v1.saved_model.tensor_infos import build_tensor_info

if TYPE_CHECKING:
    from headrace.pb import SignatureDef, TensorInfo


def build_signature_def(
    inputs: Mapping[str, TensorInfo] | None = None,
    outputs: Mapping[str, TensorInfo] | None = None,
    method_name: str | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> SignatureDef:
    """Returns the description of a call of a graph.

    Args:
      inputs: the tensors to feed, by the names of arguments: results of `build_tensor_info`.
      outputs: the tensors to fetch, by the names of results.
      method_name: the kind of the call.
      defaults: values for arguments that are not given, by their names: constants of a graph, or arrays.

    Raises:
      TypeError: an input or output is no `TensorInfo`.
      ValueError: a default is no constant.

    Source: TensorFlow's `tf.saved_model.build_signature_def`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     x = tf.placeholder(tf.float32, name="x")
      ...     info = tf.saved_model.build_tensor_info(x)
      >>> call = tf.saved_model.build_signature_def({"x": info}, {"y": info}, tf.saved_model.PREDICT_METHOD_NAME)
      >>> tf.saved_model.is_valid_signature(call), call.outputs["y"].name
      (True, 'x:0')
    """
    from headrace.v1.tensor_protos import make_tensor_proto

    out = pb.SignatureDef()
    for given, infos in ((inputs, out.inputs), (outputs, out.outputs)):
        for name, info in (given or {}).items():
            infos[name].CopyFrom(info)
    if method_name is not None:
        out.method_name = method_name
    for name, value in (defaults or {}).items():
        op = getattr(value, "op", None)
        if op is not None and op.type != "Const":
            raise ValueError(f"the default of '{name}' must be a constant, got {value!r} of the operation '{op.name}'")
        out.defaults[name].CopyFrom(make_tensor_proto(value if op is None else op.get_attr("value")))
    return out


def regression_signature_def(examples: Any, predictions: Any) -> SignatureDef:
    """Returns the description of a regression.

    Args:
      examples: the tensor of texts to feed, which are `tf.train.Example` messages.
      predictions: the tensor of floats to fetch.

    Raises:
      ValueError: an argument is None or has another dtype.

    Source: TensorFlow's `tf.saved_model.regression_signature_def`.
    """
    if predictions is None:
        raise ValueError("Regression `predictions` cannot be None.")
    inputs = {names.REGRESS_INPUTS: _examples(examples, "Regression")}
    outputs = {
        names.REGRESS_OUTPUTS: _info(predictions, pb.DT_FLOAT, "Regression output tensors must be of type float")
    }
    return build_signature_def(inputs, outputs, names.REGRESS_METHOD_NAME)


def classification_signature_def(examples: Any, classes: Any, scores: Any) -> SignatureDef:
    """Returns the description of a classification.

    Args:
      examples: the tensor of texts to feed, which are `tf.train.Example` messages.
      classes: the tensor of texts to fetch, the names of classes; or None.
      scores: the tensor of floats to fetch; or None.

    Raises:
      ValueError: an argument has another dtype, or nothing is to be fetched.

    Source: TensorFlow's `tf.saved_model.classification_signature_def`.
    """
    inputs = {names.CLASSIFY_INPUTS: _examples(examples, "Classification")}
    outputs = {}
    if classes is None and scores is None:
        raise ValueError("Classification `classes` and `scores` cannot both be None.")
    if classes is not None:
        text = "Classification classes must be of type string Tensor"
        outputs[names.CLASSIFY_OUTPUT_CLASSES] = _info(classes, pb.DT_STRING, text)
    if scores is not None:
        text = "Classification scores must be a float Tensor"
        outputs[names.CLASSIFY_OUTPUT_SCORES] = _info(scores, pb.DT_FLOAT, text)
    return build_signature_def(inputs, outputs, names.CLASSIFY_METHOD_NAME)


def predict_signature_def(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> SignatureDef:
    """Returns the description of a prediction, which may have any inputs and outputs.

    Args:
      inputs: the tensors to feed, by the names of arguments.
      outputs: the tensors to fetch, by the names of results.

    Raises:
      ValueError: there are no inputs or no outputs.

    Source: TensorFlow's `tf.saved_model.predict_signature_def`.
    """
    for what, given in (("inputs", inputs), ("outputs", outputs)):
        if not given:
            raise ValueError(f"Prediction `{what}` cannot be None or empty.")
    return build_signature_def(
        {name: build_tensor_info(x) for name, x in inputs.items()},
        {name: build_tensor_info(x) for name, x in outputs.items()},
        names.PREDICT_METHOD_NAME,
    )


def _examples(examples: Any, kind: str) -> TensorInfo:
    if examples is None:
        raise ValueError(f"{kind} `examples` cannot be None.")
    if not isinstance(examples, Tensor):
        raise ValueError(f"Expected {kind} `examples` to be of type Tensor. Found type {type(examples).__name__}.")
    return _info(examples, pb.DT_STRING, f"{kind} input tensors must be of type string")


def _info(tensor: Any, dtype: Any, text: str) -> TensorInfo:
    out = build_tensor_info(tensor)
    if out.dtype != dtype:
        raise ValueError(f"{text}. Found {tensor!r}.")
    return out


def is_valid_signature(signature_def: SignatureDef | None) -> bool:
    """Whether a server can answer the call.

    The call must be of one of the three kinds above, with the inputs and outputs of its kind.

    Args:
      signature_def: the message.

    Source: TensorFlow's `tf.saved_model.is_valid_signature`.
    """
    if signature_def is None:
        return False
    inputs = {name: info.dtype for name, info in signature_def.inputs.items()}
    outputs = {name: info.dtype for name, info in signature_def.outputs.items()}
    kind = signature_def.method_name
    if kind == names.PREDICT_METHOD_NAME:
        return bool(inputs and outputs)
    if kind == names.REGRESS_METHOD_NAME:
        return inputs == {names.REGRESS_INPUTS: pb.DT_STRING} and outputs == {names.REGRESS_OUTPUTS: pb.DT_FLOAT}
    if kind == names.CLASSIFY_METHOD_NAME:
        allowed = {names.CLASSIFY_OUTPUT_CLASSES: pb.DT_STRING, names.CLASSIFY_OUTPUT_SCORES: pb.DT_FLOAT}
        return inputs == {names.CLASSIFY_INPUTS: pb.DT_STRING} and bool(outputs) and outputs.items() <= allowed.items()
    return False


__all__ = [
    "MethodNameUpdater",
    "build_signature_def",
    "classification_signature_def",
    "is_valid_signature",
    "predict_signature_def",
    "regression_signature_def",
]
