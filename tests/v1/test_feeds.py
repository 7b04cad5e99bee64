"""Feeds of `headrace.v1`, converted as TensorFlow 1 converts them.

A variable is fed by itself or its name.
"""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def given_back(dtype: Any, value: Any) -> Any:
    """`value`, fed for a tensor of `dtype`, and fetched."""
    p = tf.placeholder(dtype)
    with tf.Session() as sess:
        return sess.run(tf.identity(p), {p: value})


# As recorded from TensorFlow: value fed -> value fetched.
_CONVERTED: list[tuple[Any, Any, Any]] = [
    (tf.int32, np.array([1.5, 2.5]), [1, 2]),
    (tf.int32, np.float64(2.7), 2),
    (tf.int32, -1.5, -1),
    (tf.int32, "3", 3),
    (tf.int32, ["1", "2"], [1, 2]),
    (tf.int32, [2**31], [-(2**31)]),
    (tf.int32, np.int64(2**40), 0),
    (tf.int32, np.array([2**40, 1]), [0, 1]),
    (tf.int32, decimal.Decimal("1.5"), 1),
    (tf.int32, True, 1),
    (tf.uint8, -1.5, 255),
    (tf.bool, 1, True),
    (tf.bool, 3.7, True),
    (tf.bool, [0, 2], [False, True]),
    (tf.bool, "x", True),
    (tf.bool, None, False),
    (tf.float32, "3.5", 3.5),
    (tf.float32, b"3.5", 3.5),
    (tf.float32, 2**63, 2.0**63),
    (tf.float32, [None, 1.0], [np.nan, 1.0]),
    (tf.float32, 1e40, np.inf),
    (tf.float32, np.array([1 + 2j], np.complex64), [1.0]),
    (tf.bfloat16, 2.7, 2.703125),
    (tf.string, np.array(["a", "b"]), [b"a", b"b"]),
    (tf.string, np.bytes_(b"q"), b"q"),
]


@pytest.mark.filterwarnings("ignore")  # of numpy's, on casts that lose something
@pytest.mark.parametrize(("dtype", "value", "want"), _CONVERTED)
def test_a_feed_is_converted_as_by_tensorflow(dtype: Any, value: Any, want: Any) -> None:
    got = given_back(dtype, value)
    np.testing.assert_array_equal(got, np.array(want, object if dtype == tf.string else dtype.as_numpy_dtype))
    if dtype == tf.string:
        assert type(np.asarray(got, object).ravel().tolist()[0]) is bytes
    else:
        assert got.dtype == dtype.as_numpy_dtype


# As recorded from TensorFlow: a ValueError, a TypeError or both are raised.
_REFUSED: list[tuple[Any, Any]] = [
    (tf.int32, 2**31),
    (tf.int8, 300),
    (tf.bool, 2),
    (tf.string, 1),
    (tf.int32, "3.5"),
    (tf.int32, None),
    (tf.int32, object()),
    (tf.float32, "x"),
    (tf.float32, [[1, 2], [3]]),
    (tf.float32, {1: 2}),
    (tf.float32, 10**400),
    (tf.bfloat16, None),
]


@pytest.mark.parametrize(("dtype", "value"), _REFUSED)
def test_a_feed_that_tensorflow_refuses_is_refused(dtype: Any, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="'Placeholder:0'"):
        given_back(dtype, value)


def test_a_python_int_that_does_not_fit_is_told_in_tensorflows_words() -> None:
    with pytest.raises(TypeError, match="Type of feed value 2147483648 with type <class 'int'> is not compatible"):
        given_back(tf.int32, 2**31)


def test_a_tensor_is_no_feed() -> None:
    with pytest.raises(TypeError, match="symbolic"):
        given_back(tf.float32, tf.constant(1.0))


def test_callables_and_partial_runs_convert_too() -> None:
    p, q = tf.placeholder(tf.int32, []), tf.placeholder(tf.int32, [])
    y = p + q
    with tf.Session() as sess:
        assert sess.make_callable(y, [p, q])(1.5, "2") == 3
        handle = sess.partial_run_setup([y], [p, q])
        assert sess.partial_run(handle, y, {p: np.float64(1.5), q: 2.5}) == 3


def test_a_fed_array_is_not_shared() -> None:
    a = np.array([1.0, 2.0])
    p = tf.placeholder(tf.float64)
    with tf.Session() as sess:
        got = sess.run(tf.identity(p), {p: a})
    got[0] = 7.0
    assert a.tolist() == [1.0, 2.0]


