"""`named`: TensorFlow 1's argument names for headrace's functions; and functions that TensorFlow 1 alone has."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import headrace.v1 as tf
from headrace.v1.arguments import named


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def target(x: object, axis: object = "none", keep: bool = False, name: str = "unnamed") -> tuple[object, ...]:
    return x, axis, keep, name


f = named(target, "x axis name dim=axis keep validate!", "tf.f")


def test_names_order_and_defaults() -> None:
    assert f(1) == (1, "none", False, "unnamed")
    assert f(1, 2, "n") == (1, 2, False, "n")
    assert f(1, dim=2, keep=True) == (1, 2, True, "unnamed")
    assert f(1, axis=None, dim=2) == (1, 2, False, "unnamed"), "None is as good as nothing"
    assert f(1, validate="whatever") == f(1)
    assert list(inspect.signature(f).parameters) == ["x", "axis", "name", "dim", "keep", "validate"]
    assert f.__name__ == "f"


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1, 2), {"dim": 3}, "'axis' twice: as 'axis' and as 'dim'"),
        ((1, 2), {"axis": 3}, "twice"),
        ((1,), {"axes": 3}, "no argument 'axes'; it has x, axis, name"),
        ((1, 2, 3, 4, 5, 6, 7), {}, "at most 6"),
    ],
)
def test_wrong_arguments(args: tuple[object, ...], kwargs: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        f(*args, **kwargs)


def test_what_headrace_cannot_do_is_refused() -> None:
    g = named(target, "x policy name")
    assert g(1, None, "n") == (1, "none", False, "n")
    with pytest.raises(TypeError, match="leave policy out"):
        g(1, "clip")


def run(*tensors: object) -> list[object]:
    with tf.Session() as sess:
        return [v.tolist() for v in sess.run(list(tensors))]


def test_division_of_python_2() -> None:
    assert run(tf.div([7, -7], 2), tf.div([7.0, -7.0], 2.0), tf.realdiv([1.0], 4.0)) == [[3, -4], [3.5, -3.5], [0.25]]


def test_where_chooses_rows_and_does_not_broadcast() -> None:
    x, y = tf.constant([[1, 2], [3, 4]]), tf.constant([[5, 6], [7, 8]])
    assert run(tf.where([True, False], x, y), tf.where_v2([True, False], x, y)) == [[[1, 2], [7, 8]], [[1, 6], [3, 8]]]
    with pytest.raises(ValueError, match="both"):
        tf.where([True], x)


def test_names_that_tensorflow_2_has_not() -> None:
    x = tf.constant([[1.0, 4.0], [3.0, 2.0]])
    assert run(
        tf.to_int32(x), tf.arg_max(x, 1), tf.reduce_max(x, reduction_indices=[0], keep_dims=True),
        tf.diag([1, 2]), tf.matrix_diag([1, 2]), tf.scalar_mul(2.0, x), tf.lin_space(0.0, 1.0, 3),
        tf.substr(["hello"], [1], [3]), tf.nn.xw_plus_b(x, x, [1.0, 1.0]), tf.nn.crelu([-1.0, 2.0]),
    ) == [
        [[1, 4], [3, 2]], [1, 0], [[3.0, 4.0]], [[1, 0], [0, 2]], [[1, 0], [0, 2]], [[2.0, 8.0], [6.0, 4.0]],
        [0.0, 0.5, 1.0], [b"ell"], [[14.0, 13.0], [10.0, 17.0]], [0.0, 2.0, 1.0, 0.0],
    ]  # fmt: skip


def test_dropout_keeps_or_drops() -> None:
    tf.set_random_seed(1)
    x = tf.ones([1000])
    a, b = tf.nn.dropout(x, 0.25), tf.nn.dropout(x, rate=0.25)
    with tf.Session() as sess:
        kept, dropped = sess.run([a, b])
    assert set(np.unique(kept)) == {0.0, 4.0}
    assert 150 < np.count_nonzero(kept) < 350
    assert 650 < np.count_nonzero(dropped) < 850
    with pytest.raises(ValueError, match="one of the two"):
        tf.nn.dropout(x, 0.5, rate=0.5)


def test_checks() -> None:
    x = tf.placeholder(tf.float32, name="x")
    y = tf.placeholder(tf.int32, [None, 2])
    checks = {
        "x > 0": tf.assert_positive(x), "rank in": tf.assert_rank_in(x, [0, 2]), "same": tf.assert_equal(y, y),
        "rising": tf.Assert(tf.is_strictly_increasing(y), [y]),
    }  # fmt: skip
    with tf.Session() as sess:
        sess.run(list(checks.values()), {x: 1.0, y: [[1, 2], [3, 4]]})
        for which, feed in (("x > 0", {x: -1.0}), ("rank in", {x: [1.0]}), ("rising", {y: [[1, 1]]})):
            with pytest.raises(tf.errors.InvalidArgumentError):
                sess.run(checks[which], feed)
    assert tf.assert_rank_in(y, [2]).type == "NoOp"
    assert tf.assert_same_float_dtype([x, x]) is tf.float32
    for error, check in (
        (ValueError, lambda: tf.assert_rank_in(y, [1, 3])), (TypeError, lambda: tf.assert_integer(x)),
        (TypeError, lambda: tf.assert_type(y, tf.float32)), (ValueError, lambda: tf.assert_scalar(y)),
        (TypeError, lambda: tf.assert_proper_iterable(y)), (ValueError, lambda: tf.assert_same_float_dtype([x, y])),
    ):  # fmt: skip
        with pytest.raises(error, match=r"\w"):
            check()


def test_a_template_makes_its_variables_once() -> None:
    def layer(x: tf.Tensor, factor: float) -> tf.Tensor:
        return x * factor * tf.get_variable("w", [], initializer=tf.ones_initializer())

    double = tf.make_template("layer", layer, factor=2.0)
    other = tf.make_template("layer", layer, factor=3.0)
    first, second, third = double(1.0), double(10.0), other(1.0)
    assert [v.name for v in tf.global_variables()] == ["layer/w:0", "layer_1/w:0"]
    assert [v.name for v in double.variables] == ["layer/w:0"]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run([first, second, third]) == [2.0, 20.0, 3.0]
