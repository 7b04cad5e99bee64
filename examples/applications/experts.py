"""Mixture of experts, computed only where used: `python -m examples.applications.experts`.

A gate sends each group of tokens to two of eight experts. Every expert is a branch of a conditional, which runs only if
a group was sent to it, and so are its gradient and its update. The groups come from eight domains, each with a function
of its own. The losses are the same with experts on four logical devices and on two workers.

Sources: Shazeer et al., "Outrageously Large Neural Networks" (2017); Yu et al., "Dynamic Control Flow in Large-Scale
Machine Learning" (2018), section 2.2; the balancing loss is that of Fedus et al., "Switch Transformers" (2021).
"""

from __future__ import annotations

import argparse
import functools
import sys
import timeit
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import headrace as hr
import headrace.v1 as v1
from examples.applications import records

STEPS, COMPARED, TURNS, RATE, DOMAINS = 1500, 20, 20, 1e-2, 8


class Settings(NamedTuple):
    """Sizes of the model and of a batch, and the weight of the balancing loss."""

    experts: int = 8
    chosen: int = 2
    groups: int = 16
    tokens: int = 64
    width: int = 32
    hidden: int = 128
    balance: float = 0.02


SPARSE = Settings(experts=64, groups=4)  # of the comparison of speed


def batches(size: Settings, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields domains of groups, tokens near their centres, and the domains' functions of these."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(DOMAINS, 1, size.width))
    maps = random.normal(0, 2 * size.width**-0.5, (DOMAINS, size.width, size.width))
    while True:
        domains = random.integers(DOMAINS, size=size.groups)
        noise = random.normal(size=(size.groups, size.tokens, size.width))
        yield domains, (centres[domains] + noise).astype(np.float32), np.tanh(noise @ maps[domains]).astype(np.float32)


def variables(tf: Any, size: Settings, places: Sequence[str], seed: int) -> tuple[Any, list[list[Any]]]:
    """Makes the weights of the gate, and the weights of each expert on its device."""
    random = np.random.default_rng(seed + 1)

    def variable(name: str, *shape: int) -> Any:
        first = random.normal(0, shape[0] ** -0.5, shape) if len(shape) > 1 else np.zeros(shape)
        return tf.get_variable(name, initializer=first.astype(np.float32), use_resource=True)

    gate, experts = variable("gate", size.width, size.experts), []
    shapes = {"first": (size.width, size.hidden), "bias": (size.hidden,), "second": (size.hidden, size.width)}
    for k, place in enumerate(places):
        with tf.device(place):
            experts.append([variable(f"{name}_{k}", *shape) for name, shape in shapes.items()])
    return gate, experts


def mixture(tf: Any, size: Settings, x: Any, gate: Any, experts: Any, places: Sequence[str]) -> tuple[Any, ...]:
    """Returns outputs, the balancing loss, experts of each group, and whether each expert is used."""
    logits = tf.matmul(tf.reduce_mean(x, 1), gate)
    highest, chosen = tf.nn.top_k(logits, size.chosen)
    order = tf.argsort(tf.reshape(chosen, [-1]), stable=True)  # first what is sent to expert 0, then to 1, ...
    group, share = order // size.chosen, tf.gather(tf.reshape(tf.nn.softmax(highest), [-1]), order)
    sent = tf.reduce_sum(tf.one_hot(chosen, size.experts, dtype=tf.int32), [0, 1])
    outputs, used = [], tf.unstack(sent > 0)
    for k, tokens in enumerate(tf.split(tf.gather(x, group), sent, num=size.experts)):
        with tf.device(places[k]):

            def output(tokens: Any = tokens, k: int = k) -> Any:
                first, bias, second = experts[k]
                hidden = tf.nn.relu(tf.matmul(tf.reshape(tokens, [-1, size.width]), first) + bias)
                return tf.reshape(tf.matmul(hidden, second), [-1, size.tokens, size.width])

            outputs.append(tf.cond(used[k], output, lambda: tf.zeros([0, size.tokens, size.width])))
    weighted = tf.reshape(share, [-1, 1, 1]) * tf.concat(outputs, 0)
    out = tf.math.unsorted_segment_sum(weighted, group, tf.shape(x)[0])
    load = tf.cast(sent, tf.float32) / tf.cast(tf.size(chosen), tf.float32)
    balance = size.experts * tf.reduce_sum(load * tf.reduce_mean(tf.nn.softmax(logits), 0))
    return out, balance, chosen, used


class Training:
    """Training of a mixture in a session; the experts are on `places` in turns."""

    def __init__(self, tf: Any, size: Settings, seed: int, places: Any = ("/device:CPU:0",), target: Any = "") -> None:
        self.size, self.seed, self.data = size, seed, batches(size, seed)
        config = tf.ConfigProto(device_count={"CPU": len(places)}, intra_op_parallelism_threads=1)
        places = [places[k % len(places)] for k in range(size.experts)]
        with tf.Graph().as_default():
            gate, experts = variables(tf, size, places, seed)
            self.x, self.y = (tf.placeholder(tf.float32, [None, size.tokens, size.width]) for _ in "xy")
            out, balancing, self.chosen, used = mixture(tf, size, self.x, gate, experts, places)
            error = tf.reduce_mean(tf.squared_difference(out, self.y))
            of_gate, *slopes = tf.gradients(error + size.balance * balancing, [gate, *(v for e in experts for v in e)])
            self.gradients = [slopes[3 * k : 3 * k + 3] for k in range(size.experts)]
            steps = [tf.train.AdamOptimizer(RATE).apply_gradients([(of_gate, gate)])]
            for is_used, *pairs in zip(used, self.gradients, experts):
                update = functools.partial(tf.train.AdamOptimizer(RATE).apply_gradients, list(zip(*pairs)))
                steps.append(tf.cond(is_used, update, tf.no_op))
            self.fetches = [error, tf.group(steps)]
            self.session = tf.Session(target, config=None if target else config)
            self.session.run(tf.global_variables_initializer())

    def feeds(self) -> dict[Any, np.ndarray]:
        return dict(zip([self.x, self.y], next(self.data)[1:]))

    def errors(self, steps: int) -> list[float]:
        """Trains, and returns the squared errors before each step."""
        return [float(self.session.run(self.fetches, self.feeds())[0]) for _ in range(steps)]

    def counts(self) -> np.ndarray:
        """Numbers of groups that each expert gets of each domain, [domains, experts]."""
        domains, x, _ = next(batches(self.size._replace(groups=800), self.seed))
        counts = np.zeros((DOMAINS, self.size.experts), int)
        np.add.at(counts, (domains[:, None], self.session.run(self.chosen, {self.x: x})), 1)
        return counts


def trainer(tf: Any, seed: int = 0) -> Callable[[int], float]:
    """Returns a function that trains 64 experts, of which a step uses 8."""
    training = Training(tf, SPARSE, seed)
    return lambda steps: training.errors(steps)[-1]


def learning(record: records.Record, steps: int, seed: int) -> None:
    """Trains with and without the balancing loss, and with two experts, which are always used."""
    for name, experts, balance in (("8 experts", 8, 0.02), ("8, unbalanced", 8, 0.0), ("2 experts", 2, 0.0)):
        training = Training(v1, Settings(experts, balance=balance), seed)
        errors = training.errors(steps)
        smooth = np.convolve(errors, np.ones(20) / 20, "valid")
        record.curve(name, range(19, steps), smooth.tolist(), "squared error, mean of 20 steps")
        record.figure(f"{name}: last error, to the first", smooth[-1] / errors[0], at_most=0.1 if balance else None)
        count = training.counts()
        load = count.sum(0) / count.sum(0).mean()
        record.figure(f"{name}: largest load, to the mean", load.max(), at_most=1.5 if balance else None)
        if balance:
            rows = (2 * count / count.sum(1, keepdims=True)).round(2).tolist()
            record.table("Share of each domain's groups (a row) at each expert", [*map(str, range(experts))], rows)


def placements(record: records.Record, seed: int) -> None:
    """Compares the errors with experts on several devices and workers with those of one device."""
    expected = Training(v1, Settings(), seed).errors(COMPARED)
    with hr.cluster.local(2) as cluster:
        for n, kind, target in ((4, "device:CPU", ""), (2, "job:worker/task", cluster)):
            found = Training(v1, Settings(), seed, [f"/{kind}:{k}" for k in range(n)], target).errors(COMPARED)
            most = max(abs(a - b) / b for a, b in zip(found, expected))
            record.figure(f"{n} of /{kind}: relative difference of {COMPARED} errors to one", most, at_most=1e-4)


def cost(training: Training) -> list[float]:
    """Returns the number of products of a step, and milliseconds of the shortest step."""
    training.errors(2)
    seconds = min(timeit.repeat(lambda: training.errors(1), number=1, repeat=TURNS))
    events: list[Any] = []
    training.session.run(training.fetches, training.feeds(), hr.RunOptions(listener=events.append))
    is_product = [isinstance(e, hr.step_events.NodeEnd) and e.type == "MatMul" and not e.dead for e in events]
    return [sum(is_product), 1e3 * seconds]


def costs(record: records.Record, there: Sequence[int], seed: int) -> None:
    """Compares steps of one group that use two of several experts, or all of them."""
    wide = Settings(groups=1, tokens=256, width=64, hidden=512)
    two = [Training(v1, wide._replace(experts=n), seed) for n in there]
    every = [Training(v1, wide._replace(experts=n, chosen=n), seed) for n in there]
    rows = [[n, *cost(a), *cost(b)] for n, a, b in zip(there, two, every)]
    record.table("A step for one group", ["there", "2 used: products", "ms", "all: products", "ms"], rows, timed=True)
    used, slopes = two[-1].session.run([two[-1].chosen, two[-1].gradients], two[-1].feeds())
    unused = [np.abs(slope).max() for k, each in enumerate(slopes) if k not in used for slope in each]
    record.figure("largest gradient of an expert that is not used", max(unused), at_most=0)
    (_, few, few_ms, _, _), (n, many, many_ms, _, all_ms) = rows[0], rows[-1]
    record.figure(f"2 of {n} experts used, to 2 of {there[0]}: products", many / few, at_most=1)
    record.figure(f"2 of {n} experts used, to 2 of {there[0]}: time", many_ms / few_ms, at_most=2, timed=True)
    record.figure(f"{n} of {n} experts used, to 2 of {n}: time", all_ms / many_ms, at_least=5, timed=True)


def run(options: argparse.Namespace) -> records.Record:
    record = records.Record()
    learning(record, options.steps, options.seed)
    placements(record, options.seed)
    costs(record, (4, 16, 64) if options.steps >= STEPS else (4, 8), options.seed)
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=STEPS))
