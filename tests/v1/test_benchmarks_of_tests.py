"""`tf.test.Benchmark`, `StubOutForTesting` and the small names of `tf.test`."""

from __future__ import annotations

import json
import math
import unittest
from typing import Any

import pytest

import headrace.v1 as tf

pytestmark = pytest.mark.one_engine


def _benchmark() -> type[Any]:
    class SquareBenchmark(tf.test.Benchmark):
        def benchmark_square(self) -> None:
            with tf.Graph().as_default(), tf.Session(config=tf.test.benchmark_config()) as session:
                self.found = self.run_op_benchmark(
                    session, tf.square(tf.ones([4])), min_iters=3, store_trace=True, mbs=1.0, extras={"rows": 4}
                )

        def helper(self) -> None:
            raise AssertionError("is no benchmark")

    return SquareBenchmark


def test_a_benchmark_times_runs_and_reports_them(capsys: pytest.CaptureFixture[str]) -> None:
    made = _benchmark()()
    assert made.names() == ["benchmark_square"]
    made.evaluate("benchmark_square")
    assert made.found["iters"] == 3
    assert made.found["wall_time"] > 0
    assert made.found["throughput"] == pytest.approx(1.0 / made.found["wall_time"])
    assert json.loads(made.found["extras"]["full_trace_chrome_format"])
    said = capsys.readouterr().out
    assert said.startswith("SquareBenchmark.benchmark_square: 3 iterations, ")
    assert said.endswith("rows: 4\n")


def test_main_runs_the_benchmarks_of_a_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    class ListedBenchmark(_benchmark()):  # type: ignore[misc]
        pass

    tf.test.main(["x", "--benchmarks=ListedBenchmark.*square"])
    assert capsys.readouterr().out.count("ListedBenchmark.benchmark_square") == 1
    tf.test.main(["x", "--benchmarks=none of them"])
    assert capsys.readouterr().out == ""


def test_a_class_without_benchmarks_is_abstract() -> None:
    assert tf.test.Benchmark.is_abstract()
    assert not _benchmark().is_abstract()


class _Owner:
    def method(self) -> int:
        return 1


class _Heir(_Owner):
    pass


def test_stubs_are_set_and_restored() -> None:
    stubs = tf.test.StubOutForTesting()
    stubs.Set(math, "pi", 3)
    stubs.SmartSet(_Heir, "method", lambda self: 2)
    assert (math.pi, _Owner().method()) == (3, 2)  # the class that defines the attribute has the stub
    stubs.CleanUp()
    assert (round(math.pi, 2), _Owner().method(), "method" in vars(_Heir)) == (3.14, 1, False)
    with pytest.raises(AttributeError):
        stubs.Set(math, "xyzzy", 1)


def test_a_predicate_skips_a_test() -> None:
    class Case(unittest.TestCase):
        @tf.test.disable_with_predicate(lambda: True, "not here")
        def test_skipped(self) -> None:
            raise AssertionError

        @tf.test.disable_with_predicate(lambda: False, "not here")
        def test_run(self) -> None:
            pass

    result = unittest.TestResult()
    Case("test_skipped").run(result)
    Case("test_run").run(result)
    assert result.wasSuccessful()
    assert [reason for _, reason in result.skipped] == ["not here"]


def test_graphs_are_compared_without_names_of_tables_and_files() -> None:
    def graph(name: str, files: str) -> Any:
        with tf.Graph().as_default() as g:
            initializer = tf.lookup.KeyValueTensorInitializer(["a"], [1], tf.string, tf.int64)
            table = tf.lookup.StaticHashTable(initializer, 0)
            table.lookup(tf.constant(["a"]))
            tf.constant([files], name="save/tensor_names")
        out = g.as_graph_def()
        for node in out.node:
            if node.op == "HashTableV2":
                node.attr["shared_name"].s = name.encode()
        return out

    tf.test.assert_equal_graph_def(graph("a", "f"), graph("b", "g"), checkpoint_v2=True, hash_table_shared_name=True)
    for options in ({"checkpoint_v2": True}, {"hash_table_shared_name": True}):
        with pytest.raises(AssertionError, match="differs"):
            tf.test.assert_equal_graph_def(graph("a", "f"), graph("b", "g"), **options)


def test_small_names() -> None:
    assert tf.test.is_cpu_target_available("x86") is False
    assert tf.test.with_eager_op_as_function(_Owner) is _Owner
    assert tf.test.with_eager_op_as_function(only_as_function=True)(_Owner) is _Owner
    tf.test.experimental.sync_devices()
