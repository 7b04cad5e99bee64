"""`tf.gradients` and what belongs to it, where the program of tests/v1/programs does not show it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import headrace.v1 as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def test_the_names_and_places_of_all_arguments() -> None:
    x = tf.placeholder(tf.float32, [], name="x")
    (d,) = tf.gradients(
        [x * x],
        [x],
        [2.0],
        "mine",
        True,
        True,
        tf.AggregationMethod.EXPERIMENTAL_TREE,
        [],
        tf.UnconnectedGradients.ZERO,
    )
    assert d.name.startswith("mine/")
    assert tf.Session().run(d, {x: 3.0}) == 12.0


def test_integers_have_no_path() -> None:
    n = tf.placeholder(tf.int32, [])
    assert tf.gradients(tf.cast(n, tf.float32), n) == [None]
    x = tf.placeholder(tf.float32, [])
    assert tf.gradients(tf.cast(x, tf.int32), x) == [None]


def test_loops_without_back_prop_are_constants() -> None:
    x = tf.placeholder(tf.float32, [])
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), [0, x], back_prop=False)
    assert tf.gradients(y, x) == [None]
    assert tf.Session().run(tf.gradients(y + x, x), {x: 2.0}) == [1.0]


def test_hessians_of_what_is_not_there() -> None:
    x = tf.placeholder(tf.float32, [2])
    with pytest.raises(ValueError, match="no y depends on"):
        tf.hessians(tf.constant(1.0), x)


def test_in_the_implicit_graph() -> None:
    @tf.custom_gradient
    def tripled(x):
        return x * 1.0, lambda dy: dy * 3

    def call() -> None:
        y = tripled(2.0)
        assert isinstance(y, tf.Tensor)
        assert y.graph is tf.get_default_graph()

    with ThreadPoolExecutor(1) as pool:  # a new thread has entered no graph
        pool.submit(call).result()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(tf.reset_default_graph).result()


def test_not_differentiable_by_name() -> None:
    tf.NotDifferentiable("tests.v1.Nothing")
    x = tf.placeholder(tf.float32, [])
    with tf.get_default_graph().gradient_override_map({"Sin": "tests.v1.Nothing"}):
        y = tf.sin(x)
    assert tf.gradients(y, x) == [None]
    with pytest.raises(KeyError, match="Sin"):
        tf.NotDifferentiable("Sin")


def test_compute_gradient_of_complex_numbers() -> None:
    z = tf.placeholder(tf.complex64, [2])
    at = np.complex64([1 + 2j, 3 - 1j])
    with tf.Session():
        by_gradient, by_differences = tf.test.compute_gradient(z, [2], z * z, [2], at, delta=0.0078125)
    # the derivative of z^2 is 2 z = a + i b: rows are Re z, Im z, columns Re y, Im y
    want = np.zeros((4, 4))
    for k, d in enumerate(2 * at):
        want[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = [[d.real, d.imag], [-d.imag, d.real]]
    np.testing.assert_allclose(by_gradient, want)
    np.testing.assert_allclose(by_differences, want, atol=1e-3)


def test_compute_gradient_finds_what_is_wrong() -> None:
    @tf.custom_gradient
    def wrong(x):
        return tf.square(x), lambda dy: dy * x

    x = tf.placeholder(tf.float32, [])
    with tf.Session():
        assert tf.test.compute_gradient_error(x, [], wrong(x), [], np.float32(3)) == pytest.approx(3, abs=1e-2)
        assert tf.test.compute_gradient_error(x, [], tf.square(x), []) < 1e-2


def test_compute_gradient_says_what_it_needs() -> None:
    x = tf.placeholder(tf.float32, [])
    with pytest.raises(ValueError, match="default session"):
        tf.test.compute_gradient(x, [], x, [])
    with tf.Session():
        with pytest.raises(ValueError, match=r"shape \(1,\), but x_shape = \(\)"):
            tf.test.compute_gradient(x, [], x * x, [], np.zeros(1))
        with pytest.raises(ValueError, match="does not depend"):
            tf.test.compute_gradient(x, [], tf.constant(1.0), [])
        n = tf.placeholder(tf.int32, [])
        with pytest.raises(TypeError, match="no gradients"):
            tf.test.compute_gradient(n, [], x, [])


def test_recompute_grad() -> None:
    def f(x):
        return tf.sin(tf.sin(x))

    x = tf.placeholder(tf.float32, [])
    d = tf.gradients(tf.recompute_grad(f)(x), x) + tf.gradients(f(x), x)
    first, second = tf.Session().run(d, {x: 0.5})
    assert first == second


def test_hessians_of_a_variable() -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        v = tf.Variable([1.0, 2.0])
        (h,) = tf.hessians(tf.reduce_sum(v) ** 3, v)
        sess.run(tf.global_variables_initializer())
        assert h.shape == (2, 2)
        assert sess.run(h).tolist() == [[18.0, 18.0], [18.0, 18.0]]
