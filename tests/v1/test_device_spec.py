"""`tf.DeviceSpec`: TensorFlow's names, parts and merges."""

import pytest

import headrace.v1 as tf

pytestmark = pytest.mark.one_engine


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", ""),
        ("/job:a/replica:1/task:2/device:GPU:3", "/job:a/replica:1/task:2/device:GPU:3"),
        ("/cpu:0", "/device:CPU:0"),
        ("/task:3", "/task:3"),
    ],
)
def test_from_string(given: str, said: str) -> None:
    assert tf.DeviceSpec.from_string(given).to_string() == said


def test_parts_may_be_changed_and_merged() -> None:
    spec = tf.DeviceSpec(job="ps", device_type="cpu", device_index=0, task=1)
    assert repr(spec) == "<DeviceSpec(job=ps, replica=None, task=1, device_type=CPU, device_index=0)>"
    spec.job = "w"
    other = tf.DeviceSpec(replica=3, task=7)
    other.merge_from(spec)
    assert other.to_string() == "/job:w/replica:3/task:1/device:CPU:0"
    assert other.replace(task=9).to_string() == "/job:w/replica:3/task:9/device:CPU:0"
    assert other.make_merged_spec(tf.DeviceSpec(task=4)).to_string() == "/job:w/replica:3/task:4/device:CPU:0"
    assert other.parse_from_string("/job:q") is other
    assert other == tf.DeviceSpec(job="q")
    assert hash(other) == hash(tf.DeviceSpec(job="q"))


def test_a_wrong_name_is_refused() -> None:
    with pytest.raises(ValueError, match="Unknown attribute 'foo'"):
        tf.DeviceSpec.from_string("/job:a/foo")


def test_a_spec_is_a_request_of_a_device() -> None:
    spec = tf.DeviceSpec(job="ps", task=1)
    graph = tf.Graph()
    with graph.as_default(), tf.device(spec):
        assert tf.constant(1).device == "/job:ps/task:1"
    with graph.device(spec), graph.as_default():
        assert tf.constant(1).device == "/job:ps/task:1"
    with graph.as_default(), tf.device(lambda op: spec):
        assert tf.constant(1).device == "/job:ps/task:1"
