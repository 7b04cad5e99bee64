"""Normalization: means and variances, and functions that apply them."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, gathering, math, reductions, scopes
from headrace.ir.tensor_type import Tensor

_HALF = (dtypes.float16, dtypes.bfloat16)


def moments(
    x: Any, axes: Any, shift: Any = None, keepdims: bool = False, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Computes the mean and the variance along axes.

    Args:
      x: a tensor of numbers; half precision is computed in float32.
      axes: indices of the axes.
      shift: ignored; accepted for compatibility with TensorFlow.
      keepdims: whether the axes are kept, with length 1.
      name: name of the scope; "moments" if None.

    Source: TensorFlow's `tf.nn.moments`.

    Example:
      >>> import headrace as hr
      >>> mean, variance = hr.nn.moments([1.0, 2.0, 3.0, 4.0], [0])
      >>> mean.numpy(), variance.numpy()
      (np.float32(2.5), np.float32(1.25))
    """
    with scopes.name_scope(name, "moments", [x, axes]):
        b = scopes.builder(x)
        given = b.tensor(x, None, "x")
        is_half = given.dtype.base in _HALF
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
) -> Tensor:
    """Computes scale * (x - mean) / sqrt(variance + variance_epsilon) + offset.

    Args:
      x: a tensor of floats.
      mean, variance: tensors that broadcast to the shape of `x`.
      offset: the same, or None for 0.
      scale: the same, or None for 1.
      variance_epsilon: a small number that is added to the variance.
      name: name of the scope; "batchnorm" if None.

    Source: TensorFlow's `tf.nn.batch_normalization`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.batch_normalization([1.0, 3.0], 2.0, 1.0, 0.5, 2.0, 0.0).numpy()
      array([-1.5,  2.5], dtype=float32)
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


def weighted_moments(
    x: Any, axes: Any, frequency_weights: Any, keepdims: bool = False, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Computes the weighted mean and variance along axes.

    Args:
      x: a tensor of floats; half precision is computed in float32.
      axes: indices of the axes.
      frequency_weights: the weights; they broadcast to the shape of `x`.
      keepdims: whether the axes are kept, with length 1.
      name: name of the scope; "weighted_moments" if None.

    Returns:
      The mean and the variance, of the dtype of `x`; zero where the weights sum to zero.

    Source: TensorFlow's `tf.nn.weighted_moments`.

    Example:
      >>> import headrace as hr
      >>> [t.numpy().item() for t in hr.nn.weighted_moments([1.0, 4.0], [0], [2.0, 1.0])]
      [2.0, 2.0]
    """
    with scopes.name_scope(name, "weighted_moments", [x, frequency_weights, axes]):
        b = scopes.builder(x, frequency_weights)
        given = b.tensor(x, None, "x")
        weights = b.tensor(frequency_weights, None, "frequency_weights")
        is_half = given.dtype.base in _HALF
        y = math.cast(given, dtypes.float32) if is_half else given
        weights = math.cast(weights, y.dtype.base)
        total = reductions.reduce_sum(b.make("Mul", (weights, y), {}, "mul"), axes, True, "weighted_input_sum")
        whole = b.make("AddV2", (weights, arrays.zeros_like(y)), {}, "add")
        count = reductions.reduce_sum(whole, axes, True, "sum_of_weights")
        mean = math.divide_no_nan(total, count)
        far = b.make("Mul", (weights, math.squared_difference(y, mean)), {}, "mul")
        far = reductions.reduce_sum(far, axes, True, "weighted_distsq")
        variance = math.divide_no_nan(far, count)
        if not keepdims:
            mean, variance = arrays.squeeze(mean, axes), arrays.squeeze(variance, axes)
        if is_half:
            mean, variance = math.cast(mean, given.dtype.base), math.cast(variance, given.dtype.base)
        return mean, variance


