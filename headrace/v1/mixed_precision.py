"""TensorFlow 1's `tf.mixed_precision`: loss scales for half precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.v1 import loss_scales as experimental
from headrace.v1.loss_scales import DynamicLossScale as DynamicLossScale
from headrace.v1.loss_scales import FixedLossScale as FixedLossScale
from headrace.v1.loss_scales import LossScale as LossScale
from headrace.v1.loss_scales import MixedPrecisionLossScaleOptimizer as MixedPrecisionLossScaleOptimizer
from headrace.v1.loss_scales import disable_mixed_precision_graph_rewrite as disable_mixed_precision_graph_rewrite
from headrace.v1.loss_scales import enable_mixed_precision_graph_rewrite as enable_mixed_precision_graph_rewrite

# fmt: off
__all__ = [
    "DynamicLossScale", "FixedLossScale", "LossScale", "MixedPrecisionLossScaleOptimizer",
    "disable_mixed_precision_graph_rewrite", "enable_mixed_precision_graph_rewrite", "experimental",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
