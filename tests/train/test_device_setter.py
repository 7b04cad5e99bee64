"""Devices of programs with parameter servers: requests of all operations, and their placement."""

from __future__ import annotations

import logging
import types
from typing import Any

import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.dist.cluster_spec import ClusterSpec
from headrace.errors import GraphError
from headrace.place import Cluster, place
from headrace.train.device_setter import GreedyLoadBalancingStrategy, byte_size_load_fn, replica_device_setter

pytestmark = pytest.mark.one_engine

CLUSTER = {"ps": ["ps0:1", "ps1:1"], "worker": ["worker0:1", "worker1:1"]}


def setter(**kwargs: Any) -> Any:
    return replica_device_setter(cluster=CLUSTER, worker_device="/job:worker/task:1", **kwargs)


def devices(*xs: Any) -> list[str]:
    return [x.device for x in xs]


@pytest.fixture
def graph() -> Any:
    with tf.Graph().as_default() as g:
        yield g


# *** requests ***


def test_variables_take_turns_and_other_operations_are_on_the_worker(graph: Any) -> None:
    with tf.device(setter()):
        variables = [tf.get_variable(name, [2]) for name in "abc"]
        total = tf.add_n(variables)
    assert devices(*variables, total) == ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:0", "/job:worker/task:1"]


def test_each_part_of_a_partitioned_variable_has_its_turn(graph: Any) -> None:
    with tf.device(setter()):
        parts = list(tf.get_variable("p", [4, 2], partitioner=tf.fixed_size_partitioner(3)))
        last = tf.get_variable("v", [2])
    assert devices(*parts, last) == ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:0", "/job:ps/task:1"]


@pytest.mark.parametrize("kind", [tf.train.MomentumOptimizer, tf.train.AdamOptimizer])
def test_slots_are_with_their_variables_and_take_no_turn(graph: Any, kind: Any) -> None:
    with tf.device(setter()):
        v, w = tf.get_variable("v", [2]), tf.get_variable("w", [2])
        opt = kind(0.1, 0.9)
        opt.minimize(tf.reduce_sum(v * w))
        later = tf.get_variable("later", [2])
    for name in opt.get_slot_names():
        assert devices(opt.get_slot(v, name), opt.get_slot(w, name)) == ["/job:ps/task:0", "/job:ps/task:1"]
    assert later.device == "/job:ps/task:0"
    updates = [op.device for op in graph.get_operations() if op.type.startswith("Apply")]
    assert updates == ["/job:ps/task:0", "/job:ps/task:1"]


def test_requests_of_the_program_are_merged(graph: Any) -> None:
    with tf.device(setter()):
        with tf.device("/gpu:0"):
            v, x = tf.get_variable("v", [2]), tf.constant(1)
        with tf.device("/job:worker/cpu:0"):
            own = tf.get_variable("own", [2])
        with tf.device("/job:ps/task:7"):
            fixed = tf.get_variable("fixed", [2])
        after = tf.get_variable("after", [2])
    assert devices(v, x) == ["/job:ps/task:0/device:GPU:0", "/job:worker/task:1/device:GPU:0"]
    assert own.device == "/job:worker/device:CPU:0", "the request names another job, so it has no turn"
    assert devices(fixed, after) == ["/job:ps/task:7", "/job:ps/task:0"], "a request for the same job has one"


