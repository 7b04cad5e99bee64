"""The LSTM of `digits_lstm.py` as a TensorFlow 1 program: `python examples/digits_v1.py headrace.v1`.

Only the import depends on the library: `headrace.v1` or `tensorflow.compat.v1`. A thread puts batches into a queue, and
each step of training takes one out. The first values and the batches are the same, so the losses can be compared. Given
both libraries, the program trains with them in turns.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import threading
import time
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

BATCH, UNITS, SIDE, CLASSES = 32, 128, 8, 10
SKIPPED = 20  # first steps, which compile and are not timed
TURN = 20


def batches() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Columns float32[32, 8, 8], lengths int32[32] and digits int32[32] of an epoch."""
    found: Any = load_digits()
    random = np.random.default_rng(0)
    order = random.permutation(len(found.target))[: len(found.target) // BATCH * BATCH]
    columns = (found.images.transpose(0, 2, 1) / 16).astype(np.float32)
    inked = columns.max(2) > 0
    lengths = (SIDE - inked[:, ::-1].argmax(1)).astype(np.int32)  # without the empty columns at the end
    digits = found.target.astype(np.int32)
    return [(columns[k], lengths[k], digits[k]) for k in order.reshape(-1, BATCH)]


def last_state(tf: Any, columns: Any, lengths: Any, kernel: Any, bias: Any) -> Any:
    """The state after the last column of each sequence, [batch, units]."""
    in_time = tf.transpose(columns, [1, 0, 2])

    def cell(t: Any, c: Any, h: Any) -> Any:
        z = tf.matmul(tf.concat([tf.gather(in_time, t), h], 1), kernel) + bias
        i, j, f, o = tf.split(z, 4, 1)
        new_c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        new_h = tf.sigmoid(o) * tf.tanh(new_c)
        going = tf.tile(tf.expand_dims(t < lengths, 1), [1, UNITS])
        return t + 1, tf.where(going, new_c, c), tf.where(going, new_h, h)

    zeros = tf.zeros([BATCH, UNITS])
    return tf.while_loop(lambda t, c, h: t < tf.reduce_max(lengths), cell, [tf.constant(0), zeros, zeros])[2]


def training(tf: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Builds the graph.

    Returns:
      The fed batch, its enqueue, the close of the queue, the step of training, and the loss.
    """
    random = np.random.default_rng(1)

    def variable(name: str, *shape: int) -> Any:
        first = random.normal(0, shape[0] ** -0.5, shape) if len(shape) > 1 else np.zeros(shape)
        return tf.get_variable(name, initializer=first.astype(np.float32))

    shapes: list[list[int]] = [[BATCH, SIDE, SIDE], [BATCH], [BATCH]]
    dtypes = [tf.float32, tf.int32, tf.int32]
    fed = [tf.placeholder(dtype, shape) for dtype, shape in zip(dtypes, shapes)]
    queue = tf.FIFOQueue(16, dtypes, shapes)
    columns, lengths, digits = queue.dequeue()
    kernel, bias = variable("kernel", SIDE + UNITS, 4 * UNITS), variable("bias", 4 * UNITS)
    logits = tf.matmul(last_state(tf, columns, lengths, kernel, bias), variable("w", UNITS, CLASSES))
    logits = logits + variable("b", CLASSES)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=digits, logits=logits))
    optimizer = tf.train.AdamOptimizer(5e-3)
    slopes, variables = zip(*optimizer.compute_gradients(loss))
    slopes, _ = tf.clip_by_global_norm(slopes, 1.0)
    step = optimizer.apply_gradients(zip(slopes, variables))
    return fed, queue.enqueue(fed), queue.close(cancel_pending_enqueues=True), step, loss


class Training:
    """A session that trains with one of the libraries.

    Args:
      library: the module to import.
      steps: the number of steps.
    """

    def __init__(self, library: str, steps: int) -> None:
        tf = importlib.import_module(library)
        tf.disable_eager_execution()
        fed, enqueue, self._close, self._step, self._loss = training(tf)
        self._session = tf.Session()
        self._session.run(tf.global_variables_initializer())

        def feed() -> None:
            epoch = batches()
            for k in range(steps):
                self._session.run(enqueue, dict(zip(fed, epoch[k % len(epoch)])))

        self._thread = threading.Thread(target=feed, daemon=True)
        self._thread.start()
        name = library.partition(".")[0]
        self.name = f"{name} {importlib.import_module(name).__version__}"
        self.seconds: list[float] = []
        self.loss = 0.0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            begun = time.perf_counter()
            _, loss = self._session.run([self._step, self._loss])
            self.seconds.append(time.perf_counter() - begun)
            self.loss = float(loss)

    def close(self) -> None:
        self._thread.join()
        self._session.run(self._close)
        self._session.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("libraries", nargs="*", default=["headrace.v1"], help="headrace.v1, tensorflow.compat.v1")
    parser.add_argument("--steps", type=int, default=300, help="that are timed; the libraries take turns of 20")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    steps = SKIPPED + options.steps // TURN * TURN
    runs = [Training(library, steps) for library in options.libraries]
    for run in runs:
        run.run(SKIPPED)
    for _ in range(options.steps // TURN):
        for run in runs:
            run.run(TURN)
    for run in runs:
        print(f"{run.name}: {min(run.seconds[SKIPPED:]) * 1e3:.2f} ms the shortest step, loss {run.loss:.4f}")
        run.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
