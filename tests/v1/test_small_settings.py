"""`tf.config.optimizer`, `tf.experimental`, `tf.autograph.experimental` and errors with TensorFlow's arguments."""

from __future__ import annotations

import pickle
import warnings

import pytest

import headrace.v1 as tf
from headrace import dtypes
from headrace.v1 import device_settings

pytestmark = pytest.mark.one_engine


def test_options_of_graph_optimization_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_settings, "_optimizer_options", {})
    assert tf.config.optimizer.get_jit() == ""
    for given, said in ((True, "autoclustering"), ("", ""), ("autoclustering", "autoclustering"), (False, "")):
        tf.config.optimizer.set_jit(given)
        assert tf.config.optimizer.get_jit() == said
    with pytest.raises(ValueError, match="got 'always'"):
        tf.config.optimizer.set_jit("always")
    tf.config.optimizer.set_experimental_options({"constant_folding": False})
    found = tf.config.optimizer.get_experimental_options()
    assert found == {"disable_model_pruning": False, "disable_meta_optimizer": False, "constant_folding": False}
    with pytest.raises(ValueError, match="'folding'"):
        tf.config.optimizer.set_experimental_options({"folding": True})


def test_memory_of_a_cpu_is_not_counted() -> None:
    assert tf.config.experimental.get_memory_info("CPU:0") == {"current": 0, "peak": 0}
    assert tf.config.experimental.get_memory_usage("CPU:0") == 0
    tf.config.experimental.reset_memory_stats("CPU:0")
    for name in ("CPU:1", "TPU:0", "a memory"):
        with pytest.raises(ValueError, match=rf"Unrecognized device: '{name}'; there is PhysicalDevice\(name='/phys"):
            tf.config.experimental.get_memory_info(name)


def test_strict_mode_makes_errors_of_deprecated_names() -> None:
    with warnings.catch_warnings():
        tf.experimental.enable_strict_mode()
        with pytest.raises(DeprecationWarning):
            warnings.warn("old", DeprecationWarning, stacklevel=1)


def test_small_numbers_have_both_names() -> None:
    for d in dtypes.SMALL:
        assert getattr(tf.experimental, d.name) is getattr(tf.dtypes.experimental, d.name) is d
    with tf.experimental.async_scope():
        tf.experimental.async_clear_error()


def test_parts_of_the_conversion(capsys: pytest.CaptureFixture[str]) -> None:
    feature = tf.autograph.experimental.Feature
    assert feature.all() == tuple(feature)
    assert set(feature.all_but(feature.LISTS)) == set(feature) - {feature.LISTS, feature.ALL}
    assert set(feature.all_but([feature.LISTS, feature.NAME_SCOPES])) == set(feature) - {
        feature.LISTS, feature.ALL, feature.NAME_SCOPES,
    }  # fmt: skip
    tf.autograph.trace(1, "a")
    assert capsys.readouterr().out == "1 a\n"

    @tf.autograph.experimental.do_not_convert()
    def f() -> int:
        return 1

    assert f() == 1


@pytest.mark.parametrize(
    ("op", "pinned", "with_variables"),
    [
        (lambda: tf.constant(1), True, True),
        (lambda: tf.constant(1.0), False, False),
        (lambda: tf.constant("a"), True, True),
        (lambda: tf.cast(tf.placeholder(tf.int32), tf.float32), True, True),
        (lambda: tf.dynamic_stitch([[0]], [[1]]), True, True),
        (lambda: tf.get_variable("v", [], use_resource=True), False, False),
    ],
)
def test_operations_without_a_kernel_for_gpus(op, pinned: bool, with_variables: bool) -> None:  # type: ignore[no-untyped-def]
    with tf.Graph().as_default():
        made = op().op
        assert tf.graph_util.must_run_on_cpu(made) is pinned
        assert tf.graph_util.must_run_on_cpu(made, True) is with_variables
        assert tf.graph_util.must_run_on_cpu(made.node_def) is pinned
    with pytest.raises(TypeError, match="got int"):
        tf.graph_util.must_run_on_cpu(3)


def test_errors_take_tensorflows_arguments() -> None:
    with tf.Graph().as_default():
        op = tf.constant(1.0, name="c").op
    error = tf.errors.OutOfRangeError(op.node_def, op, "at the end")
    assert (str(error), error.message, error.op, error.node) == ("at the end", "at the end", op, "c")
    assert error.node_def == op.node_def
    assert error.error_code == tf.errors.OUT_OF_RANGE
    assert str(pickle.loads(pickle.dumps(error))) == "at the end"
    assert tf.errors.AbortedError(None, None, "m").node_def is None
    assert tf.errors.AbortedError(node_def=None, op=None, message="m").message == "m"
    assert tf.OpError(None, None, "m", tf.errors.ABORTED).error_code == tf.errors.ABORTED
    assert tf.errors.AbortedError("m", "node").node == "node"
    for given, named in (((), {}), (("a",), {"message": "b"}), (("a",), {"x": 1}), ((1, 2, 3, 4), {})):
        with pytest.raises(TypeError, match="AbortedError takes"):
            tf.errors.AbortedError(*given, **named)


