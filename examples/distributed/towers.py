"""In-graph data parallelism: `python -m examples.distributed.towers`.

One client has one graph with a tower for each worker. A tower computes the gradients of its part of the batch on its
worker. The mean of the gradients changes the variables, which are on the first worker. Training is synchronous without
queues or tokens, because all towers belong to one step. It has the result of one process with the whole batch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import headrace as hr
from examples.distributed import common

BATCH, HIDDEN = 128, 128


def parameters(hidden: int, seed: int = 1) -> list[Any]:
    """Creates the weights and biases of a network with a hidden layer."""
    rng = np.random.default_rng(seed)
    w0, w1 = rng.normal(0, (2 / 64) ** 0.5, (64, hidden)), rng.normal(0, (1 / hidden) ** 0.5, (hidden, 10))
    return [hr.Variable(x.astype(np.float32)) for x in (w0, np.zeros(hidden), w1, np.zeros(10))]


def logits_of(values: Sequence[Any], images: Any) -> Any:
    """Returns the predicted logits of images, given the values of the parameters."""
    w0, b0, w1, b1 = values
    return hr.matmul(hr.nn.relu(hr.matmul(images, w0) + b0), w1) + b1


class Training:
    """Graph with a tower for each device.

    Args:
      devices: the devices of the towers; the parameters are on the first one.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        with hr.Graph() as self.graph:
            with hr.device(devices[0]):
                self.parameters = parameters(HIDDEN)
                self.images, self.classes = hr.placeholder(hr.float32, (None, 64)), hr.placeholder(hr.int64, (None,))
                values = [v.value() for v in self.parameters]
                right = hr.equal(hr.argmax(logits_of(values, self.images), 1), self.classes)
                self.accuracy = hr.reduce_mean(hr.cast(right, hr.float32))
                parts = zip(hr.split(self.images, len(devices)), hr.split(self.classes, len(devices)), strict=True)
            losses, towers = [], []
            for device, (images, classes) in zip(devices, parts, strict=True):
                with hr.device(device):
                    logits = logits_of(values, images)
                    loss = hr.reduce_mean(hr.nn.sparse_softmax_cross_entropy_with_logits(classes, logits))
                    losses.append(loss)
                    towers.append(hr.gradients(loss, values))
            with hr.device(devices[0]):
                self.loss = hr.add_n(losses) / len(devices)
                means = [hr.add_n(gradients) / len(devices) for gradients in zip(*towers, strict=True)]
                self.train = hr.train.Momentum(0.1, 0.9).apply_gradients(zip(means, self.parameters, strict=True))
            self.init = hr.variables_initializer()

    def run(self, target: Any, steps: int) -> tuple[list[np.ndarray], float]:
        """Trains; prints losses and returns the parameters and the accuracy for held-out digits."""
        images, classes, *held_out = common.digits()
        rng = np.random.default_rng(2)
        with hr.Session(target, graph=self.graph) as session:
            session.run(self.init)
            for step in range(steps):
                batch = rng.permutation(len(classes))[:BATCH]
                feeds = {self.images: images[batch], self.classes: classes[batch]}
                loss, _ = session.run([self.loss, self.train], feeds)
                if step % 50 == 0 or step == steps - 1:
                    print(f"step {step}: loss {loss:.4f}")
                if step == 0:
                    began = time.perf_counter()  # the first step is compiled
            print(f"{(steps - 1) / (time.perf_counter() - began):.0f} steps a second")
            feeds = dict(zip([self.images, self.classes], held_out, strict=True))
            return session.run(self.parameters), float(session.run(self.accuracy, feeds))


def main() -> int:
    parser = common.parser(__doc__, steps=200)
    parser.add_argument("--workers", type=int, default=2, choices=(1, 2, 4, 8))
    options = parser.parse_args()
    print(f"{options.workers} worker(s)")
    with hr.cluster.local(options.workers) as cluster:
        found, right = Training([f"/job:worker/task:{i}" for i in range(options.workers)]).run(cluster, options.steps)
    print("\none process")
    expected, _ = Training(["/cpu:0"]).run("", options.steps)
    difference = max(float(np.max(np.abs(a - b))) for a, b in zip(found, expected, strict=True))
    print(f"\nlargest difference of a parameter to one process: {difference:.1e}")
    print(f"held-out digits: {right:.2%} are right")
    return 0 if difference < 1e-3 and (right > 0.93 or options.steps < 200) else 1


if __name__ == "__main__":
    sys.exit(main())
