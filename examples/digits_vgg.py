"""A VGG-style convolutional network on handwritten digits: build, train, save, load, predict.

`python examples/digits_vgg.py` (about a minute). The digits are those of scikit-learn: 1,797 images of 8x8 pixels.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import headrace as hr

BATCH, HELD_OUT = 32, 360


def digits(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Loads the images, [1797, 8, 8, 1] float32 in [0, 1], and their labels, shuffled."""
    found: Any = load_digits()
    order = np.random.default_rng(seed).permutation(len(found.target))
    images = (found.images / 16).astype(np.float32)[..., None]
    return images[order], found.target[order].astype(np.int32)


def vgg() -> Any:
    """Two blocks of two 3x3 convolutions and a pooling, then two dense layers."""
    layers: list[Any] = []
    for filters in (32, 64):
        layers += [hr.layers.Conv2D(filters, 3, padding="same", activation=hr.nn.relu) for _ in range(2)]
        layers += [hr.layers.MaxPooling2D(2, 2)]
    layers += [hr.layers.Flatten(), hr.layers.Dense(128, activation=hr.nn.relu), hr.layers.Dropout(0.4)]
    return hr.layers.Sequential([*layers, hr.layers.Dense(10)])


class Model:
    """Builds the graph: placeholders, training step and predictions."""

    def __init__(self, steps: int) -> None:
        with hr.Graph() as self.graph:
            hr.random.set_seed(1)
            network = vgg()
            self.images = hr.placeholder(hr.float32, (None, 8, 8, 1), name="images")
            self.labels = hr.placeholder(hr.int32, (None,), name="labels")
            # before the training step: operations that are built after it would wait for it
            self.predicted = hr.argmax(network(self.images, training=False), 1, name="predicted")
            logits = network(self.images, training=True)
            self.loss = hr.reduce_mean(hr.nn.sparse_softmax_cross_entropy_with_logits(self.labels, logits))
            self.step = hr.train.create_global_step(self.graph)
            self.train = hr.train.Adam(hr.train.CosineDecay(2e-3, steps)).minimize(self.loss, self.step)
            self.init = hr.variables_initializer(self.graph.variables)
            self.saver = hr.train.Saver()


def accuracy(session: Any, model: Model, images: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(session.run(model.predicted, {model.images: images}) == labels))


def train(model: Model, images: np.ndarray, labels: np.ndarray, epochs: int, path: str) -> str:
    """Trains the model, saves its variables, and returns the path of the checkpoint."""
    random = np.random.default_rng(1)
    with hr.Session(graph=model.graph) as session:
        session.run(model.init)
        begun, done = time.perf_counter(), 0
        for epoch in range(epochs):
            order = random.permutation(np.arange(HELD_OUT, len(images)))
            losses = []
            for k in range(0, len(order) - BATCH + 1, BATCH):
                chosen = order[k : k + BATCH]
                feeds = {model.images: images[chosen], model.labels: labels[chosen]}
                losses.append(session.run([model.loss, model.train], feeds)[0])
            done += len(losses)
            right = accuracy(session, model, images[:HELD_OUT], labels[:HELD_OUT])
            rate = done / (time.perf_counter() - begun)
            print(f"epoch {epoch + 1:2}: loss {np.mean(losses):.4f}, held-out {right:.2%}; {rate:.0f} steps a second")
        return str(model.saver.save(session, path, model.step))


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    images, labels = digits()
    steps = options.epochs * ((len(images) - HELD_OUT) // BATCH)
    with tempfile.TemporaryDirectory() as folder:
        model = Model(steps)
        path = train(model, images, labels, options.epochs, str(Path(folder) / "vgg"))

        # as another program would: a new graph and session, with nothing but the file
        again = Model(steps)
        with hr.Session(graph=again.graph) as session:
            again.saver.restore(session, path)
            right = accuracy(session, again, images[:HELD_OUT], labels[:HELD_OUT])
            few = session.run(again.predicted, {again.images: images[:12]})
    print(f"loaded again: {right:.2%} of {HELD_OUT} held-out digits; the first are {few}, and should be {labels[:12]}")
    return 0 if right >= 0.98 or options.epochs < 20 else 1


if __name__ == "__main__":
    sys.exit(main())
