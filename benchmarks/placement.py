"""The greedy placement compared with the best one, on small graphs.

The graphs are random: operations that take 1 to 20 ms, and values that take up to as long to cross, on two devices. A
placement is as good as its makespan in the simulator; how well that predicts real steps is another question
(`docs/how-to/placement.md`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Result
from headrace.ir.graph import Graph
from headrace.ir.text import from_text
from headrace.place import Cluster, Costs, DeviceModel, Link, place
from headrace.place.simulate import simulate_step

DEVICES = tuple(f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2))
CLUSTER = Cluster(tuple(DeviceModel(name) for name in DEVICES), Link(latency=1e-4, bandwidth=1e9))


@dataclasses.dataclass(frozen=True)
class Compared:
    """Makespans of a graph in seconds: greedy placement, best placement, one device."""

    greedy: float
    best: float
    alone: float


def random_graph(seed: int) -> tuple[Graph, Costs]:
    """5 to 8 operations, each of some of those before it, and what they cost."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 9))
    lines = ["c = Const[value=float32[1]{0.0}, dtype=float32]"]
    for i in range(n):
        before = [f"n{k}" for k in range(i) if rng.random() < 0.4]
        lines.append(f"n{i} = AddN({', '.join(before or ['c'])})")
    graph = from_text("\n".join(lines))
    measured = {}
    for op in graph.operations[1:]:
        measured[op.name, "CPU"] = float(rng.uniform(1e-3, 2e-2))
        op.outputs[0].shape = (int(rng.integers(1, 5_000_000)),)  # up to 20 ms on the way
    return graph, Costs(measured)


def compare(seeds: range) -> Iterator[Compared]:
    """The makespans of the graphs of `seeds`."""
    for seed in seeds:
        graph, costs = random_graph(seed)
        ops = graph.operations
        work = [op for op in ops if op.type != "Const"]
        spans = []
        for devices in itertools.product(DEVICES, repeat=len(work)):
            of = dict.fromkeys(ops, DEVICES[0]) | dict(zip(work, devices, strict=True))
            spans.append(simulate_step(ops, of, CLUSTER, costs).makespan)
        greedy = simulate_step(ops, place(ops, CLUSTER, costs=costs).of, CLUSTER, costs).makespan
        yield Compared(greedy, min(spans), spans[0])


def placement(graphs: int = 200) -> list[Result]:
    """Additional time of the greedy placement; the aim is 10 % in the median."""
    found = list(compare(range(graphs)))
    over = [100 * (c.greedy / c.best - 1) for c in found]
    alone = [100 * (c.alone / c.best - 1) for c in found]
    facts = (
        f"{sum(x < 0.5 for x in over)} of {graphs} graphs as good as the best, the worst {max(over):.0f} % longer; "
        f"all on one device: {np.median(alone):.0f} % longer; 10 is the goal"
    )
    return [Result(f"greedy placement of {graphs} random graphs", "% longer than the best", over, facts)]
