"""TensorFlow 1's loss scales, such as `tf.train.experimental.DynamicLossScale`; see `headrace.train`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.train import loss_scaling
from headrace.v1.graph import in_default_graph
from headrace.v1.optimizers import Optimizer, kept
from headrace.v1.variables import Variable

LossScale = loss_scaling.LossScale
FixedLossScale = loss_scaling.FixedLossScale


class DynamicLossScale(loss_scaling.DynamicLossScale):
    """Dynamic loss scale, whose variables are made immediately. See `headrace.train`.

    Args:
      initial_loss_scale, increment_period, multiplier: as there.

    Source: TensorFlow's `tf.train.experimental.DynamicLossScale`.
    """

    def __init__(
        self, initial_loss_scale: float = 2.0**15, increment_period: int = 2000, multiplier: float = 2.0
    ) -> None:
        super().__init__(initial_loss_scale, increment_period, multiplier)
        self._in_default_graph()

    @in_default_graph
    def _in_default_graph(self) -> None:
        self._variables(None)

    def _make_variable(self, first: Any, name: str) -> Any:
        return Variable(first, trainable=False, name=name)


class MixedPrecisionLossScaleOptimizer(loss_scaling.LossScaleOptimizer, Optimizer):
    """An optimizer whose loss is scaled. See `headrace.train.LossScaleOptimizer`.

    Args:
      opt: one of `headrace.v1`.
      loss_scale: a `LossScale`, a number for a fixed one, or "dynamic".

    Source: TensorFlow's `tf.train.experimental.MixedPrecisionLossScaleOptimizer`.
    """

    def __init__(self, opt: Optimizer, loss_scale: Any) -> None:
        super().__init__(opt, DynamicLossScale() if loss_scale == "dynamic" else loss_scale)

    compute_gradients = in_default_graph(loss_scaling.LossScaleOptimizer.compute_gradients)  # type: ignore[arg-type]

    @in_default_graph
    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """See `headrace.train.Optimizer.apply_gradients`."""
        return kept(loss_scaling.LossScaleOptimizer.apply_gradients(self, grads_and_vars, global_step, name))


def enable_mixed_precision_graph_rewrite(opt: Any, loss_scale: Any = "dynamic") -> MixedPrecisionLossScaleOptimizer:
    """Returns an optimizer with a loss scale.

    The dtypes of operations stay as they are, as on TensorFlow's CPUs; they change on GPUs.

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


# Imported on first use: few programs save objects.
_SHARDING = ("MaxShardSizePolicy", "ShardByTaskPolicy", "ShardableTensor", "ShardingCallback")
_LATER = {"PythonState": "headrace.v1.trackable.object_graph:PythonState"} | {
    name: f"headrace.v1.trackable.sharding:{name}" for name in _SHARDING
}

if TYPE_CHECKING:
    from headrace.v1.trackable.object_graph import PythonState
    from headrace.v1.trackable.sharding import MaxShardSizePolicy, ShardableTensor, ShardByTaskPolicy, ShardingCallback

__all__ = [
    "DynamicLossScale", "FixedLossScale", "LossScale", "MaxShardSizePolicy", "MixedPrecisionLossScaleOptimizer",
    "PythonState", "ShardByTaskPolicy", "ShardableTensor", "ShardingCallback",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__, _LATER)
