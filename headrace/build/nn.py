"""Neural networks: activations, losses, convolutions and pooling, normalization."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.build import arrays, gathering, math, random, reductions, scopes
from headrace.build.convolution import avg_pool2d as avg_pool2d
from headrace.build.convolution import conv2d as conv2d
from headrace.build.convolution import conv2d_transpose as conv2d_transpose
from headrace.build.convolution import max_pool2d as max_pool2d
from headrace.build.linalg import l2_normalize as l2_normalize
from headrace.build.math import log_sigmoid as log_sigmoid
from headrace.build.math import sigmoid as sigmoid
from headrace.build.math import tanh as tanh
from headrace.build.reductions import top_k as top_k
from headrace.build.tensors import is_tensor
from headrace.errors import ShapeError


def _activation(name: str, type: str, what: str, tf: str = "") -> Callable[..., Any]:
    def function(features: Any, name: str | None = None) -> Any:
        return scopes.builder(features).make(type, (features,), {}, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{what}, element by element.

    Args:
      features: a tensor of floats.
      name: name of the operation; "{type}" if None.

    Source: TensorFlow's `tf.nn.{name}`.
    """
    return function


relu = _activation("relu", "Relu", "max(x, 0)")
relu6 = _activation("relu6", "Relu6", "min(max(x, 0), 6)")
elu = _activation("elu", "Elu", "x where it is positive, exp(x) - 1 where it is not")
selu = _activation("selu", "Selu", "`elu`, scaled so that mean 0 and variance 1 stay")
softplus = _activation("softplus", "Softplus", "log(1 + exp(x))")
softsign = _activation("softsign", "Softsign", "x / (1 + |x|)")


def leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Any:
    """x where it is positive, alpha * x where it is not, element by element.

    Source: TensorFlow's `tf.nn.leaky_relu`.
    """
    with scopes.name_scope(name, "LeakyRelu", [features]) as scope:
        b = scopes.builder(features)
        x = b.tensor(features, None, "features")
        if x.dtype.is_integer:
            x = math.cast(x, dtypes.float32)
        return b.make("LeakyRelu", (x,), {"alpha": float(alpha)}, scope)


def gelu(features: Any, approximate: bool = False, name: str | None = None) -> Any:
    """x times the probability that a normal number is below x, element by element.

    Args:
      features: a tensor of floats.
      approximate: whether by a formula with tanh.
      name: name of the scope; "Gelu" if None.

    Source: TensorFlow's `tf.nn.gelu`.
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


def silu(features: Any, beta: Any = 1.0, name: str | None = None) -> Any:
    """x * sigmoid(beta * x), element by element.

    Source: TensorFlow's `tf.nn.silu` (`tf.nn.swish`).
    """
    with scopes.name_scope(name, "swish", [features]):
        b = scopes.builder(features, beta)
        x = b.tensor(features, None, "features")
        scaled = x if not is_tensor(beta) and beta == 1.0 else b.make("Mul", (beta, x), {}, "mul")
        return b.make("Mul", (x, b.make("Sigmoid", (scaled,), {})), {}, "mul")


swish = silu
avg_pool, max_pool = avg_pool2d, max_pool2d


# *** probabilities and losses ***


def _softmax(type: str, logits: Any, axis: int | None, name: str | None) -> Any:
    b = scopes.builder(logits)
    x = b.tensor(logits, None, "logits")
    order = _exchanged(x, -1 if axis is None else axis)
    if order is None:
        return b.make(type, (x,), {}, name)
    swapped = b.make(type, (arrays.transpose(x, order),), {})
    return arrays.transpose(swapped, order, name=name or "transpose")


def _exchanged(x: Any, axis: int) -> list[int] | None:
    """The order of axes in which `axis` and the last are exchanged; None if it is the last."""
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


def softmax(logits: Any, axis: int | None = None, name: str | None = None) -> Any:
    """exp(x) divided by its sum along an axis.

    Args:
      logits: a tensor of floats.
      axis: a number; None: the last.
      name: name of the operation; "Softmax" if None.

    Source: TensorFlow's `tf.nn.softmax`.
    """
    return _softmax("Softmax", logits, axis, name)


def log_softmax(logits: Any, axis: int | None = None, name: str | None = None) -> Any:
    """log(softmax(x)), without overflow; see `softmax`.

    Source: TensorFlow's `tf.nn.log_softmax`.
    """
    return _softmax("LogSoftmax", logits, axis, name)


def sigmoid_cross_entropy_with_logits(labels: Any = None, logits: Any = None, name: str | None = None) -> Any:
    """-log of the probability that independent yes-or-no labels have, element by element.

    Args:
      labels: the probability of a yes, of the shape and dtype of `logits`.
      logits: log(p / (1 - p)) of the probabilities p predicted.
      name: name of the scope; "logistic_loss" if None.

    Raises:
      ValueError: one of them is missing, or their shapes differ.

    Source: TensorFlow's `tf.nn.sigmoid_cross_entropy_with_logits`.
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


