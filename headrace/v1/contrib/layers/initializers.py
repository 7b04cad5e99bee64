"""Initializers of `tf.contrib.layers`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from headrace import dtypes
from headrace.api import random
from headrace.v1.graph import in_default_graph


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: Any = dtypes.float32
) -> Callable[..., Any]:
    """Returns Glorot's initializer: numbers of variance 2 / (fan_in + fan_out).

    Args:
      uniform: whether the distribution is uniform; otherwise it is a truncated normal distribution.
      seed: seed of the numbers.
      dtype: dtype of the numbers, a floating one.

    Source: TensorFlow's `tf.contrib.layers.xavier_initializer`; Glorot and Bengio, "Understanding the difficulty of
    training deep feedforward neural networks" (2010).
    """
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


xavier_initializer_conv2d = xavier_initializer


def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = dtypes.float32,
) -> Callable[..., Any]:
    """Returns an initializer: numbers of variance factor / n, with the n of `mode`.

    A truncated normal distribution is that of a standard deviation of sqrt(1.3 * factor / n), of which the part beyond
    two deviations is cut off.

    Args:
      factor: the factor.
      mode: "FAN_IN", "FAN_OUT" or "FAN_AVG": the number n is that of inputs, of outputs, or the mean of both.
      uniform: whether the distribution is uniform; otherwise it is a truncated normal distribution.
      seed: seed of the numbers.
      dtype: dtype of the numbers, a floating one.

    Raises:
      TypeError: the dtype is not floating, or `mode` is none of the three.

    Source: TensorFlow's `tf.contrib.layers.variance_scaling_initializer`; He et al., "Delving deep into rectifiers"
    (2015).

    Example:
      >>> import headrace.v1 as tf
      >>> first = tf.contrib.layers.variance_scaling_initializer(uniform=True, seed=1)
      >>> with tf.Session() as sess:
      ...     bool((abs(sess.run(first([50, 4]))) <= (3 * 2.0 / 50) ** 0.5).all())
      True
    """
    if not dtypes.as_dtype(dtype).is_floating:
        raise TypeError(f"Cannot create initializer for non-floating point type {dtypes.as_dtype(dtype).name}.")
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise TypeError(f"Unknown mode {mode} [FAN_IN, FAN_OUT, FAN_AVG]")

    @in_default_graph
    def initializer(shape: Sequence[int], dtype: Any = dtype, partition_info: Any = None) -> Any:
        dims = [int(n) for n in (shape if partition_info is None else partition_info.full_shape)]
        window = math.prod(dims[:-2])
        fan_in = float(window * (dims[-2] if len(dims) > 1 else dims[-1])) if dims else 1.0
        fan_out = float(window * dims[-1]) if dims else 1.0
        n = {"FAN_IN": fan_in, "FAN_OUT": fan_out, "FAN_AVG": (fan_in + fan_out) / 2.0}[mode]
        if uniform:
            limit = math.sqrt(3.0 * factor / n)
            return random.uniform(shape, -limit, limit, dtype, seed=seed)
        return random.truncated_normal(shape, 0.0, math.sqrt(1.3 * factor / n), dtype, seed=seed)

    return initializer
