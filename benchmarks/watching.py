"""Times of runs with and without a watched scalar of a loop."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

import headrace as hr
from benchmarks.measure import Result, alternating
from headrace import flags

SELECTIONS: dict[str, dict[str, Any]] = {
    "every value": {},
    "iterations=[0, 5, -1]": {"iterations": [0, 5, -1]},
    "iterations=-1": {"iterations": -1},
    "when=, never true": {"when": lambda v: v > 2.0},
}
ENGINES = {"compiled Python": ("off", 5), "native code": ("on", 80)}  # HEADRACE_NATIVE, and sines for a body of 1 µs


def watching(trips: int = 100_000, repeats: int = 15) -> list[Result]:
    """Compares runs with and without a watched scalar, in a body of 1 µs."""
    return [r for name in ENGINES for r in _engine(name, trips, repeats)]


def _engine(name: str, trips: int, repeats: int) -> list[Result]:
    native, sines = ENGINES[name]
    with hr.Graph() as graph:
        n = hr.placeholder(hr.int32, ())

        def body(i: Any, x: Any) -> Any:
            for _ in range(sines):
                x = hr.sin(x * 1.01)
            return i + 1, hr.identity(x, name="h") + 0.001

        last = hr.while_loop(lambda i, x: i < n, body, (0, 1.0), name="loop")[1]
    out = []
    with flags.override(NATIVE=native), hr.Session(graph=graph, engine="compiled") as session:
        plain = session.run(last, {n: trips})
        for title, selection in SELECTIONS.items():
            spec = hr.watch("loop/h", **selection)
            run: Callable[[], Any] = lambda spec=spec: session.run(last, {n: trips}, watch=spec)  # type: ignore[misc]
            got, watched = run()
            np.testing.assert_array_equal(got, plain)
            with_watch, without = alternating([run, lambda: session.run(last, {n: trips})], repeats)
            more = statistics.median(100 * (a / b - 1) for a, b in zip(with_watch, without, strict=True))
            facts = f"{more:+.1f} % with {len(watched['loop/h']):,} records of {trips:,} iterations"
            micros = [1e6 * s / trips for s in with_watch]
            others = {"not watched": [1e6 * s / trips for s in without]}
            out.append(Result(f"watching, {name}: {title}", "µs", micros, facts, others))
    return out
