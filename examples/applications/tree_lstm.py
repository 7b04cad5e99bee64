"""TreeLSTM by a function that calls itself: `python -m examples.applications.tree_lstm`.

The network reads expressions such as `(3 * (4 - 1)) + 2` as trees and learns their values modulo 5; it sees the value
of whole expressions only. `encode` is a jitted function that calls itself for both children of a node, so one trace
serves trees of every form and depth, and the gradient goes through the recursion. The trees of training have depths up
to 4; the figures are for new trees of these depths and for deeper ones.

TensorFlow 1 cannot differentiate such a recursion. `in_a_loop` is the form that it can run: a `while_loop` over the
nodes from the leaves to the roots, with a TensorArray of states. The program compares both forms. Source: Tai, Socher
and Manning, "Improved semantic representations from tree-structured long short-term memory networks", 2015.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import headrace as hr
import headrace.v1
from examples.applications import records
from examples.applications.records import Record

MODULUS, UNITS, BATCH, DEPTH, NODES = 5, 32, 32, 4, 4096
FULL = 3000
OPERATORS: list[Callable[[int, int], int]] = [lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b]
Tree = Any  # a number below MODULUS, or (operator, left tree, right tree)


def random_tree(rng: np.random.Generator, depth: int) -> Tree:
    """An expression of exactly this depth."""
    if depth == 0:
        return int(rng.integers(MODULUS))
    children = [random_tree(rng, depth - 1), random_tree(rng, int(rng.integers(depth)))]
    first = int(rng.integers(2))
    return int(rng.integers(len(OPERATORS))), children[first], children[1 - first]


def value(tree: Tree) -> int:
    if isinstance(tree, int):
        return tree
    operator, left, right = tree
    return OPERATORS[operator](value(left), value(right)) % MODULUS


def forest(trees: list[Tree]) -> list[np.ndarray]:
    """Arrays of all nodes, their symbols and children, and of the roots and values.

    Children are in front of their parents. The symbol of a leaf is its number, and that of an inner node its operator.
    A leaf has no children: -1. The rest of the arrays, up to NODES, is unused: -2.
    """
    nodes: list[tuple[int, int, int]] = []

    def add(tree: Tree) -> int:
        nodes.append((tree, -1, -1) if isinstance(tree, int) else (tree[0], add(tree[1]), add(tree[2])))
        return len(nodes) - 1

    roots = [add(tree) for tree in trees]
    nodes += [(0, -2, -2)] * (NODES - len(nodes))
    columns = [*np.array(nodes).T, np.array(roots), np.array([value(tree) for tree in trees])]
    return [column.astype(np.int32) for column in columns]


def batch(rng: np.random.Generator) -> list[Tree]:
    return [random_tree(rng, int(rng.integers(1, DEPTH + 1))) for _ in range(BATCH)]


def weights(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {
        "leaves": (MODULUS, 2 * UNITS),
        "kernels": (len(OPERATORS), 2 * UNITS, 5 * UNITS),
        "biases": (len(OPERATORS), 5 * UNITS),
        "out": (UNITS, MODULUS),
    }
    scales = {"leaves": 1.0, "kernels": (2 * UNITS) ** -0.5, "biases": 0.0, "out": UNITS**-0.5}
    return {
        name: rng.normal(0, 1, shape).astype(np.float32) * np.float32(scales[name]) for name, shape in shapes.items()
    }


def composed(tf: Any, left: Any, right: Any, kernel: Any, bias: Any) -> Any:
    """Computes the state of a node, (h, c) as [2 * units], of its children's."""
    (h1, c1), (h2, c2) = tf.split(left, 2), tf.split(right, 2)
    z = tf.reshape(tf.matmul(tf.expand_dims(tf.concat([h1, h2], 0), 0), kernel), [-1]) + bias
    keep1, keep2, write, show, new = tf.split(z, 5)
    c = tf.sigmoid(keep1 + 1.0) * c1 + tf.sigmoid(keep2 + 1.0) * c2 + tf.sigmoid(write) * tf.tanh(new)
    return tf.concat([tf.sigmoid(show) * tf.tanh(c), c], 0)


@hr.jit
def encode(node: Any, symbols: Any, left: Any, right: Any, leaves: Any, kernels: Any, biases: Any) -> Any:
    """The state of a node, by recursion."""
    if left[node] < 0:
        return leaves[symbols[node]]
    first = encode(left[node], symbols, left, right, leaves, kernels, biases)
    second = encode(right[node], symbols, left, right, leaves, kernels, biases)
    return composed(headrace.v1, first, second, kernels[symbols[node]], biases[symbols[node]])