def weighted_cross_entropy_with_logits(labels: Any, logits: Any, pos_weight: Any, name: str | None = None) -> Any:
    """`sigmoid_cross_entropy_with_logits`, in which a label of 1 counts `pos_weight` times.

    Source: TensorFlow's `tf.nn.weighted_cross_entropy_with_logits`.
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


def softmax_cross_entropy_with_logits(labels: Any, logits: Any, axis: int = -1, name: str | None = None) -> Any:
    """-sum(labels * log(softmax(logits))) along an axis.

    Args:
      labels: the probabilities of the classes, of the shape and dtype of `logits`.
      logits: a tensor of floats.
      axis: that of the classes.
      name: name of the scope; "softmax_cross_entropy_with_logits" if None.

    Source: TensorFlow's `tf.nn.softmax_cross_entropy_with_logits`.
    """
    with scopes.name_scope(name, "softmax_cross_entropy_with_logits", [logits, labels]):
        b, z, x = _labels_and_logits(labels, logits)
        x, z = _axis_last(x, axis), _axis_last(z, axis)
        loss, _ = b.make("SoftmaxCrossEntropyWithLogits", (_rows(b, x), _rows(b, z)), {})
        return _like_rows(b, loss, x)


def _axis_last(x: Any, axis: int) -> Any:
    """`x` with an axis moved behind the others."""
    if _exchanged(x, axis) is None:
        return x
    order = list(builtins.range(len(x.shape)))
    order.append(order.pop(axis))
    return arrays.transpose(x, order)


def _rows(b: Any, x: Any) -> Any:
    """`x` as a matrix, of which a row is along the last axis."""
    if x.shape is not None and len(x.shape) == 2:
        return x
    n = None if not x.shape else x.shape[-1]
    return arrays.reshape(x, (-1, n) if n is not None else arrays.concat([[-1], arrays.shape(x)[-1:]], 0))


def _like_rows(b: Any, y: Any, x: Any) -> Any:
    """`y`, which has an element for each row of `x`, in the shape of `x` without its last axis."""
    if x.shape is not None and len(x.shape) == 2:
        return y
    is_known = x.shape and shapes.is_full(x.shape[:-1])
    return arrays.reshape(y, np.array(x.shape[:-1], np.int32) if is_known else arrays.shape(x)[:-1])


def sparse_softmax_cross_entropy_with_logits(labels: Any, logits: Any, name: str | None = None) -> Any:
    """-log(softmax(logits)) of the class that each label names.

    Args:
      labels: int32 or int64: the class, an index of the last axis of `logits`.
      logits: a tensor of floats with one more axis.
      name: name of the scope; "SparseSoftmaxCrossEntropyWithLogits" if None.

    Source: TensorFlow's `tf.nn.sparse_softmax_cross_entropy_with_logits`.
    """
    with scopes.name_scope(name, "SparseSoftmaxCrossEntropyWithLogits", [labels, logits]):
        b = scopes.builder(labels, logits)
        x, at = b.tensor(logits, None, "logits"), b.tensor(labels, None, "labels")
        if x.shape is not None and at.shape is not None and len(x.shape) != len(at.shape) + 1:
            raise ShapeError(f"Rank mismatch: `logits` must have one more axis than `labels`, got {x!r} and {at!r}")
        is_matrix = x.shape is not None and len(x.shape) == 2
        flat = at if is_matrix else arrays.reshape(at, (-1,))
        loss, _ = b.make("SparseSoftmaxCrossEntropyWithLogits", (_rows(b, x), flat), {})
        return _like_rows(b, loss, x)


def log_poisson_loss(targets: Any, log_input: Any, compute_full_loss: bool = False, name: str | None = None) -> Any:
    """-log of the probability of counts in a Poisson distribution, element by element.

    Args:
      targets: the counts.
      log_input: the logarithm of the mean predicted.
      compute_full_loss: whether with (Stirling's approximation of) what does not depend on the prediction.
      name: name of the scope; "log_poisson_loss" if None.

    Source: TensorFlow's `tf.nn.log_poisson_loss`.
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


def l2_loss(t: Any, name: str | None = None) -> Any:
    """Half the sum of the squares of all elements.

    Source: TensorFlow's `tf.nn.l2_loss`.
    """
    return scopes.builder(t).make("L2Loss", (t,), {}, name)


# *** layers ***


def bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> Any:
    """A vector, added along the axis of the channels.

    Args:
      value: a tensor of numbers.
      bias: a vector of the same dtype.
      data_format: "N...C" (also "NHWC" and None): the channels are the last axis; "NC..." ("NCHW"): the second.
      name: name of the operation; "BiasAdd" if None.

    Raises:
      ValueError: there is no such format.

    Source: TensorFlow's `tf.nn.bias_add`.
    """
    given = data_format or "N...C"
    if not given.startswith("N") or "C" not in given:
        raise ValueError(f"'data_format' must be of the form 'N...C' or 'NC...', got {data_format!r}")
    layout = "NCHW" if given.startswith("NC") else "NHWC"
    return scopes.builder(value, bias).make("BiasAdd", (value, bias), {"data_format": layout}, name)


def dropout(x: Any, rate: Any, noise_shape: Any = None, seed: int | None = None, name: str | None = None) -> Any:
    """`x`, of which each element is 0 with probability `rate`, and made greater otherwise, so that its mean stays.

    Args:
      x: a tensor of floats.
      rate: from 0 to below 1.
      noise_shape: of what is drawn; it broadcasts to the shape of `x`, which it is if None.
      seed: see `headrace.build.random`.
      name: name of the scope; "dropout" if None.

    Raises:
      ValueError: `x` is of no floats, or the rate is out of range.

    Source: TensorFlow's `tf.nn.dropout`.
    """
    if not is_tensor(rate) and not 0 <= rate < 1:
        raise ValueError(f"'rate' must be a scalar tensor or a float in the range [0, 1), got {rate!r}")
    with scopes.name_scope(name, "dropout", [x]):
        b = scopes.builder(x, rate)
        x = b.tensor(x, None, "x")
        if not x.dtype.is_floating:
            raise ValueError(f"'x' must be of floats, for its elements are scaled; got {x!r}; cast it (hr.cast)")
        if not is_tensor(rate) and rate == 0:
            return x
        t = x.dtype.base
        if is_tensor(rate):
            scaled = b.make("RealDiv", (x, b.make("Sub", (b.const(1, t), rate), {})), {})
        else:
            scaled = b.make("Mul", (x, b.const(1 / (1 - rate), t)), {})
        drawn = random.uniform(arrays.shape(x) if noise_shape is None else noise_shape, seed=seed, dtype=t)
        kept = b.make("GreaterEqual", (drawn, rate), {})
        return b.make("SelectV2", (kept, scaled, b.const(0, t)), {})


def moments(x: Any, axes: Any, shift: Any = None, keepdims: bool = False, name: str | None = None) -> tuple[Any, Any]:
    """The mean and the variance along axes.

    Args:
      x: a tensor of numbers; of half precision it is computed in float32.
      axes: numbers.
      shift: accepted for TensorFlow's sake.
      keepdims: whether the axes stay, with length 1.
      name: name of the scope; "moments" if None.

    Source: TensorFlow's `tf.nn.moments`.
    """
    with scopes.name_scope(name, "moments", [x, axes]):
        b = scopes.builder(x)
        given = b.tensor(x, None, "x")
        is_half = given.dtype.base in (dtypes.float16, dtypes.bfloat16)
        y = math.cast(given, dtypes.float32) if is_half else given
        mean = reductions.reduce_mean(y, axes, True, "mean")
        distance = b.make("SquaredDifference", (y, b.make("StopGradient", (mean,), {})), {})
        variance = reductions.reduce_mean(distance, axes, True, "variance")
        if not keepdims:
            mean, variance = arrays.squeeze(mean, axes), arrays.squeeze(variance, axes)
        if is_half:
            mean, variance = math.cast(mean, given.dtype), math.cast(variance, given.dtype)
        return mean, variance


def batch_normalization(
    x: Any, mean: Any, variance: Any, offset: Any, scale: Any, variance_epsilon: Any, name: str | None = None
) -> Any:
    """scale * (x - mean) / sqrt(variance + variance_epsilon) + offset; `offset` and `scale` may be None.

    Source: TensorFlow's `tf.nn.batch_normalization`.
    """
    with scopes.name_scope(name, "batchnorm", [x, mean, variance, scale, offset]):
        b = scopes.builder(x, mean, variance)
        factor = b.make("Rsqrt", (b.make("AddV2", (variance, variance_epsilon), {}, "add"),), {})
        if scale is not None:
            factor = b.make("Mul", (factor, scale), {}, "mul")
        scaled = b.make("Mul", (x, factor), {}, "mul")
        if offset is None:
            moved = b.make("Mul", (b.make("Neg", (mean,), {}), factor), {}, "mul")
        else:
            moved = b.make("Sub", (offset, b.make("Mul", (mean, factor), {}, "mul")), {}, "sub")
        return b.make("AddV2", (scaled, moved), {}, "add")


def embedding_lookup(params: Any, ids: Any, max_norm: Any = None, name: str | None = None) -> Any:
    """The rows of `params` that `ids` name.

    Args:
      params: a tensor, or a list of one.
      ids: int32 or int64, of any shape.
      max_norm: the greatest norm that a row may have: longer ones are scaled down.
      name: name of the operation; "embedding_lookup" if None.

    Raises:
      ValueError: there are several tensors; concatenate them.

    Source: TensorFlow's `tf.nn.embedding_lookup`.
    """
    if isinstance(params, (list, tuple)):
        if len(params) != 1:
            raise ValueError(f"embedding_lookup takes one tensor of rows, got {len(params)}; concat them first")
        params = params[0]
    with scopes.name_scope(name, "embedding_lookup", [params, ids]) as scope:
        b = scopes.builder(params, ids)
        ids = b.tensor(ids, None, "ids")
        rows = b.make("GatherV2", (params, ids, 0), {}, scope)
        if max_norm is not None:
            from headrace.build.linalg import clip_by_norm

            n = (
                None
                if ids.shape is None or rows.shape is None
                else list(builtins.range(len(ids.shape), len(rows.shape)))
            )
            return clip_by_norm(rows, max_norm, n)
        return b.make("Identity", (rows,), {})


def zero_fraction(value: Any, name: str | None = None) -> Any:
    """How many of all elements are zero, as a share: a float32 scalar.

    Source: TensorFlow's `tf.math.zero_fraction`.
    """
    with scopes.name_scope(name, "zero_fraction", [value]):
        b = scopes.builder(value)
        x = b.tensor(value, None, "value")
        n = arrays.size(x, dtypes.int64)
        zeros = b.make("Sub", (n, reductions.count_nonzero(x)), {}, "sub")
        share = b.make("RealDiv", (math.cast(zeros, dtypes.float32), math.cast(n, dtypes.float32)), {}, "truediv")
        return b.make("Identity", (share,), {}, "fraction")
