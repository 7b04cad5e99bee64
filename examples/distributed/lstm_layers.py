"""Model parallelism: an LSTM with a layer on each worker: `python -m examples.distributed.lstm_layers`.

The loop over time runs on all workers: its body has the cell of layer k on worker k. The outputs of a layer cross to
the next worker in each iteration, and the gradients cross back in the loop of the gradient. While a worker computes
iteration t of its layer, the worker before it may already compute iteration t + 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import headrace as hr
from examples.distributed import common

BATCH, UNITS = 64, 64


class Training:
    """Graph of a network that reads the rows of an image one after the other.

    Args:
      devices: the device of each layer.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        with hr.Graph() as self.graph:
            hr.random.set_seed(1)
            with hr.device(devices[0]):
                self.images = hr.placeholder(hr.float32, (None, 64))
                rows = hr.reshape(self.images, (-1, 8, 8))
            cells = [hr.layers.DeviceWrapper(hr.layers.LSTMCell(UNITS), device) for device in devices]
            _, states = hr.nn.dynamic_rnn(hr.layers.MultiRNNCell(cells), rows, dtype=hr.float32)
            with hr.device(devices[-1]):
                self.classes = hr.placeholder(hr.int64, (None,))
                logits = hr.layers.Dense(10)(states[-1].h)
                self.loss = hr.reduce_mean(hr.nn.sparse_softmax_cross_entropy_with_logits(self.classes, logits))
                self.accuracy = hr.reduce_mean(hr.cast(hr.equal(hr.argmax(logits, 1), self.classes), hr.float32))
            self.train = hr.train.Adam(1e-2).minimize(self.loss)
            self.init = hr.variables_initializer()

    def run(self, target: Any, steps: int) -> tuple[list[float], float]:
        """Trains; prints losses, and returns them and the accuracy for held-out digits."""
        images, classes, *held_out = common.digits()
        rng = np.random.default_rng(2)
        losses = []
        with hr.Session(target, graph=self.graph) as session:
            session.run(self.init)
            for step in range(steps):
                batch = rng.permutation(len(classes))[:BATCH]
                feeds = {self.images: images[batch], self.classes: classes[batch]}
                losses.append(float(session.run([self.loss, self.train], feeds)[0]))
                if step % 50 == 0 or step == steps - 1:
                    print(f"step {step}: loss {losses[-1]:.4f}")
                if step == 0:
                    began = time.perf_counter()  # the first step is compiled
            print(f"{(steps - 1) / (time.perf_counter() - began):.0f} steps a second")
            feeds = dict(zip([self.images, self.classes], held_out, strict=True))
            return losses, float(session.run(self.accuracy, feeds))


def main() -> int:
    parser = common.parser(__doc__, steps=200)
    parser.add_argument("--layers", type=int, default=2, help="number of layers, each on a worker of its own")
    options = parser.parse_args()
    print(f"{options.layers} layers on {options.layers} workers")
    with hr.cluster.local(options.layers) as cluster:
        losses, right = Training([f"/job:worker/task:{i}" for i in range(options.layers)]).run(cluster, options.steps)
    print("\none process")
    expected, _ = Training(["/cpu:0"] * options.layers).run("", options.steps)
    difference = max(abs(a - b) for a, b in zip(losses[:20], expected, strict=False))
    print(f"\nlargest difference of the first 20 losses to one process: {difference:.1e}")
    print(f"held-out digits: {right:.2%} are right")
    return 0 if difference < 1e-3 and (right > 0.9 or options.steps < 200) else 1


if __name__ == "__main__":
    sys.exit(main())
