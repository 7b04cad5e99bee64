"""Records of runs: figures, curves and tables that a program measured, as a JSON file.

    def run(options: argparse.Namespace) -> Record:
        record = Record()
        record.figure("exact", 99.1, "%", at_least=98)
        record.curve("loss", steps, values)
        return record

    if __name__ == "__main__":
        sys.exit(records.main(__doc__, run, steps=3000))

`python -m examples.applications` collects the records of all programs, and `page.py` makes docs/applications.md of
them. Figures that are `timed` depend on the machine; all others are the same bit for bit in each run with one seed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Figure:
    """A measured number.

    Attributes:
      name: name of the measured quantity.
      value: the number.
      unit: its unit, or "".
      at_least: smallest value of a success, or None.
      at_most: largest value of a success, or None.
      timed: whether the number depends on the speed of the machine.
    """

    name: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    timed: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the value is within its bounds."""
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    @property
    def aim(self) -> str:
        """The bounds as text, or ""."""
        low = [] if self.at_least is None else [f"at least {self.at_least:g}"]
        high = [] if self.at_most is None else [f"at most {self.at_most:g}"]
        return " and ".join(low + high)

    def __str__(self) -> str:
        aim = f" ({self.aim}{'' if self.is_met else ': NOT MET'})" if self.aim else ""
        return f"{self.name}: {self.value:.5g}{' ' if self.unit else ''}{self.unit}{aim}"


@dataclasses.dataclass(frozen=True)
class Curve:
    """Values over steps.

    Attributes:
      name: label of the curve.
      steps: positions on the horizontal axis.
      values: values at these.
      axis: label of the vertical axis; curves with the same label share a plot.
      across: label of the horizontal axis.
    """

    name: str
    steps: list[float]
    values: list[float]
    axis: str
    across: str


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of text and numbers.

    Attributes:
      title: text above the table.
      columns: heads of the columns.
      rows: the rows.
      timed: whether numbers in it depend on the speed of the machine.
    """

    title: str
    columns: list[str]
    rows: list[list[Any]]
    timed: bool = False


@dataclasses.dataclass
class Record:
    """Figures, curves, tables and output of a run, in the order of their addition."""

    figures: list[Figure] = dataclasses.field(default_factory=list)
    curves: list[Curve] = dataclasses.field(default_factory=list)
    tables: list[Table] = dataclasses.field(default_factory=list)
    samples: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def figure(
        self,
        name: str,
        value: float,
        unit: str = "",
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        timed: bool = False,
    ) -> None:
        """Adds a number, and prints it; the arguments are those of `Figure`."""
        self.figures.append(Figure(name, float(value), unit, at_least, at_most, timed))
        print(f"   {self.figures[-1]}", flush=True)

    def curve(
        self, name: str, steps: Sequence[float], values: Sequence[float], axis: str = "loss", across: str = "step"
    ) -> None:
        """Adds a curve; the arguments are those of `Curve`."""
        self.curves.append(Curve(name, [float(x) for x in steps], [float(x) for x in values], axis, across))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, timed: bool = False) -> None:
        """Adds a table; the arguments are those of `Table`."""
        self.tables.append(Table(title, list(columns), [list(row) for row in rows], timed))

    def sample(self, text: str) -> None:
        """Adds an example of output, and prints it."""
        self.samples.append(text)
        print(text, flush=True)

    def untimed(self) -> dict[str, Any]:
        """The parts that are the same in each run with the same seed."""
        return {
            "figures": [dataclasses.asdict(f) for f in self.figures if not f.timed],
            "curves": [dataclasses.asdict(c) for c in self.curves],
            "tables": [dataclasses.asdict(t) for t in self.tables if not t.timed],
            "samples": self.samples,
        }

    def write(self, path: Path) -> None:
        """Writes the record as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", encoding="utf-8")


def points(steps: int, most: int) -> range:
    """Steps at which a curve has its points, about `most` of them, equally far apart."""
    every = max(1, steps // most)
    return range(every, steps + 1, every)


def read(path: Path) -> Record:
    """Returns the record of a file that `Record.write` wrote."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return Record(
        [Figure(**f) for f in found["figures"]],
        [Curve(**c) for c in found["curves"]],
        [Table(**t) for t in found["tables"]],
        found["samples"],
        found["seconds"],
    )


def main(
    description: str | None,
    run: Callable[[argparse.Namespace], Record],
    steps: int,
    add_options: Callable[[argparse.ArgumentParser], object] | None = None,
) -> int:
    """Runs a program with the options of its command line.

    Args:
      description: docstring of the program.
      run: the program. `options` has `steps`, `seed`, and what `add_options` adds.
      steps: steps of a full run.
      add_options: adds options to the parser.

    Returns:
      Exit status: 1 if a figure of a full run is out of its bounds.
    """
    first = str(description).splitlines()[0]
    parser = argparse.ArgumentParser(description=first)
    parser.add_argument("--steps", type=int, default=steps, help="of training; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, help="JSON file to write the figures to")
    if add_options is not None:
        add_options(parser)
    options = parser.parse_args()
    print(f"{first}\n", flush=True)
    begun = time.perf_counter()
    record = run(options)
    record.seconds = time.perf_counter() - begun
    print(f"   {record.seconds:.1f} s in all")
    if options.record is not None:
        record.write(options.record)
    return int(options.steps >= steps and not all(f.is_met for f in record.figures))
