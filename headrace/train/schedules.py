"""Schedules: learning rates that depend on the step.

A schedule is a function of the number of training steps. An optimizer that receives it as its learning rate counts the
steps. A program may also call it with a step (a number, a tensor, a variable), in a graph or eagerly.

The computation is in the dtype of the initial rate, which is float32 for Python's numbers.
"""

from __future__ import annotations

import math as python_math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace.api import gathering, math, random, scopes
from headrace.ir.builder import Builder
from headrace.train.constructed import Constructed


class Schedule(Constructed):
    """Base class of learning rates that depend on the step. Subclasses define `rate`.

    Args:
      learning_rate: initial learning rate: a floating point number, a scalar tensor or a variable.
      name: name of the scope of the operations. None: the name of the class.

    Attributes:
      learning_rate: initial learning rate.
      name: name of the scope, or None.

    Source: TensorFlow's `tf.keras.optimizers.schedules.LearningRateSchedule`.

    Example:
      >>> import headrace as hr
      >>> class Halving(hr.train.Schedule):
      ...     def rate(self, first, step, like):
      ...         return first / like(2) ** step
      >>> Halving(8.0)(3).numpy()
      np.float32(1.0)
    """

    def __init__(self, learning_rate: Any, name: str | None = None) -> None:
        self.learning_rate = learning_rate
        self.name = name

    def __call__(self, step: Any) -> Any:
        """Returns the learning rate after `step` steps, a scalar tensor.

        Args:
          step: a number, a scalar tensor or a variable.
        """
        b = scopes.builder(step, self.learning_rate)
        if not isinstance(b, Builder):
            return self._at(step)
        with scopes.entered(b), scopes.name_scope(self.name, type(self).__name__):
            return self._at(step)

    def _at(self, step: Any) -> Any:
        b = scopes.builder()
        first = b.tensor(self.learning_rate)
        dtype = first.dtype.base
        if not dtype.is_floating:
            raise TypeError(f"the learning rate must be a floating point number, got one of dtype {dtype.name}")

        def like(x: Any) -> Any:
            if isinstance(x, (int, float, np.generic)):
                return np.asarray(x, dtype.numpy)[()]
            t = b.tensor(x)
            return t if t.dtype.base is dtype else math.cast(t, dtype)

        return self.rate(first, b.tensor(like(step)), like)

    def rate(self, first: Any, step: Any, like: Callable[[Any], Any]) -> Any:
        """Computes the learning rate.

        Args:
          first: initial learning rate, a scalar tensor.
          step: number of steps so far, a scalar tensor of the dtype of `first`.
          like: function that casts numbers, tensors and variables to this dtype.
        """
        raise NotImplementedError


class ExponentialDecay(Schedule):
    """Exponential decay: `learning_rate * decay_rate ** (step / decay_steps)`.

    Args:
      learning_rate: initial learning rate.
      decay_steps: number of steps in which the rate is multiplied by `decay_rate` once.
      decay_rate: the factor.
      staircase: whether `step / decay_steps` is rounded down to an integer.
      name: see `Schedule`.

    Source: TensorFlow's `tf.keras.optimizers.schedules.ExponentialDecay`.

    Example:
      >>> from headrace.train import schedules
      >>> float(schedules.ExponentialDecay(0.5, 10, 0.25)(5))
      0.25
    """

    def __init__(
        self, learning_rate: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False, name: str | None = None
    ) -> None:
        super().__init__(learning_rate, name)
        self.decay_steps, self.decay_rate, self.staircase = decay_steps, decay_rate, staircase

    def rate(self, first: Any, step: Any, like: Callable[[Any], Any]) -> Any:
        """See `Schedule.rate`."""
        return first * math.pow(self.base(like), _part(step, like(self.decay_steps), self.staircase))

    def base(self, like: Callable[[Any], Any]) -> Any:
        """Returns the factor of `decay_steps` steps.

        Args:
          like: see `Schedule.rate`.
        """
        return like(self.decay_rate)


