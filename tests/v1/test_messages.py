"""Messages of TensorFlow 1 for sessions, runs and training data: fields, wire format and effect.

The bytes are TensorFlow's (2.21).
"""

from __future__ import annotations

import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import pb

CONFIG = (
    b'\n\x07\n\x03CPU\x10\x02\x10\x03"\x07/job:ps"\x12/job:worker/task:12\x0b\t\x00\x00\x00\x00\x00\x00\xe0? \x018\x01R'
    b"\x08\x1a\x02(\x01R\x02\x18\x02"
)


def configured() -> tf.ConfigProto:
    config = tf.ConfigProto(allow_soft_placement=True, device_count={"CPU": 2})
    config.intra_op_parallelism_threads = 3
    config.gpu_options.allow_growth = True
    config.gpu_options.per_process_gpu_memory_fraction = 0.5
    config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    config.graph_options.rewrite_options.constant_folding = pb.RewriterConfig.OFF
    config.device_filters.extend(["/job:ps", "/job:worker/task:1"])
    return config


def test_a_config_has_tensorflows_bytes() -> None:
    assert configured().SerializeToString(deterministic=True) == CONFIG
    assert tf.ConfigProto.FromString(CONFIG) == configured()


def test_fields_of_messages_are_set_merged_and_cleared() -> None:
    config = tf.ConfigProto(gpu_options=tf.GPUOptions(allow_growth=True))
    assert config.HasField("gpu_options")
    assert not config.HasField("graph_options")
    assert not config.graph_options.optimizer_options.do_constant_folding
    assert not config.HasField("graph_options"), "a read changes nothing"
    config.MergeFrom(tf.ConfigProto(log_device_placement=True))
    other = tf.ConfigProto()
    other.CopyFrom(config)
    assert other.log_device_placement
    assert other.gpu_options.allow_growth
    other.gpu_options.Clear()
    assert config.gpu_options.allow_growth
    assert str(config) == "gpu_options {\n  allow_growth: true\n}\nlog_device_placement: true\n"


def test_fields_that_messages_have_not_are_refused_by_name() -> None:
    config = tf.ConfigProto()
    with pytest.raises(AttributeError, match="allow_soft"):
        config.allow_soft = True
    with pytest.raises(ValueError, match="allow_soft"):
        tf.ConfigProto(allow_soft=True)
    with pytest.raises(TypeError):
        config.log_device_placement = "yes"
    with pytest.raises(TypeError, match="config must be a tf"):
        tf.Session(config={"device_count": {}})  # type: ignore[arg-type]


def test_a_session_obeys_its_config() -> None:
    with tf.Graph().as_default():
        with tf.device("/cpu:1"):
            x = tf.constant(1.0)
        with tf.Session(config=configured()) as session:
            assert [d.name for d in session.list_devices()][-1].endswith("CPU:1")
            assert session.run(x) == 1.0
        take = tf.FIFOQueue(1, [tf.float32]).dequeue()
        limited = tf.ConfigProto(operation_timeout_in_ms=20)
        with tf.Session(config=limited) as session, pytest.raises(tf.errors.DeadlineExceededError):
            session.run(take)


def test_a_run_obeys_its_options_and_fills_its_metadata() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [4])
        y = tf.sqrt(x, name="root")
        take = tf.FIFOQueue(1, [tf.float32]).dequeue()
        feed = {x: [1.0, 4.0, 9.0, 16.0]}
        with tf.Session() as session:
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(take, options=tf.RunOptions(timeout_in_ms=20))
            traced, m = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
            session.run(y, feed, options=traced, run_metadata=m)
            assert m.HasField("step_stats")
            (device,) = m.step_stats.dev_stats
            (node,) = [n for n in device.node_stats if n.node_name == "root"]
            assert (node.memory[0].total_bytes, node.timeline_label) == (16, "root = Sqrt()")
            assert tf.RunMetadata.FromString(m.SerializeToString()) == m
            session.make_callable(y, [x], accept_options=True)(feed[x], options=tf.RunOptions(), run_metadata=m)
            assert not m.HasField("step_stats"), "a run without a trace leaves none"
            with pytest.raises(TypeError, match="must be a RunOptions"):
                session.run(y, feed, options=tf.ConfigProto())  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="must be a RunMetadata"):
                session.run(y, feed, run_metadata=tf.RunOptions())  # type: ignore[arg-type]
        fuller = hr.RunMetadata()
        with tf.Session() as session:
            session.run(y, feed, options=hr.RunOptions(trace_level=hr.RunOptions.FULL_TRACE), run_metadata=fuller)
        assert [op.type for op in fuller.ops if op.name == "root"] == ["Sqrt"]


