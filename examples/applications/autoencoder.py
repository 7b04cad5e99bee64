"""Variational autoencoder of handwritten digits: `python -m examples.applications.autoencoder`.

The encoder gives mean and deviation of a code for each image, the decoder gives probabilities of the pixels for a
code that is drawn from this distribution, and the loss is the negative evidence lower bound (ELBO). The draw is
reparametrized, so the gradient goes through it. The graph has a sampler, too: a draw from the prior, and the decoder.
Source: Kingma and Welling, "Auto-encoding variational Bayes", 2014.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import headrace.v1
from examples.applications import records
from examples.applications.records import Record

SIDE, PIXELS, HIDDEN, CODE, BATCH, HELD = 8, 64, 128, 8, 100, 297
FULL = 4000


def images() -> tuple[np.ndarray, np.ndarray]:
    """Images of training and held-out images, [images, pixels] between 0 and 1."""
    found: Any = load_digits()
    order = np.random.default_rng(0).permutation(len(found.data))
    shuffled = (found.data[order] / 16).astype(np.float32)
    return shuffled[HELD:], shuffled[:HELD]


def batch(rng: np.random.Generator, train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Images and the noise of their codes."""
    drawn = train[rng.integers(len(train), size=BATCH)]
    return drawn, rng.normal(size=(BATCH, CODE)).astype(np.float32)


def weights(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = {
        "encoder": (PIXELS, HIDDEN),
        "code": (HIDDEN, 2 * CODE),
        "decoder": (CODE, HIDDEN),
        "out": (HIDDEN, PIXELS),
    }
    p = {name: rng.normal(0, size[0] ** -0.5, size) for name, size in sizes.items()}
    p |= {f"{name}_bias": np.zeros(size[1]) for name, size in sizes.items()}
    return {name: x.astype(np.float32) for name, x in p.items()}


def dense(tf: Any, x: Any, p: dict[str, Any], name: str) -> Any:
    return tf.matmul(x, p[name]) + p[f"{name}_bias"]


def encode(tf: Any, x: Any, p: dict[str, Any]) -> tuple[Any, Any]:
    """Means and logarithms of the deviations of the codes, [batch, code]."""
    return tf.split(dense(tf, tf.nn.relu(dense(tf, x, p, "encoder")), p, "code"), 2, 1)


def decode(tf: Any, code: Any, p: dict[str, Any]) -> Any:
    """Logits of the pixels, [batch, pixels]."""
    return dense(tf, tf.nn.relu(dense(tf, code, p, "decoder")), p, "out")


def bound(tf: Any, x: Any, noise: Any, p: dict[str, Any]) -> tuple[Any, Any]:
    """ELBO of each image in nats, and its divergence from the prior."""
    mean, log_deviation = encode(tf, x, p)
    logits = decode(tf, mean + tf.exp(log_deviation) * noise, p)
    errors = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=logits), 1)
    divergence = 0.5 * tf.reduce_sum(mean**2 + tf.exp(2.0 * log_deviation) - 2.0 * log_deviation - 1.0, 1)
    return -errors - divergence, divergence


class Network:
    """Graph and session."""

    def __init__(self, tf: Any, seed: int) -> None:
        with tf.Graph().as_default():
            tf.set_random_seed(seed)
            self.x = tf.placeholder(tf.float32, [None, PIXELS])
            self.noise = tf.placeholder(tf.float32, [None, CODE])
            p = {name: tf.get_variable(name, initializer=first) for name, first in weights(seed).items()}
            elbo, divergence = bound(tf, self.x, self.noise, p)
            self.elbo, self.divergence = tf.reduce_mean(elbo), tf.reduce_mean(divergence)
            self.step = tf.train.AdamOptimizer(1e-3).minimize(-self.elbo)
            self.restored = tf.sigmoid(decode(tf, encode(tf, self.x, p)[0], p))
            self.drawn = tf.sigmoid(decode(tf, tf.random.normal([5, CODE]), p))
            self.session = tf.Session()
            self.session.run(tf.global_variables_initializer())
        self.rng, self.images = np.random.default_rng(seed), images()

    def train(self, steps: int) -> list[float]:
        """Negative ELBO of the batches."""
        fed = (self.x, self.noise)
        fetches = [self.elbo, self.step]
        return [-self.session.run(fetches, dict(zip(fed, batch(self.rng, self.images[0]))))[0] for _ in range(steps)]

    def held_out(self) -> tuple[float, float]:
        """ELBO and divergence of the held-out images, means of 10 draws each."""
        x = np.repeat(self.images[1], 10, 0)
        noise = np.random.default_rng(1).normal(size=(len(x), CODE))
        elbo, divergence = self.session.run([self.elbo, self.divergence], {self.x: x, self.noise: noise})
        return float(elbo), float(divergence)


def trainer(tf: Any, seed: int = 0) -> Callable[[int], float]:
    network = Network(tf, seed)
    return lambda steps: network.train(steps)[-1]


def picture(rows: np.ndarray) -> str:
    """Images next to each other, as text."""
    shades = np.array(list(" .:-=+*#%@"))
    cells = shades[(rows.reshape(-1, SIDE, SIDE) * 9.99).astype(int)]
    return "\n".join("  ".join("".join(np.repeat(image[k], 2)) for image in cells) for k in range(SIDE))


def run(options: argparse.Namespace) -> Record:
    record, network = Record(), Network(headrace.v1, options.seed)
    train, held = network.images
    steps, losses, held_losses = records.points(options.steps, 50), [], []
    for _ in steps:
        losses.append(float(np.mean(network.train(steps.step))))
        held_losses.append(-network.held_out()[0])
    record.curve("training", steps, losses, "-ELBO, nats")
    record.curve("held out", steps, held_losses, "-ELBO, nats")
    elbo, divergence = network.held_out()
    record.figure("ELBO of held-out images", elbo, "nats", at_least=-25)
    record.figure("of it, divergence from the prior", divergence, "nats")
    mean = np.clip(train.mean(0), 1e-3, 1 - 1e-3)
    alone = (held * np.log(mean) + (1 - held) * np.log(1 - mean)).sum(1).mean()
    record.figure("log-likelihood with independent pixels, to compare", alone, "nats")
    restored, drawn = network.session.run([network.restored, network.drawn], {network.x: held[:5]})
    errors = np.square(restored - held[:5]).mean() / np.square(train.mean(0) - held[:5]).mean()
    record.figure("square error of restored images, of that of the mean image", 100 * errors, "%", at_most=40)
    for title, rows in (("held-out images", held[:5]), ("restored", restored), ("drawn from the prior", drawn)):
        record.sample(f"{title}:\n{picture(rows)}")
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=FULL))
