"""Learning to learn by gradient descent: `python -m examples.applications.learned_optimizer`.

A recurrent network, a GRU per parameter with shared weights, is the update rule of an optimizer. It gets the gradient
of a parameter and gives its change. It is trained on random least-squares problems: a `while_loop` takes 20 steps with
the rule, the loss is the mean of the losses on the way, and its gradient goes back through the loop. The body of the
loop contains `tf.gradients`, so the gradient of the loop is of second order.

The rule is compared with gradient descent, momentum and Adam on new problems, each with the best of eleven rates for
these problems. Source: Andrychowicz et al., "Learning to learn by gradient descent by gradient descent", 2016.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import headrace.v1
from examples.applications import records
from examples.applications.records import Record

SIZE, PROBLEMS, HORIZON, UNITS, RATE = 10, 32, 20, 32, 0.1
FULL = 4000


def problems(rng: np.random.Generator) -> list[np.ndarray]:
    """Matrices [problems, size, size] and targets [problems, size, 1] of least-squares problems."""
    return [rng.normal(size=(PROBLEMS, SIZE, n)).astype(np.float32) for n in (SIZE, 1)]


def weights(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"gates": (2 + UNITS, 2 * UNITS), "new": (2 + UNITS, UNITS), "out": (UNITS, 1)}
    p = {name: rng.normal(0, shape[0] ** -0.5, shape) for name, shape in shapes.items()}
    p |= {f"{name}_bias": np.zeros(shape[1]) for name, shape in shapes.items()}
    return {name: x.astype(np.float32) for name, x in p.items()}


def losses(tf: Any, x: Any, matrix: Any, target: Any) -> Any:
    """Loss of each problem for its parameters x [problems, size]."""
    return tf.reduce_sum(tf.square(tf.matmul(matrix, tf.expand_dims(x, 2)) - target), [1, 2]) / SIZE


def rule(tf: Any, slope: Any, h: Any, p: dict[str, Any]) -> tuple[Any, Any]:
    """The changes of the parameters [problems, size], and the next state [problems * size, units]."""
    g = tf.reshape(slope, [-1, 1])
    # The inverse hyperbolic sine is a logarithm with a sign, so that both large and small gradients are seen.
    seen = tf.concat([g, tf.math.asinh(20.0 * g) / 5.0], 1)
    z = tf.sigmoid(tf.matmul(tf.concat([seen, h], 1), p["gates"]) + p["gates_bias"])
    keep, reset = tf.split(z, 2, 1)
    new = tf.tanh(tf.matmul(tf.concat([seen, reset * h], 1), p["new"]) + p["new_bias"])
    h = keep * h + (1.0 - keep) * new
    return RATE * tf.reshape(tf.matmul(h, p["out"]) + p["out_bias"], [PROBLEMS, SIZE]), h


Update = Callable[[Any, Any], tuple[Any, Any]]  # slopes and state -> changes and state


def descend(tf: Any, update: Update, state: list[Any], matrix: Any, target: Any) -> Any:
    """Mean losses before and after the steps of an optimizer from 0, [HORIZON + 1]."""

    def step(k: Any, x: Any, losses_before: Any, *state: Any) -> Any:
        loss = losses(tf, x, matrix, target)
        (slope,) = tf.gradients(loss, x)
        change, state = update(slope, state)
        return k + 1, x + change, losses_before.write(k, tf.reduce_mean(loss)), *state

    start = [tf.constant(0), tf.zeros([PROBLEMS, SIZE]), tf.TensorArray(tf.float32, HORIZON + 1, element_shape=[])]
    _, _, found, *_ = tf.while_loop(lambda k, *_: k <= HORIZON, step, [*start, *state])
    return found.stack()


def gradient_descent(tf: Any, rate: Any) -> Update:
    return lambda slope, state: (-rate * slope, state)


def momentum(tf: Any, rate: Any) -> Update:
    def update(slope: Any, state: Any) -> tuple[Any, Any]:
        velocity = 0.9 * state[0] - rate * slope
        return velocity, [velocity]

    return update


def adam(tf: Any, rate: Any) -> Update:
    def update(slope: Any, state: Any) -> tuple[Any, Any]:
        mean, square, k = 0.9 * state[0] + 0.1 * slope, 0.99 * state[1] + 0.01 * slope**2, state[2] + 1.0
        change = mean / (1.0 - 0.9**k) / (tf.sqrt(square / (1.0 - 0.99**k)) + 1e-8)
        return -rate * change, [mean, square, k]

    return update


class Learner:
    """Graph and session: the learned rule, its training, and other rules."""

    def __init__(self, tf: Any, seed: int) -> None:
        with tf.Graph().as_default():
            self.fed = [tf.placeholder(tf.float32, [PROBLEMS, SIZE, n]) for n in (SIZE, 1)]
            self.rate = tf.placeholder_with_default(0.0, [])
            p = {name: tf.get_variable(name, initializer=first) for name, first in weights(seed).items()}

            def learned(slope: Any, state: Any) -> tuple[Any, Any]:
                change, h = rule(tf, slope, state[0], p)
                return change, [h]

            zeros = tf.zeros([PROBLEMS, SIZE])
            self.learned = descend(tf, learned, [tf.zeros([PROBLEMS * SIZE, UNITS])], *self.fed)
            self.others = {
                "gradient descent": descend(tf, gradient_descent(tf, self.rate), [], *self.fed),
                "momentum": descend(tf, momentum(tf, self.rate), [zeros], *self.fed),
                "Adam": descend(tf, adam(tf, self.rate), [zeros, zeros, tf.constant(0.0)], *self.fed),
            }
            self.loss = tf.reduce_mean(self.learned)
            optimizer = tf.train.AdamOptimizer(3e-3)
            slopes, variables = zip(*optimizer.compute_gradients(self.loss))
            self.step = optimizer.apply_gradients(zip(tf.clip_by_global_norm(slopes, 1.0)[0], variables))
            self.session = tf.Session()
            self.session.run(tf.global_variables_initializer())
        self.rng = np.random.default_rng(seed)

    def train(self, steps: int) -> list[float]:
        fetches = [self.loss, self.step]
        return [float(self.session.run(fetches, dict(zip(self.fed, problems(self.rng))))[0]) for _ in range(steps)]

    def losses(self, found: Any, rate: float = 0.0, batches: int = 16) -> np.ndarray:
        """Mean losses of new problems, [HORIZON + 1]."""
        rng = np.random.default_rng(1)
        feeds = (dict(zip(self.fed, problems(rng))) | {self.rate: rate} for _ in range(batches))
        return np.mean([self.session.run(found, feed) for feed in feeds], 0)


def trainer(tf: Any, seed: int = 0) -> Callable[[int], float]:
    learner = Learner(tf, seed)
    return lambda steps: learner.train(steps)[-1]


def run(options: argparse.Namespace) -> Record:
    record, learner = Record(), Learner(headrace.v1, options.seed)
    steps = records.points(options.steps, 60)
    record.curve("training", steps, [float(np.mean(learner.train(steps.step))) for _ in steps], "mean loss on the way")
    curves = {"learned rule": learner.losses(learner.learned)}
    for name, found in learner.others.items():
        tried = {rate: learner.losses(found, rate) for rate in 10 ** np.linspace(-2.5, 0, 11)}
        rate = min(tried, key=lambda r: tried[r][-1] if np.isfinite(tried[r][-1]) else np.inf)
        curves[f"{name}, rate {rate:.2g}"] = tried[rate]
    for name, curve in curves.items():
        record.curve(name, range(HORIZON + 1), curve.tolist(), "loss of new problems", "step of the optimizer")
        record.figure(f"loss after {HORIZON} steps, {name}", curve[-1])
    best, learned = min(curve[-1] for curve in list(curves.values())[1:]), curves["learned rule"][-1]
    record.figure("loss of the learned rule, of that of the best other one", 100 * learned / best, "%", at_most=80)
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=FULL))