def test_a_variable_is_fed_by_itself_its_name_or_the_tensor_of_that_name() -> None:
    v = tf.Variable(1.0, name="v")
    w = v * 1.0
    with tf.Session() as sess:
        sess.run(v.initializer)
        for key in (v, "v:0", tf.get_default_graph().get_tensor_by_name("v:0")):
            assert sess.run([v, "v:0", w], {key: 5.0}) == [5.0, 5.0, 5.0]
        assert sess.run([v, w]) == [1.0, 1.0]
        with pytest.raises(tf.errors.InvalidArgumentError, match="which is fed"):
            sess.run(tf.assign(v, 2.0), {v: 5.0})
        with pytest.raises(ValueError, match="fed twice"):
            sess.run(w, {v: 5.0, "v:0": 5.0})


def test_a_fed_learning_rate_trains() -> None:
    w, rate = tf.Variable(1.0), tf.Variable(0.1, trainable=False)
    train = tf.train.GradientDescentOptimizer(rate).minimize(w * w)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(train, {rate: 0.5})
        assert sess.run(w) == 0.0


def test_a_fed_reference_variable_of_an_imported_graph_is_read_and_not_changed() -> None:
    def node(name: str, op: str, *inputs: str, **attrs: Any) -> Any:
        n = tf.NodeDef(name=name, op=op, input=inputs)
        for k, v in attrs.items():
            n.attr[k].CopyFrom(v)
        return n

    float_ = tf.AttrValue(type=1)
    scalar = tf.AttrValue()
    scalar.shape.SetInParent()
    graph_def = tf.GraphDef(
        node=[
            node("v", "VariableV2", dtype=float_, shape=scalar),
            node("read", "Identity", "v", T=float_),
            node("two", "AddV2", "read", "read", T=float_),
            node("assign", "Assign", "v", "two", T=float_),
        ]
    )
    tf.import_graph_def(graph_def, name="")
    with tf.Session() as sess:
        assert sess.run(["v:0", "two:0"], {"v:0": 5.0}) == [5.0, 10.0]
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"'assign' .* changes the variable 'v:0'"):
            sess.run("assign", {"v:0": 5.0})


def test_a_tuple_of_tensors_is_a_key() -> None:
    a, b, c = (tf.placeholder(tf.float32, []) for _ in range(3))
    total = a + 10 * b + 100 * c
    with tf.Session() as sess:
        assert sess.run(total, {(a, (b, c)): (1, (2, 3))}) == 321
        assert sess.run(total, {(a, b): [1, 2], (c,): (3,)}) == 321
        assert sess.run(a, {(a,): (5,)}) == 5
        handle = sess.partial_run_setup([total], [(a, b), c])
        assert sess.partial_run(handle, total, {(a, b): (1, 2), c: 3}) == 321
        for value in ((1, 2), 1.0, (1, 2, 3), ((1, 2), 3)):
            with pytest.raises(ValueError, match="Key had 2 elements, but value had"):
                sess.run(total, {(a, (b, c)): value})


def test_the_state_of_a_recurrent_network_is_a_key() -> None:
    cell = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.BasicLSTMCell(3) for _ in range(2)])
    x = tf.placeholder(tf.float32, [2, 1, 3])
    first = cell.zero_state(2, tf.float32)
    _, last = tf.nn.dynamic_rnn(cell, x, initial_state=first)
    ones = np.ones([2, 1, 3])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        once = sess.run(last, {x: ones})
        twice = sess.run(last, {x: ones, first: once})
        parts = {first[i][j]: once[i][j] for i in (0, 1) for j in (0, 1)}
        np.testing.assert_array_equal(twice, sess.run(last, {x: ones, **parts}))
    assert [type(s).__name__ for s in twice] == ["LSTMStateTuple"] * 2


def test_prevented_feeds_and_fetches_are_errors() -> None:
    a = tf.constant(1.0, name="a")
    graph = tf.get_default_graph()
    with tf.Session() as sess:
        assert sess.run(a, {a: 2.0}) == 2
        graph.prevent_feeding(a)
        with pytest.raises(ValueError, match="Tensor a:0 may not be fed"):
            sess.run(a, {a: 2.0})
        assert sess.run(a) == 1
        graph.prevent_fetching(a.op)
        for fetch in (a, a.op, "a:0"):
            with pytest.raises(ValueError, match="Operation 'a' has been marked as not fetchable"):
                sess.run(fetch)
        assert sess.run(a * 2) == 2
    assert (graph.is_feedable(a), graph.is_fetchable(a), graph.is_fetchable(a.op)) == (False, False, False)


def test_a_variable_is_evaluated_with_feeds() -> None:
    v = tf.Variable(1.0)
    with tf.Session():
        assert v.eval(feed_dict={v: 3.0}) == 3
