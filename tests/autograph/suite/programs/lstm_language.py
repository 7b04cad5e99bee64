"""A language model: an LSTM reads characters, and writes until it stops."""

import numpy as np

UNITS, STOP = 3, 0


def cell(xp, weights, x, state):
    """One step of an LSTM with a forget gate."""
    h, c = state
    kernel, bias = weights["kernel"], weights["bias"]
    gates = xp.dot(xp.concat([x, h]), kernel) + bias
    keep, write = xp.sigmoid(gates[:UNITS] + 1.0), xp.sigmoid(gates[UNITS : 2 * UNITS])
    show, new = xp.sigmoid(gates[2 * UNITS : 3 * UNITS]), xp.tanh(gates[3 * UNITS :])
    c = keep * c + write * new
    return show * xp.tanh(c), c


def log_softmax(xp, scores):
    most = xp.max(scores)
    return scores - most - xp.log(xp.sum(xp.exp(scores - most)))


def read(xp, weights, text):
    """The mean loss of the predictions of each next character, and the last state."""
    state = (xp.zeros(UNITS), xp.zeros(UNITS))
    loss, count, right = 0.0, 0, 0
    for t in range(len(text) - 1):
        state = cell(xp, weights, weights["embedding"][text[t]], state)
        following = text[t + 1]
        if following < 0:
            break
        scores = log_softmax(xp, xp.dot(state[0], weights["out"]))
        loss -= scores[following]
        count += 1
        if xp.argmax(scores) == following:
            right += 1
    if count > 0:
        loss = loss / xp.real(count)
    return loss, right, state


def write(xp, weights, first, state, most):
    """The most likely characters after `first`, to the end mark."""
    out = xp.izeros(most)
    written, score = 0, 0.0
    last = first
    while written < most and last != STOP:
        state = cell(xp, weights, weights["embedding"][last], state)
        scores = log_softmax(xp, xp.dot(state[0], weights["out"]))
        last = xp.argmax(scores)
        score += scores[last]
        out[written] = last
        written += 1
    return out, written, score


def program(xp, weights, texts, first):
    total, right = 0.0, 0
    state = None
    for k in range(2):
        loss, hits, state = read(xp, weights, texts[k])
        total += loss
        right += hits
    penalty = 0.0
    for name, weight in weights.items():
        if name != "bias":
            penalty += 1e-2 * xp.sum(weight * weight)
    out, written, score = write(xp, weights, first, state, 5)
    return {"loss": total + penalty, "right": right, "written": (out, written), "score": score}


RNG = np.random.default_rng(6)


def model(scale):
    shapes = {"embedding": (4, 2), "kernel": (2 + UNITS, 4 * UNITS), "bias": (4 * UNITS,), "out": (UNITS, 4)}
    return {name: RNG.standard_normal(shape) * scale for name, shape in shapes.items()}


CALLS = (
    (model(1.0), np.array([[1, 2, 3, 1, 0], [3, 1, -1, -1, -1]], np.int32), 1),
    (model(2.0), np.array([[2, -1, -1, -1, -1], [2, 2, 1, 3, 0]], np.int32), 3),
)
