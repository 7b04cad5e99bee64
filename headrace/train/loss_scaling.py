"""Loss scaling: gradients that float16 can represent.

Gradients are often so small that half precision rounds them to zero. If the loss is multiplied by a large number, all
gradients are multiplied too, and they are divided by the number before they are applied. The largest usable number is
unknown, so it is adapted: as long as all gradients are finite, it is doubled at intervals. When a gradient is not
finite, the number is halved, and the variables do not change in this step. All of this is computed in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from headrace import nest
from headrace.api import gathering, grouping, math, reductions, scopes
from headrace.api.cond import cond
from headrace.api.variable import Variable
from headrace.ir.graph import Graph
from headrace.ir.indexed_slices import IndexedSlices
from headrace.train.optimizers import tensors
from headrace.train.optimizers.base import Optimizer, Pairs
from headrace.train.optimizers.places import entered, outermost, root_of
from headrace.train.optimizers.rule import Rule


class LossScale:
    """Base class of loss scales: the factor by which a loss is multiplied.

    Source: TensorFlow's `tf.train.experimental.LossScale`.

    Example:
      >>> import headrace as hr
      >>> class Halving(hr.train.LossScale):
      ...     def init(self):
      ...         return {"scale": hr.constant(8.0)}
      ...
      ...     def of(self, state):
      ...         return state["scale"]
      ...
      ...     def after(self, state, is_finite):
      ...         return {"scale": hr.where(is_finite, state["scale"], state["scale"] / 2)}
      >>> scale = Halving()
      >>> float(scale.of(scale.after(scale.init(), hr.constant(False))))
      4.0
    """

    def now(self, near: Any = None) -> Any:
        """Returns the factor, a float32 scalar tensor.

        Args:
          near: a tensor or variable of the graph to use if no graph has been entered, or None.
        """
        raise NotImplementedError

    def update(self, grads: Sequence[Any]) -> tuple[Any, Any]:
        """Updates the factor after a step.

        Args:
          grads: the unscaled gradients. Elements that are None are ignored.

        Returns:
          A pair: the operation that changes the factor, or None if it does not change; and whether the gradients may be
          applied, True or a bool scalar tensor.
        """
        raise NotImplementedError

    def variables(self) -> list[Any]:
        """Returns the variables of the loss scale."""
        return []

    # *** as a function of tensors ***

    def init(self) -> dict[str, Any]:
        """Returns the state before the first step."""
        raise NotImplementedError

    def of(self, state: Any) -> Any:
        """Returns the factor of a state.

        Args:
          state: the state that `init` or `after` returned.
        """
        raise NotImplementedError

    def after(self, state: Any, is_finite: Any) -> dict[str, Any]:
        """Returns the state after a step.

        Args:
          state: the state before the step.
          is_finite: whether all gradients of the step are finite, a bool scalar tensor.
        """
        raise NotImplementedError


class FixedLossScale(LossScale):
    """Constant loss scale. Steps are applied even if gradients are not finite.

    Args:
      loss_scale_value: the factor, at least 1.

    Raises:
      ValueError: `loss_scale_value` is less than 1, or not a number.

    Source: TensorFlow's `tf.train.experimental.FixedLossScale`.

    Example:
      >>> import headrace as hr
      >>> hr.train.FixedLossScale(8.0).now().numpy()
      np.float32(8.0)
    """

    def __init__(self, loss_scale_value: float) -> None:
        if not isinstance(loss_scale_value, (int, float)):
            raise ValueError("loss_scale_value must be a Python int or float.")
        if not loss_scale_value >= 1:
            raise ValueError(f"loss_scale_value must be at least 1, got {loss_scale_value}.")
        self._value = float(loss_scale_value)

    def now(self, near: Any = None) -> Any:
        """See `LossScale.now`."""
        return scopes.builder(near).tensor(np.float32(self._value))

    def update(self, grads: Sequence[Any]) -> tuple[Any, Any]:
        """See `LossScale.update`."""
        return None, True

    def init(self) -> dict[str, Any]:
        """See `LossScale.init`."""
        return {}

    def of(self, state: Any) -> Any:
        """See `LossScale.of`."""
        return self.now()

    def after(self, state: Any, is_finite: Any) -> dict[str, Any]:
        """See `LossScale.after`."""
        return {}


class DynamicLossScale(LossScale):
    """Loss scale that is as large as the gradients allow.

    After `increment_period` consecutive steps with finite gradients the factor is multiplied by `multiplier`, unless it
    would become infinite. After a step with gradients that are not finite it is divided by `multiplier`, but stays at
    least 1.

    Args:
      initial_loss_scale: the initial factor.
      increment_period: number of consecutive steps with finite gradients before an increase.
      multiplier: factor of an increase or decrease.

    Source: TensorFlow's `tf.train.experimental.DynamicLossScale`; Micikevicius and others 2018.

    Example:
      >>> import headrace as hr
      >>> scale = hr.train.DynamicLossScale(8.0, increment_period=2)
      >>> states = [scale.init()]
      >>> for is_finite in (True, True, False):
      ...     states.append(scale.after(states[-1], hr.constant(is_finite)))
      >>> [float(scale.of(state)) for state in states]
      [8.0, 8.0, 16.0, 8.0]
    """

    def __init__(
        self, initial_loss_scale: float = 2.0**15, increment_period: int = 2000, multiplier: float = 2.0
    ) -> None:
        self.initial_loss_scale = float(initial_loss_scale)
        self.increment_period = int(increment_period)
        self.multiplier = float(multiplier)
        self._made: dict[int, tuple[Graph | None, Any, Any]] = {}

    def now(self, near: Any = None) -> Any:
        """See `LossScale.now`."""
        scale, _ = self._variables(near)
        return scale.value()

    def update(self, grads: Sequence[Any]) -> tuple[Any, Any]:
        """See `LossScale.update`."""
        is_finite = all_finite(grads)
        scale, count = self._variables(is_finite)
        new = self.after({"current_loss_scale": scale.value(), "good_steps": count.value()}, is_finite)
        done = [
            scale.assign(new["current_loss_scale"], read_value=False),
            count.assign(new["good_steps"], read_value=False),
        ]
        return grouping.group(*(op for op in done if not isinstance(op, Variable))), is_finite

    def variables(self) -> list[Any]:
        """See `LossScale.variables`."""
        return [v for _, *both in self._made.values() for v in both]

    def init(self) -> dict[str, Any]:
        """See `LossScale.init`."""
        b = scopes.builder()
        return {
            "current_loss_scale": b.tensor(np.float32(self.initial_loss_scale)),
            "good_steps": b.tensor(np.int64(0)),
        }

    def of(self, state: Any) -> Any:
        """See `LossScale.of`."""
        return state["current_loss_scale"]

    def after(self, state: Any, is_finite: Any) -> dict[str, Any]:
        """See `LossScale.after`."""
        scale, count = state["current_loss_scale"], state["good_steps"] + 1
        larger, smaller = scale * self.multiplier, math.maximum(scale / self.multiplier, 1.0)
        is_time = math.greater_equal(count, np.int64(self.increment_period))
        grown = gathering.where(math.logical_and(is_time, math.is_finite(larger)), larger, scale)
        counts = math.logical_and(is_finite, math.logical_not(is_time))
        return {
            "current_loss_scale": gathering.where(is_finite, grown, smaller),
            "good_steps": gathering.where(counts, count, count * 0),
        }

    def _variables(self, near: Any) -> tuple[Any, Any]:
        """Returns the factor and the count of good steps, as variables of the root graph."""
        b = scopes.builder(near)
        root = None if b.graph is None else root_of(b.graph)
        if id(root) not in self._made:
            with outermost(near):
                scale = self._make_variable(np.float32(self.initial_loss_scale), "current_loss_scale")
                self._made[id(root)] = root, scale, self._make_variable(np.int64(0), "good_steps")
        _, scale, count = self._made[id(root)]
        return scale, count

    def _make_variable(self, first: Any, name: str) -> Any:
        return Variable(lambda: scopes.builder().tensor(first), trainable=False, name=name)


def loss_scale_of(given: Any) -> LossScale:
    """Returns a `LossScale` for a `LossScale`, a number, or "dynamic".

    Raises:
      ValueError: the argument is none of these.
    """
    if isinstance(given, LossScale):
        return given
    if isinstance(given, (int, float)):
        return FixedLossScale(given)
    if given == "dynamic":
        return DynamicLossScale()
    raise ValueError(f"a loss scale is a LossScale, a number or 'dynamic', got {given!r}")


def all_finite(grads: Iterable[Any]) -> Any:
    """Whether all elements of all gradients are finite: a bool scalar."""
    parts = [g.values if isinstance(g, IndexedSlices) else g for g in grads if g is not None]
    if not parts:
        return scopes.builder().tensor(np.True_)
    each = [reductions.reduce_all(math.is_finite(g)) for g in parts]
    return each[0] if len(each) == 1 else reductions.reduce_all(scopes.builder(*each).Pack(each))


class LossScaleOptimizer(Optimizer):
    """Optimizer that computes gradients of a scaled loss.

    `compute_gradients` returns unscaled gradients. With a dynamic scale, `apply_gradients` skips a step if a gradient
    is not finite: the variables and the global step do not change.

    Args:
      opt: the optimizer that applies the gradients.
      loss_scale: a `LossScale`, a number for a fixed scale, or "dynamic".

    Raises:
      ValueError: an argument has another type.

    Source: TensorFlow's `tf.train.experimental.MixedPrecisionLossScaleOptimizer`.

    Example:
      >>> import headrace as hr
      >>> from headrace.train.loss_scaling import DynamicLossScale, LossScaleOptimizer
      >>> w, scale = hr.Variable(1.0), DynamicLossScale(initial_loss_scale=8.0)
      >>> opt = LossScaleOptimizer(hr.train.SGD(0.25), scale)
      >>> opt.minimize(lambda: hr.square(w), var_list=[w])
      >>> opt.apply_gradients([(float("inf"), w)])
      >>> w.numpy(), float(scale.now())
      (np.float32(0.5), 4.0)
    """

    def __init__(self, opt: Optimizer, loss_scale: Any) -> None:
        if not isinstance(opt, Optimizer):
            raise ValueError(f'"opt" must be an instance of Optimizer, but got: {type(opt)}')
        Rule.__init__(self, None)
        self._name = opt.get_name()
        self._optimizer = opt
        self._loss_scale = loss_scale_of(loss_scale)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> Pairs:
        """See `Optimizer.compute_gradients`."""
        with entered(*([] if callable(loss) else [loss])):
            scale = self._loss_scale.now(None if callable(loss) else loss)
            scaled: Any = self._scaled_function(loss, scale) if callable(loss) else _times(loss, scale)
            pairs = self._optimizer.compute_gradients(
                scaled, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss
            )
            return [(_divided(g, scale), v) for g, v in pairs]

    def _scaled_function(self, loss: Callable[[], Any], scale: Any) -> Callable[[], Any]:
        return lambda: _times(loss(), scale)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """See `Optimizer.apply_gradients`."""
        pairs = list(grads_and_vars)
        with entered(*nest.flatten([v for _, v in pairs])):
            done, may = self._loss_scale.update(self._as_tensors(pairs))
            if may is True:
                return self._optimizer.apply_gradients(pairs, global_step, name)

            def apply() -> Any:
                made = self._optimizer.apply_gradients(pairs, global_step, f"{name or self._name}-wrapped")
                with scopes.control_dependencies([] if made is None else [made]):
                    return scopes.builder(may).Identity(np.True_)

            applied = cond(may, apply, lambda: scopes.builder(may).Identity(np.False_))
            return grouping.group(applied, done, name=name or self._name)

    def _as_tensors(self, pairs: Pairs) -> list[Any]:
        return [g if g is None or hasattr(g, "dtype") else scopes.builder(v).tensor(g, v.dtype) for g, v in pairs]

    def get_slot(self, var: Any, name: str) -> Any:
        """See `Optimizer.get_slot`."""
        return self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """See `Optimizer.get_slot_names`."""
        return self._optimizer.get_slot_names()

    def variables(self) -> list[Any]:
        """See `Optimizer.variables`; includes the variables of the loss scale."""
        return self._optimizer.variables() + self._loss_scale.variables()

    # *** as functions of tensors ***

    def scale(self, loss: Any, state: Any) -> Any:
        """Returns the scaled loss, whose gradients `update` expects.

        Args:
          loss: a floating point tensor.
          state: the state that `init` or `update` returned.
        """
        return _times(loss, self._loss_scale.of(state["loss_scale"]))

    def init(self, params: Any) -> dict[str, Any]:
        """See `Optimizer.init`."""
        return {"optimizer": self._optimizer.init(params), "loss_scale": self._loss_scale.init()}

    def update(self, grads: Any, state: Any, params: Any) -> tuple[Any, dict[str, Any]]:
        """See `Optimizer.update`. The gradients are those of the loss that `scale` returned."""
        factor = self._loss_scale.of(state["loss_scale"])
        given = [_divided(g, factor) for g in nest.flatten_up_to(params, grads)]
        after, inner = self._optimizer.update(nest.pack(params, given), state["optimizer"], params)
        if isinstance(self._loss_scale, FixedLossScale):
            return after, {"optimizer": inner, "loss_scale": {}}
        may = all_finite(given)

        def chosen(new: Any, old: Any) -> Any:
            return gathering.where(may, new, old)

        return (
            nest.map_leaves(chosen, after, params),
            {
                "optimizer": nest.map_leaves(chosen, inner, state["optimizer"]),
                "loss_scale": self._loss_scale.after(state["loss_scale"], may),
            },
        )


def _times(loss: Any, scale: Any) -> Any:
    t = scopes.builder(loss, scale).tensor(loss)
    return t * tensors.of_dtype(scale, t.dtype.base)


def _divided(grad: Any, scale: Any) -> Any:
    """Returns the unscaled gradient."""
    if grad is None:
        return None
    factor = tensors.of_dtype(1.0 / scale, grad.dtype.base)
    if isinstance(grad, IndexedSlices):
        return IndexedSlices(grad.values * factor, grad.indices, grad.dense_shape)
    return grad * factor
