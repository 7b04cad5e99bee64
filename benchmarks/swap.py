"""Swapping: the gradient of a loop that keeps four times the device limit.

    python -m benchmarks.swap

An LSTM with iterations of more than a millisecond, forward and back. The values that its gradient keeps go to a spill
file and come back while the loop goes on. Measured are

* the time of both, in turns, and what the one takes longer. Where there is room, passes compute the sums of all
  iterations at once, from values put together; with a limit they do not, as that would keep all values once more. So
  there is a third contender: no limit, without these passes;
* how much more is resident at the worst moment than before, each in a process of its own;
* how much of the time of the copies lies within the time of operations, from a trace;
* that without `swap_memory` the step is refused.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import headrace as hr
from benchmarks import threads
from benchmarks.measure import Result, alternating, table
from benchmarks.peak import begin, most
from headrace import flags, step_events

STACKING = "-loop_fission,-loop_accumulations,-loop_collections"
MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Lstm:
    """The size of the program.

    Attributes:
      batch: number of sequences.
      hidden: units of the cell.
      trips: number of iterations.
      kept: bytes that its gradient keeps: c, h, tanh(c) and four gates.
      limit: bytes that the device may hold.
    """

    batch: int = 128
    hidden: int = 256
    trips: int = 160

    @property
    def kept(self) -> int:
        return self.trips * self.batch * self.hidden * 4 * 7

    @property
    def limit(self) -> int:
        return self.kept // 4


def swap(repeats: int = 15, size: Lstm = Lstm()) -> list[Result]:
    """All figures, see the module's text."""
    names = ("swapped", "no limit", "no limit, no sums of all iterations at once")
    swapped, free, plain = calls = [_call(size, size.limit), _call(size, None), _call(size, None, STACKING)]
    np.testing.assert_allclose(swapped()[0], free()[0], rtol=1e-3, atol=1e-4)
    for a, b in zip(swapped(), plain(), strict=True):
        np.testing.assert_array_equal(a, b)
    what = f"LSTM {size.batch}x{size.hidden}, {size.trips} steps, {size.kept / MIB:.0f} MiB kept"
    results = []
    for name, call in zip(
        names[1:], calls[1:], strict=True
    ):  # in pairs: each leaves the memory to the next as it found it
        pair = alternating([swapped, call], repeats)
        for which, mine in zip((f"swapped, alternating with {name}", name), pair, strict=True):
            results.append(Result(f"{what}: {which}", "ms an iteration", [1000 * s / (2 * size.trips) for s in mine]))
        longer = [a / b for a, b in zip(*pair, strict=True)]
        results.append(Result(f"{what}: swapped, to {name}", "ratio", longer))
    for name, limit in (("swapped", size.limit), ("no limit", 0)):
        grown = _resident(size, limit) / MIB
        results.append(Result(f"{what}: resident, {name}", "MiB", [grown], f"the limit is {size.limit / MIB:.0f} MiB"))
    share, out, back = _overlap(size)
    facts = f"{out / MIB:.0f} MiB out, {back / MIB:.0f} MiB in"
    results.append(Result(f"{what}: share of the time of copies that overlaps operations", "ratio", [share], facts))
    results.append(Result(f"{what}: held when refused, without swap_memory", "bytes", [_refused(size)]))
    return results


def graph_of(
    size: Lstm, may_swap: bool = True, device: str | None = None
) -> tuple[hr.Graph, list[hr.Tensor], dict[hr.Tensor, np.ndarray]]:
    """The graph of the program, its fetches (the loss and derivatives) and its feeds."""
    rng = np.random.default_rng(0)
    shape, weights = (size.batch, size.hidden), (2 * size.hidden, 4 * size.hidden)
    with hr.Graph() as g, hr.device(device):
        x, h, c = (hr.placeholder("float32", shape, name) for name in "xhc")
        w = hr.placeholder("float32", weights, "w")

        def step(t: Any, h: Any, c: Any) -> Any:
            i, j, f, o = hr.split(hr.matmul(hr.concat([x, h], 1), w), 4, 1)
            c = hr.sigmoid(f) * c + hr.sigmoid(i) * hr.tanh(j)
            return t + 1, hr.sigmoid(o) * hr.tanh(c), c

        _, last, _ = hr.while_loop(lambda t, *_: t < size.trips, step, (0, h, c), swap_memory=may_swap)
        loss = hr.reduce_sum(last * last)
        grads = hr.gradients(loss, [w, h])
    feeds = {t: (rng.normal(size=s) * 0.1).astype("float32") for t, s in zip((x, h, c, w), [shape] * 3 + [weights])}
    return g, [loss, *grads], feeds


