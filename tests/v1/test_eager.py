"""`tf.enable_eager_execution`, `tf.function`, `tf.GradientTape`, `tf.autograph` and `tf.contrib.eager`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf


@pytest.fixture
def eager() -> Iterator[None]:
    tf.reset_default_graph()
    tf.enable_eager_execution()
    yield
    tf.disable_eager_execution()


def _collatz(n: Any) -> Any:
    steps = 0
    while n > 1:
        n = n // 2 if tf.equal(n % 2, 0) else 3 * n + 1
        steps += 1
    return steps


def test_eager_execution(eager: None) -> None:
    assert tf.executing_eagerly()
    assert (tf.constant([1.0, 2.0]) * 2.0).numpy().tolist() == [2, 4]
    v = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = tf.square(v)
    assert tape.gradient(y, v).numpy() == 6
    assert tf.function(_collatz)(tf.constant(27)).numpy() == 111
    assert tf.contrib.eager.defun(_collatz)(tf.constant(6)).numpy() == 8
    with tf.Graph().as_default():
        assert not tf.executing_eagerly()


def test_eager_execution_begins_before_the_first_operation() -> None:
    tf.reset_default_graph()
    tf.constant(1)
    with pytest.raises(ValueError, match="must be called at program startup"):
        tf.enable_eager_execution()
    tf.reset_default_graph()


def test_functions_and_tapes_in_the_default_graph() -> None:
    tf.reset_default_graph()
    f = tf.function(_collatz)
    y = f(tf.constant(27))
    assert y.graph is tf.get_default_graph()
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        z = x * x
    dz = tape.gradient(z, x)
    with tf.Session() as sess:
        assert sess.run([y, dz]) == [111, 6]


def test_conversion() -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        y = tf.autograph.to_graph(_collatz)(tf.constant(6))
        assert sess.run(y) == 8
    assert "while_" in tf.autograph.to_code(_collatz)


def test_arguments_of_function() -> None:
    f = tf.function(input_signature=[tf.TensorSpec([None], tf.float32)], autograph=False)(lambda x: x + 1)
    with tf.Graph().as_default(), tf.Session() as sess:
        np.testing.assert_array_equal(sess.run(f(tf.constant([1.0]))), [2])
    with pytest.raises(TypeError, match="unexpected keyword argument 'inputs'"):
        tf.function(_collatz, inputs=1)


def test_an_optimizer_counts_the_global_step(eager: None) -> None:
    v = tf.Variable(1.0)
    step = tf.train.get_or_create_global_step()
    assert tf.train.get_or_create_global_step() is step
    for i in range(2):
        with tf.GradientTape() as tape:
            loss = v * v
        optimizer = tf.train.GradientDescentOptimizer(0.25)
        optimizer.apply_gradients([(tape.gradient(loss, v), v)], global_step=step)
        assert (int(step), float(v)) == (i + 1, 0.5 ** (i + 1))
