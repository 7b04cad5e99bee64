"""Optimizers with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.api import scopes
from headrace.train.optimizers.rule import Hyper
from headrace.v1.graph import in_default_graph
from headrace.v1.optimizers import AdamOptimizer, MomentumOptimizer, Optimizer


class DecoupledWeightDecayExtension(Optimizer):
    """Part of an optimizer that decays the variables: `var -= weight_decay * var`, before each step.

    Args:
      weight_decay: a number, a scalar, or a function that returns one of them.
      **kwargs: arguments of the optimizer.

    Source: TensorFlow's `tf.contrib.opt.DecoupledWeightDecayExtension`; Loshchilov and Hutter, "Decoupled weight decay
    regularization" (2017).
    """

    _decayed: set[int] | None = None  # ids of the handles of the variables that decay; None: all decay

    def __init__(self, weight_decay: Any, **kwargs: Any) -> None:
        self._decay = weight_decay
        super().__init__(**kwargs)

    def minimize(self, loss: Any, *args: Any, decay_var_list: Iterable[Any] | None = None, **kwargs: Any) -> Any:
        """Returns the operation of a step. See `tf.train.Optimizer.minimize`.

        Args:
          loss: the loss.
          *args, **kwargs: further arguments of `tf.train.Optimizer.minimize`.
          decay_var_list: variables that decay; None: all.
        """
        self._choose(decay_var_list)
        return super().minimize(loss, *args, **kwargs)

    @in_default_graph
    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None,
        decay_var_list: Iterable[Any] | None = None,
    ) -> Any:  # fmt: skip
        """Applies gradients to variables. See `tf.train.Optimizer.apply_gradients`.

        Args:
          grads_and_vars, global_step, name: see `tf.train.Optimizer.apply_gradients`.
          decay_var_list: variables that decay; None: all, or those of `minimize`.
        """
        if decay_var_list is not None:
            self._choose(decay_var_list)
        return super().apply_gradients(grads_and_vars, global_step, name)

    def _choose(self, variables: Iterable[Any] | None) -> None:
        self._decayed = None if variables is None else {id(v.handle) for v in variables}

    def _updated(self, grad: Any, v: Any, hyper: Hyper) -> Any:
        if self._decayed is not None and id(v.handle) not in self._decayed:
            return super()._updated(grad, v, hyper)
        rate = self.now(self._decay)
        done = v.assign_sub(v * rate, read_value=False)
        with scopes.control_dependencies([done]):
            return super()._updated(grad, v, hyper)


def extend_with_decoupled_weight_decay(base_optimizer: type) -> type:
    """Returns the class of an optimizer with weight decay; its first argument is `weight_decay`.

    Source: TensorFlow's `tf.contrib.opt.extend_with_decoupled_weight_decay`.

    Example:
      >>> import headrace.v1 as tf
      >>> decaying = tf.contrib.opt.extend_with_decoupled_weight_decay(tf.train.GradientDescentOptimizer)
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     w = tf.get_variable("w", initializer=2.0)
      ...     step = decaying(weight_decay=0.25, learning_rate=1.0).minimize(w)
      ...     sess.run(tf.global_variables_initializer())
      ...     sess.run(step)
      ...     sess.run(w)
      np.float32(0.5)
    """

    class OptimizerWithDecoupledWeightDecay(DecoupledWeightDecayExtension, base_optimizer):  # type: ignore[misc]
        """An optimizer with weight decay; see `extend_with_decoupled_weight_decay`."""

        def __init__(self, weight_decay: Any, *args: Any, **kwargs: Any) -> None:
            self._decay = weight_decay
            super(DecoupledWeightDecayExtension, self).__init__(*args, **kwargs)

    return OptimizerWithDecoupledWeightDecay


class AdamWOptimizer(DecoupledWeightDecayExtension, AdamOptimizer):
    """Adam with weight decay. See `tf.train.AdamOptimizer`.

    Args:
      weight_decay: decay rate: `var -= weight_decay * var` before each step.
      learning_rate, beta1, beta2, epsilon, use_locking, name: see `tf.train.AdamOptimizer`.

    Source: TensorFlow's `tf.contrib.opt.AdamWOptimizer`.
    """

    def __init__(
        self, weight_decay: Any, learning_rate: Any = 0.001, beta1: Any = 0.9, beta2: Any = 0.999,
        epsilon: Any = 1e-8, use_locking: bool = False, name: str = "AdamW",
    ) -> None:  # fmt: skip
        super().__init__(
            weight_decay, learning_rate=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon,
            use_locking=use_locking, name=name,
        )  # fmt: skip


class MomentumWOptimizer(DecoupledWeightDecayExtension, MomentumOptimizer):
    """Momentum with weight decay. See `tf.train.MomentumOptimizer`.

    Args:
      weight_decay: decay rate: `var -= weight_decay * var` before each step.
      learning_rate, momentum, use_locking, name, use_nesterov: see `tf.train.MomentumOptimizer`.

    Source: TensorFlow's `tf.contrib.opt.MomentumWOptimizer`.
    """

    def __init__(
        self, weight_decay: Any, learning_rate: Any, momentum: Any, use_locking: bool = False,
        name: str = "MomentumW", use_nesterov: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            weight_decay, learning_rate=learning_rate, momentum=momentum, use_locking=use_locking, name=name,
            use_nesterov=use_nesterov,
        )  # fmt: skip
