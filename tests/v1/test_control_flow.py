"""Conditionals and loops with TensorFlow 1's names and results."""

from __future__ import annotations

import pytest

import headrace.v1 as tf


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def test_names_are_tensorflow_1s() -> None:
    x = tf.placeholder(tf.float32, [], name="x")
    a = tf.cond(x > 0.0, lambda: x + 1.0, lambda: x - 1.0)
    b = tf.while_loop(lambda i: i < 3.0, lambda i: i + 1.0, [x])
    c, d = tf.while_loop(lambda i, j: i < 3.0, lambda i, j: (i + 1.0, j), [x, x], name="two")
    with tf.name_scope("s"):
        e = tf.cond(x > 0.0, lambda: x, lambda: -x)
    assert [t.name for t in (a, b, c, d, e)] == [
        "cond/Merge:0", "while/Exit:0", "two/Exit:0", "two/Exit_1:0", "s/cond/Merge:0",
    ]  # fmt: skip
    graph = tf.get_default_graph()
    assert graph.get_tensor_by_name("two/Exit_1:0") is d
    with tf.Session() as sess:
        assert sess.run(["cond/Merge:0", "two/Exit_1:0"], {"x:0": 1.0}) == [2.0, 1.0]


def test_a_single_result_is_unpacked_unless_strict() -> None:
    p = tf.placeholder(tf.bool, [])
    plain = tf.cond(p, lambda: [tf.constant(1)], lambda: [tf.constant(2)])
    strict = tf.cond(p, lambda: [tf.constant(1)], lambda: [tf.constant(2)], strict=True)
    assert isinstance(plain, tf.Tensor)
    assert isinstance(strict, list)
    one = tf.while_loop(lambda i: i < 2, lambda i: i + 1, [0])
    kept = tf.while_loop(lambda i: i < 2, lambda i: i + 1, [0], return_same_structure=True)
    assert isinstance(one, tf.Tensor)
    assert isinstance(kept, list)


def test_old_and_missing_arguments() -> None:
    p = tf.placeholder(tf.bool, [])
    old = tf.cond(p, fn1=lambda: tf.constant(1), fn2=lambda: tf.constant(2))
    with tf.Session() as sess:
        assert sess.run(old, {p: True}) == 1
    with pytest.raises(TypeError, match="false_fn"):
        tf.cond(p, lambda: 1)
    with pytest.raises(TypeError, match="twice"):
        tf.cond(p, lambda: 1, lambda: 2, fn1=lambda: 3)
    with pytest.raises(TypeError, match="must not be a Python bool"):
        tf.cond(True, lambda: 1, lambda: 2)


def test_only_what_is_fetched_runs() -> None:
    v = tf.Variable(0)

    def branch() -> tf.Tensor:
        tf.assign_add(v, 100)  # without a consumer
        with tf.control_dependencies([tf.assign_add(v, 1)]):
            return tf.constant(True)

    p = tf.placeholder(tf.bool, [])
    done = tf.cond(p, branch, lambda: tf.constant(False))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(done, {p: True})
        assert sess.run(v) == 1
        sess.run(done, {p: False})
        assert sess.run(v) == 1


def test_a_variable_made_in_a_loop_stands_outside_it() -> None:
    def body(i: tf.Tensor) -> tf.Tensor:
        v = tf.get_variable("v", [], tf.int32, tf.ones_initializer())
        return i + v

    with tf.variable_scope("s", reuse=tf.AUTO_REUSE):
        out = tf.while_loop(lambda i: i < 5, body, [0])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(out) == 5
    assert [v.name for v in tf.global_variables()] == ["s/v:0"]


def test_shape_invariants_may_be_tensor_shapes() -> None:
    x = tf.while_loop(
        lambda x: tf.size(x) < 5, lambda x: tf.concat([x, x], 0), [tf.constant([1])], [tf.TensorShape([None])]
    )
    assert x.get_shape().as_list() == [None]
    with tf.Session() as sess:
        assert sess.run(x).tolist() == [1] * 8
