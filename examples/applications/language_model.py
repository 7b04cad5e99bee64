"""A causal transformer that writes by a loop: `python -m examples.applications.language_model`.

It learns to predict the next character of the reference of the Python language, which the standard library ships as the
texts of `help("while")` (so the figures depend on the version of Python). Linear biases instead of positions (ALiBi;
Press, Smith and Lewis, 2022, arXiv:2108.12409) let it read texts longer than those that it learned from.

A `tf.while_loop` writes text: each iteration reads one character, adds its keys and values to those of all characters
before it, and draws the next one. These tensors and the text grow with each iteration, which the shape invariants of
the loop allow, and the prompt may have any length. A loop without the keys and values reads all of the text again in
each iteration. It draws the same text and is here to compare.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import headrace.v1
from examples.applications import records
from examples.applications.records import Record
from examples.char_rnn import text

BATCH, CONTEXT = 16, 96
LAYERS, WIDTH, HEADS = 3, 96, 4
RATE, WARM, FULL = 4e-3, 100, 1200
TEMPERATURE, WRITTEN, COMPARED = 0.7, 400, 200
PROMPTS = ("The while statement", 'The "yield" expression is used when defining a generator function')


def batches(numbers: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """Yields random pieces of a text without end, int32[BATCH, CONTEXT + 1]."""
    rng = np.random.default_rng([seed, 1])
    while True:
        first = rng.integers(len(numbers) - CONTEXT, size=(BATCH, 1))
        yield numbers[first + np.arange(CONTEXT + 1)]


def initial(seed: int, characters: int) -> dict[str, Any]:
    """First values of the weights: kernels, and ones and zeros for the layer normalizations."""
    rng = np.random.default_rng([seed, 2])
    shapes = {"embedding": (characters, WIDTH), "out": (WIDTH, characters)}
    kernels = {"qkv": (WIDTH, 3 * WIDTH), "mix": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    shapes |= {f"{name}{k}": shape for k in range(LAYERS) for name, shape in kernels.items()}
    found = {name: rng.normal(0, shape[0] ** -0.5, shape) for name, shape in shapes.items()}
    for name in ["last", *(f"{place}{k}" for k in range(LAYERS) for place in ("before", "between"))]:
        found |= {f"{name}_gain": np.ones(WIDTH), f"{name}_bias": np.zeros(WIDTH)}
    return {name: x.astype(np.float32) for name, x in found.items()}


def normalized(tf: Any, w: dict[str, Any], name: str, x: Any) -> Any:
    """Layer normalization."""
    mean, variance = tf.nn.moments(x, [1], keepdims=True)
    return (x - mean) * tf.rsqrt(variance + 1e-5) * w[f"{name}_gain"] + w[f"{name}_bias"]


def biases(tf: Any, reads: Any, sees: Any) -> Any:
    """Linear biases of the last `reads` of `sees` characters, [HEADS, reads, sees]."""
    ahead = tf.cast(tf.range(sees) - tf.expand_dims(tf.range(sees - reads, sees), 1), tf.float32)
    slopes = np.reshape(2.0 ** (-8 / HEADS * np.arange(1, HEADS + 1)), [HEADS, 1, 1]).astype(np.float32)
    return slopes * ahead - 1e9 * tf.cast(ahead > 0, tf.float32)


def attention(tf: Any, qkv: Any, past: Any, bias: Any) -> tuple[Any, Any]:
    """Attends to [batch, time, 3 * WIDTH] and the past; returns results, keys and values."""
    parts = tf.reshape(qkv, [tf.shape(qkv)[0], tf.shape(qkv)[1], 3, HEADS, WIDTH // HEADS])
    query, *present = tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))
    seen = present if past is None else [tf.concat(pair, 2) for pair in zip(past, present)]
    scores = tf.matmul(query, seen[0], transpose_b=True) * (WIDTH // HEADS) ** -0.5
    found = tf.matmul(tf.nn.softmax(scores + bias), seen[1])
    return tf.reshape(tf.transpose(found, [0, 2, 1, 3]), [-1, WIDTH]), seen


def network(tf: Any, w: dict[str, Any], read: Any, past: Any = None) -> tuple[Any, Any]:
    """Reads [batch, time] characters after those of the past.

    Returns:
      Logits of the next characters, [batch, time, characters], and the keys and values of each layer.
    """
    batch, reads = tf.shape(read)[0], tf.shape(read)[1]
    bias = biases(tf, reads, reads if past is None else reads + tf.shape(past[0][0])[2])
    x, seen = tf.reshape(tf.nn.embedding_lookup(w["embedding"], read), [-1, WIDTH]), []
    for k in range(LAYERS):
        qkv = tf.matmul(normalized(tf, w, f"before{k}", x), w[f"qkv{k}"])
        found, both = attention(tf, tf.reshape(qkv, [batch, reads, 3 * WIDTH]), past and past[k], bias)
        x += tf.matmul(found, w[f"mix{k}"])
        x += tf.matmul(tf.nn.relu(tf.matmul(normalized(tf, w, f"between{k}", x), w[f"up{k}"])), w[f"down{k}"])
        seen.append(both)
    logits = tf.matmul(normalized(tf, w, "last", x), w["out"])
    return tf.reshape(logits, [batch, reads, w["out"].shape[1]]), seen


def losses(tf: Any, w: dict[str, Any], pieces: Any) -> Any:
    """The loss of each character of [batch, time + 1] but the first, in nats."""
    logits, _ = network(tf, w, pieces[:, :-1])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=pieces[:, 1:], logits=logits)


def written(tf: Any, w: dict[str, Any], prompt: Any, length: Any, seed: int, keeps: bool = True) -> Any:
    """Draws characters after a prompt, [1, time]; keeps keys and values, or reads all again."""
    until = tf.shape(prompt)[1] + length

    def draw(text: Any, last: Any, past: Any) -> Any:
        logits, seen = network(tf, w, last, past) if keeps else network(tf, w, text)
        place = tf.stack([seed, tf.shape(text)[1]])
        drawn = tf.random.stateless_categorical(logits[:, -1] / TEMPERATURE, 1, place, dtype=tf.int32)
        return tf.concat([text, drawn], 1), drawn, seen if keeps else past

    _, past = network(tf, w, prompt[:, :-1])
    first = [prompt, tf.reshape(prompt[:, -1], [1, 1]), past]
    grows = [[tf.TensorShape([1, HEADS, None, WIDTH // HEADS])] * 2] * LAYERS
    shapes = [tf.TensorShape([1, None]), tf.TensorShape([1, 1]), grows]
    return tf.while_loop(lambda text, *_: tf.shape(text)[1] < until, draw, first, shapes)[0][0]


class Trainer:
    """A session with the weights; a call runs some steps and returns the last loss."""

    def __init__(self, tf: Any, seed: int = 0) -> None:
        train, self.held, self.characters = text()
        self._batches, self.graph = batches(train, seed), tf.Graph()
        with self.graph.as_default():
            self.w = {n: tf.get_variable(n, initializer=x) for n, x in initial(seed, len(self.characters)).items()}
            self._pieces = tf.placeholder(tf.int32, [BATCH, CONTEXT + 1])
            self._loss = tf.reduce_mean(losses(tf, self.w, self._pieces))
            step = tf.train.get_or_create_global_step()
            warm = tf.minimum(1.0, tf.cast(step + 1, tf.float32) / WARM)
            optimizer = tf.train.AdamOptimizer(warm * tf.train.cosine_decay(RATE, step, FULL))
            slopes, variables = zip(*optimizer.compute_gradients(self._loss))
            slopes, _ = tf.clip_by_global_norm(slopes, 1.0)
            self._update = optimizer.apply_gradients(zip(slopes, variables), step)
            self.session = tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=2))
            self.session.run(tf.global_variables_initializer())

    def __call__(self, steps: int) -> float:
        for _ in range(steps):
            _, loss = self.session.run([self._update, self._loss], {self._pieces: next(self._batches)})
        return float(loss)


trainer = Trainer  # trainer(tf)(steps) trains with headrace.v1 or tensorflow.compat.v1


def run(options: argparse.Namespace) -> Record:
    record, tf = Record(), headrace.v1
    train = trainer(tf, options.seed)
    with train.graph.as_default():
        pieces = tf.placeholder(tf.int32, [None, None])
        prompt, length = tf.placeholder(tf.int32, [1, None]), tf.placeholder(tf.int32, [])
        found = losses(tf, train.w, pieces)
        texts = [written(tf, train.w, prompt, length, options.seed, keeps) for keeps in (True, False)]
    windows = np.lib.stride_tricks.sliding_window_view(train.held, 2 * CONTEXT + 1)[::CONTEXT]

    def bits() -> float:
        """Bits of a held-out character after at least CONTEXT others."""
        values = [train.session.run(found, {pieces: x})[:, CONTEXT:] for x in np.array_split(windows, 8)]
        return float(np.mean(np.concatenate(values))) / math.log(2)

    every = max(min(20, options.steps), options.steps // 10)
    steps = range(every, options.steps + 1, every)
    curve = [(train(every) / math.log(2), bits()) for _ in steps]
    for name, values in zip(("training, last batch", "held out"), zip(*curve)):
        record.curve(name, steps, values, axis="bits a character")
    record.figure("bits of a held-out character", curve[-1][1], at_most=2)

    def drawn(output: Any, start: str, count: int) -> tuple[np.ndarray, float]:
        """The text after a prompt, and the characters a second."""
        begun = time.perf_counter()
        feeds = {prompt: [[train.characters.index(c) for c in start]], length: count}
        return train.session.run(output, feeds), count / (time.perf_counter() - begun)

    for start in PROMPTS:
        record.sample("".join(train.characters[n] for n in drawn(texts[0], start, WRITTEN)[0]))
    drawn(texts[1], PROMPTS[0], 1)  # compiles the loop
    (kept, rate), (again, slow) = (drawn(output, PROMPTS[0], COMPARED) for output in texts)
    record.figure("characters that differ without kept keys and values", np.sum(kept != again), at_most=0)
    record.figure("characters a second", rate, timed=True)
    record.figure("characters a second without kept keys and values", slow, timed=True)
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=FULL))
