"""A cluster in one process without sockets: messages pass as bytes, in a seeded order.

Every process of the cluster has a reactor of its own, and every pair of processes a wire in each direction. One thread
runs all of them: it chooses a job or a wire at random, again and again. A timer fires when nothing else can happen.
"""

from __future__ import annotations

import collections
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headrace.dist import messages
from headrace.dist.client import Calls, RemoteTarget
from headrace.dist.codec import Control, Decoder, Token, encode_control
from headrace.dist.master import Master
from headrace.dist.worker import Worker
from headrace.environment import PlacementOptions
from headrace.errors import UnavailableError
from headrace.ir.device import DeviceSpec
from headrace.target import LocalTarget


class Timer:
    def __init__(self, job: Callable[[], object]) -> None:
        self.job: Callable[[], object] | None = job

    def cancel(self) -> None:
        self.job = None


class MemoryReactor:
    """Reactor of one process of the cluster."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.jobs: collections.deque[Callable[[], object]] = collections.deque()

    def submit(self, job: Callable[[], object]) -> None:
        self.jobs.append(job)
        self.cluster.notify()

    def call_later(self, seconds: float, job: Callable[[], object]) -> Timer:
        timer = Timer(job)
        self.cluster.timers.append((seconds, timer))
        self.cluster.notify()
        return timer

    def busy(self) -> None: ...

    def flush(self) -> None: ...

    def is_waiting(self) -> bool:
        return self.cluster.waits > 0 and threading.current_thread() is self.cluster.thread

    def wait(self, done: Callable[[], object]) -> bool:
        """Runs the cluster until a condition is fulfilled; False in other threads than that of the cluster."""
        if threading.current_thread() is not self.cluster.thread:
            return False
        self.cluster.waits += 1
        try:
            return self.cluster.pump(done)
        finally:
            self.cluster.waits -= 1

    def spawn(self, job: Callable[[], object]) -> None:
        threading.Thread(target=job, name="memory-share", daemon=True).start()

    def report(self, error: BaseException) -> None:
        self.cluster.errors.append(error)


class Wire:
    """One direction of a connection. Frames arrive in their order."""

    def __init__(self, cluster: MemoryCluster, receiver: Callable[[Any], object], name: str) -> None:
        self.cluster = cluster
        self.receiver = receiver
        self.name = name
        self.frames: collections.deque[bytes] = collections.deque()
        self.decoder = Decoder(1 << 30)
        self.is_cut = False

    def send(self, buffers: Sequence[Any], flush: bool = True) -> None:
        if self.is_cut:
            raise UnavailableError(f"the connection {self.name} is cut")
        self.frames.append(b"".join(buffers))
        self.cluster.notify()

    def deliver(self) -> None:
        data = memoryview(self.frames.popleft())
        while data:
            room = self.decoder.buffer()
            n = min(len(room), len(data))
            room[:n] = data[:n]
            data = data[n:]
            for frame in self.decoder.received(n):
                self.receiver(frame)


class MemoryPeers:
    """Connections of one worker to the others."""

    def __init__(self, cluster: MemoryCluster, task: str) -> None:
        self.cluster = cluster
        self.task = task
        self.topology: tuple[messages.Task, ...] = ()

    def learn(self, tasks: tuple[messages.Task, ...]) -> None:
        self.topology = tasks

    def outlet(self, task: str) -> Wire:
        return self.cluster.token_wire(self.task, task)

    def connect(self, outlets: Iterable[tuple[int, Any]]) -> None: ...

    def are_connected(self, outlets: Iterable[tuple[int, Any]]) -> bool:
        return True


class MemoryCluster:
    """A cluster of workers with one master.

    Args:
      workers: number of workers.
      devices: number of devices of each worker.
      seed: the seed of the order of everything.
    """

    def __init__(self, workers: int = 2, devices: int = 1, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.errors: list[BaseException] = []
        self.timers: list[tuple[float, Timer]] = []
        self.wires: list[Wire] = []
        self._tokens: dict[tuple[str, str], Wire] = {}
        self._work = threading.Condition()
        self._is_closed = False
        self.waits = 0
        self.tasks = [f"/job:worker/replica:0/task:{i}" for i in range(workers)]
        self.reactors = [MemoryReactor(self) for _ in range(workers + 1)]
        self.master = Master(self.tasks, self.reactors[0], 1000)  # type: ignore[arg-type]
        self.workers: dict[str, Worker] = {}
        for task, reactor in zip(self.tasks, self.reactors[1:], strict=True):
            target = LocalTarget({"CPU": devices}, task=DeviceSpec.from_string(task))
            self.workers[task] = Worker(task, target, reactor, MemoryPeers(self, task))  # type: ignore[arg-type]
        self.thread = threading.Thread(target=self._pump, name="memory-cluster", daemon=True)
        self.thread.start()
        for task in self.tasks:
            self.join(task)

    def join(self, task: str) -> None:
        """Connects a worker to the master."""
        worker = self.workers[task]
        numbers: list[int] = []
        to_worker = self.wire(lambda f: worker.receive(numbers[0], f.message, f.values), f"master to {task}")
        to_master = self.wire(lambda f: self.master.receive_from_worker(task, f.message, f.values), f"{task} to master")
        numbers.append(worker.add_master(lambda m, v: to_master.send(encode_control(m, v))))
        devices = {d.name: (d.device_type, d.memory_limit_bytes) for d in worker.target.devices()}
        self.master.add_worker(task, 1, devices, lambda m, v: to_worker.send(encode_control(m, v)))

    def wire(self, receiver: Callable[[Any], object], name: str) -> Wire:
        made = Wire(self, receiver, name)
        self.wires.append(made)
        return made

    def token_wire(self, source: str, target: str) -> Wire:
        found = self._tokens.get((source, target))
        if found is None:
            found = self._tokens[source, target] = self.wire(self.workers[target].deliver, f"{source} to {target}")
        return found

    def connect(self, options: PlacementOptions, filters: Sequence[str] = ()) -> RemoteTarget:
        """Connects a session, see `target.Connectable`."""
        calls = Calls()
        to_client = self.wire(lambda f: calls.receive(f.message, f.values), "master to client")
        client = self.master.add_client(lambda m, v: to_client.send(encode_control(m, v)))
        to_master = self.wire(
            lambda f: self.master.receive_from_client(client, f.message, f.values), "client to master"
        )

        class Channel:
            def send(self, message: messages.AnyMessage, values: Sequence[Any]) -> None:
                to_master.send(encode_control(message, values))

            def take(self, source: Any, timeout: float) -> Any:
                return source.get(timeout=timeout)

            def close(self) -> None: ...

        calls.channel = Channel()
        return RemoteTarget(calls, options, filters, timeout=30.0)

    def notify(self) -> None:
        with self._work:
            self._work.notify_all()

    def close(self) -> None:
        with self._work:
            self._is_closed = True
            self._work.notify_all()
        self.thread.join(20)
        for worker in self.workers.values():
            worker.close()
        assert not self.errors, self.errors

    def _choices(self) -> list[Callable[[], object]]:
        return [r.jobs.popleft for r in self.reactors if r.jobs] + [w.deliver for w in self.wires if w.frames]

    def _pump(self) -> None:
        self.pump(lambda: False)

    def pump(self, done: Callable[[], object]) -> bool:
        """Runs the cluster until `done()`, or until it is closed; returns whether it is done."""
        while not done():
            with self._work:
                while not self._choices() and not self.timers and not self._is_closed and not done():
                    self._work.wait(0.5)
                if self._is_closed:
                    return False
            choices = self._choices()
            try:
                if choices:
                    job = self.random.choice(choices)()
                    if callable(job):
                        job()
                elif self.timers:
                    self.timers.sort(key=lambda t: t[0])
                    seconds, timer = self.timers.pop(0)
                    if timer.job is not None and seconds < 1:
                        timer.job()
            except Exception as e:
                self.errors.append(e)
        return True


__all__ = ["Control", "MemoryCluster", "Token"]
