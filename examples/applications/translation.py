"""Dates to ISO 8601 by attention and beam search: `python -m examples.applications.translation`.

The sources are dates as people write them, of a month, a day or an hour ("Tuesday, March 3, 1987 at 5 pm"), the outputs
the standard form of the same precision (1987-03-03T17), both character by character. A bidirectional LSTM reads the
source, and another one writes the output with attention to all that was read (Bahdanau, Cho and Bengio, 2015,
arXiv:1409.0473). Reader, writer and search are `tf.while_loop`s, with as many iterations as the longest example needs.

The beam search is one loop of the graph. An ended beam stays among the candidates, with its probability. Those of the
others can only fall, so the loop ends as soon as the most probable beam of each example has ended. The figures are of
days that the training set does not contain.
"""

from __future__ import annotations

import argparse
import calendar
import datetime
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import headrace.v1
from examples.applications import records
from examples.applications.records import Record

BATCH, UNITS, WIDTH = 32, 64, 16
BEAMS, LIMIT = 4, 24
LONGEST, GRAIN = 48, 8  # text; lengths of batches are multiples of GRAIN
HELD, PAIRS = 500, 20_000
RATE, FULL = 4e-3, 1500
PAD, START, END, FIRST = range(4)  # the first three are marks, characters begin at FIRST
SOURCE = "".join(map(chr, range(32, 123)))
TARGET = "0123456789-T"

Weights = dict[str, Any]


def date(day: datetime.datetime, rng: np.random.Generator) -> tuple[str, str]:
    """A date in one of several forms, and in that of ISO 8601."""
    number, month, year = day.day, calendar.month_name[day.month], day.year
    kind = rng.integers(5)
    if kind == 0:
        forms = [f"{month} {year}", f"{month[:3]} {year}", f"{day:%m/%Y}"]
        return str(rng.choice(forms)), f"{day:%Y-%m}"
    ordinal = "th" if 10 < number < 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    weekday = calendar.day_name[day.weekday()]
    forms = [
        f"{month} {number}, {year}",
        f"{number} {month[:3]} {year}",
        f"{weekday}, {month} {number}, {year}",
        f"the {number}{ordinal} of {month} {year}",
        f"{weekday[:3]} {number} {month[:3]} {year}",
        f"{day:%d.%m.%Y}",
        f"{day.month}/{number}/{year}",
    ]
    text = str(rng.choice(forms))
    if kind < 3:
        return text, f"{day:%Y-%m-%d}"
    hour = day.hour % 12 or 12
    times = [f"at {hour} {'pm' if day.hour >= 12 else 'am'}", f"{day.hour}h", f"{day:%H:00}"]
    return f"{text} {rng.choice(times)}", f"{day:%Y-%m-%dT%H}"


def examples(seed: int, first: int, last: int, count: int) -> list[tuple[str, str]]:
    """Pairs of random days; the days `first` to `last` are those of a shuffled list."""
    days = np.random.default_rng(1).permutation(200 * 365)[first:last]
    rng = np.random.default_rng([seed, first])
    chosen = zip(rng.choice(days, count), rng.integers(24, size=count))
    epoch = datetime.datetime(1900, 1, 1)
    return [date(epoch + datetime.timedelta(int(d), hours=int(h)), rng) for d, h in chosen]


def numbered(texts: list[str], characters: str) -> np.ndarray:
    """Numbers of characters with END behind each text, int32[len(texts), time]."""
    numbers = [[FIRST + characters.index(c) for c in text] + [END] for text in texts]
    return np.array([n + [PAD] * (LONGEST - len(n)) for n in numbers], np.int32)


