"""Activation functions, for single elements or along an axis."""

from __future__ import annotations

import builtins
from typing import Any, Protocol

import numpy as np

from headrace import dtypes
from headrace.api import arrays, math, scopes
from headrace.api.table_examples import example
from headrace.api.tensors import is_tensor
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor


class Activation(Protocol):
    """A function of features, element by element."""

    __name__: str

    def __call__(self, features: Any, name: str | None = None) -> Tensor: ...


def _activation(name: str, type: str, what: str, tf: str = "") -> Activation:
    def function(features: Any, name: str | None = None) -> Any:
        return scopes.builder(features).make(type, (features,), {}, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Computes {what}, element by element.

    Args:
      features: a tensor of floats.
      name: name of the operation; "{type}" if None.

    Source: TensorFlow's `tf.nn.{name}`.

    {example(name)}
    """
    return function


relu = _activation("relu", "Relu", "the rectified linear unit max(x, 0)")
relu6 = _activation("relu6", "Relu6", "the rectified linear unit min(max(x, 0), 6)")
elu = _activation("elu", "Elu", "the exponential linear unit, x where x > 0 and exp(x) - 1 elsewhere")
selu = _activation("selu", "Selu", "the scaled exponential linear unit, which keeps mean 0 and variance 1")
softplus = _activation("softplus", "Softplus", "softplus, log(1 + exp(x))")
softsign = _activation("softsign", "Softsign", "softsign, x / (1 + |x|)")


def leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Tensor:
    """Computes the leaky rectified linear unit: alpha * x where x < 0.

    Args:
      features: a tensor of floats; integers are cast to float32.
      alpha: slope for x < 0.
      name: name of the operation; "LeakyRelu" if None.

    Source: TensorFlow's `tf.nn.leaky_relu`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.leaky_relu([-1.0, 0.0, 2.0]).numpy()
      array([-0.2,  0. ,  2. ], dtype=float32)
    """
    with scopes.name_scope(name, "LeakyRelu", [features]) as scope:
        b = scopes.builder(features)
        x = b.tensor(features, None, "features")
        if x.dtype.is_integer:
            x = math.cast(x, dtypes.float32)
        return b.make("LeakyRelu", (x,), {"alpha": float(alpha)}, scope)


def gelu(features: Any, approximate: bool = False, name: str | None = None) -> Tensor:
    """Computes the Gaussian error linear unit, x * P(X <= x) for standard normal X.

    Args:
      features: a tensor of floats.
      approximate: whether to use the approximation by tanh.
      name: name of the scope; "Gelu" if None.

    Source: TensorFlow's `tf.nn.gelu`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.gelu([-1.0, 0.0, 2.0]).numpy().round(3)
      array([-0.159,  0.   ,  1.954], dtype=float32)
    """
    with scopes.name_scope(name, "Gelu", [features]):
        b = scopes.builder(features)
        x = b.tensor(features, None, "features")
        half = b.make("Mul", (0.5, x), {}, "mul")
        if approximate:
            cube = b.make("Mul", (0.044715, b.make("Pow", (x, 3), {})), {}, "mul")
            inner = b.make("Mul", (float(np.sqrt(2 / np.pi)), b.make("AddV2", (x, cube), {}, "add")), {}, "mul")
            return b.make("Mul", (half, b.make("AddV2", (1, b.make("Tanh", (inner,), {})), {}, "add")), {}, "mul")
        above = b.make("Erfc", (b.make("Mul", (b.make("Neg", (x,), {}), float(np.sqrt(0.5))), {}, "mul"),), {})
        return b.make("Mul", (half, above), {}, "mul")


def silu(features: Any, beta: Any = 1.0, name: str | None = None) -> Tensor:
    """Computes x * sigmoid(beta * x), element by element.

    Args:
      features: a tensor of floats.
      beta: the factor of x in the sigmoid.
      name: name of the scope; "swish" if None.

    Source: TensorFlow's `tf.nn.silu` (`tf.nn.swish`).

    Example:
      >>> import headrace as hr
      >>> hr.nn.silu([-1.0, 0.0, 2.0]).numpy().round(3)
      array([-0.269,  0.   ,  1.762], dtype=float32)
    """
    with scopes.name_scope(name, "swish", [features]):
        b = scopes.builder(features, beta)
        x = b.tensor(features, None, "features")
        scaled = x if not is_tensor(beta) and beta == 1.0 else b.make("Mul", (beta, x), {}, "mul")
        return b.make("Mul", (x, b.make("Sigmoid", (scaled,), {})), {}, "mul")


swish = silu


def crelu(features: Any, axis: int = -1, name: str | None = None) -> Tensor:
    """Concatenates relu(x) and relu(-x) along an axis.

    Args:
      features: a tensor of numbers.
      axis: the axis of the concatenation, whose size doubles.
      name: name of the operation; "CRelu" if None.

    Source: TensorFlow's `tf.nn.crelu`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.crelu([[1.0, -2.0]]).numpy().tolist()
      [[1.0, 0.0, 0.0, 2.0]]
    """
    with scopes.name_scope(name, "CRelu", [features]) as scope:
        b = scopes.builder(features)
        x = b.tensor(features, None, "features")
        return relu(arrays.concat([x, b.Neg(x)], axis, name=scope))


# *** probabilities ***


def _softmax(type: str, logits: Any, axis: int | None, name: str | None) -> Any:
    b = scopes.builder(logits)
    x = b.tensor(logits, None, "logits")
    order = exchanged(x, -1 if axis is None else axis)
    if order is None:
        return b.make(type, (x,), {}, name)
    swapped = b.make(type, (arrays.transpose(x, order),), {})
    return arrays.transpose(swapped, order, name=name or "transpose")


def exchanged(x: Any, axis: int) -> list[int] | None:
    """Returns the axis order with `axis` and the last exchanged; None if they are equal."""
    n = None if x.shape is None else len(x.shape)
    if axis == -1 or (n is not None and axis == n - 1):
        return None
    if n is None:
        raise ShapeError(
            f"softmax along axis {axis} needs a tensor of known rank, got {x!r}; set its shape (set_shape)"
        )
    if not -n <= axis < n:
        raise ShapeError(f"axis {axis} is not in [{-n}, {n}): {x!r} has {n} axes")
    order = list(builtins.range(n))
    order[axis], order[-1] = order[-1], order[axis]
    return order


def softmax(logits: Any, axis: int | None = None, name: str | None = None) -> Tensor:
    """Computes exp(x) divided by its sum along an axis.

    Args:
      logits: a tensor of floats.
      axis: the axis of the classes; None: the last.
      name: name of the operation; "Softmax" if None.

    Source: TensorFlow's `tf.nn.softmax`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.softmax([0.0, 0.0, 1.0]).numpy().round(3)
      array([0.212, 0.212, 0.576], dtype=float32)
    """
    return _softmax("Softmax", logits, axis, name)


def log_softmax(logits: Any, axis: int | None = None, name: str | None = None) -> Tensor:
    """Computes log(softmax(x)) without overflow; see `softmax`.

    Args:
      logits: a tensor of floats.
      axis: the axis of the classes; None: the last.
      name: name of the operation; "LogSoftmax" if None.

    Source: TensorFlow's `tf.nn.log_softmax`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.log_softmax([0.0, 0.0, 1.0]).numpy().round(3)
      array([-1.551, -1.551, -0.551], dtype=float32)
    """
    return _softmax("LogSoftmax", logits, axis, name)
