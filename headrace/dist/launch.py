"""Clusters that a program starts by itself: `hr.cluster.local`.

    with hr.cluster.local(4) as cluster, hr.Session(cluster, graph=g) as session:
        session.run(y)

The workers are processes of this machine that listen on loopback. They have a secret that nobody else knows, and end
with this process. The master of sessions that get the object is in this process; other processes may connect to
`cluster.address` with `cluster.secret`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace.dist.address import SCHEME
from headrace.dist.cluster_spec import ClusterSpec
from headrace.dist.master_node import MasterNode
from headrace.dist.network import Network, NetworkOptions
from headrace.dist.reactor import Reactor
from headrace.errors import UnavailableError

if TYPE_CHECKING:
    from headrace.dist.client import RemoteTarget
    from headrace.environment import PlacementOptions

SUPERVISION: Final = 0.2  # seconds between two looks at the processes
END_SECONDS: Final = 5.0  # seconds that workers have to end by themselves


class LocalCluster:
    """Worker processes of this machine. Sessions take it as their target.

    Args:
      num_workers: number of workers.
      devices: number of devices of each type in each worker, such as {"CPU": 2}.
      job: the name of their job.
      restart: whether a worker whose process has ended is started again.
      options: time limits of connections; the secret is a new one.
      env: environment variables of the workers, besides those of this process.

    Attributes:
      spec: the tasks with their addresses.
      address: the address of the master in the first worker, for other processes.
      secret: the secret of the cluster.

    Raises:
      UnavailableError: a worker has not started.
    """

    def __init__(
        self,
        num_workers: int,
        devices: Mapping[str, int] | None = None,
        job: str = "worker",
        restart: bool = True,
        options: NetworkOptions | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        if num_workers < 1:
            raise ValueError(f"num_workers={num_workers}: a cluster has at least one worker")
        self.secret = secrets.token_hex(32)
        self.spec = ClusterSpec({job: [f"127.0.0.1:{port}" for port in _free_ports(num_workers)]})
        self.address = f"{SCHEME}://{self.spec.task_address(job, 0)}"
        base = NetworkOptions() if options is None else options
        self.options = NetworkOptions(self.secret.encode(), None, None, base.heartbeat, base.patience)
        self._job = job
        self._devices = dict(devices or {})
        self._restart = restart
        self._env = {**os.environ, **(env or {}), "HEADRACE_CLUSTER_SECRET": self.secret}
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-cluster-")
        self._file = os.path.join(self._folder.name, "cluster.toml")
        with open(self._file, "w", encoding="utf-8") as f:
            f.write(f"[jobs]\n{json.dumps(job)} = {json.dumps(self.spec.job_tasks(job))}\n")
        self._lock = threading.Lock()
        self._is_closed = False
        self._processes = [self._start(i) for i in range(num_workers)]
        self._reactor = Reactor("headrace-cluster")
        incarnation = int.from_bytes(os.urandom(7), "little") or 1
        network = Network(self._reactor, self.options, f"master {os.getpid()}", incarnation)
        tasks = {f"/job:{job}/replica:0/task:{i}": self.spec.task_address(job, i) for i in range(num_workers)}
        self._master = MasterNode(tasks, network)
        self._supervise()

    def _start(self, index: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headrace", "worker", "--cluster", self._file, "--job", self._job]
        command += ["--task", str(index), "--until-eof"]
        command += ["--heartbeat", str(self.options.heartbeat), "--patience", str(self.options.patience)]
        for kind, n in self._devices.items():
            command += ["--device", f"{kind}={n}"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, env=self._env)

    def _supervise(self) -> None:
        """Starts processes again that have ended."""
        with self._lock:
            if self._is_closed:
                return
            for i, process in enumerate(self._processes):
                if process.poll() is not None and self._restart:
                    _close_input(process)
                    self._processes[i] = self._start(i)
        self._reactor.call_later(SUPERVISION, self._supervise)

    @property
    def processes(self) -> Sequence[int]:
        """Process ids of the workers."""
        with self._lock:
            return [p.pid for p in self._processes]

    def connect(self, options: PlacementOptions, filters: Sequence[str] = ()) -> RemoteTarget:
        """Returns the target of a new session, see `target.Connectable`."""
        if self._is_closed:
            raise UnavailableError("the cluster was closed")
        return self._master.connect(options, filters)

    def close(self) -> None:
        """Ends the workers. Further calls have no effect."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._master.close()
        self._reactor.close()
        for process in self._processes:
            _close_input(process)
        until = time.monotonic() + END_SECONDS
        for process in self._processes:
            try:
                process.wait(max(until - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._folder.cleanup()

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if "_is_closed" in vars(self):  # else it was not fully constructed
            self.close()


def local(
    num_workers: int,
    devices: Mapping[str, int] | None = None,
    job: str = "worker",
    restart: bool = True,
    options: NetworkOptions | None = None,
    env: Mapping[str, str] | None = None,
) -> LocalCluster:
    """Starts workers as processes of this machine.

    Args:
      num_workers: number of workers.
      devices: number of devices of each type in each worker, such as {"CPU": 2}.
      job: the name of their job.
      restart: whether a worker whose process has ended is started again.
      options: time limits of connections; the secret is a new one.
      env: environment variables of the workers, besides those of this process.

    Returns:
      The cluster, which is the target of sessions. It ends with its `with` block, or with this process.

    Raises:
      UnavailableError: a worker has not started.
    """
    return LocalCluster(num_workers, devices, job, restart, options, env)


def _close_input(process: subprocess.Popen[bytes]) -> None:
    """Closes the input of a worker, which then ends."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _free_ports(n: int) -> list[int]:
    """Returns ports of loopback that no other process uses now."""
    sockets = []
    try:
        for _ in range(n):
            s = socket.socket()
            sockets.append(s)
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()
