"""`MovingAverageOptimizer`: an optimizer that also keeps averages of the variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.api import grouping, scopes
from headrace.v1.averages import ExponentialMovingAverage
from headrace.v1.graph import in_default_graph
from headrace.v1.optimizers import Optimizer
from headrace.v1.saver import Saver
from headrace.v1.variables import global_variables


class MovingAverageOptimizer(Optimizer):
    """Optimizer that averages the variables after each step of another optimizer.

    Args:
      opt: the optimizer.
      average_decay: decay of the averages.
      num_updates: see `tf.train.ExponentialMovingAverage`.
      sequential_update: whether the averages wait for the step; otherwise they read either value.

    Source: TensorFlow's `tf.contrib.opt.MovingAverageOptimizer`.
    """

    def __init__(
        self, opt: Any, average_decay: float = 0.9999, num_updates: Any = None, sequential_update: bool = True
    ) -> None:
        super().__init__(False, "MovingAverage")
        self._optimizer, self._waits = opt, sequential_update
        self._averages = ExponentialMovingAverage(average_decay, num_updates)
        self._averaged: list[Any] = []

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the pairs of gradients and variables of the other optimizer."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    @in_default_graph
    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Applies gradients to variables, and updates the averages. See `tf.train.Optimizer.apply_gradients`."""
        pairs = list(grads_and_vars)
        step = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        self._averaged = [v for g, v in pairs if g is not None]
        with scopes.control_dependencies([step] if self._waits else []):
            return grouping.group(step, self._averages.apply(self._averaged))

    def get_slot(self, var: Any, name: str) -> Any:
        """Returns a slot of the other optimizer."""
        return self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots of the other optimizer."""
        return list(self._optimizer.get_slot_names())

    @in_default_graph
    def variables(self) -> list[Any]:
        """Returns the variables of the other optimizer and the averages."""
        return [*self._optimizer.variables(), *(self._averages.average(v) for v in self._averaged)]

    @in_default_graph
    def swapping_saver(self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any) -> Saver:
        """Returns a saver that exchanges the names of variables and averages.

        Args:
          var_list: variables to save, or a dict from names to variables; None: all.
          name: name of the saver.
          **kwargs: further arguments of `tf.train.Saver`.

        Raises:
          RuntimeError: `apply_gradients` has not been called.

        Source: TensorFlow's `tf.contrib.opt.MovingAverageOptimizer.swapping_saver`.
        """
        if not self._averaged:
            raise RuntimeError("Must call apply_gradients or minimize before creating the swapping_saver")
        swapped: dict[str, str] = {}
        for v in self._averaged:
            average = self._averages.average(v)
            swapped[v.op.name], swapped[average.op.name] = average.op.name, v.op.name
        given = global_variables() if var_list is None else var_list
        named = dict(given) if isinstance(given, dict) else {v.op.name: v for v in given}
        return Saver({swapped.get(key, key): v for key, v in named.items()}, name=name, **kwargs)


__all__ = ["MovingAverageOptimizer"]
