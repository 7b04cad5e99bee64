"""Beam search over a bigram model, with an early end."""

import numpy as np

END = 0


def log_softmax(xp, scores):
    most = xp.max(scores)
    return scores - most - xp.log(xp.sum(xp.exp(scores - most)))


def worst(xp, scores):
    """The position of the smallest score."""
    at, low = 0, scores[0]
    for i in range(1, len(scores)):
        if scores[i] < low:
            at, low = i, scores[i]
    return at, low


def step(xp, model, tokens, lengths, scores, finished, best, width):
    """One round: extends each beam by each token and keeps the best ones."""
    low = -1e9
    new_scores = xp.zeros(width) + low
    new_tokens = tokens * 0
    new_lengths = lengths * 0
    for b in range(width):
        if scores[b] <= low:
            continue
        options = log_softmax(xp, model[tokens[b, lengths[b] - 1]])
        for token in range(len(options)):
            score = scores[b] + options[token]
            if token == END:
                normal = score / xp.real(lengths[b])
                if normal > best:
                    best = normal
                    finished = tokens[b] + 0
                continue
            at, lowest = worst(xp, new_scores)
            if score > lowest:
                row = tokens[b] + 0
                row[lengths[b]] = token
                new_tokens[at] = row
                new_lengths[at] = lengths[b] + 1
                new_scores[at] = score
    return new_tokens, new_lengths, new_scores, finished, best


def program(xp, model, first, most, width):
    low = -1e9
    tokens = xp.izeros(width, most)
    tokens[:, 0] = first
    lengths = xp.izeros(width) + 1
    scores = xp.zeros(width) + low
    scores[0] = 0.0
    finished = xp.izeros(most)
    best = low
    rounds = 0
    while rounds < most - 1:
        tokens, lengths, scores, finished, best = step(xp, model, tokens, lengths, scores, finished, best, width)
        rounds += 1
        # a longer sequence has a lower sum, so its mean is at most the sum over the largest length
        if best > xp.max(scores) / xp.real(most):
            break
    return finished, best, rounds


RNG = np.random.default_rng(8)
MODEL = RNG.standard_normal((5, 5)) * 1.5
LATE = MODEL - np.array([6.0, 0, 0, 0, 0])
CALLS = tuple((m, first, 6, 3) for m, first in ((MODEL, 1), (LATE, 2), (MODEL.T.copy(), 4)))