class NaturalExponentialDecay(ExponentialDecay):
    """Natural exponential decay: `learning_rate * exp(-decay_rate * step / decay_steps)`.

    The parameters are those of `ExponentialDecay`.

    Source: TensorFlow's `tf.train.natural_exp_decay`.

    Example:
      >>> from headrace.train import schedules
      >>> round(float(schedules.NaturalExponentialDecay(1.0, 1, 2.0)(0.5)), 4)
      0.3679
    """

    def base(self, like: Callable[[Any], Any]) -> Any:
        """See `ExponentialDecay.base`."""
        return math.exp(-like(self.decay_rate))


class InverseTimeDecay(Schedule):
    """Inverse time decay: `learning_rate / (1 + decay_rate * step / decay_steps)`.

    Args:
      learning_rate, decay_steps, name: see `ExponentialDecay`.
      decay_rate: growth of the divisor in `decay_steps` steps.
      staircase: whether `step / decay_steps` is rounded down to an integer.

    Source: TensorFlow's `tf.keras.optimizers.schedules.InverseTimeDecay`.

    Example:
      >>> from headrace.train import schedules
      >>> float(schedules.InverseTimeDecay(1.0, 10, 3.0)(10))
      0.25
    """

    def __init__(
        self, learning_rate: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False, name: str | None = None
    ) -> None:
        super().__init__(learning_rate, name)
        self.decay_steps, self.decay_rate, self.staircase = decay_steps, decay_rate, staircase

    def rate(self, first: Any, step: Any, like: Callable[[Any], Any]) -> Any:
        """See `Schedule.rate`."""
        return first / (1 + like(self.decay_rate) * _part(step, like(self.decay_steps), self.staircase))


class PolynomialDecay(Schedule):
    """Polynomial decay from `learning_rate` to `end_learning_rate` in `decay_steps` steps.

    `(learning_rate - end_learning_rate) * (1 - step / decay_steps) ** power + end_learning_rate`, where `step` is at
    most `decay_steps`.

    Args:
      learning_rate: initial learning rate.
      decay_steps: number of steps of the decay.
      end_learning_rate: final learning rate.
      power: exponent; 1 for linear decay.
      cycle: whether, in place of limiting `step`, `decay_steps` is replaced by its smallest multiple that is not less
        than `step`. The rate then rises again after each period.
      name: see `Schedule`.

    Source: TensorFlow's `tf.keras.optimizers.schedules.PolynomialDecay`.

    Example:
      >>> from headrace.train import schedules
      >>> rate = schedules.PolynomialDecay(1.0, 100, end_learning_rate=0.5)
      >>> float(rate(50)), float(rate(1000))
      (0.75, 0.5)
    """

    def __init__(
        self,
        learning_rate: Any,
        decay_steps: Any,
        end_learning_rate: Any = 0.0001,
        power: Any = 1.0,
        cycle: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, name)
        self.decay_steps, self.end_learning_rate, self.power, self.cycle = decay_steps, end_learning_rate, power, cycle

    def rate(self, first: Any, step: Any, like: Callable[[Any], Any]) -> Any:
        """See `Schedule.rate`."""
        steps, end = like(self.decay_steps), like(self.end_learning_rate)
        if self.cycle:
            steps = steps * gathering.where(math.equal(step, 0), like(1.0), math.ceil(step / steps))
        else:
            step = math.minimum(step, steps)
        return (first - end) * math.pow(1 - step / steps, like(self.power)) + end


