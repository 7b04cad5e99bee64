"""Many clients on one cluster: every answer is right, and no process leaks.

Clients are threads in a few processes. Each has a session of its own, which it closes and opens again now and then.
After the first tenth of the steps all of them wait, and the resources of the servers are measured; they may not grow
from then on.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from typing import Any

import pytest

import headrace as hr
from headrace.dist.address import Address
from tests.dist.faults import MODULUS, Cluster, Process, Usage, options, until, usage, worker_name

pytestmark = [pytest.mark.system, pytest.mark.one_engine]

WORKERS = 2
REOPENED = 10  # times that a client makes a new session
#: Resources that a server may have more at the end than after the first tenth of the steps: memory for fragmentation,
#: files that are about to be closed, and spare threads, which end after ten seconds without work.
SLACK = Usage(megabytes=10.0, threads=16, files=3)
EXACT = Usage(megabytes=16.0, threads=2, files=2)


class OneClient:
    """A client: a program of its own, and sessions that run it.

    Args:
      url: the address of the master.
      number: its number among all clients.
    """

    def __init__(self, url: str, number: int) -> None:
        self.number = number
        self.target = Address(url, options(20.0))
        self.rng = random.Random(number)
        self.count = 0
        self.graph = hr.Graph(ordered=False)
        first, second = (hr.device(f"{worker_name((number + i) % WORKERS)}/device:CPU:0") for i in range(2))
        with self.graph:
            self.x = hr.placeholder(hr.int64, (), name="x")
            self.n = hr.placeholder(hr.int64, (), name="n")
            with first:
                self.variable = hr.Variable(0, dtype=hr.int64, name=f"count_{number}")
                self.add = self.variable.assign_add(1)
                a = self.x * 3 + number
            with second:
                self.y = a * a % MODULUS

            def body(i: Any, a: Any) -> Any:
                with hr.device(f"{worker_name(0)}/device:CPU:0"):
                    a = a * 3
                with hr.device(f"{worker_name(1)}/device:CPU:0"):
                    return i + 1, (a + i) % MODULUS

            self.z = hr.while_loop(lambda i, a: i < self.n, body, (hr.constant(0, hr.int64), self.x))[1]
        self.session = self._open()
        self.session.run(self.variable.initializer)

    def _open(self) -> hr.Session:
        return hr.Session(self.target, graph=self.graph, config={"operation_timeout_in_ms": 60_000})

    def run(self, steps: int) -> None:
        """Runs steps and checks their results."""
        for i in range(steps):
            if steps >= REOPENED and i % (steps // REOPENED) == 0:
                self.session.close()
                self.session = self._open()
            x, kind = self.rng.randrange(1000), self.rng.randrange(4)
            if kind == 0:
                self.count += 1
                got, want = int(self.session.run(self.add)), self.count
            elif kind == 1:
                n = self.rng.randrange(5)
                got, want = int(self.session.run(self.z, {self.x: x, self.n: n})), x
                for k in range(n):
                    want = (want * 3 + k) % MODULUS
            else:
                got, want = int(self.session.run(self.y, {self.x: x})), (x * 3 + self.number) ** 2 % MODULUS
            assert got == want, f"client {self.number}: {got} is not {want}"


def main(url: str, first: str, clients: str) -> None:
    """A process of clients. Each line of its input is a number of steps."""
    made = [OneClient(url, int(first) + i) for i in range(int(clients))]
    errors: list[str] = []

    def run(client: OneClient, steps: int) -> None:
        try:
            client.run(steps)
        except BaseException as e:
            errors.append(f"{type(e).__name__}: {e}")

    print(json.dumps({"steps": 0, "errors": errors}), flush=True)
    for line in sys.stdin:
        threads = [threading.Thread(target=run, args=(client, int(line))) for client in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(json.dumps({"steps": int(line), "errors": errors}), flush=True)
    for client in made:
        client.session.close()


class Crowd:
    """Processes of clients on a cluster."""

    def __init__(self, cluster: Cluster, processes: int, clients: int) -> None:
        each = clients // processes
        command = [sys.executable, "-m", "tests.dist.test_clients", cluster.url]
        self.processes = [
            Process(f"clients {i}", [*command, str(i * each), str(each)], cluster.folder / f"clients{i}.log")
            for i in range(processes)
        ]
        self._answers()

    def run(self, steps: int) -> None:
        """Lets each client run steps."""
        for p in self.processes:
            assert p.popen.stdin is not None
            p.popen.stdin.write(f"{steps}\n".encode())
            p.popen.stdin.flush()
        self._answers()

    def _answers(self) -> None:
        for p in self.processes:
            assert p.popen.stdout is not None
            line = p.popen.stdout.readline()  # the timeout of the test bounds it
            assert line, f"{p.name} has ended"
            assert json.loads(line)["errors"] == [], line

    def close(self) -> None:
        for p in self.processes:
            p.end()


def _many_clients(processes: int, clients: int, steps: int, slack: Usage) -> None:
    with Cluster(WORKERS) as cluster:
        cluster.wait_for_workers()
        alone = _usages(cluster)
        crowd = Crowd(cluster, processes, clients)
        crowd.run(steps // 10)
        before, before_clients = _usages(cluster), [usage(p.pid) for p in crowd.processes]
        crowd.run(steps - steps // 10)
        _has_not_grown(cluster, before, slack)
        for p, b in zip(crowd.processes, before_clients, strict=True):
            _is_within(p.name, p.pid, b, slack)
        d = cluster.description()
        assert d["sessions"] == clients + 1, d
        assert d["steps"] == [], d
        crowd.close()

        def left() -> list[Any]:
            d = cluster.description()
            workers = [cluster.described_by_itself(task) for task in cluster.tasks[1:]]
            found = [d["sessions"] - 1, d["programs"], d["steps"]]  # one session is that of the description
            return [x for x in (*found, *(w["programs"] for w in workers), *(w["steps"] for w in workers)) if x]

        until(lambda: not left(), 10.0, "sessions, programs or steps are left")
        alone = {t: Usage(before[t].megabytes, u.threads, u.files) for t, u in alone.items()}
        _has_not_grown(cluster, alone, slack)
        cluster.check_logs()


def _usages(cluster: Cluster) -> dict[str, Usage]:
    return {task: usage(process.pid) for task, process in cluster.processes.items()}


def _has_not_grown(cluster: Cluster, before: dict[str, Usage], slack: Usage) -> None:
    for task, b in before.items():
        _is_within(task, cluster.processes[task].pid, b, slack)


def _is_within(name: str, pid: int, before: Usage, slack: Usage) -> None:
    """The resources of a process become those of before, apart from a slack."""
    end = time.monotonic() + 30
    while True:
        now = usage(pid)
        is_within = (
            now.megabytes <= before.megabytes + slack.megabytes
            and now.threads <= before.threads + slack.threads
            and now.files <= before.files + slack.files
        )
        if is_within:
            return
        assert time.monotonic() < end, f"{name} had {before}, and has {now}"
        time.sleep(0.2)


@pytest.mark.timeout(120)
def test_ten_clients_get_right_answers_and_leave_nothing() -> None:
    _many_clients(2, 10, 200, SLACK)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_hundred_clients_get_right_answers_and_leave_nothing() -> None:
    _many_clients(4, 100, 1000, EXACT)


@pytest.mark.timeout(120)
def test_more_steps_wait_for_values_than_a_reactor_has_threads_by_default() -> None:
    """Each step waits on one worker for a value that the other one computes."""
    with hr.Graph(ordered=False) as g:
        x = hr.placeholder(hr.float64, ())
        with hr.device(f"{worker_name(0)}/device:CPU:0"):
            a = hr.matmul(hr.fill([100, 100], x), hr.fill([100, 100], x))
        with hr.device(f"{worker_name(1)}/device:CPU:0"):
            y = a[0, 0] + x
    wrong: list[Any] = []

    def run(session: hr.Session, i: int) -> None:
        try:
            wrong.extend(v for _ in range(5) if (v := session.run(y, {x: i})) != 100.0 * i * i + i)
        except Exception as e:
            wrong.append(e)

    with Cluster(WORKERS) as cluster:
        cluster.wait_for_workers()
        config = {"operation_timeout_in_ms": 30_000}
        with hr.Session(Address(cluster.url, options(20.0)), graph=g, config=config) as session:
            threads = [threading.Thread(target=run, args=(session, i)) for i in range(150)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert not wrong, wrong
        cluster.check_logs()


def test_a_client_may_connect_before_the_worker_listens() -> None:
    with hr.Graph() as g:
        y = hr.constant(3) + 4
    with hr.cluster.local(1) as cluster:
        secret = hr.NetworkOptions(secret=cluster.secret.encode(), connect_timeout=60.0)
        with hr.Session(hr.cluster.at(cluster.address, secret), graph=g) as session:
            assert session.run(y) == 7


def test_the_passes_of_a_session_reach_the_master() -> None:
    with hr.Graph() as g:
        y = hr.constant(3.0) + 4.0
    with hr.cluster.local(1) as cluster:
        for config, folds in (({}, True), ({"optimize": "-fold"}, False), ({"max_folded_constant_in_bytes": 2}, False)):
            with hr.Session(cluster, graph=g, config=config) as session:
                assert session.run(y) == 7
                assert ("fold" in session.explain(y).passes) is folds
                options, metadata = hr.RunOptions(output_partition_graphs=True), hr.RunMetadata()
                with pytest.raises(hr.errors.UnimplementedError, match="the workers of a cluster have the graphs"):
                    session.run(y, options=options, run_metadata=metadata)
        with pytest.raises(hr.errors.UnimplementedError, match="isolate_session_state"):
            hr.Session(cluster, graph=g, config={"isolate_session_state": True})


if __name__ == "__main__":
    main(*sys.argv[1:])
