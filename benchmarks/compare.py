"""Compares two runs of the workloads: changes that exceed the spread of the rounds.

    python -m benchmarks.workloads --json after.json
    python -m benchmarks.compare before.json after.json

Two runs are some time apart, and a shared machine may have changed its speed. So where both runs have the workload by
hand, or else under TensorFlow, what is judged is not the time but the time divided by that, round by round. It is
worse when the quartiles do not overlap: the lower quartile after is above the upper quartile before.

Ends with status 1 if anything is worse.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report
from benchmarks.measure import shown
from benchmarks.report import Row, Run

REFERENCES = ("by hand", "TensorFlow")


def comparison(before: Run, after: Run) -> tuple[str, list[str]]:
    """A markdown table of the common workloads, and the names of those that became worse."""
    old = {row.name: row for row in before.rows if row.values}
    new = {row.name: row for row in after.rows if row.values}
    worse = []
    lines = ["| workload | unit | before | after | after / before | judged by | ratio of those | |",
             "|---|---|---:|---:|---:|---|---:|---|"]  # fmt: skip
    for name in old.keys() & new.keys():
        if old[name].unit != new[name].unit:
            raise ValueError(f"{name} is in {old[name].unit} in one file and in {new[name].unit} in the other")
    for name, a in old.items():
        if name not in new:
            continue
        b = new[name]
        by, was, now = judged(a, b)
        verdict = _verdict(was, now)
        if verdict == "worse":
            worse.append(name)
        ratio = statistics.median(b.values) / statistics.median(a.values)
        of_those = statistics.median(now) / statistics.median(was)
        cells = [name, a.unit, report.spread(a.values), report.spread(b.values), shown(ratio), by, shown(of_those)]
        lines.append("| " + " | ".join([*cells, f"**{verdict}**" if verdict == "worse" else verdict]) + " |")
    lone = [f"{name} (only {when})" for when, here, there in (("before", old, new), ("after", new, old))
            for name in here if name not in there]  # fmt: skip
    if lone:
        lines += ["", "Not compared: " + ", ".join(lone) + "."]
    return "\n".join(lines), worse


def judged(a: Row, b: Row) -> tuple[str, Sequence[float], Sequence[float]]:
    """The measure that judges a workload, and its values in both runs."""
    for name in REFERENCES:
        if a.ratios(name) and b.ratios(name):
            return f"headrace / {name}", a.ratios(name), b.ratios(name)
    return a.unit, a.values, b.values


def _verdict(was: Sequence[float], now: Sequence[float]) -> str:
    (was_low, was_high), (now_low, now_high) = quartiles(was), quartiles(now)
    if now_low > was_high:
        return "worse"
    return "better" if now_high < was_low else ""


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The lower and the upper quartile."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description="Compares two runs.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    args = parser.parse_args(argv)
    before, after = report.read(args.before), report.read(args.after)
    for name in sorted(before.conditions.keys() | after.conditions.keys()):
        was, now = (run.conditions.get(name, "none") for run in (before, after))
        if was != now and name not in ("load before", "seconds"):
            print(f"{name}: {was} before, {now} after")
    table, worse = comparison(before, after)
    print(table)
    print("\nWorse beyond the spread: " + (", ".join(worse) or "nothing"))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
