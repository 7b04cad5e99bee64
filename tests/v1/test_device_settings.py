"""`tf.config`: devices, and settings of later sessions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import headrace.v1 as tf
from headrace import flags
from headrace.v1 import session

pytestmark = pytest.mark.one_engine


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    tf.reset_default_graph()
    before = dict(session.defaults), flags.RUN_EAGERLY.value, flags.TRACEBACK.value
    yield
    session.defaults.clear()
    session.defaults.update(before[0])
    flags.RUN_EAGERLY.value, flags.TRACEBACK.value = before[1:]


def test_there_is_one_cpu() -> None:
    (cpu,) = tf.config.list_physical_devices()
    assert cpu == tf.config.PhysicalDevice("/physical_device:CPU:0", "CPU")
    assert tf.config.experimental.list_physical_devices("GPU") == []
    assert tf.config.list_logical_devices() == [tf.config.LogicalDevice("/device:CPU:0", "CPU")]
    tf.config.set_visible_devices([], "GPU")
    tf.config.set_visible_devices(cpu)
    with pytest.raises(ValueError, match="cannot be made invisible"):
        tf.config.set_visible_devices([], "CPU")
    with pytest.raises(ValueError, match="Unrecognized device"):
        tf.config.set_visible_devices([tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")])
    with pytest.raises(ValueError, match="Cannot set memory growth"):
        tf.config.experimental.set_memory_growth(cpu, True)


def test_sessions_have_the_settings() -> None:
    def settings(config: Any = None) -> dict[str, Any]:
        return session._settings(config)

    assert settings()["allow_soft_placement"] is False
    tf.config.set_soft_device_placement(True)
    tf.config.threading.set_intra_op_parallelism_threads(2)
    tf.config.threading.set_inter_op_parallelism_threads(3)
    tf.debugging.set_log_device_placement(True)
    cpu = tf.config.list_physical_devices()[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    found = settings()
    assert (found["allow_soft_placement"], found["log_device_placement"], found["device_count"]) == (
        True,
        True,
        {"CPU": 2},
    )
    assert (found["intra_op_parallelism_threads"], found["inter_op_parallelism_threads"]) == (2, 3)
    assert settings(tf.ConfigProto(intra_op_parallelism_threads=1))["intra_op_parallelism_threads"] == 1
    assert (tf.config.get_soft_device_placement(), tf.debugging.get_log_device_placement()) == (True, True)
    assert tf.config.threading.get_intra_op_parallelism_threads() == 2
    assert [d.name for d in tf.config.list_logical_devices()] == ["/device:CPU:0", "/device:CPU:1"]
    tf.config.set_logical_device_configuration(cpu, None)
    assert tf.config.get_logical_device_configuration(cpu) is None


def test_a_session_runs_on_the_logical_devices() -> None:
    cpu = tf.config.list_physical_devices()[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    with tf.device("/cpu:1"):
        x = tf.constant(1.0) + 1.0
    with tf.Session() as sess:
        assert sess.run(x) == 2


def test_flags() -> None:
    tf.config.run_functions_eagerly(True)
    assert (tf.config.functions_run_eagerly(), flags.RUN_EAGERLY.value) == (True, 1)
    tf.config.experimental_run_functions_eagerly(False)
    assert not tf.config.experimental_functions_run_eagerly()
    tf.debugging.disable_traceback_filtering()
    assert (tf.debugging.is_traceback_filtering_enabled(), flags.TRACEBACK.value) == (False, "full")
    tf.debugging.enable_traceback_filtering()
    assert tf.debugging.is_traceback_filtering_enabled()
