"""Neural Turing machine that learns to copy: `python -m examples.applications.memory`.

An LSTM reads a sequence of bits and then has to repeat it. It has an external memory, on which heads operate: each
computes weights of the slots by content and by a shift from its last position, the first one writes, and all read. Two
loops are nested: the loop over time has the controller, and its body is a loop over the heads, in which a `cond`
separates the head that writes from the others. The gradient goes through both loops.

The answer is made of the vectors read alone. A machine that has learned to move its heads copies sequences that are
longer than those of its training. Source: Graves, Wayne and Danihelka, "Neural Turing machines", 2014.
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

BITS, SLOTS, WIDTH, HEADS, UNITS, BATCH = 6, 24, 12, 2, 32, 32
SHORT, LONG = 8, 16  # lengths of sequences: up to SHORT in training, up to LONG in the tests
PARTS = [WIDTH, 1, 1, 3, 1, WIDTH, WIDTH]  # of the parameters of a head
RATE = 1e-2
FULL = 1200


def sequences(rng: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [time, batch, bits + 1] and answers, padded to the longest sequence.

    The last channel is 1 where an answer is expected, after the sequence.
    """
    bits = rng.integers(2, size=(length, BATCH, BITS)).astype(np.float32)
    inputs = np.zeros((2 * LONG, BATCH, BITS + 1), np.float32)
    answers = np.zeros((2 * LONG, BATCH, BITS), np.float32)
    inputs[:length, :, :BITS], inputs[length : 2 * length, :, BITS] = bits, 1.0
    answers[length : 2 * length] = bits
    return inputs, answers


def weights(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {
        "lstm": (BITS + 1 + HEADS * WIDTH + UNITS, 4 * UNITS),
        "heads": (UNITS, HEADS * sum(PARTS)),
        "out": (HEADS * WIDTH, BITS),
    }
    p = {name: rng.normal(0, shape[0] ** -0.5, shape) for name, shape in shapes.items()}
    p |= {f"{name}_bias": np.zeros(shape[1]) for name, shape in shapes.items()}
    return {name: x.astype(np.float32) for name, x in p.items()}


def address(tf: Any, memory: Any, before: Any, key: Any, strength: Any, gate: Any, shift: Any, power: Any) -> Any:
    """Weights of the slots [batch, slots], by content and by the position `before`."""
    near = tf.reduce_sum(tf.nn.l2_normalize(memory, 2) * tf.expand_dims(tf.nn.l2_normalize(key, 1), 1), 2)
    content = tf.nn.softmax(tf.nn.softplus(strength) * near)
    mixed = before + tf.sigmoid(gate) * (content - before)
    back, stay, on = tf.split(tf.nn.softmax(shift), 3, 1)
    moved = back * tf.roll(mixed, -1, 1) + stay * mixed + on * tf.roll(mixed, 1, 1)
    sharp = (moved + 1e-6) ** (1.0 + tf.nn.softplus(power))
    return sharp / tf.reduce_sum(sharp, 1, keepdims=True)


def operate(tf: Any, memory: Any, positions: Any, parameters: Any) -> tuple[Any, Any, Any]:
    """One operation of each head, in order.

    Args:
      tf: the library.
      memory: [batch, slots, width].
      positions: weights of the slots before, [heads, batch, slots].
      parameters: outputs of the controller, [heads, batch, sum(PARTS)].

    Returns:
      The memory, the weights of the slots, and the vectors read, [heads, batch, width].
    """
    before = tf.TensorArray(tf.float32, HEADS).unstack(positions)
    given = tf.TensorArray(tf.float32, HEADS).unstack(parameters)
    after, read = (tf.TensorArray(tf.float32, HEADS, element_shape=[BATCH, n]) for n in (SLOTS, WIDTH))

    def head(k: Any, memory: Any, after: Any, read: Any) -> Any:
        *how, erase, add = tf.split(given.read(k), PARTS, 1)
        at = address(tf, memory, before.read(k), *how)
        slots = tf.expand_dims(at, 2)

        def written() -> Any:
            kept = memory * (1.0 - slots * tf.expand_dims(tf.sigmoid(erase), 1))
            return kept + slots * tf.expand_dims(tf.tanh(add), 1)

        memory = tf.cond(tf.equal(k, 0), written, lambda: tf.identity(memory))
        return k + 1, memory, after.write(k, at), read.write(k, tf.reduce_sum(slots * memory, 1))

    _, memory, after, read = tf.while_loop(lambda k, *_: k < HEADS, head, [tf.constant(0), memory, after, read])
    return memory, after.stack(), read.stack()


def flat(tf: Any, x: Any) -> Any:
    """[heads, batch, n] as [batch, heads * n]."""
    return tf.reshape(tf.transpose(x, [1, 0, 2]), [BATCH, -1])


def machine(tf: Any, inputs: Any, answers: Any, length: Any, p: dict[str, Any]) -> tuple[Any, Any]:
    """Mean loss and share of right bits in the answers to sequences of one length."""
    at_time = [tf.TensorArray(tf.float32, 2 * LONG).unstack(x) for x in (inputs, answers)]

    def moment(t: Any, c: Any, h: Any, memory: Any, positions: Any, read: Any, loss: Any, right: Any) -> Any:
        x, answer = (array.read(t) for array in at_time)
        z = tf.matmul(tf.concat([x, flat(tf, read), h], 1), p["lstm"]) + p["lstm_bias"]
        i, j, f, o = tf.split(z, 4, 1)
        c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.sigmoid(o) * tf.tanh(c)
        parameters = tf.reshape(tf.matmul(h, p["heads"]) + p["heads_bias"], [BATCH, HEADS, sum(PARTS)])
        memory, positions, read = operate(tf, memory, positions, tf.transpose(parameters, [1, 0, 2]))
        logits = tf.matmul(flat(tf, read), p["out"]) + p["out_bias"]
        counts = tf.cast(t >= length, tf.float32) / (BATCH * BITS * tf.cast(length, tf.float32))
        loss += counts * tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=answer, logits=logits))
        right += counts * tf.reduce_sum(tf.cast(tf.equal(logits > 0.0, answer > 0.5), tf.float32))
        return t + 1, c, h, memory, positions, read, loss, right

    state = [tf.zeros([BATCH, UNITS])] * 2 + [tf.fill([BATCH, SLOTS, WIDTH], 0.01)]
    state += [tf.one_hot(tf.zeros([HEADS, BATCH], tf.int32), SLOTS), tf.zeros([HEADS, BATCH, WIDTH])]
    start = [tf.constant(0), *state, tf.constant(0.0), tf.constant(0.0)]
    *_, loss, right = tf.while_loop(lambda t, *_: t < 2 * length, moment, start)
    return loss, right


