"""`tf.profiler`: numbers of parameters and float operations, equal to TensorFlow's (recorded from 2.21)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace.v1 as tf

Builder = tf.profiler.ProfileOptionBuilder


def p(*shape: int | None) -> Any:
    return tf.placeholder(tf.float32, shape)


FLOAT_OPS: list[tuple[int, Callable[[], Any]]] = [
    (48, lambda: tf.matmul(p(2, 3), p(3, 4))),
    (48, lambda: tf.matmul(p(3, 2), p(4, 3), True, True)),
    (240, lambda: tf.matmul(p(2, 3, 4), p(2, 4, 5))),
    (0, lambda: tf.matmul(p(None, 3), p(3, 4))),
    (6, lambda: p(2, 3) + p(3)),
    (6, lambda: p(2, 3) / p(2, 3)),
    (6, lambda: p(2, 3) ** p(2, 3)),
    (6, lambda: -p(2, 3)),
    (6, lambda: tf.log(p(2, 3))),
    (6, lambda: tf.nn.bias_add(p(2, 3), p(3))),
    (0, lambda: tf.tanh(p(2, 3))),
    (12, lambda: tf.rsqrt(p(2, 3))),
    (12, lambda: tf.squared_difference(p(2, 3), p(2, 3))),
    (30, lambda: tf.nn.softmax(p(2, 3))),
    (5, lambda: tf.reduce_sum(p(2, 3))),
    (4, lambda: tf.reduce_sum(p(2, 3), 1)),
    (6, lambda: tf.reduce_mean(p(2, 3))),
    (4, lambda: tf.argmax(p(2, 3), 1)),
    (17, lambda: tf.nn.l2_loss(p(2, 3))),
    (12, lambda: tf.add_n([p(2, 3), p(2, 3), p(2, 3)])),
    (3600, lambda: tf.nn.conv2d(p(1, 5, 5, 2), p(3, 3, 2, 4), 1, "SAME")),
    (900, lambda: tf.nn.depthwise_conv2d(p(1, 5, 5, 2), p(3, 3, 2, 1), [1, 1, 1, 1], "SAME")),
    (32, lambda: tf.nn.max_pool(p(1, 4, 4, 2), 2, 2, "SAME")),
    (32, lambda: tf.nn.avg_pool(p(1, 4, 4, 2), 2, 2, "SAME")),
]


@pytest.mark.parametrize(("number", "make"), FLOAT_OPS)
def test_float_operations(number: int, make: Callable[[], Any]) -> None:
    with tf.Graph().as_default() as g:
        make()
    silent = Builder(Builder.float_operation()).with_empty_output().build()
    assert tf.profiler.profile(g, options=silent).total_float_ops == number


def net() -> Any:
    with tf.variable_scope("l1"):
        w, b = (tf.get_variable(n, s, initializer=tf.zeros_initializer()) for n, s in (("w", [3, 4]), ("b", [4])))
    with tf.variable_scope("l2"):
        v = tf.get_variable("w", [4, 2], initializer=tf.zeros_initializer())
        tf.get_variable("steps", [7], trainable=False, initializer=tf.zeros_initializer())
    return tf.matmul(tf.nn.relu(tf.nn.xw_plus_b(p(2, 3), w, b)), v)


def test_parameters_by_scope(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with tf.Graph().as_default():
        net()
        root = tf.profiler.profile(options=Builder.trainable_variables_parameter())
        every = Builder(Builder.trainable_variables_parameter()).with_accounted_types([".*"])
        assert tf.profiler.profile(options=every.with_file_output(str(tmp_path / "f")).build()).total_parameters == 31
    assert [(c.name, c.total_parameters) for c in root.children] == [("l1", 16), ("l2", 8)]
    assert (root.name, root.parameters, root.total_parameters, root.total_float_ops) == ("_TFProfRoot", 0, 24, 0)
    assert capsys.readouterr().out.splitlines()[:3] == [
        "_TFProfRoot (24 params)",
        "  l1 (16 params)",
        "    l1/b (4 params)",
    ]
    assert (tmp_path / "f").read_text().startswith("_TFProfRoot (31 params)")


def test_operations_and_times_of_a_traced_run() -> None:
    with tf.Graph().as_default() as g, tf.Session() as session:
        y = net()
        x = g.as_graph_element("Placeholder:0")
        session.run(tf.global_variables_initializer())
        m, traced = tf.RunMetadata(), tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        session.run(y, {x: [[1.0] * 3] * 2}, options=traced, run_metadata=m)
    silent = Builder(Builder.float_operation()).with_empty_output().build()
    flops = tf.profiler.profile(g, options=silent)
    assert [(c.name, c.total_float_ops) for c in flops.children[:2]] == [("xw_plus_b", 56), ("MatMul", 32)]
    profiler = tf.profiler.Profiler(g)
    profiler.add_step(3, m)
    measured = profiler.profile_name_scope(Builder(Builder.time_and_memory()).with_empty_output().build())
    ran = [n for d in m.step_stats.dev_stats for n in d.node_stats if n.node_name in {op.name for op in g.operations}]
    assert measured.total_exec_micros == sum(n.all_end_rel_micros for n in ran)
    assert next(c for c in measured.children if c.name == "MatMul").requested_bytes == 16
    with pytest.raises(tf.errors.UnimplementedError, match="'code'"):
        tf.profiler.profile(g, cmd="code")
