"""Neural ODE with an adaptive solver in the graph: `python -m examples.applications.neural_ode`.

A network gives the velocity of a state, and learns it from short pieces of the path of a damped pendulum, a spiral in
the plane of angle and angular velocity. Then it predicts the whole path from its start. The solver is the method of
Bogacki and Shampine of orders 3 and 2 in a `while_loop`: each iteration estimates the error of a step, takes the step
or repeats it with a smaller size, and chooses the next size. So the number of iterations depends on the network. A loop
over the moments of the path is around it.

The gradient goes through both loops, over steps that were taken and steps that were rejected, and through the choice of
sizes. The program compares it with differences of the loss. Source: Chen, Rubanova, Bettencourt and Duvenaud, "Neural
ordinary differential equations", 2018.
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

HIDDEN, BATCH, POINTS, TOLERANCE = 64, 16, 20, 1e-5
RATE, DECAY = 2e-2, 1e-3
TIMES = np.linspace(0.0, 10.0, 201)
START = np.array([[2.5, 0.0]])
FULL = 3000


def pendulum(x: np.ndarray) -> np.ndarray:
    """The velocity to learn, of angle and angular velocity [batch, 2]."""
    angle, speed = x.T
    return np.stack([speed, -4.0 * np.sin(angle) - 0.3 * speed], 1)


def true_path() -> np.ndarray:
    """Positions at TIMES by the classical Runge-Kutta method with small steps, [times, 2]."""
    parts, path = 20, [START]
    h = (TIMES[1] - TIMES[0]) / parts
    for _ in TIMES[1:]:
        x = path[-1]
        for _ in range(parts):
            k1 = pendulum(x)
            k2 = pendulum(x + h / 2 * k1)
            k3 = pendulum(x + h / 2 * k2)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + pendulum(x + h * k3))
        path.append(x)
    return np.concatenate(path)


def pieces(path: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Pieces of the path for a step of training, [points, batch, 2]."""
    first = rng.integers(len(path) - POINTS, size=BATCH)
    return path[first + np.arange(POINTS)[:, None]]


