"""`tf.graph_util`; results are TensorFlow's for the same graph."""

from __future__ import annotations

from typing import Any

import pytest

import headrace.v1 as tf

pytestmark = pytest.mark.one_engine


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def _graph() -> None:
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    w = tf.get_variable("w", initializer=[[1.0], [2.0]], use_resource=True)
    rows = tf.get_variable("t", initializer=[5.0, 6.0, 7.0], use_resource=True)
    y = tf.add(tf.matmul(x, w), tf.gather(rows, [1]), name="y")
    checked = tf.check_numerics(tf.identity(y, name="z"), "m", name="u")
    tf.negative(checked, name="q")


def _run(graph_def: Any) -> Any:
    with tf.Graph().as_default(), tf.Session() as sess:
        (y,) = tf.import_graph_def(graph_def, return_elements=["y:0"], name="i")
        return sess.run(y, {"i/x:0": [[1.0, 1.0]]}).tolist()


def test_a_graph_is_frozen() -> None:
    _graph()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        graph = tf.get_default_graph().as_graph_def()
        frozen = tf.graph_util.convert_variables_to_constants(sess, graph, ["y"])
        part = tf.graph_util.convert_variables_to_constants(sess, graph, ["y"], variable_names_blacklist=["t"])
        none = tf.graph_util.convert_variables_to_constants(sess, graph, ["y"], variable_names_whitelist=[])
    ops = {node.name: node.op for node in frozen.node}
    assert (ops["w"], ops["t"], ops["MatMul/ReadVariableOp"]) == ("Const", "Const", "Identity")
    assert "VarHandleOp" not in ops.values()
    assert _run(frozen) == [[9.0]]
    assert [n.op for n in part.node if n.name in ("w", "t")] == ["Const", "VarHandleOp"]
    assert none == tf.graph_util.extract_sub_graph(graph, ["y"])


def test_a_sparse_read_becomes_a_gather() -> None:
    table = tf.get_variable("t", initializer=[5.0, 6.0, 7.0])
    x = tf.placeholder(tf.int32, [2], name="x")
    tf.identity(table.sparse_read(x), name="y")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        graph = tf.get_default_graph().as_graph_def()
        frozen = tf.graph_util.convert_variables_to_constants(sess, graph, ["y"])
    with tf.Graph().as_default(), tf.Session() as sess:
        (y,) = tf.import_graph_def(frozen, return_elements=["y:0"], name="")
        assert sess.run(y, {"x:0": [2, 0]}).tolist() == [7, 5]


def test_a_variable_that_is_changed_is_not_frozen() -> None:
    v = tf.get_variable("v", initializer=1.0, use_resource=True)
    tf.identity(v.assign_add(1.0), name="y")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        with pytest.raises(ValueError, match="a AssignAddVariableOp of a constant does not exist"):
            tf.graph_util.convert_variables_to_constants(sess, tf.get_default_graph().as_graph_def(), ["y"])


def test_parts_of_graphs() -> None:
    _graph()
    graph = tf.get_default_graph().as_graph_def()
    assert [n.name for n in tf.graph_util.extract_sub_graph(graph, ["z"]).node][-2:] == ["y", "z"]
    with pytest.raises(AssertionError, match="foo is not in graph"):
        tf.graph_util.extract_sub_graph(graph, ["foo"])
    with pytest.raises(TypeError, match="must be an iterable of strings"):
        tf.graph_util.extract_sub_graph(graph, "z")


def test_training_nodes_are_removed() -> None:
    _graph()
    part = tf.graph_util.extract_sub_graph(tf.get_default_graph().as_graph_def(), ["q"])
    nodes = {n.name: list(n.input) for n in tf.graph_util.remove_training_nodes(part).node}
    assert nodes["q"] == ["y"]
    assert not {"u", "z"} & set(nodes)
    nodes = {n.name: list(n.input) for n in tf.graph_util.remove_training_nodes(part, ["u"]).node}
    assert (nodes["u"], nodes["q"]) == (["y"], ["u"])


def test_a_name_has_a_shape() -> None:
    tf.placeholder(tf.float32, [None, 2], name="x")
    assert tf.graph_util.tensor_shape_from_node_def_name(tf.get_default_graph(), "x").as_list() == [None, 2]
