"""Timing: several rounds with the garbage collector off, their median and their spread."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Result:
    """One line of the table.

    Attributes:
      name: the name of the measurement.
      unit: of `values`.
      values: one for each round.
      facts: the compared program, or the parts of the figure.
      others: the same of other systems, measured in turns with `values`.
    """

    name: str
    unit: str
    values: Sequence[float]
    facts: str = ""
    others: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def as_json(self) -> dict[str, Any]:
        """The result as plain data, all rounds included."""
        return {**dataclasses.asdict(self), "values": list(self.values), "median": self.median}

    def compared(self) -> str:
        """The medians of the others, and what the values are to them, round by round."""
        parts = []
        for name, theirs in self.others.items():
            ratio = statistics.median(a / b for a, b in zip(self.values, theirs))
            parts.append(f"{name} {shown(statistics.median(theirs))} (ratio {shown(ratio)})")
        return "; ".join(parts)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """The garbage collector is off inside, and has just run."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def rounds(f: Callable[[], object], repeats: int) -> list[float]:
    """Seconds that each of `repeats` calls of `f` takes."""
    return alternating([f], repeats)[0]


def alternating(fs: Sequence[Callable[[], object]], repeats: int) -> list[list[float]]:
    """`rounds` of several functions in turns, so that other work affects all alike."""
    out: list[list[float]] = [[] for _ in fs]
    with no_collection():
        for _ in range(repeats):
            for f, seconds in zip(fs, out):
                start = time.perf_counter()
                f()
                seconds.append(time.perf_counter() - start)
    return out


def in_turns(fs: Sequence[Callable[[], object]], repeats: int, least: float = 0.01) -> list[list[float]]:
    """Seconds of a call of functions of different speed, measured in turns.

    Each is called for `least` seconds a turn.
    """
    batches = [max(1, round(least / min(rounds(f, 3)))) for f in fs]

    def batch(f: Callable[[], object], n: int) -> Callable[[], None]:
        def calls() -> None:
            for _ in range(n):
                f()

        return calls

    seconds = alternating([batch(f, n) for f, n in zip(fs, batches)], repeats)
    return [[s / n for s in mine] for mine, n in zip(seconds, batches)]


def resident_bytes() -> int:
    """Resident memory of this process; its peak where the system reports no other figure."""
    try:
        with open("/proc/self/statm", "rb") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def table(results: Sequence[Result]) -> str:
    """A markdown table of medians, with least and greatest."""
    rows = ["| what | median | least to greatest | unit | |", "|---|---:|---:|---|---|"]
    for r in results:
        spread = f"{shown(min(r.values))} to {shown(max(r.values))}" if len(r.values) > 1 else ""
        facts = "; ".join(filter(None, [r.facts, r.compared()]))
        rows.append(f"| {r.name} | {shown(r.median)} | {spread} | {r.unit} | {facts} |")
    return "\n".join(rows)


def shown(x: float) -> str:
    """A figure with three digits, or whole if it has more."""
    if math.isnan(x):  # there is no figure
        return "none"
    if abs(x) < 1e-9:  # the rest of a fit to zeros
        return "0"
    return f"{x:.0f}" if abs(x) >= 1000 else f"{x:.3g}"