def test_a_computation_is_compiled_as_a_group() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
        session.run(v.initializer)
        pair = tf.xla.experimental.compile(lambda a, b: (a + b, [a * 2.0], v.assign_add(1.0).op), [1.0, 2.0])
        assert session.run(pair) == [3.0, 2.0]
        assert session.run(v) == 1.0
        (one,) = tf.xla.experimental.compile(lambda: tf.constant(3.0))
        assert session.run(one) == 3.0
        assert session.run(tf.xla.experimental.compile(lambda a: None, [1.0])) is None
        with tf.xla.experimental.jit_scope():
            assert session.run(tf.constant(4.0)) == 4.0


def test_switches_without_effect() -> None:
    with tf.experimental.function_executor_type("SINGLE_THREADED_EXECUTOR"):
        tf.experimental.output_all_intermediates(True)
    tf.config.experimental.enable_mlir_bridge()
    tf.config.experimental.disable_mlir_bridge()
    assert isinstance(1.0, tf.types.experimental.TensorLike)


def test_summaries_of_tensorflow_2_have_no_writer() -> None:
    assert tf.summary.all_v2_summary_ops() == []
    with pytest.raises(RuntimeError, match="No default"):
        tf.summary.initialize()
    assert tf.LogMessage(level=tf.LogMessage.WARN, message="m").message == "m"


def test_loss_scales_have_two_places() -> None:
    assert tf.train.experimental.enable_mixed_precision_graph_rewrite is (
        tf.mixed_precision.enable_mixed_precision_graph_rewrite
    )
    tf.train.experimental.disable_mixed_precision_graph_rewrite()


def test_elements_of_shapes_are_numbers_or_dimensions() -> None:
    shape = tf.TensorShape([2, None])
    tf.enable_v2_tensorshape()
    assert (list(shape), shape[0], shape[1], tf.TensorShape(None)[0]) == ([2, None], 2, None, None)
    assert tf.zeros([2, 3]).shape[1] == 3
    assert (tf.dimension_at_index(shape, 0), shape[1:], shape.dims[0].value) == (2, tf.TensorShape([None]), 2)
    tf.disable_v2_tensorshape()
    assert [d.value for d in shape] == [2, None]


def test_the_behaviour_of_tensorflow_2() -> None:
    tf.reset_default_graph()
    tf.enable_v2_behavior()
    try:
        assert tf.executing_eagerly()
        assert list(tf.constant([[1, 2]]).shape) == [1, 2]
        assert (tf.constant([1, 2]) == [1, 3]).numpy().tolist() == [True, False]
    finally:
        tf.disable_v2_behavior()
    assert not tf.executing_eagerly()
    assert isinstance(tf.constant([1]).shape[0], tf.Dimension)
    with pytest.raises(ValueError, match="at program startup"):
        tf.enable_v2_behavior()
    tf.reset_default_graph()


def test_a_status_becomes_an_error() -> None:
    with tf.errors.raise_exception_on_not_ok_status() as status:
        assert (status.code, status.message) == (tf.errors.OK, "")
    failing = tf.errors.raise_exception_on_not_ok_status()
    with pytest.raises(tf.errors.OutOfRangeError, match="no rows are left"), failing as status:
        status.code, status.message = tf.errors.OUT_OF_RANGE, "no rows are left"
    with pytest.raises(KeyError), tf.errors.raise_exception_on_not_ok_status():
        raise KeyError("of the block")


def test_device_filters_of_tasks() -> None:
    filters = tf.config.experimental.ClusterDeviceFilters()
    filters.set_device_filters("worker", 0, ["/job:ps"])
    filters.set_device_filters("ps", 1, ("/job:worker", "/job:a"))
    server = tf.train.ServerDef(job_name="ps", cluster_device_filters=filters._as_cluster_device_filters())
    found = [
        (job.name, {k: list(t.device_filters) for k, t in job.tasks.items()})
        for job in server.cluster_device_filters.jobs
    ]
    assert found == [("ps", {1: ["/job:worker", "/job:a"]}), ("worker", {0: ["/job:ps"]})]
    with pytest.raises(TypeError, match="are texts"):
        filters.set_device_filters("worker", 0, [1])


def test_an_example_of_an_op_and_pinned_memory() -> None:
    with tf.Session() as session:
        assert session.run(tf.user_ops.my_fact()) == b"0! == 1"
        with pytest.raises(tf.errors.InvalidArgumentError, match="not pinned"):
            session.run(tf.check_pinned(tf.constant(1)))
