"""RMSProp: gradients divided by the root of a moving average of their squares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.train.optimizers.base import Optimizer
from headrace.train.optimizers.rule import Slot


class RMSProp(Optimizer):
    """RMSProp: divides gradients by the root of a running average of their squares.

    The scaled gradients go into a sum with momentum. The slots are "rms", "momentum" and, if `centered`, "mg". A sparse
    gradient changes only the rows that it contains.

    Args:
      learning_rate, name: see `Optimizer`.
      decay: decay rate of the running average.
      momentum: see `Momentum`.
      epsilon: number added to the average before its root is taken.
      centered: whether to subtract the squared average of the gradients, so that they are divided by their standard
        deviation.

    Source: TensorFlow's `tf.train.RMSPropOptimizer`; Tieleman and Hinton 2012.

    Example:
      >>> import headrace as hr
      >>> w, opt = hr.Variable(1.0), hr.train.RMSProp(0.5, decay=0.75, epsilon=0.0)
      >>> opt.apply_gradients([(1.0, w)])
      >>> w.numpy(), opt.get_slot_names()
      (np.float32(0.5), ['momentum', 'rms'])
    """

    def __init__(
        self,
        learning_rate: Any,
        decay: Any = 0.9,
        momentum: Any = 0.0,
        epsilon: Any = 1e-10,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        super().__init__(learning_rate, name)
        self._decay, self._momentum, self._epsilon, self._centered = decay, momentum, epsilon, centered
        self.op = "CenteredRMSProp" if centered else "RMSProp"

    def slots(self) -> list[Slot]:
        """See `Rule.slots`."""
        centre = [Slot("mg", "mg")] if self._centered else []
        return [Slot("rms", "ms", 1.0), *centre, Slot("momentum", "mom")]

    def hyperparameters(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """See `Rule.hyperparameters`."""
        return {
            "lr": self.rate(counters),
            "rho": self.now(self._decay),
            "momentum": self.now(self._momentum),
            "epsilon": self.now(self._epsilon),
        }
