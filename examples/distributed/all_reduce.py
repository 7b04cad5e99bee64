"""Data parallelism with a ring all-reduce: `python -m examples.distributed.all_reduce`.

Each worker has its own copy of the parameters, its own slots of the optimizer and its own part of the digits. `all_sum`
sums the gradients along a ring of the workers, so no worker is a server, and each one sends the same amount. All copies
receive the same bits, and so they stay equal. The client sends a number for each step.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import headrace as hr
from examples.distributed import common
from examples.distributed.towers import logits_of, parameters

BATCH, HIDDEN = 32, 512  # of each worker


def averaged(gradients: Sequence[Sequence[Any]], devices: Sequence[str]) -> list[list[Any]]:
    """Returns the mean gradients to each device.

    They are summed as one vector, which is large enough for a ring.
    """
    vectors = []
    for device, mine in zip(devices, gradients, strict=True):
        with hr.device(device):
            vectors.append(hr.concat([hr.reshape(g, (-1,)) for g in mine], 0))
    means = []
    for device, mine, total in zip(devices, gradients, hr.all_sum(vectors, devices), strict=True):
        with hr.device(device):
            parts = hr.split(total / len(devices), [int(np.prod(g.shape)) for g in mine])
            means.append([hr.reshape(part, g.shape) for part, g in zip(parts, mine, strict=True)])
    return means


class Training:
    """Graph with a replica for each device.

    Args:
      devices: the devices of the replicas.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        images, classes, *_ = common.digits()
        n = len(devices)
        self.copies, losses, gradients = [], [], []
        with hr.Graph() as self.graph:
            self.step = hr.placeholder(hr.int64, ())
            self.images, self.classes = hr.placeholder(hr.float32, (None, 64)), hr.placeholder(hr.int64, (None,))
            for k, device in enumerate(devices):
                with hr.device(device):
                    rows = (self.step * BATCH + hr.range(BATCH, dtype=hr.int64)) % len(classes[k::n])
                    batch, labels = hr.gather(hr.constant(images[k::n]), rows), hr.gather(classes[k::n], rows)
                    self.copies.append(parameters(HIDDEN))
                    values = [v.value() for v in self.copies[-1]]
                    logits = logits_of(values, batch)
                    losses.append(hr.reduce_mean(hr.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)))
                    gradients.append(hr.gradients(losses[-1], values))
                    if k == 0:
                        right = hr.equal(hr.argmax(logits_of(values, self.images), 1), self.classes)
                        self.accuracy = hr.reduce_mean(hr.cast(right, hr.float32))
            self.loss = hr.add_n(losses) / n
            means = averaged(gradients, devices)
            pairs = [p for mine, copy in zip(means, self.copies, strict=True) for p in zip(mine, copy, strict=True)]
            self.train = hr.train.Momentum(0.1, 0.9).apply_gradients(pairs)
            self.init = hr.variables_initializer()

    def run(self, target: Any, steps: int) -> tuple[list[list[np.ndarray]], float]:
        """Trains; returns all copies, and the accuracy for held-out digits."""
        *_, images, classes = common.digits()
        with hr.Session(target, graph=self.graph) as session:
            session.run(self.init)
            for step in range(steps):
                loss, _ = session.run([self.loss, self.train], {self.step: step})
                if step % 50 == 0 or step == steps - 1:
                    print(f"step {step}: loss {loss:.4f}")
            right = session.run(self.accuracy, {self.images: images, self.classes: classes})
            return session.run(self.copies), float(right)


def main() -> int:
    parser = common.parser(__doc__, steps=200)
    parser.add_argument("--workers", type=int, default=3)
    options = parser.parse_args()
    print(f"{options.workers} worker(s)")
    with hr.cluster.local(options.workers) as cluster:
        copies, right = Training([f"/job:worker/task:{i}" for i in range(options.workers)]).run(cluster, options.steps)
    print("\none process")
    (expected, *_), _ = Training(["/cpu:0"] * options.workers).run("", options.steps)
    equal = all(np.array_equal(a, b) for copy in copies for a, b in zip(copies[0], copy, strict=True))
    difference = max(float(np.max(np.abs(a - b))) for a, b in zip(copies[0], expected, strict=True))
    print(f"\nthe copies of the parameters are {'equal, bit for bit' if equal else 'DIFFERENT'}")
    print(f"largest difference of a parameter to one process: {difference:.1e}")
    print(f"held-out digits: {right:.2%} are right")
    return 0 if equal and difference < 1e-3 and (right > 0.93 or options.steps < 200) else 1


if __name__ == "__main__":
    sys.exit(main())
