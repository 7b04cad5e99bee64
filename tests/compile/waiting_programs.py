"""Random programs of numbers, loops, conditionals and queues that a step fills and empties itself.

A value taken from queue k is there at *time* k, since the values put into it are there before. Therefore the
time of each value is known: a plain interpreter follows the values through loops and branches and asks only for those
that the token machine would ask for. So a step never waits for ever, unless something waits for more than it has to: a
loop that works on values from a queue, and one of whose results, or the number of its iterations, is put there.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

import headrace as hr
from headrace.api import scopes

MOST_TRIPS = 4

# ("value", i), ("number", n), ("+", a, b), ..., ("if", p, a, b), ("while", n, whether it may stop before, first, next)
Expr = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Value:
    """A number, and when it is there."""

    number: int
    time: int


def _wrapped(n: int) -> int:
    return (n + 2**31) % 2**32 - 2**31


def _calculated(kind: str, a: int, b: int) -> int:
    return _wrapped(a + b if kind == "+" else a - b if kind == "-" else a * b)


class Simulation:
    """Values and times of expressions."""

    def one(self, e: Expr, known: Sequence[Value], since: int = 0) -> Value:
        """`e`, which stands where nothing fires before `since`."""
        kind = e[0]
        if kind == "value":
            v = known[e[1]]
            return Value(v.number, max(v.time, since))
        if kind == "number":
            return Value(e[1], since)
        if kind == "if":
            p = self.one(e[1], known, since)
            return self.one(e[2 if p.number % 2 else 3], known, max(since, p.time))
        if kind == "while":
            return self.loop(e, known, since)[1]
        a, b = self.one(e[1], known, since), self.one(e[2], known, since)
        return Value(_calculated(kind, a.number, b.number), max(a.time, b.time))

    def loop(self, e: Expr, known: Sequence[Value], since: int = 0) -> list[Value]:
        """The results of a loop: its counter, and its other variables."""
        _, limit, stops, first, then = e
        n = self.one(limit, known, since)
        going = [Value(0, since), *(self.one(x, known, since) for x in first)]
        while True:
            asks = [n, going[0], *([going[-1]] if stops else [])]
            at = max(v.time for v in asks)
            if going[0].number >= n.number % MOST_TRIPS or (stops and going[-1].number % 5 == 0):
                return [Value(v.number, max(v.time, at)) for v in going]
            inside = [*known, *(Value(v.number, max(v.time, at)) for v in going)]
            counted = Value(going[0].number + 1, inside[len(known)].time)
            going = [counted, *(self.one(x, inside, at) for x in then)]


class Drawing:
    """The same as tensors of the graph that has been entered."""

    def one(self, e: Expr, known: Sequence[Any]) -> Any:
        kind = e[0]
        if kind == "value":
            return known[e[1]]
        if kind == "number":
            return hr.constant(e[1], hr.int32)
        if kind == "if":
            b = scopes.builder()
            p = b.Equal(b.FloorMod(self.one(e[1], known), 2), 1)
            return hr.cond(p, lambda: self.one(e[2], known), lambda: self.one(e[3], known))
        if kind == "while":
            return self.loop(e, known)[1]
        a, b = self.one(e[1], known), self.one(e[2], known)
        return a + b if kind == "+" else a - b if kind == "-" else a * b

    def loop(self, e: Expr, known: Sequence[Any]) -> list[Any]:
        _, limit, stops, first, then = e
        b = scopes.builder()
        is_known = limit[0] == "number"
        n = hr.constant(limit[1] % MOST_TRIPS) if is_known else b.FloorMod(self.one(limit, known), MOST_TRIPS)

        def test(i: Any, *others: Any) -> Any:
            b = scopes.builder()
            goes = b.Less(i, n)
            return b.LogicalAnd(goes, b.NotEqual(b.FloorMod(others[-1], 5), 0)) if stops else goes

        def body(i: Any, *others: Any) -> Any:
            inside = [*known, i, *others]
            return (i + 1, *(self.one(x, inside) for x in then))

        return list(hr.while_loop(test, body, [hr.constant(0), *(self.one(x, known) for x in first)]))


class Program:
    """A random program.

    Args:
      rng: decides everything.
      size: how many statements.

    Attributes:
      graph: it.
      fetches: all values, and what fills the queues.
      numbers: the values.
    """

    def __init__(self, rng: random.Random, size: int) -> None:
        self._rng = rng
        self._simulation, self._drawing = Simulation(), Drawing()
        self.graph = hr.Graph()
        self._values: list[Value] = []
        self._tensors: list[Any] = []
        self._open: list[tuple[Any, int, int]] = []  # queues that nothing has been put into: (queue, time, number)
        self._puts: list[Any] = []
        self._taken = 0
        with self.graph:
            for n in rng.sample(range(-9, 10), 2):
                self._add(Value(n, 0), hr.constant(n))
            self._take()
            for _ in range(size):
                rng.choices([self._take, self._put, self._let, self._loop, self._branch], [2, 2, 3, 6, 2])[0]()
            while self._open:
                self._put()
        self.fetches = (self._tensors, self._puts)
        self.numbers = [v.number for v in self._values]

    def _add(self, value: Value, t: Any) -> None:
        self._values.append(value)
        self._tensors.append(t)

    def _take(self) -> None:
        self._taken += 1
        q = hr.FIFOQueue(1, [hr.int32], shapes=[[]])
        n = self._rng.randrange(-9, 10)
        self._add(Value(n, self._taken), q.dequeue())
        self._open.append((q, self._taken, n))

    def _put(self) -> None:
        if self._open:
            q, time, n = self._open.pop(self._rng.randrange(len(self._open)))
            before = [i for i, v in enumerate(self._values) if v.time < time]
            i = self._rng.choice(before[-4:])  # the latest ones: results of loops
            self._puts.append(q.enqueue(self._tensors[i] + hr.constant(_wrapped(n - self._values[i].number), hr.int32)))

    def _let(self) -> None:
        e = self._expr(len(self._values), 2)
        self._add(self._simulation.one(e, self._values), self._drawing.one(e, self._tensors))

    def _branch(self) -> None:
        n = len(self._values)
        e = ("if", self._expr(n, 1), self._expr(n, 2), self._expr(n, 2))
        self._add(self._simulation.one(e, self._values), self._drawing.one(e, self._tensors))

    def _loop(self) -> None:
        e = self._while(len(self._values), 1)
        values, tensors = self._simulation.loop(e, self._values), self._drawing.loop(e, self._tensors)
        for v, t in zip(values, tensors, strict=True):
            self._add(v, t)

    def _while(self, n: int, depth: int) -> Expr:
        rng, k = self._rng, self._rng.randrange(1, 4)
        limit = ("number", rng.randrange(MOST_TRIPS)) if rng.random() < 0.5 else self._value(n)
        first = [self._value(n) if rng.random() < 0.6 else ("number", rng.randrange(9)) for _ in range(k)]
        return ("while", limit, rng.random() < 0.3, first, [self._expr(n + 1 + k, depth + 1, n) for _ in range(k)])

    def _value(self, n: int, since: int = 0) -> Expr:
        """One of `n` values: mostly of those from `since` on, or of the newest."""
        first = since if self._rng.random() < 0.6 else max(0, n - 8)
        return ("value", self._rng.randrange(min(first, n - 1), n))

    def _expr(self, n: int, depth: int, since: int = 0) -> Expr:
        rng = self._rng
        kind = rng.random()
        if depth <= 0 or kind < 0.2:
            return self._value(n, since)
        if kind < 0.3:
            return ("number", rng.randrange(-9, 10))
        if kind < 0.4 and depth > 1:
            return ("if", *(self._expr(n, depth - 1, since) for _ in range(3)))
        if kind < 0.45 and depth > 1:
            return self._while(n, depth - 2)
        return (rng.choice("+-*"), self._expr(n, depth - 1, since), self._expr(n, depth - 1, since))


def numbers_of(got: Any) -> list[int]:
    """The fetched values of a program."""
    return [int(np.asarray(x)) for x in got[0]]
