"""Master of a process: reaches the workers, and connects the sessions of this process.

A server has one for the sessions that connect to it. A process that starts workers (`hr.cluster.local`, Ray) has one
without a worker of its own. The master reaches a worker again after it was lost, for as long as it exists.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from headrace import thresholds
from headrace.dist import messages
from headrace.dist.client import Calls, RemoteTarget
from headrace.dist.codec import Control, Frame, encode_control
from headrace.dist.inbox import Inbox
from headrace.dist.master import Master
from headrace.dist.tracing import shifted
from headrace.errors import OpError
from headrace.place.cluster import Link as LinkCost

if TYPE_CHECKING:
    from headrace.dist.link import Link
    from headrace.dist.network import Network
    from headrace.dist.reactor import Reactor, Timer
    from headrace.dist.worker import Worker
    from headrace.environment import PlacementOptions

T = TypeVar("T")
TICK: Final = thresholds.MASTER_POLL  # seconds between two looks at deadlines
RETRY: Final = thresholds.WORKER_RETRY  # seconds between two attempts to reach a worker


class MasterNode:
    """A master with its connections to workers. Thread-safe.

    Args:
      tasks: the address of each task.
      network: makes connections.
      own: the worker of this process, with its incarnation; None: it has none.

    Attributes:
      master: the master.
    """

    def __init__(self, tasks: Mapping[str, str], network: Network, own: tuple[Worker, int] | None = None) -> None:
        self._tasks = dict(tasks)
        self._network = network
        self._reactor: Reactor = network.reactor
        self._own = own
        self._incarnations: dict[str, int] = {}
        self._links: dict[str, Link] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        self._timer: Timer | None = None
        first = int.from_bytes(os.urandom(3), "little") * messages.MASTERS
        first_task = [] if own is None else [own[0].task]  # its devices are the default devices
        names = (*first_task, *(t for t in tasks if t not in first_task))
        self.master = Master(names, self._reactor, first, self._distance, "" if own is None else own[0].task)
        self._reactor.submit(self._begin)

    def connect(self, options: PlacementOptions, filters: Sequence[str] = ()) -> RemoteTarget:
        """Returns the target of a new session in this process, see `target.Connectable`."""
        calls = Calls()
        client = self.master.add_client(calls.receive, is_local=True)
        calls.home = "" if self._own is None else self._own[0].task
        calls.channel = _DirectChannel(self.master, client, self._reactor)
        try:
            return RemoteTarget(calls, options, filters)
        except BaseException:
            self.master.lose_client(client)
            raise

    def accept(self, link: Link) -> None:
        """Serves a client in another process; called before the first frame of its connection."""
        master = self.master
        client = master.add_client(lambda message, values: link.send(encode_control(message, values)))

        def received(frames: Sequence[Frame]) -> None:
            for frame in frames:
                if type(frame) is Control:
                    master.receive_from_client(client, frame.message, frame.values)

        link.on_frames, link.on_closed = received, lambda reason: master.lose_client(client)

    def _distance(self, task: str) -> LinkCost:
        """Returns the cost of a transfer from here to a worker, as measured so far."""
        if self._own is not None and task == self._own[0].task:
            return LinkCost()  # as between the devices of one process
        link = self._links.get(task)
        trip = None if link is None else link.round_trip_ns
        bandwidth = None if link is None else link.bandwidth
        return LinkCost(
            thresholds.NETWORK_LATENCY if trip is None else trip / 2e9,
            thresholds.NETWORK_BANDWIDTH if bandwidth is None else bandwidth,
        )

    def move(self, task: str, address: str) -> None:
        """Notes the address of the replacement of a worker."""
        self._tasks[task] = address
        link = self._links.get(task)
        if link is not None:
            link.close("it was replaced")

    def close(self) -> None:
        """Ends the connections to workers. Steps under way fail."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for link in list(self._links.values()):
            link.close("the master was closed")

    # *** workers ***

    def _begin(self) -> None:
        for task in self._tasks:
            if self._own is not None and task == self._own[0].task:
                self._reach_own(*self._own)
            else:
                self._reach(task)
        self._tick()

    def _reach_own(self, worker: Worker, incarnation: int) -> None:
        master, numbers = self.master, [0]
        to_worker = Inbox[tuple[Any, Any]](self._reactor, lambda m: worker.receive(numbers[0], *m))
        to_master = Inbox[tuple[Any, Any]](self._reactor, lambda m: master.receive_from_worker(worker.task, *m))
        numbers[0] = worker.add_master(lambda message, values: to_master.put((message, values)), is_own=True)
        devices = {d.name: (d.device_type, d.memory_limit_bytes) for d in worker.target.devices()}
        self._add(worker.task, incarnation, devices, lambda message, values: to_worker.put((message, values)))

    def _reach(self, task: str) -> None:
        """Connects to a worker; tries again if it fails."""
        if self._is_closed:
            return
        self._network.connect(
            self._tasks[task], "master", task, lambda link: self._linked(task, link), lambda e: self._failed(task, e)
        )

    def _failed(self, task: str, error: OpError) -> None:
        if not self._is_closed:
            self.master.lose_worker(task, str(error))
            self._reactor.call_later(RETRY, lambda: self._reach(task))

    def _linked(self, task: str, link: Link) -> None:
        """Takes over a connection; the worker is added when it has described itself."""
        peer = link.peer
        assert peer is not None, "the handshake is over"
        is_added = False

        def send(message: messages.AnyMessage, values: Sequence[Any]) -> None:
            link.send(encode_control(message, values))

        def received(frames: Sequence[Frame]) -> None:
            nonlocal is_added
            for frame in frames:
                if type(frame) is not Control:
                    continue
                if is_added:
                    self.master.receive_from_worker(task, in_clock_of(link, frame.message), frame.values)
                elif isinstance(frame.message, messages.Reply):
                    is_added = True
                    devices = {name: (kind, limit) for name, kind, limit in frame.message.data["devices"]}
                    self._add(
                        task,
                        peer.incarnation,
                        devices,
                        lambda message, values: link.send(encode_control(message, values)),
                    )

        def closed(reason: str) -> None:
            if self._links.get(task) is link:
                del self._links[task]
            if not self._is_closed:
                self.master.lose_worker(task, reason)
                self._reactor.call_later(RETRY, lambda: self._reach(task))

        self._links[task] = link
        link.on_frames, link.on_closed = received, closed
        link.send(encode_control(messages.Describe(0)))
        link.measure_bandwidth()

    def _add(
        self,
        task: str,
        incarnation: int,
        devices: Mapping[str, tuple[str, int]],
        sink: Callable[[messages.AnyMessage, Sequence[Any]], object],
    ) -> None:
        with self._lock:
            self._incarnations[task] = incarnation
            known = {t: messages.Task(t, address, self._incarnations.get(t, 0)) for t, address in self._tasks.items()}
            # only what is new: in a large cluster the whole list would be sent a million times
            sink(messages.Topology(tuple(known.values())), ())
            self.master.announce(task, messages.Topology((known[task],)))
        self.master.add_worker(task, incarnation, devices, sink)

    def _tick(self) -> None:
        """Looks at deadlines, again and again."""
        if not self._is_closed:
            self.master.tick()
            self._timer = self._reactor.call_later(TICK, self._tick)


def in_clock_of(link: Link, message: messages.AnyMessage) -> messages.AnyMessage:
    """Returns a message from `link` with the times of its events by this process's clock."""
    if isinstance(message, (messages.Report, messages.Reply)) and message.trace:
        return replace(message, trace=tuple(shifted(message.trace, link.clock_offset_ns)))
    return message


class _DirectChannel:
    """Connection of a session to the master in its process."""

    def __init__(self, master: Master, client: int, reactor: Reactor) -> None:
        self._master = master
        self._reactor = reactor
        self._client = client

    def send(self, message: messages.AnyMessage, values: Sequence[Any]) -> None:
        self._master.receive_from_client(self._client, message, values)

    def take(self, source: queue.SimpleQueue[T], timeout: float) -> T:
        return self._reactor.take(source, timeout)

    def close(self) -> None:
        self._master.lose_client(self._client)
