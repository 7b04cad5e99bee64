"""Members of graphs, operations and dtypes that TensorFlow 1's programs use; values are TensorFlow's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf

pytestmark = pytest.mark.one_engine


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def test_operations_are_created_by_type() -> None:
    graph = tf.get_default_graph()
    a, b = tf.constant(1.0), tf.constant(2.0)
    made = graph.create_op("AddV2", [a, b], [tf.float32], name="sum", attrs={"T": tf.AttrValue(type=1)})
    again = graph.create_op("AddV2", [a, b])
    packed = graph.create_op("Pack", [a, b], attrs={"N": tf.AttrValue(i=2), "axis": tf.AttrValue(i=0)})
    nothing = graph.create_op("NoOp", [], [], name="n")
    fed = graph.create_op("Placeholder", [], [tf.int32], name="x/p", attrs={"dtype": tf.AttrValue(type=3)})
    names = [op.name for op in (made, again, packed, nothing, fed)]
    assert names == ["sum", "AddV2", "Pack", "n", "x/p"]
    assert fed.outputs[0].dtype is tf.int32
    with tf.Session() as sess:
        assert sess.run([made.outputs[0], again.outputs[0]]) == [3, 3]
        assert sess.run(packed.outputs[0]).tolist() == [1, 2]


def test_several_lists_of_inputs_are_told_apart_by_their_numbers() -> None:
    graph = tf.get_default_graph()
    ts = [tf.constant([i]) for i in range(2)]
    one = {"N": tf.AttrValue(i=2)}
    made = graph.create_op("ConcatV2", [*ts, tf.constant(0)], attrs=one).outputs[0]
    with tf.Session() as sess:
        assert sess.run(made).tolist() == [0, 1]
    with pytest.raises(ValueError, match="ConcatV2 has the inputs values, axis"):
        graph.create_op("ConcatV2", ts, attrs=one)
    with pytest.raises(ValueError, match="ConcatV2 has the inputs values, axis"):
        graph.create_op("ConcatV2", [*ts, tf.constant(0)])
    with pytest.raises(ValueError, match="NoOp has the inputs"):
        graph.create_op("NoOp", ts)


def test_types_and_attributes_are_checked() -> None:
    graph = tf.get_default_graph()
    with pytest.raises(tf.errors.NotFoundError, match="Op type not registered 'Foo'"):
        graph.create_op("Foo", [])
    with pytest.raises(ValueError, match="does not match type float32"):
        graph.create_op("AddV2", [tf.constant(1.0), tf.constant(1)])


def test_an_operation_has_its_messages() -> None:
    a = tf.constant(1.0, name="a")
    with tf.device("/cpu:0"):
        s = tf.add(a, 2.0, name="s").op
    with tf.colocate_with(a.op):
        c = tf.multiply(a, 2.0, name="c").op
    node = s.node_def
    assert (node.name, node.op, list(node.input), node.device) == ("s", "AddV2", ["a", "s/y"], "/device:CPU:0")
    assert sorted(node.attr) == ["T"]
    assert c.node_def.attr["_class"].list.s[:] == [b"loc:@a"]
    assert [x.name for x in s.op_def.input_arg] == ["x", "y"]
    assert s.graph.op_def_for_type("AddV2") == s.op_def
    assert [op.colocation_groups() for op in (s, c, a.op)] == [[b"loc:@s"], [b"loc:@a"], [b"loc:@a"]]
    file, line, function, text = s.traceback[-1]
    assert file == __file__
    assert (function, "tf.add" in text, line > 1) == ("test_an_operation_has_its_messages", True, True)


def test_a_loop_has_a_node() -> None:
    out = tf.while_loop(lambda i: i < 3, lambda i: i + 1, [0])
    assert out.op.node_def.op == "StatelessWhile"


def test_the_state_of_a_graph() -> None:
    graph = tf.get_default_graph()
    a = tf.constant(1.0)
    with graph.new_operations() as made:
        b = a + 1
    assert b.op in made
    assert a.op not in made
    graph.switch_to_thread_local()
    assert (graph.building_function, graph.num_operations()) == (False, len(graph.get_operations()))


def test_the_parts_of_composites_have_consumers() -> None:
    x = tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]))
    y = tf.SparseTensor([[0]], [1.0], [2])
    used = [tf.identity(x.values).op, tf.identity(y.dense_shape).op]
    assert (x.consumers(), y.consumers()) == ([used[0]], [used[1]])


LIMITS = {
    "float32": (np.float32(-3.4028235e38), np.float32(3.4028235e38), (0, 1)),
    "int8": (-128, 127, (0, 127)),
    "uint8": (0, 255, (0, 255)),
    "uint64": (0, 2**64 - 1, (0, 2**64 - 1)),
    "int64": (-(2**63), 2**63 - 1, (0, 2**63 - 1)),
    "float16": (np.float16(-65504), np.float16(65504), None),
    "bool": (None, None, (False, True)),
    "complex64": (None, None, None),
    "qint8": (None, None, None),
    "string": (None, None, None),
}


@pytest.mark.parametrize(("name", "least", "greatest", "limits"), [(k, *v) for k, v in LIMITS.items()])
def test_dtypes_have_limits(name: str, least: Any, greatest: Any, limits: Any) -> None:
    dtype = tf.as_dtype(name)
    if least is None:
        for which in ("min", "max"):
            with pytest.raises(TypeError, match=f"Cannot find {which}imum value of headrace.{name}"):
                getattr(dtype, which)
    else:
        assert (dtype.min, dtype.max) == (least, greatest)
        assert type(dtype.min) is type(least)
    if limits is None:
        with pytest.raises(ValueError, match="does not have defined limits"):
            dtype.limits
    else:
        assert dtype.limits == limits


def test_dtypes_tell_their_kind() -> None:
    assert [tf.complex128.real_dtype, tf.complex64.real_dtype, tf.int32.real_dtype] == [
        tf.float64,
        tf.float32,
        tf.int32,
    ]
    assert (tf.quint8.is_quantized, tf.uint8.is_quantized) == (True, False)
    assert (tf.uint8.is_unsigned, tf.int8.is_unsigned, tf.quint8.is_unsigned) == (True, False, False)
    assert (tf.string.is_numpy_compatible, tf.resource.is_numpy_compatible) == (True, False)
    ref = tf.as_dtype("float32_ref")
    assert (tf.float32.is_compatible_with(ref), ref.is_compatible_with(tf.float32)) == (True, False)
    assert (tf.float32.is_compatible_with("float"), tf.float32.is_compatible_with(tf.int32)) == (True, False)
