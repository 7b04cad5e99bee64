"""Variants of Adam: for sparse gradients, and with Nesterov momentum."""

from __future__ import annotations

from typing import Any

from headrace.train.optimizers import adam, tensors
from headrace.train.optimizers.rule import Hyper, Values
from headrace.v1.optimizers import AdamOptimizer, Optimizer


class LazyAdamOptimizer(AdamOptimizer):
    """Adam whose sparse gradients change their own rows alone. See `tf.train.AdamOptimizer`.

    Source: TensorFlow's `tf.contrib.opt.LazyAdamOptimizer`.
    """

    def sparse(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """See `Rule.sparse`. The averages of other rows do not decay."""
        return self.sparse_rows(values, hyper, grad)


class NadamOptimizer(AdamOptimizer):
    """Adam with Nesterov momentum. See `tf.train.AdamOptimizer`.

    Source: TensorFlow's `tf.contrib.opt.NadamOptimizer`; Dozat, "Incorporating Nesterov momentum into Adam" (2015).
    """

    def attrs(self) -> dict[str, Any]:
        """See `Rule.attrs`."""
        return {"use_nesterov": True}

    def sparse(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """See `Rule.sparse`. Averages of all rows decay; the gradient's rows of the variable change."""
        new = super().sparse(values, hyper, grad)
        rows, indices = tensors.unique_rows(grad)
        m, v = (tensors.gather(new[k], indices) for k in ("m", "v"))
        beta1 = hyper("beta1")
        ahead = rows * (1 - beta1) + m * beta1
        rate = hyper("lr") * tensors.XP.sqrt(1 - hyper("beta2_power")) / (1 - hyper("beta1_power"))
        change = rate * ahead / (tensors.XP.sqrt(v) + hyper("epsilon"))
        return {**new, "var": tensors.scatter_add(values["var"], indices, -change)}


class AdaMaxOptimizer(Optimizer, adam.AdaMax):
    """Adam with the maximum norm. See `headrace.train.AdaMax`.

    Args:
      learning_rate, beta1, beta2, epsilon: see `tf.train.AdamOptimizer`.
      use_locking: accepted as in TensorFlow, without effect.
      name: name of the operations.

    Source: TensorFlow's `tf.contrib.opt.AdaMaxOptimizer`.
    """

    def __init__(
        self, learning_rate: Any = 0.001, beta1: Any = 0.9, beta2: Any = 0.999, epsilon: Any = 1e-8,
        use_locking: bool = False, name: str = "AdaMax",
    ) -> None:  # fmt: skip
        adam.AdaMax.__init__(self, learning_rate, beta1, beta2, epsilon, name)
