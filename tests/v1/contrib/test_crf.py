"""`tf.contrib.crf` against all sequences of tags."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.contrib.running import run

crf = tf.contrib.crf
SCORES = np.random.default_rng(0).normal(size=(3, 4, 3)).astype(np.float32)
MOVES = np.random.default_rng(1).normal(size=(3, 3)).astype(np.float32)
TAGS = np.array([[0, 2, 1, 0], [1, 1, 0, 2], [2, 0, 0, 0]])
LENGTHS = [4, 3, 1]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def score(b: int, tags: tuple[int, ...]) -> float:
    unary = sum(SCORES[b, t, k] for t, k in enumerate(tags))
    return float(unary + sum(MOVES[i, j] for i, j in itertools.pairwise(tags)))


def all_scores(b: int) -> dict[tuple[int, ...], float]:
    return {tags: score(b, tags) for tags in itertools.product(range(3), repeat=LENGTHS[b])}


def test_scores_norms_and_likelihoods() -> None:
    made = [
        crf.crf_sequence_score(SCORES, TAGS, LENGTHS, MOVES),
        crf.crf_log_norm(SCORES, LENGTHS, MOVES),
        crf.crf_log_likelihood(SCORES, TAGS, LENGTHS, MOVES)[0],
        crf.crf_multitag_sequence_score(SCORES, np.arange(3) == TAGS[..., None], LENGTHS, MOVES),
        crf.crf_log_norm(SCORES, [0, 0, 0], MOVES),
    ]
    scores = np.array([score(b, tuple(TAGS[b, :n])) for b, n in enumerate(LENGTHS)])
    norms = np.array([np.log(sum(np.exp(s) for s in all_scores(b).values())) for b in range(3)])
    got = run(made)
    for found, wanted in zip(got, (scores, norms, scores - norms, scores, np.zeros(3)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_decoding_finds_the_best_sequence() -> None:
    tags, best = run(crf.crf_decode(SCORES, MOVES, LENGTHS))
    for b, n in enumerate(LENGTHS):
        known = all_scores(b)
        wanted = max(known, key=lambda k: known[k])
        assert tuple(tags[b, :n]) == wanted
        assert not tags[b, n:].any()
        np.testing.assert_allclose(best[b], known[wanted], rtol=1e-5)
        found, value = crf.viterbi_decode(SCORES[b, :n], MOVES)
        assert tuple(found) == wanted
        np.testing.assert_allclose(value, known[wanted], rtol=1e-5)


def test_the_transitions_are_a_variable_with_a_gradient() -> None:
    with tf.variable_scope("loss"):
        likely, transitions = crf.crf_log_likelihood(tf.constant(SCORES), TAGS, LENGTHS)
    assert transitions.op.name == "loss/transitions"
    (grad,) = tf.gradients(tf.reduce_sum(likely), [transitions])
    step = 1e-2 * np.random.default_rng(2).normal(size=(3, 3)).astype(np.float32)
    with tf.Session() as sess:
        values = []
        for sign in (1, -1):
            transitions.load(MOVES + sign * step, sess)
            values.append(sess.run(likely).sum())
        transitions.load(MOVES, sess)
        np.testing.assert_allclose((values[0] - values[1]) / 2, (sess.run(grad) * step).sum(), rtol=1e-2, atol=1e-4)