def cut(numbers: np.ndarray) -> np.ndarray:
    """Cuts padding off all rows, to a multiple of GRAIN: a few lengths instead of many."""
    longest = int((numbers != PAD).sum(1).max())
    return numbers[:, : -(-longest // GRAIN) * GRAIN]


def text_of(numbers: np.ndarray) -> str:
    """The characters before END."""
    found = [int(n) for n in numbers if n != START]
    return "".join(TARGET[n - FIRST] for n in found[: found.index(END)] if n >= FIRST) if END in found else "?"


def batches(seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields batches without end: sources and outputs, each as long as its longest text."""
    pairs = examples(seed, HELD, 200 * 365, PAIRS)
    sources, outputs = (numbered(list(texts), c) for texts, c in zip(zip(*pairs), (SOURCE, TARGET)))
    rng = np.random.default_rng([seed, 1])
    while True:
        rows = rng.integers(PAIRS, size=BATCH)
        yield cut(sources[rows]), cut(outputs[rows])


def initial(seed: int) -> Weights:
    """First values of the weights."""
    rng = np.random.default_rng([seed, 2])
    characters = FIRST + len(TARGET)
    shapes = {"encoder": (WIDTH + UNITS, 4 * UNITS), "decoder": (WIDTH + 2 * UNITS, 4 * UNITS)}
    shapes |= {"query": (UNITS, UNITS), "out": (2 * UNITS, characters)}
    found = {name: rng.normal(0, shape[0] ** -0.5, shape) for name, shape in shapes.items()}
    found |= {f"{name}_bias": np.zeros(found[name].shape[1]) for name in ("encoder", "decoder", "out")}
    found |= {"read": rng.normal(0, 1, (FIRST + len(SOURCE), WIDTH)), "written": rng.normal(0, 1, (characters, WIDTH))}
    return {name: x.astype(np.float32) for name, x in found.items()}


def lstm(tf: Any, w: Weights, name: str, x: Any, c: Any, h: Any) -> tuple[Any, Any]:
    """A step of a layer: the new cell state and output."""
    i, f, g, o = tf.split(tf.matmul(tf.concat([x, h], 1), w[name]) + w[f"{name}_bias"], 4, 1)
    c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(g)
    return c, tf.sigmoid(o) * tf.tanh(c)


def layer(tf: Any, w: Weights, name: str, x: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """Runs a layer over [batch, time, width] up to the lengths: outputs, last cell state, last output."""
    in_time, longest = tf.transpose(x, [1, 0, 2]), tf.minimum(tf.reduce_max(lengths), tf.shape(x)[1])

    def step(t: Any, c: Any, h: Any, outputs: Any) -> Any:
        new_c, new_h = lstm(tf, w, name, in_time[t], c, h)
        going = tf.tile(tf.expand_dims(t < lengths, 1), [1, UNITS])
        outputs = outputs.write(t, tf.where(going, new_h, tf.zeros_like(h)))
        return t + 1, tf.where(going, new_c, c), tf.where(going, new_h, h), outputs

    zeros = tf.zeros([x.shape[0], UNITS])
    outputs = tf.TensorArray(tf.float32, tf.shape(x)[1], element_shape=zeros.shape)  # zeros behind the longest
    _, c, h, outputs = tf.while_loop(lambda t, *_: t < longest, step, [0, zeros, zeros, outputs])
    return tf.transpose(outputs.stack(), [1, 0, 2]), c, h


class Model:
    """Encoder and decoder for a batch of sources, int32[batch, time]."""

    def __init__(self, tf: Any, w: Weights, sources: Any) -> None:
        self.tf, self.w = tf, w
        lengths = tf.reduce_sum(tf.cast(tf.not_equal(sources, PAD), tf.int32), 1)
        x = tf.nn.embedding_lookup(w["read"], sources)
        self.memory, *self.state = layer(tf, w, "encoder", x, lengths)
        self.padding = -1e9 * tf.expand_dims(tf.cast(tf.equal(sources, PAD), tf.float32), 1)

    def repeated(self, times: int) -> None:
        """Repeats each example for as many beams."""
        repeat = self.tf.repeat
        self.memory, self.padding, *self.state = (
            repeat(x, times, axis=0) for x in (self.memory, self.padding, *self.state)
        )

    def step(self, tokens: Any, c: Any, h: Any) -> tuple[Any, Any, Any]:
        """Reads a token: features of the next one [batch, 2 * UNITS], and the new state."""
        tf, w = self.tf, self.w
        query = tf.expand_dims(tf.matmul(h, w["query"]), 1)
        attention = tf.nn.softmax(tf.matmul(query, self.memory, transpose_b=True) + self.padding)
        context = tf.squeeze(tf.matmul(attention, self.memory), 1)
        x = tf.concat([tf.nn.embedding_lookup(w["written"], tokens), context], 1)
        c, h = lstm(tf, w, "decoder", x, c, h)
        return tf.concat([h, context], 1), c, h

    def logits(self, features: Any) -> Any:
        return self.tf.matmul(features, self.w["out"]) + self.w["out_bias"]

    def loss(self, outputs: Any) -> Any:
        """The mean loss of the tokens of `outputs`, each after the right ones before it (teacher forcing)."""
        tf = self.tf
        right = tf.transpose(outputs)
        read = tf.concat([tf.fill([1, tf.shape(right)[1]], START), right[:-1]], 0)
        is_token = tf.cast(tf.not_equal(right, PAD), tf.float32)
        longest = tf.minimum(tf.cast(tf.reduce_max(tf.reduce_sum(is_token, 0)), tf.int32), tf.shape(right)[0])

        def write(t: Any, c: Any, h: Any, found: Any) -> Any:
            features, c, h = self.step(read[t], c, h)
            return t + 1, c, h, found.write(t, features)

        found = tf.TensorArray(tf.float32, tf.shape(right)[0], element_shape=[right.shape[1], 2 * UNITS])
        found = tf.while_loop(lambda t, *_: t < longest, write, [0, *self.state, found])[-1].stack()
        logits = self.logits(tf.reshape(found, [-1, 2 * UNITS]))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(right, [-1]), logits=logits)
        is_token = tf.reshape(is_token, [-1])
        return tf.reduce_sum(losses * is_token) / tf.reduce_sum(is_token)


def beam_search(tf: Any, model: Model, beams: int, limit: int = LIMIT) -> tuple[Any, Any, Any]:
    """The most probable output of each example, its log probability, and the iterations of the search."""
    batch, characters = tf.shape(model.memory)[0], FIRST + len(TARGET)
    model.repeated(beams)
    first = tf.expand_dims(tf.range(batch) * beams, 1)  # the best beam of each example
    only_end = tf.expand_dims(tf.log(tf.one_hot(END, characters)), 0)

    def goes_on(t: Any, written: Any, *_: Any) -> Any:
        return tf.logical_and(t < limit, tf.reduce_any(tf.not_equal(written[::beams, -1], END)))

    def extend(t: Any, written: Any, total: Any, c: Any, h: Any) -> Any:
        features, c, h = model.step(written[:, -1], c, h)
        has_ended = tf.equal(written[:, -1], END)
        log_p = tf.where(has_ended, tf.tile(only_end, [batch * beams, 1]), tf.nn.log_softmax(model.logits(features)))
        candidates = tf.reshape(tf.expand_dims(total, 1) + log_p, [batch, beams * characters])
        best, chosen = tf.nn.top_k(candidates, beams)
        parents = tf.reshape(first + chosen // characters, [-1])
        written = tf.concat([tf.gather(written, parents), tf.reshape(chosen % characters, [-1, 1])], 1)
        return t + 1, written, tf.reshape(best, [-1]), tf.gather(c, parents), tf.gather(h, parents)

    written = tf.fill([batch * beams, 1], START)
    total = tf.tile(tf.log(tf.one_hot(0, beams)), [batch])  # all beams are equal: only one counts
    shapes = [tf.TensorShape(shape) for shape in ([], [None, None], [None], [None, UNITS], [None, UNITS])]
    t, written, total, *_ = tf.while_loop(goes_on, extend, [0, written, total, *model.state], shapes)
    return written[::beams, 1:], total[::beams], t


class Trainer:
    """A session with the weights; a call trains for some steps and returns the last loss."""

    def __init__(self, tf: Any, seed: int) -> None:
        self.graph, self._batches = tf.Graph(), batches(seed)
        with self.graph.as_default():
            self.w = {name: tf.get_variable(name, initializer=x) for name, x in initial(seed).items()}
            self._feeds = [tf.placeholder(tf.int32, [BATCH, None]) for _ in range(2)]
            sources, outputs = self._feeds
            self._loss = Model(tf, self.w, sources).loss(outputs)
            optimizer = tf.train.AdamOptimizer(RATE)
            slopes, variables = zip(*optimizer.compute_gradients(self._loss))
            slopes, _ = tf.clip_by_global_norm(slopes, 1.0)
            self._update = optimizer.apply_gradients(zip(slopes, variables))
            self.session = tf.Session()
            self.session.run(tf.global_variables_initializer())

    def __call__(self, steps: int) -> float:
        for _ in range(steps):
            _, loss = self.session.run([self._update, self._loss], dict(zip(self._feeds, next(self._batches))))
        return float(loss)


def trainer(tf: Any, seed: int = 0) -> Callable[[int], float]:
    """Returns a function that trains for some steps and returns the last loss."""
    return Trainer(tf, seed)


def run(options: argparse.Namespace) -> Record:
    record, tf = Record(), headrace.v1
    train = Trainer(tf, options.seed)
    every = max(1, options.steps // 50)
    steps = range(every, options.steps + 1, every)
    record.curve("loss", steps, [train(every) for _ in steps])

    pairs = examples(options.seed, 0, HELD, HELD)
    with train.graph.as_default():
        source = tf.placeholder(tf.int32, [1, None])
        found = {k: beam_search(tf, Model(tf, train.w, source), k) for k in (1, BEAMS)}
    right, iterations, lengths, rows = np.zeros(2), [], [], []
    for text, wanted in pairs:
        (greedy, _, _), (best, log_p, t) = train.session.run(list(found.values()), {source: cut(numbered([text], SOURCE))})
        outputs = [text_of(greedy[0]), text_of(best[0])]
        right += [output == wanted for output in outputs]
        iterations.append(t)
        lengths.append(len(wanted) + 1)
        if len(rows) < 8:
            rows.append([text, outputs[1], math.exp(log_p[0])])
    record.figure("exact match of beam search, held-out days", 100 * right[1] / HELD, "%", at_least=98)
    record.figure("exact match of greedy search", 100 * right[0] / HELD, "%")
    record.figure("mean iterations of beam search", np.mean(iterations), at_most=LIMIT - 1)
    record.figure("mean length of the outputs with their end", np.mean(lengths))
    record.figure("limit of iterations", LIMIT)
    record.table("Outputs of beam search.", ["source", "output", "probability"], rows)
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=FULL))
