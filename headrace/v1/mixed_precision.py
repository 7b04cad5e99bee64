"""TensorFlow 1's `tf.mixed_precision`: loss scales for half precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.v1 import loss_scales as experimental
from headrace.v1.loss_scales import DynamicLossScale as DynamicLossScale
from headrace.v1.loss_scales import FixedLossScale as FixedLossScale
from headrace.v1.loss_scales import LossScale as LossScale
from headrace.v1.loss_scales import MixedPrecisionLossScaleOptimizer as MixedPrecisionLossScaleOptimizer


def enable_mixed_precision_graph_rewrite(opt: Any, loss_scale: Any = "dynamic") -> MixedPrecisionLossScaleOptimizer:
    """Returns an optimizer with a loss scale.

    The dtypes of operations stay as they are; in TensorFlow they change on GPUs.

    Args:
      opt: an optimizer.
      loss_scale: a `LossScale`, a number, or "dynamic".

    Source: TensorFlow's `tf.mixed_precision.enable_mixed_precision_graph_rewrite`.
    """
    return MixedPrecisionLossScaleOptimizer(opt, loss_scale)


def disable_mixed_precision_graph_rewrite() -> None:
    """Does nothing: no dtype of an operation changes.

    Source: TensorFlow's `tf.mixed_precision.disable_mixed_precision_graph_rewrite`.
    """


# fmt: off
__all__ = [
    "DynamicLossScale", "FixedLossScale", "LossScale", "MixedPrecisionLossScaleOptimizer",
    "disable_mixed_precision_graph_rewrite", "enable_mixed_precision_graph_rewrite", "experimental",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
