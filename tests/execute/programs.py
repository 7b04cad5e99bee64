"""Structured programs (assignments, conditionals, loops over integers), what they mean, and how they become primitives.

`evaluate` runs one in plain Python. `Lowering` makes a graph of it as TensorFlow 1's builders do: a Switch for each
value that a branch captures, a constant Enter for each one that a loop captures, pivots for what has no other gated
input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor

MODULUS = 1009

# *** programs ***


@dataclasses.dataclass(frozen=True)
class Var:
    """The value of a variable."""

    name: str


@dataclasses.dataclass(frozen=True)
class Const:
    """A number."""

    value: int


@dataclasses.dataclass(frozen=True)
class Binary:
    """`+`, `-` or `*`, modulo 1009."""

    op: str
    a: Expr
    b: Expr


Expr: TypeAlias = Var | Const | Binary


@dataclasses.dataclass(frozen=True)
class Less:
    """A predicate: `a < b`, or `not a < b`."""

    a: Expr
    b: Expr
    negated: bool = False


@dataclasses.dataclass(frozen=True)
class Assign:
    """`name = value`."""

    name: str
    value: Expr


@dataclasses.dataclass(frozen=True)
class If:
    """`if pred: yes else: no`."""

    pred: Less
    yes: Block
    no: Block


@dataclasses.dataclass(frozen=True)
class While:
    """`for _ in range(trips % 4): if not pred: break; body`; `pred` None: always."""

    trips: Expr
    pred: Less | None
    body: Block


Statement: TypeAlias = Assign | If | While
Block: TypeAlias = tuple[Statement, ...]

TRIPS = 4  # loops make fewer trips than this


# *** their meaning ***


def evaluate(block: Block, values: dict[str, int]) -> dict[str, int]:
    """Runs `block` in plain Python; changes and returns `values`."""
    for s in block:
        if isinstance(s, Assign):
            values[s.name] = _value(s.value, values)
        elif isinstance(s, If):
            evaluate(s.yes if _holds(s.pred, values) else s.no, values)
        else:
            for _ in range(_value(s.trips, values) % TRIPS):
                if s.pred is not None and not _holds(s.pred, values):
                    break
                evaluate(s.body, values)
    return values


def _value(e: Expr, values: Mapping[str, int]) -> int:
    if isinstance(e, Var):
        return values[e.name]
    if isinstance(e, Const):
        return e.value
    a, b = _value(e.a, values), _value(e.b, values)
    return {"+": a + b, "-": a - b, "*": a * b}[e.op] % MODULUS


def _holds(p: Less, values: Mapping[str, int]) -> bool:
    return (_value(p.a, values) < _value(p.b, values)) != p.negated


def assigned(block: Block) -> set[str]:
    """The variables that `block` may assign."""
    out: set[str] = set()
    for s in block:
        if isinstance(s, Assign):
            out.add(s.name)
        elif isinstance(s, If):
            out |= assigned(s.yes) | assigned(s.no)
        else:
            out |= assigned(s.body)
    return out


# *** lowering ***


class _Root:
    """Outside all conditionals and loops."""

    outer: Any = None

    def __init__(self, b: Builder) -> None:
        self.b = b

    def capture(self, t: Tensor) -> Tensor:
        """A tensor of an outer context as this context sees it."""
        raise AssertionError("the root has no outer context")

    def make(self, type: str, *args: Tensor) -> Tensor:
        """An op of this context."""
        out: Tensor = self.b.make(type, args, {})
        return out

    def const(self, value: int) -> Tensor:
        return self.b.const(value)


class _Branch(_Root):
    """One side of a conditional."""

    def __init__(self, outer: _Root, pred: Tensor, side: int) -> None:
        super().__init__(outer.b)
        self.outer = outer
        self.pred = pred
        self.side = side
        self.pivot: Tensor = self.b.Identity(self.b.Switch(pred, pred)[side])
        self.seen: dict[Tensor, Tensor] = {}

    def capture(self, t: Tensor) -> Tensor:
        if t not in self.seen:
            self.seen[t] = self.b.Switch(t, self.pred)[self.side]
        return self.seen[t]

    def const(self, value: int) -> Tensor:
        return self.b.after(self.pivot).const(value)


class _Body(_Root):
    """The condition, then the body, of a loop.

    Captured values enter as loop constants.
    """

    def __init__(self, outer: _Root, frame: str, parallel_iterations: int) -> None:
        super().__init__(outer.b)
        self.outer = outer
        self.attrs = {"frame_name": frame, "parallel_iterations": parallel_iterations}
        self.pivot: Tensor | None = None
        self.seen: dict[Tensor, Tensor] = {}

    def capture(self, t: Tensor) -> Tensor:
        if t not in self.seen:
            self.seen[t] = self.b.Enter(t, is_constant=True, **self.attrs)
        return self.seen[t]

    def make(self, type: str, *args: Tensor) -> Tensor:
        constants = set(self.seen.values())
        b = self.b
        if all(a in constants for a in args):
            assert self.pivot is not None
            b = b.after(self.pivot)
        out: Tensor = b.make(type, args, {})
        return out

    def const(self, value: int) -> Tensor:
        assert self.pivot is not None
        return self.b.after(self.pivot).const(value)


class Lowering:
    """Makes the graph of a program.

    Args:
      b: where to.
      parallel_iterations: of all its loops.
    """

    def __init__(self, b: Builder, parallel_iterations: int = 10) -> None:
        self.b = b
        self.parallel_iterations = parallel_iterations
        self.frames = 0
        self.home: dict[Tensor, _Root] = {}

    def lower(self, block: Block, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The variables' values after `block`, in the root."""
        root = _Root(self.b)
        for t in values.values():
            self.home[t] = root
        return self._block(root, block, dict(values))

    def _use(self, c: _Root, t: Tensor) -> Tensor:
        """`t`, made in `c` or in a context around it, as `c` sees it."""
        if self.home[t] is c:
            return t
        seen = c.capture(self._use(c.outer, t))
        self.home[seen] = c
        return seen

    def _made(self, c: _Root, t: Tensor) -> Tensor:
        self.home[t] = c
        return t

    def _expr(self, c: _Root, e: Expr, values: Mapping[str, Tensor]) -> Tensor:
        if isinstance(e, Var):
            return self._use(c, values[e.name])
        if isinstance(e, Const):
            return self._made(c, c.const(e.value))
        a, b = self._expr(c, e.a, values), self._expr(c, e.b, values)
        full = c.make({"+": "AddV2", "-": "Sub", "*": "Mul"}[e.op], a, b)
        return self._made(c, c.make("FloorMod", full, c.const(MODULUS)))

    def _pred(self, c: _Root, p: Less, values: Mapping[str, Tensor]) -> Tensor:
        out = c.make("Less", self._expr(c, p.a, values), self._expr(c, p.b, values))
        return self._made(c, c.make("LogicalNot", out) if p.negated else out)

    def _block(self, c: _Root, block: Block, values: dict[str, Tensor]) -> dict[str, Tensor]:
        for s in block:
            if isinstance(s, Assign):
                values[s.name] = self._expr(c, s.value, values)
            elif isinstance(s, If):
                self._if(c, s, values)
            else:
                self._while(c, s, values)
        return values

    def _if(self, c: _Root, s: If, values: dict[str, Tensor]) -> None:
        pred = self._pred(c, s.pred, values)
        names = sorted(assigned((s,)))
        ends = []
        for side, block in ((0, s.no), (1, s.yes)):
            branch = _Branch(c, pred, side)
            after = self._block(branch, block, dict(values))
            ends.append([self._use(branch, after[n]) for n in names])
        for n, no, yes in zip(names, *ends, strict=True):
            values[n] = self._made(c, self.b.Merge([no, yes])[0])

    def _while(self, c: _Root, s: While, values: dict[str, Tensor]) -> None:
        names = sorted(assigned(s.body))
        self.frames += 1
        body = _Body(c, f"loop{self.frames}", self.parallel_iterations)
        limit = self._made(c, c.make("FloorMod", self._expr(c, s.trips, values), c.const(TRIPS)))
        starts = [self._made(c, c.const(0)), *(self._use(c, values[n]) for n in names)]
        merges = []
        for start in starts:
            enter = self.b.Enter(start, **body.attrs)
            merges.append(self._made(body, self.b.Merge([enter, enter])[0]))
        body.pivot = merges[0]  # for the condition
        inside = dict(values) | dict(zip(names, merges[1:], strict=True))
        pred = body.make("Less", merges[0], self._use(body, limit))
        if s.pred is not None:
            pred = body.make("LogicalAnd", pred, self._pred(body, s.pred, inside))
        pred = self._made(body, self.b.LoopCond(pred))
        switches = [self.b.Switch(m, pred) for m in merges]
        body.pivot = self.b.Identity(switches[0][1])
        for n, (_, go) in zip(names, switches[1:], strict=True):
            inside[n] = self._made(body, self.b.Identity(go))
        counter = body.make("AddV2", switches[0][1], body.const(1))
        after = self._block(body, s.body, inside)
        results = [counter]
        for n in names:
            t = self._use(body, after[n])
            if t in body.seen.values():  # a loop constant is no result: it must be gated first
                t = body.make("Identity", t)
            results.append(t)
        for m, t in zip(merges, results, strict=True):
            self.b.graph.set_back_edge(m.op, 1, self.b.NextIteration(t))
        for n, (stop, _) in zip(names, switches[1:], strict=True):
            values[n] = self._made(c, self.b.Exit(stop))


def show(block: Block, indent: str = "") -> str:
    """A program as Python text, for the message of a failing test."""
    lines: list[str] = []
    for s in block:
        if isinstance(s, Assign):
            lines.append(f"{indent}{s.name} = {_text(s.value)}")
        elif isinstance(s, If):
            lines += [f"{indent}if {_text(s.pred)}:", show(s.yes, indent + "  ") or f"{indent}  pass"]
            lines += [f"{indent}else:", show(s.no, indent + "  ") or f"{indent}  pass"]
        else:
            lines.append(f"{indent}for _ in range({_text(s.trips)} % {TRIPS}):")
            if s.pred is not None:
                lines.append(f"{indent}  if not ({_text(s.pred)}): break")
            lines.append(show(s.body, indent + "  ") or f"{indent}  pass")
    return "\n".join(lines)


def _text(e: Expr | Less) -> str:
    if isinstance(e, Var):
        return e.name
    if isinstance(e, Const):
        return str(e.value)
    if isinstance(e, Less):
        return f"{'not ' if e.negated else ''}{_text(e.a)} < {_text(e.b)}"
    return f"({_text(e.a)} {e.op} {_text(e.b)})"


Values: TypeAlias = Sequence[int]
