"""Faults of a cluster of real processes, in seeded rounds.

    python -m tests.dist.faults 7           # one round
    python -m tests.dist.faults 0 200       # rounds 0 to 199

The cluster has a master, three workers and two clients, each a process of its own. A proxy of this process is in front
of each server. The *driver* runs a program over workers 0 and 1; the *bystander* runs steps on worker 2 all the time.

A round draws a victim, a fault, a program and a moment. Then it checks that

* the call of the driver that is hit ends in time with `UnavailableError`, whose text names the lost process;
* no result is wrong, and no step has run twice or half, apart from the one that failed;
* after the restart of the process, or the end of the fault, the driver goes on, in the same session or a new one;
* the bystander sees no error, unless the master is lost, which it needs too;
* the master has no step, program or session left, and no server reported an exception of its own code.

A *brief* fault ends before the patience of the heartbeats. No call may fail then.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import itertools
import json
import math
import os
import queue
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import headrace as hr
from headrace.dist import messages
from headrace.dist.address import Address
from headrace.dist.codec import Control, encode_control
from headrace.dist.network import Network, NetworkOptions
from headrace.dist.reactor import Reactor
from headrace.environment import NO_OPTIONS
from headrace.errors import FailedPreconditionError, OpError, UnavailableError
from tests.dist.proxy import Proxies, Proxy

ROOT: Final = Path(__file__).parents[2]
SECRET: Final = "secret of the tests"
PATIENCE: Final = 2.0  # seconds of silence after which a connection is lost
HEARTBEAT: Final = 0.25
MARGIN: Final = 6.0  # seconds beyond the patience, on a busy machine
BRIEF: Final = 0.5  # seconds of a fault that no call may notice
START: Final = 30.0  # seconds until a process must be there
WORKERS: Final = 3
MASTER: Final = "/job:master/replica:0/task:0"
PORTS: Final = range(20_000, 32_000)  # below those that systems give to outgoing connections

MODULUS: Final = 1_000_003


def worker_name(i: int) -> str:
    """The task of a worker."""
    return f"/job:worker/replica:0/task:{i}"


def options(patience: float = PATIENCE, secret: str = SECRET) -> NetworkOptions:
    """Options of connections to the clusters of these tests."""
    return NetworkOptions(secret.encode(), None, None, min(HEARTBEAT, patience / 4), patience)


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Waits for a condition and returns its value, which is true.

    Raises:
      AssertionError: it was false for so long; the text has its last value.
    """
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s; last value: {value!r}"
        time.sleep(0.02)


# *** programs, in the processes of clients ***


class WrongResultError(Exception):
    """A result that no fault excuses."""


def _expect(is_right: bool, text: str) -> None:
    if not is_right:
        raise WrongResultError(text)


class Program:
    """A program of a client, which checks its own results.

    Each step changes the state by exactly one.

    Args:
      key: the prefix of the names of its state, which all clients of the cluster see.
      size: iterations of its loops.
      folder: the folder of its checkpoints.
      devices: the devices of its halves.

    Attributes:
      count: steps that have succeeded.
    """

    def __init__(self, key: str, size: int, folder: str, devices: Sequence[str]) -> None:
        self.key, self.size, self.folder = key, size, folder
        self.count = 0
        self.first, self.second = devices
        self.graph = hr.Graph(ordered=False)
        with self.graph:
            self.build()

    def build(self) -> None:
        """Adds the operations."""
        raise NotImplementedError

    def prepare(self, session: hr.Session) -> None:
        """Initializes the state."""

    def step(self, session: hr.Session) -> None:
        """Runs a step and checks its result."""
        raise NotImplementedError

    def repair(self, session: hr.Session, lost: Sequence[int]) -> None:
        """Checks the state after a step that failed, and makes it whole.

        Args:
          session: the session.
          lost: workers that were restarted.
        """
        size, self.size = self.size, 2
        try:
            self.step(session)
        finally:
            self.size = size


class Loop(Program):
    """A loop whose iterations alternate between the workers."""

    def build(self) -> None:
        self.n = hr.placeholder(hr.int64, (), name="n")
        self.x = hr.placeholder(hr.int64, (), name="x")

        def body(i: Any, a: Any) -> Any:
            with hr.device(self.first):
                a = a * 3
            with hr.device(self.second):
                a = (a + i) % MODULUS
            return i + 1, a

        zero = hr.constant(0, hr.int64)
        self.y = hr.while_loop(lambda i, a: i < self.n, body, (zero, self.x))[1]

    def step(self, session: hr.Session) -> None:
        got, want = int(session.run(self.y, {self.n: self.size, self.x: self.count})), self.count
        for i in range(self.size):
            want = (want * 3 + i) % MODULUS
        _expect(got == want, f"the loop gave {got}, not {want}")
        self.count += 1


