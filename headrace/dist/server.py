"""Server: one task of a cluster, as a process or a part of one.

    server = hr.Server({"worker": ["localhost:2222", "localhost:2223"]}, job_name="worker", task_index=0)
    with hr.Session(server.target) as session: ...

A server is a worker: it runs parts of steps on its devices and owns variables, queues and tables. It is also a master
for the sessions that connect to it. It listens on one address, for clients, for the masters of other servers, and for
the tokens of other workers.

A session in the process of its server (`Session(server.target)`) calls the master directly. So a training process,
which has a server and a session, sends nothing to itself.
"""

from __future__ import annotations

import ipaddress
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace import notices, thresholds
from headrace.dist import messages
from headrace.dist.address import default_options
from headrace.dist.client import RemoteTarget
from headrace.dist.cluster_spec import ClusterSpec
from headrace.dist.codec import Control, Frame, Token, encode_control
from headrace.dist.handshake import Peer
from headrace.dist.link import Link
from headrace.dist.master_node import MasterNode
from headrace.dist.network import Network, NetworkOptions, Peers, split_address
from headrace.dist.reactor import Reactor
from headrace.dist.transport import listen
from headrace.dist.worker import Worker
from headrace.environment import PlacementOptions
from headrace.errors import InvalidArgumentError, ResourceExhaustedError, UnavailableError, to_data
from headrace.file_access import FileAccess
from headrace.ir.device import DeviceSpec
from headrace.target import LocalTarget

if TYPE_CHECKING:
    from headrace.dist.reactor import Timer

EARLY_TOKEN_LOOK: Final = thresholds.EARLY_TOKEN_POLL  # between two looks for tokens of steps that have not begun


class ServerTarget(str):
    """Address of a server in this process; its sessions call the server directly.

    Attributes:
      server: the server.
    """

    __slots__ = ("server",)

    server: Server

    def connect(self, options: PlacementOptions, filters: Sequence[str]) -> RemoteTarget:
        """Returns the target of a new session, see `target.Connectable`."""
        return self.server.connect(options, filters)


