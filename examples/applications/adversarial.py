"""Generative adversarial network of points on a ring: `python -m examples.applications.adversarial`.

The generator maps noise to points of the plane, the discriminator tells them from points of eight Gaussians on a ring.
The loss of the discriminator contains the square of its own gradient by the true points, so its gradient is of second
order; this penalty makes the game converge, and the generator keeps all eight modes. One run of the session updates
both networks, from gradients at the same parameters. Sources: Goodfellow et al., "Generative adversarial nets", 2014;
Mescheder, Geiger and Nowozin, "Which training methods for GANs do actually converge?", 2018.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import headrace.v1
from examples.applications import records
from examples.applications.records import Record

MODES, DEVIATION, NOISE, HIDDEN, BATCH, PENALTY = 8, 0.05, 8, 64, 128, 0.1
ANGLES = 2 * np.pi * np.arange(MODES) / MODES
CENTERS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1)
FULL = 10000


def ring(rng: np.random.Generator) -> np.ndarray:
    """Points of the eight Gaussians, [batch, 2]."""
    return CENTERS[rng.integers(MODES, size=BATCH)] + DEVIATION * rng.normal(size=(BATCH, 2))


def weights(seed: int) -> dict[str, list[np.ndarray]]:
    """Kernels and biases of both networks."""
    rng = np.random.default_rng(seed)

    def layers(*sizes: int) -> list[np.ndarray]:
        pairs = itertools.pairwise(sizes)
        parts = [x for n, m in pairs for x in (rng.normal(0, n**-0.5, (n, m)), np.zeros(m))]
        return [x.astype(np.float32) for x in parts]

    return {"generator": layers(NOISE, HIDDEN, HIDDEN, 2), "discriminator": layers(2, HIDDEN, HIDDEN, 1)}


def network(tf: Any, x: Any, p: list[Any]) -> Any:
    for k in (0, 2):
        x = tf.nn.leaky_relu(tf.matmul(x, p[k]) + p[k + 1])
    return tf.matmul(x, p[4]) + p[5]


def losses(tf: Any, real: Any, noise: Any, p: dict[str, list[Any]]) -> dict[str, Any]:
    """The losses of generator and discriminator."""
    of_real = network(tf, real, p["discriminator"])
    of_made = network(tf, network(tf, noise, p["generator"]), p["discriminator"])
    (slope,) = tf.gradients(of_real, real)
    penalty = PENALTY / 2 * tf.reduce_mean(tf.reduce_sum(slope**2, 1))
    told = tf.reduce_mean(tf.nn.softplus(-of_real)) + tf.reduce_mean(tf.nn.softplus(of_made))
    return {"generator": tf.reduce_mean(tf.nn.softplus(-of_made)), "discriminator": told + penalty}


class Game:
    """Graph and session."""

    def __init__(self, tf: Any, seed: int) -> None:
        with tf.Graph().as_default():
            self.real = tf.placeholder(tf.float32, [BATCH, 2])
            self.noise = tf.placeholder(tf.float32, [BATCH, NOISE])
            p = {
                name: [
                    tf.get_variable(f"{name}{k}", initializer=first, use_resource=True) for k, first in enumerate(parts)
                ]
                for name, parts in weights(seed).items()
            }
            self.losses = losses(tf, self.real, self.noise, p)
            slopes = {name: tf.gradients(loss, p[name]) for name, loss in self.losses.items()}
            with tf.control_dependencies(slopes["generator"] + slopes["discriminator"]):
                steps = [tf.train.AdamOptimizer(1e-3, 0.5).apply_gradients(zip(slopes[name], p[name])) for name in p]
            self.step = tf.group(*steps)
            self.made = network(tf, self.noise, p["generator"])
            self.session = tf.Session()
            self.session.run(tf.global_variables_initializer())
        self.rng = np.random.default_rng(seed)

    def feeds(self, rng: np.random.Generator) -> dict[Any, np.ndarray]:
        return {self.real: ring(rng), self.noise: rng.normal(size=(BATCH, NOISE))}

    def train(self, steps: int) -> list[dict[str, float]]:
        return [self.session.run([self.losses, self.step], self.feeds(self.rng))[0] for _ in range(steps)]

    def points(self, batches: int) -> np.ndarray:
        """Points of the generator."""
        rng = np.random.default_rng(1)
        return np.concatenate([self.session.run(self.made, self.feeds(rng)) for _ in range(batches)])


def shares(points: np.ndarray) -> np.ndarray:
    """Share of the points that are within 4 deviations of each center, [modes]."""
    distances = np.linalg.norm(points[:, None] - CENTERS, axis=2)
    return (distances < 4 * DEVIATION).mean(0)


def trainer(tf: Any, seed: int = 0) -> Callable[[int], float]:
    game = Game(tf, seed)
    return lambda steps: float(game.train(steps)[-1]["discriminator"])


def picture(points: np.ndarray) -> str:
    """Density of points as text."""
    counts, *_ = np.histogram2d(-points[:, 1], points[:, 0], bins=(21, 43), range=[[-1.4, 1.4]] * 2)
    shades = np.array(list(" .:*#@"))
    return "\n".join("".join(shades[row]).rstrip() for row in np.ceil(5 * np.sqrt(counts / counts.max())).astype(int))


def run(options: argparse.Namespace) -> Record:
    record, game = Record(), Game(headrace.v1, options.seed)
    steps, means, good = records.points(options.steps, 60), [], []
    for _ in steps:
        found = game.train(steps.step)
        means.append({name: float(np.mean([losses[name] for losses in found])) for name in game.losses})
        good.append(100 * shares(game.points(8)).sum())
    for name in game.losses:
        record.curve(name, steps, [mean[name] for mean in means])
    record.curve("good points", steps, good, "% of points near a mode")
    points = game.points(40)
    found = shares(points)
    record.figure(
        "modes with at least a third of their points", (found > 1 / (3 * MODES)).sum(), f"of {MODES}", at_least=MODES
    )
    record.figure("points within 4 deviations of a mode", 100 * found.sum(), "%", at_least=85)
    record.sample(picture(points))
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=FULL))