def sufficient_statistics(
    x: Any, axes: Any, shift: Any = None, keepdims: bool = False, name: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Computes the statistics from which `normalize_moments` computes the mean and variance.

    Statistics of parts of the data can be added.

    Args:
      x: a tensor of floats.
      axes: indices of the axes.
      shift: a value near the mean that is subtracted first, for precision; None: 0.
      keepdims: whether the axes are kept, with length 1.
      name: name of the scope; "sufficient_statistics" if None.

    Returns:
      The number of elements along the axes, their sum, the sum of their squares, and the shift (None or a tensor).

    Source: TensorFlow's `tf.nn.sufficient_statistics`.

    Example:
      >>> import headrace as hr
      >>> [t.numpy().item() for t in hr.nn.sufficient_statistics([1.0, 2.0], [0])[:3]]
      [2.0, 3.0, 5.0]
    """
    with scopes.name_scope(name, "sufficient_statistics", [x, shift]):
        b = scopes.builder(x, shift)
        x = b.tensor(x, None, "x")
        axes = [int(a) for a in np.ravel(axes)]
        known = () if x.shape is None else tuple(x.shape[a] for a in axes)
        lengths = [n for n in known if n is not None]
        if len(lengths) < len(axes):
            dims = math.cast(arrays.shape(x), x.dtype.base)
            count = reductions.reduce_prod(gathering.gather(dims, axes), name="count")
        else:
            count = b.const(float(np.prod(lengths)), x.dtype.base)
        if shift is None:
            near, far = x, math.square(x)
        else:
            shift = b.tensor(shift, x.dtype.base, "shift")
            near, far = math.subtract(x, shift), math.squared_difference(x, shift)
        mean = reductions.reduce_sum(near, axes, keepdims, "mean_ss")
        return count, mean, reductions.reduce_sum(far, axes, keepdims, "var_ss"), shift


def normalize_moments(
    counts: Any, mean_ss: Any, variance_ss: Any, shift: Any, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Computes the mean and the variance from the results of `sufficient_statistics`.

    Args:
      counts, mean_ss, variance_ss, shift: number of elements, sum, sum of squares, and shift or None.
      name: name of the scope; "normalize" if None.

    Source: TensorFlow's `tf.nn.normalize_moments`.

    Example:
      >>> import headrace as hr
      >>> [t.numpy().item() for t in hr.nn.normalize_moments(2.0, 6.0, 20.0, None)]
      [3.0, 1.0]
    """
    with scopes.name_scope(name, "normalize", [counts, mean_ss, variance_ss, shift]):
        b = scopes.builder(counts, mean_ss, variance_ss, shift)
        share = math.reciprocal(counts, name="divisor")
        if shift is None:
            near = mean = math.multiply(mean_ss, share, name="mean")
        else:
            near = math.multiply(mean_ss, share, name="shifted_mean")
            mean = b.make("AddV2", (near, shift), {}, "mean")
        return mean, math.subtract(math.multiply(variance_ss, share), math.square(near), name="variance")


def batch_norm_with_global_normalization(
    input: Any,
    mean: Any,
    variance: Any,
    beta: Any,
    gamma: Any,
    variance_epsilon: Any,
    scale_after_normalization: bool,
    name: str | None = None,
) -> Tensor:
    """Normalizes images with one mean and variance for each channel; see `batch_normalization`.

    Args:
      input: images of floats, [batch, height, width, channels].
      mean, variance: [channels]: statistics of the images.
      beta, gamma: [channels]: offset and scale.
      variance_epsilon: a small number that is added to the variance.
      scale_after_normalization: whether the result is multiplied by `gamma`.
      name: name of the scope; "batchnorm" if None.

    Source: TensorFlow's `tf.nn.batch_norm_with_global_normalization`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> x = np.array([[[[1.0]], [[3.0]]]], np.float32)
      >>> one = np.ones(1, np.float32)
      >>> hr.nn.batch_norm_with_global_normalization(x, 2 * one, one, 0 * one, one, 0.0, False).numpy().ravel()
      array([-1.,  1.], dtype=float32)
    """
    scale = gamma if scale_after_normalization else None
    return batch_normalization(input, mean, variance, beta, scale, variance_epsilon, name)


_LEAST_EPSILON = 1.001e-5  # the minimum of TensorFlow (cuDNN)


def fused_batch_norm(
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any = None,
    variance: Any = None,
    epsilon: float = 0.001,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
    exponential_avg_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalizes a batch of images in one operation.

    Args:
      x: images (or volumes) of floats, [batch, height, width, channels], or the layout that `data_format` names.
      scale, offset: [channels].
      mean, variance: [channels]: the statistics to use if `is_training` is False. In training they are running
        statistics, and may be None if `exponential_avg_factor` is 1.
      epsilon: a small number that is added to the variance; at least 1.001e-5 is used.
      data_format: "NHWC", "NCHW", "NDHWC" or "NCDHW".
      is_training: whether to normalize with the mean and variance of `x`.
      name: name of the operation; "FusedBatchNormV3" if None.
      exponential_avg_factor: weight of the statistics of `x` in the running statistics; 1: the running statistics are
        replaced.

    Returns:
      The normalized images, and the mean and variance; in training, the updated running statistics.

    Raises:
      ValueError: `mean` or `variance` is None where it is needed.

    Source: TensorFlow's `tf.compat.v1.nn.fused_batch_norm`.

    Example:
      >>> import headrace as hr
      >>> _, mean, _ = hr.nn.fused_batch_norm([[[[1.0], [3.0]]]], [1.0], [0.0])
      >>> mean.numpy().tolist()
      [2.0]
    """
    if (not is_training or exponential_avg_factor != 1.0) and (mean is None or variance is None):
        raise ValueError(
            "'mean' and 'variance' must be given if is_training is False or exponential_avg_factor is not 1.0, "
            f"got {mean!r} and {variance!r}"
        )
    b = scopes.builder(x, scale, offset, mean, variance)
    t = dtypes.float32
    mean, variance = (b.const(np.zeros(0, np.float32), t) if m is None else m for m in (mean, variance))
    attrs = {
        "epsilon": max(float(epsilon), _LEAST_EPSILON),
        "data_format": data_format,
        "is_training": bool(is_training),
        "exponential_avg_factor": float(exponential_avg_factor),
    }
    made = b.make("FusedBatchNormV3", (x, scale, offset, mean, variance), attrs, name)
    return made[0], made[1], made[2]


def local_response_normalization(
    input: Any,
    depth_radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
    name: str | None = None,
) -> Tensor:
    """Divides by powers of the sum of squares of neighbouring channels.

    Computes input / (bias + alpha * s) ** beta, where s is the sum of the squares of the channels at most
    `depth_radius` away.

    Args:
      input: images of floats, [batch, height, width, channels].
      depth_radius: number of channels to either side that are included.
      bias, alpha, beta: the constants of the formula.
      name: name of the operation; "LRN" if None.

    Source: TensorFlow's `tf.nn.local_response_normalization` (`tf.nn.lrn`).

    Example:
      >>> import headrace as hr
      >>> hr.nn.lrn([[[[3.0, 4.0]]]], bias=0.0).numpy().ravel().tolist()
      [0.6000000238418579, 0.800000011920929]
    """
    attrs = {"depth_radius": int(depth_radius), "bias": float(bias), "alpha": float(alpha), "beta": float(beta)}
    return scopes.builder(input).make("LRN", (input,), attrs, name)


lrn = local_response_normalization
