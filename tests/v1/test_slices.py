"""Assignments to slices of variables."""

from __future__ import annotations

import numpy as np
import pytest

import headrace.v1 as tf


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def test_slices_are_assigned() -> None:
    """The values are TensorFlow's."""
    v = tf.Variable([1.0, 2.0, 3.0, 4.0], name="v")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(v[1:3].assign([9.0, 8.0])).tolist() == [1, 9, 8, 4]
        assert sess.run(v[0].assign(5.0)).tolist() == [5, 9, 8, 4]
        assert sess.run(v[-1].assign(tf.constant(7.0))).tolist() == [5, 9, 8, 7]
        assert sess.run(v[::2].assign(0.0)).tolist() == [0, 9, 0, 7]
        assert sess.run(v).tolist() == [0, 9, 0, 7]


def test_parts_of_matrices_are_assigned() -> None:
    v = tf.Variable(np.arange(6.0).reshape(2, 3))
    row = tf.placeholder(tf.int32, [])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(v[1, ::2].assign([9.0, 8.0])).tolist() == [[0, 1, 2], [9, 4, 8]]
        assert sess.run(v[:, 1:2].assign([[0.0], [0.0]])).tolist() == [[0, 0, 2], [9, 0, 8]]
        assert sess.run(v[row].assign([1.0, 2.0, 3.0]), {row: 1}).tolist() == [[0, 0, 2], [1, 2, 3]]


def test_slices_are_added_to() -> None:
    v = tf.Variable([1, 2, 3])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(v[1].assign_add(5)).tolist() == [1, 7, 3]
        assert sess.run(v[:2].assign_sub([1, 1])).tolist() == [0, 6, 3]


def test_only_slices_of_variables_are_assigned() -> None:
    v = tf.Variable([1.0, 2.0])
    for t in (tf.constant([1.0])[0], v * 2, v[..., tf.newaxis][0]):
        assert not hasattr(t, "assign")
        with pytest.raises(AttributeError, match="only slices of variables have it"):
            t.assign_add(1.0)


def test_a_wrong_shape_is_an_error() -> None:
    v = tf.Variable([1.0, 2.0, 3.0])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError):
            sess.run(v[:2].assign([1.0, 2.0, 3.0]))
