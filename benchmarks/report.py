"""Results of the workloads as tables, as JSON, and in a page of the documentation."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, shown

BEGIN = "<!-- `make bench` writes from here -->"
END = "<!-- to here -->"


@dataclasses.dataclass(frozen=True)
class Row(Result):
    """A workload with headrace's `values` and the `others` of the installed contenders.

    Attributes:
      key: its name for `--only`.
      aims: contender → the greatest ratio that is aimed at; the unit → the greatest value.
      is_compared: whether ratios mean something; of what should be nothing they do not.
    """

    key: str = ""
    aims: Mapping[str, float] = dataclasses.field(default_factory=dict)
    is_compared: bool = True

    def ratios(self, other: str) -> list[float]:
        """Time of headrace divided by that of `other`, for each round."""
        return [a / b for a, b in zip(self.values, self.others.get(other, ()))]

    def met(self, aim: str) -> bool | None:
        """Whether the median is what is aimed at; None: there is nothing to compare."""
        values = self.values if aim == self.unit else self.ratios(aim)
        return statistics.median(values) <= self.aims[aim] if values else None

    def compared(self) -> str:
        """The medians of the others with the ratios and the aims."""
        own = [f"≤ {self.aims[self.unit]:g} {_verdict(self, self.unit)}"] if self.unit in self.aims else []
        return "; ".join(own + [self._against(name) for name in self.others])

    def _against(self, name: str) -> str:
        if not self.ratios(name):
            return f"{name}: not measured"
        aim = f", ≤ {self.aims[name]:g} {_verdict(self, name)}" if name in self.aims else ""
        median = statistics.median
        return f"{name} {shown(median(self.others[name]))} (ratio {shown(median(self.ratios(name)))}{aim})"

    def as_json(self) -> dict[str, Any]:
        """The row as plain data, all rounds included."""
        return {**dataclasses.asdict(self), "median": self.median if self.values else None}

    def said(self) -> str:
        """The row in a line, for the progress of a run."""
        if not self.values:
            return f"{self.name}: {self.facts or 'nothing measured'}"
        others = ", ".join(f"{name} {spread(values)}" for name, values in self.others.items() if values)
        return f"{self.name}: {spread(self.values)} {self.unit}" + (f"; {others}" if others else "")


def row_of(data: Mapping[str, Any]) -> Row:
    """`Row.as_json` read back."""
    return Row(**{f.name: data[f.name] for f in dataclasses.fields(Row)})


@dataclasses.dataclass(frozen=True)
class Run:
    """All that a run of the workloads measured.

    Attributes:
      rows: the workloads.
      conditions: versions and circumstances.
    """

    rows: Sequence[Row]
    conditions: Mapping[str, str]

    def text(self) -> str:
        """The tables in markdown, and under them what they depend on."""
        names = list(dict.fromkeys(name for row in self.rows for name in row.others))
        conditions = ", ".join(f"{k} {v}" for k, v in self.conditions.items())
        return "\n\n".join([self._times(names), self._ratios(names), self._summary(), f"Measured with {conditions}."])

    def judgements(self) -> str:
        """A markdown table with a line for each contender and aim of each workload."""
        lines = [["workload", "unit", "headrace", "compared with", "takes", "ratio", "aim", "met", ""]]
        for row in self.rows:
            mine, facts = spread(row.values) if row.values else "", row.facts
            for name in dict.fromkeys([*row.aims, *row.others]):
                theirs = _cell(row, name) if name != row.unit else ""
                ratios = row.values if name == row.unit else row.ratios(name)
                ratio = shown(statistics.median(ratios)) if ratios and row.is_compared else ""
                aim = f"≤ {row.aims[name]:g}" if name in row.aims else ""
                lines.append([row.name, row.unit, mine, name, theirs, ratio, aim, _verdict(row, name), facts])
                facts = ""
        return "\n\n".join([_table(lines, "llrlrrrll"), self._summary()])

    def _times(self, names: Sequence[str]) -> str:
        lines = [["workload", "unit", "headrace", *names, ""]]
        for row in self.rows:
            mine = spread(row.values) if row.values else ""
            lines.append([row.name, row.unit, mine, *(_cell(row, name) for name in names), row.facts])
        return _table(lines, "llr" + "r" * len(names) + "l")

    def _ratios(self, names: Sequence[str]) -> str:
        lines = [["workload: headrace divided by", *names, "time"]]
        for row in self.rows:
            if row.values and row.is_compared:
                against = (_judged(row, name, row.ratios(name)) for name in names)
                lines.append([row.name, *against, _judged(row, row.unit, row.values) if row.unit in row.aims else ""])
        return _table(lines, "l" + "r" * len(names) + "r")

    def _summary(self) -> str:
        found = [row.met(aim) for row in self.rows for aim in row.aims]
        known = [m for m in found if m is not None]
        open_ = f"; {len(found) - len(known)} could not be measured" if len(known) < len(found) else ""
        return f"Of {len(found)} aims {sum(known)} are met{open_}."

    def write(self, path: Path) -> None:
        """Writes the run as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {"conditions": dict(self.conditions), "rows": [row.as_json() for row in self.rows]}
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> Run:
    """A run that `Run.write` wrote.

    Raises:
      ValueError: the file is something else.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    try:
        return Run([row_of(row) for row in data["rows"]], data["conditions"])
    except (KeyError, TypeError) as e:
        raise ValueError(f"{path} is not what `python -m benchmarks.workloads --json` writes: {e!r}") from e


def insert(page: Path, text: str) -> None:
    """Replaces the text between the marks in a page.

    Raises:
      ValueError: the page does not have the marks, once each.
    """
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in rest or END in after:
        raise ValueError(f"{page} must have the line {BEGIN!r} and, after it, the line {END!r}, once each")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def spread(values: Sequence[float]) -> str:
    """The median, and in brackets the least and the greatest."""
    if len(values) == 1:
        return shown(values[0])
    return f"{shown(statistics.median(values))} ({shown(min(values))} to {shown(max(values))})"


def _cell(row: Row, name: str) -> str:
    if name not in row.others:
        return ""
    return spread(row.others[name]) if row.others[name] else "not installed"


def _verdict(row: Row, aim: str) -> str:
    """Whether an aim is met, in a word; "" where there is none."""
    if aim not in row.aims:
        return ""
    return {True: "met", False: "**missed**", None: "not measured"}[row.met(aim)]


def _judged(row: Row, aim: str, values: Sequence[float]) -> str:
    """A figure with what is aimed at, in bold where that is missed."""
    if not values:
        return "not installed" if aim in row.others else ""
    if aim not in row.aims:
        return spread(values)
    wanted = f"≤ {row.aims[aim]:g}"
    return f"{spread(values)}; {wanted} met" if row.met(aim) else f"{spread(values)}; **{wanted} missed**"


def _table(lines: Sequence[Sequence[str]], sides: str) -> str:
    """A markdown table: the first line is its head, `sides` aligns columns (l or r)."""
    head, *body = lines
    rule = ["---" if side == "l" else "---:" for side in sides]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *body])
