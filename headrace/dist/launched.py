"""Clusters that this process starts: their secret, their master, and their end.

A subclass of `LaunchedCluster` starts workers: processes of this machine (`launch.LocalCluster`) or actors of Ray
(`launch_ray.RayCluster`). It then calls `_serve` with their addresses, and starts lost workers again.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import os
import secrets
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self

from headrace.dist.cluster_spec import ClusterSpec
from headrace.dist.master_node import MasterNode
from headrace.dist.network import Network, NetworkOptions
from headrace.dist.reactor import Reactor
from headrace.errors import UnavailableError
from headrace.ir.device import DeviceSpec

if TYPE_CHECKING:
    from headrace.dist.client import RemoteTarget
    from headrace.environment import PlacementOptions

END_SECONDS: Final = 5.0  # seconds that workers have to end by themselves


class LaunchedCluster:
    """Workers that this process has started. Sessions take it as their target.

    Args:
      num_workers: number of workers.
      job: the name of their job.
      restart: whether a worker that is lost is started again.
      options: time limits of connections; the secret is a new one.

    Attributes:
      secret: the secret of the cluster.
      options: the options of connections, with the secret.
      tasks: the tasks of the workers.

    Raises:
      ValueError: no workers, a malformed name of a job, or options with certificates.
    """

    def __init__(self, num_workers: int, job: str, restart: bool, options: NetworkOptions | None) -> None:
        if num_workers < 1:
            raise ValueError(f"num_workers={num_workers}: a cluster has at least one worker")
        ClusterSpec({job: ["localhost:0"]})  # checks the name of the job
        base = NetworkOptions() if options is None else options
        if base.server_tls is not None or base.client_tls is not None:
            raise ValueError("options: certificates are not handed to workers; start them with `headrace worker`")
        self.secret = secrets.token_hex(32)
        self.options = dataclasses.replace(base, secret=self.secret.encode())
        self.tasks = tuple(str(DeviceSpec(job, 0, i)) for i in range(num_workers))
        self._job = job
        self._restart = restart
        self._lock = threading.Lock()
        self._reactor = Reactor("headrace-cluster")
        self._network = Network(
            self._reactor, self.options, f"master {os.getpid()}", int.from_bytes(os.urandom(7), "little") or 1
        )
        self._master: MasterNode | None = None
        self._is_closed = False

    def _serve(self, addresses: Sequence[str]) -> None:
        """Starts the master, given the addresses of the workers."""
        # At exit, `__del__` would come after the end of the reactor, of files and of modules.
        self._at_exit = atexit.register(functools.partial(_close, weakref.ref(self)))
        self._master = MasterNode(dict(zip(self.tasks, addresses, strict=True)), self._network)

    def _end_workers(self) -> None:
        """Ends the workers; called after the end of the master and of the reactor."""
        raise NotImplementedError

    def connect(self, options: PlacementOptions, filters: Sequence[str] = ()) -> RemoteTarget:
        """Returns the target of a new session, see `target.Connectable`.

        Args:
          options: options of placement and partition.
          filters: partial device names; the session uses the tasks that match one of them.

        Raises:
          UnavailableError: the cluster was closed, or workers are not connected.
        """
        if self._is_closed or self._master is None:
            raise UnavailableError("the cluster was closed")
        return self._master.connect(options, filters)

    def close(self) -> None:
        """Ends the workers. Further calls have no effect."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        if self._master is not None:
            atexit.unregister(self._at_exit)
            self._master.close()
        self._reactor.close()
        self._end_workers()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if "_is_closed" in vars(self):  # else it was not fully constructed
            self.close()


def _close(reference: weakref.ref[LaunchedCluster]) -> None:
    cluster = reference()
    if cluster is not None:
        cluster.close()
