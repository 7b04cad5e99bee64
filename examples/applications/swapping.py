"""Training on sequences longer than the memory: `python -m examples.applications.swapping`.

The loop of a recurrent network keeps values of each iteration for its gradient, so the memory of a device bounds the
length of sequences. With `while_loop(..., swap_memory=True)` the oldest values are written to a file when the memory is
nearly full, and read back before the backward loop needs them, while both loops go on. The program finds the longest
sequence that fits without swapping, trains an LSTM on sequences twice as long, and compares the time of an iteration
and the gradients.

Source: Yu et al., "Dynamic Control Flow in Large-Scale Machine Learning" (2018), section 5.3; there too, sequences
become more than twice as long without a longer time for an iteration.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import headrace as hr
import headrace.v1 as v1
from examples.applications import records
from examples.applications.records import Record

BATCH, UNITS = 256, 256
LENGTH = 70  # of the sequences of `trainer`
LIMIT = 64 << 20  # bytes of the device, for kept values and variables
STEPS, RATE, TURNS = 40, 10.0, 9


def sequences(length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns inputs float32[length, batch, units], and targets that depend on their mean over time."""
    x = np.random.default_rng([seed, length]).normal(size=(length, BATCH, UNITS)).astype(np.float32)
    return x, np.tanh(2 * x.mean(0))


def kernel(seed: int) -> np.ndarray:
    """Returns the first weights of the cell, float32[2 * units, 4 * units]."""
    shape = (2 * UNITS, 4 * UNITS)
    return np.random.default_rng(seed).normal(0, shape[0] ** -0.5, shape).astype(np.float32)


class Lstm:
    """Graph of an LSTM that reads a sequence of any length.

    Args:
      tf: the library.
      swap: whether the loop may swap.
      seed: seed of the weights.
    """

    def __init__(self, tf: Any, swap: bool, seed: int) -> None:
        with tf.Graph().as_default() as self.graph:
            weights = tf.get_variable("kernel", initializer=kernel(seed), use_resource=True)
            self.x = tf.placeholder(tf.float32, [None, BATCH, UNITS])
            self.y = tf.placeholder(tf.float32, [BATCH, UNITS])
            length = tf.shape(self.x)[0]

            def cell(t: Any, c: Any, h: Any) -> Any:
                i, j, f, o = tf.split(tf.matmul(tf.concat([tf.gather(self.x, t), h], 1), weights), 4, 1)
                c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
                return t + 1, c, tf.sigmoid(o) * tf.tanh(c)

            start = [tf.constant(0), tf.zeros([BATCH, UNITS]), tf.zeros([BATCH, UNITS])]
            last = tf.while_loop(lambda t, *_: t < length, cell, start, swap_memory=swap)[2]
            self.loss = tf.reduce_mean(tf.squared_difference(last, self.y))
            (self.gradient,) = tf.gradients(self.loss, [weights])
            self.step = tf.train.GradientDescentOptimizer(RATE).apply_gradients([(self.gradient, weights)])
            self.init = tf.global_variables_initializer()


def trainer(tf: Any, seed: int = 0) -> Callable[[int], float]:
    """Returns a function that trains so many steps and returns the last loss."""
    net = Lstm(tf, swap=True, seed=seed)
    session = tf.Session(graph=net.graph, config=tf.ConfigProto(intra_op_parallelism_threads=2))
    session.run(net.init)
    feeds = dict(zip([net.x, net.y], sequences(LENGTH, seed)))
    return lambda steps: [float(session.run([net.loss, net.step], feeds)[0]) for _ in range(steps)][-1]


class Limited:
    """The network in a session with limited memory.

    Args:
      swap: whether the loop may swap.
      limit: bytes of the device; None: no limit.
      seed: seed of weights and data.
    """

    def __init__(self, swap: bool, limit: int | None, seed: int) -> None:
        self._net, self._seed = Lstm(v1, swap, seed), seed
        self._session = hr.Session(graph=self._net.graph, memory_limit=limit)
        self._session.run(self._net.init)

    def _feeds(self, length: int) -> dict[Any, np.ndarray]:
        return dict(zip([self._net.x, self._net.y], sequences(length, self._seed)))

    def gradient(self, length: int) -> np.ndarray:
        return np.asarray(self._session.run(self._net.gradient, self._feeds(length)))

    def fits(self, length: int) -> bool:
        """Whether a step on sequences of this length has enough memory."""
        try:
            self.gradient(length)
        except hr.errors.ResourceExhaustedError:
            return False
        return True

    def longest(self) -> int:
        """Returns the largest length that fits."""
        shortest = 1
        while self.fits(2 * shortest):
            shortest *= 2
        step = shortest // 2
        while step:
            shortest += step if self.fits(shortest + step) else 0
            step //= 2
        return shortest

    def losses(self, length: int, steps: int) -> tuple[list[float], float]:
        """Returns losses of steps of training, and milliseconds of an iteration of the shortest."""
        feeds, losses, shortest = self._feeds(length), [], float("inf")
        for _ in range(steps):
            begun = time.perf_counter()
            losses.append(float(self._session.run([self._net.loss, self._net.step], feeds)[0]))
            shortest = min(shortest, time.perf_counter() - begun)
        return losses, 1e3 * shortest / length


def run(options: argparse.Namespace) -> Record:
    record = Record()
    keeping, swapping, free = (Limited(s, m, options.seed) for s, m in ((False, LIMIT), (True, LIMIT), (True, None)))
    fits = keeping.longest()
    length = 2 * fits + 2
    record.figure("longest sequence that fits without swapping", fits)
    record.figure("length of the sequences with swapping, to that", length / fits, at_least=2)
    same, expected = swapping.gradient(length), free.gradient(length)
    most = np.abs(same - expected).max() / np.abs(expected).max()
    record.figure(
        "largest difference of its gradient to that without a limit, to the largest gradient", most, at_most=1e-5
    )
    losses, _ = swapping.losses(length, options.steps)
    record.curve("with swapping", range(options.steps), losses)
    record.figure("last loss as a share of the first", losses[-1] / losses[0])
    kept = swapped = float("inf")
    for _ in range(TURNS if options.steps >= STEPS else 1):
        kept = min(kept, keeping.losses(fits, 2)[1])
        swapped = min(swapped, swapping.losses(length, 1)[1])
    record.figure("an iteration without swapping", kept, "ms", timed=True)
    record.figure("an iteration with swapping", swapped, "ms", timed=True)
    record.figure(
        "additional time of an iteration with swapping", 100 * (swapped / kept - 1), "%", at_most=10, timed=True
    )
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=STEPS))
