"""Clusters whose workers are actors of Ray: `hr.cluster.ray`.

    with hr.cluster.ray(4, resources={"CPU": 2}) as cluster, hr.Session(cluster, graph=g) as session:
        session.run(y)

Ray places the workers on its nodes, starts their processes, and reports their end. Nothing else passes through Ray: the
actor of a worker has a `Server`, and the master in this process and the workers are connected by TCP, as in every other
cluster. So headrace and its version must be the same on all nodes.

**Placement.** The workers are in one placement group with a bundle for each. Ray moves the bundles of a lost node to
other nodes.

**Lost workers.** Each actor has one pending call, `WorkerActor.run`, that ends with the actor. Ray then reports its
end, and a new actor is started in the same bundle. It has a new address, which the master gets. Steps under way do not
wait for Ray's report: they fail when the connection to the worker is lost, which is noticed at once or, if the machine
is lost, after `NetworkOptions.patience`. Variables of a lost worker are gone; the program initializes or restores them.
A process that hangs is not replaced, because Ray reports no end: its steps fail after the same time.

**Other processes** connect to `RayCluster.address`, on which the launching process listens, with its secret. The secret
is an argument of the actors, so a process that may use the Ray cluster can read it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headrace import thresholds
from headrace.dist.address import SCHEME
from headrace.dist.cluster_spec import ClusterSpec
from headrace.dist.launched import END_SECONDS, LaunchedCluster
from headrace.dist.network import NetworkOptions
from headrace.dist.server import Server
from headrace.dist.transport import format_address, listen
from headrace.errors import OpError, UnavailableError
from headrace.records import record

if TYPE_CHECKING:
    from headrace.dist.link import Link
    from headrace.dist.transport import Listener

LIMITS: Final = ("heartbeat", "patience", "connect_timeout", "largest_frame", "largest_greeting", "shared_memory")
STRATEGIES: Final = ("SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK")
FIRST_PAUSE: Final = thresholds.RESTART_PAUSE  # before a worker that did not start is tried again; doubled each time
LONGEST_PAUSE: Final = thresholds.LONGEST_RESTART_PAUSE
LONGEST_REASON: Final = 400  # characters of an error of Ray

_ADDED: Final = re.compile(r"\Anode:|_group_")  # names of resources that Ray adds for nodes and placement groups

# Address, id of the node and process id of a worker.
Where: TypeAlias = "tuple[str, str, int]"


class WorkerActor:
    """Actor of Ray that is one worker. Its methods are called through Ray.

    Args:
      job: the name of its job.
      index: its number in the job.
      devices: number of devices of each type.
      secret: the secret of the cluster.
      limits: the numbers among the attributes of `NetworkOptions`, by name.
    """

    def __init__(
        self, job: str, index: int, devices: Mapping[str, int], secret: str, limits: Mapping[str, Any]
    ) -> None:
        self._task = job, index
        self._devices = devices
        self._options = NetworkOptions(secret.encode(), **limits)
        self._server: Server | None = None

    def start(self) -> Where:
        """Starts the worker; returns its address, the id of its node and the process id."""
        job, index = self._task
        spec = ClusterSpec({job: {index: format_address(_own_host(), 0)}})
        self._server = Server(spec, job, index, devices=self._devices, options=self._options, files=os.sep)
        node = str(_import_ray().get_runtime_context().get_node_id())
        return self._server.target.removeprefix(f"{SCHEME}://"), node, os.getpid()

    def run(self) -> None:
        """Waits until the worker is closed."""
        assert self._server is not None, "`start` is called first"
        self._server.join()

    def close(self) -> None:
        """Closes the worker, which releases its resources."""
        if self._server is not None:
            self._server.close()


@record(frozen=True, slots=True)
class RayWorker:
    """State of a worker, as far as Ray has reported it.

    Attributes:
      task: its name.
      address: its address, "host:port".
      node: the id of its node in Ray.
      pid: its process id.
      problem: the reason why it does not run; "" if it runs.
    """

    task: str
    address: str
    node: str
    pid: int
    problem: str = ""


class RayCluster(LaunchedCluster):
    """Workers that are actors of Ray. Sessions take it as their target.

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

    Attributes:
      address: the address of the master in this process, for other processes.

    Raises:
      ImportError: Ray is not installed.
      ValueError: a malformed argument.
      UnavailableError: Ray lacks the resources, or a worker has not started in time.
    """

    def __init__(
        self,
        num_workers: int,
        resources: Mapping[str, float] | None = None,
        devices: Mapping[str, int] | None = None,
        job: str = "worker",
        labels: Mapping[str, str] | None = None,
        options: NetworkOptions | None = None,
        restart: bool = True,
        placement_strategy: str = "SPREAD",
        timeout: float = 60.0,
    ) -> None:
        self._ray = _import_ray()
        if placement_strategy not in STRATEGIES:
            raise ValueError(f"placement_strategy={placement_strategy!r} is none of {', '.join(STRATEGIES)}")
        self._resources = {"CPU": 1.0} if resources is None else dict(resources)
        self._labels = dict(labels or {})
        self._devices = dict(devices or {})
        self._strategy = placement_strategy
        self._group: Any = None
        self._actor_class = self._ray.remote(WorkerActor)
        self._actors: list[Any] = []
        self._workers: list[RayWorker] = []
        self._listener: Listener | None = None
        self._has_ray = False
        super().__init__(num_workers, job, restart, options)
        self._pauses = [FIRST_PAUSE] * num_workers
        try:
            _enter(self)
            self._has_ray = True
            until = time.monotonic() + timeout
            self._place(num_workers, timeout)
            self._start_all(until, timeout)
            self._serve([w.address for w in self._workers])
            self._listener = listen(
                self._reactor, _own_host(), 0, self._accept, self._network.identity("worker"),
                settings=self.options.settings,
            )  # fmt: skip
        except BaseException:
            self.close()
            raise
        self.address = f"{SCHEME}://{self._listener.address}"
        for i in range(num_workers):
            self._watch(i)

    # *** properties ***

    @property
    def workers(self) -> Sequence[RayWorker]:
        """State of the workers."""
        with self._lock:
            return list(self._workers)

    @property
    def processes(self) -> Sequence[int]:
        """Process ids of the workers, on their nodes."""
        return [w.pid for w in self.workers]

    @property
    def spec(self) -> ClusterSpec:
        """Tasks with their present addresses."""
        return ClusterSpec({self._job: [w.address for w in self.workers]})

    # *** starting ***

    def _place(self, num_workers: int, timeout: float) -> None:
        """Reserves the resources of all workers."""
        from ray.util import placement_group

        selectors = [self._labels] * num_workers if self._labels else None
        self._group = placement_group([self._resources] * num_workers, self._strategy, bundle_label_selector=selectors)
        if not self._group.wait(timeout):
            labels = f" on nodes with the labels {self._labels}" if self._labels else ""
            nodes = [n for n in self._ray.nodes() if n["Alive"]]
            have = "; ".join(_node_text(n, self._resources, bool(self._labels)) for n in nodes)
            free = _resource_text(self._ray.available_resources(), self._resources)
            raise UnavailableError(
                f"Ray has not placed {num_workers} workers with {self._resources} each ({self._strategy}){labels} "
                f"within {timeout:g} s. Its nodes have {have}. In all, {free} is free"
            )

    def _start_all(self, until: float, timeout: float) -> None:
        """Starts all workers, and waits for their addresses."""
        self._actors = [None] * len(self.tasks)
        futures = [self._start(i) for i in range(len(self.tasks))]
        concurrent.futures.wait(futures, max(until - time.monotonic(), 0.0), concurrent.futures.FIRST_EXCEPTION)
        for task, future in zip(self.tasks, futures, strict=True):
            if future.done() and (error := future.exception()) is not None:
                raise UnavailableError(f"worker {task} has not started on Ray: {_reason(error)}") from error
        missing = [task for task, future in zip(self.tasks, futures, strict=True) if not future.done()]
        if missing:
            raise UnavailableError(f"Ray has placed {', '.join(missing)} and not started them within {timeout:g} s")
        self._workers = [RayWorker(task, *f.result()) for task, f in zip(self.tasks, futures, strict=True)]

    def _start(self, index: int) -> concurrent.futures.Future[Where]:
        """Starts an actor; the future has its address."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        custom = dict(self._resources)
        o = self.options
        actor_class = self._actor_class.options(
            num_cpus=custom.pop("CPU", 0),
            num_gpus=custom.pop("GPU", 0),
            memory=custom.pop("memory", None),
            resources=custom,
            max_concurrency=2,  # `run` takes one thread as long as the actor lives
            max_restarts=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, index),
        )
        actor = actor_class.remote(
            self._job,
            index,
            self._devices,
            self.secret,
            {name: getattr(o, name) for name in LIMITS},
        )
        self._actors[index] = actor
        future: concurrent.futures.Future[Where] = actor.start.remote().future()
        return future

    # *** supervision ***

    def _watch(self, index: int) -> None:
        """Notices the end of a worker's actor."""
        actor = self._actors[index]
        self._when_done(actor.run.remote().future(), lambda f: self._ended(index, actor, f))

    def _when_done(
        self, future: concurrent.futures.Future[Any], job: Callable[[concurrent.futures.Future[Any]], object]
    ) -> None:
        """Runs a job in the reactor when Ray has answered a call."""

        def done(f: concurrent.futures.Future[Any]) -> None:  # in a thread of Ray
            with contextlib.suppress(OpError):  # the cluster was closed
                self._reactor.submit(lambda: job(f))

        future.add_done_callback(done)

    def _ended(self, index: int, actor: Any, future: concurrent.futures.Future[Any]) -> None:
        """Handles the end or the failed start of an actor. A job of the reactor."""
        error = future.exception()
        problem = "it was closed" if error is None else _reason(error)
        with self._lock:
            if self._is_closed or self._actors[index] is not actor:
                return
            has_run = not self._workers[index].problem
            self._workers[index] = dataclasses.replace(self._workers[index], problem=problem)
        if self._restart:
            self._reactor.call_later(0.0 if has_run else self._pauses[index], lambda: self._replace(index))
            self._pauses[index] = FIRST_PAUSE if has_run else min(self._pauses[index] * 2, LONGEST_PAUSE)

    def _replace(self, index: int) -> None:
        """Starts a new actor in the bundle of a worker. A job of the reactor."""
        self._reactor.busy()  # calls to Ray may wait
        if self._is_closed or not self._ray.is_initialized():
            return
        self._kill(self._actors[index])  # Ray may have lost the connection to a process that runs
        try:
            future = self._start(index)
        except Exception as e:
            future = concurrent.futures.Future()
            future.set_exception(e)
        actor = self._actors[index]
        self._when_done(future, lambda f: self._started(index, actor, f))

    def _started(self, index: int, actor: Any, future: concurrent.futures.Future[Where]) -> None:
        """Handles the address of a new actor. A job of the reactor."""
        if future.exception() is not None:
            self._ended(index, actor, future)
            return
        assert self._master is not None, "actors are replaced after the start"
        self._reactor.busy()
        with self._lock:
            if self._is_closed or self._actors[index] is not actor:
                return
            worker = self._workers[index] = RayWorker(self.tasks[index], *future.result())
        self._master.move(worker.task, worker.address)
        self._watch(index)

    # *** clients in other processes ***

    def _accept(self, link: Link) -> None:
        """Takes over a connection; called before its first frame."""
        peer = link.peer
        assert peer is not None, "the handshake is over"
        assert self._master is not None, "the listener is made after the master"
        if peer.role != "client":
            link.close("the launcher of a cluster has no worker")
            return
        self._master.accept(link)

    # *** the end ***

    def _end_workers(self) -> None:
        if not self._has_ray:
            return
        try:
            if self._ray.is_initialized():
                running = [a for a, w in zip(self._actors, self._workers, strict=False) if not w.problem]
                with contextlib.suppress(Exception):  # an actor that cannot be called is killed
                    concurrent.futures.wait([a.close.remote().future() for a in running], END_SECONDS)
                for actor in self._actors:
                    self._kill(actor)
                if self._group is not None:
                    from ray.util import remove_placement_group

                    remove_placement_group(self._group)
        finally:
            self._actors.clear()
            _leave(self)

    def _kill(self, actor: Any) -> None:
        with contextlib.suppress(Exception):  # it has ended
            self._ray.kill(actor, no_restart=True)


