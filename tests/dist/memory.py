"""A cluster in one process without sockets: messages pass as bytes, in a seeded order.

Every process of the cluster has a reactor of its own, and every pair of processes a wire in each direction. One thread
runs all of them: it chooses a job or a wire at random, again and again. A timer fires when nothing else can happen, and
now and then before. Every few milliseconds all processes look at the clock (`tick`).

`cut` ends the connections of a worker at any time, and `join` connects it again.
"""

from __future__ import annotations

import collections
import queue
import random
import threading
import time
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

TICK = 0.01  # seconds


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

    def spawn(self, job: Callable[[], object]) -> None:
        threading.Thread(target=job, name="memory-share", daemon=True).start()

    def report(self, error: BaseException) -> None:
        self.cluster.errors.append(error)


class Wire:
    """One direction of a connection. Frames arrive in their order.

    Attributes:
      task: the worker at the other end, of a connection of workers.
      on_cut: called after a cut.
    """

    def __init__(self, cluster: MemoryCluster, receiver: Callable[[Any], object], name: str, task: str = "") -> None:
        self.cluster = cluster
        self.receiver = receiver
        self.name = name
        self.task = task
        self.on_cut: Callable[[], object] = lambda: None
        self.frames: collections.deque[bytes] = collections.deque()
        self.decoder = Decoder(1 << 30)
        self.is_cut = False

    def cut(self) -> None:
        """Ends the connection: frames that are under way are lost."""
        if not self.is_cut:
            self.is_cut = True
            self.frames.clear()
            self.on_cut()

    def restore(self) -> None:
        self.decoder, self.is_cut = Decoder(1 << 30), False

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
        self.on_lost: Callable[[Any, str], object] = lambda wire, reason: None

    def learn(self, tasks: tuple[messages.Task, ...]) -> None:
        self.topology = tasks

    def outlet(self, task: str) -> Wire:
        return self.cluster.token_wire(self.task, task)

    def connect(self, outlets: Iterable[tuple[int, Any]]) -> None:
        for _, wire in outlets:
            if wire.is_cut and not self.cluster.restores:
                raise UnavailableError(f"the connection {wire.name} is cut")
            if wire.is_cut:
                wire.restore()

    def are_connected(self, outlets: Iterable[tuple[int, Any]]) -> bool:
        return not any(wire.is_cut for _, wire in outlets)


class MemoryCluster:
    """A cluster of workers with one master.

    Args:
      workers: number of workers.
      devices: number of devices of each worker.
      seed: the seed of the order of everything.

    Attributes:
      restores: whether a connection between workers that was cut can be made again.
    """

    def __init__(self, workers: int = 2, devices: int = 1, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.errors: list[BaseException] = []
        self.timers: list[tuple[float, Timer]] = []
        self.wires: list[Wire] = []
        self.restores = True
        self._ticks_at = 0.0
        self._links: dict[str, tuple[int, Wire, Wire]] = {}
        self._tokens: dict[tuple[str, str], Wire] = {}
        self._work = threading.Condition()
        self._is_closed = False
        self.tasks = [f"/job:worker/replica:0/task:{i}" for i in range(workers)]
        self.reactors = [MemoryReactor(self) for _ in range(workers + 1)]
        self.master = Master(self.tasks, self.reactors[0], 1000)  # type: ignore[arg-type]
        self.workers: dict[str, Worker] = {}
        self.peers = {task: MemoryPeers(self, task) for task in self.tasks}
        for task, reactor in zip(self.tasks, self.reactors[1:], strict=True):
            target = LocalTarget({"CPU": devices}, task=DeviceSpec.from_string(task))
            self.workers[task] = Worker(task, target, reactor, self.peers[task])  # type: ignore[arg-type]
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
        self._links[task] = numbers[0], to_worker, to_master
        devices = {d.name: (d.device_type, d.memory_limit_bytes) for d in worker.target.devices()}
        self.master.add_worker(task, 1, devices, lambda m, v: to_worker.send(encode_control(m, v)))

    def reactor_of(self, task: str) -> MemoryReactor:
        return self.reactors[1 + self.tasks.index(task)]

    def cut(self, task: str, reason: str = "it was unplugged") -> None:
        """Ends the connections of a worker to the master and to the other workers."""
        number, *wires = self._links[task]
        master, worker = self.master, self.workers[task]

        def job() -> None:
            for wire in (*wires, *(w for ends, w in self._tokens.items() if task in ends)):
                wire.cut()
            self.reactors[0].submit(lambda: master.lose_worker(task, reason))
            self.reactor_of(task).submit(lambda: worker.lose_master(number, reason))

        self.reactors[0].submit(job)

    def call(self, job: Callable[[], Any]) -> Any:
        """Runs a job in the thread of the cluster, and returns its result."""
        results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.reactors[0].submit(lambda: results.put(job()))
        return results.get(timeout=20)

    def settle(self, is_settled: Callable[[], object], seconds: float = 20.0) -> None:
        """Waits until a condition is fulfilled, which the thread of the cluster evaluates."""
        until = time.monotonic() + seconds
        while not self.call(is_settled):
            assert time.monotonic() < until, "the condition is not fulfilled"
            time.sleep(0.005)

    def left(self) -> list[str]:
        """Steps that any process knows of, in the thread of the cluster."""
        state = self.master._state
        found = [f"the master runs {step}" for step in (*state.runs, *state._over)]
        for task, worker in self.workers.items():
            found += [f"{task} knows of {step}" for step in worker._steps]
        return found

    def wire(self, receiver: Callable[[Any], object], name: str, task: str = "") -> Wire:
        made = Wire(self, receiver, name, task)
        self.wires.append(made)
        return made

    def token_wire(self, source: str, target: str) -> Wire:
        found = self._tokens.get((source, target))
        if found is None:
            found = wire = self.wire(self.workers[target].deliver, f"{source} to {target}", target)
            lost = lambda: self.peers[source].on_lost(wire, "it was cut")
            found.on_cut = lambda: self.reactor_of(source).submit(lost)
            self._tokens[source, target] = found
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
            home = ""

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

    def tick(self) -> None:
        """Looks at the clock in all processes."""
        self.master.tick()
        for worker in self.workers.values():
            worker.tick(time.monotonic())

    def _choices(self) -> list[Callable[[], object]]:
        return [r.jobs.popleft for r in self.reactors if r.jobs] + [w.deliver for w in self.wires if w.frames]

    def _go_on(self) -> None:
        """Does something that can happen now."""
        choices = self._choices()
        if choices and (not self.timers or self.random.random() < 0.95):
            job = self.random.choice(choices)()
            if callable(job):
                job()
        elif self.timers:
            timers, self.timers = self.timers, []
            seconds, timer = chosen = self.random.choice(timers) if choices else min(timers, key=lambda t: t[0])
            if seconds < 1:
                timers.remove(chosen)
            elif not choices:
                timers.clear()  # `tick` looks at the clock
            self.timers += timers
            if timer.job is not None and seconds < 1:
                timer.job()

    def _pump(self) -> None:
        """Runs the cluster until it is closed."""
        while not self._is_closed:
            with self._work:
                if not self._choices() and not self.timers and not self._is_closed:
                    self._work.wait(TICK)
                if self._is_closed:
                    return
            try:
                self._go_on()
                if time.monotonic() > self._ticks_at:
                    self._ticks_at = time.monotonic() + TICK
                    self.tick()
            except Exception as e:
                self.errors.append(e)


__all__ = ["Control", "MemoryCluster", "Token"]
