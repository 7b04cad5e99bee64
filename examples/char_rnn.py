"""A character-level recurrent network, in TensorFlow 1's API: `python examples/char_rnn.py`.

It reads the reference of the Python language, which the standard library ships as the texts of `help("while")`, and
learns to guess the next character; then it writes some text of its own. The program is one for TensorFlow 1 but for its
import. The text is written by a loop in the graph, whose body draws a character and feeds it to the cell again.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np

import headrace.v1 as tf

BATCH, STEPS, UNITS = 32, 64, 192
TEMPERATURE = 0.7


def text() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The text as numbers of characters, what is held out of it, and the characters."""
    whole = "\n".join(topics[name] for name in sorted(topics))
    whole = "".join(c if c.isascii() else "?" for c in whole)
    characters = sorted(set(whole))
    numbers = np.searchsorted(characters, list(whole)).astype(np.int32)
    held = len(numbers) // 20
    return numbers[:-held], numbers[-held:], characters


def batches(numbers: np.ndarray, steps: int) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
    """Yields batches of character sequences, the next characters, and reset flags."""
    rows = numbers[: len(numbers) // BATCH * BATCH].reshape(BATCH, -1)
    for k in range(0, rows.shape[1] - steps - 1, steps):
        yield rows[:, k : k + steps], rows[:, k + 1 : k + steps + 1], k == 0


class Network:
    """Two recurrent layers over characters; `logits` are the next ones' after a batch of sequences."""

    def __init__(self, characters: int) -> None:
        self.characters = characters
        with tf.variable_scope("network"):
            self.embedding = tf.get_variable("embedding", [characters, 48])
            self.cell = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.BasicLSTMCell(UNITS) for _ in range(2)])
            self.kernel = tf.get_variable("out/kernel", [UNITS, characters])
            self.bias = tf.get_variable("out/bias", [characters], initializer=tf.zeros_initializer())

    def logits(self, read: Any, state: Any) -> tuple[Any, Any]:
        inputs = tf.nn.embedding_lookup(self.embedding, read)
        with tf.variable_scope("network", reuse=tf.AUTO_REUSE):
            outputs, after = tf.nn.dynamic_rnn(self.cell, inputs, initial_state=state)
        flat = tf.matmul(tf.reshape(outputs, [-1, UNITS]), self.kernel) + self.bias
        return tf.reshape(flat, [tf.shape(read)[0], tf.shape(read)[1], self.characters]), after

    def written(self, start: Any, length: int) -> Any:
        """Samples `length` characters after `start`, by a loop in the graph."""

        def draw(k: Any, last: Any, state: Any, out: Any) -> Any:
            logits, state = self.logits(tf.reshape(last, [1, 1]), state)
            drawn = tf.random.categorical(tf.reshape(logits, [1, -1]) / TEMPERATURE, 1, dtype=tf.int32)
            return k + 1, tf.reshape(drawn, []), state, out.write(k, tf.reshape(drawn, []))

        out = tf.TensorArray(tf.int32, length)
        first = (0, start, self.cell.zero_state(1, tf.float32), out)
        return tf.while_loop(lambda k, *_: k < length, draw, first)[-1].stack()


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10**9, help="stop after so many, whatever the epochs")
    parser.add_argument("--length", type=int, default=500, help="of the text that is written in the end")
    options = parser.parse_args()

    train, held, characters = text()
    print(f"{len(train):,} characters to learn from, {len(held):,} held out, {len(characters)} different ones")
    tf.set_random_seed(1)
    network = Network(len(characters))
    read = tf.placeholder(tf.int32, [BATCH, None], "read")
    wanted = tf.placeholder(tf.int32, [BATCH, None], "wanted")
    first = network.cell.zero_state(BATCH, tf.float32)
    logits, last = network.logits(read, first)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=logits))
    global_step = tf.train.get_or_create_global_step()
    optimizer = tf.train.AdamOptimizer(tf.train.exponential_decay(4e-3, global_step, 400, 0.7))
    slopes, variables = zip(*optimizer.compute_gradients(loss))
    slopes, _ = tf.clip_by_global_norm(slopes, 5.0)
    train_op = optimizer.apply_gradients(zip(slopes, variables), global_step)
    start = tf.placeholder(tf.int32, [], "start")
    written = network.written(start, options.length)
    saver = tf.train.Saver()

    def run(sess: Any, numbers: np.ndarray, ops: Any, most: int) -> list[float]:
        """The losses of a walk over `numbers`; the state goes on from piece to piece."""
        losses: list[float] = []
        state: Any = None
        for x, y, is_new in batches(numbers, STEPS):
            feeds = {read: x, wanted: y}
            if not is_new:
                feeds |= {t: v for a, b in zip(first, state) for t, v in zip(a, b)}
            value, state, _ = sess.run([loss, last, ops], feeds)
            losses.append(float(value))
            if len(losses) == most:
                break
        return losses

    with tf.Session() as sess, tempfile.TemporaryDirectory() as folder:
        sess.run(tf.global_variables_initializer())
        begun, done = time.perf_counter(), 0
        for epoch in range(options.epochs):
            losses = run(sess, train, train_op, options.steps - done)
            done += len(losses)
            bits = np.mean(run(sess, held, tf.no_op(), 10**9)) / math.log(2)
            rate = done / (time.perf_counter() - begun)
            print(f"epoch {epoch + 1}: {bits:.3f} bits a held-out character; {rate:.1f} steps a second", flush=True)
            if done >= options.steps:
                break
        path = saver.save(sess, str(Path(folder) / "model"), global_step)
        saver.restore(sess, path)
        numbers = sess.run(written, {start: characters.index("\n")})
        print("\n" + "".join(characters[n] for n in numbers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
