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
    """What `draw` gives for a builder, a shape and the alphas, divided by the rates `beta`, and positive.

    Raises:
      ValueError: the dtype is none of floats.

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
