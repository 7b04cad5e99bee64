"""Descriptions of clusters: their forms, questions, comparison and checks; files of any content."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace.v1 as tf
from headrace.dist import cluster_spec
from headrace.dist.cluster_spec import ClusterSpec

pytestmark = pytest.mark.one_engine

TWO_JOBS = {"ps": ["a:1", "b:1"], "worker": {0: "c:1", 2: "d:1"}}


class Message(types.SimpleNamespace):
    """Has the fields of a `ClusterDef`."""

    def SerializeToString(self) -> bytes:
        return b""


def message(jobs: dict[str, dict[int, str]]) -> Message:
    return Message(job=[types.SimpleNamespace(name=name, tasks=tasks) for name, tasks in jobs.items()])


# *** questions ***


def test_tasks_are_found_by_job_and_index() -> None:
    cluster = ClusterSpec(TWO_JOBS)
    assert cluster.jobs == ["ps", "worker"]
    assert [cluster.num_tasks(job) for job in cluster.jobs] == [2, 2]
    assert cluster.task_indices("worker") == [0, 2]
    assert cluster.job_tasks("ps") == ["a:1", "b:1"]
    assert cluster.job_tasks("worker") == ["c:1", None, "d:1"], "of an index without a task"
    assert cluster.task_address("worker", 2) == "d:1"


def test_what_is_not_in_the_cluster_is_an_error_that_lists_what_is() -> None:
    cluster = ClusterSpec(TWO_JOBS)
    for ask in (cluster.num_tasks, cluster.task_indices, cluster.job_tasks, lambda job: cluster.task_address(job, 0)):
        with pytest.raises(ValueError, match=r"No such job in cluster: 'gpu'; its jobs are \['ps', 'worker'\]"):
            ask("gpu")
    with pytest.raises(ValueError, match=r"No task with index 1 in job 'worker'; its tasks are \[0, 2\]"):
        cluster.task_address("worker", 1)


def test_a_job_without_tasks_is_a_job() -> None:
    cluster = ClusterSpec({"ps": []})
    assert (cluster.num_tasks("ps"), cluster.job_tasks("ps"), cluster.as_dict()) == (0, [], {"ps": {}})


# *** forms ***


@pytest.mark.parametrize(
    "form", [ClusterSpec(TWO_JOBS), message({"ps": {0: "a:1", 1: "b:1"}, "worker": {2: "d:1", 0: "c:1"}})]
)
def test_all_forms_describe_one_cluster(form: Any) -> None:
    assert ClusterSpec(form) == ClusterSpec(TWO_JOBS)


def test_a_dict_of_it_makes_it_again() -> None:
    cluster = ClusterSpec(TWO_JOBS)
    assert cluster.as_dict() == TWO_JOBS
    assert ClusterSpec(cluster.as_dict()) == cluster
    cluster.as_dict()["ps"].append("e:1")
    assert cluster.num_tasks("ps") == 2


def test_comparison_truth_and_text() -> None:
    cluster = ClusterSpec(TWO_JOBS)
    assert cluster != ClusterSpec({"ps": ["a:1", "b:1"]})
    assert cluster == {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 2: "d:1"}}
    assert cluster != 3
    assert cluster
    assert not ClusterSpec({})
    assert repr(ClusterSpec({"b": ["x:1"], "a": ["y:1"]})) == "ClusterSpec({'a': ['y:1'], 'b': ['x:1']})"


def test_v1_has_it() -> None:
    assert issubclass(tf.train.ClusterSpec, ClusterSpec)


# *** checks ***


@pytest.mark.parametrize(
    "address", ["localhost:2222", "10.0.0.1:0", "[::1]:65535", "[fe80::1]:80", b"host-1.example.org:1", "my_host:1"]
)
def test_addresses(address: Any) -> None:
    text = address.decode() if isinstance(address, bytes) else address
    assert ClusterSpec({"worker": [address]}).task_address("worker", 0) == text


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("host", "the port is missing"),
        ("", "the port is missing"),
        ("grpc://host:1", "it has a scheme"),
        ("host:65536", "'65536' is no port"),
        ("host:-1", "'-1' is no port"),
        ("host:http", "'http' is no port"),
        ("host:1\n", "is no port"),
        ("host:\u0661", "is no port"),  # a digit
        ("::1:80", "an IPv6 address is written in brackets"),
        ("[::g]:80", "'::g' is no IPv6 address"),
        ("[]:80", "is no IPv6 address"),
        (":80", "'' is no name of a host"),
        ("a b:80", "'a b' is no name of a host"),
        ("a/b:80", "is no name of a host"),
        ("h" * 300 + ":80", "is no name of a host"),
    ],
)
def test_a_malformed_address_is_named_with_its_task(address: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"of task 1 of job 'worker' is not of the form 'host:port'") as caught:
        ClusterSpec({"worker": ["good:1", address]})
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "text"),
    [
        (3, "`cluster` must be a dictionary"),
        (["a:1"], "`cluster` must be a dictionary"),
        ({"worker": "a:1"}, "The tasks for job 'worker' must be a list or a dictionary"),
        ({"worker": {"0": "a:1"}}, "Task index '0' of job 'worker' must be an integer"),
        ({"worker": {True: "a:1"}}, "Task index True"),
        ({"worker": [1]}, "Task address 1 must be bytes or unicode"),
        ({1: ["a:1"]}, "Job name 1 must be bytes or unicode"),
    ],
)
def test_wrong_types_are_type_errors(cluster: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        ClusterSpec(cluster)


@pytest.mark.parametrize(
    ("cluster", "text"),
    [
        ({"": ["a:1"]}, "'' is no name of a job"),
        ({"a/b": ["a:1"]}, "'a/b' is no name of a job"),
        ({"*": ["a:1"]}, "is no name of a job"),
        ({"a/task:1": ["a:1"]}, "is no name of a job"),
        ({"worker": {-1: "a:1"}}, "task index -1 of job 'worker' is not between 0 and 65535"),
        ({"worker": {1 << 16: "a:1"}}, "task index 65536"),
        (
            {"ps": ["a:1"], "worker": ["b:1", "a:1"]},
            "/job:ps/task:0 and /job:worker/task:1 have the same address 'a:1'",
        ),
    ],
)
def test_wrong_values_are_value_errors(cluster: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ClusterSpec(cluster)


def test_tasks_may_share_the_port_that_means_any() -> None:
    assert ClusterSpec({"worker": ["localhost:0", "localhost:0"]}).num_tasks("worker") == 2


def test_there_is_a_largest_number_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_spec, "MOST_TASKS", 3)
    with pytest.raises(ValueError, match="at most 3 tasks"):
        ClusterSpec({"a": ["a:1", "b:1"], "b": ["c:1", "d:1"]})
    with pytest.raises(ValueError, match="job 'a' has 4 tasks"):
        ClusterSpec({"a": ["a:1"] * 4})


# *** files ***


def read(tmp_path: Path, content: str | bytes) -> ClusterSpec:
    path = tmp_path / "cluster.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return ClusterSpec.from_toml(path)


def test_a_file_has_lists_and_tables(tmp_path: Path) -> None:
    text = '# two jobs\n[jobs]\nps = ["a:1", "b:1"]\n[jobs.worker]\n0 = "c:1"\n2 = "d:1"\n'
    assert read(tmp_path, text) == ClusterSpec(TWO_JOBS)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "it must have the table 'jobs' and nothing else; it has []"),
        ("jobs = 3", "it must have the table 'jobs'"),
        ('[job]\nworker = ["a:1"]', "it has ['job']"),
        ('[jobs]\nworker = ["a:1"]\n[other]', "it has ['jobs', 'other']"),
        ("[jobs]\nworker = 3", "The tasks for job 'worker' must be a list"),
        ("[jobs]\nworker = [3]", "Task address 3"),
        ('[jobs]\nworker = ["a"]', "the port is missing"),
        ('[jobs.worker]\nx = "a:1"', "'x' is no index of a task"),
        ('[jobs.worker]\n-1 = "a:1"', "'-1' is no index of a task"),
        ('[jobs.worker]\n999999999 = "a:1"', "task index 999999999"),
        ('[jobs.worker]\n0 = "a:1"\n00 = "b:1"', "the index 0 occurs twice"),
        ('[jobs]\n"a/b" = ["a:1"]', "'a/b' is no name of a job"),
        ("[jobs", "Expected"),
        (b"\xff\xfe", "codec can't decode"),
        (b"\x00", "no description of a cluster"),
        ("x = " + "[" * 5000, "no description of a cluster"),
        ("x = " + "9" * 5000, "no description of a cluster"),
        (b"#" * ((1 << 20) + 1), "it has more than 1048576 bytes"),
    ],
)
def test_a_file_with_another_content_is_a_value_error(tmp_path: Path, content: str | bytes, text: str) -> None:
    with pytest.raises(ValueError, match=r"cluster\.toml: no description of a cluster: ") as caught:
        read(tmp_path, content)
    assert text in str(caught.value)


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ClusterSpec.from_toml(tmp_path / "cluster.toml")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=8),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(), x, max_size=3),
    max_leaves=8,
)


@pytest.mark.matrix
@given(_VALUES | st.dictionaries(st.sampled_from(["ps", "worker"]), _VALUES))
def test_any_value_is_a_cluster_or_refused(value: Any) -> None:
    try:
        cluster = ClusterSpec(value)
    except (TypeError, ValueError):
        return
    assert ClusterSpec(cluster.as_dict()) == cluster
