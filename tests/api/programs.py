"""Random programs in plain Python and as graphs.

The programs have conditionals, loops, growing vectors, tensor arrays and state.

A program is a block of statements over named values: integers (`a`, `b`, ...), vectors (`u`, `v`) whose length changes,
and lists (`s`), and over state: variables, standard output, random streams, queues. `Python` evaluates it; `Build`
makes the same of headrace's `cond`, `while_loop`, `TensorArray` and stateful ops. The two must agree on the values at
the end, the variables at the end, the printed lines in their order, the draws of each random op, the contents of the
queues, and on the Assert that failed, if any.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

import headrace as hr
from headrace.api import scopes
from tests.execute.programs import MODULUS, TRIPS, Assign, Binary, Const, If, Less, Var, While

LENGTH = 8  # vectors stay shorter than this
SLOTS = 5  # of a list
INTS, VECTORS, LISTS, VARIABLES, QUEUES = ("a", "b", "c"), ("u", "v"), ("s",), ("x", "y"), ("p",)
QUEUE_VALUE = 7  # the values that fill the queue to read from


# *** programs ***


@dataclasses.dataclass(frozen=True)
class Sum:
    """The sum of a vector, or of a list, modulo 1009."""

    name: str


@dataclasses.dataclass(frozen=True)
class Length:
    name: str


@dataclasses.dataclass(frozen=True)
class Read:
    """An element of a list, at an index modulo its length."""

    name: str
    index: Expr


Expr: TypeAlias = "Const | Var | Binary | Sum | Length | Read"


@dataclasses.dataclass(frozen=True)
class Append:
    """Puts a value at the end of a vector, which is cut to `LENGTH`."""

    name: str
    value: Expr


@dataclasses.dataclass(frozen=True)
class Write:
    """Sets an element of a list."""

    name: str
    index: Expr
    value: Expr


@dataclasses.dataclass(frozen=True)
class Load:
    """An integer becomes the value of a variable, modulo 1009."""

    name: str
    variable: str


@dataclasses.dataclass(frozen=True)
class Store:
    """A variable becomes (or, `adds`, grows by) a value."""

    variable: str
    value: Expr
    adds: bool


@dataclasses.dataclass(frozen=True)
class Show:
    value: Expr
    id: int


@dataclasses.dataclass(frozen=True)
class Check:
    """Fails unless the value is below `limit`."""

    value: Expr
    limit: int
    id: int


@dataclasses.dataclass(frozen=True)
class Draw:
    """An integer becomes the next number of a random stream."""

    name: str
    id: int


@dataclasses.dataclass(frozen=True)
class Put:
    queue: str
    value: Expr


@dataclasses.dataclass(frozen=True)
class Take:
    """An integer becomes what a queue full of `QUEUE_VALUE` gives."""

    name: str


Statement: TypeAlias = "Assign | Append | Write | If | While | Load | Store | Show | Check | Draw | Put | Take"
Block: TypeAlias = "tuple[Statement, ...]"


def assigned(block: Block) -> set[str]:
    """The values that `block` may change."""
    out: set[str] = set()
    for s in block:
        if isinstance(s, If):
            out |= assigned(s.yes) | assigned(s.no)
        elif isinstance(s, While):
            out |= assigned(s.body)
        elif isinstance(s, (Assign, Append, Write, Load, Draw, Take)):
            out.add(s.name)
    return out


class Generator:
    """Makes random programs."""

    def __init__(self, rng: random.Random, stateful: bool) -> None:
        self.random = rng
        self.stateful = stateful
        self.ids = 0

    def program(self, depth: int = 3) -> Block:
        return self.block(depth, 4)

    def block(self, depth: int, most: int) -> Block:
        return tuple(self.statement(depth) for _ in range(self.random.randint(1, most)))

    def statement(self, depth: int) -> Statement:
        r = self.random
        if depth and r.random() < 0.45:
            if r.random() < 0.5:
                return If(self.less(), self.block(depth - 1, 3), self.block(depth - 1, 2))
            trips = Const(r.choice([2, 3])) if r.random() < 0.6 else self.expr(1)
            return While(trips, self.less() if r.random() < 0.3 else None, self.block(depth - 1, 3))
        kinds = ["assign"] * 4 + ["append"] * 2 + ["write"] * 2
        if self.stateful:
            kinds += ["load", "store", "store", "show", "show", "check", "draw", "put", "take"]
        kind = r.choice(kinds)
        self.ids += 1
        if kind == "assign":
            return Assign(r.choice(INTS), self.expr(2))
        if kind == "append":
            return Append(r.choice(VECTORS), self.expr(1))
        if kind == "write":
            return Write(r.choice(LISTS), self.expr(1), self.expr(1))
        if kind == "load":
            return Load(r.choice(INTS), r.choice(VARIABLES))
        if kind == "store":
            return Store(r.choice(VARIABLES), self.expr(1), r.random() < 0.5)
        if kind == "show":
            return Show(self.expr(1), self.ids)
        if kind == "check":
            return Check(self.expr(1), r.choice([400, 900, 1000, 1005]), self.ids)
        if kind == "draw":
            return Draw(r.choice(INTS), self.ids)
        if kind == "put":
            return Put(QUEUES[0], self.expr(1))
        return Take(r.choice(INTS))

    def expr(self, depth: int) -> Expr:
        r = self.random
        if depth and r.random() < 0.6:
            return Binary(r.choice("+-*"), self.expr(depth - 1), self.expr(depth - 1))
        kind = r.random()
        if kind < 0.25:
            return Const(r.randint(0, 20))
        if kind < 0.75:
            return Var(r.choice(INTS))
        if kind < 0.85:
            return Sum(r.choice(VECTORS + LISTS))
        if kind < 0.92:
            return Length(r.choice(VECTORS))
        return Read(r.choice(LISTS), Var(r.choice(INTS)))

    def less(self) -> Less:
        return Less(self.expr(1), self.expr(1))


def initial(r: random.Random) -> dict[str, Any]:
    """The values that a program starts with."""
    out: dict[str, Any] = {n: r.randint(0, 30) for n in INTS}
    out |= {n: [r.randint(0, 30) for _ in range(r.randint(1, 3))] for n in VECTORS}
    return out | {n: [0] * SLOTS for n in LISTS}


# *** in plain Python ***


class Failed(Exception):
    """An Assert failed; the number says which."""


class Python:
    """Runs programs in plain Python.

    Attributes:
      values, variables: named values, and variables, as they are now.
      shown: lines that were printed.
      queues: values that were put into them.
    """

    def __init__(self, values: Mapping[str, Any], draws: Any) -> None:
        self.values = {k: list(v) if isinstance(v, list) else v for k, v in values.items()}
        self.variables = dict.fromkeys(VARIABLES, 1)
        self.shown: list[str] = []
        self.queues: dict[str, list[int]] = {q: [] for q in QUEUES}
        self._draws = draws
        self._drawn: dict[int, int] = {}
        self.took = 0

    def run(self, block: Block) -> None:
        for s in block:
            self.statement(s)

    def statement(self, s: Statement) -> None:
        values = self.values
        if isinstance(s, Assign):
            values[s.name] = self.value(s.value)
        elif isinstance(s, Append):
            values[s.name] = ([*values[s.name], self.value(s.value)])[-LENGTH:]
        elif isinstance(s, Write):
            new = list(values[s.name])
            new[self.value(s.index) % SLOTS] = self.value(s.value)
            values[s.name] = new
        elif isinstance(s, If):
            self.run(s.yes if self.holds(s.pred) else s.no)
        elif isinstance(s, While):
            for _ in range(self.value(s.trips) % TRIPS):
                if s.pred is not None and not self.holds(s.pred):
                    break
                self.run(s.body)
        else:
            self.effect(s)

    def effect(self, s: Statement) -> None:
        if isinstance(s, Load):
            self.values[s.name] = self.variables[s.variable] % MODULUS
        elif isinstance(s, Store):
            before = self.variables[s.variable] if s.adds else 0
            self.variables[s.variable] = before + self.value(s.value)
        elif isinstance(s, Show):
            self.shown.append(f"{s.id}:[{self.value(s.value)}]")
        elif isinstance(s, Check):
            if not self.value(s.value) < s.limit:
                raise Failed(f"[{s.id}]")
        elif isinstance(s, Draw):
            k = self._drawn[s.id] = self._drawn.get(s.id, -1) + 1
            self.values[s.name] = self._draws(s.id, k)
        elif isinstance(s, Put):
            self.queues[s.queue].append(self.value(s.value))
        elif isinstance(s, Take):
            self.took += 1
            self.values[s.name] = QUEUE_VALUE
        else:
            raise TypeError(s)

    def value(self, e: Expr) -> int:
        if isinstance(e, Const):
            return e.value
        if isinstance(e, Var):
            return int(self.values[e.name])
        if isinstance(e, Sum):
            return sum(self.values[e.name]) % MODULUS
        if isinstance(e, Length):
            return len(self.values[e.name])
        if isinstance(e, Read):
            return int(self.values[e.name][self.value(e.index) % SLOTS])
        a, b = self.value(e.a), self.value(e.b)
        return {"+": a + b, "-": a - b, "*": a * b}[e.op] % MODULUS

    def holds(self, p: Less) -> bool:
        return self.value(p.a) < self.value(p.b)


# *** as graphs ***


class Build:
    """Makes the graph of a program.

    Attributes:
      values: named values: tensors; lists are `TensorArray`s.
      variables, queues: by name; in the queue `source` is what Take takes.
      ends: reads of the variables, to be run afterwards.
    """

    def __init__(self, values: Mapping[str, Any], parallel_iterations: int, takes: int, stateful: bool) -> None:
        self.parallel = parallel_iterations
        self.feeds: dict[Any, Any] = {}
        self.values: dict[str, Any] = {}
        for name, v in values.items():
            if name in LISTS:
                ta = hr.TensorArray(hr.int32, size=SLOTS, element_shape=(), clear_after_read=False)
                self.values[name] = ta.unstack(hr.constant(v, hr.int32))
            else:
                shape = (None,) if name in VECTORS else ()
                t = hr.placeholder(hr.int32, shape, name=name)
                self.feeds[t] = np.array(v, np.int32)
                self.values[name] = t
        self.variables: dict[str, Any] = {}
        self.queues: dict[str, Any] = {}
        if stateful:
            self.variables = {n: hr.Variable(1, dtype=hr.int32, name=n) for n in VARIABLES}
            # reads that come before all writes, so that running them runs nothing else
            self.ends = {n: v.read_value() for n, v in self.variables.items()}
            b = scopes.builder()
            for q in (*QUEUES, "source"):
                self.queues[q] = b.FIFOQueueV2(component_types=[hr.int32], shapes=[()], shared_name=q)
            self.fill = [
                b.QueueEnqueueManyV2(self.queues["source"], [hr.constant([QUEUE_VALUE] * max(takes, 1), hr.int32)])
            ]

    def run(self, block: Block) -> None:
        for s in block:
            self.statement(s)

    def statement(self, s: Statement) -> None:
        values = self.values
        if isinstance(s, Assign):
            values[s.name] = self.value(s.value)
        elif isinstance(s, Append):
            b = scopes.builder()
            longer = b.ConcatV2([values[s.name], b.Reshape(self.value(s.value), [1])], 0)
            values[s.name] = longer[-LENGTH:]
        elif isinstance(s, Write):
            values[s.name] = values[s.name].write(self.value(s.index) % SLOTS, self.value(s.value))
        elif isinstance(s, If):
            names = sorted(assigned((s,)))
            before = dict(values)

            def branch(block: Block) -> Any:
                def trace() -> Any:
                    self.values = dict(before)
                    self.run(block)
                    return [self.values[n] for n in names]

                return trace

            out = hr.cond(self.holds(s.pred), branch(s.yes), branch(s.no))
            self.values = before | dict(zip(names, out, strict=True))
        elif isinstance(s, While):
            self.loop(s)
        else:
            self.effect(s)

    def loop(self, s: While) -> None:
        names = sorted(assigned((s,)))
        before = dict(self.values)
        trips = self.value(s.trips) % TRIPS

        def inside(state: Sequence[Any]) -> None:
            self.values = before | dict(zip(names, state, strict=True))

        def cond(i: Any, state: Sequence[Any]) -> Any:
            inside(state)
            more = i < trips
            return more if s.pred is None else scopes.builder().LogicalAnd(more, self.holds(s.pred))

        def body(i: Any, state: Sequence[Any]) -> Any:
            inside(state)
            self.run(s.body)
            return i + 1, [self.values[n] for n in names]

        shapes = [before[n] if n in LISTS else ((None,) if n in VECTORS else ()) for n in names]
        invariants = ((), [None if n in LISTS else shape for n, shape in zip(names, shapes, strict=True)])
        start = (hr.constant(0), [before[n] for n in names])
        _, out = hr.while_loop(cond, body, start, shape_invariants=invariants, parallel_iterations=self.parallel)
        self.values = before | dict(zip(names, out, strict=True))

    def effect(self, s: Statement) -> None:
        b = scopes.builder()
        values = self.values
        if isinstance(s, Load):
            values[s.name] = self.variables[s.variable].read_value() % MODULUS
        elif isinstance(s, Store):
            v = self.variables[s.variable]
            (v.assign_add if s.adds else v.assign)(self.value(s.value))
        elif isinstance(s, Show):
            x = self.value(s.value)
            b.Print(x, [x], message=f"{s.id}:")
        elif isinstance(s, Check):
            b.Assert(self.value(s.value) < s.limit, [hr.constant(s.id)])
        elif isinstance(s, Draw):
            values[s.name] = b.RandomUniformInt(
                hr.constant([], hr.int32), hr.constant(0), hr.constant(MODULUS), seed=87, seed2=s.id
            )
        elif isinstance(s, Put):
            b.QueueEnqueueV2(self.queues[s.queue], [self.value(s.value)])
        elif isinstance(s, Take):
            values[s.name] = b.QueueDequeueV2(self.queues["source"], component_types=[hr.int32])
        else:
            raise TypeError(s)

    def value(self, e: Expr) -> Any:
        b = scopes.builder()
        if isinstance(e, Const):
            return hr.constant(e.value, hr.int32)
        if isinstance(e, Var):
            return self.values[e.name]
        if isinstance(e, Sum):
            x = self.values[e.name]
            x = x.stack() if e.name in LISTS else x
            return b.Sum(x, [0]) % MODULUS
        if isinstance(e, Length):
            return b.Size(self.values[e.name])
        if isinstance(e, Read):
            return self.values[e.name].read(self.value(e.index) % SLOTS)
        x, y = self.value(e.a), self.value(e.b)
        return {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y}[e.op]() % MODULUS

    def holds(self, p: Less) -> Any:
        return self.value(p.a) < self.value(p.b)
