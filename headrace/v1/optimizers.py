"""TensorFlow 1's optimizers: `tf.train.AdamOptimizer` and others.

They are those of `headrace.train`, with TensorFlow's arguments, names of variables ("w/Adam", "beta1_power") and
collections. Hyperparameters are float32 first, for every dtype of the variables, as in TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from headrace.api import scopes
from headrace.ir.graph import Graph
from headrace.train.optimizers import adagrad, adam, base, descent, ftrl, rmsprop
from headrace.v1.graph import GraphKeys, get_collection, get_default_graph, in_default_graph
from headrace.v1.slots import make_slot
from headrace.v1.variables import Variable


class Optimizer(base.Optimizer):
    """Base class of TensorFlow 1's optimizers. See `headrace.train.Optimizer`.

    New optimizers are written as subclasses of `headrace.train.Optimizer` (see `headrace docs how-to/optimizers`).
    TensorFlow's methods `_apply_dense` and others are not called.

    Args:
      use_locking: accepted as in TensorFlow, without effect: updates are atomic.
      name: name of the operations.
      use_own_namescope_for_non_slot_vars: whether variables that belong to no single variable, such as "beta1_power",
        are created in a name scope of the optimizer: "Adam/beta1_power".

    Source: TensorFlow's `tf.train.Optimizer`.
    """

    _has_own_scope = False  # see `use_own_namescope_for_non_slot_vars`

    def __init__(self, use_locking: Any, name: str, use_own_namescope_for_non_slot_vars: bool = False) -> None:
        super().__init__(0.0, name)
        self._has_own_scope = use_own_namescope_for_non_slot_vars

    minimize = in_default_graph(base.Optimizer.minimize)
    compute_gradients = in_default_graph(base.Optimizer.compute_gradients)
    variables = in_default_graph(base.Optimizer.variables)
    counter_variables = in_default_graph(base.Optimizer.counter_variables)

    @in_default_graph
    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Applies gradients to variables. See `headrace.train.Optimizer.apply_gradients`.

        The operation is added to GraphKeys.TRAIN_OP, unless it is created in a branch or a loop body.
        """
        return kept(super().apply_gradients(grads_and_vars, global_step, name))

    def rounded(self, x: Any) -> Any:
        """See `headrace.train.optimizers.rule.Rule.rounded`. Numbers of Python become float32."""
        return np.float32(x) if isinstance(x, (int, float)) and not isinstance(x, np.generic) else x

    def _trainable(self, graph: Graph) -> list[Any]:
        return get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def _make_all(self, variables: Sequence[Any]) -> None:
        if not self._has_own_scope:
            super()._make_all(variables)
            return
        with scopes.name_scope(None), scopes.name_scope(self.get_name()) as scope:
            self._scope = scope
        super()._make_all(variables)

    def _make_counter(self, beside: Any, name: str, value: Any, wide: bool) -> Any:
        if not self._has_own_scope:
            return super()._make_counter(beside, name, value, False)
        with scopes.name_scope(self._scope):
            return super()._make_counter(beside, name, value, False)

    def _make_variable(self, initial: Any, name: str) -> Any:
        return Variable(initial, trainable=False, name=name)

    def _make_beside(self, v: Any, initial: Any, name: str) -> Any:
        return make_slot(v, initial, name)


def kept(train_op: Any) -> Any:
    """Adds `train_op` to GraphKeys.TRAIN_OP of the default graph, and returns it.

    An operation of another graph is not added.
    """
    graph = get_default_graph()
    if (
        train_op is not None
        and train_op.graph is graph
        and train_op not in graph.get_collection_ref(GraphKeys.TRAIN_OP)
    ):
        graph.add_to_collection(GraphKeys.TRAIN_OP, train_op)
    return train_op