def test_hooks_of_monitored_sessions_take_messages() -> None:
    class Traced(tf.train.SessionRunHook):
        def before_run(self, run_context: object) -> tf.train.SessionRunArgs:
            return tf.train.SessionRunArgs(None, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE))

        def after_run(self, run_context: object, run_values: tf.train.SessionRunValues) -> None:
            self.names = [n.node_name for d in run_values.run_metadata.step_stats.dev_stats for n in d.node_stats]

    with tf.Graph().as_default():
        y = tf.sqrt(tf.placeholder_with_default(4.0, []), name="root")
        hook, m = Traced(), tf.RunMetadata()
        with tf.train.MonitoredSession(hooks=[hook]) as session:
            assert session.run(y, options=tf.RunOptions(timeout_in_ms=60_000), run_metadata=m) == 2.0
            assert "root" in hook.names
            assert "root" in [n.node_name for d in m.step_stats.dev_stats for n in d.node_stats]
            session.run(y)
            assert "root" in hook.names


EXAMPLE = (
    b"\n3\n\x0c\n\x01b\x12\x07\n\x05\n\x01x\n\x00\n\r\n\x01f\x12\x08\x12\x06\n\x04\x00\x00\x00?\n\x14\n\x01i\x12\x0f\x1a"
    b"\r\n\x0b\x01\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
)
SEQUENCE = EXAMPLE + b"\x12\x10\n\x0e\n\x01t\x12\t\n\x05\x1a\x03\n\x01\x03\n\x00"
CLUSTER = (
    b"\n\r\n\x02ps\x12\x07\x08\x00\x12\x03a:1\n\x1a\n\x06worker\x12\x07\x08\x01\x12\x03c:3\x12\x07\x08\x00\x12\x03b:2"
)
SERVER = b"\n+" + CLUSTER + b"\x12\x06worker\x18\x01*\x04grpc"


def test_examples_have_tensorflows_bytes_and_are_parsed() -> None:
    t = tf.train
    features = {
        "i": t.Feature(int64_list=t.Int64List(value=[1, -2])),
        "f": t.Feature(float_list=t.FloatList(value=[0.5])),
        "b": t.Feature(bytes_list=t.BytesList(value=[b"x", b""])),
    }
    example = t.Example(features=t.Features(feature=features))
    assert t.Example.FromString(EXAMPLE) == example == t.Example.FromString(example.SerializeToString())
    steps = t.FeatureList(feature=[t.Feature(int64_list=t.Int64List(value=[3])), t.Feature()])
    sequence = t.SequenceExample(context=example.features, feature_lists=t.FeatureLists(feature_list={"t": steps}))
    assert t.SequenceExample.FromString(SEQUENCE) == sequence
    with tf.Graph().as_default(), tf.Session() as session:
        wanted = {"i": tf.FixedLenFeature([2], tf.int64), "b": tf.VarLenFeature(tf.string)}
        found = session.run(tf.parse_single_example(example.SerializeToString(), wanted))
    assert found["i"].tolist() == [1, -2]
    assert found["b"].values.tolist() == [b"x", b""]


def test_clusters_are_messages_with_tensorflows_bytes() -> None:
    spec = tf.train.ClusterSpec({"worker": {1: "c:3", 0: "b:2"}, "ps": ["a:1"]})
    message = spec.as_cluster_def()
    assert message == tf.train.ClusterDef.FromString(CLUSTER)
    assert tf.train.ClusterSpec(message) == spec
    server = tf.train.ServerDef(cluster=message, job_name="worker", task_index=1, protocol="grpc")
    assert server == tf.train.ServerDef.FromString(SERVER)


def test_a_server_takes_a_server_def() -> None:
    cluster = tf.train.ClusterSpec({"worker": ["localhost:0"]}).as_cluster_def()
    config = tf.ConfigProto(device_count={"CPU": 2})
    server = tf.train.Server(tf.train.ServerDef(cluster=cluster, job_name="worker", default_session_config=config))
    try:
        assert server.task == "/job:worker/replica:0/task:0"
        assert server.server_def == tf.train.ServerDef(cluster=cluster, job_name="worker", protocol="grpc")
        with tf.Session(server.target, graph=tf.Graph()) as session:
            assert len(session.list_devices()) == 2
    finally:
        server.close()
