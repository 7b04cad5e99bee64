"""The default graph, collections, seeds, config records."""

from __future__ import annotations

import threading

import pytest

import headrace as hr
import headrace.v1 as tf


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def test_ops_go_into_the_implicit_default_graph() -> None:
    a = tf.constant(1, name="a")
    with tf.name_scope("s"):
        b = tf.add(a, 2, name="b")
    assert a.graph is b.graph is tf.get_default_graph()
    assert (a.name, b.name) == ("a:0", "s/b:0")
    with tf.Graph().as_default() as g:
        c = tf.constant(3)
        assert tf.get_default_graph() is g is c.graph
    assert tf.get_default_graph() is a.graph


def test_other_threads_have_the_same_implicit_graph_and_their_own_stack() -> None:
    seen = []
    with tf.Graph().as_default() as g:
        thread = threading.Thread(target=lambda: seen.append(tf.get_default_graph()))
        thread.start()
        thread.join()
        assert seen[0] is not g
    assert seen[0] is tf.get_default_graph()


def test_reset_makes_a_new_graph_but_not_within_another() -> None:
    before = tf.get_default_graph()
    tf.reset_default_graph()
    assert tf.get_default_graph() is not before
    with tf.Graph().as_default(), pytest.raises(AssertionError, match="implicit default graph"):
        tf.reset_default_graph()


def test_in_a_branch_the_default_graph_is_the_whole_one() -> None:
    seen = []

    def branch() -> tf.Tensor:
        seen.append(tf.get_default_graph())
        tf.add_to_collection("made", "in the branch")
        return tf.constant(1)

    tf.cond(tf.placeholder(tf.bool, []), branch, lambda: tf.constant(0))
    assert seen == [tf.get_default_graph()]
    assert tf.get_collection("made") == ["in the branch"]


def test_a_graph_of_headrace_is_no_default_graph() -> None:
    with hr.Graph(), pytest.raises(hr.errors.GraphError, match=r"tf\.Graph\(\)"):
        tf.get_default_graph()


def test_collections() -> None:
    g = tf.Graph()
    g.add_to_collections(["a", "b", "a"], 1)
    g.add_to_collections("a", 2)
    copy = g.get_collection("a")
    copy.append(3)
    assert (g.get_collection("a"), g.get_collection("b"), g.get_collection("c")) == ([1, 2], [1], [])
    g.get_collection_ref("c").append(4)
    assert sorted(g.get_all_collection_keys()) == ["a", "b", "c"]
    g.clear_collection("a")
    assert g.get_collection("a") == []


def test_seeds_are_tensorflows() -> None:
    assert tf.get_seed(None) == (None, None)
    assert tf.get_seed(5) == (87654321, 5)
    tf.set_random_seed(7)
    assert tf.get_seed(5) == (7, 5)
    assert [tf.get_seed(None) for _ in range(3)] == [(7, 0), (7, 1), (7, 2)]
    tf.set_random_seed(0)
    assert tf.get_seed(0) == (0, 2**31 - 1)


def test_a_finalized_graph_refuses_ops() -> None:
    g = tf.Graph()
    g.finalize()
    with g.as_default(), pytest.raises(RuntimeError, match="finalized"):
        tf.no_op()


def test_gradients_are_overridden_by_name() -> None:
    @tf.RegisterGradient("MyOwnSquare")
    def mine(op: tf.Operation, dy: tf.Tensor) -> tf.Tensor:
        return dy

    with tf.get_default_graph().gradient_override_map({"Square": "MyOwnSquare"}):
        y = tf.square(2.0)
    assert y.op.get_attr("_gradient_op_type") == "MyOwnSquare"
    assert tf.square(2.0).op.attrs.get("_gradient_op_type") is None
    with pytest.raises(KeyError, match="MyOwnSquare"):
        tf.RegisterGradient("MyOwnSquare")(mine)


def test_names_that_are_missing_refer_to_the_list() -> None:
    with pytest.raises(AttributeError, match="headrace docs reference/v1"):
        tf.estimators_of_another_kind
    assert not hasattr(tf, "no_such_name")


def test_the_names_of_modules() -> None:
    assert tf.compat.v1 is tf
    assert tf.math.add is tf.add
    assert tf.linalg.diag is tf.matrix_diag
    assert tf.dtypes.bool is tf.bool is hr.bool
    assert tf.debugging.assert_all_finite is tf.verify_tensor_all_finite
    assert tf.nn.relu(tf.constant([-1.0])).op.type == "Relu"
    assert tf.errors.OutOfRangeError is hr.errors.OutOfRangeError
    assert tf.float32 is hr.float32
    assert tf.__version__.startswith("1.")
