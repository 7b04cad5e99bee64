"""Beam search of the graph against exhaustive search in numpy, for a tiny vocabulary."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from examples.applications import translation
from examples.applications.translation import END, START, Model, beam_search

pytestmark = pytest.mark.system

CHARACTERS, LIMIT = 5, 3
TEXTS = ["May 1987", "3.3.2001", "7 Jul 2030 at 5 pm"]


def weights(seed: int) -> dict[str, np.ndarray]:
    """Random weights of a decoder with two characters, whose probabilities are far from equal."""
    w = translation.initial(seed)
    w |= {"out": 2 * w["out"][:, :CHARACTERS], "out_bias": w["out_bias"][:CHARACTERS]}
    return w | {"written": w["written"][:CHARACTERS]}


def searched(w: dict[str, np.ndarray], texts: list[str], beams: int, limit: int = LIMIT) -> list[Any]:
    """Results of the search, then memory, padding and first state of the decoder."""
    sources = translation.padded(texts)
    with tf.Graph().as_default(), tf.Session() as session:
        model = Model(tf, {name: tf.constant(x) for name, x in w.items()}, tf.constant(sources))
        encoded = [model.memory, model.padding, *model.state]
        return session.run([*beam_search(tf, model, beams, limit), *encoded])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def log_probability(w: dict[str, np.ndarray], encoded: list[np.ndarray], tokens: tuple[int, ...]) -> float:
    """Log probability of an output of one example."""
    memory, padding, c, h = encoded
    total = 0.0
    for last, token in itertools.pairwise((START, *tokens)):
        scores = memory @ (h @ w["query"]) + padding[0]
        attention = np.exp(scores - scores.max())
        context = attention @ memory / attention.sum()
        z = np.concatenate([w["written"][last], context, h]) @ w["decoder"] + w["decoder_bias"]
        i, f, g, o = np.split(z, 4)
        c = sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        logits = np.concatenate([h, context]) @ w["out"] + w["out_bias"]
        total += logits[token] - np.log(np.exp(logits).sum())
    return total


def outputs() -> list[tuple[int, ...]]:
    """All outputs: those that end, and those that the limit cuts."""
    cut = {t[: t.index(END) + 1] if END in t else t for t in itertools.product(range(CHARACTERS), repeat=LIMIT)}
    return sorted(cut)


@pytest.mark.parametrize("seed", range(3))
def test_wide_beam_search_finds_the_most_probable_output(seed: int) -> None:
    w = weights(seed)
    found, log_p, t, *encoded = searched(w, TEXTS, beams=CHARACTERS**LIMIT)
    assert t <= LIMIT
    for k in range(len(TEXTS)):
        scores = {output: log_probability(w, [x[k] for x in encoded], output) for output in outputs()}
        best = max(scores, key=lambda output: scores[output])
        assert tuple(found[k][: len(best)]) == best
        assert (found[k][len(best) :] == END).all()
        assert log_p[k] == pytest.approx(scores[best], abs=1e-4)


def test_one_beam_is_greedy_search() -> None:
    w = weights(0)
    found, _, _, *encoded = searched(w, TEXTS, beams=1)
    for k, row in enumerate(found):
        prefix: tuple[int, ...] = ()
        while END not in prefix and len(prefix) < LIMIT:
            choices = [(*prefix, token) for token in range(CHARACTERS)]
            prefix = max(choices, key=lambda choice: log_probability(w, [x[k] for x in encoded], choice))
        assert tuple(row[: len(prefix)]) == prefix


def test_search_ends_as_soon_as_the_best_beam_of_each_example_has_ended() -> None:
    w = weights(0)
    w["out_bias"] = np.where(np.arange(CHARACTERS) == END, 20.0, 0.0).astype(np.float32)
    found, _, t, *_ = searched(w, TEXTS, beams=4, limit=50)
    assert t == 1
    assert found.tolist() == [[END]] * len(TEXTS)


def test_an_example_has_the_same_output_alone_and_in_a_batch() -> None:
    w = weights(1)
    together, log_p, *_ = searched(w, TEXTS, beams=4)
    for k, text in enumerate(TEXTS):
        (alone,), (p,), *_ = searched(w, [text], beams=4)
        assert together[k][: len(alone)].tolist() == alone.tolist()
        assert log_p[k] == pytest.approx(p, abs=1e-4)


def test_dates_have_the_precision_of_their_source() -> None:
    found = translation.pairs(0, 0, 500, 200)
    assert {len(wanted) for _, wanted in found} == {7, 10, 13}
    assert all(len(wanted) == 13 for text, wanted in found if text.endswith(("M", "h", ":00")))


def test_texts_are_padded_to_a_few_lengths() -> None:
    found = translation.padded(["May 1987", "1.1.1900"])
    assert found.shape == (2, 2 * translation.GRAIN)
    assert bytes(found[0].tolist()) == b"May 1987\x02" + bytes(7)
