"""Several devices in one process: overlap, the cost of a cut, errors of the simulator.

    python -m benchmarks --only devices

* A pipeline in a loop: each iteration has a stage on either device, products of large matrices, and the result of the
  second comes back to the first. With `parallel_iterations=1` an iteration begins when the one before is over, with 8
  the stages of different iterations work side by side.
* A loop that is cut: a counter on one device and what it counts on the other, so that in each iteration two tokens
  cross, one in either direction. It is compared with the same loop on one device, both interpreted.
* Predictions: random graphs of products on two devices, each run with a trace, to measure what its operations take,
  and without one, in turns; then it is simulated.
"""

from __future__ import annotations

import dataclasses
import random
import statistics
import time
from typing import Any

import numpy as np

import headrace as hr
from benchmarks.measure import Result, alternating
from headrace.place import Cluster, Costs
from headrace.place.simulate import simulate_step


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of the programs.

    Attributes:
      matrix: rows and columns; a product of 640 takes over 5 ms on one core.
      stages: iterations of the pipeline.
      trips: of the loop that is cut.
      graphs: for predictions.
    """

    matrix: int = 640
    stages: int = 24
    trips: int = 2000
    graphs: int = 20


def devices(repeats: int = 7, sizes: Sizes = Sizes()) -> list[Result]:
    """All figures, see the module's text."""
    return [*pipeline(repeats, sizes), *cut(repeats, sizes), *predictions(sizes)]


def on(i: int) -> Any:
    return hr.device(f"/device:CPU:{i}")


def pipeline(repeats: int, sizes: Sizes) -> list[Result]:
    """Times of the pipeline with one and with eight iterations in flight, and their ratio."""
    calls, sessions = [], []
    n, stages = sizes.matrix, sizes.stages
    at = _matrix(0, n)
    for parallel in (1, 8):
        with hr.Graph() as g:
            x = hr.placeholder("float32", (n, n))
            w, v = (hr.constant(_matrix(seed, n)) for seed in (1, 2))

            def body(i: Any, a: Any, total: Any, w: Any = w, v: Any = v) -> Any:
                with on(0):
                    a = hr.matmul(a, w)
                with on(1):
                    b = hr.reduce_sum(hr.matmul(a, v))
                with on(0):
                    return i + 1, a, total + b

            out = hr.while_loop(lambda i, *_: i < stages, body, (0, x, hr.constant(0.0)), parallel_iterations=parallel)
        session = hr.Session(graph=g, devices={"CPU": 2})
        sessions.append(session)
        run = session.make_callable(out[2], [x])
        calls.append(lambda run=run: run(at))
    assert calls[0]() == calls[1]()
    one, eight = alternating(calls, repeats)
    for session in sessions:
        session.close()
    name = f"two stages of {n}x{n} products on two devices, {stages} iterations"
    times = [a / b for a, b in zip(one, eight, strict=True)]
    return [
        Result(f"{name}: parallel_iterations 1", "ms an iteration", [1000 * s / stages for s in one]),
        Result(f"{name}: parallel_iterations 8", "ms an iteration", [1000 * s / stages for s in eight]),
        Result(f"{name}: how many times faster with 8", "ratio", times),
    ]


def _matrix(seed: int, n: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((n, n)) / n**0.5).astype(np.float32)


def cut(repeats: int, sizes: Sizes) -> list[Result]:
    """Additional time of an iteration of a loop that is cut."""
    calls, sessions = [], []
    trips = sizes.trips
    for other in (0, 1):
        with hr.Graph() as g:
            x = hr.placeholder("float64", ())
            with on(0):

                def body(i: Any, y: Any, other: int = other) -> Any:
                    with on(other):
                        z = hr.sin(y)
                    with on(0):
                        return i + 1, z + 0.5

                out = hr.while_loop(lambda i, y: i < trips, body, (0, x))
        session = hr.Session(graph=g, devices={"CPU": 2}, engine="interpret")
        sessions.append(session)
        run = session.make_callable(out[1], [x])
        calls.append(lambda run=run: run(1.0))
    assert calls[0]() == calls[1]()
    whole, torn = alternating(calls, repeats)
    for session in sessions:
        session.close()
    more = [1e6 * (b - a) / trips for a, b in zip(whole, torn, strict=True)]
    name = "a loop of a sine and an addition"
    return [
        Result(f"{name}, on one device", "us an iteration", [1e6 * s / trips for s in whole]),
        Result(f"{name}, cut in two, two tokens an iteration", "us an iteration", [1e6 * s / trips for s in torn]),
        Result(f"{name}: a cut costs", "us an iteration", more),
    ]


def predictions(sizes: Sizes) -> list[Result]:
    """Relative error of the simulator for each graph: |predicted - measured| / measured."""
    off, parallel = [], []
    for seed in range(sizes.graphs):
        graph, x, y, at = random_products(seed, sizes.matrix)
        with hr.Session(graph=graph, devices={"CPU": 2}) as session:
            events: list[Any] = []
            seconds = []
            run = session.make_callable(y, [x])
            run(at)
            for _ in range(5):  # in turns, since a machine is not always as fast
                session.run(y, {x: at}, hr.RunOptions(listener=events.append))
                began = time.perf_counter()
                run(at)
                seconds.append(time.perf_counter() - began)
            placement = session._call(y, [x]).programs.observed.placement
        of = placement.of
        found = simulate_step(list(of), of, Cluster.local(sorted(set(of.values()))), Costs.from_events(events))
        measured = statistics.median(seconds)
        off.append(abs(found.makespan - measured) / measured)
        parallel.append(sum(found.busy.values()) / found.makespan)
    name = f"{sizes.graphs} graphs of products on two devices"
    return [
        Result(f"{name}: prediction off by", "share of the measured time", off, f"worst {max(off):.0%}"),
        Result(f"{name}: devices at work, on average", "", parallel),
    ]


def random_products(seed: int, n: int) -> tuple[hr.Graph, Any, Any, np.ndarray]:
    """6 to 12 products of earlier values, each on one of two devices at random."""
    rng = random.Random(seed)
    with hr.Graph() as g:
        x = hr.placeholder("float32", (n, n))
        with on(0):
            w = hr.constant(_matrix(seed, n))
        values = [x]
        for _ in range(rng.randint(6, 12)):
            a, b = rng.choice(values[-4:]), rng.choice([w, values[-1]])
            with on(rng.randrange(2)):
                values.append(hr.matmul(a, b))
        with on(0):
            y = hr.reduce_sum(hr.stack([hr.reduce_sum(v) for v in values]))
    return g, x, y, _matrix(seed + 1, n)
