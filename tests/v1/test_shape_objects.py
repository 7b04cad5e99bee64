"""`shape` of tensors and of objects that stand for tensors.

It is a `TensorShape` in graphs of `headrace.v1`, else a tuple.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.api import tensors


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def _sparse() -> Any:
    return tf.SparseTensor([[0, 0]], [1.0], [2, 3])


def _slices() -> Any:
    return tf.IndexedSlices(tf.zeros([1, 3]), tf.constant([0]), tf.constant([2, 3]))


def _gathered() -> Any:
    v = tf.get_variable("v", [2, 3])
    return tf.gradients(tf.reduce_sum(tf.gather(v, [0])), v)[0]


def _in_body() -> Any:
    found = []

    def body(i: Any, y: Any) -> Any:
        found.append(y)
        return i + 1, y * 2.0

    tf.while_loop(lambda i, _: i < 3, body, [0, tf.zeros([2, 3])])
    return found[0]


def _in_branch() -> Any:
    found = []
    x = tf.zeros([2, 3])

    def branch() -> Any:
        found.append(x + 1.0)
        return found[0]

    tf.cond(tf.constant(True), branch, lambda: x)
    return found[0]


HAVE: dict[str, Callable[[], Any]] = {
    "tensor": lambda: tf.placeholder(tf.float32, [2, 3]),
    "operator": lambda: tf.zeros([2, 3]) + 1.0,
    "output": lambda: tf.zeros([2, 3]).op.outputs[0],
    "by name": lambda: tf.get_default_graph().get_tensor_by_name(tf.zeros([2, 3]).name),
    "made by headrace": lambda: hr.tanh(tf.zeros([2, 3])),
    "loop": lambda: tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y + 1.0), [0, tf.zeros([2, 3])])[1],
    "in a body": _in_body,
    "in a branch": _in_branch,
    "variable": lambda: tf.Variable(np.zeros((2, 3), np.float32)),
    "get_variable": lambda: tf.get_variable("w", [2, 3]),
    "assigned": lambda: tf.assign(tf.Variable(np.zeros((2, 3), np.float32)), tf.ones([2, 3])),
    "partitioned": lambda: tf.get_variable("p", [2, 3], partitioner=tf.fixed_size_partitioner(2)),
    "sparse": _sparse,
    "sparse result": lambda: tf.sparse_add(_sparse(), _sparse()),
    "sparse placeholder": lambda: tf.sparse_placeholder(tf.float32, [2, 3]),
    "slices": _slices,
    "gradient of a gather": _gathered,
    "gradient": lambda: tf.gradients(tf.reduce_sum(x := tf.zeros([2, 3])), x)[0],
}


@pytest.mark.parametrize("name", HAVE)
def test_a_shape_in_a_v1_graph_is_a_tensor_shape(name: str) -> None:
    shape = HAVE[name]().shape
    assert type(shape) is tf.TensorShape
    assert shape.as_list() == [2, 3]
    assert shape == [2, 3]
    assert shape == (2, 3)
    assert (shape != [2, 3]) is False
    assert shape != [3, 2]
    assert (shape.ndims, shape.dims[0].value, shape[1].value, shape.is_fully_defined()) == (2, 2, 3, True)
    assert [d.value for d in shape] == [2, 3]
    assert tuple(shape) == (2, 3)
    assert str(shape) == "(2, 3)"


def test_of_an_unknown_shape_a_v1_program_sees_a_tensor_shape_too() -> None:
    u, n = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32)
    assert u.shape.as_list() == [None, 3]
    assert (u.shape[0].value, u.shape.is_fully_defined(), u.shape.num_elements()) == (None, False, None)
    assert (n.shape.ndims, n.shape.dims, bool(n.shape), n.shape == None) == (None, None, False, True)  # noqa: E711
    assert n.shape.merge_with(u.shape).as_list() == [None, 3]
    with pytest.raises(ValueError, match="unknown TensorShape"):
        n.shape.as_list()
    assert tf.sparse_placeholder(tf.float32).shape.ndims is None
    assert tf.IndexedSlices(tf.zeros([1, 3]), tf.constant([0])).shape.ndims is None


def test_arrays_and_queues_have_tensor_shapes() -> None:
    array = tf.TensorArray(tf.float32, 3, element_shape=[2, None])
    assert type(array.element_shape) is tf.TensorShape
    assert array.element_shape.as_list() == [2, None]
    assert tf.TensorArray(tf.float32, 3).element_shape.ndims is None
    queue = tf.FIFOQueue(3, [tf.float32, tf.int32], [[2, 3], []])
    assert [type(s) for s in queue.shapes] == [tf.TensorShape] * 2
    assert [s.as_list() for s in queue.shapes] == [[2, 3], []]
    assert tf.FIFOQueue(3, [tf.float32]).shapes[0].ndims is None


def test_headrace_has_tuples() -> None:
    with hr.Graph():
        x = hr.zeros((2, 3))
        v = hr.Variable(np.zeros((2, 3), np.float32))
        s = hr.SparseTensor([[0, 0]], [1.0], [2, 3])
        found = [x.shape, (x + 1.0).shape, v.shape, v.value().shape, s.shape]
        found.append(hr.TensorArray(hr.float32, 3, element_shape=(2, 3)).element_shape)
        found += hr.FIFOQueue(3, [hr.float32], [(2, 3)]).shapes
        found.append(hr.IndexedSlices(x, hr.constant([0, 1]), hr.constant([2, 3])).shape)
    assert [type(s) for s in found] == [tuple] * len(found)
    assert set(found) == {(2, 3)}
    assert type(hr.zeros((2, 3)).shape) is tuple


def test_the_modules_of_headrace_see_tuples_of_v1_tensors() -> None:
    x, v = tf.zeros([2, 3]), tf.Variable(np.zeros((2, 3), np.float32))
    code = compile("def shape_of(t): return t.shape", tensors.__file__, "exec")
    within: dict[str, Any] = {}
    exec(code, within)
    assert [type(within["shape_of"](t)) for t in (x, v, _sparse(), _slices())] == [tuple] * 4


def _taken(shape: Any, size: Any) -> list[Any]:
    """Tensors made of a shape [2, 3] and the dimension 2."""
    x = tf.zeros(shape)
    return [
        x,
        tf.ones(shape),
        tf.fill(shape, 0.0),
        tf.reshape(tf.zeros([6]), shape),
        tf.reshape(x, [size, -1]),
        tf.placeholder(tf.float32, shape),
        tf.placeholder(tf.float32, [size, 3]),
        tf.random_normal(shape),
        tf.constant(0.0, shape=shape),
        tf.broadcast_to(1.0, shape),
        tf.ensure_shape(tf.placeholder(tf.float32), shape),
        tf.slice(tf.zeros([5, 5]), [0, 0], shape),
        tf.zeros([5, 3])[:size],
        tf.zeros([5, 2, 3])[size],
        tf.stack(tf.unstack(x, num=size)),
        tf.split(tf.zeros([4, 3]), size)[0],
        tf.tile(tf.zeros([1, 3]), [size, 1]),
        tf.scatter_nd([[0]], tf.zeros([1, 3]), shape),
        hr.zeros(shape),
        hr.reshape(tf.zeros([6]), shape),
        tf.SparseTensor([[0, 0]], [1.0], shape),
        tf.Variable(lambda: tf.zeros(shape)),
        hr.Variable(np.zeros((2, 3), np.float32), shape=shape),
    ]


def test_the_static_shape_of_a_v1_tensor_is_the_tuple_of_its_shape() -> None:
    x = tf.placeholder(tf.float32, [None, 3])
    assert type(x.static_shape) is tuple
    assert x.static_shape == (None, 3) == tuple(x.shape.as_list())
    x.shape = (2, 3)
    assert (x.static_shape, x.shape.as_list()) == ((2, 3), [2, 3])
    x.static_shape = None
    assert x.shape.rank is None


def test_a_tensor_shape_and_a_dimension_are_taken_where_shapes_and_sizes_are() -> None:
    x = tf.placeholder(tf.float32, [2, 3])
    with tf.get_default_graph().as_default():
        for i, made in enumerate(_taken(x.shape, x.shape[0])):
            assert made.shape.as_list() == [2, 3], i
    assert tf.get_variable("v", x.shape).shape == x.shape
    assert tf.get_variable("w", [x.shape[1], 5]).shape == [3, 5]
    assert tf.ones(x.shape[1]).shape == [3]
    assert tf.zeros(x.shape[:1].concatenate([4])).shape == [2, 4]
    assert tf.zeros([*x.shape[:1], 4]).shape == [2, 4]
    assert tf.range(x.shape[0]).shape == [2]
    assert np.zeros(x.shape).shape == (2, 3)
    grown = tf.while_loop(
        lambda i, _: i < 3,
        lambda i, y: (i + 1, tf.concat([y, y], 0)),
        [tf.constant(0), x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None]).concatenate(x.shape[1:])],
    )[1]
    assert grown.shape.as_list() == [None, 3]
    with hr.Graph():
        assert hr.zeros(tf.TensorShape([2, 3])).shape == (2, 3)
        assert hr.placeholder(hr.float32, tf.TensorShape([None, 3])).shape == (None, 3)


def test_a_shape_that_is_not_known_is_no_tensor() -> None:
    u = tf.placeholder(tf.float32, [None, 3])
    with pytest.raises(ValueError, match="Cannot convert a partially known TensorShape"):
        tf.convert_to_tensor(u.shape)
    with pytest.raises(ValueError, match="must be known"):
        tf.zeros(u.shape)


def test_static_broadcast_gives_a_tensor_shape() -> None:
    assert tf.broadcast_static_shape(tf.TensorShape([2, 3]), tf.TensorShape([1, 3])).as_list() == [2, 3]


def test_a_shape_is_a_message() -> None:
    assert [d.size for d in tf.zeros([2, 3]).shape.as_proto().dim] == [2, 3]
    assert tf.placeholder(tf.float32).shape.as_proto().unknown_rank
