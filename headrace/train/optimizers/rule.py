"""The definition of an optimizer: hyperparameters, slots, counters, and a formula.

A `Rule` is independent of the place where an optimizer keeps its numbers. It has three parts:

* *Slots* are additional variables of the shape of each variable (Adam has the averages "m" and "v").
* *Counters* are scalars for all variables together, which change once in a step (Adam has powers of its betas).
* The *formula* computes the new values of a variable and its slots from a gradient. Most formulas are those of
  TensorFlow's ops (`ops.training`), so that in a graph a step is one op for each variable. The others are computed
  with tensors.

`base.Optimizer` keeps slots and counters in variables and creates ops; `functional` keeps them in structures of tensors
and computes the formula. Both compute the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from headrace import dtypes
from headrace.dtypes import DType
from headrace.ops.training.optimizers import RULES
from headrace.train.constructed import Constructed
from headrace.train.optimizers import tensors
from headrace.train.schedules import Schedule

_COUNTS: Final = ("global_step",)  # arguments that are int64 for every dtype of the variable

Values = dict[str, Any]  # values by argument name of the op: "var", and the arguments of the slots
Hyper = Callable[[str], Any]  # argument name of a hyperparameter in the op → its value in the variable's dtype


class Slot(NamedTuple):
    """Description of a variable that the optimizer keeps for each trained variable.

    Attributes:
      name: name of the slot for users (`get_slot`).
      argument: name of the slot's argument in the op.
      initial: initial value of each element.
      suffix: suffix of the variable's name. None: the name of the optimizer.

    Example:
      >>> import headrace as hr
      >>> hr.train.Momentum(0.1).slots()
      [Slot(name='momentum', argument='accum', initial=0.0, suffix=None)]
    """

    name: str
    argument: str
    initial: float = 0.0
    suffix: str | None = None


class Rule(Constructed):
    """Part of an optimizer that subclasses define: slots, counters, hyperparameters and formula.

    Args:
      learning_rate: a number, a scalar tensor, a variable, a function without arguments that returns one of these, or a
        `Schedule`, which is called at each step.

    Attributes:
      op: suffix of the types of the ops that do the update ("Adam" for ResourceApplyAdam). "": there is no such op.
    """

    op: str = ""

    def __init__(self, learning_rate: Any) -> None:
        self._learning_rate = learning_rate

    # *** the definitions of subclasses ***

    def slots(self) -> list[Slot]:
        """Returns the slots of each variable, in the order of their creation."""
        return []

    def counters(self) -> dict[str, Any]:
        """Returns the initial values of the counters: floats, or ints for int64."""
        return {"step": 0} if isinstance(self._learning_rate, Schedule) else {}

    def advanced(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of the counters after a step.

        Args:
          counters: values of the counters, by name.
        """
        return {"step": counters["step"] + 1} if "step" in counters else {}

    def hyperparameters(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the hyperparameters of the formula, by argument name of the op.

        Args:
          counters: values of the counters, by name.
        """
        return {"lr": self.rate(counters)}

    def attrs(self) -> dict[str, Any]:
        """Returns the attributes of the op."""
        return {}

    # *** the formula ***

    def rate(self, counters: Mapping[str, Any]) -> Any:
        """Returns the learning rate of this step.

        Args:
          counters: values of the counters, by name.
        """
        rate = self._learning_rate
        return rate(counters["step"]) if isinstance(rate, Schedule) else self.now(rate)

    def now(self, x: Any) -> Any:
        """Returns the value of a hyperparameter in this step; a function is called.

        Args:
          x: a number, a tensor, a variable, or a function without arguments that returns one of these.
        """
        return x() if callable(x) and not hasattr(type(x), "as_tensor") else x

    def dense(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """Returns the new values of a variable and its slots for a dense gradient.

        Args:
          values: values of the variable and its slots, by argument name of the op.
          hyper: function that returns the value of a hyperparameter.
          grad: the gradient, a tensor of the variable's shape.
        """
        rule = RULES[self.op]
        given = [grad if name == "grad" else hyper(name) for name in rule.args]
        new = rule.formula(tensors.XP, self.attrs(), *(values[s] for s in rule.slots), *given)
        return dict(zip(rule.slots, new, strict=True))

    def sparse(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """Returns the new values of a variable and its slots for a sparse gradient.

        Args:
          values: values of the variable and its slots, by argument name of the op.
          hyper: function that returns the value of a hyperparameter.
          grad: the gradient, an `IndexedSlices`.
        """
        return self.sparse_rows(values, hyper, grad)

    def sparse_rows(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """Returns the new values for a sparse gradient that changes only its own rows.

        Args:
          values: values of the variable and its slots, by argument name of the op.
          hyper: function that returns the value of a hyperparameter.
          grad: the gradient, an `IndexedSlices`.
        """
        rows, indices = tensors.unique_rows(grad)
        new = self.dense({k: tensors.gather(v, indices) for k, v in values.items()}, hyper, rows)
        return {k: tensors.scatter(values[k], indices, v) for k, v in new.items()}

    def rounded(self, x: Any) -> Any:
        """Returns a number as the hyperparameter to cast to the variable's dtype.

        Args:
          x: the number.
        """
        return x


def initial(slot: Slot, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the initial value of a slot.

    Args:
      slot: the slot.
      dtype: dtype of the variable.
      shape: shape of the variable.
    """
    return np.full(shape, slot.initial, dtype.numpy)


class Hyperparameters:
    """Hyperparameters of one step, each cast once to every dtype in use.

    Args:
      rule: the optimizer.
      counters: tensors or variables, by name of the counter.
    """

    def __init__(self, rule: Rule, counters: Mapping[str, Any]) -> None:
        self._round = rule.rounded
        self._given = rule.hyperparameters(counters)
        self._made: dict[tuple[str, DType], Any] = {}

    def of(self, dtype: DType) -> Hyper:
        """Returns a function from the name of a hyperparameter to its value in `dtype`."""

        def get(name: str) -> Any:
            key = (name, dtype)
            if key not in self._made:
                x, wanted = self._given[name], dtypes.int64 if name in _COUNTS else dtype
                is_number = tensors.is_number(x)
                self._made[key] = tensors.number(self._round(x), wanted) if is_number else tensors.of_dtype(x, wanted)
            return self._made[key]

        return get
