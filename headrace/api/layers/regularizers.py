"""Regularizers: functions from a variable (or outputs) to a loss that penalizes large values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.api import math, reductions, scopes


def l1(scale: float = 0.01) -> Callable[[Any], Any]:
    """Returns a regularizer: `scale` times the sum of the absolute values.

    Args:
      scale: the factor, at least 0.

    Raises:
      ValueError: `scale` is negative.

    Source: TensorFlow's `tf.keras.regularizers.l1`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.l1(0.5)(hr.constant([1.0, -2.0])).numpy().item()
      1.5
    """
    return l1_l2(scale, 0.0)


def l2(scale: float = 0.01) -> Callable[[Any], Any]:
    """Returns a regularizer: `scale` times the sum of the squares.

    `hr.nn.l2_loss` is half the sum of the squares.

    Args:
      scale: the factor, at least 0.

    Raises:
      ValueError: `scale` is negative.

    Source: TensorFlow's `tf.keras.regularizers.l2`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.l2(0.5)(hr.constant([1.0, -2.0])).numpy().item()
      2.5
    """
    return l1_l2(0.0, scale)


def l1_l2(l1: float = 0.01, l2: float = 0.01) -> Callable[[Any], Any]:
    """Returns a regularizer: the sum of the regularizers `l1(l1)` and `l2(l2)`.

    Args:
      l1: factor of the sum of the absolute values, at least 0.
      l2: factor of the sum of the squares, at least 0.

    Raises:
      ValueError: `l1` or `l2` is negative.

    Source: TensorFlow's `tf.keras.regularizers.l1_l2`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.l1_l2(1.0, 0.5)(hr.constant([1.0, -2.0])).numpy().item()
      5.5
    """
    for name, scale in (("l1", l1), ("l2", l2)):
        if not scale >= 0:
            raise ValueError(f"the scale of a regularizer must not be negative, got {name}={scale!r}")

    def regularizer(x: Any) -> Any:
        with scopes.name_scope("regularizer", values=[x]):
            terms = []
            if l1:
                terms.append(math.multiply(reductions.reduce_sum(math.abs(x)), l1))
            if l2:
                terms.append(math.multiply(reductions.reduce_sum(math.square(x)), l2))
            if not terms:
                return scopes.builder(x).const(0.0, x.dtype.base)
            return terms[0] if len(terms) == 1 else math.add(terms[0], terms[1])

    return regularizer
