"""Fields of `ConfigProto`, `RunOptions` and `RunMetadata` that change how a step is compiled and run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import pb
from headrace.session_config import settings

pytestmark = pytest.mark.one_engine

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "session_config.md"


@pytest.mark.parametrize(
    "message", [pb.ConfigProto, pb.GraphOptions, pb.OptimizerOptions, pb.RewriterConfig, pb.RunOptions, pb.RunMetadata]
)
def test_the_page_has_each_field(message: Any) -> None:
    _, _, section = PAGE.read_text().partition(f"\n## {message.DESCRIPTOR.name}\n")
    section = section.partition("\n## ")[0]
    assert [f.name for f in message.DESCRIPTOR.fields if f"`{f.name}`" not in section] == []


def step(config: tf.ConfigProto, trace: int = 0) -> list[list[str]]:
    """Runs a step; returns the operations of its partition graphs."""
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        x = tf.placeholder(tf.float32, [2], name="x")
        a = tf.add(tf.constant([1.0, 2.0], name="c"), tf.constant([3.0, 4.0], name="d"), name="a")
        with tf.device("/cpu:1" if config.device_count else None):
            y = tf.multiply(tf.multiply(x, a, name="m1"), tf.multiply(x, a, name="m2"), name="y")
        m = tf.RunMetadata()
        options = tf.RunOptions(output_partition_graphs=True, trace_level=trace)
        assert session.run(y, {x: [1, 2]}, options=options, run_metadata=m).tolist() == [16.0, 144.0]
        assert all(
            node.device.endswith(f"CPU:{bool(config.device_count):d}") for g in m.partition_graphs for node in g.node
        )
        assert m.HasField("step_stats") == bool(trace)
        session.run(y, {x: [1, 2]}, run_metadata=m)
        assert not m.partition_graphs
        session.run(y, {x: [1, 2]}, options=options, run_metadata=m)
        return [[f"{n.name} {n.op}" for n in g.node if n.op not in ("_Arg", "_Retval")] for g in m.partition_graphs]


def configured(change: Callable[[Any, Any], object]) -> tf.ConfigProto:
    config = tf.ConfigProto()
    graph = config.graph_options
    change(graph.optimizer_options, graph.rewrite_options)
    return config


def low(optimizer: Any, rewriter: Any, *on: str) -> None:
    optimizer.opt_level = tf.OptimizerOptions.L0
    for name in on:
        setattr(optimizer, name, True)


OFF = 2
WHOLE = ["c Const", "d Const", "a AddV2", "m1 Mul", "m2 Mul", "y Mul"]
UNFOLDED = ["c Const", "d Const", "a AddV2", "m1 Mul", "y Mul"]
TWICE = ["a Const", "m1 Mul", "m2 Mul", "y Mul"]
BEST = ["a Const", "m1 Mul", "y Mul"]

# The nodes that TensorFlow 2.21 ran with both of its optimizers set so (L0 with disable_meta_optimizer) are these.
CASES: dict[str, tuple[Callable[[Any, Any], object], list[str]]] = {
    "L1": (lambda o, r: None, BEST),
    "L0": (low, WHOLE),
    "L0 folds": (lambda o, r: low(o, r, "do_constant_folding"), TWICE),
    "L0 merges": (lambda o, r: low(o, r, "do_common_subexpression_elimination"), UNFOLDED),
    "L0 does both": (lambda o, r: low(o, r, "do_constant_folding", "do_common_subexpression_elimination"), BEST),
    "L0 inlines": (lambda o, r: low(o, r, "do_function_inlining"), WHOLE),
    "small constants": (lambda o, r: setattr(o, "max_folded_constant_in_bytes", 4), UNFOLDED),
    "no folding": (lambda o, r: setattr(r, "constant_folding", OFF), UNFOLDED),
    "no merging": (lambda o, r: setattr(r, "common_subgraph_elimination", OFF), TWICE),
    "no Grappler": (lambda o, r: setattr(r, "disable_meta_optimizer", True), BEST),
    "L0, no Grappler": (lambda o, r: (low(o, r), setattr(r, "disable_meta_optimizer", True)), WHOLE),
    "a list": (lambda o, r: r.optimizers.extend(["constfold", "layout"]), TWICE),
    "no loops": (lambda o, r: setattr(r, "loop_optimization", OFF), BEST),
}


@pytest.mark.parametrize("name", CASES)
def test_passes_run_as_the_options_ask(name: str) -> None:
    change, nodes = CASES[name]
    assert step(configured(change)) == [nodes]


def test_the_explanation_tells_the_same() -> None:
    with tf.Graph().as_default():
        y = tf.add([1.0], [2.0])
        for config, rules in ((None, True), (configured(low), False)):
            with tf.Session(config=config) as session:
                assert ("fold" in session.explain(y).passes) is rules


def test_groups_of_passes_are_switched_off() -> None:
    def off(change: Callable[[Any, Any], object]) -> set[str]:
        return {name.removeprefix("-") for name in settings(configured(change))["optimize"].split(",") if name}

    assert off(lambda o, r: None) == set()
    loops = off(lambda o, r: setattr(r, "loop_optimization", OFF))
    assert {"loop_fission", "loop_variables", "branches"} < loops
    assert all(name.startswith("loop_") or name == "branches" for name in loops)
    assert off(lambda o, r: setattr(r, "arithmetic_optimization", OFF)) == {"identities", "einsum", "slices", "pieces"}
    assert off(lambda o, r: (setattr(r, "remapping", OFF), setattr(r, "dependency_optimization", OFF))) == {
        "batch_norm", "controls",
    }  # fmt: skip
    assert off(lambda o, r: setattr(r, "function_optimization", OFF)) == {"inline"}
    assert off(low) == off(lambda o, r: r.optimizers.append("pruning")) == {*off(low)} != set()
    assert "prune" not in off(low)


def test_graphs_of_several_devices_and_of_a_traced_run() -> None:
    assert step(tf.ConfigProto(device_count={"CPU": 2})) == [BEST]  # the other device has nothing to do
    assert step(tf.ConfigProto(), tf.RunOptions.FULL_TRACE) == [WHOLE]  # interpreted operation by operation
    with tf.Graph().as_default():
        with tf.device("/cpu:0"):
            v = tf.get_variable("v", initializer=2.0)
        with tf.device("/cpu:1"):
            y = tf.square(v, name="y")
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
            session.run(v.initializer)
            m = hr.RunMetadata()
            session.run(y, options=hr.RunOptions(output_partition_graphs=True), run_metadata=m)
    found = {g.node[0].device[-5:]: {n.op for n in g.node} for g in m.partition_graphs}
    assert found.keys() == {"CPU:0", "CPU:1"}
    assert "_Send" in found["CPU:0"] and {"_Recv", "Square"} <= found["CPU:1"]  # noqa: PT018 - one graph each


def test_a_partition_graph_can_be_imported() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        n = tf.placeholder(tf.int32, [], name="n")
        y = tf.while_loop(lambda i: i < n, lambda i: i + 2, [0])
        m = tf.RunMetadata()
        session.run(y, {n: 3}, options=tf.RunOptions(output_partition_graphs=True), run_metadata=m)
    graph = hr.Graph()
    hr.import_graph_def(m.partition_graphs[0], graph=graph)
    assert [op.type for op in graph.operations] == [node.op for node in m.partition_graphs[0].node]


@pytest.mark.parametrize("counts", [{"GPU": 0}, {"GPU": 2}, {"GPU": 1, "CPU": 2}, {"TPU": 8}])
def test_types_of_devices_that_do_not_exist_have_no_devices(counts: dict[str, int]) -> None:
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count=counts)) as session:
        found = [d.name[-5:] for d in session.list_devices()]
        assert found == ["CPU:0", "CPU:1"][: counts.get("CPU", 1)]
        with tf.device("/gpu:0"):
            x = tf.constant(1.0)
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(x)


@pytest.mark.parametrize(
    ("n", "pools", "threads"), [(-1, [], 1), (3, [], 3), (3, [2, 5], 2), (3, [0], 3), (0, [-1], 1)]
)
def test_threads_for_kernels(n: int, pools: list[int], threads: int) -> None:
    config = tf.ConfigProto(inter_op_parallelism_threads=n, use_per_session_threads=True)
    for size in pools:
        config.session_inter_op_thread_pool.add(num_threads=size)
    assert settings(config)["inter_op_parallelism_threads"] == threads


def test_the_placement_on_one_device_is_logged(capfd: pytest.CaptureFixture[str]) -> None:
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(log_device_placement=True)) as session:
        session.run(tf.sqrt(4.0, name="root"))
    told = capfd.readouterr()
    assert "root: (Sqrt): /job:localhost/replica:0/task:0/device:CPU:0" in told.out + told.err


def test_hooks_get_partition_graphs() -> None:
    class Wants(tf.train.SessionRunHook):
        def before_run(self, run_context: object) -> tf.train.SessionRunArgs:
            return tf.train.SessionRunArgs(None, options=tf.RunOptions(output_partition_graphs=True))

        def after_run(self, run_context: object, run_values: tf.train.SessionRunValues) -> None:
            self.graphs = len(run_values.run_metadata.partition_graphs)

    hook = Wants()
    with tf.Graph().as_default():
        y = tf.sqrt(tf.placeholder_with_default(4.0, []), name="root")
        with tf.train.MonitoredSession(hooks=[hook]) as session:
            assert session.run(y) == 2.0
    assert hook.graphs == 1


def test_later_sessions_have_the_options_of_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.v1 import device_settings, session

    monkeypatch.setattr(session, "defaults", {})
    monkeypatch.setattr(device_settings, "defaults", session.defaults)
    monkeypatch.setattr(device_settings, "_optimizer_options", {})
    tf.config.optimizer.set_experimental_options({"constant_folding": False, "layout_optimizer": False})
    assert session._settings(None)["optimize"] == "-fold,-push_constants"
    assert session._settings(configured(low))["optimize"] != "-fold,-push_constants"
    tf.config.optimizer.set_experimental_options({"constant_folding": True})
    assert session._settings(None).get("optimize", "") == ""


def test_a_session_of_headrace_takes_the_passes_as_the_flag_does() -> None:
    with hr.Graph() as g:
        y = hr.constant(1.0) + 2.0
    with hr.Session(graph=g, config={"optimize": "-fold"}) as session:
        m = hr.RunMetadata()
        assert session.run(y, options=hr.RunOptions(output_partition_graphs=True), run_metadata=m) == 3.0
    assert [n.op for n in m.partition_graphs[0].node] == ["Const", "Const", "AddV2", "_Retval"]
    with pytest.raises(ValueError, match="there is no pass 'fold_all'"):
        hr.Session(graph=g, config={"optimize": "-fold_all"})
