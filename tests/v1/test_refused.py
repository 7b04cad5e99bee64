"""Errors of TensorFlow 1 while a graph is built.

`headrace.v1` and `headrace` raise the same classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.errors import ConversionError


def _queue(kind: Any = tf.FIFOQueue, shapes: Any = ((), ())) -> Any:
    more = (1,) if kind is tf.RandomShuffleQueue else ()
    return kind(9, *more, [tf.float32, tf.float32], shapes)


REFUSED: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    # rows
    (ValueError, r"must have the shape \[2\], got \[3\]", lambda: _queue().enqueue_many([[1.0, 2.0], [1.0, 2.0, 3.0]])),
    (ValueError, r"\[2\], got \[3\]", lambda: _queue().enqueue_many([tf.zeros([2]), tf.zeros([3])])),
    (ValueError, r"got \[3,4\]", lambda: _queue(shapes=None).enqueue_many([tf.zeros([2]), tf.zeros([3, 4])])),
    (
        ValueError,
        r"\[2\], got \[3\]",
        lambda: _queue(tf.PaddingFIFOQueue, ([None], [])).enqueue_many([tf.zeros([2, 1]), tf.zeros([3])]),
    ),
    (ValueError, r"\[2\]", lambda: _queue(tf.RandomShuffleQueue).enqueue_many([tf.zeros([2]), tf.zeros([3])])),
    (ValueError, r"got \[\]", lambda: _queue(shapes=None).enqueue_many([1.0, [1.0]])),
    # sizes
    (ValueError, ">= 0", lambda: tf.placeholder(tf.float32, [-1, 10])),
    (ValueError, ">= 0", lambda: tf.placeholder(tf.float32, -1)),
    (TypeError, "is no shape", lambda: tf.placeholder(tf.float32, [2.5])),
    (TypeError, "is no shape", lambda: tf.placeholder(tf.float32, ["a"])),
    (ValueError, ">= 0", lambda: tf.placeholder_with_default(tf.zeros([2]), [-1])),
    (ValueError, ">= 0", lambda: tf.ensure_shape(tf.zeros([2]), [-1])),
    (ValueError, ">= 0", lambda: tf.zeros([2]).set_shape([-1])),
    (ValueError, ">= 0", lambda: tf.TensorShape([-1, 3])),
    (ValueError, ">= 0", lambda: tf.TensorArray(tf.float32, 3, element_shape=[-1])),
    (ValueError, ">= 0", lambda: tf.FIFOQueue(9, [tf.float32], [[-1]])),
    (ValueError, ">= 0", lambda: tf.get_variable("v", [-1, 2])),
    # conditionals
    (ValueError, "'true_fn' must have a return value", lambda: tf.cond(tf.constant(True), lambda: None, lambda: None)),
    (ValueError, "'true_fn' must have", lambda: tf.cond(tf.constant(True), lambda: None, lambda: 1)),
    (ValueError, "'false_fn' must have", lambda: tf.cond(tf.constant(True), lambda: 1, lambda: None)),
    (ValueError, "at least one result", lambda: tf.cond(tf.constant(True), list, list)),
    (ValueError, "None values not", lambda: tf.cond(tf.constant(True), lambda: (None, 1), lambda: (None, 2))),
    (ValueError, "None values not", lambda: tf.cond(tf.constant(True), lambda: {"a": None}, lambda: {"a": None})),
    (ValueError, "pred must be", lambda: tf.cond(None, lambda: 1, lambda: 2)),
    # sums and clips
    (TypeError, "float64", lambda: tf.accumulate_n([tf.zeros([2])] * 2, tensor_dtype=tf.float64)),
    (TypeError, "int32", lambda: tf.accumulate_n([tf.zeros([2])] * 2, tensor_dtype=tf.int32)),
    (ValueError, "not compatible", lambda: tf.accumulate_n([tf.zeros([2])] * 2, shape=[3])),
    (TypeError, "must be a list", lambda: tf.accumulate_n(tf.zeros([2]))),
    (ValueError, "incompatible", lambda: tf.clip_by_value(tf.zeros([2]), tf.zeros([3, 2]), 1.0)),
    (ValueError, "incompatible", lambda: tf.clip_by_value(tf.zeros([2]), 0.0, tf.zeros([3, 2]))),
    (ValueError, "incompatible", lambda: tf.clip_by_value(tf.zeros([]), tf.zeros([2]), 1.0)),
    (ValueError, "incompatible", lambda: tf.clip_by_value(tf.zeros([1]), tf.zeros([2]), 1.0)),
    (ValueError, "incompatible", lambda: tf.clip_by_norm(tf.zeros([2]), tf.zeros([3, 2]))),
    (ValueError, "incompatible", lambda: tf.clip_by_norm(tf.zeros([1]), tf.zeros([2]))),
    # conversions
    (ValueError, "requested dtype float32", lambda: tf.convert_to_tensor(tf.constant(1), tf.float32)),
    (ValueError, "requested dtype float32", lambda: tf.convert_to_tensor(tf.Variable(1), tf.float32)),
    (ValueError, "requested dtype float32", lambda: tf.Variable(tf.constant(1), dtype=tf.float32)),
    (TypeError, "expected int32", lambda: tf.convert_to_tensor(1.5, tf.int32)),
    (ValueError, "cannot be a tensor", lambda: tf.convert_to_tensor(None)),
    (ValueError, "text", lambda: tf.convert_to_tensor(np.array(["a"]), tf.float32)),
    (TypeError, "mixes text with numbers", lambda: tf.convert_to_tensor([1, "a"])),
    (TypeError, "expected string", lambda: tf.convert_to_tensor(["a", 1])),
    (TypeError, "cannot be a tensor", lambda: tf.convert_to_tensor(object())),
    (ValueError, "must be specified", lambda: tf.Variable(None)),
    (TypeError, "incompatible with expected bool", lambda: tf.where(tf.constant([1]), [1], [2])),
]


@pytest.mark.parametrize(("error", "says", "make"), REFUSED)
def test_what_tensorflow_refuses_is_refused(error: type[Exception], says: str, make: Callable[[], Any]) -> None:
    with tf.Graph().as_default(), pytest.raises(error, match=says):
        make()


def test_what_tensorflow_takes_is_taken() -> None:
    with tf.Graph().as_default():
        x = tf.zeros([3, 2])
        assert tf.clip_by_value(x, tf.zeros([2]), 1.0).shape == [3, 2]
        assert tf.clip_by_norm(x, tf.zeros([3, 1]), axes=[1]).shape == [3, 2]
        assert tf.accumulate_n([x, x], shape=[None, 2], tensor_dtype=tf.float32).shape == [3, 2]
        rows = tf.placeholder(tf.float32, [None])
        for parts in ([rows, tf.zeros([3])], [tf.zeros([3]), rows], [tf.placeholder(tf.float32), rows]):
            assert _queue().enqueue_many(parts).type == "QueueEnqueueManyV2"
        pair = tf.cond(tf.constant(True), lambda: [x, {"a": x}], lambda: [x, {"a": x}])
        assert pair[1]["a"].shape == [3, 2]
        assert tf.sparse_placeholder(tf.float32, [None, 10]).shape.as_list() == [None, 10]


def test_headrace_refuses_them_too() -> None:
    with hr.Graph():
        x = hr.zeros((2,))
        for make in (
            lambda: hr.placeholder(hr.float32, (-1, 10)),
            lambda: hr.clip_by_value(x, hr.zeros((3, 2)), 1.0),
            lambda: hr.FIFOQueue(9, [hr.float32] * 2, [(), ()]).enqueue_many([x, hr.zeros((3,))]),
        ):
            with pytest.raises(ValueError, match="shape"):
                make()
        with pytest.raises(ConversionError, match="requested dtype int32"):
            hr.convert_to_tensor(x, hr.int32)
        with pytest.raises(TypeError, match="expected int32") as e:
            hr.convert_to_tensor(1.5, hr.int32)
        assert e.type is TypeError


def test_a_partial_run_of_nothing_is_refused() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32)
        op = hr.no_op()
    session = hr.Session(graph=g)
    for fetches in ([], (), {}):
        with pytest.raises(tf.errors.InvalidArgumentError, match="at least one target to fetch or execute"):
            session.partial_run_setup(fetches, [x])
    assert session.partial_run_setup([op], [x])
