"""A hidden Markov model: likelihood, posteriors, and the best path by Viterbi."""

import numpy as np


def log_sum_exp(xp, x):
    most = xp.max(x)
    return most + xp.log(xp.sum(xp.exp(x - most)))


def forward(xp, start, moves, emits, observed):
    """The logarithms of the forward probabilities of each step."""
    alpha = start + emits[:, observed[0]]
    rows = [alpha]
    for t in range(1, len(observed)):
        after = xp.zeros(len(start))
        for state in range(len(start)):
            after[state] = log_sum_exp(xp, alpha + moves[:, state]) + emits[state, observed[t]]
        alpha = after
        rows.append(alpha)
    return xp.stack(rows)


def backward(xp, moves, emits, observed):
    steps = len(observed)
    beta = xp.zeros(steps, len(moves))
    t = steps - 2
    while t >= 0:
        for state in range(len(moves)):
            terms = moves[state] + emits[:, observed[t + 1]] + beta[t + 1]
            beta[t, state] = log_sum_exp(xp, terms)
        t -= 1
    return beta


def best_path(xp, start, moves, emits, observed):
    """The most likely states and the logarithm of their probability."""
    steps, states = len(observed), len(start)
    score = start + emits[:, observed[0]]
    pointers = xp.izeros(steps, states)
    for t in range(1, steps):
        after = score * 0.0
        for state in range(states):
            best, best_score = 0, score[0] + moves[0, state]
            for before in range(1, states):
                candidate = score[before] + moves[before, state]
                if candidate > best_score:
                    best, best_score = before, candidate
            after[state] = best_score + emits[state, observed[t]]
            pointers[t, state] = best
        score = after
    state = xp.argmax(score)
    path = xp.izeros(steps)
    for back in range(steps):
        t = steps - 1 - back
        path[t] = state
        if t > 0:
            state = pointers[t, state]
    return path, xp.max(score)


def program(xp, start, moves, emits, observed):
    alpha = forward(xp, start, moves, emits, observed)
    beta = backward(xp, moves, emits, observed)
    likelihood = log_sum_exp(xp, alpha[-1])
    path, score = best_path(xp, start, moves, emits, observed)
    return {
        "likelihood": likelihood,
        "posterior": xp.exp(alpha + beta - likelihood),
        "path": path,
        "score": score,
    }


RNG = np.random.default_rng(3)


def logs(*shape):
    """Random logarithms of probabilities, which sum to 1 along the last dimension."""
    p = RNG.random(shape) + 0.1
    return np.log(p / p.sum(-1, keepdims=True))


CALLS = tuple(
    (logs(3), logs(3, 3), logs(3, 4), np.array(seen, np.int32)) for seen in ([0, 3, 1, 1, 2, 0], [2, 2, 2, 0, 1, 3])
)
