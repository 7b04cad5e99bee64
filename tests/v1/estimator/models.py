"""A small model for tests of estimators: a line through points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import headrace.v1 as tf

X = np.float32([[-1.0], [0.0], [1.0], [2.0]])
Y = 3.0 * X + 1.0


def line(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """A `model_fn`: predicts w x + b."""
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [], initializer=tf.zeros_initializer())
    y = features["x"] * w + b
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"y": y, "twice": 2.0 * y})
    loss = tf.losses.mean_squared_error(labels, y)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"mean": tf.metrics.mean(y)})
    step = tf.train.GradientDescentOptimizer(params["rate"]).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)


def points(epochs: int | None = None, batch: int = 4) -> Callable[[], Any]:
    """An `input_fn` of a dataset."""

    def input_fn() -> Any:
        return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).repeat(epochs).batch(batch)

    return input_fn


def estimator(folder: Any, **config: Any) -> Any:
    """An estimator of the line."""
    return tf.estimator.Estimator(line, str(folder), tf.estimator.RunConfig(**config), params={"rate": 0.1})
