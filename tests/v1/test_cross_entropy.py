"""`tf.nn.softmax_cross_entropy_with_logits` reshapes, broadcasts and casts labels as TensorFlow does.

The values are TensorFlow's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf

LOGITS = np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 0.0]], np.float32)
TWO = np.stack([LOGITS, LOGITS])
FIRST, LAST = np.eye(3, dtype=np.float32)[[0, 2]]
EVEN = np.full(3, 1 / 3, np.float32)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


@pytest.mark.parametrize(
    ("labels", "logits", "axis", "want"),
    [
        ([FIRST, LAST], LOGITS, -1, [2.40761, 3.16985]),
        ([FIRST], LOGITS, -1, [2.40761, 0.16985]),
        (FIRST, LOGITS[0], -1, 2.40761),
        (EVEN, LOGITS, -1, [1.40761, 1.83651]),
        (np.ones((2, 1), np.float32), LOGITS, -1, [4.22282, 5.50954]),
        (np.array([[1, 0, 0], [0, 1, 0]]), LOGITS, -1, [2.40761, 2.16985]),
        (np.tile(EVEN, (2, 2, 1)), TWO, -1, [[1.40761, 1.83651]] * 2),
        (np.tile(EVEN, (2, 2, 1)), TWO, 1, [[0.75129, 0.54217, 1.03239]] * 2),
    ],
)
def test_values(labels: Any, logits: Any, axis: int, want: Any) -> None:
    given = {"labels": labels, "logits": logits, "dim": axis}
    unknown = {"labels": tf.placeholder_with_default(np.float32(labels), None), "logits": logits, "dim": axis}
    losses = [tf.nn.softmax_cross_entropy_with_logits(**given), tf.nn.softmax_cross_entropy_with_logits_v2(**given)]
    if np.ndim(labels) > 1 and axis == -1:
        losses.append(tf.nn.softmax_cross_entropy_with_logits(**unknown))
    with tf.Session() as sess:
        for loss in sess.run(losses):
            np.testing.assert_allclose(loss, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("labels", "logits", "text"),
    [
        ([2, 3], [1, 3], r"Cannot reshape a tensor with 2 elements to shape \[1\] \(1 elements\)"),
        ([2, 1, 3], [2, 2, 3], "Dimensions must be equal, but are 4 and 2"),
        ([2, 4], [2, 3], "Dimensions must be equal, but are 3 and 4"),
    ],
)
def test_other_shapes_are_errors(labels: list[int], logits: list[int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tf.nn.softmax_cross_entropy_with_logits(labels=tf.zeros(labels), logits=tf.zeros(logits))


def test_no_gradient_goes_to_the_labels() -> None:
    labels, logits = tf.constant([EVEN]), tf.constant(LOGITS)
    loss = tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    assert tf.gradients(loss, labels) == [None]
    with tf.Session() as sess:
        (found,) = sess.run(tf.gradients(loss, logits))
    powers = np.exp(LOGITS)
    np.testing.assert_allclose(found, powers / powers.sum(-1, keepdims=True) - EVEN, rtol=1e-5, atol=1e-6)
