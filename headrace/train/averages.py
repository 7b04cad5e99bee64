"""Moving averages of variables.

The moving averages of a network's weights are often better than the last weights. So training updates averages of the
variables, and evaluation reads them: by `average`, or from a checkpoint, so that each variable gets its average
(`variables_to_restore`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import grouping, math, scopes
from headrace.api.variable import Variable
from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor
from headrace.train.optimizers import tensors
from headrace.train.optimizers.places import colocated, entered, initialized, lifted, root_of


class ExponentialMovingAverage:
    """Moving averages of variables and tensors with exponential decay.

    Each update computes `average -= (1 - decay) * (average - variable)`. The initial average of a variable is the
    initial value of the variable; that of a tensor is zero.

    Args:
      decay: decay rate: a number near 1, a scalar tensor or a variable.
      num_updates: number of steps so far: a number, a scalar tensor or a variable. If given, the decay is at most
        `(1 + num_updates) / (10 + num_updates)`, so that averages move faster in the first steps.
      zero_debias: whether to correct the averages of tensors for the bias of their start at zero.
      name: name of the operations, and suffix of the names of the averages.

    Source: TensorFlow's `tf.train.ExponentialMovingAverage`.

    Example:
      >>> import headrace as hr
      >>> from headrace.train.averages import ExponentialMovingAverage
      >>> w, ema = hr.Variable(4.0), ExponentialMovingAverage(0.75)
      >>> ema.apply([w])
      >>> w = w.assign(8.0)
      >>> ema.apply([w])
      >>> ema.average(w).numpy()
      np.float32(5.0)
    """

    def __init__(
        self, decay: Any, num_updates: Any = None, zero_debias: bool = False, name: str = "ExponentialMovingAverage"
    ) -> None:
        self._decay, self._num_updates, self._zero_debias, self._name = decay, num_updates, zero_debias, name
        # by the id of the variable's handle or of the tensor, which is kept so that the id stays valid
        self._averages: dict[int, tuple[Any, Any]] = {}
        self._debias: dict[int, tuple[Any, Any]] = {}  # of averages with zero_debias: biased average, count

    @property
    def name(self) -> str:
        """Name of the operations and suffix of the averages."""
        return self._name

    def apply(self, var_list: Iterable[Any] | None = None) -> Any:
        """Updates the averages. The first call creates them.

        Args:
          var_list: variables, or tensors of a graph, with floating point dtypes. None: the trainable variables of the
            graph.

        Returns:
          The operation that updates the averages. In eager mode None, because they are updated.

        Raises:
          TypeError: an element is not a variable or tensor, or does not have a floating point dtype; or a tensor has no
            fully known shape.
        """
        given = list(self._trainable() if var_list is None else var_list)
        for x in given:
            if not isinstance(x, (Variable, Tensor)):
                raise TypeError(f"moving averages are of variables and tensors of a graph, got {nest.describe(x)}")
            if x.dtype.base not in tensors.FLOATS:
                raise TypeError(f"The variables must be half, float, or double: {x.name} is {x.dtype.base.name}")
        with entered(*given):
            for x in given:
                if _key(x) not in self._averages:
                    self._averages[_key(x)] = x, self._make(x)
            with scopes.name_scope(self._name) as scope:
                updates = [self._updated(self.average(x), x) for x in given]
                return grouping.group(*(u for u in updates if not isinstance(u, Variable)), name=scope or None)

    def average(self, var: Any) -> Any:
        """Returns the variable with the average of `var`, or None if it does not exist.

        Args:
          var: the variable or tensor.
        """
        found = self._averages.get(_key(var))
        return None if found is None else found[1]

    def average_name(self, var: Any) -> str:
        """Returns the name of the average of `var` in a checkpoint.

        Args:
          var: the variable or tensor. If it has no average yet, the result is the name that `apply` would give to it.
        """
        made = self.average(var)
        if made is not None:
            return str(made.name.split(":")[0])
        full = f"{var.name.split(':')[0]}/{self._name}"
        return full if var.graph is None else _free(root_of(var.graph), full)

    def variables_to_restore(self, moving_avg_variables: Iterable[Any] | None = None) -> dict[str, Any]:
        """Returns a `var_list` for a saver that restores averages into variables.

        Args:
          moving_avg_variables: the variables that receive their averages. None: the trainable variables, and the
            variables with an average.

        Returns:
          A mapping from names in the checkpoint to the variables of the graph. A variable without an average has its
          own name.
        """
        averaged = self._averaged() if moving_avg_variables is None else list(moving_avg_variables)
        found = {self.average_name(v): v for v in dict.fromkeys(averaged)}
        names = {v.name for v in averaged}
        for v in self._all():
            own = v.name.split(":")[0]
            if v.name not in names and own not in found:
                found[own] = v
        return found

    # *** updates ***

    def _updated(self, average: Any, x: Any) -> Any:
        weight = self._weight(average.dtype.base)
        with colocated(average):
            value = scopes.builder(x).tensor(x)
            if _key(average) not in self._debias:
                return average.assign_sub((average - value) * weight, read_value=False)
            biased, count = self._debias[_key(average)]
            now = biased.assign_sub((biased - value) * weight)
            steps = count.assign_add(np.ones((), count.dtype.numpy)[()])
            left = 1 - math.pow(tensors.XP.cast(1 - weight, average.dtype.base), steps)
            return average.assign(now / left, read_value=False)

    def _weight(self, dtype: Any) -> Any:
        """Returns one minus the decay of this step, in a dtype."""
        if self._num_updates is None and tensors.is_number(self._decay):
            return self._complement(dtype)
        b = scopes.builder(self._decay, self._num_updates)
        decay = b.tensor(self._decay) if hasattr(self._decay, "dtype") else b.const(self._decay, dtypes.float32)
        if self._num_updates is not None:
            updates = math.cast(self._num_updates, decay.dtype.base)
            decay = math.minimum(decay, (1.0 + updates) / (10.0 + updates))
        return tensors.of_dtype(1.0 - decay, dtype)

    def _complement(self, dtype: Any) -> Any:
        return 1 - tensors.number(self._decay, dtype)

    # *** creation of the averages ***

    def _make(self, x: Any) -> Any:
        """Creates the average of `x`."""
        base = x.name.split(":")[0]
        if isinstance(x, Variable):
            with lifted(x):
                return self._make_beside(x, lambda: initialized(x), f"{base}/{self._name}")
        if not shapes.is_full(x.shape):
            raise TypeError(f"the average of the tensor '{x.name}' needs its shape, which is {shapes.show(x.shape)}")

        def zeros() -> Any:
            return scopes.builder().Fill(np.array(x.shape, np.int32), np.zeros((), x.dtype.base.numpy)[()])

        with lifted(x):
            made = self._make_beside(x, zeros, f"{x.op.name}/{self._name}")
            if self._zero_debias:
                name = made.name.split(":")[0]
                one = x.dtype.base.numpy.type(0)
                both = (
                    self._make_named(made, zeros, name, "biased"),
                    self._make_named(one, lambda: one, name, "local_step"),
                )
                self._debias[_key(made)] = both
        return made

    def _make_beside(self, primary: Any, initial: Any, name: str) -> Any:
        """Creates the variable of an average; `initial` is a function that returns its initial value."""
        with scopes.name_scope(None):
            return Variable(initial, trainable=False, name=name)

    def _make_named(self, primary: Any, initial: Any, scope: str, name: str) -> Any:
        """Creates a variable in the scope of an average."""
        return self._make_beside(primary, initial, f"{scope}/{name}")

    def _trainable(self) -> list[Any]:
        return [v for v in self._all() if v.trainable]

    def _averaged(self) -> list[Any]:
        return [*self._trainable(), *(x for x, _ in self._averages.values() if isinstance(x, Variable))]

    def _all(self) -> list[Any]:
        b = scopes.builder(*(x for x, _ in self._averages.values()))
        return list(getattr(root_of(b.graph), "variables", ())) if isinstance(b, Builder) else []


def _key(x: Any) -> int:
    return id(x.handle) if isinstance(x, Variable) else id(x)


def _free(graph: Any, name: str) -> str:
    """Returns the unique name that a new operation `name` would get."""
    found, i = name, 0
    while found in graph:
        i += 1
        found = f"{name}_{i}"
    return found


__all__ = ["ExponentialMovingAverage"]
