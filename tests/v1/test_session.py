"""Default sessions, eval and run, config, what is fetched."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import headrace.v1 as tf


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()
    assert tf.get_default_session() is None


def test_eval_and_run_use_the_default_session() -> None:
    v = tf.Variable(3.0)
    x = tf.placeholder(tf.float32, [])
    y = v * x
    with tf.Session() as sess:
        assert tf.get_default_session() is sess
        v.initializer.run()
        assert y.eval({x: 2.0}) == 6.0
        with tf.Session() as inner:
            assert tf.get_default_session() is inner
            with pytest.raises(tf.errors.FailedPreconditionError):
                v.eval()
            assert v.eval(session=sess) == 3.0
        assert tf.get_default_session() is sess
    with pytest.raises(ValueError, match="No default session"):
        y.eval({x: 2.0})
    with pytest.raises(ValueError, match="No default session"):
        v.initializer.run()


def test_a_session_of_another_graph_does_not_evaluate() -> None:
    a = tf.constant(1)
    with tf.Session(graph=tf.Graph()), pytest.raises(ValueError, match="another"):
        a.eval()


def test_with_makes_the_sessions_graph_the_default_one() -> None:
    g = tf.Graph()
    with tf.Session(graph=g) as sess:
        assert tf.get_default_graph() is g
        assert sess.run(tf.constant(2)) == 2
    with pytest.raises(RuntimeError, match="closed"):
        sess.run("Const:0")


def test_as_default_leaves_the_session_open() -> None:
    a = tf.constant(1)
    sess = tf.Session()
    with sess.as_default():
        assert a.eval() == 1
    assert sess.run(a) == 1
    sess.close()


def test_an_interactive_session_is_the_default_until_closed() -> None:
    first = tf.InteractiveSession()
    g = tf.Graph()
    second = tf.InteractiveSession(graph=g)
    assert tf.get_default_graph() is g
    assert tf.constant(4).eval() == 4
    second.close()
    assert tf.get_default_session() is first
    assert tf.get_default_graph() is first.graph
    first.close()
    first.close()
    assert tf.get_default_session() is None


def test_default_sessions_belong_to_their_thread() -> None:
    seen = []
    with tf.Session():
        thread = threading.Thread(target=lambda: seen.append(tf.get_default_session()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_variables_are_fetched_and_fed_to() -> None:
    v = tf.Variable([1.0, 2.0], name="v")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        got = sess.run({"v": v, "twice": [v * 2.0, v]})
        np.testing.assert_array_equal(got["v"], [1.0, 2.0])
        np.testing.assert_array_equal(got["twice"][0], [2.0, 4.0])
        n = len(tf.get_default_graph().get_operations())
        sess.run(v)
        sess.run([v, v])
        assert len(tf.get_default_graph().get_operations()) == n, "fetching a variable adds nothing"
        v.load([5.0, 6.0], sess)
        np.testing.assert_array_equal(sess.run("v:0"), [5.0, 6.0])


def test_devices_that_are_not_there() -> None:
    with tf.device("/device:GPU:0"):
        a = tf.constant(1)
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match="allow_soft_placement"):
        sess.run(a)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
        assert sess.run(a) == 1


def test_a_time_limit() -> None:
    q = tf.FIFOQueue(1, tf.int32)
    take = q.dequeue()
    with tf.Session() as sess, pytest.raises(tf.errors.DeadlineExceededError):
        sess.run(take, options=tf.RunOptions(timeout_in_ms=30, trace_level=tf.RunOptions.NO_TRACE))


def test_get_shape_and_consumers() -> None:
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    y = tf.negative(x)
    z = tf.square(x)
    assert isinstance(x.get_shape(), tf.TensorShape)
    assert x.get_shape().as_list() == [None, 3]
    assert x.consumers() == [y.op, z.op]
    assert y.op.values() == (y,)
    assert tf.zeros([x.get_shape()[1], 2]).get_shape().as_list() == [3, 2]
    assert tf.placeholder(tf.float32, x.get_shape()).get_shape() == x.get_shape()


def test_a_count_of_no_devices_needs_no_device_type() -> None:
    with tf.Session(config=tf.ConfigProto(device_count={"GPU": 0, "CPU": 1})) as sess:
        assert sess.run(tf.constant(3)) == 3


def test_a_fetched_variable_has_the_updates_of_its_run() -> None:
    """As the reference variables of TensorFlow 2.21 with `disable_v2_behavior`, in 200 of 200 runs."""
    with tf.Graph().as_default(), tf.Session() as sess:
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
        train = tf.train.GradientDescentOptimizer(0.25).minimize(tf.reduce_sum(w * w), global_step=step)
        chosen = tf.cond(tf.equal(step, 1), lambda: step.assign_add(5), lambda: step.assign_add(10))
        sess.run(tf.global_variables_initializer())
        _, i, name, values, before = sess.run([train, step, "global_step:0", w, w + 0.0])
        assert (i, name, values.tolist(), before.tolist()) == (1, 1, [0.5, 0.5], [1.0, 1.0])
        assert sess.run([chosen, {"step": step}]) == [6, {"step": 6}]
        assert sess.make_callable([step, step.assign_add(1).op])()[0] == 7


def test_a_fetched_variable_with_use_resource_is_read_first() -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        v = tf.Variable(1.0, use_resource=True)
        sess.run(v.initializer)
        assert sess.run([v, v.assign_add(1.0)]) == [1.0, 2.0]


@pytest.mark.parametrize("counts", [{"GPU": 0}, {"gpu": 1}, {"CPU": 2, "GPU": 1}, {"cpu": 1}])
def test_counts_of_absent_device_types_are_ignored(counts: dict[str, int]) -> None:
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count=counts)) as sess:
        assert sess.run(tf.constant(1.0)) == 1.0
        assert len([d for d in sess.list_devices() if "CPU" in d.name]) == counts.get("CPU", 1)


def test_a_tensor_prints_as_tensorflows() -> None:
    with tf.Graph().as_default():
        assert str(tf.constant([1.0, 2.0])) == 'Tensor("Const:0", shape=(2,), dtype=float32)'
        assert f"{tf.placeholder(tf.int32, [None, 3])}" == 'Tensor("Placeholder:0", shape=(?, 3), dtype=int32)'
        assert str(tf.placeholder(tf.float32)) == 'Tensor("Placeholder_1:0", dtype=float32)'