def test_without_merging_a_request_is_left_alone(graph: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headrace.train"):
        function = setter(merge_devices=False)
    assert "merge_devices=True is recommended" in caplog.text
    with tf.device(function):
        with tf.device("/cpu:0"):
            v = tf.get_variable("v", [2])
        w = tf.get_variable("w", [2])
    assert devices(v, w) == ["/device:CPU:0", "/job:ps/task:0"]


def test_the_user_names_jobs_and_types(graph: Any) -> None:
    function = replica_device_setter(2, "/job:server/cpu:0", "", ps_ops=["Const"])
    with tf.device(function):
        x, y, v = tf.constant(1), tf.constant(2), tf.get_variable("v", [2])
    assert devices(x, y, v) == ["/job:server/task:0/device:CPU:0", "/job:server/task:1/device:CPU:0", ""]
    with tf.device(replica_device_setter(2, None, "/job:w")):
        assert tf.get_variable("u", [2]).device == "/job:w"
    with tf.device(replica_device_setter(2, "/cpu:0", None)):
        assert tf.get_variable("t", [2]).device == "/device:CPU:0", "without a job there are no tasks"


def test_tables_and_accumulators_are_on_parameter_servers() -> None:
    with hr.Graph(), hr.device(setter()):
        table = hr.lookup.MutableHashTable(hr.string, hr.int64, -1)
        sums = hr.ConditionalAccumulator(hr.float32, (2,))
    assert devices(table.resource_handle, sums.accumulator_ref) == ["/job:ps/task:0", "/job:ps/task:1"]


# *** tasks ***


class Message(types.SimpleNamespace):
    """Has the fields of a `ClusterDef`."""

    def SerializeToString(self) -> bytes:
        return b""


@pytest.mark.parametrize(
    "cluster",
    [
        CLUSTER,
        ClusterSpec(CLUSTER),
        {"ps": {0: "ps0:1", 1: "ps1:1"}},
        Message(job=[types.SimpleNamespace(name="ps", tasks={0: "ps0:1", 1: "ps1:1"})]),
    ],
)
def test_the_cluster_tells_the_number_of_tasks(cluster: Any) -> None:
    with hr.Graph(), hr.device(replica_device_setter(cluster=cluster)):
        assert devices(*(hr.Variable(0.0) for _ in range(3))) == [
            "/job:ps/task:0",
            "/job:ps/task:1",
            "/job:ps/task:0",
        ]


@pytest.mark.parametrize("kwargs", [{}, {"cluster": {"worker": ["a:1"]}}, {"cluster": ClusterSpec({"ps": []})}])
def test_without_parameter_servers_no_device_is_requested(kwargs: Any) -> None:
    assert replica_device_setter(**kwargs) is None
    with hr.Graph(), hr.device("/cpu:0"), hr.device(replica_device_setter(**kwargs)):
        assert hr.Variable(0.0).device == ""


@pytest.mark.parametrize(
    ("kwargs", "error", "text"),
    [
        ({"cluster": 3}, TypeError, "`cluster` must be a ClusterSpec"),
        ({"ps_tasks": 1, "ps_strategy": 3}, TypeError, "ps_strategy must be callable"),
        ({"ps_tasks": -1}, ValueError, "ps_tasks must not be negative"),
        ({"ps_tasks": 1, "ps_device": "ps"}, GraphError, "'ps'"),
        ({"ps_tasks": 1, "worker_device": "/job"}, GraphError, "'/job'"),
    ],
)
def test_wrong_arguments(kwargs: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        replica_device_setter(**kwargs)


# *** strategies ***


def test_a_greedy_strategy_gives_to_the_task_with_the_smallest_load(graph: Any) -> None:
    with tf.device(setter(ps_strategy=GreedyLoadBalancingStrategy(2, byte_size_load_fn))):
        made = [tf.get_variable(f"v{i}", [n]) for i, n in enumerate((10, 4, 4, 4, 1))]
    assert [v.device[-1] for v in made] == ["0", "1", "1", "1", "0"]


def test_the_strategy_may_be_any_function(graph: Any) -> None:
    seen = []

    def last(op: Any) -> int:
        seen.append((op.type, op.name))
        return 1

    with tf.device(setter(ps_strategy=last)):
        assert tf.get_variable("v", [2]).device == "/job:ps/task:1"
    assert seen == [("VariableV2", "v")]


def test_sizes_in_bytes() -> None:
    with hr.Graph():
        assert byte_size_load_fn(hr.Variable(0.0).op) == 4
        assert byte_size_load_fn(hr.Variable(hr.zeros([3, 2], hr.float64)).op) == 48
        assert byte_size_load_fn(hr.Variable(hr.zeros([0, 2])).op) == 0
        assert byte_size_load_fn(hr.zeros([2]).op) == 8
        with pytest.raises(ValueError, match=r"size of 'Variable_3' is unknown: its shape is \[\?\]"):
            byte_size_load_fn(hr.Variable([1.0], shape=[None]).op)
        with pytest.raises(ValueError, match="must have a single output, it has 0"):
            byte_size_load_fn(hr.no_op())


# *** placement ***


def test_a_graph_of_a_worker_can_be_placed_as_requested(graph: Any) -> None:
    names = [f"/job:{job}/replica:0/task:{i}/device:CPU:0" for job in ("worker", "ps") for i in range(2)]
    with tf.device(setter()):
        w = tf.get_variable("w", [2, 3])
        table = tf.get_variable("table", [4, 3], partitioner=tf.fixed_size_partitioner(2))
        y = tf.matmul(tf.ones([1, 2]), w) + tf.nn.embedding_lookup(table, [1])
        opt = tf.train.AdamOptimizer()
        opt.minimize(tf.reduce_sum(y), global_step=tf.train.get_or_create_global_step())
    tf.global_variables_initializer()
    found = place(graph.operations, Cluster.local(names), soft=False).of
    for op in graph.operations:
        if op.type == "VariableV2":
            assert found[op] == f"/job:ps/replica:0/task:{op.device[-1]}/device:CPU:0"
    assert {found[op] for op in graph.operations if op.type == "MatMul"} == {names[1]}


@pytest.mark.parametrize("parts", [1, 2])
def test_rows_are_looked_up_on_the_server_of_their_table(graph: Any, parts: int) -> None:
    with tf.device(setter()):
        table = tf.get_variable("table", [4, 3], partitioner=tf.fixed_size_partitioner(parts))
        rows = tf.nn.embedding_lookup(table, [1, 2])
        tf.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(rows))
    looked_up = [op for op in graph.operations if op.type == "GatherV2" and op.name.startswith("embedding_lookup")]
    assert devices(*looked_up) == [f"/job:ps/task:{i}" for i in range(parts)]
    assert rows.device == "/job:worker/task:1"


def test_segments_are_summed_on_the_server_of_their_table(graph: Any) -> None:
    ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([0, 2, 1]), [2, 2])
    with tf.device(setter()):
        table = tf.get_variable("table", [4, 3])
        found = tf.nn.embedding_lookup_sparse(table, ids, None, combiner="sum", partition_strategy="div")
    assert found.device == "/job:ps/task:0"


def test_colocated_operations_request_the_device_of_their_target() -> None:
    with hr.Graph() as g:
        with hr.device("/job:ps/task:0"):
            v = hr.Variable(0.0, name="v")
        with hr.device("/job:ps/task:1"):
            w = hr.Variable(0.0, name="w")
    with g, hr.device(lambda op: "/job:worker"):
        with hr.colocate_with(v.op):
            x = hr.constant(1.0)
            read = w.value()
            with hr.colocate_with(w.op, ignore_existing=True):
                y = hr.constant(2.0)
        with hr.colocate_with(None, ignore_existing=True):
            z = hr.constant(3.0)
    assert devices(x, y, z) == ["/job:ps/task:0", "/job:ps/task:1", ""]
    assert x.op.attrs["_class"] == ("loc:@v",)
    assert "_class" not in read.op.attrs, "a variable is read where it is"
    assert read.device == "/job:ps/task:1"
