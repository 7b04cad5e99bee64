"""Costs of the token machine: time per node besides the kernels; memory of many runs.

The overhead of a node is

    (time per loop iteration - time of the same kernels called in a plain Python loop on the same values) / nodes fired

where the nodes fired are all of an iteration: Switches, Merges and dead ones too. The plain loop is made from the
graph: one statement a kernel, functions and arguments bound to locals. A figure in µs says little about another
machine, so each is also given as a multiple of an empty Python call timed in the same run.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import graphs
from benchmarks.measure import Result, alternating, resident_bytes, rounds
from headrace import step_events
from headrace.compiled_step import Request
from headrace.environment import Environment
from headrace.ir.graph import Graph, Tensor
from headrace.metadata import RunOptions
from headrace.pipeline import compile_step
from headrace.session import Session

FEED = np.float32(1.0)


def empty_calls(n: int) -> Callable[[], None]:
    """A function that calls an empty one 10 n times in a loop."""

    def nothing() -> None:
        pass

    def calls() -> None:
        f = nothing
        for _ in range(n):
            f(), f(), f(), f(), f(), f(), f(), f(), f(), f()

    return calls


# *** overhead per node ***


def overhead(trips: int = 20_000, chain: int = 2_000, repeats: int = 9) -> list[Result]:
    """The interpreter's overhead per node in three graphs, in µs and in empty calls."""
    results = []
    for name, loop in (("counting loop", graphs.counting_loop), ("conditional in a loop", graphs.conditional_loop)):
        graph, out = loop(trips)
        few, few_out = loop(8)  # the work of an iteration does not depend on their number
        results += _overhead(name, graph, out, None, plain_kernels(few, few_out), trips, repeats)
    graph, x, y = graphs.identity_chain(chain)
    results += _overhead("chain of identities", graph, y, x, plain_kernels(graph, y, x), 1, repeats)
    return results


def _overhead(
    name: str, graph: Graph, out: Tensor, feed: Tensor | None, kernels: Callable[[int], None], trips: int, repeats: int
) -> list[Result]:
    """Overhead of a graph whose measured frame runs `trips` iterations (1: the root)."""
    feeds, args = ([], []) if feed is None else ([feed], [FEED])
    nodes = compile_step(Request(feeds, [out], []), Environment()).plan.frames[-1].count
    n = max(trips, 10_000)
    calls = empty_calls(n)
    with Session(graph=graph) as session:
        run = session.make_callable(out, feeds)
        run(*args)
        # in turns, the empty calls too, so that a slow minute of the machine is one for all of them
        total, plain, empty = alternating([lambda: run(*args), lambda: kernels(trips), calls], repeats)
    per_node = [(t - p) / trips / nodes for t, p in zip(total, plain)]
    call = float(np.median(empty)) / (10 * n)
    facts = (
        f"{nodes} nodes {'an iteration' if trips > 1 else 'a run'}, {1e6 * np.median(total) / trips:.3g} µs;"
        f" the kernels alone {1e6 * np.median(plain) / trips:.3g} µs"
    )
    return [
        Result(f"{name}: overhead per node", "µs", [1e6 * s for s in per_node], facts),
        Result(
            f"{name}: the same",
            "empty calls",
            [s / call for s in per_node],
            f"an empty Python call takes {1e9 * call:.3g} ns",
        ),
    ]


def plain_kernels(graph: Graph, out: Tensor, feed: Tensor | None = None) -> Callable[[int], None]:
    """A function that calls the kernels of one iteration n times.

    For a graph with a loop it is an iteration in the middle; for one without, the whole step.
    """
    feeds = [] if feed is None else [feed]
    step = compile_step(Request(feeds, [out], []), Environment())
    recorder = _Values()
    with Session(graph=graph) as session:
        session.run(out, dict.fromkeys(feeds, FEED), RunOptions(listener=recorder))
    tag = recorder.middle()
    nodes = {n.op.name: n for n in step.plan.nodes}
    names: dict[str, Any] = {}
    lines = []
    for i, event in enumerate(recorder.ends[tag]):
        node = nodes[event.node]
        if node.kernel is None or event.dead:
            continue
        args = [f"x{i}_{k}" for k in range(node.arity)]
        names[f"f{i}"] = node.kernel
        names.update(zip(args, [recorder.value(t, tag) for t in node.op.inputs]))
        lines.append(f"        f{i}({', '.join(args)})\n")
    # parameters with defaults are locals, as a good loop written by hand has them
    source = f"def plain(n, {', '.join(f'{k}={k}' for k in names)}):\n    for _ in range(n):\n"
    exec(source + ("".join(lines) or "        pass\n"), names)
    made: Callable[[int], None] = names["plain"]
    return made


