"""Python source in construction: lines, names, and the operation of each line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from headrace.ir.notes import FrameName
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Operation

FILE: Final = "<compiled step>"  # the file name in tracebacks
_COLUMN: Final = 60  # of the comments of a listing; longer lines have theirs further right
_ELEMENTS: Final = 8  # of a constant that a listing shows
_CONSTANT: Final = re.compile(r"\bc[0-9]+\b")


@record(frozen=True, slots=True)
class SourceLoop:
    """Loop around a line.

    Attributes:
      op: The operation that the loop is generated from.
      number: The name of the variable that determines the iteration.
      first: The value of that variable in iteration 0: a number or the name of a variable.
      most: The largest possible number of iterations, if it is known.
    """

    op: Operation
    number: str
    first: str = "0"
    most: int | None = None

    @property
    def name(self) -> str:
        """The name of the loop in messages."""
        return loop_name(self.op)


def loop_name(op: Operation) -> str:
    """The name of a loop in messages."""
    note = op.notes.get(FrameName)
    return op.name if note is None else note.name


class Mark(NamedTuple):
    """Origin of a line of the source.

    Attributes:
      op: The operation that the line computes, or None.
      loops: The loops around the line in its function, innermost first.
      inputs: Expressions of the operation's inputs.
    """

    op: Operation | None
    loops: tuple[SourceLoop, ...]
    inputs: tuple[str, ...] = ()


@record(frozen=True, slots=True)
class Code:
    """Compiled source.

    Attributes:
      text: The source.
      marks: The marks of its lines, line 1 first.
      function: The function that the caller of `finish` named.
    """

    text: str
    marks: list[Mark]
    function: Callable[..., Any]

    @property
    def has_loops(self) -> bool:
        """Whether the source contains a loop."""
        return any(m.loops for m in self.marks)


def listing(text: str, marks: Sequence[Mark], names: Mapping[str, Any]) -> str:
    """Returns a source with the origin of each line as a comment.

    The comment has the operation's name and type, the user's line, and the small constants that the line reads:
    `t6 = k5(v2, c4)  # while/Sum (Sum), train.py:12; c4 = [0, 1]`.

    Args:
      text: The source.
      marks: The marks of its lines.
      names: The globals of the code.
    """
    lines = text.splitlines()
    width = min(max(map(len, lines), default=0), _COLUMN)
    out = []
    for line, mark in zip(lines, marks, strict=True):
        op = mark.op
        if op is not None:
            where = f", {op.source.brief}" if op.source is not None and op.source.line else ""
            values = [f"{name} = {_small(names[name])}" for name in _CONSTANT.findall(line) if _small(names.get(name))]
            line = f"{line.ljust(width)}  # {'; '.join([f'{op.name} ({op.type}){where}', *values])}"
        out.append(line)
    return "\n".join(out) + "\n"


def _small(value: Any) -> str:
    """Text of a constant of few elements; "" for other objects."""
    if isinstance(value, (np.ndarray, np.generic)) and value.size <= _ELEMENTS and value.dtype.kind in "biufc":
        return str(value.tolist())
    return ""


class Source:
    """Source of one or more functions in construction.

    Attributes:
      names: The globals of the code: kernels, constants and run-time functions.
    """

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._bound: dict[int, str] = {}
        self._alive: list[Any] = []  # keeps bound objects alive, so that their ids stay unique
        self._count = 0
        self._done: list[tuple[str, Mark]] = []  # lines of functions that are complete
        self._open: list[_Function] = [_Function()]

    def new(self, prefix: str) -> str:
        """A new name with `prefix`."""
        self._count += 1
        return f"{prefix}{self._count}"

    def bind(self, obj: Any, prefix: str) -> str:
        """The global name of `obj`, which is added if it has none."""
        name = self._bound.get(id(obj))
        if name is None:
            name = self._bound[id(obj)] = self.new(prefix)
            self.names[name] = obj
            self._alive.append(obj)
        return name

    def line(self, text: str, op: Operation | None = None, inputs: tuple[str, ...] = ()) -> None:
        """Adds a line to the innermost open function."""
        f = self._open[-1]
        f.lines.append((" " * f.indent + text, Mark(op, f.loops, inputs)))

    def indent(self) -> None:
        """Opens a block, whose header is already written."""
        self._open[-1].indent += 1

    def dedent(self) -> None:
        """Closes the innermost block."""
        f = self._open[-1]
        if f.lines[-1][0].endswith(":"):
            self.line("pass")
        f.indent -= 1

    @property
    def written(self) -> int:
        """Number of lines of the innermost open function."""
        return len(self._open[-1].lines)

    @property
    def depth(self) -> int:
        """Number of open loops in the innermost function."""
        return len(self._open[-1].loops)

    @property
    def loop(self) -> SourceLoop | None:
        """The innermost open loop of the innermost function."""
        loops = self._open[-1].loops
        return loops[0] if loops else None

    @property
    def indentation(self) -> int:
        """Number of open blocks in the innermost function."""
        return self._open[-1].indent

    def enter_loop(self, loop: SourceLoop) -> None:
        """Opens a loop, whose header is already written."""
        f = self._open[-1]
        f.loops = (loop, *f.loops)
        self.indent()

    def leave_loop(self) -> None:
        """Closes the innermost loop."""
        f = self._open[-1]
        self.dedent()
        f.loops = f.loops[1:]

    def begin(self, header: str, decorator: str = "") -> None:
        """Begins another function, which is placed before the current one."""
        self._open.append(_Function())
        if decorator:
            self.line(f"@{decorator}")
        self.line(header)
        self.indent()

    def end(self) -> None:
        """Ends the innermost function."""
        self._done += self._open.pop().lines

    def finish(self, name: str) -> Code:
        """Compiles the source, to which nothing can be added afterwards.

        Args:
          name: The function to return.

        Returns:
          The compiled source with that function.
        """
        lines = [*self._done, *self._open[0].lines]
        text = "\n".join(line for line, _ in lines) + "\n"
        exec(compile(text, FILE, "exec"), self.names)
        return Code(text, [mark for _, mark in lines], self.names[name])


class _Function:
    def __init__(self) -> None:
        self.lines: list[tuple[str, Mark]] = []
        self.indent = 0
        self.loops: tuple[SourceLoop, ...] = ()