class GradientDescentOptimizer(Optimizer, descent.SGD):
    """Gradient descent. See `headrace.train.SGD`.

    Args:
      learning_rate: a number, a scalar tensor, or a function without arguments that returns one of them.
      use_locking: accepted as in TensorFlow, without effect: updates are atomic.
      name: name of the operations.

    Source: TensorFlow's `tf.train.GradientDescentOptimizer`.

    Example:
      >>> import headrace.v1 as tf
      >>> from headrace.v1.optimizers import GradientDescentOptimizer
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     w = tf.Variable(1.0)
      ...     step = GradientDescentOptimizer(0.25).minimize(tf.square(w))
      ...     sess.run(tf.global_variables_initializer())
      ...     sess.run(step)
      ...     sess.run(w)
      np.float32(0.5)
    """

    def __init__(self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent") -> None:
        descent.SGD.__init__(self, learning_rate, name)


class MomentumOptimizer(Optimizer, descent.Momentum):
    """Gradient descent with momentum. See `headrace.train.Momentum`.

    Args:
      learning_rate, use_locking, name: see `GradientDescentOptimizer`.
      momentum: decay rate of the sum of gradients.
      use_nesterov: whether to use Nesterov momentum.

    Source: TensorFlow's `tf.train.MomentumOptimizer`.
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        descent.Momentum.__init__(self, learning_rate, momentum, use_nesterov, name)


class AdagradOptimizer(Optimizer, adagrad.Adagrad):
    """Adagrad. See `headrace.train.Adagrad`.

    Args:
      learning_rate, use_locking, name: see `GradientDescentOptimizer`.
      initial_accumulator_value: initial value of the sums of squares, positive.

    Source: TensorFlow's `tf.train.AdagradOptimizer`.
    """

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        adagrad.Adagrad.__init__(self, learning_rate, initial_accumulator_value, name)


class AdagradDAOptimizer(Optimizer, adagrad.AdagradDA):
    """Adagrad by dual averaging. See `headrace.train.AdagradDA`.

    Args:
      learning_rate, use_locking, name: see `GradientDescentOptimizer`.
      global_step: number of steps so far, an int64 tensor or variable.
      initial_gradient_squared_accumulator_value: initial value of the sums of squares, positive.
      l1_regularization_strength, l2_regularization_strength: strengths of the penalties, not negative.

    Source: TensorFlow's `tf.train.AdagradDAOptimizer`.
    """

    def __init__(
        self,
        learning_rate: Any,
        global_step: Any,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "AdagradDA",
    ) -> None:
        adagrad.AdagradDA.__init__(
            self,
            learning_rate,
            global_step,
            initial_gradient_squared_accumulator_value,
            l1_regularization_strength,
            l2_regularization_strength,
            name,
        )


class AdadeltaOptimizer(Optimizer, adagrad.Adadelta):
    """Adadelta. See `headrace.train.Adadelta`.

    Args:
      learning_rate, use_locking, name: see `GradientDescentOptimizer`.
      rho: decay rate of the running averages.
      epsilon: number added to the averages before their roots are taken.

    Source: TensorFlow's `tf.train.AdadeltaOptimizer`.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: Any = 0.95,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        adagrad.Adadelta.__init__(self, learning_rate, rho, epsilon, name)


class ProximalGradientDescentOptimizer(Optimizer, descent.ProximalGradientDescent):
    """Proximal gradient descent. See `headrace.train.ProximalGradientDescent`.

    Args:
      learning_rate, use_locking, name: see `GradientDescentOptimizer`.
      l1_regularization_strength, l2_regularization_strength: strengths of the penalties, not negative.

    Source: TensorFlow's `tf.train.ProximalGradientDescentOptimizer`.
    """

    def __init__(
        self,
        learning_rate: Any,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ) -> None:
        descent.ProximalGradientDescent.__init__(
            self, learning_rate, l1_regularization_strength, l2_regularization_strength, name
        )


class ProximalAdagradOptimizer(Optimizer, adagrad.ProximalAdagrad):
    """Adagrad with proximal steps. See `headrace.train.ProximalAdagrad`.

    Args:
      learning_rate, use_locking, name: see `GradientDescentOptimizer`.
      initial_accumulator_value: initial value of the sums of squares, positive.
      l1_regularization_strength, l2_regularization_strength: strengths of the penalties, not negative.

    Source: TensorFlow's `tf.train.ProximalAdagradOptimizer`.
    """

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "ProximalAdagrad",
    ) -> None:
        adagrad.ProximalAdagrad.__init__(
            self, learning_rate, initial_accumulator_value, l1_regularization_strength, l2_regularization_strength, name
        )


class AdamOptimizer(Optimizer, adam.Adam):
    """Adam. See `headrace.train.Adam`.

    Args:
      learning_rate, use_locking, name: see `GradientDescentOptimizer`.
      beta1, beta2: decay rates of the averages of gradients and of squared gradients.
      epsilon: number added to the root.
      use_own_namescope_for_non_slot_vars: see `Optimizer`.

    Source: TensorFlow's `tf.train.AdamOptimizer`.

    Example:
      >>> import headrace.v1 as tf
      >>> from headrace.v1.optimizers import AdamOptimizer
      >>> with tf.Graph().as_default():
      ...     w = tf.get_variable("w", [2])
      ...     step = AdamOptimizer().minimize(tf.reduce_sum(w))
      ...     [v.op.name for v in tf.global_variables()]
      ['w', 'beta1_power', 'beta2_power', 'w/Adam', 'w/Adam_1']
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
        use_own_namescope_for_non_slot_vars: bool = False,
    ) -> None:
        adam.Adam.__init__(self, learning_rate, beta1, beta2, epsilon, name)
        self._has_own_scope = use_own_namescope_for_non_slot_vars


class RMSPropOptimizer(Optimizer, rmsprop.RMSProp):
    """RMSProp. See `headrace.train.RMSProp`.

    Args:
      learning_rate, use_locking, name: see `GradientDescentOptimizer`.
      decay: decay rate of the average of squared gradients.
      momentum: decay rate of the sum of steps.
      epsilon: number added to the average before its root is taken.
      centered: whether the squared average of gradients is subtracted from the average.

    Source: TensorFlow's `tf.train.RMSPropOptimizer`.
    """

    def __init__(
        self,
        learning_rate: Any,
        decay: Any = 0.9,
        momentum: Any = 0.0,
        epsilon: Any = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        rmsprop.RMSProp.__init__(self, learning_rate, decay, momentum, epsilon, centered, name)


class FtrlOptimizer(Optimizer, ftrl.Ftrl):
    """FTRL-Proximal. See `headrace.train.Ftrl`.

    Args:
      learning_rate, use_locking, name: see `GradientDescentOptimizer`.
      learning_rate_power, initial_accumulator_value, l1_regularization_strength, l2_regularization_strength,
        accum_name, linear_name, l2_shrinkage_regularization_strength, beta: see `headrace.train.Ftrl`.

    Source: TensorFlow's `tf.train.FtrlOptimizer`.
    """

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float | None = None,
    ) -> None:
        ftrl.Ftrl.__init__(
            self,
            learning_rate,
            learning_rate_power,
            initial_accumulator_value,
            l1_regularization_strength,
            l2_regularization_strength,
            name,
            accum_name,
            linear_name,
            l2_shrinkage_regularization_strength,
            beta,
        )


__all__ = [
    "AdadeltaOptimizer",
    "AdagradDAOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "RMSPropOptimizer",
]
