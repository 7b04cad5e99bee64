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


@pytest.mark.parametrize(
    ("ends", "total"),  # sums that TensorFlow 2.21 computes
    [
        ((2, 5, 1), 9),
        ((2, 2, 1), 0),
        ((5, 2, 1), 0),
        ((2, -3, 1), 0),
        ((5, 2, -1), 12),
        ((2, 5, -1), 0),
        ((0, 10, 3), 18),
    ],
)
@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_a_range_whose_limit_is_passed_has_no_iterations(ends: tuple[int, int, int], total: int, dtype: Any) -> None:
    def added(first: Any, limit: Any, step: Any) -> Any:
        s = tf.constant(0, dtype)
        for k in tf.range(first, limit, step):
            s += k
        return s

    with tf.Graph().as_default(), tf.Session() as session:
        given = [tf.placeholder(dtype, []) for _ in ends]
        made = tf.autograph.to_graph(added)
        assert session.run(made(*given), dict(zip(given, ends, strict=True))) == total
        assert session.run(made(ends[0], given[1], ends[2]), {given[1]: ends[1]}) == total


# An optimizer -> v and w after three steps, as TensorFlow 2.21 computes them (float32).
TRAINED: dict[str, tuple[Any, list[float]]] = {
    "descent": (lambda: tf.train.GradientDescentOptimizer(0.1), [0.10319999, 0.20639998, 2.4]),
    "momentum": (lambda: tf.train.MomentumOptimizer(0.1, 0.9), [-0.87203991, -1.74407983, 1.4351999]),
    "adagrad": (lambda: tf.train.AdagradOptimizer(0.1), [0.78345925, 1.77865863, 2.7821629]),
    "rmsprop": (lambda: tf.train.RMSPropOptimizer(0.1, centered=True), [0.40088892, 1.29260862, 2.41182685]),
    "ftrl": (lambda: tf.train.FtrlOptimizer(0.1), [0.7385205, 1.73158765, 2.59672523]),
    "adam": (lambda: tf.train.AdamOptimizer(lambda: 0.1), [0.70229322, 1.70116496, 2.70190668]),
}


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("how", ["list", "none", "pairs", "tape"])
def test_optimizers_step_at_once(eager: None, name: str, how: str) -> None:
    make, trained = TRAINED[name]
    v, w, optimizer = tf.Variable([1.0, 2.0]), tf.Variable(3.0), make()
    steps = tf.train.get_or_create_global_step()

    def loss() -> Any:
        return tf.reduce_sum(v * v) * w

    for _ in range(3):
        if how == "tape":
            with tf.GradientTape() as tape:
                y = loss()
            optimizer.apply_gradients(zip(tape.gradient(y, [v, w]), [v, w], strict=True), steps)
        elif how == "pairs":
            optimizer.apply_gradients(optimizer.compute_gradients(loss, [v, w]), global_step=steps)
        else:
            assert optimizer.minimize(loss, steps, var_list=[v, w] if how == "list" else None) is None
    np.testing.assert_allclose([*v.numpy(), w.numpy()], trained, rtol=1e-6)
    assert steps.numpy() == 3
    assert tf.train.get_global_step() is steps
    assert all(slot.graph is None for slot in optimizer.variables())


def test_get_variable_makes_a_variable_each_time(eager: None) -> None:
    a, b = (tf.get_variable("g", [2], initializer=tf.zeros_initializer()) for _ in range(2))
    assert (a is b, a.name, a.numpy().tolist()) == (False, "g:0", [0.0, 0.0])
    for reuse in (None, True, tf.AUTO_REUSE):  # TensorFlow ignores it, too
        with tf.variable_scope("s", reuse=reuse):
            c = tf.get_variable("h", initializer=2.0)
        assert (c.name, c.numpy()) == ("s/h:0", 2.0)
    tf.train.get_or_create_global_step()
    assert tf.global_variables() == tf.trainable_variables() == []
    with pytest.raises(ValueError, match='"global_step" already exists'):
        tf.train.create_global_step()


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
