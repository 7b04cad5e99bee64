"""The Adam family: steps from moving averages of gradients and of their squares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.api import scopes
from headrace.train.optimizers import tensors
from headrace.train.optimizers.base import Optimizer
from headrace.train.optimizers.rule import Hyper, Slot, Values


class Adam(Optimizer):
    """Adam: steps by running averages of gradients ("m") and of squared gradients ("v").

    `m` and `v` start at zero. The learning rate of step t corrects the bias of this start:
    `rate = lr * sqrt(1 - beta2**t) / (1 - beta1**t)`, and `w -= rate * m / (sqrt(v) + epsilon)`. A sparse gradient
    counts as zero in the rows that it does not contain: the averages of all rows decay, and all rows change.

    Args:
      learning_rate, name: see `Optimizer`.
      beta1: decay rate of the average of gradients: a number, a scalar tensor, or a function that returns one of them.
      beta2: decay rate of the average of squared gradients, likewise.
      epsilon: number added to the root of `v`, likewise.

    Source: TensorFlow's `tf.train.AdamOptimizer`; Kingma and Ba 2014.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     w = hr.Variable([1.0, -1.0], name="w")
      ...     opt = hr.train.Adam(0.1)
      ...     step = opt.minimize(hr.reduce_sum(hr.square(w)))
      >>> [v.name for v in opt.variables()]
      ['beta1_power:0', 'beta2_power:0', 'w/Adam:0', 'w/Adam_1:0']
    """

    op = "Adam"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        name: str = "Adam",
    ) -> None:
        super().__init__(learning_rate, name)
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon

    def slots(self) -> list[Slot]:
        """See `Rule.slots`."""
        return [Slot("m", "m"), Slot("v", "v")]

    def counters(self) -> dict[str, Any]:
        """See `Rule.counters`."""
        powers = {"beta1_power": self.now(self._beta1), "beta2_power": self.now(self._beta2)}
        return powers | super().counters()

    def advanced(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """See `Rule.advanced`."""
        betas = {"beta1_power": self._beta1, "beta2_power": self._beta2}
        powers = {k: self.product(counters[k], self.now(betas[k])) for k in betas if k in counters}
        return powers | super().advanced(counters)

    def product(self, counter: Any, x: Any) -> Any:
        """Returns a counter times a hyperparameter, in the dtype of the counter."""
        dtype = counter.dtype.base
        return counter * (
            tensors.number(self.rounded(x), dtype) if tensors.is_number(x) else tensors.of_dtype(x, dtype)
        )

    def hyperparameters(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """See `Rule.hyperparameters`."""
        powers = {k: x for k, x in counters.items() if k.endswith("_power")}
        return powers | {
            "lr": self.rate(counters),
            "beta1": self.now(self._beta1),
            "beta2": self.now(self._beta2),
            "epsilon": self.now(self._epsilon),
        }

    def attrs(self) -> dict[str, Any]:
        """See `Rule.attrs`."""
        return {"use_nesterov": False}

    def sparse(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """See `Rule.sparse`. All rows change."""
        rows, indices = tensors.unique_rows(grad)
        beta1, beta2 = hyper("beta1"), hyper("beta2")
        m = tensors.scatter_add(values["m"] * beta1, indices, rows * (1 - beta1))
        v = tensors.scatter_add(values["v"] * beta2, indices, rows * rows * (1 - beta2))
        rate = hyper("lr") * tensors.XP.sqrt(1 - hyper("beta2_power")) / (1 - hyper("beta1_power"))
        return {"var": values["var"] - rate * m / (tensors.XP.sqrt(v) + hyper("epsilon")), "m": m, "v": v}


class AdamW(Adam):
    """Adam with decoupled weight decay.

    Each step first computes `w -= learning_rate * weight_decay * w`, then the step of Adam. All rows decay, also if
    the gradient is sparse.

    Args:
      learning_rate, beta1, beta2, epsilon, name: see `Adam`.
      weight_decay: decay rate: a number, a scalar tensor, or a function that returns one of them.

    Source: TensorFlow's `tf.keras.optimizers.AdamW`; Loshchilov and Hutter 2017.

    Example:
      >>> import headrace as hr
      >>> w = hr.Variable(1.0)
      >>> hr.train.AdamW(0.5, weight_decay=0.5).apply_gradients([(0.0, w)])
      >>> w.numpy()
      np.float32(0.75)
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: Any = 0.004,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        name: str = "AdamW",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, name)
        self._decay = weight_decay

    def hyperparameters(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """See `Rule.hyperparameters`."""
        return {**super().hyperparameters(counters), "weight_decay": self.now(self._decay)}

    def dense(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """See `Rule.dense`."""
        return super().dense(_decayed(values, hyper), hyper, grad)

    def sparse(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """See `Rule.sparse`."""
        return super().sparse(_decayed(values, hyper), hyper, grad)

    def _update_dense(self, v: Any, grad: Any, hyper: Hyper) -> Any:
        # TensorFlow's op computes the step; the control dependency orders it after the decay
        done = v.assign_sub(_decay(v, hyper), read_value=False)
        with scopes.control_dependencies([done] if v.graph is not None else []):
            return super()._update_dense(v, grad, hyper)


def _decay(value: Any, hyper: Hyper) -> Any:
    return value * hyper("weight_decay") * hyper("lr")


def _decayed(values: Values, hyper: Hyper) -> Values:
    return {**values, "var": values["var"] - _decay(values["var"], hyper)}


class AdaMax(Adam):
    """AdaMax: Adam with the infinity norm of past gradients in place of their root.

    The slot "v" holds `max(beta2 * v, |gradient|)`. A sparse gradient changes only the rows that it contains.

    Args:
      learning_rate, beta1, beta2, epsilon, name: see `Adam`.

    Source: TensorFlow's `tf.keras.optimizers.Adamax`; Kingma and Ba 2014.

    Example:
      >>> import headrace as hr
      >>> w = hr.Variable(1.0)
      >>> hr.train.AdaMax(0.25, epsilon=0.0).apply_gradients([(8.0, w)])
      >>> w.numpy()
      np.float32(0.75)
    """

    op = "AdaMax"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        name: str = "AdaMax",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, name)

    def counters(self) -> dict[str, Any]:
        """See `Rule.counters`."""
        return {k: x for k, x in super().counters().items() if k != "beta2_power"}

    def attrs(self) -> dict[str, Any]:
        """See `Rule.attrs`."""
        return {}

    def sparse(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """See `Rule.sparse`."""
        return self.sparse_rows(values, hyper, grad)


class Lamb(Adam):
    """LAMB: Adam with steps in proportion to the norms of variables, for large batches.

    With the bias-corrected averages `m` and `v` of Adam, the direction is
    `u = m / (sqrt(v) + epsilon) + weight_decay * w`, and `w -= learning_rate * |w| / |u| * u`. The ratio `|w| / |u|`
    counts as 1 if one of the norms is zero. A sparse gradient counts as zero in the rows that it does not contain.

    Args:
      learning_rate, beta1, beta2, epsilon, name: see `Adam`.
      weight_decay: decay rate: a number, a scalar tensor, or a function that returns one of them.

    Source: You and others 2020, "Large Batch Optimization for Deep Learning". TensorFlow's `tf.keras.optimizers.Lamb`
    is the same without weight decay.

    Example:
      >>> import headrace as hr
      >>> w = hr.Variable([3.0, 4.0])
      >>> hr.train.Lamb(0.125, epsilon=0.0).apply_gradients([([2.0, 0.5], w)])
      >>> [round(float(x), 4) for x in w.numpy()]
      [2.5581, 3.5581]
    """

    op = ""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-6,
        weight_decay: Any = 0.0,
        name: str = "Lamb",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, name)
        self._decay = weight_decay

    def hyperparameters(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """See `Rule.hyperparameters`."""
        return {**super().hyperparameters(counters), "weight_decay": self.now(self._decay)}

    def dense(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """See `Rule.dense`."""
        xp, w = tensors.XP, values["var"]
        m = values["m"] + (grad - values["m"]) * (1 - hyper("beta1"))
        v = values["v"] + (xp.square(grad) - values["v"]) * (1 - hyper("beta2"))
        root = xp.sqrt(v / (1 - hyper("beta2_power")))
        u = m / (1 - hyper("beta1_power")) / (root + hyper("epsilon")) + hyper("weight_decay") * w
        long_w, long_u = xp.sqrt(xp.sum(xp.square(w))), xp.sqrt(xp.sum(xp.square(u)))
        b = scopes.builder(w)
        both = b.LogicalAnd(b.Greater(long_w, 0), b.Greater(long_u, 0))
        ratio = xp.where(both, b.DivNoNan(long_w, long_u), b.OnesLike(long_w))
        return {"var": w - ratio * hyper("lr") * u, "m": m, "v": v}

    def sparse(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """See `Rule.sparse`. All rows change."""
        return self.dense(values, hyper, tensors.whole(grad))
