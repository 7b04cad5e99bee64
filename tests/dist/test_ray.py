"""Workers as actors of Ray: results, placement, lost processes and nodes, and the end.

The module has one Ray cluster on this machine, with a node "left" of six CPUs. Tests add and remove other nodes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.dist.address import Address
from headrace.dist.network import NetworkOptions
from headrace.errors import OpError, UnauthenticatedError, UnavailableError

HAS_RAY = importlib.util.find_spec("ray") is not None

pytestmark = [
    pytest.mark.system,
    pytest.mark.one_engine,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: pip install 'headrace[ray]'"),
    # Ray 2.55 leaves the outputs of the processes that it starts to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed file <_io.(TextIOWrapper|FileIO) name='/dev/null':ResourceWarning"),
    # `ray.init` of some versions announces once in a process that Ray will no longer hide GPUs.
    pytest.mark.filterwarnings("ignore:Tip. In future versions of Ray, Ray will no longer override acc:FutureWarning"),
]

PATIENCE = 30.0  # seconds for a replacement
STORE = 80 << 20  # bytes of the object store of a node, which the tests do not use
TASKS = "/job:worker/task:0", "/job:worker/task:1"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """The Ray cluster, to which this process is connected."""
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 6, "resources": {"left": 6}, "labels": {"side": "left"}, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "include_dashboard": False})
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextlib.contextmanager
def right(nodes: Any) -> Iterator[Any]:
    """A second node, removed at the end unless the test has removed it."""
    node = nodes.add_node(num_cpus=3, resources={"right": 3}, labels={"side": "right"}, object_store_memory=STORE)
    try:
        yield node
    finally:
        if node in nodes.worker_nodes:
            nodes.remove_node(node)


@pytest.fixture(scope="module")
def cluster(nodes: Any) -> Iterator[Any]:
    """Two workers, for the tests that lose none."""
    with hr.cluster.ray(2) as cluster:
        yield cluster


def loop_and_gradient(devices: tuple[str | None, str | None]) -> tuple[hr.Graph, list[Any]]:
    """A loop over both devices, and its gradient."""
    with hr.Graph() as g:
        x = hr.constant(np.float32([0.5, -0.25]))

        def body(i: Any, v: Any) -> Any:
            with hr.device(devices[0]):
                u = hr.tanh(v * np.float32(1.25))
            with hr.device(devices[1]):
                return i + 1, u + x

        with hr.device(devices[0]):
            y = hr.while_loop(lambda i, v: i < 12, body, [hr.constant(np.int32(0)), x])[1]
        return g, [y, *hr.gradients(y, [x])]


def long_loop() -> Any:
    """A loop over both devices that takes minutes."""

    def body(i: Any) -> Any:
        with hr.device(TASKS[0]):
            j = i + 1
        with hr.device(TASKS[1]):
            return j + 1

    with hr.device(TASKS[0]):
        return hr.while_loop(lambda i: i < 10**8, body, [hr.constant(np.int32(0))])


def check_equal(got: Any, want: Any) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def run_until_it_works(session: hr.Session, fetches: Any) -> Any:
    """Runs a step until the lost worker has been replaced. Other errors fail."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return session.run(fetches, timeout_ms=20_000)
        except UnavailableError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def error_of_a_step(session: hr.Session, fetches: Any, lose: Callable[[], object]) -> BaseException:
    """Returns the error of a long step during which `lose` is called."""
    timer = threading.Timer(0.5, lose)
    timer.start()
    try:
        with pytest.raises(OpError) as caught:
            session.run(fetches, timeout_ms=60_000)
        return caught.value
    finally:
        timer.join()


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "the time is over"
        time.sleep(0.05)


def test_a_loop_and_its_gradient_over_two_actors_have_the_values_of_one_process(cluster: Any) -> None:
    g, fetches = loop_and_gradient((None, None))
    with hr.Session(graph=g) as session:
        want = session.run(fetches)
    g, fetches = loop_and_gradient(TASKS)
    with hr.Session(cluster, graph=g) as session:
        for _ in range(3):
            check_equal(session.run(fetches), want)


