"""`tf.autograph.experimental.set_loop_options`, with the results of TensorFlow 2.21."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import headrace.v1 as tf
from headrace.errors import AutographError
from headrace.ir.notes import SwapMemory

pytestmark = pytest.mark.one_engine

options = tf.autograph.experimental.set_loop_options


@pytest.fixture(autouse=True)
def _eager() -> Iterator[None]:
    tf.reset_default_graph()
    tf.enable_eager_execution()
    yield
    tf.disable_eager_execution()


def counted(k: Any) -> Any:
    n = 0
    for _ in tf.range(k):
        options(maximum_iterations=3, parallel_iterations=2, swap_memory=True)
        n += 1
    return n


def repeated() -> Any:
    n = tf.constant(0)
    while n < 10:
        options(maximum_iterations=4)
        n += 1
    return n


def outer() -> Any:
    n = tf.constant(0)
    for _ in tf.range(5):
        options(maximum_iterations=2)
        for _ in tf.range(5):
            n += 1
    return n


def of_python() -> Any:
    n = tf.constant(0)
    for _ in tf.range(5):
        for _ in range(3):
            options(maximum_iterations=1)
            n += 1
    return n


def broken() -> Any:
    n = tf.constant(0)
    for _ in tf.range(5):
        options(maximum_iterations=3)
        if n > 10:
            break
        n += 1
    return n


def none() -> Any:
    n = tf.constant(0)
    for _ in tf.range(5):
        options(maximum_iterations=0)
        n += 1
    return n


def test_the_loop_around_the_call_is_limited() -> None:
    count = tf.function(counted)
    assert [int(count(tf.constant(k))) for k in (10, 2)] == [3, 2]
    limited = [int(tf.function(f)()) for f in (repeated, outer, of_python, broken, none)]
    assert limited == [4, 10, 15, 3, 0]


def test_the_operation_has_the_options() -> None:
    graph = tf.function(counted).lower(tf.TensorSpec([], tf.int32)).graph
    (loop,) = [op for op in graph.operations if op.type.endswith("While")]
    assert loop.attrs["parallel_iterations"] == 2
    assert SwapMemory in loop.notes


def test_shapes_that_change() -> None:
    def widening() -> Any:
        v = tf.constant((0,))
        for i in tf.range(3):
            options(shape_invariants=[(v, tf.TensorShape([None]))])
            v = tf.concat((v, [i]), 0)
        return v

    found = tf.function(widening)
    assert found().numpy().tolist() == [0, 0, 1, 2]

    def constant() -> Any:
        v = tf.constant((0,))
        for i in tf.range(3):
            options(shape_invariants=[(v, tf.TensorShape([None]))])
            v = v + i
        return v

    assert tf.function(constant).lower().outputs[0].shape == (None,)

    def wrong() -> Any:
        v = tf.constant([0])
        for i in tf.range(3):
            v = v + i
            options(shape_invariants=[(v, [None])])
        return v

    with pytest.raises(AutographError, match="set options first"):
        tf.function(wrong)()


def test_outside_of_loops_nothing_happens() -> None:
    assert options(maximum_iterations=3) is None