class _Values:
    """Keeps what every firing gave."""

    wants_values = True

    def __init__(self) -> None:
        self.ends: dict[str, list[step_events.NodeEnd]] = collections.defaultdict(list)
        self._values: dict[tuple[str, str], tuple[Any, ...]] = {}

    def __call__(self, event: step_events.Event) -> None:
        if isinstance(event, step_events.NodeEnd):
            self.ends[event.tag].append(event)
            if event.values is not None:
                self._values[event.node, event.tag] = event.values

    def middle(self) -> str:
        """The tag of the middle iteration of the loop; "" without a loop."""
        tags = [t for t in self.ends if t]
        return tags[len(tags) // 2] if tags else ""

    def value(self, t: Tensor, tag: str) -> Any:
        """The value of `t` in the iteration `tag`."""
        primitive = t.op.opdef.primitive
        if primitive == "Switch":
            return self.value(t.op.inputs[0], tag)
        if primitive == "Enter":
            return self.value(t.op.inputs[0], "")
        if t.op.type == "_Arg":
            return FEED
        if t.op.type == "Const" and (t.op.name, tag) not in self._values:
            return t.op.attrs["value"][()]
        return self._values[t.op.name, tag][t.index]


# *** long loops, many runs ***


def long_loop(trips: int = 1_000_000, watched_trips: int = 10_000) -> list[Result]:
    """A loop of a million trips: time, records of iterations open at once, memory."""
    most = _most_open(watched_trips)
    graph, out = graphs.counting_loop(trips)
    with Session(graph=graph) as session:
        run = session.make_callable(out)
        before = resident_bytes()
        seconds = rounds(run, 1)[0]
        after = resident_bytes()
    name = f"loop of {trips:,} trips"
    memory = [(after - before) / 1024]
    return [
        Result(name, "s", [seconds], f"{1e6 * seconds / trips:.3g} µs a trip"),
        Result(f"{name}: iterations open at once", "records", [most], f"of {watched_trips:,} trips; 10 are allowed"),
        Result(f"{name}: memory gained", "KiB", memory, f"{after / 2**20:.0f} MiB resident afterwards"),
    ]


def _most_open(trips: int) -> int:
    open_now = most = 0

    def watch(event: step_events.Event) -> None:
        nonlocal open_now, most
        if isinstance(event, step_events.IterationOpen):
            open_now += bool(event.frame)
            most = max(most, open_now)
        elif isinstance(event, step_events.IterationFree):
            open_now -= bool(event.frame)

    graph, out = graphs.counting_loop(trips)
    with Session(graph=graph) as session:
        session.run(out, options=RunOptions(listener=watch))
    return most


def many_runs(runs: int = 100_000, points: int = 10) -> list[Result]:
    """Memory over many runs of one small step: bytes that a run does not release."""
    graph, x, y = graphs.identity_chain(1)
    with Session(graph=graph) as session:
        feed = {x: FEED}
        for _ in range(min(runs, 1_000)):
            session.run(y, feed)
        memory = [resident_bytes()]
        for _ in range(points):
            for _ in range(runs // points):
                session.run(y, feed)
            memory.append(resident_bytes())
    slope = np.polyfit(np.arange(points + 1) * (runs // points), memory, 1)[0]
    facts = f"{(memory[-1] - memory[0]) / 1024:+.0f} KiB over all"
    return [Result(f"{runs:,} small runs: memory left by a run", "bytes", [float(slope)], facts)]


def small_runs(batch: int = 200, repeats: int = 50) -> list[Result]:
    """The time of the smallest step: one feed, one operation, one fetch."""
    graph, x, y = graphs.identity_chain(1)
    with Session(graph=graph) as session:
        feed = {x.name: FEED}
        name = y.name
        call = session.make_callable(y, [x])

        def runs() -> None:
            for _ in range(batch):
                session.run(name, feed)

        def calls() -> None:
            for _ in range(batch):
                call(FEED)

        by_run, by_call = alternating([runs, calls], repeats)
    return [
        Result("smallest session.run", "µs", [1e6 * s / batch for s in by_run], "a fetch by name, one feed"),
        Result("the same by make_callable", "µs", [1e6 * s / batch for s in by_call]),
    ]


def long_chain(n: int = 1_000, repeats: int = 20) -> list[Result]:
    """A step of many operations in a row."""
    graph, x, y = graphs.chain(n)
    with Session(graph=graph) as session:
        run = session.make_callable(y, [x])
        run(FEED)
        seconds = rounds(lambda: run(FEED), repeats)
    kernels = plain_kernels(graph, y, x)
    plain = rounds(lambda: kernels(1), repeats)
    facts = f"the same additions in plain Python: {1e6 * np.median(plain):.3g} µs"
    return [Result(f"chain of {n:,} scalar additions", "µs", [1e6 * s for s in seconds], facts)]