def test_two_sessions_share_the_variables_of_the_actors(cluster: Any) -> None:
    with hr.Graph() as g:
        with hr.device(TASKS[1]):
            v = hr.Variable(np.float32(3), name="shared")
        doubled = v.assign(v * 2)
    with hr.Session(cluster, graph=g) as one, hr.Session(cluster, graph=g) as two:
        one.run(v.initializer)
        two.run(doubled)
        assert one.run(v) == 6


def test_another_process_is_a_client_with_the_address_and_the_secret(cluster: Any) -> None:
    program = (
        "import sys, headrace as hr\n"
        "with hr.Graph() as g:\n"
        "    with hr.device('/job:worker/task:1'): y = hr.constant(20) + 1\n"
        "with hr.Session(sys.argv[1], graph=g) as session: print(session.run(y))\n"
    )
    env = {**os.environ, "HEADRACE_CLUSTER_SECRET": cluster.secret}
    command = [sys.executable, "-c", program, cluster.address]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "21\n", done.stderr


def test_a_client_with_another_secret_is_refused(cluster: Any) -> None:
    with pytest.raises(UnauthenticatedError):
        hr.Session(Address(cluster.address, NetworkOptions(secret=b"another")), graph=hr.Graph())


def test_devices_and_job_are_those_of_the_arguments(nodes: Any) -> None:
    with (
        hr.cluster.ray(1, devices={"CPU": 2}, job="ps", resources={"CPU": 0.5}) as cluster,
        hr.Session(cluster, graph=hr.Graph()) as session,
    ):
        names = [d.name for d in session.list_devices()]
        assert names == [f"/job:ps/replica:0/task:0/device:CPU:{i}" for i in range(2)]
        assert cluster.spec.as_dict() == {"ps": [cluster.workers[0].address]}


def test_resources_labels_and_the_strategy_place_workers(nodes: Any) -> None:
    left = nodes.head_node.node_id
    with right(nodes) as node:
        cases: list[tuple[dict[str, Any], set[str]]] = [
            ({"resources": {"right": 1}}, {node.node_id}),
            ({"labels": {"side": "left"}, "resources": {"CPU": 1, "left": 1}}, {left}),
            ({"placement_strategy": "STRICT_SPREAD", "labels": {"side": "in(left,right)"}}, {left, node.node_id}),
        ]
        for arguments, want in cases:
            with hr.cluster.ray(2, **arguments) as cluster:
                assert {w.node for w in cluster.workers} == want, arguments


def test_a_step_fails_with_its_killed_worker_and_later_ones_run_on_the_replacement(nodes: Any) -> None:
    g, fetches = loop_and_gradient(TASKS)
    with g.as_default():
        long = long_loop()
    with hr.cluster.ray(2) as cluster, hr.Session(cluster, graph=g) as session:
        want = session.run(fetches)
        before = cluster.workers
        error = error_of_a_step(session, long, lambda: os.kill(before[1].pid, signal.SIGKILL))
        assert isinstance(error, UnavailableError)
        assert "worker /job:worker/replica:0/task:1" in str(error)
        check_equal(run_until_it_works(session, fetches), want)
        after = cluster.workers
        assert after[0] == before[0]
        assert after[1].pid != before[1].pid
        assert after[1].address != before[1].address
        assert cluster.spec.task_address("worker", 1) == after[1].address


def test_a_worker_that_is_not_restarted_is_named_by_later_steps(nodes: Any) -> None:
    with hr.Graph() as g:
        y = hr.constant(3) + 1
    with hr.cluster.ray(1, restart=False) as cluster, hr.Session(cluster, graph=g) as session:
        assert session.run(y) == 4
        os.kill(cluster.processes[0], signal.SIGKILL)
        wait_until(lambda: bool(cluster.workers[0].problem))
        with pytest.raises(UnavailableError, match="worker /job:worker/replica:0/task:0"):
            session.run(y)


