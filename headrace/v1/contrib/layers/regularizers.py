"""Regularizers of `tf.contrib.layers`: functions from a variable to a loss that penalizes large values."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from headrace.api import math, nn, reductions, scopes
from headrace.v1.graph import GraphKeys, add_to_collection, get_collection, in_default_graph

Regularizer: TypeAlias = Callable[[Any], Any]


def _checked(scale: Any) -> float:
    if isinstance(scale, numbers.Integral):
        raise ValueError(f"scale cannot be an integer: {scale}")
    if isinstance(scale, numbers.Real) and float(scale) < 0.0:
        raise ValueError(f"Setting a scale less than 0 on a regularizer: {scale:g}.")
    return scale  # type: ignore[no-any-return]


def _nothing(_: Any) -> None:
    return None


def l1_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """Returns a regularizer: `scale` times the sum of the absolute values.

    Args:
      scale: the factor, a float of at least 0. 0: no loss.
      scope: name of the scope of its operations.

    Raises:
      ValueError: `scale` is negative or an integer.

    Source: TensorFlow's `tf.contrib.layers.l1_regularizer`.
    """
    if _checked(scale) == 0.0:
        return _nothing

    @in_default_graph
    def l1(weights: Any) -> Any:
        with scopes.name_scope(scope, "l1_regularizer", [weights]) as name:
            b = scopes.builder(weights)
            return math.multiply(
                b.const(scale, weights.dtype.base, "scale"), reductions.reduce_sum(math.abs(weights)), name=name
            )

    return l1


def l2_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """Returns a regularizer: `scale` times half the sum of the squares.

    Args:
      scale: the factor, a float of at least 0. 0: no loss.
      scope: name of the scope of its operations.

    Raises:
      ValueError: `scale` is negative or an integer.

    Source: TensorFlow's `tf.contrib.layers.l2_regularizer`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Session() as sess:
      ...     sess.run(tf.contrib.layers.l2_regularizer(0.5)(tf.constant([1.0, 3.0])))
      np.float32(2.5)
    """
    if _checked(scale) == 0.0:
        return _nothing

    @in_default_graph
    def l2(weights: Any) -> Any:
        with scopes.name_scope(scope, "l2_regularizer", [weights]) as name:
            b = scopes.builder(weights)
            return math.multiply(b.const(scale, weights.dtype.base, "scale"), nn.l2_loss(weights), name=name)

    return l2


def l1_l2_regularizer(scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None) -> Regularizer:
    """Returns the sum of an L1 and an L2 regularizer.

    Source: TensorFlow's `tf.contrib.layers.l1_l2_regularizer`.
    """
    scope = scope or "l1_l2_regularizer"
    both: Regularizer = sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope)
    return both


def sum_regularizer(regularizer_list: Iterable[Regularizer | None], scope: str | None = None) -> Any:
    """Returns a regularizer that is the sum of others; None if there are no others.

    Source: TensorFlow's `tf.contrib.layers.sum_regularizer`.
    """
    kept = [r for r in regularizer_list if r is not None]
    if not kept:
        return None

    @in_default_graph
    def total(weights: Any) -> Any:
        with scopes.name_scope(scope, "sum_regularizer", [weights]):
            found = [loss for r in kept if (loss := r(weights)) is not None]
            return math.add_n(found) if found else None

    return total


@in_default_graph
def apply_regularization(regularizer: Regularizer, weights_list: Iterable[Any] | None = None) -> Any:
    """Returns the sum of losses of variables, a regularization loss of the graph.

    Args:
      regularizer: a function from a variable to a scalar, or to None for no loss.
      weights_list: the variables; None: those of GraphKeys.WEIGHTS.

    Raises:
      ValueError: there are no variables, or a loss is not a scalar.

    Source: TensorFlow's `tf.contrib.layers.apply_regularization`.
    """
    weights = list(weights_list if weights_list else get_collection(GraphKeys.WEIGHTS))
    if not weights:
        raise ValueError("No weights to regularize.")
    with scopes.name_scope("get_regularization_penalty", values=weights) as name:
        losses = [loss for w in weights if (loss := regularizer(w)) is not None]
        for loss in losses:
            if loss.shape is None or len(loss.shape) > 0:
                raise ValueError(f"regularizer must return a scalar Tensor instead of a Tensor of shape {loss.shape}")
        total = math.add_n(losses, name=name) if losses else scopes.builder().const(0.0)
        add_to_collection(GraphKeys.REGULARIZATION_LOSSES, total)
        return total
