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


def _logged(folder: Path, **options: Any) -> Any:
    with tf.Graph().as_default() as g:
        x = p(2, 3)
        w = tf.get_variable("w", [3, 4], initializer=tf.zeros_initializer())
        tf.nn.relu(tf.matmul(x, w, name="y"), name="z")
    tf.profiler.write_op_log(g, str(folder), **options)
    return g, tf.profiler.OpLogProto.FromString((folder / "tfprof_log").read_bytes())


def test_the_log_of_operations(tmp_path: Path) -> None:
    g, log = _logged(tmp_path, add_trace=False)
    found = {e.name: (e.float_ops, list(e.types)) for e in log.log_entries}
    assert found["y"] == (48, [])
    assert found["w"] == (0, ["_trainable_variables"])
    assert "z" not in found
    assert dict(log.id_to_string) == {0: "none"}
    mine = tf.profiler.OpLogProto()
    mine.log_entries.add(name="z", float_ops=77, types=["mine"])
    tf.profiler.write_op_log(g, str(tmp_path), mine)
    both = tf.profiler.OpLogProto.FromString((tmp_path / "tfprof_log").read_bytes())
    entries = {e.name: e for e in both.log_entries}
    assert (entries["z"].float_ops, entries["z"].types) == (77, ["mine"])
    (trace,) = entries["y"].code_def.traces
    assert both.id_to_string[trace.file_id].endswith("test_profiler.py")
    assert trace.lineno > 0


def test_a_log_adds_numbers_and_types(tmp_path: Path) -> None:
    g, log = _logged(tmp_path)
    log.log_entries.add(name="z", float_ops=77, types=["mine"])
    silent = Builder(Builder.float_operation()).with_empty_output().build()
    assert tf.profiler.profile(g, op_log=log, options=silent).total_float_ops == 48 + 77
    mine = Builder(silent).with_accounted_types(["mine"]).build()
    assert tf.profiler.profile(g, op_log=log, options=mine).total_float_ops == 77
    assert tf.profiler.Profiler(g, log).profile_name_scope(mine).total_float_ops == 77


def test_advice_names_the_expensive_operation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metadata = tf.RunMetadata()
    device = metadata.step_stats.dev_stats.add(device="/device:CPU:0")
    for name, micros in (("y", 300), ("z", 100)):
        device.node_stats.add(node_name=name, all_end_rel_micros=micros)
    g, _ = _logged(tmp_path)
    found = tf.profiler.advise(g, metadata)
    assert set(found.checkers) == set(tf.profiler.ALL_ADVICE)
    assert list(found.checkers["ExpensiveOperationChecker"].reports) == [
        "top 1 operation type: MatMul, cpu: 300us, accelerator: 0us, total: 300us (75.00%)",
        "top 2 operation type: Relu, cpu: 100us, accelerator: 0us, total: 100us (25.00%)",
        "top 1 graph node: y, cpu: 300us, accelerator: 0us, total: 300us",
    ]
    assert capsys.readouterr().out.startswith("AcceleratorUtilizationChecker:\n\nExpensiveOperationChecker:\ntop 1 ")
    assert list(tf.profiler.advise(g, None, {"OperationChecker": {}}).checkers) == ["OperationChecker"]
    profiler = tf.profiler.Profiler(g)
    profiler.add_step(1, metadata)
    assert profiler.advise({"ExpensiveOperationChecker": {}}).checkers["ExpensiveOperationChecker"].reports
