"""Recurrent cells over padded sequences of different lengths, with attention over states."""

import numpy as np


class Recurrent:
    """A cell that keeps its state as an attribute."""

    def __init__(self, xp, weights, units):
        self.xp = xp
        self.weights = weights
        self.h = xp.zeros(units)
        self.steps = 0

    def step(self, x):
        w, u, b = self.weights
        self.h = self.xp.tanh(self.xp.dot(x, w) + self.xp.dot(self.h, u) + b)
        self.steps += 1
        return self.h


class Gated(Recurrent):
    """A cell with an update gate and a reset gate."""

    def step(self, x):
        w, u, b = self.weights
        xp, n = self.xp, 2
        update = xp.sigmoid(xp.dot(x, w[:, :n]) + xp.dot(self.h, u[:, :n]) + b[:n])
        reset = xp.sigmoid(xp.dot(x, w[:, n : 2 * n]) + xp.dot(self.h, u[:, n : 2 * n]) + b[n : 2 * n])
        proposed = xp.tanh(xp.dot(x, w[:, 2 * n :]) + xp.dot(reset * self.h, u[:, 2 * n :]) + b[2 * n :])
        self.h = update * self.h + (1.0 - update) * proposed
        self.steps += 1
        return self.h


def attend(xp, query, states):
    scores = []
    for state in states:
        scores.append(xp.sum(query * state))
    scores = xp.stack(scores)
    shares = xp.exp(scores - xp.max(scores))
    shares = shares / xp.sum(shares)
    summary = xp.zeros(2)
    for share, state in zip(shares, states):
        summary = summary + share * state
    return summary


def run(xp, cell, sequence, length):
    """The states of a sequence without its padding."""
    states = []
    for t, x in enumerate(sequence):
        if t >= length:
            break
        states.append(cell.step(x))
    return xp.stack(states)


def program(xp, sequences, lengths, plain, gated):
    final, summaries, steps = [], [], 0
    for sequence, length in zip(sequences, lengths):
        first = Recurrent(xp, plain, 2)
        second = Gated(xp, gated, 2)
        below = run(xp, first, sequence, length)
        above = run(xp, second, below, length)
        final.append(second.h)
        summaries.append(attend(xp, first.h, above))
        steps += first.steps + second.steps
    return xp.stack(final), xp.stack(summaries), steps


RNG = np.random.default_rng(5)


def weights(inputs, units):
    return tuple(RNG.standard_normal(shape) * 0.5 for shape in ((inputs, units), (2, units), (units,)))


CALLS = tuple(
    (RNG.standard_normal((3, 4, 3)), np.array(lengths, np.int32), weights(3, 2), weights(2, 6))
    for lengths in ([4, 1, 2], [3, 3, 4])
)
