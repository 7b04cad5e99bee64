"""Functions of eager tensors in graphs: permitted operations, and gradients.

The gradients are compared with those of ops in a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import thresholds
from headrace.errors import InvalidArgumentError, UnknownError

X = np.array([0.5, 2.0], np.float32)


def check(compute: Callable[[Any, Callable[..., Any]], Any], m: Any = hr) -> None:
    """Checks that `compute(x, call)` has one value and one gradient for both calls.

    One `call` is a py_function, and the other makes ops.
    """
    found = []
    for as_function in (True, False):

        def call(f: Callable[..., Any], *args: Any, as_function: bool = as_function) -> Any:
            y = m.py_function(f, list(args), m.float32) if as_function else f(*args)
            y.set_shape(args[0].shape)
            return y

        with m.Graph().as_default() as g:
            x = m.placeholder(m.float32, (2,))
            y = compute(x, call)
            fetches = [y, *m.gradients(y, [x])]
        for engine in ("auto", "interpret"):
            with hr.Session(graph=g, engine=engine) as session:
                found.append(session.run(fetches, {x: X}))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("m", [hr, tf])
def test_gradients_in_straight_graphs_loops_and_branches(m: Any) -> None:
    def f(v: Any) -> Any:
        return m.sin(v) * v + m.reduce_sum(v)

    def loop(x: Any, call: Callable[..., Any]) -> Any:
        return m.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, call(f, v)), (0, x))[1]

    check(lambda x, call: call(f, x), m)
    check(lambda x, call: call(f, call(f, x)) * x, m)
    check(loop, m)
    check(lambda x, call: m.map_fn(lambda v: call(lambda v: v * v * v, v), x), m)
    check(lambda x, call: m.cond(m.reduce_sum(x) > 0, lambda: call(f, x), lambda: x), m)


def test_several_results_and_arguments() -> None:
    def f(a: Any, n: Any, s: Any) -> Any:
        assert s.numpy() == b"s"
        return [a * hr.cast(n, hr.float32), n + 1, hr.reduce_sum(a, keepdims=True) * 2.0]

    with hr.Graph() as g:
        a, b = hr.constant(X), hr.constant(3)
        y, n, z = hr.py_function(f, [a, b, "s"], [hr.float32, hr.int32, hr.float32])
        assert (y.shape, n.dtype) == (None, hr.int32)
        (of_all,) = hr.gradients([y, z], [a])
        (of_one,) = hr.gradients(z, [a])
        assert of_all.shape == (2,)
    with hr.Session(graph=g) as session:
        assert [v.tolist() for v in session.run([y, n, z, of_all, of_one])] == [[1.5, 6], 4, [5], [5, 5], [2, 2]]


def test_pythons_control_flow_decides_what_is_differentiated() -> None:
    def f(x: Any) -> Any:
        while float(x) < 10:
            x = x * x
        return x if x.numpy() < 50 else -x

    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
        y = hr.py_function(f, [x], hr.float32)
        (dx,) = hr.gradients(y, [x])
    with hr.Session(graph=g) as session:
        assert session.run([y, dx], {x: 2.0}) == [16, 32]  # x to the 4th
        assert session.run([y, dx], {x: 3.0}) == [-81, -108]
        assert session.run([y, dx], {x: 20.0}) == [20, 1]


def test_what_is_no_op_counts_as_a_constant() -> None:
    with hr.Graph() as g:
        x = hr.constant(X)
        y = hr.py_function(lambda v: v * hr.constant(v.numpy()), [x], hr.float32)
        z = hr.py_function(lambda v: v.numpy() * 2, [x], hr.float32)
        fetches = [*hr.gradients(y, [x]), *hr.gradients(z, [x])]
    with hr.Session(graph=g) as session:
        assert [v.tolist() for v in session.run(fetches)] == [X.tolist(), [0, 0]]


def test_a_function_runs_once_for_its_value_and_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[float] = []

    def f(v: Any) -> Any:
        calls.append(float(v))
        return v * hr.random.uniform((), 1.0, 2.0)

    def run(n: int) -> None:
        with hr.Graph() as g:
            x = hr.constant(1.0)

            def body(i: Any, v: Any) -> Any:
                y = hr.py_function(f, [v], hr.float32)
                y.set_shape(())
                return i + 1, y

            y = hr.while_loop(lambda i, v: i < n, body, (0, x))[1]
            (dx,) = hr.gradients(y, [x])
        with hr.Session(graph=g) as session:
            value, slope = session.run([y, dx])
            np.testing.assert_allclose(slope, value, rtol=1e-5)

    run(3)
    assert len(calls) == 3
    monkeypatch.setattr(thresholds, "PY_FUNCTION_CALLS", 2)
    with pytest.raises(InvalidArgumentError, match="returned other values"):
        run(3)


def test_there_is_no_second_derivative() -> None:
    with hr.Graph():
        x = hr.constant(2.0)
        y = hr.py_function(lambda v: v * v, [x], hr.float32)
        (dx,) = hr.gradients(y, [x])
        with pytest.raises(LookupError, match="of first order"):
            hr.gradients(dx, [x])


def test_errors() -> None:
    with tf.Graph().as_default() as g:
        two = tf.py_function(lambda: (1, 2), [], tf.int32)
        text = tf.py_function(lambda: "a", [], tf.int32)
        op = tf.py_function(lambda: None, [], [])
        many = tf.py_function(lambda: [1.0], [], [tf.float32])
        variable = tf.py_function(lambda: tf.identity(v), [], tf.float32)
        v = tf.Variable(1.0)
    with hr.Session(graph=g) as session:
        with pytest.raises(InvalidArgumentError, match="returns 2 values, but expects to see 1"):
            session.run(two)
        with pytest.raises(InvalidArgumentError, match="TypeError"):
            session.run(text)
        assert session.run(op) is None
        assert session.run(many) == [1]
        with pytest.raises((InvalidArgumentError, UnknownError, hr.errors.GraphError)):
            session.run(variable)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="Expected func to be callable"):
        tf.py_function(3, [], tf.int32)


def test_functions_of_v1_run_at_once() -> None:
    def f(x: Any) -> Any:
        assert tf.executing_eagerly()
        assert tf.control_flow_v2_enabled()
        with tf.Graph().as_default() as inner:
            assert not tf.executing_eagerly()
            assert tf.constant(1.0).graph is inner
        with tf.name_scope("s"):
            return tf.matmul(x, x) + tf.ones((2, 2))

    with tf.Graph().as_default() as g:
        y = tf.py_function(f, [np.eye(2, dtype=np.float32)], tf.float32)
    n = len(tf.get_default_graph().get_operations())
    assert not tf.executing_eagerly()
    with hr.Session(graph=g) as session:
        assert session.run(y).tolist() == [[2, 1], [1, 2]]
    assert len(tf.get_default_graph().get_operations()) == n