class PiecewiseConstantDecay(Schedule):
    """Piecewise constant learning rate.

    Args:
      boundaries: steps after which the next rate applies, in increasing order; not empty.
      values: the rates, one more than boundaries.
      name: see `Schedule`.

    Raises:
      ValueError: the numbers of boundaries and values do not match.

    Source: TensorFlow's `tf.keras.optimizers.schedules.PiecewiseConstantDecay`.

    Example:
      >>> from headrace.train import schedules
      >>> rate = schedules.PiecewiseConstantDecay([100, 200], [1.0, 0.5, 0.25])
      >>> [float(rate(n)) for n in (0, 100, 101, 201)]
      [1.0, 1.0, 0.5, 0.25]
    """

    def __init__(self, boundaries: Sequence[Any], values: Sequence[Any], name: str | None = None) -> None:
        self.boundaries, self.values = list(boundaries), list(values)
        if not self.boundaries or len(self.boundaries) != len(self.values) - 1:
            raise ValueError(
                "The length of boundaries should be 1 less than the length of values: got "
                f"{len(self.boundaries)} boundaries and {len(self.values)} values"
            )
        super().__init__(self.values[0], name)

    def __call__(self, step: Any) -> Any:
        """See `Schedule.__call__`. Steps are compared in their own dtype."""
        b = scopes.builder(step, *self.values)
        if not isinstance(b, Builder):
            return self._chosen(step)
        with scopes.entered(b), scopes.name_scope(self.name, type(self).__name__):
            return self._chosen(step)

    def _chosen(self, step: Any) -> Any:
        b = scopes.builder()
        x = b.tensor(step)
        chosen = b.tensor(self.values[0])
        for boundary, value in zip(self.boundaries, self.values[1:], strict=True):
            at = b.tensor(boundary)
            at = at if at.dtype.base is x.dtype.base else math.cast(at, x.dtype.base)
            chosen = gathering.where(math.greater(x, at), b.tensor(value, chosen.dtype.base), chosen)
        return chosen


class CosineDecay(Schedule):
    """Cosine decay from `learning_rate` to `alpha * learning_rate` in `decay_steps` steps.

    Args:
      learning_rate: initial learning rate.
      decay_steps: number of steps of the decay.
      alpha: final learning rate, as a fraction of the initial one.
      name: see `Schedule`.

    Source: TensorFlow's `tf.keras.optimizers.schedules.CosineDecay`; Loshchilov and Hutter 2016.

    Example:
      >>> from headrace.train import schedules
      >>> round(float(schedules.CosineDecay(1.0, 100)(50)), 6)
      0.5
    """

    def __init__(self, learning_rate: Any, decay_steps: Any, alpha: Any = 0.0, name: str | None = None) -> None:
        super().__init__(learning_rate, name)
        self.decay_steps, self.alpha = decay_steps, alpha

    def rate(self, first: Any, step: Any, like: Callable[[Any], Any]) -> Any:
        """See `Schedule.rate`."""
        steps, alpha = like(self.decay_steps), like(self.alpha)
        wave = _wave(math.minimum(step, steps) / steps, like)
        return first * ((1 - alpha) * wave + alpha)


class CosineDecayRestarts(Schedule):
    """Cosine decay with warm restarts: the decay is repeated.

    Args:
      learning_rate: initial learning rate.
      first_decay_steps: number of steps of the first period.
      t_mul: factor between the lengths of successive periods, at least 1.
      m_mul: factor between the initial rates of successive periods.
      alpha: final learning rate of each period, as a fraction of `learning_rate`.
      name: see `Schedule`.

    Source: TensorFlow's `tf.keras.optimizers.schedules.CosineDecayRestarts`; Loshchilov and Hutter 2016.

    Example:
      >>> from headrace.train import schedules
      >>> rate = schedules.CosineDecayRestarts(1.0, 100)
      >>> round(float(rate(99)), 2), float(rate(100))
      (0.0, 1.0)
    """

    def __init__(
        self,
        learning_rate: Any,
        first_decay_steps: Any,
        t_mul: Any = 2.0,
        m_mul: Any = 1.0,
        alpha: Any = 0.0,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, name)
        self.first_decay_steps, self.t_mul, self.m_mul, self.alpha = first_decay_steps, t_mul, m_mul, alpha

    def rate(self, first: Any, step: Any, like: Callable[[Any], Any]) -> Any:
        """See `Schedule.rate`."""
        alpha, t_mul, m_mul = like(self.alpha), like(self.t_mul), like(self.m_mul)
        waves = step / like(self.first_decay_steps)
        # both formulas are computed: for t_mul = 1 the second is NaN, and `where` selects the first
        even = math.floor(waves)
        turn = math.floor(math.log(1 - waves * (1 - t_mul)) / math.log(t_mul))
        longer = math.pow(t_mul, turn)
        is_even = math.equal(t_mul, 1)
        turn, done = (
            gathering.where(is_even, even, turn),
            gathering.where(is_even, waves - even, (waves - math.divide_no_nan(1 - longer, 1 - t_mul)) / longer),
        )
        return first * ((1 - alpha) * (math.pow(m_mul, turn) * _wave(done, like)) + alpha)


