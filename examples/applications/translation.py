"""Dates to ISO 8601 by attention and beam search: `python -m examples.applications.translation`.

The sources are months, days and hours in 13 forms ("Tuesday, March 3, 1987, 5 PM"), the outputs those of ISO 8601
(1987-03-03T17). An LSTM reads the characters of the source, and another one writes the output with attention to all
states of the first (Luong, Pham and Manning, 2015, arXiv:1508.04025). Both are `tf.while_loop`s with as many iterations
as the longest text of the batch has characters. The figures are of days that are not in the training set.

The beam search is one loop of the graph. A beam that has ended stays among the candidates with its probability. Those
of the others can only fall, so the loop ends as soon as the most probable beam of each example has ended.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import headrace.v1
from examples.applications import records
from examples.applications.records import Record

PAD, START, END, CHARACTERS = 0, 1, 2, 128  # texts are ASCII, without control characters
BATCH, UNITS, WIDTH, RATE, FULL = 32, 64, 16, 4e-3, 2500
BEAMS, LIMIT, GRAIN = 4, 24, 8  # texts have multiples of GRAIN, since headrace compiles a step for each length
DAYS, HELD, PAIRS = 200 * 365, 500, 20_000
FORMS = {  # of an output -> of its sources
    "%Y-%m": ["%B %Y", "%b %Y", "%m/%Y"],
    "%Y-%m-%d": ["%B %-d, %Y", "%A, %B %-d, %Y", "%-d %b %Y", "%a %-d %B %Y", "%d.%m.%Y", "%-m/%-d/%Y"],
    "%Y-%m-%dT%H": ["%B %-d, %Y at %-I %p", "%A, %B %-d, %Y, %-I %p", "%-d %b %Y %-Hh", "%d.%m.%Y %H:00"],
}


def pairs(seed: int, first: int, last: int, count: int) -> list[tuple[str, str]]:
    """Random sources and outputs, of the days `first` to `last` of a shuffled list."""
    days, rng = np.random.default_rng(1).permutation(DAYS)[first:last], np.random.default_rng([seed, first])
    hours = 24 * rng.choice(days, count) + rng.integers(24, size=count)
    times = [datetime.datetime(1900, 1, 1) + datetime.timedelta(hours=int(h)) for h in hours]
    kinds = rng.choice(list(FORMS), count)
    return [(t.strftime(rng.choice(FORMS[kind])), t.strftime(kind)) for t, kind in zip(times, kinds)]


def padded(texts: Sequence[str]) -> np.ndarray:
    """Characters of the texts, each with its END, int32[len(texts), time]."""
    time = (max(map(len, texts)) // GRAIN + 1) * GRAIN
    rows = [(text.encode() + bytes([END])).ljust(time, bytes([PAD])) for text in texts]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(texts), -1).astype(np.int32)


def batches(seed: int) -> Iterator[list[np.ndarray]]:
    """Yields batches of sources and outputs, without end."""
    known, rng = pairs(seed, HELD, DAYS, PAIRS), np.random.default_rng([seed, 1])
    while True:
        yield [padded(texts) for texts in zip(*[known[k] for k in rng.integers(PAIRS, size=BATCH)])]


def initial(seed: int) -> dict[str, Any]:
    """First values of the weights."""
    rng = np.random.default_rng([seed, 2])
    shapes = {"encoder": (WIDTH + UNITS, 4 * UNITS), "decoder": (WIDTH + 2 * UNITS, 4 * UNITS)}
    shapes |= {"query": (UNITS, UNITS), "out": (2 * UNITS, CHARACTERS)}
    found = {name: rng.normal(0, shape[0] ** -0.5, shape) for name, shape in shapes.items()}
    found |= {f"{name}_bias": np.zeros(found[name].shape[1]) for name in ("encoder", "decoder", "out")}
    found |= {name: rng.normal(0, 1, (CHARACTERS, WIDTH)) for name in ("read", "written")}
    return {name: x.astype(np.float32) for name, x in found.items()}


def lstm(tf: Any, w: dict[str, Any], name: str, x: Any, c: Any, h: Any) -> tuple[Any, Any]:
    """Computes a step of a layer: the new cell state and output."""
    i, f, g, o = tf.split(tf.matmul(tf.concat([x, h], 1), w[name]) + w[f"{name}_bias"], 4, 1)
    c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(g)
    return c, tf.sigmoid(o) * tf.tanh(c)


class Model:
    """Encoder of a batch of sources, int32[batch, time], and the decoder that attends to it."""

    def __init__(self, tf: Any, w: dict[str, Any], sources: Any) -> None:
        self.tf, self.w = tf, w
        lengths = tf.math.count_nonzero(sources, 1, dtype=tf.int32)
        longest = tf.minimum(tf.reduce_max(lengths), tf.shape(sources)[1])
        in_time = tf.transpose(tf.nn.embedding_lookup(w["read"], sources), [1, 0, 2])

        def read(t: Any, c: Any, h: Any, states: Any) -> Any:
            new_c, new_h = lstm(tf, w, "encoder", in_time[t], c, h)
            goes_on = t < lengths
            c, h = tf.where(goes_on, new_c, c), tf.where(goes_on, new_h, h)
            return t + 1, c, h, states.write(t, h)

        zeros = tf.zeros([sources.shape[0], UNITS])
        states = tf.TensorArray(tf.float32, tf.shape(sources)[1], element_shape=zeros.shape)
        _, *self.state, states = tf.while_loop(lambda t, *_: t < longest, read, [0, zeros, zeros, states])
        self.memory = tf.transpose(states.stack(), [1, 0, 2])
        self.padding = -1e9 * tf.cast(tf.equal(sources[:, None], PAD), tf.float32)

    def step(self, tokens: Any, c: Any, h: Any) -> tuple[Any, Any, Any]:
        """Reads a token; returns features of the next one and the new state."""
        tf, w = self.tf, self.w
        query = tf.expand_dims(tf.matmul(h, w["query"]), 1)
        attention = tf.nn.softmax(tf.matmul(query, self.memory, transpose_b=True) + self.padding)
        context = tf.squeeze(tf.matmul(attention, self.memory), 1)
        c, h = lstm(tf, w, "decoder", tf.concat([tf.nn.embedding_lookup(w["written"], tokens), context], 1), c, h)
        return tf.concat([h, context], 1), c, h

    def loss(self, outputs: Any) -> Any:
        """The mean loss of the tokens of `outputs`, with teacher forcing."""
        tf, right = self.tf, self.tf.transpose(outputs)
        read = tf.concat([tf.fill([1, tf.shape(right)[1]], START), right[:-1]], 0)
        longest = tf.minimum(tf.reduce_max(tf.math.count_nonzero(right, 0, dtype=tf.int32)), tf.shape(right)[0])

        def write(t: Any, c: Any, h: Any, found: Any) -> Any:
            features, c, h = self.step(read[t], c, h)
            return t + 1, c, h, found.write(t, features)

        found = tf.TensorArray(tf.float32, tf.shape(right)[0], element_shape=[right.shape[1], 2 * UNITS])
        found = tf.while_loop(lambda t, *_: t < longest, write, [0, *self.state, found])[-1].stack()
        logits = tf.matmul(tf.reshape(found, [-1, 2 * UNITS]), self.w["out"]) + self.w["out_bias"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(right, [-1]), logits=logits)
        is_token = tf.cast(tf.reshape(tf.not_equal(right, PAD), [-1]), tf.float32)
        return tf.reduce_sum(losses * is_token) / tf.reduce_sum(is_token)


def beam_search(tf: Any, model: Model, beams: int, limit: int = LIMIT) -> tuple[Any, Any, Any]:
    """Finds the most probable outputs; returns them, their log probabilities, and the number of iterations."""
    batch, characters = tf.shape(model.memory)[0], int(model.w["out_bias"].shape[0])
    encoded = [model.memory, model.padding, *model.state]
    model.memory, model.padding, *state = [tf.repeat(x, beams, axis=0) for x in encoded]
    first = tf.range(batch)[:, None] * beams  # the best beam of each example
    only_end = tf.log(tf.one_hot(tf.fill([batch * beams], END), characters))

    def goes_on(t: Any, written: Any, *_: Any) -> Any:
        return (t < limit) & tf.reduce_any(tf.not_equal(written[::beams, -1], END))

    def extend(t: Any, written: Any, total: Any, c: Any, h: Any) -> Any:
        features, c, h = model.step(written[:, -1], c, h)
        log_p = tf.nn.log_softmax(tf.matmul(features, model.w["out"]) + model.w["out_bias"])
        log_p = tf.where(tf.equal(written[:, -1], END), only_end, log_p)
        total, chosen = tf.nn.top_k(tf.reshape(total[:, None] + log_p, [batch, -1]), beams)
        parents = tf.reshape(first + chosen // characters, [-1])
        written = tf.concat([tf.gather(written, parents), tf.reshape(chosen % characters, [-1, 1])], 1)
        return t + 1, written, tf.reshape(total, [-1]), tf.gather(c, parents), tf.gather(h, parents)

    written = tf.fill([batch * beams, 1], START)
    total = tf.tile(tf.log(tf.one_hot(0, beams)), [batch])  # all beams are equal, so only one counts
    shapes = [tf.TensorShape(shape) for shape in ([], [None, None], [None], [None, UNITS], [None, UNITS])]
    t, written, total, *_ = tf.while_loop(goes_on, extend, [0, written, total, *state], shapes)
    return written[::beams, 1:], total[::beams], t


class Trainer:
    """A session with the weights; a call runs some steps and returns the last loss."""

    def __init__(self, tf: Any, seed: int = 0) -> None:
        self.graph, self._batches = tf.Graph(), batches(seed)
        with self.graph.as_default():
            self.w = {name: tf.get_variable(name, initializer=x) for name, x in initial(seed).items()}
            self._feeds = [tf.placeholder(tf.int32, [BATCH, None]) for _ in range(2)]
            self._loss = Model(tf, self.w, self._feeds[0]).loss(self._feeds[1])
            self._update = tf.train.AdamOptimizer(RATE).minimize(self._loss)
            self.session = tf.Session()
            self.session.run(tf.global_variables_initializer())

    def __call__(self, steps: int) -> float:
        for _ in range(steps):
            _, loss = self.session.run([self._update, self._loss], dict(zip(self._feeds, next(self._batches))))
        return float(loss)


trainer = Trainer  # trainer(tf)(steps) trains with headrace.v1 or tensorflow.compat.v1


def run(options: argparse.Namespace) -> Record:
    record, tf = Record(), headrace.v1
    train = trainer(tf, options.seed)
    steps = records.points(options.steps, 50)
    record.curve("loss", steps, [train(steps.step) for _ in steps])
    with train.graph.as_default():
        source = tf.placeholder(tf.int32, [1, None])
        searches = [beam_search(tf, Model(tf, train.w, source), beams) for beams in (1, BEAMS)]
    right, iterations, rows = np.zeros(2), [], []
    for text, wanted in pairs(options.seed, 0, HELD, HELD):
        found = train.session.run(searches, {source: padded([text])})
        greedy, best = (bytes(numbers.tolist()).partition(bytes([END]))[0].decode() for (numbers,), _, _ in found)
        right += [greedy == wanted, best == wanted]
        iterations.append(found[1][2])
        rows.append([text, best, float(np.exp(found[1][1][0]))])
    record.figure("held-out dates that beam search translates", 100 * right[1] / HELD, "%", at_least=98)
    record.figure("held-out dates that greedy search translates", 100 * right[0] / HELD, "%")
    record.figure(f"mean iterations of beam search, of {LIMIT} at most", sum(iterations) / HELD, at_most=LIMIT - 1)
    record.table("Outputs of beam search", ["source", "output", "probability"], rows[:8])
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=FULL))
