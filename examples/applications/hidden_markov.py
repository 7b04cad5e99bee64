"""Hidden Markov model, learned by gradient and by EM: `python -m examples.applications.hidden_markov`.

The forward algorithm is a `while_loop` over time. The gradient of its result, the log-likelihood, by the logarithm of
an emission probability is the posterior probability of a state, so differentiation of the loop gives the backward
algorithm of Baum and Welch. The program compares this gradient with forward and backward passes in NumPy.

Two learners start from the same parameters. One minimizes the negative log-likelihood with Adam. The other is
expectation maximization: the gradient by the logarithms of all parameters is the expected number of uses of each, and
the new parameters are these numbers, normalized. Sources: Rabiner, 1989; Eisner, "Inside-outside and forward-backward
algorithms are just backprop", 2016.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import headrace.v1
from examples.applications import records
from examples.applications.records import Record

STATES, SYMBOLS, LENGTH, SEQUENCES = 4, 8, 100, 64
FULL = 300
ROUNDS = 100  # of expectation maximization

Parameters = list[np.ndarray]  # log-probabilities of the first state, of transitions and of emissions


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def true_parameters() -> Parameters:
    """A model in which states last, and each emits mostly two symbols of its own."""
    own = np.arange(SYMBOLS)[None] // 2 == np.arange(STATES)[:, None]
    return [log_softmax(x) for x in (np.zeros(STATES), 2.5 * np.eye(STATES), 2.5 * own)]


def first_parameters(seed: int) -> Parameters:
    """Parameters before learning: states last, and the rest is random."""
    rng = np.random.default_rng(seed)
    lasting = [np.zeros(STATES), 1.5 * np.eye(STATES), np.zeros((STATES, SYMBOLS))]
    return [log_softmax(p + rng.normal(0, 0.5, p.shape)) for p in lasting]


def sampled(seed: int) -> np.ndarray:
    """Sequences of symbols of the true model, [time, sequences]."""
    rng = np.random.default_rng(seed)
    first, transition, emission = (np.cumsum(np.exp(p), -1) for p in true_parameters())

    def drawn(sums: np.ndarray) -> np.ndarray:
        return (rng.random((SEQUENCES, 1)) > sums[..., :-1]).sum(-1)

    state, symbols = drawn(first), []
    for _ in range(LENGTH):
        symbols.append(drawn(emission[state]))
        state = drawn(transition[state])
    return np.array(symbols)


def posteriors(parameters: Parameters, symbols: np.ndarray) -> np.ndarray:
    """Probabilities of the states by forward and backward passes in NumPy, [time, sequences, states]."""
    first, transition, emission = (np.exp(p) for p in parameters)
    seen = emission.T[symbols]
    forward, backward = [first * seen[0]], [np.ones((SEQUENCES, STATES))]
    for t in range(1, LENGTH):
        forward.append((forward[-1] @ transition) * seen[t])
        backward.append((backward[-1] * seen[-t]) @ transition.T)
    joint = np.array(forward) * np.array(backward[::-1])
    return joint / joint.sum(-1, keepdims=True)


def log_likelihoods(tf: Any, first: Any, transition: Any, emitted: Any) -> Any:
    """Log-likelihood of each sequence by the forward algorithm.

    `first` [states] and `transition` [states, states] are log-probabilities, and `emitted` [time, sequences, states] is
    the log-probability of the symbol that was seen.
    """
    later = tf.TensorArray(tf.float64, LENGTH - 1).unstack(emitted[1:])

    def forward(t: Any, log_alpha: Any) -> Any:
        moved = tf.reduce_logsumexp(tf.expand_dims(log_alpha, 2) + transition, 1)
        return t + 1, moved + later.read(t)

    start = [tf.constant(0), first + emitted[0]]
    return tf.reduce_logsumexp(tf.while_loop(lambda t, _: t < LENGTH - 1, forward, start)[1], 1)


class Learner:
    """Graph and session that learn the model from `symbols`, by either method."""

    def __init__(self, tf: Any, seed: int) -> None:
        with tf.Graph().as_default():
            self.symbols = tf.placeholder_with_default(sampled(seed), [LENGTH, SEQUENCES])
            names = ("first", "transition", "emission")
            variables = [tf.get_variable(n, initializer=p) for n, p in zip(names, first_parameters(seed))]
            self.parameters = [tf.nn.log_softmax(v) for v in variables]
            first, transition, emission = self.parameters
            emitted = tf.gather(tf.transpose(emission), self.symbols)
            total = tf.reduce_sum(log_likelihoods(tf, first, transition, emitted))
            self.loss = -total / (LENGTH * SEQUENCES)
            self.posteriors = tf.gradients(total, emitted)[0]
            counts = tf.gradients(total, self.parameters)
            probable = [c / tf.reduce_sum(c, -1, keepdims=True) for c in counts]
            self.maximize = tf.group(*[v.assign(tf.math.log(p + 1e-12)) for v, p in zip(variables, probable)])
            self.descend = tf.train.AdamOptimizer(0.05).minimize(self.loss)
            self.session = tf.Session()
            self.session.run(tf.global_variables_initializer())

    def losses(self, op: Any, steps: int) -> list[float]:
        """Runs `op`; returns the loss before each step, in nats a symbol."""
        return [float(self.session.run([self.loss, op])[0]) for _ in range(steps)]


def trainer(tf: Any, seed: int = 0) -> Callable[[int], float]:
    learner = Learner(tf, seed)
    return lambda steps: learner.losses(learner.descend, steps)[-1]


def distance(found: Parameters, wanted: Parameters) -> float:
    """Largest difference of a transition or emission probability, for the best order of the states."""

    def largest(order: list[int]) -> float:
        transition, emission = np.exp(found[1])[np.ix_(order, order)], np.exp(found[2])[order]
        return max(np.abs(transition - np.exp(wanted[1])).max(), np.abs(emission - np.exp(wanted[2])).max())

    return min(largest(list(order)) for order in itertools.permutations(range(STATES)))


def run(options: argparse.Namespace) -> Record:
    record = Record()
    held = sampled(options.seed + 1)
    methods = {"Adam": ("descend", options.steps), "EM": ("maximize", min(options.steps, ROUNDS))}
    likelihood = {}
    for name, (op, steps) in methods.items():
        learner = Learner(headrace.v1, options.seed)
        losses = learner.losses(getattr(learner, op), steps)
        record.curve(name, range(steps), losses, "nats a symbol")
        feeds = {learner.symbols: held}
        likelihood[name], found, gradient = learner.session.run(
            [-learner.loss, learner.parameters, learner.posteriors], feeds
        )
        error = np.abs(gradient - posteriors(found, held)).max()
        record.figure(f"{name}: difference of the gradient and the posteriors", error, at_most=1e-9)
        record.figure(f"{name}: largest error of a probability", distance(found, true_parameters()), at_most=0.06)
        record.figure(f"{name}: log-likelihood of new sequences", likelihood[name], "nats a symbol")
    record.figure("log-likelihood, Adam - EM", likelihood["Adam"] - likelihood["EM"], "nats a symbol", at_least=-0.002)
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=FULL))
