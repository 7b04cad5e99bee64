"""Rows of a profile, and their sums by loop and by line."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from headrace import shapes
from headrace.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.ir.graph import Operation

MACHINE_CODE: Final = "call of machine code"
_IN_FUNCTION: Final = re.compile(r" in [^ ]*$")


@record(frozen=True, slots=True)
class Row:
    """Time of an op, or of several that one piece of code computes together.

    Attributes:
      names: the names of the ops. Empty for the calls of machine code, whose ops have rows of their own.
      types: their types.
      path: the loops around them, outermost first. Within a function that calls itself, its name and the loops in it.
      lines: the lines of the user's program that created the ops, each once.
      calls: the executions; for the row of a loop its iterations.
      seconds: the time of all executions. The row of a loop has the time of its control, without the ops inside.
      waited: seconds during which other ops could run, such as those of a dequeue.
      is_loop: whether it is the row of a loop.
      is_native: whether the code is machine code.
      is_timed: whether it has timers. The time of another row is part of the rows around it, because it is shorter
        than a read of the clock.
      shapes: dtypes and static shapes of the results, an entry for each op.
      device: the device; "" if the step has one device only.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    path: tuple[str, ...]
    lines: tuple[str, ...]
    calls: int
    seconds: float
    waited: float = 0.0
    is_loop: bool = False
    is_native: bool = False
    is_timed: bool = True
    shapes: tuple[str, ...] = ()
    device: str = ""

    @property
    def label(self) -> str:
        """The names without that of the loop, as one text."""
        if not self.names:
            return MACHINE_CODE
        if self.is_loop:
            return f"loop {shown(self.path).rpartition(' / ')[2]}"
        prefix = f"{self.path[-1]}/" if self.path else ""
        return "+".join(name.removeprefix(prefix) for name in self.names)

    @property
    def shown_path(self) -> str:
        """The path as one text."""
        return shown(self.path)


@record(frozen=True, slots=True)
class Sum:
    """Sum of the rows of a loop or of a line.

    Attributes:
      name: the loop with those around it, or the line.
      seconds: the time.
      calls: the iterations of the loop; 0 for a line.
    """

    name: str
    seconds: float
    calls: int = 0


def by_loop(rows: Sequence[Row]) -> list[Sum]:
    """The time of each loop or function with all inside, and its iterations.

    The devices of a loop run the same iterations.
    """
    paths = {row.path[:n]: 0 for row in rows for n in range(1, len(row.path) + 1)}
    for device in {row.device for row in rows}:
        mine = [row for row in rows if row.is_loop and row.device == device]
        for path in {row.path for row in mine}:
            paths[path] = max(paths[path], sum(row.calls for row in mine if row.path == path))
    found = [
        Sum(shown(path), sum(row.seconds for row in rows if row.path[: len(path)] == path), calls)
        for path, calls in paths.items()
    ]
    return sorted(found, key=lambda s: -s.seconds)


def by_line(rows: Sequence[Row]) -> list[Sum]:
    """The time of each line of the user's program.

    The time of ops that run together is divided equally among their lines.
    """
    found: dict[str, float] = {}
    for row in rows:
        for line in row.lines:
            found[line] = found.get(line, 0.0) + row.seconds / len(row.lines)
    return sorted((Sum(line, seconds) for line, seconds in found.items()), key=lambda s: -s.seconds)


def shown(path: Sequence[str]) -> str:
    """A path as one text, each name without that of the loop around it."""
    return " / ".join(name.removeprefix(f"{around}/") for around, name in zip(("", *path), path, strict=False))


def line_of(op: Operation) -> str:
    """The file and line that created an operation; "" if they are unknown."""
    return "" if op.source is None else without_function(str(op.source))


def without_function(source: str) -> str:
    """The text of a source without the name of its function."""
    return _IN_FUNCTION.sub("", source)


def types_of(op: Operation) -> str:
    """The dtypes and static shapes of the results of an operation."""
    return ", ".join(f"{t.dtype.name}{shapes.show(t.shape)}" for t in op.outputs)


def short(line: str) -> str:
    """A line without the folder of its file."""
    return os.path.basename(line)


def distinct(lines: Iterable[str]) -> tuple[str, ...]:
    """Known lines, each once."""
    return tuple(dict.fromkeys(line for line in lines if line))
