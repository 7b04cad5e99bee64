"""The cluster compared with TensorFlow's gRPC runtime: the same programs with another import line.

    python -m benchmarks --only cluster                            # every contender that is installed, in turns
    python -m benchmarks.cluster --contender TensorFlow --only barrier --rounds 5 --json cluster.json

The programs are in `benchmarks.cluster_programs`. Each task is a process on 127.0.0.1. The clusters of all contenders
exist at the same time, and one of them runs steps at a time. A round measures headrace, TensorFlow and the raw round
trip within about a second, and a ratio is taken within a round, since a shared machine changes its speed. All servers
have the same limit of threads, the number of cores. A process ends when this one ends, or at a deadline.

* Barrier loop: in each iteration every task contributes to a sum on task 0, and the next iteration depends on the sum.
  Its figures are also divided by round trips of 100 bytes between two Python processes with plain sockets.
* Empty step: a no-op on each of two tasks.
* 64 MiB moved and added: a variable on task 1 is added to one on task 0 and reduced to a scalar.
* Digits: training by two workers, asynchronously (between-graph) or with the mean of the gradients (in-graph).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import importlib.util
import json
import math
import os
import random
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import threads
from benchmarks.cluster_programs.task import Settings
from benchmarks.measure import Result, shown, table
from benchmarks.report import spread

MODULES = {"headrace": "headrace.v1", "TensorFlow": "tensorflow.compat.v1"}
RAW = "raw TCP"
HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)  # below those that systems give to outgoing connections
START_LIMIT = 120.0  # seconds until a task must have started: TensorFlow's import on a busy machine
CALL_LIMIT = 120.0  # seconds for one command
PROCESS_LIMIT = 1200.0  # seconds until a task's process ends by itself
END_LIMIT = 10.0  # seconds from the end of a process's input to its end

LEAST = {2: 8.0, 4: 5.0}  # aims of the barrier loop: number of tasks → least ratio of iterations a second
MOST_TRIPS = 10.0  # aim: raw round trips an iteration
SPELLINGS = (
    ("scalar", "scalar", 10),
    ("scalar, parallel_iterations 1", "scalar", 1),
    ("vector of 16", "vector", 10),
    ("vector of 16, parallel_iterations 1", "vector", 1),
    ("the sum decides on the next iteration", "decided", 10),
    ("a loop variable on each task", "spread", 10),
)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Amounts of work in one round.

    Attributes:
      trips: number of tasks → iterations of a barrier loop.
      raw: raw round trips.
      empty: empty steps.
      moved: elements of the moved tensor, of float32.
      moves: steps with it.
      training: training steps of each worker.
    """

    trips: Mapping[int, int] = dataclasses.field(default_factory=lambda: {2: 1000, 4: 400})
    raw: int = 5000
    empty: int = 2000
    moved: int = 2**24
    moves: int = 5
    training: int = 300


SMALL = Sizes({2: 30, 4: 20}, 100, 5, 2**16, 2, 130)  # for tests; so many steps of training halve each loss


@dataclasses.dataclass(frozen=True)
class Judged(Result):
    """Figures of headrace with the aims of their ratios.

    Attributes:
      least: least ratio to TensorFlow that is aimed at, of a rate.
      most: greatest ratio to TensorFlow that is aimed at, of a time.
    """

    least: float | None = None
    most: float | None = None

    def compared(self) -> str:
        """The other figures, with the ratios and the aims."""
        parts = []
        for name, theirs in self.others.items():
            ratios = [] if math.isnan(self.values[0]) else [a / b for a, b in zip(self.values, theirs, strict=True)]
            if name == RAW:
                if ratios:
                    trips = statistics.median(1 / r for r in ratios)
                    aim = _verdict(trips <= MOST_TRIPS, f"≤ {MOST_TRIPS:g}")
                    parts.append(f"{shown(trips)} raw round trips an iteration, {aim}")
                continue
            said = f"{name} {spread(theirs)}"
            if ratios:
                ratio = statistics.median(ratios)
                said += f" (ratio {shown(ratio)}"
                if self.least is not None:
                    said += ", " + _verdict(ratio >= self.least, f"≥ {self.least:g}")
                if self.most is not None:
                    said += ", " + _verdict(ratio <= self.most, f"≤ {self.most:g}")
                said += ")"
            parts.append(said)
        return "; ".join(parts)