def _call(size: Lstm, limit: int | None, optimize: str = "on") -> Callable[[], Any]:
    graph, fetches, feeds = graph_of(size)
    with flags.override(OPTIMIZE=optimize):
        call = hr.Session(graph=graph, memory_limit=limit).make_callable(fetches, list(feeds))
        values = list(feeds.values())
        call(*values)
    return lambda: call(*values)


def _refused(size: Lstm) -> int:
    """Bytes that the session holds when it refuses the step."""
    graph, fetches, feeds = graph_of(size, may_swap=False)
    with hr.Session(graph=graph, memory_limit=size.limit) as session:
        try:
            session.run(fetches, feeds)
        except hr.errors.ResourceExhaustedError as e:
            print(f"without swap_memory: {e}", file=sys.stderr)
            return int(str(e).partition(", and ")[2].partition(" bytes")[0].replace(",", ""))
    raise AssertionError("the step was not refused")


def _overlap(size: Lstm) -> tuple[float, int, int]:
    """Share of the copies' time in which operations run, and the bytes of the copies."""
    graph, fetches, feeds = graph_of(size)
    events: list[step_events.Event] = []
    with hr.Session(graph=graph, memory_limit=size.limit) as session:
        session.run(fetches, feeds, options=hr.RunOptions(listener=events.append))
    started: dict[tuple[str, str], int] = {}
    work, copies = [], []
    out = back = 0
    for e in events:
        if isinstance(e, step_events.NodeStart):
            started[e.node, e.tag] = e.time
        elif isinstance(e, step_events.NodeEnd) and (e.node, e.tag) in started:
            work.append((started[e.node, e.tag], e.time))
        elif isinstance(e, step_events.StreamSpan):
            copies.append((e.time, e.end))
            out, back = (out + e.bytes, back) if "out" in e.name else (out, back + e.bytes)
    both = _length(work) + _length(copies) - _length(work + copies)
    return both / max(1, _length(copies)), out, back


def _length(spans: list[tuple[int, int]]) -> int:
    """Length of the union of some spans."""
    total = until = 0
    for first, last in sorted(spans):
        total += max(0, last - max(first, until))
        until = max(until, last)
    return total


def _resident(size: Lstm, limit: int) -> int:
    """Increase of the resident memory at its peak, in a new process."""
    numbers = [str(n) for n in (*dataclasses.astuple(size), limit)]
    command = [sys.executable, "-m", "benchmarks.swap", "--resident", *numbers]
    done = subprocess.run(
        command, env=threads.environment(1), cwd=threads.ROOT, text=True, capture_output=True, check=True
    )
    return int(json.loads(done.stdout.splitlines()[-1]))


def _grown(size: Lstm, limit: int) -> int:
    graph, fetches, feeds = graph_of(size)
    before = begin()
    call = hr.Session(graph=graph, memory_limit=limit or None).make_callable(fetches, list(feeds))
    for _ in range(3):
        call(*feeds.values())
    return most() - before


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.swap", description="Swapping beside keeping.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--resident", type=int, nargs=4, metavar="N", help="of batch, hidden, steps, limit: the growth")
    args = parser.parse_args()
    if args.resident is not None:
        print(json.dumps(_grown(Lstm(*args.resident[:3]), args.resident[3])))
        return 0
    threads.fix(1, "benchmarks.swap", sys.argv[1:])
    print(table(swap(args.rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