class Server:
    """Task of a cluster: worker, and master of the sessions that connect to it. Thread-safe.

    Args:
      server_or_cluster_def: the tasks of the cluster with their addresses: a `ClusterSpec`, or an argument for one; or
        a `ServerDef` message, whose job, task and configuration are those of arguments that are left out.
      job_name: the job of this task; None: the only job.
      task_index: the number of this task in its job; None: the only task.
      protocol: must be None, "headrace" or "grpc"; the protocol is always headrace's own.
      config: as for a session: `device_count`, and numbers of threads.
      start: must be True; a server starts when it is made.
      devices: number of devices of each type, such as {"CPU": 2}.
      memory_limit: bytes that each device may use, see `Session`.
      options: the secret, encryption and limits of all connections; None: the secret or the certificate of the flags
        CLUSTER_...
      bind: address on which the server listens; None: the host of its address in the cluster, if that is a loopback
        address, or if clients need a secret or a certificate.
      files: the folder whose files the kernels of steps may use, unless the client is in this process; None: no files.

    Raises:
      ValueError: a task that the cluster lacks, or a folder that does not exist.
      InvalidArgumentError: an address other than loopback without a secret or a certificate.
      UnavailableError: the address is in use.

    Source: TensorFlow's `tf.distribute.Server`.

    Example:
      >>> import headrace as hr
      >>> server = Server.create_local_server()
      >>> with hr.Graph() as g:
      ...     y = hr.constant(2) * 3
      >>> with hr.Session(server.target, graph=g) as session:
      ...     session.run(y)
      np.int32(6)
      >>> server.close()
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: Any = None,
        start: bool = True,
        *,
        devices: Mapping[str, int] | None = None,
        memory_limit: int | None = None,
        options: NetworkOptions | None = None,
        bind: str | None = None,
        files: str | os.PathLike[str] | None = None,
    ) -> None:
        if protocol not in (None, "headrace", "grpc"):
            raise ValueError(f"protocol={protocol!r}: the protocol of headrace is its own")
        if not start:
            raise ValueError("start=False: a server starts when it is made; make it later")
        if hasattr(server_or_cluster_def, "default_session_config"):  # a ServerDef, of any package
            given = server_or_cluster_def
            server_or_cluster_def = given.cluster
            job_name = given.job_name if job_name is None else job_name
            task_index = given.task_index if task_index is None else task_index
            config = given.default_session_config if config is None else config
        self.cluster = ClusterSpec(server_or_cluster_def)
        self.task = _task(self.cluster, job_name, task_index)
        access = FileAccess(files)
        self._options = default_options() if options is None else options
        counts = dict(getattr(config, "device_count", None) or {}) | dict(devices or {})
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._stopping = threading.Event()
        self._incarnation = int.from_bytes(os.urandom(7), "little") or 1
        spec = DeviceSpec.from_string(self.task)
        assert spec.job is not None, self.task
        assert spec.task is not None, self.task
        address = self.cluster.task_address(spec.job, spec.task)
        host, port = split_address(address)
        host = _checked_host(host if bind is None else bind, self._options)
        self._tasks = {_name(job, i): self.cluster.task_address(job, i)
                       for job in self.cluster.jobs for i in self.cluster.task_indices(job)}  # fmt: skip
        self._target = LocalTarget(counts, memory_limit, task=spec)
        self._reactor = Reactor(f"headrace-{spec.job}-{spec.task}", most_threads=thresholds.SERVER_THREADS)
        try:
            self._network = Network(self._reactor, self._options, self.task, self._incarnation)
            self._worker = Worker(self.task, self._target, self._reactor, Peers(self._network), access)
            self._master: MasterNode | None = None
            self._links: set[Link] = set()
            self._timer: Timer | None = None
            self._listener = listen(
                self._reactor, host, port, self._accept, self._network.identity("worker"),
                settings=self._options.settings, tls=self._options.server_tls,
            )  # fmt: skip
        except BaseException:
            self._reactor.close()
            self._target.close()
            raise
        self._port = split_address(self._listener.address)[1]
        if port == 0:
            self._tasks[self.task] = f"{address.rpartition(':')[0]}:{self._port}"
        self.target = ServerTarget(f"headrace://{self._tasks[self.task]}")
        self.target.server = self
        self._tick()

    @staticmethod
    def create_local_server(config: Any = None, start: bool = True) -> Server:
        """Returns a server of a cluster with one task, on a free port."""
        return Server({"localhost": ["localhost:0"]}, "localhost", 0, config=config, start=start)

    @property
    def server_def(self) -> Any:
        """Cluster, job and task as a `ServerDef` message."""
        from headrace.interchange.cluster_defs import server_def  # here: the messages take long to load

        spec = DeviceSpec.from_string(self.task)
        assert spec.job is not None, self.task
        assert spec.task is not None, self.task
        return server_def(self.cluster, spec.job, spec.task)

    def start(self) -> None:
        """Does nothing: a server starts when it is made."""

    def join(self, timeout: float | None = None) -> None:
        """Waits until the server is closed, or the process gets a signal.

        Args:
          timeout: seconds; None: no limit.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while not self._stopping.wait(0.2 if until is None else min(0.2, max(until - time.monotonic(), 0.0))):
            if until is not None and time.monotonic() >= until:
                return

    def request_stop(self) -> None:
        """Ends `join`. A signal handler may call it."""
        self._stopping.set()

    def close(self) -> None:
        """Ends all steps and connections, and releases the resources. Further calls have no effect."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._master is not None:
            self._master.close()
        self._listener.close()
        self._worker.close()
        self._reactor.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # *** connections from others ***

    def _accept(self, link: Link) -> None:
        """Takes over a connection; called before its first frame."""
        peer = link.peer
        assert peer is not None, "the handshake is over"
        self._links.add(link)
        if peer.role == "worker":
            self._accept_worker(link, peer)
        elif peer.role == "master":
            self._accept_master(link)
        elif peer.role == "client":
            self._accept_client(link)
        else:
            _refuse(link, f"the role {peer.role!r} is unknown")

    def _accept_worker(self, link: Link, peer: Peer) -> None:
        deliver = self._worker.deliver

        def received(frames: Sequence[Frame]) -> None:
            for frame in frames:
                if type(frame) is Token:
                    deliver(frame)
                else:
                    _refuse(link, "a worker sends tokens only")
                    return

        link.on_frames = received
        link.on_closed = lambda reason: self._links.discard(link)

    def _accept_master(self, link: Link) -> None:
        master = self._worker.add_master(lambda message, values: link.send(encode_control(message, values)))

        def received(frames: Sequence[Frame]) -> None:
            for frame in frames:
                if type(frame) is Control:
                    self._worker.receive(master, frame.message, frame.values)

        def closed(reason: str) -> None:
            self._links.discard(link)
            self._worker.lose_master(master, reason)

        link.on_frames, link.on_closed = received, closed

    def _accept_client(self, link: Link) -> None:
        most = thresholds.CLUSTER_CLIENTS
        if sum(other.peer is not None and other.peer.role == "client" for other in list(self._links)) > most:
            self._refuse_client(link, f"{most} clients are connected to this server, and no more are allowed")
            return
        self._its_master().accept(link)
        lose_client = link.on_closed

        def closed(reason: str) -> None:
            self._links.discard(link)
            lose_client(reason)

        link.on_closed = closed

    def _refuse_client(self, link: Link, reason: str) -> None:
        """Answers the first calls of a client with an error, and closes the connection."""
        error = to_data(ResourceExhaustedError(reason))

        def received(frames: Sequence[Frame]) -> None:
            for frame in frames:
                call = getattr(frame.message, "call", None) if type(frame) is Control else None
                if call is not None:
                    link.send(encode_control(messages.Failure(call, error)))

        link.on_frames, link.on_closed = received, lambda reason: self._links.discard(link)
        self._reactor.call_later(thresholds.REFUSED_CLIENT, lambda: link.close(reason))

    # *** the master ***

    def _its_master(self) -> MasterNode:
        """Returns the master, which is made for the first client."""
        with self._lock:
            if self._closed.is_set():
                raise UnavailableError("the server is closed")
            if self._master is None:
                self._master = MasterNode(self._tasks, self._network, (self._worker, self._incarnation))
            return self._master

    def connect(self, options: PlacementOptions, filters: Sequence[str]) -> RemoteTarget:
        """Returns the target of a new session in this process, see `target.Connectable`."""
        return self._its_master().connect(options, filters)

    def _tick(self) -> None:
        if not self._closed.is_set():
            self._worker.tick(time.monotonic())
            self._timer = self._reactor.call_later(EARLY_TOKEN_LOOK, self._tick)


def _refuse(link: Link, reason: str) -> None:
    """Closes a connection whose peer breaks the protocol."""
    log = notices.listener("dist", notices.WARNING)
    if log is not None:
        log.warning("%s is closed: %s", link, reason)
    link.close(reason)


def _task(cluster: ClusterSpec, job: str | None, index: int | None) -> str:
    """Returns the task that a job and an index name in a cluster."""
    jobs = cluster.jobs
    if job is None:
        if len(jobs) != 1:
            raise ValueError(f"job_name is needed: the cluster has the jobs {', '.join(jobs) or 'of no name'}")
        job = jobs[0]
    if job not in jobs:
        raise ValueError(f"the cluster has no job {job!r}; it has {', '.join(map(repr, jobs))}")
    if index is None:
        if cluster.num_tasks(job) != 1:
            raise ValueError(f"task_index is needed: the job {job!r} has {cluster.num_tasks(job)} tasks")
        index = cluster.task_indices(job)[0]
    if index not in cluster.task_indices(job):
        raise ValueError(f"the job {job!r} has no task {index}; it has {list(cluster.task_indices(job))}")
    return _name(job, index)


def _name(job: str, index: int) -> str:
    return str(DeviceSpec(job, 0, index))


def _checked_host(host: str, options: NetworkOptions) -> str:
    """Returns `host` if a server may listen there."""
    is_local = host == "localhost"
    if not is_local:
        try:
            is_local = ipaddress.ip_address(host).is_loopback
        except ValueError:
            is_local = False
    if not is_local and not options.is_guarded:
        raise InvalidArgumentError(
            f"a server that listens on {host!r} can be reached from other machines, and any process there could run "
            "programs on it. Give all processes of the cluster a shared secret (HEADRACE_CLUSTER_SECRET) or "
            "certificates of which each end demands one (NetworkOptions.from_files)"
        )
    return host
