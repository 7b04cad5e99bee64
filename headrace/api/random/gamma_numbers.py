"""Random numbers of gamma distributions, computed from numbers with rate 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, math, scopes
from headrace.api.tensors import shape_tensor


def scaled_gamma(
    default: str,
    shape: Any,
    alpha: Any,
    beta: Any,
    dtype: Any,
    name: str | None,
    draw: Callable[[Any, Any, Any], Any],
) -> Any:
    """Draws gamma numbers of rate 1 and divides them by the rates.

    Args:
      default: the default name of the scope.
      shape, alpha, beta, dtype, name: see `hr.random.gamma`.
      draw: a function from a builder, a shape and the alphas to the numbers of rate 1.

    Returns:
      The numbers, replaced by the least positive number of the dtype where they are smaller.

    Raises:
      ValueError: the dtype is not float16, float32 or float64.

    Source: TensorFlow's `tf.random.gamma`, `tf.random.stateless_gamma`.
    """
    t = dtypes.as_dtype(dtype)
    if t not in (dtypes.float16, dtypes.float32, dtypes.float64):
        raise ValueError(f"numbers of gamma distributions are float16, float32 or float64, asked for {t.name}")
    with scopes.name_scope(name, default, [shape, alpha, beta]):
        b = scopes.builder(shape, alpha, beta)
        dims = shape_tensor(b, shape)
        alphas, betas = b.tensor(alpha, t, "alpha"), b.tensor(1 if beta is None else beta, t, "beta")
        whole = arrays.broadcast_dynamic_shape(arrays.shape(alphas), arrays.shape(betas))
        drawn = draw(b, dims, arrays.broadcast_to(alphas, whole)) / betas
        return math.maximum(np.finfo(t.numpy).tiny, drawn)
