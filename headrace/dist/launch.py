"""Clusters that a program starts by itself: `hr.cluster.local` and `hr.cluster.ray`.

    with hr.cluster.local(4) as cluster, hr.Session(cluster, graph=g) as session:
        session.run(y)

The workers of `local` are processes of this machine that listen on loopback; those of `ray` are actors of Ray
(`dist.launch_ray`). They have a secret that no other process knows, and end with this process. The master of sessions
that get the object is in this process; other processes may connect to `cluster.address` with `cluster.secret`.

The workers use all files that this process can use. They run for the same user, and a process that knows their secret
got it from this one, so a limit would protect nothing from it. `files` sets one for programs that hand the secret on.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace import flags, public_names, thresholds
from headrace.dist.address import SCHEME, Address
from headrace.dist.cluster_spec import ClusterSpec
from headrace.dist.launched import END_SECONDS, LaunchedCluster
from headrace.dist.network import NetworkOptions

if TYPE_CHECKING:
    from headrace.dist.launch_ray import RayCluster

SUPERVISION: Final = thresholds.SUPERVISION_POLL  # seconds between two looks at the processes


class LocalCluster(LaunchedCluster):
    """Worker processes of this machine. Sessions take it as their target.

    Args:
      num_workers: number of workers.
      devices: number of devices of each type in each worker, such as {"CPU": 2}.
      job: the name of their job.
      restart: whether a worker whose process has ended is started again.
      options: time limits of connections; the secret is a new one.
      env: environment variables of the workers, in addition to those of this process.
      files: the folder whose files the workers use; "/": all files; None: none.

    Attributes:
      spec: the tasks with their addresses.
      address: the address of the master in the first worker, for other processes.
      secret: the secret of the cluster.

    Raises:
      UnavailableError: a worker has not started.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     with hr.device("/job:worker/task:0"):
      ...         y = hr.constant(3) + 4
      >>> with hr.cluster.LocalCluster(1) as cluster, hr.Session(cluster, graph=g) as sess:
      ...     value = sess.run(y)
      >>> value
      np.int32(7)
    """

    def __init__(
        self,
        num_workers: int,
        devices: Mapping[str, int] | None = None,
        job: str = "worker",
        restart: bool = True,
        options: NetworkOptions | None = None,
        env: Mapping[str, str] | None = None,
        files: str | os.PathLike[str] | None = os.sep,
    ) -> None:
        super().__init__(num_workers, job, restart, options)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-cluster-")
        self._file = os.path.join(self._folder.name, "cluster.toml")
        self._devices = dict(devices or {})
        self._files = files
        self._env = flags.environment_of_child(
            env or {},
            CLUSTER_SECRET=self.secret, CLUSTER_SECRET_FILE="", CLUSTER_CERT="", CLUSTER_KEY="", CLUSTER_CA="",
        )  # fmt: skip
        addresses = [f"127.0.0.1:{port}" for port in _free_ports(num_workers)]
        self.spec = ClusterSpec({job: addresses})
        self.address = f"{SCHEME}://{addresses[0]}"
        with open(self._file, "w", encoding="utf-8") as f:
            f.write(f"[jobs]\n{json.dumps(job)} = {json.dumps(addresses)}\n")
        self._processes += (self._start(i) for i in range(num_workers))
        self._serve(addresses)
        self._supervise()

    def _start(self, index: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headrace", "worker", "--cluster", self._file, "--job", self._job]
        command += ["--task", str(index), "--until-eof"]
        command += ["--heartbeat", str(self.options.heartbeat), "--patience", str(self.options.patience)]
        command += ["--largest-frame", str(self.options.largest_frame)]
        command += ["--shared-memory", str(self.options.shared_memory)]
        if self._files is not None:
            command += ["--files", os.fspath(self._files)]
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

    def _end_workers(self) -> None:
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


def local(
    num_workers: int,
    devices: Mapping[str, int] | None = None,
    job: str = "worker",
    restart: bool = True,
    options: NetworkOptions | None = None,
    env: Mapping[str, str] | None = None,
    files: str | os.PathLike[str] | None = os.sep,
) -> LocalCluster:
    """Starts workers as processes of this machine.

    Args:
      num_workers: number of workers.
      devices: number of devices of each type in each worker, such as {"CPU": 2}.
      job: the name of their job.
      restart: whether a worker whose process has ended is started again.
      options: time limits of connections; the secret is a new one.
      env: environment variables of the workers, in addition to those of this process.
      files: the folder whose files the workers use; "/": all files; None: none.

    Returns:
      The cluster, which is the target of sessions. It ends with its `with` block, or with this process.

    Raises:
      UnavailableError: a worker has not started.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     with hr.device("/job:worker/task:1"):
      ...         y = hr.constant(3) + 4
      >>> with hr.cluster.local(2) as cluster, hr.Session(cluster, graph=g) as sess:
      ...     value, workers = sess.run(y), cluster.spec.num_tasks("worker")
      >>> value, workers
      (np.int32(7), 2)
    """
    return LocalCluster(num_workers, devices, job, restart, options, env, files)


def at(address: str, options: NetworkOptions | None = None) -> Address:
    """Returns the cluster at an address, as the target of sessions.

    Args:
      address: the address of a server of the cluster, "headrace://host:port".
      options: the secret, encryption and limits of the connection; None: those of the flags CLUSTER_...

    Raises:
      ValueError: the text is no such address.

    Example:
      >>> import headrace as hr
      >>> server = hr.Server.create_local_server()
      >>> with hr.Graph() as g:
      ...     x = hr.constant(7)
      >>> with hr.Session(hr.cluster.at(server.target), graph=g) as session:
      ...     session.run(x)
      np.int32(7)
      >>> server.close()
    """
    return Address(address, options)


def ray(
    num_workers: int,
    resources: Mapping[str, float] | None = None,
    devices: Mapping[str, int] | None = None,
    job: str = "worker",
    labels: Mapping[str, str] | None = None,
    options: NetworkOptions | None = None,
    restart: bool = True,
    placement_strategy: str = "SPREAD",
    timeout: float = 60.0,
) -> RayCluster:
    """Starts workers as actors of Ray.

    If this process is not connected to Ray, it connects to the cluster that RAY_ADDRESS names or that runs on this
    machine, and else starts Ray on this machine. The end of the last such cluster ends this connection.

    Args:
      num_workers: number of workers.
      resources: resources of Ray for each worker, such as {"CPU": 2, "GPU": 1}; None: one CPU.
      devices: number of devices of each type in each worker, such as {"CPU": 2}.
      job: the name of their job.
      labels: label selector of Ray for the nodes of the workers, such as {"market-type": "!spot"}.
      options: time limits of connections; the secret is a new one.
      restart: whether a worker that is lost is started again.
      placement_strategy: "SPREAD", "PACK", "STRICT_SPREAD" or "STRICT_PACK", as in Ray.
      timeout: seconds until all workers must have started.

    Returns:
      The cluster, which is the target of sessions. It ends with its `with` block, or with this process.

    Raises:
      ImportError: Ray is not installed.
      ValueError: a malformed argument.
      UnavailableError: Ray lacks the resources, or a worker has not started in time.

    Example:
      >>> import headrace as hr
      >>> def run_on_ray(graph, fetch):  # to be called where Ray is installed
      ...     with hr.cluster.ray(4, resources={"CPU": 2}) as cluster, hr.Session(cluster, graph=graph) as session:
      ...         return session.run(fetch)
    """
    from headrace.dist.launch_ray import RayCluster

    return RayCluster(num_workers, resources, devices, job, labels, options, restart, placement_strategy, timeout)


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


# fmt: off
__all__ = [
    "LocalCluster",
    "at",
    "local",
    "ray",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
