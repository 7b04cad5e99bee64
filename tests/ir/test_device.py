"""`ir.device`: TensorFlow's device names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import GraphError
from headrace.ir.device import DeviceSpec

parse = DeviceSpec.from_string


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("/job:worker/replica:0/task:1/device:CPU:0", "/job:worker/replica:0/task:1/device:CPU:0"),
        ("/device:CPU:0", "/device:CPU:0"),
        ("/cpu:0", "/device:CPU:0"),
        ("cpu:0", "/device:CPU:0"),
        ("CPU:1", "/device:CPU:1"),
        ("/device:gpu:2", "/device:GPU:2"),
        ("/gpu", "/device:GPU:*"),
        ("/gpu:*", "/device:GPU:*"),
        ("/device:GPU", "/device:GPU:*"),
        ("/device:*:1", "/device:*:1"),
        ("/device:XLA_CPU:0", "/device:XLA_CPU:0"),
        ("/task:1/job:a", "/job:a/task:1"),
        ("/job:*/cpu:0", "/device:CPU:0"),
        ("job:a/task:1", "/job:a/task:1"),
        ("/job:a/", "/job:a"),
        ("/device:CPU:01", "/device:CPU:1"),
    ],
)
def test_names_have_a_canonical_form(text, canonical):
    assert str(parse(text)) == canonical
    assert parse(canonical) == parse(text)


def test_the_parts():
    spec = parse("/job:worker/replica:0/task:1/device:CPU:0")
    assert (spec.job, spec.replica, spec.task, spec.type, spec.index) == ("worker", 0, 1, "CPU", 0)
    assert spec.is_full
    assert not parse("/cpu:0").is_full
    assert parse("/cpu:*") == DeviceSpec(type="CPU")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("/foo", "Unknown attribute 'foo'.*'/foo'"),
        ("/xla_cpu:0", "Unknown attribute 'xla_cpu'"),
        ("/device", "Unknown attribute 'device'"),
        ("/device:CPU:0:1", "'device:CPU:0:1' is no part"),
        ("/device:CPU:0/gpu:1", "Multiple device types are not allowed"),
        ("/job:a/job:b", "Multiple jobs are not allowed"),
        ("/task:x", "'x' is no task"),
        ("/replica:-1", "'-1' is no replica"),
        ("/cpu:99999999999999", "is no device index"),
        ("/job:", "'' is no job"),
        ("/job:a b", "'a b' is no job"),
        ("/device:\u0662:0", "is no device type"),
        ("/cpu:\u0662", "is no device index"),
    ],
)
def test_what_is_no_name_is_said_to_be_none(text, says):
    with pytest.raises(GraphError, match=says):
        parse(text)
    with pytest.raises(ValueError):
        parse(text)


def test_an_inner_request_goes_over_an_outer_one():
    outer = parse("/job:ps/task:1/gpu:3")
    assert str(outer.merge(parse("/cpu:0"))) == "/job:ps/task:1/device:CPU:0"
    assert str(outer.merge(parse("/task:2"))) == "/job:ps/task:2/device:GPU:3"
    assert outer.merge(parse("")) == outer
    assert parse("").merge(outer) == outer


@pytest.mark.parametrize(
    ("request_", "is_met"),
    [
        ("", True),
        ("/gpu:*", True),
        ("/gpu:1", True),
        ("/job:w", True),
        ("/gpu:0", False),
        ("/cpu:1", False),
        ("/job:x/gpu:1", False),
    ],
)
def test_a_request_describes_devices(request_, is_met):
    assert parse(request_).matches(parse("/job:w/replica:0/task:0/device:GPU:1")) is is_met


def test_an_open_device_does_not_meet_a_request():
    assert not parse("/cpu:0").matches(parse("/cpu:*"))


specs = st.builds(
    DeviceSpec,
    job=st.none() | st.from_regex(r"[a-z_][a-z0-9_]*", fullmatch=True),
    replica=st.none() | st.integers(0, 99),
    task=st.none() | st.integers(0, 99),
    type=st.none() | st.sampled_from(["CPU", "GPU", "FPGA"]),
    index=st.none() | st.integers(0, 99),
)


@pytest.mark.matrix
@given(specs)
def test_text_loses_nothing(spec):
    assert parse(str(spec)) == spec


@pytest.mark.matrix
@given(specs, specs, specs)
def test_merging_is_associative_and_matches(a, b, c):
    assert a.merge(b).merge(c) == a.merge(b.merge(c))
    assert b.matches(a.merge(b))