class Gradient(Program):
    """The gradient of a loop whose iterations alternate between the workers."""

    def build(self) -> None:
        self.n = hr.placeholder(hr.int32, (), name="n")
        self.x = hr.placeholder(hr.float64, (), name="x")

        def body(i: Any, a: Any) -> Any:
            with hr.device(self.first):
                b = 1.0 / (1.0 + a * a)
            with hr.device(self.second):
                a = 0.5 * a + b
            return i + 1, a

        y = hr.while_loop(lambda i, a: i < self.n, body, (hr.constant(0), self.x))[1]
        self.fetches = [y, hr.gradients(y, [self.x])[0]]

    def step(self, session: hr.Session) -> None:
        y, dy = session.run(self.fetches, {self.n: self.size, self.x: float(self.count)})
        want_y, want_dy = float(self.count), 1.0
        for _ in range(self.size):
            square = 1.0 + want_y * want_y
            want_dy *= 0.5 - 2.0 * want_y / (square * square)
            want_y = 0.5 * want_y + 1.0 / square
        is_close = math.isclose(y, want_y, rel_tol=1e-9) and math.isclose(dy, want_dy, rel_tol=1e-6)
        _expect(is_close, f"{(y, dy)} is not {(want_y, want_dy)}")
        self.count += 1


class Variables(Program):
    """A variable on each worker, both of which every step increments, one after the other."""

    def build(self) -> None:
        self.variables = []
        for i, device in enumerate((self.first, self.second)):
            with hr.device(device):
                self.variables.append(hr.Variable(0, dtype=hr.int64, name=f"{self.key}_{i}"))
        self.value = hr.placeholder(hr.int64, (), name="value")
        self.set = [v.assign(self.value) for v in self.variables]
        a, b = self.variables
        first = a.assign_add(1)
        with hr.device(self.second):
            second = b.assign_add(first * 0 + 1)  # a token passes from worker to worker, and back
        with hr.device(self.first):
            self.add = [first, second + 0]
        self.values = [v.read_value() for v in self.variables]

    def prepare(self, session: hr.Session) -> None:
        session.run(self.set, {self.value: 0})

    def step(self, session: hr.Session) -> None:
        got = [int(v) for v in session.run(self.add)]
        _expect(got == [self.count + 1] * 2, f"the variables became {got} after {self.count}")
        self.count += 1

    def repair(self, session: hr.Session, lost: Sequence[int]) -> None:
        found = []
        for i, value in enumerate(self.values):
            try:
                found.append(int(session.run(value)))
            except FailedPreconditionError:
                _expect(i in lost, f"variable {i} is uninitialized, and its worker was not restarted")
        possible = (self.count, self.count + 1)
        _expect(all(v in possible for v in found), f"the variables are {found}, and were {self.count}")
        self.count = max(found, default=self.count)
        session.run(self.set, {self.value: self.count})


class Queue(Program):
    """A queue on the second worker.

    One step of the first worker fills it while another one waits for the element.
    """

    def build(self) -> None:
        self.x = hr.placeholder(hr.int64, (), name="x")
        with hr.device(self.second):
            self.queue = hr.FIFOQueue(1000, [hr.int64], shapes=[()], shared_name=self.key, name=self.key)
        with hr.device(self.first):
            sent = self.x * 3
        with hr.device(self.second):
            self.put = self.queue.enqueue([sent])
            element = self.queue.dequeue()
            length = self.queue.size()
        with hr.device(self.first):
            self.taken, self.element, self.length = element * 2, element + 0, length + 0

    def step(self, session: hr.Session) -> None:
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def take() -> None:
            try:
                answers.put(int(session.run(self.taken)))
            except Exception as e:
                answers.put(e)

        thread = threading.Thread(target=take)
        thread.start()
        try:
            session.run(self.put, {self.x: self.count})
        except OpError:
            thread.join(1.0)
            if thread.is_alive():  # its step does not need the link that was cut
                session.close()
                thread.join(MARGIN)
                _expect(not thread.is_alive(), "closing the session did not end a step that waits for a queue")
            raise
        thread.join()
        got = answers.get()
        if isinstance(got, Exception):
            raise got
        _expect(got == self.count * 6, f"the queue gave {got}, not {self.count * 6}")
        self.count += 1

    def repair(self, session: hr.Session, lost: Sequence[int]) -> None:
        left = [int(session.run(self.element)) for _ in range(int(session.run(self.length)))]
        _expect(left in ([], [self.count * 3]), f"the queue has {left} after {self.count} elements")
        self.count += 1