# *** Ray in this process ***

_lock = threading.Lock()
_open: set[int] = set()  # ids of the clusters that use Ray
_is_ours = False  # whether a cluster has called `ray.init`


def _enter(cluster: RayCluster) -> None:
    """Connects to Ray, or starts it, unless this process is connected."""
    global _is_ours
    ray = _import_ray()
    with _lock:
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
            _is_ours = True
        _open.add(id(cluster))


def _leave(cluster: RayCluster) -> None:
    """Shuts Ray down if a cluster has started it and no cluster is left."""
    global _is_ours
    with _lock:
        _open.discard(id(cluster))
        if _is_ours and not _open:
            _is_ours = False
            _import_ray().shutdown()


def _import_ray() -> Any:
    """Returns the module `ray`, which is optional and slow to import."""
    try:
        import ray
    except ImportError as e:
        raise ImportError("hr.cluster.ray needs Ray, which is not installed: pip install 'headrace[ray]'") from e
    return ray


def _own_host() -> str:
    """Returns the address of this node, as Ray knows it."""
    return str(_import_ray().util.get_node_ip_address())


# *** texts ***


def _reason(error: BaseException) -> str:
    """Returns an error that Ray has reported as one line."""
    cause = getattr(error, "cause", None)
    text = " ".join(str(cause if isinstance(cause, Exception) else error).split())
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."


def _resource_text(resources: Mapping[str, float], asked: Mapping[str, float]) -> str:
    """Returns resources as text, without those that Ray adds to each node."""
    shown = {
        name: n
        for name, n in sorted(resources.items())
        if name in asked or not (name in ("memory", "object_store_memory") or _ADDED.search(name))
    }
    return ", ".join(f"{name}: {shown.get(name, 0):g}" for name in dict.fromkeys((*asked, *shown)))


def _node_text(node: Mapping[str, Any], asked: Mapping[str, float], with_labels: bool) -> str:
    """Returns a node of `ray.nodes` as text."""
    labels = f" and the labels {node.get('Labels') or {}}" if with_labels else ""
    return f"{_resource_text(node['Resources'], asked)}{labels} ({node['NodeManagerAddress']})"
