"""Drawn text with kept keys and values, and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from examples.applications import language_model
from examples.applications.language_model import HEADS, LAYERS, biases, initial, network, written

pytestmark = pytest.mark.system

CHARACTERS = 11
PROMPTS = [np.array([[3]], np.int32), np.array([[1, 5, 0, 2, 2, 9, 10]], np.int32)]


@pytest.fixture
def w() -> Any:
    """The weights as constants of a graph, which is the default one."""
    with tf.Graph().as_default():
        yield {name: tf.constant(x) for name, x in initial(0, CHARACTERS).items()}


def test_kept_keys_and_values_do_not_change_the_drawn_text(w: Any) -> None:
    prompt, length = tf.placeholder(tf.int32, [1, None]), tf.placeholder(tf.int32, [])
    texts = [written(tf, w, prompt, length, 7, keeps) for keeps in (True, False)]
    with tf.Session() as session:
        for fed in PROMPTS:
            kept, again = session.run(texts, {prompt: fed, length: 20})
            assert kept.tolist() == again.tolist()
            assert kept[: fed.shape[1]].tolist() == fed[0].tolist()
            assert len(kept) == fed.shape[1] + 20


def test_logits_after_the_past_are_those_of_the_whole_text(w: Any) -> None:
    whole = np.random.default_rng(0).integers(CHARACTERS, size=(2, 12)).astype(np.int32)
    _, past = network(tf, w, tf.constant(whole[:, :5]))
    later, seen = network(tf, w, tf.constant(whole[:, 5:]), past)
    all_at_once, _ = network(tf, w, tf.constant(whole))
    with tf.Session() as session:
        got, wanted, keys = session.run([later, all_at_once, seen[-1][0]])
    np.testing.assert_allclose(got, wanted[:, 5:], rtol=1e-4, atol=1e-4)
    assert len(seen) == LAYERS
    assert keys.shape[1:3] == (HEADS, 12)


def test_biases_grow_with_the_distance_and_hide_what_is_ahead() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        found = session.run(biases(tf, 2, 4))
    slopes = [2.0 ** (-8 * (k + 1) / HEADS) for k in range(HEADS)]
    for slope, rows in zip(slopes, found, strict=True):
        np.testing.assert_allclose(rows[1], [-3 * slope, -2 * slope, -slope, 0.0], rtol=1e-6)
        np.testing.assert_allclose(rows[0, :3], [-2 * slope, -slope, 0.0], rtol=1e-6)
        assert rows[0, 3] < -1e8


def test_pieces_of_the_text_are_consecutive_characters() -> None:
    pieces = next(language_model.batches(np.arange(1000, dtype=np.int32), 0))
    assert pieces.shape == (language_model.BATCH, language_model.CONTEXT + 1)
    assert (np.diff(pieces, axis=1) == 1).all()