class Saving(Variables):
    """The variables, and a checkpoint of them after each step."""

    def build(self) -> None:
        super().build()
        names = dict(zip("ab", self.variables, strict=True))
        sharded = self.size % 2 == 1
        self.saver = hr.train.Saver(names, graph=self.graph, sharded=sharded, max_to_keep=2)
        self.saved = 0

    def prepare(self, session: hr.Session) -> None:
        super().prepare(session)
        self._save(session)

    def step(self, session: hr.Session) -> None:
        super().step(session)
        self._save(session)

    def _save(self, session: hr.Session) -> None:
        self.saver.save(session, os.path.join(self.folder, self.key), global_step=self.count, write_meta_graph=False)
        self.saved = self.count

    def repair(self, session: hr.Session, lost: Sequence[int]) -> None:
        path = hr.train.latest_checkpoint(self.folder, verify=True)
        _expect(path is not None, "there is no checkpoint")
        self.saver.restore(session, path)
        found = [int(v) for v in session.run(self.values)]
        possible = [[self.saved] * 2, [self.saved + 1] * 2]
        _expect(found in possible, f"the checkpoint has {found}, and the last one that was complete {self.saved}")
        self.count = self.saved = found[0]


PROGRAMS: Final[dict[str, type[Program]]] = {
    "loop": Loop, "gradient": Gradient, "variables": Variables, "queue": Queue, "saving": Saving,
}  # fmt: skip


