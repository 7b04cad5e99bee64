"""TensorFlow 1's `tf.train.ExponentialMovingAverage`."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.api.variable import Variable
from headrace.train import averages
from headrace.v1.graph import GraphKeys, get_collection, get_default_graph, in_default_graph
from headrace.v1.slots import make_slot
from headrace.v1.variable_scopes import variable_scope
from headrace.v1.variable_store import get_variable
from headrace.v1.variables import global_variables


class ExponentialMovingAverage(averages.ExponentialMovingAverage):
    """Averages that forget by `decay` at each step. See `headrace.train.ExponentialMovingAverage`.

    The variables go into GraphKeys.MOVING_AVERAGE_VARIABLES.

    Args:
      decay, num_updates, zero_debias, name: as there.

    Source: TensorFlow's `tf.train.ExponentialMovingAverage`.

    Example:
      >>> import headrace.v1 as tf
      >>> from headrace.v1.averages import ExponentialMovingAverage
      >>> with tf.Graph().as_default():
      ...     w = tf.get_variable("w", [2])
      ...     ema = ExponentialMovingAverage(0.99)
      ...     update = ema.apply([w])
      ...     ema.average_name(w), list(ema.variables_to_restore())
      ('w/ExponentialMovingAverage', ['w/ExponentialMovingAverage'])
    """

    apply = in_default_graph(averages.ExponentialMovingAverage.apply)
    average_name = in_default_graph(averages.ExponentialMovingAverage.average_name)

    def _complement(self, dtype: Any) -> Any:
        return dtype.numpy.type(np.float32(1) - np.float32(self._decay))

    def _make(self, x: Any) -> Any:
        made = super()._make(x)
        if isinstance(x, Variable):
            get_default_graph().add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, x)
        return made

    def _make_beside(self, primary: Any, initial: Any, name: str) -> Any:
        return make_slot(primary, initial, name)

    def _make_named(self, primary: Any, initial: Any, scope: str, name: str) -> Any:
        with variable_scope(scope):
            return get_variable(
                name, shape=primary.shape, dtype=primary.dtype, initializer=lambda *_, **__: initial(), trainable=False
            )

    def _trainable(self) -> list[Any]:
        return get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def _averaged(self) -> list[Any]:
        return [*self._trainable(), *get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES)]

    def _all(self) -> list[Any]:
        return list(global_variables())