def test_workers_of_a_lost_node_come_back_on_another_node(nodes: Any) -> None:
    g, fetches = loop_and_gradient(TASKS)
    with g.as_default():
        long = long_loop()
    with right(nodes) as node, hr.cluster.ray(2) as cluster, hr.Session(cluster, graph=g) as session:
        want = session.run(fetches)
        lost = [w.task for w in cluster.workers if w.node == node.node_id]
        assert len(lost) == 1, "SPREAD"
        error = error_of_a_step(session, long, lambda: nodes.remove_node(node))
        assert isinstance(error, UnavailableError)
        assert f"worker {lost[0]}" in str(error)
        check_equal(run_until_it_works(session, fetches), want)
        assert {w.node for w in cluster.workers} == {nodes.head_node.node_id}


def test_missing_resources_are_an_error_with_the_request_and_the_nodes(nodes: Any) -> None:
    began = time.monotonic()
    with pytest.raises(UnavailableError) as caught:
        hr.cluster.ray(2, resources={"CPU": 2, "wheel": 1}, timeout=1.0)
    assert time.monotonic() - began < 10
    text = str(caught.value)
    assert "Ray has not placed 2 workers with {'CPU': 2, 'wheel': 1} each (SPREAD) within 1 s" in text
    assert "CPU: 6, wheel: 0, left: 6" in text


def test_a_worker_that_cannot_start_is_an_error_with_its_reason(nodes: Any) -> None:
    with pytest.raises(UnavailableError, match=r"task:0 has not started on Ray: no device type 'XPU'"):
        hr.cluster.ray(1, devices={"XPU": 1})


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_workers": 0}, "at least one worker"),
        ({"num_workers": 1, "job": "a/b"}, "no name of a job"),
        ({"num_workers": 1, "placement_strategy": "FAR"}, "SPREAD, PACK"),
    ],
)
def test_malformed_arguments_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        hr.cluster.ray(**arguments)


def test_close_leaves_no_process_thread_or_actor(nodes: Any) -> None:
    import ray

    threads = set(threading.enumerate())
    free = ray.available_resources()["left"]
    cluster = hr.cluster.ray(1, resources={"left": 1})
    pids = cluster.processes
    assert all(map(is_alive, pids))
    cluster.close()
    cluster.close()
    wait_until(lambda: not any(map(is_alive, pids)))
    wait_until(lambda: ray.available_resources()["left"] == free)
    assert ray.is_initialized(), "the test has connected to Ray"
    assert not {t for t in set(threading.enumerate()) - threads if not t.name.startswith("Dummy-")}, "Dummy: Ray's own"
    with pytest.raises(UnavailableError, match="was closed"):
        hr.Session(cluster, graph=hr.Graph())


def test_ray_is_started_and_ended_with_the_clusters_of_a_program() -> None:
    program = (
        "import headrace as hr\n"
        "with hr.Graph() as g: y = hr.constant(20) + 1\n"
        "one, two = hr.cluster.ray(1), hr.cluster.ray(1, resources={'CPU': 0.5})\n"
        "import ray\n"
        "print(*one.processes, *two.processes)\n"
        "one.close()\n"
        "print(ray.is_initialized())\n"
        "with hr.Session(two, graph=g) as session: print(session.run(y))\n"
        "two.close()\n"
        "print(ray.is_initialized())\n"
        "left = hr.cluster.ray(1)\n"  # not closed
        "print(*left.processes)\n"
    )
    env = {**os.environ, "RAY_ADDRESS": "local"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    pids, *lines, left = done.stdout.splitlines()
    assert lines == ["True", "21", "False"]
    wait_until(lambda: not any(is_alive(int(pid)) for pid in [*pids.split(), *left.split()]))
