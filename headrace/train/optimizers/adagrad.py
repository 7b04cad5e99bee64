"""The Adagrad family: steps divided by a measure of all past gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.train.optimizers.base import Optimizer
from headrace.train.optimizers.rule import Slot


def _positive(value: float, what: str) -> float:
    if value <= 0.0:
        raise ValueError(f"{what} must be positive: {value}")
    return value


class Adagrad(Optimizer):
    """Adagrad: divides each step by the root of the sum of squared gradients.

    `accumulator += gradient**2; w -= learning_rate * gradient / sqrt(accumulator)`. The slot is "accumulator".

    Args:
      learning_rate, name: see `Optimizer`.
      initial_accumulator_value: initial value of the elements of the accumulator, positive.

    Raises:
      ValueError: `initial_accumulator_value` is not positive.

    Source: TensorFlow's `tf.train.AdagradOptimizer`; Duchi, Hazan and Singer 2011.

    Example:
      >>> import headrace as hr
      >>> w, opt = hr.Variable(1.0), hr.train.Adagrad(0.5, initial_accumulator_value=3.0)
      >>> opt.apply_gradients([(1.0, w)])
      >>> w.numpy(), opt.get_slot(w, "accumulator").numpy()
      (np.float32(0.75), np.float32(4.0))
    """

    op = "Adagrad"

    def __init__(self, learning_rate: Any, initial_accumulator_value: float = 0.1, name: str = "Adagrad") -> None:
        super().__init__(learning_rate, name)
        self._initial = _positive(initial_accumulator_value, "initial_accumulator_value")

    def slots(self) -> list[Slot]:
        """See `Rule.slots`."""
        return [Slot("accumulator", "accum", self._initial)]

    def attrs(self) -> dict[str, Any]:
        """See `Rule.attrs`."""
        return {"update_slots": True}


class ProximalAdagrad(Optimizer):
    """Adagrad with L1 and L2 regularization by proximal steps. The slot is "accumulator".

    Args:
      learning_rate, initial_accumulator_value, name: see `Adagrad`.
      l1_regularization_strength: strength of the L1 penalty, not negative. It makes small weights exactly zero.
      l2_regularization_strength: strength of the L2 penalty, not negative. It makes all weights smaller.

    Source: TensorFlow's `tf.train.ProximalAdagradOptimizer`; Duchi and Singer 2009.

    Example:
      >>> import headrace as hr
      >>> w = hr.Variable(1.0)
      >>> hr.train.ProximalAdagrad(0.25).minimize(lambda: hr.square(w), var_list=[w])
      >>> float(w) < 1.0
      True
    """

    op = "ProximalAdagrad"

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        name: str = "ProximalAdagrad",
    ) -> None:
        super().__init__(learning_rate, name)
        self._initial = _positive(initial_accumulator_value, "initial_accumulator_value")
        self._l1, self._l2 = l1_regularization_strength, l2_regularization_strength

    def slots(self) -> list[Slot]:
        """See `Rule.slots`."""
        return [Slot("accumulator", "accum", self._initial)]

    def hyperparameters(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """See `Rule.hyperparameters`."""
        return {"lr": self.rate(counters), "l1": self._l1, "l2": self._l2}


class AdagradDA(Optimizer):
    """Adagrad by dual averaging, with L1 and L2 regularization.

    A weight is computed from the sum of its gradients and the sum of their squares; its previous value has no
    influence. The slots are "gradient_accumulator" and "gradient_squared_accumulator".

    Args:
      learning_rate, name: see `Optimizer`.
      global_step: number of steps so far, an int64 scalar tensor or variable. None: the optimizer counts the steps.
      initial_gradient_squared_accumulator_value: initial value of the sums of squares, positive.
      l1_regularization_strength, l2_regularization_strength: see `ProximalAdagrad`.

    Source: TensorFlow's `tf.train.AdagradDAOptimizer`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     w = hr.Variable(1.0)
      ...     step = hr.train.AdagradDA(0.25, hr.train.get_or_create_global_step()).minimize(hr.square(w))
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     sess.run(step)
    """

    op = "AdagradDA"

    def __init__(
        self,
        learning_rate: Any,
        global_step: Any = None,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        name: str = "AdagradDA",
    ) -> None:
        super().__init__(learning_rate, name)
        self._step = global_step
        self._initial = _positive(
            initial_gradient_squared_accumulator_value, "initial_gradient_squared_accumulator_value"
        )
        self._l1, self._l2 = l1_regularization_strength, l2_regularization_strength

    def slots(self) -> list[Slot]:
        """See `Rule.slots`."""
        return [
            Slot("gradient_accumulator", "gradient_accumulator"),
            Slot("gradient_squared_accumulator", "gradient_squared_accumulator", self._initial),
        ]

    def counters(self) -> dict[str, Any]:
        """See `Rule.counters`."""
        return {"step": 0} if self._step is None else super().counters()

    def hyperparameters(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """See `Rule.hyperparameters`."""
        step = counters["step"] if self._step is None else self._step
        return {"lr": self.rate(counters), "l1": self._l1, "l2": self._l2, "global_step": step + 1}


class Adadelta(Optimizer):
    """Adadelta: divides gradients by running root mean squares, and multiplies by those of updates.

    The slots are "accum" (running average of squared gradients) and "accum_update" (of squared updates).

    Args:
      learning_rate: see `Optimizer`. The paper's algorithm has the rate 1.
      rho: decay rate of the running averages.
      epsilon: number added to the averages before their roots are taken.
      name: see `Optimizer`.

    Source: TensorFlow's `tf.train.AdadeltaOptimizer`; Zeiler 2012.

    Example:
      >>> import headrace as hr
      >>> w = hr.Variable(1.0)
      >>> hr.train.Adadelta(0.5).minimize(lambda: hr.square(w), var_list=[w])
      >>> float(w) < 1.0
      True
    """

    op = "Adadelta"

    def __init__(
        self, learning_rate: Any = 0.001, rho: Any = 0.95, epsilon: Any = 1e-8, name: str = "Adadelta"
    ) -> None:
        super().__init__(learning_rate, name)
        self._rho, self._epsilon = rho, epsilon

    def slots(self) -> list[Slot]:
        """See `Rule.slots`."""
        return [Slot("accum", "accum"), Slot("accum_update", "accum_update")]

    def hyperparameters(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """See `Rule.hyperparameters`."""
        return {"lr": self.rate(counters), "rho": self.now(self._rho), "epsilon": self.now(self._epsilon)}