def by_recursion(tf: Any, symbols: Any, left: Any, right: Any, roots: Any, p: dict[str, Any]) -> Any:
    """States of the roots, [trees, 2 * units]."""
    arguments = (symbols, left, right, p["leaves"], p["kernels"], p["biases"])
    return tf.map_fn(lambda root: encode(root, *arguments), roots, dtype=tf.float32)


def in_a_loop(tf: Any, symbols: Any, left: Any, right: Any, roots: Any, p: dict[str, Any]) -> Any:
    """States of the roots, [trees, 2 * units], without recursion."""
    leaf = tf.cast(tf.reshape(tf.where(tf.equal(left, -1)), [-1]), tf.int32)
    inner = tf.cast(tf.reshape(tf.where(left >= 0), [-1]), tf.int32)
    states = tf.TensorArray(tf.float32, tf.size(symbols), clear_after_read=False, element_shape=[2 * UNITS])
    states = states.scatter(leaf, tf.gather(p["leaves"], tf.gather(symbols, leaf)))

    def add(k: Any, states: Any) -> Any:
        node = inner[k]
        children = states.read(left[node]), states.read(right[node])
        kernel, bias = tf.gather(p["kernels"], symbols[node]), tf.gather(p["biases"], symbols[node])
        return k + 1, states.write(node, composed(tf, *children, kernel, bias))

    _, states = tf.while_loop(lambda k, _: k < tf.size(inner), add, [tf.constant(0), states])
    return states.gather(roots)


class Network:
    """Graph and session; `form` is `by_recursion` or `in_a_loop`."""

    def __init__(self, tf: Any, form: Callable[..., Any], seed: int) -> None:
        with tf.Graph().as_default():
            self.fed = [tf.placeholder(tf.int32, [size]) for size in (NODES, NODES, NODES, BATCH, BATCH)]
            p = {name: tf.get_variable(name, initializer=first) for name, first in weights(seed).items()}
            *nodes, roots, values = self.fed
            logits = tf.matmul(form(tf, *nodes, roots, p)[:, :UNITS], p["out"])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=values, logits=logits)
            self.loss = tf.reduce_mean(losses)
            self.right = tf.reduce_mean(
                tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), values), tf.float32)
            )
            self.step = tf.train.AdamOptimizer(3e-3).minimize(self.loss)
            self.session = tf.Session()
            self.session.run(tf.global_variables_initializer())
        self.rng = np.random.default_rng(seed)

    def run(self, fetches: Any, trees: list[Tree]) -> Any:
        return self.session.run(fetches, dict(zip(self.fed, forest(trees))))

    def train(self, steps: int) -> list[float]:
        return [float(self.run([self.loss, self.step], batch(self.rng))[0]) for _ in range(steps)]


def trainer(tf: Any, seed: int = 0) -> Callable[[int], float]:
    network = Network(tf, by_recursion if tf is headrace.v1 else in_a_loop, seed)
    return lambda steps: network.train(steps)[-1]


def run(options: argparse.Namespace) -> Record:
    record, compared = Record(), min(options.steps, 50)
    networks = {form.__name__: Network(headrace.v1, form, options.seed) for form in (by_recursion, in_a_loop)}
    losses, seconds = {}, {}
    for name, network in networks.items():
        losses[name] = network.train(compared)
        begun = time.perf_counter()
        network.train(compared)
        seconds[name] = time.perf_counter() - begun
    difference = np.abs(np.subtract(*losses.values())).max()
    record.figure(f"difference of the losses of both forms, {compared} steps", difference, at_most=1e-3)
    for name, duration in seconds.items():
        record.figure(f"steps a second, {name}", compared / duration, timed=True)
    network, steps = networks["by_recursion"], records.points(options.steps, 60)
    record.curve("training", steps, [float(np.mean(network.train(steps.step))) for _ in steps])
    rng = np.random.default_rng(options.seed + 1)
    for depth in range(1, 2 * DEPTH + 1):
        batches = ([random_tree(rng, depth) for _ in range(BATCH)] for _ in range(12))
        right = 100 * float(np.mean([network.run(network.right, trees) for trees in batches]))
        deeper = depth > DEPTH
        name = f"right values, depth {depth}{' (deeper than in training)' if deeper else ''}"
        record.figure(name, right, "%", at_least=90 if deeper else 98)
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=FULL))
