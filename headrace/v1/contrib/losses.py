"""TensorFlow 1's `tf.contrib.losses`: those of `tf.losses`, with predictions before labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.v1 import losses
from headrace.v1.contrib import equivalents
from headrace.v1.contrib.framework.arg_scope import add_arg_scope
from headrace.v1.contrib.swapped import swapped
from headrace.v1.losses import (
    add_loss,
    compute_weighted_loss,
    get_losses,
    get_regularization_losses,
    get_total_loss,
)  # fmt: skip


def _of(f: Any, first: str = "predictions", second: str = "labels") -> Any:
    return add_arg_scope(swapped(f, first, second, f"tf.contrib.losses.{f.__name__}"))


absolute_difference = _of(losses.absolute_difference)
cosine_distance = _of(losses.cosine_distance)
hinge_loss = _of(losses.hinge_loss, "logits")
log_loss = _of(losses.log_loss)
mean_pairwise_squared_error = _of(losses.mean_pairwise_squared_error)
mean_squared_error = _of(losses.mean_squared_error)
sigmoid_cross_entropy = _of(losses.sigmoid_cross_entropy, "logits", "multi_class_labels")
softmax_cross_entropy = _of(losses.softmax_cross_entropy, "logits", "onehot_labels")
sparse_softmax_cross_entropy = _of(losses.sparse_softmax_cross_entropy, "logits")

__all__ = [
    "absolute_difference", "add_loss", "compute_weighted_loss", "cosine_distance", "get_losses",
    "get_regularization_losses", "get_total_loss", "hinge_loss", "log_loss", "mean_pairwise_squared_error",
    "mean_squared_error", "sigmoid_cross_entropy", "softmax_cross_entropy", "sparse_softmax_cross_entropy",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