class Network:
    """Graph and session."""

    def __init__(self, tf: Any, seed: int) -> None:
        with tf.Graph().as_default():
            shapes = ([2 * LONG, BATCH, BITS + 1], [2 * LONG, BATCH, BITS])
            self.fed = [*(tf.placeholder(tf.float32, shape) for shape in shapes), tf.placeholder(tf.int32, [])]
            p = {name: tf.get_variable(name, initializer=first) for name, first in weights(seed).items()}
            self.loss, self.right = machine(tf, self.fed[0], self.fed[1], self.fed[2], p)
            optimizer = tf.train.AdamOptimizer(RATE)
            slopes, variables = zip(*optimizer.compute_gradients(self.loss))
            self.step = optimizer.apply_gradients(zip(tf.clip_by_global_norm(slopes, 1.0)[0], variables))
            self.session = tf.Session()
            self.session.run(tf.global_variables_initializer())
        self.rng = np.random.default_rng(seed)

    def run(self, fetches: Any, rng: np.random.Generator, length: int) -> Any:
        return self.session.run(fetches, dict(zip(self.fed, [*sequences(rng, length), length])))

    def train(self, steps: int) -> list[float]:
        lengths = self.rng.integers(1, SHORT + 1, steps)
        return [float(self.run([self.loss, self.step], self.rng, int(n))[0]) for n in lengths]


def trainer(tf: Any, seed: int = 0) -> Callable[[int], float]:
    network = Network(tf, seed)
    return lambda steps: network.train(steps)[-1]


def run(options: argparse.Namespace) -> Record:
    record, network = Record(), Network(headrace.v1, options.seed)
    steps = records.points(options.steps, 60)
    record.curve("training", steps, [float(np.mean(network.train(steps.step))) for _ in steps], "nats a bit")
    rng = np.random.default_rng(options.seed + 1)
    for length in (SHORT // 2, SHORT, 3 * SHORT // 2, LONG):
        right = 100 * float(np.mean([network.run(network.right, rng, length) for _ in range(10)]))
        longer = length > SHORT
        name = f"right bits, length {length}{' (longer than in training)' if longer else ''}"
        record.figure(name, right, "%", at_least=95 if longer else 99)
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=FULL))
