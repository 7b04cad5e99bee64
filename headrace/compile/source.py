"""Python source that is being written: lines, names, and for each line what it stands for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from headrace.ir.graph import Operation

FILE: Final = "<compiled step>"  # the file that tracebacks name


@dataclasses.dataclass(frozen=True, slots=True)
class SourceLoop:
    """A loop around a line.

    Attributes:
      op: the operation it is made of.
      number: the name of the variable whose value tells the iteration.
      first: what that is in iteration 0: a number, or the name of a variable.
      most: how often it goes round at most, if that is known.
    """

    op: Operation
    number: str
    first: str = "0"
    most: int | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        name: str = self.op.attrs.get("_frame_name", self.op.name)
        return name


class Mark(NamedTuple):
    """What a line stands for.

    Attributes:
      op: the operation that it does, or None.
      loops: the loops around it in its function, innermost first.
      inputs: expressions of the values that the operation is given.
    """

    op: Operation | None
    loops: tuple[SourceLoop, ...]
    inputs: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """What was written, compiled.

    Attributes:
      text: the source.
      marks: what each of its lines stands for (line 1 first).
      function: the function that was asked for.
    """

    text: str
    marks: list[Mark]
    function: Callable[..., Any]

    @property
    def has_loops(self) -> bool:
        """Whether a loop stands in it."""
        return any(m.loops for m in self.marks)


class Source:
    """One or more functions being written.

    Attributes:
      names: what the code finds as globals: kernels, constants, helpers.
    """

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._bound: dict[int, str] = {}
        self._held: list[Any] = []  # so that no other object gets the id of one that is bound
        self._count = 0
        self._done: list[tuple[str, Mark]] = []  # lines of functions that are complete
        self._open: list[_Function] = [_Function()]

    def new(self, prefix: str) -> str:
        """A name that nothing has yet."""
        self._count += 1
        return f"{prefix}{self._count}"

    def bind(self, obj: Any, prefix: str) -> str:
        """The global name of `obj`."""
        name = self._bound.get(id(obj))
        if name is None:
            name = self._bound[id(obj)] = self.new(prefix)
            self.names[name] = obj
            self._held.append(obj)
        return name

    def line(self, text: str, op: Operation | None = None, inputs: tuple[str, ...] = ()) -> None:
        """Adds a line to the innermost open function."""
        f = self._open[-1]
        f.lines.append((" " * f.indent + text, Mark(op, f.loops, inputs)))

    def indent(self) -> None:
        """Goes one block deeper; its header is written already."""
        self._open[-1].indent += 1

    def dedent(self) -> None:
        """Ends the innermost block."""
        f = self._open[-1]
        if f.lines[-1][0].endswith(":"):
            self.line("pass")
        f.indent -= 1

    @property
    def depth(self) -> int:
        """How many loops are open in the innermost function."""
        return len(self._open[-1].loops)

    @property
    def loop(self) -> SourceLoop | None:
        """The innermost loop that is open in the innermost function."""
        loops = self._open[-1].loops
        return loops[0] if loops else None

    @property
    def indentation(self) -> int:
        """How many blocks are open in the innermost function."""
        return self._open[-1].indent

    def enter_loop(self, loop: SourceLoop) -> None:
        """What follows is in a loop; its header is written already."""
        f = self._open[-1]
        f.loops = (loop, *f.loops)
        self.indent()

    def leave_loop(self) -> None:
        """Ends the innermost loop."""
        f = self._open[-1]
        self.dedent()
        f.loops = f.loops[1:]

    def begin(self, header: str) -> None:
        """Begins a function of its own, before the one that is being written."""
        self._open.append(_Function())
        self.line(header)
        self.indent()

    def end(self) -> None:
        """Ends it."""
        self._done += self._open.pop().lines

    def finish(self, name: str) -> Code:
        """Compiles what is written, of which the function `name` is wanted. Nothing can be added then."""
        lines = [*self._done, *self._open[0].lines]
        text = "\n".join(line for line, _ in lines) + "\n"
        exec(compile(text, FILE, "exec"), self.names)
        return Code(text, [mark for _, mark in lines], self.names[name])


class _Function:
    def __init__(self) -> None:
        self.lines: list[tuple[str, Mark]] = []
        self.indent = 0
        self.loops: tuple[SourceLoop, ...] = ()