def weights(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = [(2, HIDDEN), (HIDDEN,), (HIDDEN, 2), (2,)]
    return [rng.normal(0, shape[0] ** -0.5, shape) if len(shape) > 1 else np.zeros(shape) for shape in shapes]


def velocity(tf: Any, x: Any, p: list[Any]) -> Any:
    return tf.matmul(tf.tanh(tf.matmul(x, p[0]) + p[1]), p[2]) + p[3]


def advance(tf: Any, f: Callable[[Any], Any], x: Any, duration: float, first: Any) -> tuple[Any, Any, Any]:
    """Solves dx/dt = f(x) for a duration.

    Args:
      tf: the library.
      f: the velocity.
      x: positions at the beginning, [batch, 2].
      duration: time to the end.
      first: size of the first step.

    Returns:
      The positions at the end, the size for the next step, and the number of steps that were tried.
    """

    def step(t: Any, x: Any, slope: Any, size: Any, tried: Any) -> Any:
        h = tf.minimum(size, duration - t)
        k2 = f(x + h / 2 * slope)
        k3 = f(x + h * 3 / 4 * k2)
        new = x + h / 9 * (2 * slope + 3 * k2 + 4 * k3)
        k4 = f(new)
        error = tf.reduce_max(tf.abs(h / 72 * (-5 * slope + 6 * k2 + 8 * k3 - 9 * k4))) / TOLERANCE
        other = h * tf.clip_by_value(0.9 * (error + 1e-9) ** (-1 / 3), 0.2, 5.0)
        t, x, slope, size = tf.cond(
            error <= 1.0, lambda: (t + h, new, k4, tf.maximum(size, other)), lambda: (t, x, slope, other)
        )
        return t, x, slope, size, tried + 1

    start = [tf.constant(0.0, tf.float64), x, f(x), first, tf.constant(0)]
    _, x, _, size, tried = tf.while_loop(lambda t, *_: t < duration - 1e-9, step, start)
    return x, size, tried


def path(tf: Any, f: Callable[[Any], Any], x: Any, points: int) -> tuple[Any, Any]:
    """Positions at moments from `x` on, [points, batch, 2], and steps of the solver."""
    interval = TIMES[1] - TIMES[0]

    def add(k: Any, x: Any, size: Any, tried: Any, out: Any) -> Any:
        x, size, more = advance(tf, f, x, interval, size)
        return k + 1, x, size, tried + more, out.write(k, x)

    out = tf.TensorArray(tf.float64, points, element_shape=x.shape).write(0, x)
    start = [tf.constant(1), x, tf.constant(interval, tf.float64), tf.constant(0), out]
    *_, tried, out = tf.while_loop(lambda k, *_: k < points, add, start)
    return out.stack(), tried


class Network:
    """Graph and session."""

    def __init__(self, tf: Any, seed: int) -> None:
        with tf.Graph().as_default():
            self.seen = tf.placeholder(tf.float64, [POINTS, BATCH, 2])
            self.p = [tf.get_variable(f"p{k}", initializer=first) for k, first in enumerate(weights(seed))]

            def f(x: Any) -> Any:
                return velocity(tf, x, self.p)

            self.loss = tf.reduce_mean(tf.square(path(tf, f, self.seen[0], POINTS)[0] - self.seen))
            self.slopes = tf.gradients(self.loss, self.p)
            done = tf.train.get_or_create_global_step()
            optimizer = tf.train.AdamOptimizer(tf.train.exponential_decay(RATE, done, 1, np.exp(-DECAY)))
            self.step = optimizer.apply_gradients(zip(self.slopes, self.p), done)
            self.predicted, self.tried = path(tf, f, tf.constant(START), len(TIMES))
            self.session = tf.Session()
            self.session.run(tf.global_variables_initializer())
        self.path, self.rng = true_path(), np.random.default_rng(seed)

    def train(self, steps: int) -> list[float]:
        fetches = [self.loss, self.step]
        return [self.session.run(fetches, {self.seen: pieces(self.path, self.rng)})[0] for _ in range(steps)]

    def error(self) -> tuple[float, int]:
        """Mean distance of the predicted path from the true one, and steps of the solver."""
        predicted, tried = self.session.run([self.predicted, self.tried])
        return float(np.linalg.norm(predicted[:, 0] - self.path, axis=1).mean()), int(tried)

    def slope_error(self) -> float:
        """Relative difference of the slope along a direction and a difference of losses."""
        rng = np.random.default_rng(1)
        seen = pieces(self.path, rng)
        values, slopes = self.session.run([self.p, self.slopes], {self.seen: seen})
        direction = [rng.normal(size=x.shape) for x in values]
        up, down = (
            self.session.run(
                self.loss, {self.seen: seen} | {v: x + s * d for v, x, d in zip(self.p, values, direction)}
            )
            for s in (1e-6, -1e-6)
        )
        along, wanted = sum(np.sum(a * b) for a, b in zip(slopes, direction)), (up - down) / 2e-6
        return abs(along - wanted) / abs(wanted)


def trainer(tf: Any, seed: int = 0) -> Callable[[int], float]:
    network = Network(tf, seed)
    return lambda steps: network.train(steps)[-1]


def run(options: argparse.Namespace) -> Record:
    record, network = Record(), Network(headrace.v1, options.seed)
    record.figure("relative error of the gradient, against differences", network.slope_error(), at_most=1e-4)
    error, tried = network.error()
    record.figure("mean distance from the true path, before learning", error)
    record.figure("steps of the solver for the path, before learning", tried)
    steps, losses, errors = records.points(options.steps, 50), [], []
    for _ in steps:
        losses.append(float(np.mean(network.train(steps.step))))
        errors.append(network.error()[0])
    record.curve("pieces", steps, losses)
    record.curve("path", steps, errors, "mean distance from the true path")
    error, tried = network.error()
    record.figure("relative error of the gradient, after learning", network.slope_error(), at_most=1e-4)
    record.figure("mean distance from the true path", error, at_most=0.1)
    record.figure("steps of the solver for the path", tried)
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=FULL))
