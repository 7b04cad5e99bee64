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
from headrace.train.optimizers import tensors
from headrace.train.schedules import Schedule

_COUNTS: Final = ("global_step",)  # arguments that are int64, whatever the dtype of the variable

Values = dict[str, Any]  # by the names that the op gives its arguments: "var", and those of the slots
Hyper = Callable[[str], Any]  # name of a hyperparameter, as the op has it → its value in the variable's dtype


class Slot(NamedTuple):
    """What an optimizer keeps beside each variable.

    Attributes:
      name: what users know it by (`get_slot`).
      argument: what the op calls it.
      initial: what each element is at first.
      suffix: what its variable's name ends with; None: the optimizer's name.
    """

    name: str
    argument: str
    initial: float = 0.0
    suffix: str | None = None


class Rule:
    """The part of an optimizer that subclasses write.

    Args:
      learning_rate: a number, a tensor, a variable, a function without arguments that gives one of these, or a
        `Schedule`, which is asked at each step.

    Attributes:
      op: what the types of the ops end with that do the update ("Adam": ResourceApplyAdam); "" if there are none.
    """

    op: str = ""

    def __init__(self, learning_rate: Any) -> None:
        self._learning_rate = learning_rate

    # *** what subclasses say ***

    def slots(self) -> list[Slot]:
        """What is kept beside each variable, in the order in which it is made."""
        return []

    def counters(self) -> dict[str, Any]:
        """The scalars kept for all variables together, and what they are at first: floats, or ints for int64."""
        return {"step": 0} if isinstance(self._learning_rate, Schedule) else {}

    def advanced(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """The counters after a step."""
        return {"step": counters["step"] + 1} if "step" in counters else {}

    def hyperparameters(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the formula that are neither values nor gradients, by the names that the op gives them."""
        return {"lr": self.rate(counters)}

    def attrs(self) -> dict[str, Any]:
        """The attributes of the op."""
        return {}

    # *** the formula ***

    def rate(self, counters: Mapping[str, Any]) -> Any:
        """The learning rate of this step."""
        rate = self._learning_rate
        return rate(counters["step"]) if isinstance(rate, Schedule) else self.now(rate)

    def now(self, x: Any) -> Any:
        """A hyperparameter as it is in this step: if it is a function, what that gives."""
        return x() if callable(x) and not hasattr(type(x), "as_tensor") else x

    def dense(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """What the values become by the gradient of all of the variable."""
        rule = RULES[self.op]
        given = [grad if name == "grad" else hyper(name) for name in rule.args]
        new = rule.formula(tensors.XP, self.attrs(), *(values[s] for s in rule.slots), *given)
        return dict(zip(rule.slots, new, strict=True))

    def sparse(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """What the values become by an `IndexedSlices`."""
        return self.sparse_rows(values, hyper, grad)

    def sparse_rows(self, values: Values, hyper: Hyper, grad: Any) -> Values:
        """What the values become if only those rows change that an `IndexedSlices` has."""
        rows, indices = tensors.unique_rows(grad)
        new = self.dense({k: tensors.gather(v, indices) for k, v in values.items()}, hyper, rows)
        return {k: tensors.scatter(values[k], indices, v) for k, v in new.items()}

    def rounded(self, x: Any) -> Any:
        """A hyperparameter that is a number, as it is before it takes the variable's dtype."""
        return x


def initial(slot: Slot, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """The initial value of a slot."""
    return np.full(shape, slot.initial, dtype.numpy)


class Hyperparameters:
    """The hyperparameters in one step, in the dtypes that are asked for; each is made once.

    Args:
      rule: whose.
      counters: tensors, or variables.
    """

    def __init__(self, rule: Rule, counters: Mapping[str, Any]) -> None:
        self._round = rule.rounded
        self._given = rule.hyperparameters(counters)
        self._made: dict[tuple[str, DType], Any] = {}

    def of(self, dtype: DType) -> Hyper:
        """What gives them in this dtype."""

        def get(name: str) -> Any:
            key = (name, dtype)
            if key not in self._made:
                x, wanted = self._given[name], dtypes.int64 if name in _COUNTS else dtype
                is_number = tensors.is_number(x)
                self._made[key] = tensors.number(self._round(x), wanted) if is_number else tensors.of_dtype(x, wanted)
            return self._made[key]

        return get
