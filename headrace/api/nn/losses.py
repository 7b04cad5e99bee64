"""Losses: distances between predictions and targets."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from headrace import shapes
from headrace.api import arrays, gathering, math, scopes
from headrace.api.nn.activations import exchanged
from headrace.api.tensors import is_tensor, narrow
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor


def sigmoid_cross_entropy_with_logits(labels: Any = None, logits: Any = None, name: str | None = None) -> Tensor:
    """Computes the cross entropy of independent binary labels, element by element.

    Args:
      labels: probabilities of 1, of the shape and dtype of `logits`.
      logits: a tensor of floats: log(p / (1 - p)) of the predicted probabilities p.
      name: name of the scope; "logistic_loss" if None.

    Raises:
      ValueError: an argument is missing, or the shapes differ.

    Source: TensorFlow's `tf.nn.sigmoid_cross_entropy_with_logits`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.sigmoid_cross_entropy_with_logits(labels=[1.0, 0.0], logits=[0.0, 0.0]).numpy().round(3)
      array([0.693, 0.693], dtype=float32)
    """
    with scopes.name_scope(name, "logistic_loss", [logits, labels]) as scope:
        b, z, x = _labels_and_logits(labels, logits)
        zeros = arrays.zeros_like(x)
        is_positive = b.make("GreaterEqual", (x, zeros), {})
        above = b.make("Select", (is_positive, x, zeros), {})
        below = b.make("Select", (is_positive, b.make("Neg", (x,), {}), x), {})
        linear = b.make("Sub", (above, b.make("Mul", (x, z), {}, "mul")), {}, "sub")
        return b.make("AddV2", (linear, b.make("Log1p", (b.make("Exp", (below,), {}),), {})), {}, scope)


def _labels_and_logits(labels: Any, logits: Any) -> tuple[Any, Any, Any]:
    if labels is None or logits is None:
        raise ValueError("both 'labels' and 'logits' must be given (by name)")
    b = scopes.builder(logits, labels)
    x = b.tensor(logits, None, "logits")
    z = b.tensor(labels, None if is_tensor(labels) else x.dtype.base, "labels")
    if not shapes.compatible(x.shape, z.shape):
        raise ShapeError(
            f"`logits` and `labels` must have the same shape, received {shapes.show(x.shape)} vs "
            f"{shapes.show(z.shape)}: {x!r} and {z!r}"
        )
    return b, z, x


def weighted_cross_entropy_with_logits(labels: Any, logits: Any, pos_weight: Any, name: str | None = None) -> Tensor:
    """Computes `sigmoid_cross_entropy_with_logits` with a weight for positive labels.

    Args:
      labels, logits: see `sigmoid_cross_entropy_with_logits`.
      pos_weight: the factor of the loss of labels of 1.
      name: name of the scope; "logistic_loss" if None.

    Source: TensorFlow's `tf.nn.weighted_cross_entropy_with_logits`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.weighted_cross_entropy_with_logits([1.0, 0.0], [0.0, 0.0], 2.0).numpy().round(3)
      array([1.386, 0.693], dtype=float32)
    """
    with scopes.name_scope(name, "logistic_loss", [logits, labels]) as scope:
        b, z, x = _labels_and_logits(labels, logits)
        more = b.make("Sub", (pos_weight, 1), {}, "sub") if is_tensor(pos_weight) else pos_weight - 1
        weight = b.make("AddV2", (1, b.make("Mul", (more, z), {}, "mul")), {}, "add")
        linear = b.make("Mul", (b.make("Sub", (1, z), {}, "sub"), x), {}, "mul")
        far = b.make("Log1p", (b.make("Exp", (b.make("Neg", (b.make("Abs", (x,), {}),), {}),), {}),), {})
        near = b.make("Relu", (b.make("Neg", (x,), {}),), {})
        bent = b.make("Mul", (weight, b.make("AddV2", (far, near), {}, "add")), {}, "mul")
        return b.make("AddV2", (linear, bent), {}, scope)


def softmax_cross_entropy_with_logits(labels: Any, logits: Any, axis: int = -1, name: str | None = None) -> Tensor:
    """Computes the cross entropy -sum(labels * log(softmax(logits))) along an axis.

    Args:
      labels: the probabilities of the classes, of the shape and dtype of `logits`.
      logits: a tensor of floats.
      axis: the axis of the classes.
      name: name of the scope; "softmax_cross_entropy_with_logits" if None.

    Source: TensorFlow's `tf.nn.softmax_cross_entropy_with_logits`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.softmax_cross_entropy_with_logits(labels=[[1.0, 0.0]], logits=[[0.0, 0.0]]).numpy().round(3)
      array([0.693], dtype=float32)
    """
    with scopes.name_scope(name, "softmax_cross_entropy_with_logits", [logits, labels]):
        b, z, x = _labels_and_logits(labels, logits)
        return _softmax_cross_entropy(b, z, x, axis)


def broadcast_softmax_cross_entropy(labels: Any, logits: Any, axis: int = -1, name: str | None = None) -> Tensor:
    """Computes `softmax_cross_entropy_with_logits` as TensorFlow does, of labels that may have another shape.

    Labels are cast to the dtype of the logits. Both are reshaped to matrices, whose rows are along the axis, and
    broadcast.

    Args:
      labels, logits, axis, name: see `softmax_cross_entropy_with_logits`.

    Raises:
      ValueError: an argument is missing.
      ShapeError: there are more rows of labels than of logits, or the numbers of classes differ.
    """
    with scopes.name_scope(name, "softmax_cross_entropy_with_logits", [logits, labels]):
        if labels is None or logits is None:
            raise ValueError("both 'labels' and 'logits' must be given (by name)")
        b = scopes.builder(logits, labels)
        x = b.tensor(logits, None, "logits")
        z = b.tensor(labels, None if is_tensor(labels) else x.dtype.base, "labels")
        if z.dtype.base is not x.dtype.base:
            z = b.make("Cast", (z,), {"DstT": x.dtype.base})
        return _softmax_cross_entropy(b, z, x, axis)


def _softmax_cross_entropy(b: Any, z: Any, x: Any, axis: int) -> Any:
    x, z = _axis_last(x, axis), _axis_last(z, axis)
    loss, _ = b.make("SoftmaxCrossEntropyWithLogits", (_rows(b, x), _rows(b, z)), {})
    rows, wanted = shapes.size(loss.shape), shapes.size(x.shape[:-1]) if x.shape else None
    if rows is not None and wanted is not None and rows != wanted:
        raise ShapeError(
            f"Cannot reshape a tensor with {rows} elements to shape {shapes.show(x.shape[:-1])} ({wanted} elements): "
            f"`labels` has more rows than `logits`: {z!r} and {x!r}"
        )
    return _like_rows(b, loss, x)


def _axis_last(x: Any, axis: int) -> Any:
    """Moves an axis of `x` to the end."""
    if exchanged(x, axis) is None:
        return x
    order = list(builtins.range(len(x.shape)))
    order.append(order.pop(axis))
    return arrays.transpose(x, order)


def _rows(b: Any, x: Any) -> Any:
    """Reshapes `x` to a matrix whose rows are along the last axis."""
    if x.shape is not None and len(x.shape) == 2:
        return x
    n = None if not x.shape else x.shape[-1]
    return arrays.reshape(x, (-1, n) if n is not None else arrays.concat([[-1], arrays.shape(x)[-1:]], 0))


def _like_rows(b: Any, y: Any, x: Any) -> Any:
    """Reshapes `y`, one element for each row of `x`, to the shape of the rows."""
    if x.shape is not None and len(x.shape) == 2:
        return y
    is_known = x.shape and shapes.is_full(x.shape[:-1])
    return arrays.reshape(y, np.array(x.shape[:-1], np.int32) if is_known else arrays.shape(x)[:-1])


def sparse_softmax_cross_entropy_with_logits(labels: Any, logits: Any, name: str | None = None) -> Tensor:
    """Computes the cross entropy -log(softmax(logits)[label]) for integer labels.

    Args:
      labels: class indices: int32 or int64.
      logits: a tensor of floats of the shape of `labels` with a last axis for the classes.
      name: name of the scope; "SparseSoftmaxCrossEntropyWithLogits" if None.

    Source: TensorFlow's `tf.nn.sparse_softmax_cross_entropy_with_logits`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.sparse_softmax_cross_entropy_with_logits(labels=[0], logits=[[0.0, 0.0]]).numpy().round(3)
      array([0.693], dtype=float32)
    """
    with scopes.name_scope(name, "SparseSoftmaxCrossEntropyWithLogits", [labels, logits]):
        b = scopes.builder(labels, logits)
        x, at = b.tensor(logits, None, "logits"), b.tensor(labels, None, "labels")
        if x.shape is not None and at.shape is not None and len(x.shape) != len(at.shape) + 1:
            raise ShapeError(f"Rank mismatch: `logits` must have one more axis than `labels`, got {x!r} and {at!r}")
        is_matrix = x.shape is not None and len(x.shape) == 2
        flat = at if is_matrix else arrays.reshape(at, (-1,))
        loss, _ = b.make("SparseSoftmaxCrossEntropyWithLogits", (_rows(b, x), flat), {})
        loss = _like_rows(b, loss, x)
        narrow(loss, at.shape)
        return loss


def log_poisson_loss(targets: Any, log_input: Any, compute_full_loss: bool = False, name: str | None = None) -> Tensor:
    """Computes -log of the probability of counts in a Poisson distribution, element by element.

    Args:
      targets: the counts.
      log_input: the logarithm of the predicted mean.
      compute_full_loss: whether to add Stirling's approximation of log(targets!), which does not depend on the
        prediction.
      name: name of the scope; "log_poisson_loss" if None.

    Source: TensorFlow's `tf.nn.log_poisson_loss`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.log_poisson_loss([1.0, 2.0], [0.0, 0.0]).numpy()
      array([1., 1.], dtype=float32)
    """
    with scopes.name_scope(name, "log_poisson_loss", [log_input, targets]):
        b = scopes.builder(log_input, targets)
        x, z = b.tensor(log_input, None, "log_input"), b.tensor(targets, None, "targets")
        loss = b.make("Sub", (b.make("Exp", (x,), {}), b.make("Mul", (x, z), {}, "mul")), {}, "sub")
        if not compute_full_loss:
            return loss
        spread = b.make("Mul", (0.5, math.log(b.make("Mul", (float(2 * np.pi), z), {}, "mul"))), {}, "mul")
        stirling = b.make(
            "AddV2", (b.make("Sub", (b.make("Mul", (z, math.log(z)), {}, "mul"), z), {}, "sub"), spread), {}, "add"
        )
        is_small = b.make("LogicalAnd", (b.make("GreaterEqual", (z, 0), {}), b.make("LessEqual", (z, 1), {})), {})
        return b.make("AddV2", (loss, gathering.where(is_small, arrays.zeros_like(z), stirling)), {}, "add")


def l2_loss(t: Any, name: str | None = None) -> Tensor:
    """Computes half the sum of the squares of all elements.

    Args:
      t: a tensor of floats.
      name: name of the operation; "L2Loss" if None.

    Source: TensorFlow's `tf.nn.l2_loss`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.l2_loss([3.0, 4.0]).numpy()
      np.float32(12.5)
    """
    return scopes.builder(t).make("L2Loss", (t,), {}, name)
