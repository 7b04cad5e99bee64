"""Layers in Keras's style, with the names of TensorFlow 2.21 (tf_keras 2.21)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf

pytestmark = pytest.mark.one_engine

L = tf.layers
style = L.experimental.keras_style_scope


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()


def names(variables: Iterable[Any]) -> str:
    return " ".join(v.name.removesuffix(":0") for v in variables)


def test_layers_of_one_name_have_variables_of_their_own() -> None:
    x = tf.ones([2, 3])
    with style():
        a, b = L.Dense(4, name="d"), L.Dense(4, name="d")
        y = a(x)
        b(x)
        again = a(x)
    assert (y.name, names(a.weights), names(b.weights)) == ("d/BiasAdd:0", "d/kernel d/bias", "d_1/kernel d_1/bias")
    assert names(tf.global_variables()) == names(tf.trainable_variables()) == "d/kernel d/bias d_1/kernel d_1/bias"
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first, second = session.run([y, again])
    assert np.array_equal(first, second)


def test_names_of_layers_without_one() -> None:
    x = tf.ones([2, 3])
    with style():
        a, b, c = L.Dense(4), L.Dense(4), L.Conv2D(2, 3)
        assert (a(x).name, b(x).name, a(x).name) == ("dense_1/BiasAdd:0", "dense_2/BiasAdd:0", "dense_1_1/BiasAdd:0")
        c(tf.ones([1, 5, 5, 1]))
        with tf.variable_scope("outer", initializer=tf.ones_initializer()), tf.name_scope("ns"):
            d = L.Dense(4)
            d(x)
        cells = [tf.nn.rnn_cell.BasicRNNCell(3), tf.nn.rnn_cell.BasicRNNCell(3)]
        out = [cell(x, x)[0] for cell in cells]
    assert names(d.weights) == "outer/ns/dense_3/kernel outer/ns/dense_3/bias"
    assert names(c.weights) == "conv2d_1/kernel conv2d_1/bias"
    assert names(cells[1].weights) == "basic_rnn_cell_2/kernel basic_rnn_cell_2/bias"
    assert out[0].name == "basic_rnn_cell_1/Tanh:0"
    late, other = b(x), L.Dense(4)  # the style is that of the time when the layer was made
    other(x)
    assert (late.name, names(other.weights)) == ("dense_2_1/BiasAdd:0", "dense/kernel dense/bias")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(d.kernel).std() > 0  # the initializer of the variable scope has no effect


def test_collections() -> None:
    x = tf.ones([2, 3])
    with style():
        norm, dense = L.BatchNormalization(name="b"), L.Dense(4, kernel_regularizer=tf.reduce_sum)
        norm(x, training=True)
        dense(x)
    assert names(norm.weights) == "b/gamma b/beta b/moving_mean b/moving_variance"
    assert names(norm.trainable_weights) == "b/gamma b/beta"
    assert (tf.get_collection("update_ops"), len(norm.updates)) == ([], 2)
    assert names(dense.losses) == "dense_1/kernel/Regularizer/Sum"
    assert len(tf.get_collection("regularization_losses")) == 1


def test_scopes_and_reuse_are_refused() -> None:
    x = tf.ones([2, 3])
    with tf.variable_scope("v"):
        L.Dense(4, name="d")(x)
    with tf.variable_scope("v", reuse=True), style():
        own = L.Dense(4, name="d")
        own(x)
    assert names(own.weights) == "v_1/d/kernel v_1/d/bias"
    with style():
        for make, match in (
            (lambda: L.dense(x, 4, name="q"), "scope argument not allowed .* saw: q"),
            (lambda: L.Dense(4, _scope="s"), "scope argument not allowed .* saw: s"),
            (lambda: L.Dense(4, _reuse=True), "reuse argument not allowed .* saw: True"),
            (lambda: tf.nn.rnn_cell.GRUCell(3, reuse=True), "reuse argument not allowed .* saw: True"),
        ):
            with pytest.raises(ValueError, match=match):
                make()


def test_the_style_of_all_later_layers() -> None:
    L.experimental.set_keras_style()
    for _ in range(2):
        L.Dense(4, name="d")(tf.ones([2, 3]))
    assert names(tf.global_variables()) == "d/kernel d/bias d_1/kernel d_1/bias"