class LinearCosineDecay(Schedule):
    """Linear cosine decay: a cosine wave whose amplitude decreases linearly.

    `learning_rate * ((alpha + linear) * cosine + beta)`, where `linear` decreases from 1 to 0 in `decay_steps` steps
    and `cosine = 0.5 * (1 + cos(2 * pi * num_periods * step / decay_steps))`.

    Args:
      learning_rate: initial learning rate.
      decay_steps: number of steps of the decay.
      num_periods: number of periods of the cosine.
      alpha: see above.
      beta: see above.
      name: see `Schedule`.

    Source: TensorFlow's `tf.train.linear_cosine_decay`; Bello and others 2017.

    Example:
      >>> from headrace.train import schedules
      >>> float(schedules.LinearCosineDecay(1.0, 100, beta=0.5)(100))
      0.5
    """

    def __init__(
        self,
        learning_rate: Any,
        decay_steps: Any,
        num_periods: Any = 0.5,
        alpha: Any = 0.0,
        beta: Any = 0.001,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, name)
        self.decay_steps, self.num_periods, self.alpha, self.beta = decay_steps, num_periods, alpha, beta

    def rate(self, first: Any, step: Any, like: Callable[[Any], Any]) -> Any:
        """See `Schedule.rate`."""
        steps = like(self.decay_steps)
        step = math.minimum(step, steps)
        height = like(self.alpha) + self.line(step, steps, like)
        wave = _wave(2 * like(self.num_periods) * (step / steps), like)
        return first * (height * wave + like(self.beta))

    def line(self, step: Any, steps: Any, like: Callable[[Any], Any]) -> Any:
        """Returns the linear factor, which decreases from 1 to 0 in `steps` steps.

        Args:
          step: number of steps so far.
          steps: number of steps of the decay.
          like: see `Schedule.rate`.
        """
        return (steps - step) / steps


class NoisyLinearCosineDecay(LinearCosineDecay):
    """Linear cosine decay with decreasing noise, which is added to the linear factor.

    Args:
      learning_rate, decay_steps, num_periods, alpha, beta, name: see `LinearCosineDecay`.
      initial_variance: initial variance of the noise. After `step` steps it is divided by `(1 + step) **
        variance_decay`.
      variance_decay: exponent of the decay of the variance.
      seed: seed of the noise.

    Source: TensorFlow's `tf.train.noisy_linear_cosine_decay`; Bello and others 2017.

    Example:
      >>> from headrace.train import schedules
      >>> rate = schedules.NoisyLinearCosineDecay(1.0, 100, initial_variance=0.0, beta=0.0)
      >>> float(rate(0))
      1.0
    """

    def __init__(
        self,
        learning_rate: Any,
        decay_steps: Any,
        initial_variance: Any = 1.0,
        variance_decay: Any = 0.55,
        num_periods: Any = 0.5,
        alpha: Any = 0.0,
        beta: Any = 0.001,
        name: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(learning_rate, decay_steps, num_periods, alpha, beta, name)
        self.initial_variance, self.variance_decay, self.seed = initial_variance, variance_decay, seed

    def line(self, step: Any, steps: Any, like: Callable[[Any], Any]) -> Any:
        """See `LinearCosineDecay.line`. Noise is added."""
        deviation = math.sqrt(like(self.initial_variance) / math.pow(1 + step, like(self.variance_decay)))
        noise = random.normal((), dtype=step.dtype.base, seed=self.seed)
        return super().line(step, steps, like) + noise * deviation


def _part(step: Any, steps: Any, whole: bool) -> Any:
    """Returns the number of periods of `steps` steps, rounded down if `whole`."""
    part = step / steps
    return math.floor(part) if whole else part


def _wave(done: Any, like: Callable[[Any], Any]) -> Any:
    """Returns half a cosine wave, which falls from 1 to 0."""
    return 0.5 * (1 + math.cos(like(python_math.pi) * done))
