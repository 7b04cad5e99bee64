"""The Ftrl optimizer: follow the regularized leader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.train.optimizers import tensors
from headrace.train.optimizers.base import Optimizer
from headrace.train.optimizers.rule import Slot


class Ftrl(Optimizer):
    """FTRL-Proximal ("follow the regularized leader"), which makes small weights exactly zero.

    The slots are "accum" and "linear".

    Args:
      learning_rate, name: see `Optimizer`.
      learning_rate_power: exponent by which the sums of squares reduce the learning rate, not positive. 0: the rate is
        constant.
      initial_accumulator_value: initial value of the sums of squares, not negative.
      l1_regularization_strength, l2_regularization_strength: strengths of the penalties, not negative.
      accum_name, linear_name: suffixes of the names of the slot variables. None: `name`.
      l2_shrinkage_regularization_strength: strength of an L2 penalty that is added to each gradient, not negative. For
        a sparse gradient it applies to the rows of the gradient only.
      beta: the parameter beta of the paper, which makes the first steps smaller. None: 0.

    Raises:
      ValueError: a parameter has the wrong sign.

    Source: TensorFlow's `tf.train.FtrlOptimizer`; McMahan and others 2013.

    Example:
      >>> import headrace as hr
      >>> w = hr.Variable(1.0)
      >>> hr.train.Ftrl(0.5).minimize(lambda: hr.square(w), var_list=[w])
      >>> float(w) < 1.0
      True
    """

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float | None = None,
    ) -> None:
        super().__init__(learning_rate, name)
        if learning_rate_power > 0.0:
            raise ValueError(f"learning_rate_power {learning_rate_power} needs to be negative or zero")
        for what, value in (
            ("initial_accumulator_value", initial_accumulator_value),
            ("l1_regularization_strength", l1_regularization_strength),
            ("l2_regularization_strength", l2_regularization_strength),
            ("l2_shrinkage_regularization_strength", l2_shrinkage_regularization_strength),
        ):
            if value < 0.0:
                raise ValueError(f"{what} {value} needs to be positive or zero")
        self._power, self._initial = learning_rate_power, initial_accumulator_value
        self._l1, self._l2, self._shrinkage = (
            l1_regularization_strength,
            l2_regularization_strength,
            l2_shrinkage_regularization_strength,
        )
        self._accum_name, self._linear_name, self._beta = accum_name, linear_name, beta or 0.0
        self.op = "FtrlV2" if self._shrinkage > 0.0 else "Ftrl"

    def slots(self) -> list[Slot]:
        """See `Rule.slots`."""
        return [
            Slot("accum", "accum", self._initial, self._accum_name),
            Slot("linear", "linear", 0.0, self._linear_name),
        ]

    def hyperparameters(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """See `Rule.hyperparameters`."""
        rate, l2 = self.rate(counters), self._l2
        if self._beta:
            least = max(rate, 1e-36) if tensors.is_number(rate) else tensors.XP.maximum(rate, 1e-36)
            l2 = l2 + self._beta / (2.0 * least)
        return {"lr": rate, "l1": self._l1, "l2": l2, "l2_shrinkage": self._shrinkage, "lr_power": self._power}

    def attrs(self) -> dict[str, Any]:
        """See `Rule.attrs`."""
        return {"multiply_linear_by_lr": False}