def _verdict(is_met: bool, aim: str) -> str:
    return f"{aim} met" if is_met else f"**{aim} missed**"


class TaskProcess:
    """One task of a cluster, in a process that this one starts and ends."""

    def __init__(self, settings: Settings) -> None:
        self.name = f"{settings.module or 'sockets'} /job:{settings.job}/task:{settings.index}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cluster_programs.task", json.dumps(dataclasses.asdict(settings))],
            cwd=threads.ROOT,
            env=threads.environment(settings.threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def send(self, method: str, arguments: Mapping[str, Any]) -> None:
        """Sends a command; `receive` has its result."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `receive` reports it, with the process's log
            self._process.stdin.write(json.dumps({"method": method, "arguments": arguments}).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, limit: float = CALL_LIMIT) -> Any:
        """Result of the last command.

        Args:
          limit: seconds to wait.

        Raises:
          RuntimeError: the command failed, the process ended, or the time is over.
        """
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], limit)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            reason = f"ended with status {self._process.wait(END_LIMIT)}" if ready else f"gave no reply in {limit:g} s"
            raise RuntimeError(f"{self.name} {reason}\n{self.log()}")
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(f"{self.name}: {reply['error']}")
        return reply["result"]

    def log(self) -> str:
        """The end of the process's standard error."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 4000))
        return self._log.read().decode(errors="replace")

    def end_input(self) -> None:
        """Lets the process end."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def close(self) -> None:
        """Waits for the process's end, and kills it if it does not come."""
        self.end_input()
        try:
            self._process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


class Cluster:
    """All tasks of one contender.

    Args:
      module: name of the module `tf`; empty: plain sockets.
      jobs: job → number of its tasks.
      clients: indices of the workers that take commands.
      n_threads: threads of each pool of a server.
    """

    def __init__(self, module: str, jobs: Mapping[str, int], clients: Sequence[int], n_threads: int) -> None:
        ports = iter(free_ports(sum(jobs.values())))
        addresses = {job: [f"{HOST}:{next(ports)}" for _ in range(n)] for job, n in jobs.items()}
        self.tasks: list[TaskProcess] = []
        self.clients: list[TaskProcess] = []
        for job, n in jobs.items():
            for i in range(n):
                takes = job == "worker" and i in clients
                task = TaskProcess(Settings(module, addresses, job, i, takes, n_threads, PROCESS_LIMIT))
                self.tasks.append(task)
                if takes:
                    self.clients.append(task)

    def wait(self) -> None:
        """Waits until every server has started."""
        until = time.monotonic() + START_LIMIT
        for task in self.tasks:
            task.receive(max(0.0, until - time.monotonic()))

    def call(self, method: str, **arguments: Any) -> Any:
        """Result of a method of the first client's program."""
        self.clients[0].send(method, arguments)
        return self.clients[0].receive()

    def call_all(self, method: str, **arguments: Any) -> list[Any]:
        """Results of a method of all clients' programs, which run at the same time."""
        for client in self.clients:
            client.send(method, arguments)
        return [client.receive() for client in self.clients]

    def close(self) -> None:
        """Ends all processes."""
        for task in self.tasks:
            task.end_input()
        for task in self.tasks:
            task.close()


def free_ports(n: int) -> list[int]:
    """Different ports on which no process listens."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if len(found) == n:
            return found
        with socket.socket() as s:
            try:
                s.bind((HOST, port))
            except OSError:
                continue
            found.append(port)
    raise OSError(f"fewer than {n} of the ports {PORTS.start} to {PORTS.stop - 1} are free")


@dataclasses.dataclass(frozen=True)
class Bench:
    """Circumstances of all rows.

    Attributes:
      contenders: names of the contenders, in the order of their turns.
      rounds: rounds of each row.
      sizes: amounts of work.
      threads: threads of each pool of a server.
    """

    contenders: Sequence[str]
    rounds: int
    sizes: Sizes
    threads: int

    @contextlib.contextmanager
    def clusters(
        self, jobs: Mapping[str, int], clients: Sequence[int] = (0,), with_raw: bool = False
    ) -> Iterator[dict[str, Cluster]]:
        """Clusters of all contenders, started.

        Args:
          jobs: job → number of its tasks.
          clients: indices of the workers that take commands.
          with_raw: whether there are also two processes with plain sockets.
        """
        with contextlib.ExitStack() as stack:
            found = {}
            for name in self.contenders:
                found[name] = Cluster(MODULES[name], jobs, clients, self.threads)
                stack.callback(found[name].close)
            if with_raw:
                found[RAW] = Cluster("", {"worker": 2}, (0,), self.threads)
                stack.callback(found[RAW].close)
            for cluster in found.values():
                cluster.wait()
            if with_raw:
                found[RAW].call("build", program="round trip")
            yield found

    def in_turns(self, clusters: Mapping[str, Cluster], figure: Callable[[Cluster], float]) -> dict[str, list[float]]:
        """Figures of all clusters, a round after the other; a first one is not counted."""

        def of(name: str, cluster: Cluster) -> float:
            if name != RAW:
                return figure(cluster)
            return self.sizes.raw / float(cluster.call("run", trips=self.sizes.raw))

        values: dict[str, list[float]] = {name: [] for name in clusters}
        for name, cluster in clusters.items():
            of(name, cluster)
        for _ in range(self.rounds):
            for name, cluster in clusters.items():
                values[name].append(of(name, cluster))
        return values


def barrier(bench: Bench) -> Iterator[Result]:
    """Iterations a second of the barrier loops, and raw round trips."""
    raw: list[float] = []
    for tasks, least in LEAST.items():
        trips = bench.sizes.trips[tasks]

        def rate(cluster: Cluster, trips: int = trips) -> float:
            return trips / float(cluster.call("run", trips=trips))

        with bench.clusters({"worker": tasks}, with_raw=True) as clusters:
            for title, spelling, parallel in SPELLINGS:
                for name in bench.contenders:
                    clusters[name].call("build", program="barrier", spelling=spelling, parallel=parallel)
                values = bench.in_turns(clusters, rate)
                raw += values[RAW]
                yield _judged(f"barrier loop, {tasks} processes: {title}", "iterations/s", values, least=least)
    yield Result("round trip of 100 bytes between two processes, plain sockets", "µs", [1e6 / rate for rate in raw])


def empty(bench: Bench) -> Iterator[Result]:
    """Time of a step that runs a no-op on each of two tasks."""
    steps = bench.sizes.empty
    with bench.clusters({"worker": 2}) as clusters:
        for cluster in clusters.values():
            cluster.call("build", program="empty")
        values = bench.in_turns(clusters, lambda c: 1e3 * float(c.call("run", steps=steps)) / steps)
    yield _judged("empty step, 2 processes", "ms", values, most=0.2)


def moved(bench: Bench) -> Iterator[Result]:
    """Time of a step that moves a large tensor between two tasks and adds it."""
    steps, size = bench.sizes.moves, bench.sizes.moved
    with bench.clusters({"worker": 2}) as clusters:
        for cluster in clusters.values():
            cluster.call("build", program="moved", size=size)
        values = bench.in_turns(clusters, lambda c: 1e3 * float(c.call("run", steps=steps)) / steps)
    yield _judged(f"{4 * size / 2**20:.3g} MiB moved and added, 2 processes", "ms", values, most=0.6)


def digits(bench: Bench) -> Iterator[Result]:
    """Training steps a second of two workers."""
    if importlib.util.find_spec("sklearn") is None:
        print("  digits: scikit-learn is not installed", file=sys.stderr)
        return
    for place, jobs in (("a ps task", {"ps": 1, "worker": 2}), ("worker 0", {"worker": 2})):
        with bench.clusters(jobs, clients=(0, 1)) as clusters:
            for model in ("softmax", "mlp"):
                title = f"digits, two workers, {model}, parameters on {place}: between-graph, asynchronous"
                yield _trained(bench, clusters, title, "between", model)
    with bench.clusters({"worker": 2}) as clusters:
        for model in ("softmax", "mlp"):
            title = f"digits, two workers, {model}, parameters on worker 0: in-graph, mean gradients"
            yield _trained(bench, clusters, title, "towers", model)


def _trained(bench: Bench, clusters: Mapping[str, Cluster], title: str, program: str, model: str) -> Result:
    """Training steps a second of all clients together, with the last losses as facts."""
    steps = bench.sizes.training
    losses: dict[str, list[float]] = {name: [] for name in clusters}
    names = {id(cluster): name for name, cluster in clusters.items()}

    def rate(cluster: Cluster) -> float:
        before = cluster.call("begin")
        times = cluster.call_all("train", steps=steps)
        total = float(steps * len(times))
        losses[names[id(cluster)]].append(cluster.call("end", before=before, steps=total))
        return total / float(max(end for _, end in times) - min(begin for begin, _ in times))

    for cluster in clusters.values():
        cluster.call_all("build", program=program, model=model)
    values = bench.in_turns(clusters, rate)
    facts = ", ".join(f"{name} {shown(statistics.median(found))}" for name, found in losses.items())
    return _judged(title, "steps/s", values, f"loss at the end: {facts}", least=1.0)


def _judged(name: str, unit: str, values: dict[str, list[float]], facts: str = "", **aims: float) -> Judged:
    mine = values.pop("headrace", [math.nan])
    return Judged(name, unit, mine, facts, values, **aims)


ROWS: dict[str, Callable[[Bench], Iterator[Result]]] = {
    "barrier": barrier,
    "empty": empty,
    "moved": moved,
    "digits": digits,
}


def cluster(
    rounds: int = 5,
    sizes: Sizes = Sizes(),
    only: Collection[str] = tuple(ROWS),
    contenders: Collection[str] = tuple(MODULES),
    n_threads: int | None = None,
) -> list[Result]:
    """Measures the rows of this module and prints each to the standard error.

    Args:
      rounds: rounds of each row.
      sizes: amounts of work.
      only: keys of `ROWS`.
      contenders: keys of `MODULES`; those that are not installed are left out.
      n_threads: threads of each pool of a server; by default the number of cores.

    Raises:
      RuntimeError: a program failed, or computed a wrong result.
    """
    present = [name for name in contenders if is_present(name)]
    bench = Bench(present, rounds, sizes, n_threads or os.cpu_count() or 1)
    results = []
    for key in only if present else ():
        for result in ROWS[key](bench):
            print("  " + table([result]).splitlines()[-1], file=sys.stderr, flush=True)
            results.append(result)
    return results


def is_present(contender: str) -> bool:
    """Whether a contender is installed and has servers."""
    module = MODULES[contender]
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        return False
    if contender == "headrace" and not hasattr(importlib.import_module(module).train, "Server"):
        print("  headrace.v1 has no tf.train.Server", file=sys.stderr)
        return False
    return True


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description="Measures the cluster.")
    parser.add_argument("--only", action="append", choices=ROWS, help="only these rows (may be repeated)")
    parser.add_argument("--contender", action="append", choices=MODULES, help="only these (may be repeated)")
    parser.add_argument("--rounds", type=int, default=5, help="of each row")
    parser.add_argument("--threads", type=int, help="of each pool of a server; by default the number of cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds of all results")
    args = parser.parse_args(argv)
    load = os.getloadavg()[0]
    results = cluster(args.rounds, Sizes(), args.only or (*ROWS,), args.contender or (*MODULES,), args.threads)
    print(table(results))
    print(f"\nMedians, and least to greatest, over {args.rounds} rounds; load before {load:.1f}.")
    if args.json is not None:
        args.json.write_text(json.dumps([r.as_json() for r in results], indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
