"""TensorFlow 1's `tf.contrib.opt`: further optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1.contrib import equivalents
from headrace.v1.contrib.opt.adam import AdaMaxOptimizer, LazyAdamOptimizer, NadamOptimizer
from headrace.v1.contrib.opt.averaging import MovingAverageOptimizer
from headrace.v1.contrib.opt.decay import (
    AdamWOptimizer,
    DecoupledWeightDecayExtension,
    MomentumWOptimizer,
    extend_with_decoupled_weight_decay,
)
from headrace.v1.contrib.opt.external import ExternalOptimizerInterface, ScipyOptimizerInterface

__all__ = [
    "AdaMaxOptimizer", "AdamWOptimizer", "DecoupledWeightDecayExtension", "ExternalOptimizerInterface",
    "LazyAdamOptimizer", "MomentumWOptimizer", "MovingAverageOptimizer", "NadamOptimizer", "ScipyOptimizerInterface",
    "extend_with_decoupled_weight_decay",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