class _ClientMain:
    """A client process: carries out commands from its input, and reports events on its output."""

    def __init__(self) -> None:
        self.program: Program
        self.session: hr.Session | None = None
        self.target: Any = ""
        self.filters: list[str] = []
        self.is_stopped = threading.Event()
        self._output = threading.Lock()

    def say(self, **event: Any) -> None:
        with self._output:
            print(json.dumps(event), flush=True)

    def run(self) -> None:
        jobs: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

        def listen() -> None:
            for line in sys.stdin:
                command = json.loads(line)
                if command["do"] == "stop":
                    self.is_stopped.set()
                else:
                    self.is_stopped.clear()
                    jobs.put(command)
            self.is_stopped.set()
            jobs.put(None)

        threading.Thread(target=listen, daemon=True).start()
        self.say(event="ready")
        while (command := jobs.get()) is not None:
            began = time.monotonic()
            do = getattr(self, f"do_{command.pop('do')}")
            try:
                do(**command)
            except Exception as e:
                kind = "wrong" if isinstance(e, WrongResultError) else "error"
                text = "\n".join((str(e), *getattr(e, "__notes__", ())))
                self.say(event=kind, kind=type(e).__name__, text=text, seconds=time.monotonic() - began)
            else:
                self.say(event="done", seconds=time.monotonic() - began)
        self._close()

    def do_begin(
        self, program: str, key: str, size: int, folder: str, devices: list[str], url: str, filters: list[str],
        patience: float, count: int | None = None,
    ) -> None:  # fmt: skip
        """Makes a program and opens a session.

        With `count`, the state is there after so many steps, or one more.
        """
        self._close()
        self.program = PROGRAMS[program](key, size, folder, devices)
        self.target = Address(url, options(patience)) if patience else url
        self.filters = filters
        self._open()
        assert self.session is not None
        if count is None:
            self.program.prepare(self.session)
        else:
            self.program.count = count
            if isinstance(self.program, Saving):
                self.program.saved = count
            self.program.repair(self.session, ())

    def do_steps(self, count: int, size: int = 0, pause: float = 0.0) -> None:
        """Runs steps until there were `count` (0: no limit), or until "stop"."""
        assert self.session is not None
        self.program.size = size or self.program.size
        for i in itertools.count(1):
            self.say(event="begins", count=self.program.count)
            self.program.step(self.session)
            self.say(event="step", count=self.program.count)
            if i == count or self.is_stopped.is_set():
                return
            if pause:
                time.sleep(pause)

    def do_recover(self, lost: list[int], is_new: bool, limit: float) -> None:
        """Makes the state whole after an error, as soon as the cluster is."""
        end = time.monotonic() + limit
        if is_new:
            self._close()
        while True:
            try:
                if self.session is None or self.session._closed:
                    self._open()
                assert self.session is not None
                self.program.repair(self.session, lost)
                return
            except (UnavailableError, hr.errors.AbortedError) as e:
                if time.monotonic() > end:
                    raise
                if "the connection to the master has ended" in str(e) or is_new:
                    self._close()
                time.sleep(0.1)

    def _open(self) -> None:
        config = {"device_filters": self.filters}
        self.session = hr.Session(self.target, graph=self.program.graph, config=config)

    def _close(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.close()


# *** processes ***


class Process:
    """A process of the tests.

    Args:
      name: its name in messages.
      command: its command.
      log: the file of its standard error.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        env = {**os.environ, "HEADRACE_CLUSTER_SECRET": SECRET, "PYTHONFAULTHANDLER": "1"}
        env["MALLOC_MMAP_THRESHOLD_"] = "65536"  # freed buffers go back to the system, so `usage` shows leaks alone
        with open(log, "ab") as err:
            self.popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, env=env, cwd=ROOT
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self.popen.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.popen.poll() is None

    def signal(self, number: int) -> None:
        """Sends a signal, and waits until the process has stopped if the signal is SIGSTOP.

        A process that was sent SIGSTOP may still answer a message before all its threads have stopped.
        """
        self.popen.send_signal(number)
        if number == signal.SIGSTOP:
            pid = self.popen.pid
            flags = os.WSTOPPED | os.WNOWAIT | os.WNOHANG
            until(lambda: os.waitid(os.P_PID, pid, flags) is not None, 10, "the process has stopped")

    def kill(self) -> None:
        """Ends it at once, and waits for that."""
        self.popen.kill()
        self.popen.wait(10)
        self._release()

    def end(self, seconds: float = 10.0) -> None:
        """Closes its input, upon which it ends.

        Raises:
          AssertionError: it has not ended, or not well.
        """
        with contextlib.suppress(OSError):
            assert self.popen.stdin is not None
            self.popen.stdin.close()
        try:
            code = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} has not ended within {seconds:g} s") from None
        self._release()
        assert code == 0, f"{self.name} has ended with {code}"

    def _release(self) -> None:
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


@dataclasses.dataclass(frozen=True)
class Usage:
    """Resources of a process: resident memory in MB, threads, open files."""

    megabytes: float
    threads: int
    files: int


def usage(pid: int) -> Usage:
    """Returns the resources of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    rss, threads = (int(re.search(rf"^{n}:\s+(\d+)", status, re.M)[1]) for n in ("VmRSS", "Threads"))  # type: ignore[index]
    return Usage(rss / 1024, threads, len(os.listdir(f"/proc/{pid}/fd")))


class Client(Process):
    """A client process."""

    def __init__(self, name: str, log: Path) -> None:
        super().__init__(name, [sys.executable, "-m", "tests.dist.faults", "--client"], log)
        self.events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.seen: collections.deque[dict[str, Any]] = collections.deque(maxlen=100)
        threading.Thread(target=self._read, daemon=True).start()
        assert self.next(START)["event"] == "ready"

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in self.popen.stdout:
                self.events.put(json.loads(line))
        self.events.put({"event": "ended"})

    def send(self, do: str, **arguments: Any) -> None:
        """Sends a command."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self.popen.stdin.flush()

    def next(self, seconds: float) -> dict[str, Any]:
        """Returns the next event."""
        try:
            event = self.events.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"a hang: {self.name} reports nothing within {seconds:g} s") from None
        self.seen.append(event)
        assert event["event"] != "wrong", f"a wrong result of {self.name}: {event}"
        return event

    def drain(self) -> list[dict[str, Any]]:
        """Returns the events so far, without waiting."""
        out = []
        with contextlib.suppress(queue.Empty):
            while True:
                out.append(self.events.get_nowait())
        self.seen += out
        for event in out:
            assert event["event"] != "wrong", f"a wrong result of {self.name}: {event}"
        return out

    def result(self, seconds: float) -> dict[str, Any]:
        """Returns the event that ends the current command: "done", "error" or "ended"."""
        end = time.monotonic() + seconds
        while (event := self.next(max(end - time.monotonic(), 0.001)))["event"] not in ("done", "error", "ended"):
            pass
        return event

    def call(self, do: str, seconds: float = START, **arguments: Any) -> None:
        """Carries out a command, which must succeed."""
        self.send(do, **arguments)
        event = self.result(seconds)
        assert event["event"] == "done", f"{do} of {self.name}: {event}"

    def count(self) -> int:
        """Number of steps of its program that were reported."""
        return next((e["count"] for e in reversed(self.seen) if "count" in e), 0)


class Cluster:
    """A master and workers as processes, each behind a proxy of this process.

    Attributes:
      url: the address of the master, for clients.
    """

    def __init__(self, workers: int = WORKERS, devices: int = 1) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-faults-")
        self.folder = Path(self._folder.name)
        self.proxies = Proxies()
        self._devices = devices
        self.tasks = [MASTER, *map(worker_name, range(workers))]
        ports = dict(zip(self.tasks, free_ports(len(self.tasks)), strict=True))
        self._addresses = {task: f"127.0.0.1:{port}" for task, port in ports.items()}
        self.proxy: dict[str, Proxy] = {task: self.proxies.add(a) for task, a in self._addresses.items()}
        self.url = f"headrace://{self.proxy[MASTER].address}"
        self.processes: dict[str, Process] = {}
        self.clients: list[Client] = []
        self._checked: dict[Path, int] = {}  # bytes of the logs that were looked at
        for task in self.tasks:
            self.start(task)

    def start(self, task: str) -> Process:
        """Starts the process of a task."""
        spec = hr.ClusterSpec({"master": [self._seen_from(task, MASTER)],
                               "worker": [self._seen_from(task, t) for t in self.tasks[1:]]})  # fmt: skip
        file = self.folder / f"{self.tasks.index(task)}.toml"
        file.write_text("[jobs]\n" + "".join(f"{job} = {json.dumps(spec.job_tasks(job))}\n" for job in spec.jobs))
        job, index = ("master", 0) if task == MASTER else ("worker", self.tasks.index(task) - 1)
        command = [sys.executable, "-m", "headrace", "worker", "--cluster", str(file), "--job", job]
        command += ["--task", str(index), "--until-eof", "--heartbeat", str(HEARTBEAT), "--patience", str(PATIENCE)]
        command += ["--device", f"CPU={self._devices}", "--files", str(self.folder)]
        self.processes[task] = Process(task, command, self.log(task))
        return self.processes[task]

    def _seen_from(self, task: str, other: str) -> str:
        return self._addresses[task] if task == other else self.proxy[other].address

    def log(self, task: str) -> Path:
        """The standard error of the processes of a task."""
        return self.folder / f"{self.tasks.index(task)}.log"

    def client(self, name: str) -> Client:
        """Starts a client."""
        client = Client(name, self.folder / f"{name}.log")
        self.clients.append(client)
        return client

    def begin(
        self, client: Client, program: str, key: str, size: int, workers: Sequence[int], patience: float = PATIENCE,
        count: int | None = None, seconds: float = START,
    ) -> None:  # fmt: skip
        """Lets a client make a program over one or two workers."""
        folder = self.folder / key
        folder.mkdir(exist_ok=True)
        tasks = [worker_name(i) for i in workers]
        devices = [f"{worker_name(i)}/device:CPU:0" for i in (workers[0], workers[-1])]
        client.call(
            "begin", seconds, program=program, key=key, size=size, folder=str(folder), devices=devices, url=self.url,
            filters=tasks, patience=patience, count=count,
        )  # fmt: skip

    def description(self, seconds: float = START) -> dict[str, Any]:
        """State of the cluster, as the master describes it to a new client.

        The client has a session on the last worker.
        """
        end = time.monotonic() + seconds
        while True:
            try:
                url = f"headrace://{self._addresses[MASTER]}"
                target = Address(url, options()).connect(NO_OPTIONS, [self.tasks[-1]])
                break
            except OpError:
                if time.monotonic() > end:
                    self.check_logs()
                    raise
                time.sleep(0.05)
        try:
            found: dict[str, Any] = target.describe()
        finally:
            target.close()
        return found

    def described_by_itself(self, task: str) -> dict[str, Any]:
        """State of a worker, as it describes itself to a master."""
        return describe_worker(self._addresses[task], task)

    def wait_for_workers(self) -> None:
        """Waits until the master is connected to all workers."""
        until(lambda: all(w["is_up"] for w in self.description()["workers"]), START, "all workers are connected")

    def check_logs(self) -> None:
        """Checks that no server has reported an exception of its own code.

        Each call looks at what was written since the one before.
        """
        for task in self.tasks:
            text = self.log(task).read_text(encoding="utf-8", errors="replace")
            new = text[self._checked.get(self.log(task), 0) :]
            self._checked[self.log(task)] = len(text)
            assert "Traceback" not in new, f"{task} reports:\n{new[-4000:]}"

    def autopsy(self) -> str:
        """Ends all processes; returns the state of the cluster and their stacks as text."""
        lines = []
        try:
            lines.append(f"the master: {self.description(1.0)}")
            lines += [f"{task}: {self.described_by_itself(task)}" for task in self.tasks[1:]]
        except Exception as e:
            lines.append(f"{type(e).__name__}: {e}")
        for process in (*self.clients, *self.processes.values()):
            if process.is_alive:
                process.signal(signal.SIGCONT)
                process.signal(signal.SIGABRT)
                process.popen.wait(10)
        logs = sorted(self.folder.glob("*.log"))
        lines += [f"*** {log.name}\n{log.read_text(errors='replace')[-8000:]}" for log in logs]
        return "\n".join(lines)

    def close(self) -> None:
        """Ends all processes.

        Raises:
          AssertionError: a process has not ended by itself, or its children are left.
        """
        problems = []
        try:
            for process in (*self.clients, *self.processes.values()):
                if process.is_alive:
                    try:
                        process.signal(signal.SIGCONT)
                        process.end()
                    except AssertionError as e:
                        problems.append(str(e))
                else:
                    process._release()
            problems += [f"process {pid} is left: {command}" for pid, command in processes_with(str(self.folder))]
        finally:
            self.proxies.close()
            self._folder.cleanup()
        assert not problems, problems

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(AssertionError):
                self.close()


def free_ports(n: int) -> list[int]:
    """Returns ports that no process uses, and that no outgoing connection will get."""
    out: list[int] = []
    while len(out) < n:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in out:
            out.append(port)
    return out


def processes_with(text: str) -> list[tuple[int, str]]:
    """Returns the processes whose command contains a text."""
    out = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if text in command:
                    out.append((int(entry.name), command))
    return out


@contextlib.contextmanager
def linked(
    address: str, role: str, secret: str = SECRET, name: str = ""
) -> Iterator[tuple[Any, queue.SimpleQueue[Any]]]:
    """Context manager of a connection to a server.

    Its value is the link, with a queue of the frames, and of None at the end of the link.
    """
    reactor = Reactor("tests")
    frames: queue.SimpleQueue[Any] = queue.SimpleQueue()
    network = Network(reactor, options(10.0, secret), f"test {os.getpid()}", 1)

    def opened(link: Any) -> None:
        link.on_frames = lambda arrived: list(map(frames.put, arrived))
        link.on_closed = lambda reason: frames.put(None)

    try:
        yield network.connect_blocking(address, role, name, 0, opened), frames
    finally:
        reactor.close()


def describe_worker(address: str, task: str) -> dict[str, Any]:
    """Returns the state of a worker, as it describes itself to a master."""
    with linked(address, "master", name=task) as (link, frames):
        link.send(encode_control(messages.Describe(0)))
        frame = frames.get(timeout=10)
        assert isinstance(frame, Control), frame
        assert isinstance(frame.message, messages.Reply), frame
        found: dict[str, Any] = frame.message.data
        return found


# *** rounds ***


@dataclasses.dataclass(frozen=True)
class Case:
    """One round.

    Attributes:
      seed: its number.
      victim: "first" or "second" (workers of the driver), "third" (the bystander's), "master", "client" (the driver);
        or a link: "client link", "master link" (to the second worker), "worker link" (from the first to the second).
      fault: of a process: "kill", "stop" (SIGSTOP, then killed), "sleep" (then continued) or "brief stop"; of a link:
        "reset", "hole", "flicker" (a reset that ends at once) or "brief hole".
      program: the program of the driver.
      phase: "idle", "steps", "loop" or "first step".
      moment: seconds from the beginning of the phase to the fault.
    """

    seed: int
    victim: str
    fault: str
    program: str
    phase: str
    moment: float

    @property
    def is_noticed(self) -> bool:
        """Whether the driver notices it."""
        return self.victim not in ("third", "client") and not self.fault.startswith("brief")

    @property
    def notice(self) -> float:
        """Seconds after which the other processes have noticed it, on an idle machine."""
        return 0.0 if self.fault in ("kill", "reset", "flicker") else PATIENCE


_LINKS: Final = ("client link", "master link", "worker link")
_NAMES: Final[Mapping[str, Sequence[str]]] = {  # the text of the error has one of them
    "first": [worker_name(0)], "second": [worker_name(1)], "third": [worker_name(2)], "master": ["the master", MASTER],
    "master link": [worker_name(1)], "worker link": [worker_name(0), worker_name(1)],
    "client link": ["the master", MASTER],
}  # fmt: skip


def _cases() -> list[tuple[str, str, str, str]]:
    """Combinations of victim, fault, program and phase.

    The first ones have all values.
    """
    faults = [
        (victim, fault)
        for victim in ("first", "second", "third", "master", "client")
        for fault in ("kill", "stop", "sleep", "brief stop")
    ]
    faults += [(link, fault) for link in _LINKS for fault in ("reset", "hole", "flicker", "brief hole")]
    phases = [("loop", "loop"), ("gradient", "loop"), ("variables", "steps"), ("queue", "steps"), ("saving", "steps"),
              ("loop", "idle"), ("variables", "idle"), ("gradient", "first step"), ("saving", "idle")]  # fmt: skip
    rng = random.Random("faults")
    left = [(*f, *p) for f in faults for p in phases]
    rng.shuffle(left)
    count: collections.Counter[Any] = collections.Counter()
    out: list[tuple[str, str, str, str]] = []
    while left:  # takes the combination whose values were the rarest so far
        best = min(left, key=lambda c: 2 * count[c[:2]] + 2 * count[c[2:]] + count[c[0]] + count[c[1]])
        left.remove(best)
        count.update((best[:2], best[2:], best[0], best[1]))
        out.append(best)
    return out


CASES: Final = _cases()


def case(seed: int) -> Case:
    """Returns the round with a number."""
    rng = random.Random(f"fault {seed}")
    return Case(seed, *CASES[seed % len(CASES)], rng.choice((rng.uniform(0.0, 0.02), rng.uniform(0.0, 0.3))))


class Rounds:
    """A cluster with a driver and a bystander, on which rounds are run."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        try:
            self.driver = self.cluster.client("driver")
            self.bystander = self.cluster.client("bystander")
            self.cluster.begin(self.bystander, "loop", "bystander", 3, [2])
            self.bystander.send("steps", count=0, pause=0.02)
        except BaseException:
            self.__exit__(Exception)
            raise

    def __enter__(self) -> Rounds:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        self.cluster.__exit__(kind, *exc)

    def run(self, c: Case) -> None:
        """Runs a round.

        Raises:
          AssertionError: a check has failed.
        """
        rng = random.Random(f"round {c.seed}")
        self._goes_on(self.bystander)
        is_url = c.victim in ("first", "second", "third") and rng.random() < 0.5  # such a session has a long patience
        size, key = rng.choice((3, 4, 10)), f"round{c.seed}_{time.monotonic_ns()}"
        begin = {
            "program": c.program,
            "key": key,
            "size": size,
            "workers": [0, 1],
            "patience": 0.0 if is_url else PATIENCE,
        }
        self.cluster.begin(self.driver, **begin)
        if c.phase != "first step":
            self.driver.call("steps", count=2)
        if c.phase == "loop":
            is_ended = c.is_noticed or (c.victim == "client" and c.fault != "brief stop")
            self.driver.send("steps", count=0, size=1_000_000 if is_ended else 200)
        elif c.phase != "idle":
            self.driver.send("steps", count=0)
        time.sleep(c.moment)
        self._break(c)
        if c.phase == "idle" and c.victim != "client":
            self.driver.send("steps", count=0)
        if c.is_noticed:
            self._noticed(c, is_new=rng.random() < 0.5)
        elif c.victim == "client" and c.fault != "brief stop":
            self._lost(c, begin)
        else:
            self._unnoticed(c)
        if c.victim in ("third", "master") and c.fault != "brief stop":
            if c.victim == "third":
                self._error(self.bystander, c)
                self._mend(c)
            self.bystander.call("recover", lost=[], is_new=rng.random() < 0.5, limit=START / 2)
            self.bystander.send("steps", count=0, pause=0.02)
        self._goes_on(self.bystander)
        self.driver.call("steps", count=2, size=size)
        self._nothing_left()

    # *** the fault ***

    def _victim(self, c: Case) -> Process:
        if c.victim == "client":
            return self.driver
        tasks = {"first": worker_name(0), "second": worker_name(1), "third": worker_name(2), "master": MASTER}
        return self.cluster.processes[tasks[c.victim]]

    def _proxy(self, c: Case) -> Proxy:
        return self.cluster.proxy[MASTER if c.victim == "client link" else worker_name(1)]

    def _break(self, c: Case) -> None:
        if c.victim in _LINKS:
            name = {"client link": f"client {self.driver.pid}", "master link": MASTER, "worker link": worker_name(0)}
            self._proxy(c).cut("hole" if "hole" in c.fault else "reset", lambda peer: peer.name == name[c.victim])
            if c.fault == "flicker":
                self._proxy(c).restore()
        elif c.fault == "kill":
            self._victim(c).kill()
        else:
            self._victim(c).signal(signal.SIGSTOP)

    def _mend(self, c: Case) -> list[int]:
        """Ends the fault. Returns the workers that were restarted."""
        if c.victim in _LINKS:
            self._proxy(c).restore()
            return []
        process = self._victim(c)
        if c.fault in ("sleep", "brief stop"):
            process.signal(signal.SIGCONT)
            return []
        if process.is_alive:
            process.kill()
        if c.victim == "client":
            self.cluster.clients.remove(self.driver)
            self.driver = self.cluster.client("driver")
            return []
        self.cluster.start(process.name)
        return [] if c.victim == "master" else [int(process.name[-1])]

    # *** checks ***

    def _error(self, client: Client, c: Case) -> None:
        """A call of a client fails in time, with the right error."""
        event = client.result(c.notice + MARGIN)
        if c.fault == "flicker" and event["event"] == "done":
            return  # only tokens and messages under way are lost, and there were none
        assert event["event"] == "error", f"{client.name} should have noticed the fault: {event}"
        assert event["kind"] == "UnavailableError", event
        names = _NAMES[c.victim]
        assert any(name in event["text"] for name in names), f"the text does not name {names}: {event['text']}"

    def _noticed(self, c: Case, is_new: bool) -> None:
        """The driver gets an error, and goes on after the end of the fault."""
        if c.fault == "flicker":
            time.sleep(0.2)
            self.driver.send("stop")
        self._error(self.driver, c)
        if c.victim == "master":
            self._error(self.bystander, c)
        lost = self._mend(c)
        self.driver.call("recover", lost=lost, is_new=is_new, limit=START / 2)

    def _unnoticed(self, c: Case) -> None:
        """The driver sees no error."""
        time.sleep(c.notice if c.victim == "third" and not c.fault.startswith("brief") else BRIEF)
        if c.fault.startswith("brief"):
            self._mend(c)
        if c.phase == "idle" and c.victim == "client":
            self.driver.send("steps", count=0)
        self.driver.send("stop")
        event = self.driver.result(PATIENCE + MARGIN)
        assert event["event"] == "done", f"{event}, and the driver should not have noticed the fault"

    def _lost(self, c: Case, begin: Mapping[str, Any]) -> None:
        """The master notices that the driver is lost; another client goes on with its state."""
        until(lambda: self.cluster.description()["sessions"] <= 2, c.notice + MARGIN, "the session of a lost client")
        if c.fault == "sleep":
            self._mend(c)
            if c.phase == "idle":
                self.driver.send("steps", count=0)
            self._error(self.driver, dataclasses.replace(c, victim="client link"))
            self.driver.call("recover", lost=[], is_new=True, limit=START / 2)
            return
        self.driver.drain()
        count = self.driver.count()
        self._mend(c)
        self.cluster.begin(self.driver, **begin, count=count)

    def _goes_on(self, client: Client) -> None:
        """A client that runs steps has seen no error, and completes another step."""
        for event in (*client.drain(), client.next(MARGIN), client.next(MARGIN)):
            assert event["event"] in ("begins", "step"), f"{client.name} should not have noticed the fault: {event}"

    def _nothing_left(self) -> None:
        """Servers have no old steps and sessions, and have reported no exception."""
        self.cluster.wait_for_workers()

        def left() -> list[Any]:
            d = self.cluster.description()  # of the sessions one is that of this call
            workers = [self.cluster.described_by_itself(t) for t in self.cluster.tasks[1:3]]
            steps = [s for s in d["steps"] if s["workers"] != [worker_name(2)]]  # of the bystander
            return [x for x in (d["sessions"] - 3, steps, *(w["steps"] for w in workers)) if x]

        until(lambda: not left(), MARGIN, "steps or sessions are left")
        self.cluster.check_logs()


def check(seeds: Iterable[int]) -> Iterator[str]:
    """Runs rounds; yields a description of each.

    Raises:
      AssertionError: a round has failed; the text has its number.
    """
    with Rounds() as rounds:
        for seed in seeds:
            c = case(seed)
            began = time.monotonic()
            try:
                rounds.run(c)
            except Exception as e:
                raise AssertionError(
                    f"{c}: {type(e).__name__}: {e}\n(again: python -m tests.dist.faults {seed})\n"
                    f"{rounds.cluster.autopsy()}"
                ) from e
            yield f"{c}: {time.monotonic() - began:.1f} s"


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.dist.faults", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("seed", type=int, nargs="?", default=0, help="the first round")
    parser.add_argument("count", type=int, nargs="?", default=1, help="the number of rounds")
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.client:
        _ClientMain().run()
        return 0
    for text in check(range(args.seed, args.seed + args.count)):
        print(text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
