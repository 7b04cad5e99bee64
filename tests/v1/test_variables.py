"""Variables, get_variable, scopes, initializers."""

from __future__ import annotations

import numpy as np
import pytest

import headrace.v1 as tf


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def values(*tensors: object) -> list[np.ndarray]:
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        return sess.run(list(tensors))


def test_default_initializers() -> None:
    a = tf.get_variable("a", [3, 5])
    b = tf.get_variable("b", [2], tf.int64)
    c = tf.get_variable("c", [2], tf.bool)
    d = tf.get_variable("d", [2], tf.string)
    x, y, z, texts = values(a, b, c, d)
    assert texts.tolist() == [b"", b""]
    assert np.abs(x).max() <= np.sqrt(6 / 8)
    assert x.std() > 0
    assert (y.dtype, y.tolist(), z.tolist()) == (np.int64, [0, 0], [False, False])
    with pytest.raises(ValueError, match="An initializer for variable e of complex64 is required"):
        tf.get_variable("e", [], tf.complex64)


def test_a_value_as_initializer() -> None:
    a = tf.get_variable("a", initializer=[1, 2, 3])
    b = tf.get_variable("b", initializer=np.ones(2))
    assert (a.dtype.base_dtype, b.dtype.base_dtype) == (tf.int32, tf.float64)
    assert values(a)[0].tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="do not specify shape"):
        tf.get_variable("c", [2], initializer=[1, 2])
    with pytest.raises(ValueError, match="fully defined"):
        tf.get_variable("d", [None, 2])


def test_what_exists_and_what_does_not() -> None:
    v = tf.get_variable("v", [2])
    with pytest.raises(ValueError, match=r"already exists, disallowed.*test_variables\.py"):
        tf.get_variable("v", [2])
    with tf.variable_scope("", reuse=True):
        assert tf.get_variable("v") is v
        with pytest.raises(ValueError, match=r"specified shape \(3,\) and found shape \(2,\)"):
            tf.get_variable("v", [3])
        with pytest.raises(ValueError, match="specified dtype int32 and found dtype float32"):
            tf.get_variable("v", [2], tf.int32)
        with pytest.raises(ValueError, match=r"does not exist.*There is v"):
            tf.get_variable("vv")


def test_reuse_is_inherited_and_is_not_taken_back() -> None:
    with tf.variable_scope("a"):
        v = tf.get_variable("b/v", [1])
    with tf.variable_scope("a", reuse=True), tf.variable_scope("b", reuse=False):
        assert tf.get_variable("v") is v
    assert not tf.get_variable_scope().reuse
    with pytest.raises(ValueError, match="reuse"):
        tf.variable_scope("x", reuse="yes").__enter__()
    with pytest.raises(ValueError, match="name_or_scope"):
        tf.variable_scope(None, "x", reuse=True).__enter__()
    with pytest.raises(TypeError, match="default_name"):
        tf.variable_scope(None).__enter__()


def test_default_names_begin_anew_in_each_scope() -> None:
    names = []
    for outer in ("a", "a", "b"):
        with tf.variable_scope(outer):
            for _ in range(2):
                with tf.variable_scope(None, "d") as scope:
                    names.append(scope.name)
    assert names == ["a/d", "a/d_1", "a/d", "a/d_1", "b/d", "b/d_1"]


def test_scopes_hand_down_defaults() -> None:
    with tf.variable_scope("a", initializer=tf.constant_initializer(3), dtype=tf.float64):
        with tf.variable_scope("b"):
            v = tf.get_variable("v", [1])
        with tf.variable_scope("c", initializer=tf.zeros_initializer):
            w = tf.get_variable("w", [1], tf.float32)
    assert (v.dtype.base_dtype, w.dtype.base_dtype) == (tf.float64, tf.float32)
    assert [x.tolist() for x in values(v, w)] == [[3.0], [0.0]]


def test_custom_getters_nest() -> None:
    seen = []

    def getter(which: str):
        def get(getter, name, *args, **kwargs):
            seen.append((which, name))
            return getter(name, *args, **kwargs)

        return get

    with tf.variable_scope("a", custom_getter=getter("outer")), tf.variable_scope("b", custom_getter=getter("inner")):
        v = tf.get_variable("v", [])
    assert seen == [("inner", "a/b/v"), ("outer", "a/b/v")]
    assert v.name == "a/b/v:0"


