"""TensorFlow 1's learning rate schedules: `tf.train.exponential_decay` and others.

Each function returns the rate of a schedule of `headrace.train` as a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace import dtypes
from headrace.api import scopes
from headrace.train import schedules
from headrace.v1.graph import in_default_graph


@in_default_graph
def exponential_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Any:
    """`learning_rate * decay_rate ** (global_step / decay_steps)`. See `headrace.train.ExponentialDecay`.

    Args:
      learning_rate, decay_steps, decay_rate, staircase, name: as there.
      global_step: a number, a tensor or a variable.

    Returns:
      A scalar tensor.

    Source: TensorFlow's `tf.train.exponential_decay`.

    Example:
      >>> import headrace.v1 as tf
      >>> from headrace.v1.learning_rates import exponential_decay
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     step = tf.placeholder(tf.int64, ())
      ...     sess.run(exponential_decay(0.5, step, 10, 0.25), {step: 5})
      np.float32(0.25)
    """
    return schedules.ExponentialDecay(learning_rate, decay_steps, decay_rate, staircase, name)(global_step)


@in_default_graph
def natural_exp_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Any:
    """`learning_rate * exp(-decay_rate * global_step / decay_steps)`. See `exponential_decay`.

    Source: TensorFlow's `tf.train.natural_exp_decay`.
    """
    return schedules.NaturalExponentialDecay(learning_rate, decay_steps, decay_rate, staircase, name)(global_step)


@in_default_graph
def inverse_time_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Any:
    """`learning_rate / (1 + decay_rate * global_step / decay_steps)`. See `exponential_decay`.

    Source: TensorFlow's `tf.train.inverse_time_decay`.
    """
    return schedules.InverseTimeDecay(learning_rate, decay_steps, decay_rate, staircase, name)(global_step)


@in_default_graph
def polynomial_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    end_learning_rate: Any = 0.0001,
    power: Any = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> Any:
    """From `learning_rate` to `end_learning_rate` in `decay_steps` steps. See `headrace.train.PolynomialDecay`.

    Source: TensorFlow's `tf.train.polynomial_decay`.
    """
    decay = schedules.PolynomialDecay(learning_rate, decay_steps, end_learning_rate, power, cycle, name)
    return decay(global_step)


@in_default_graph
def piecewise_constant(x: Any, boundaries: Sequence[Any], values: Sequence[Any], name: str | None = None) -> Any:
    """A value for each stretch of `x`. See `headrace.train.PiecewiseConstantDecay`.

    Args:
      x: a scalar: a number, a tensor or a variable.
      boundaries: in increasing order, of the dtype of `x`.
      values: one more than boundaries, of one dtype.
      name: of the scope.

    Raises:
      ValueError: there are not as many of both, or they are of other dtypes.

    Source: TensorFlow's `tf.train.piecewise_constant`.

    Example:
      >>> import headrace.v1 as tf
      >>> from headrace.v1.learning_rates import piecewise_constant
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     sess.run(piecewise_constant(150, [100, 200], [1.0, 0.5, 0.25]))
      np.float32(0.5)
    """
    b = scopes.builder()
    t = b.tensor(x)
    for boundary in map(b.tensor, boundaries):
        both = boundary.dtype.base, t.dtype.base
        if both[0] is not both[1] and both != (dtypes.int32, dtypes.int64):
            raise ValueError(f"Boundaries ({both[0].name}) must have the same dtype as x ({both[1].name}).")
    kinds = [b.tensor(v).dtype.base for v in values]
    if any(kind is not kinds[0] for kind in kinds):
        raise ValueError(f"Values must have elements all with the same dtype ({[k.name for k in kinds]}).")
    return schedules.PiecewiseConstantDecay(boundaries, values, name)(t)


@in_default_graph
def cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, alpha: Any = 0.0, name: str | None = None
) -> Any:
    """Down along half a cosine wave in `decay_steps` steps. See `headrace.train.CosineDecay`.

    Source: TensorFlow's `tf.train.cosine_decay`.
    """
    return schedules.CosineDecay(learning_rate, decay_steps, alpha, name)(global_step)


@in_default_graph
def cosine_decay_restarts(
    learning_rate: Any,
    global_step: Any,
    first_decay_steps: Any,
    t_mul: Any = 2.0,
    m_mul: Any = 1.0,
    alpha: Any = 0.0,
    name: str | None = None,
) -> Any:
    """`cosine_decay` with restarts. See `headrace.train.CosineDecayRestarts`.

    Source: TensorFlow's `tf.train.cosine_decay_restarts`.
    """
    decay = schedules.CosineDecayRestarts(learning_rate, first_decay_steps, t_mul, m_mul, alpha, name)
    return decay(global_step)


@in_default_graph
def linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Any:
    """A cosine wave that becomes smaller in a straight line. See `headrace.train.LinearCosineDecay`.

    Source: TensorFlow's `tf.train.linear_cosine_decay`.
    """
    return schedules.LinearCosineDecay(learning_rate, decay_steps, num_periods, alpha, beta, name)(global_step)


@in_default_graph
def noisy_linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    initial_variance: Any = 1.0,
    variance_decay: Any = 0.55,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Any:
    """`linear_cosine_decay` with noise, which becomes less. See `headrace.train.NoisyLinearCosineDecay`.

    Source: TensorFlow's `tf.train.noisy_linear_cosine_decay`.
    """
    decay = schedules.NoisyLinearCosineDecay(
        learning_rate, decay_steps, initial_variance, variance_decay, num_periods, alpha, beta, name
    )
    return decay(global_step)


piecewise_constant_decay = piecewise_constant

__all__ = [
    "cosine_decay",
    "cosine_decay_restarts",
    "exponential_decay",
    "inverse_time_decay",
    "linear_cosine_decay",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "piecewise_constant_decay",
    "polynomial_decay",
]