# what TensorFlow 2.21 draws for set_random_seed(42) and seed=7: the first row of a variable of shape [2, 3]
DRAWN = {
    "random_normal_initializer": [-0.452742, -0.300408, -0.0788286],
    "truncated_normal_initializer": [-0.452742, -0.300408, -0.0788286],
    "random_uniform_initializer": [0.8627668, 0.6567628, 0.9905474],
    "variance_scaling_initializer": [-0.363946, -0.241489, -0.0633681],
    "glorot_uniform_initializer": [0.794784, 0.34345, 1.07473],
    "glorot_normal_initializer": [-0.325524, -0.215995, -0.0566782],
    "uniform_unit_scaling_initializer": [0.888596, 0.383988, 1.20159],
}


@pytest.mark.parametrize("name", DRAWN)
def test_initializers_draw_tensorflows_numbers(name: str) -> None:
    tf.set_random_seed(42)
    (got,) = values(tf.get_variable("v", [2, 3], initializer=getattr(tf, name)(seed=7)))
    np.testing.assert_allclose(got[0], DRAWN[name], rtol=2e-5)


def test_random_ops_draw_tensorflows_numbers() -> None:
    """Without seeds of their own: the seed of each is its number."""
    tf.set_random_seed(42)
    drawn = values(
        tf.random_normal([2]), tf.random_uniform([2]), tf.random_uniform([2], 0, 10, tf.int32),
        tf.random_uniform([2], 1.0, 2.0), tf.truncated_normal([2]), tf.random_shuffle([1, 2, 3, 4, 5]),
        tf.multinomial([[0.0, 1.0, 2.0]], 4),
    )  # fmt: skip
    recorded = [[-0.301016, 0.518592], [0.150128, 0.639925], [8, 4], [1.6379, 1.16048], [-0.56449, 1.01191],
                [3, 2, 5, 4, 1], [[2, 2, 2, 1]]]  # fmt: skip
    for got, want in zip(drawn, recorded, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5)


def test_constants() -> None:
    a = tf.get_variable("a", [2, 3], initializer=tf.constant_initializer([1, 2, 3, 4]))
    b = tf.get_variable("b", [2, 2], initializer=tf.initializers.identity(gain=2.0))
    c = tf.get_variable("c", [2], tf.int32, initializer=tf.ones_initializer)
    assert [x.tolist() for x in values(a, b, c)] == [[[1, 2, 3], [4, 4, 4]], [[2, 0], [0, 2]], [1, 1]]
    for wrong in ([1, 2, 3], "x"):
        with pytest.raises((TypeError, ValueError)):
            tf.constant_initializer(wrong, verify_shape=True)([2], tf.float32)


def test_initializers_describe_themselves() -> None:
    made = tf.variance_scaling_initializer(2.0, "fan_out", "uniform", seed=3)
    again = type(made).from_config(made.get_config())
    assert vars(again) == vars(made)
    with pytest.raises(ValueError, match="fan_"):
        tf.variance_scaling_initializer(mode="fan")


def test_uninitialized_variables_are_reported() -> None:
    a, b = tf.Variable(1, name="a"), tf.Variable(2, name="b")
    report = tf.report_uninitialized_variables()
    check = tf.assert_variables_initialized([a, b])
    with tf.Session() as sess:
        assert sess.run(report).tolist() == [b"a", b"b"]
        sess.run(a.initializer)
        assert sess.run(report).tolist() == [b"b"]
        with pytest.raises(tf.errors.FailedPreconditionError, match="b"):
            sess.run(check)
        sess.run(tf.initialize_all_variables())
        assert sess.run(report).tolist() == []
        sess.run(check)


def test_nothing_to_initialize() -> None:
    assert tf.global_variables_initializer().type == "NoOp"
    assert tf.assert_variables_initialized() is None
    with tf.Session() as sess:
        assert sess.run(tf.report_uninitialized_variables()).tolist() == []


def test_updates() -> None:
    v = tf.Variable([1.0, 2.0, 3.0], name="v")
    w = tf.Variable(0, dtype=tf.int64)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(tf.assign(v, [4.0, 5.0, 6.0])).tolist() == [4, 5, 6]
        assert sess.run(tf.assign_add(v, [1.0, 1.0, 1.0])).tolist() == [5, 6, 7]
        assert sess.run(tf.scatter_add(v, [0, 0], [1.0, 1.0])).tolist() == [7, 6, 7]
        assert sess.run(tf.scatter_update(v, [1], [0.0])).tolist() == [7, 0, 7]
        assert [int(sess.run(tf.count_up_to(w, 2))) for _ in range(2)] == [0, 1]
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(tf.count_up_to(w, 2))
        assert sess.run(v[0] + 1.0) == 8
        assert sess.run([v > 1.0, -v, 2.0 - v])[1].tolist() == [-7, 0, -7]
    with pytest.raises(ValueError, match="Dimensions must be equal, but are 3 and 1"):
        tf.assign(v, [1.0])
    with pytest.raises((TypeError, ValueError), match="initial_value"):
        tf.Variable()
