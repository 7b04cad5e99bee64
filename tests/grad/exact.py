"""Derivatives of programs, exact up to rounding and of any order.

They need no graph and no finite differences.

A `Jet` is a number (an array) that carries its derivatives in some directions, and the mixed ones of those: arithmetic
modulo e₁² = e₂² = ... = 0. `Plain` evaluates programs on jets, in plain Python. A `Slope`, a gradient that is asked for
in the middle of a program, is evaluated with one direction more, for each element of what it is taken by.

Source: hyper-dual numbers (Fike and Alonso, "The Development of Hyper-Dual Numbers for Exact Second-Derivative
Calculations", 2011), to any order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tests.grad.programs import (
    CONSTANTS,
    GROWING,
    LENGTH,
    LISTS,
    RAGGED,
    SLOTS,
    TRIPS,
    Append,
    Call,
    Case,
    Evaluator,
    Expr,
    If,
    N,
    Program,
    Slope,
    While,
    Write,
)

# *** numbers with derivatives ***


class Jet:
    """An array and its derivatives.

    Attributes:
      parts: sets of directions (as bits) → the derivative in all of them; 0 → the array. Others are zero.
      kept: the sets that matter, of directions below `FIRST`; None: all.
    """

    __array_priority__ = 100
    kept: Collection[int] | None = None

    FIRST = 1 << 16  # directions from here on are those of Slopes

    def __init__(self, parts: dict[int, np.ndarray]) -> None:
        self.parts = parts

    @property
    def value(self) -> np.ndarray:
        return self.parts[0]

    @classmethod
    def of(cls, x: Any) -> Jet:
        return x if isinstance(x, Jet) else Jet({0: np.asarray(x, np.float64)})

    @staticmethod
    def matters(mask: int) -> bool:
        return Jet.kept is None or mask & (Jet.FIRST - 1) in Jet.kept

    def linear(self, f: Callable[[np.ndarray], np.ndarray]) -> Jet:
        return Jet({s: f(x) for s, x in self.parts.items()})

    def bilinear(self, other: Any, f: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Jet:
        out: dict[int, Any] = {}
        for s, x in self.parts.items():
            for t, y in Jet.of(other).parts.items():
                if not s & t and Jet.matters(s | t):
                    out[s | t] = out.get(s | t, 0.0) + f(x, y)
        return Jet(out)

    def function(self, derivative: Callable[[np.ndarray, int], np.ndarray]) -> Jet:
        """A function elementwise; `derivative(x, n)` is its n-th derivative."""
        known: dict[tuple[int, int], np.ndarray] = {}

        def part(s: int, n: int) -> np.ndarray:
            if (s, n) not in known:
                if not s:
                    known[s, n] = derivative(self.value, n)
                else:  # the derivative in the highest direction is f'(x) x', whose parts follow from those of f' and x'
                    top = 1 << (s.bit_length() - 1)
                    found = [
                        part(t, n + 1) * x
                        for t, x in ((t, self.parts.get(s ^ t)) for t in _subsets(s ^ top))
                        if x is not None
                    ]
                    known[s, n] = sum(found, np.zeros_like(self.value))
            return known[s, n]

        return Jet({s: part(s, 0) for s in _unions(self.parts) if Jet.matters(s)})

    def __add__(self, other: Any) -> Jet:
        other = Jet.of(other)
        shape = np.broadcast_shapes(self.value.shape, other.value.shape)
        out = {s: np.broadcast_to(x, shape) for s, x in self.parts.items()}
        for s, x in other.parts.items():
            out[s] = out[s] + x if s in out else np.broadcast_to(x, shape)
        return Jet(out)

    def __neg__(self) -> Jet:
        return self.linear(operator.neg)

    def __sub__(self, other: Any) -> Jet:
        return self + -Jet.of(other)

    def __mul__(self, other: Any) -> Jet:
        return self.bilinear(other, operator.mul)

    def __matmul__(self, other: Any) -> Jet:
        return self.bilinear(other, operator.matmul)

    def __getitem__(self, index: Any) -> Jet:
        return self.linear(lambda x: x[index])

    __radd__, __rmul__ = __add__, __mul__


def _subsets(s: int) -> Iterator[int]:
    t = s
    while True:
        yield t
        if not t:
            return
        t = (t - 1) & s


def _unions(parts: Collection[int]) -> set[int]:
    """All unions of disjoint sets."""
    out = {0}
    for s in parts:
        out |= {s | t for t in out if not s & t and Jet.matters(s | t)}
    return out


def _tanh(x: np.ndarray, n: int) -> np.ndarray:
    t = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(n):
        t = t.deriv() * np.polynomial.Polynomial([1.0, 0.0, -1.0])
    found: np.ndarray = t(np.tanh(x))
    return found


def _reciprocal(x: np.ndarray, n: int) -> np.ndarray:
    return np.prod(-np.arange(1.0, n + 1)) * x ** -(n + 1.0)


def _stacked(jets: Sequence[Jet], axis: int = 0, join: Any = np.stack) -> Jet:
    masks = {s for j in jets for s in j.parts}
    return Jet({s: join([j.parts.get(s, np.zeros_like(j.value)) for j in jets], axis) for s in masks})


class _Numbers:
    """The operations of expressions, on jets and on Python's integers."""

    sin = staticmethod(lambda x: x.function(lambda x, n: np.sin(x + n * np.pi / 2)))
    cos = staticmethod(lambda x: x.function(lambda x, n: np.cos(x + n * np.pi / 2)))
    exp = staticmethod(lambda x: x.function(lambda x, n: np.exp(x)))
    tanh = staticmethod(lambda x: x.function(_tanh))
    reciprocal = staticmethod(lambda x: x.function(_reciprocal))
    sum = staticmethod(lambda x: x.linear(lambda x: x.sum()))
    sum0 = staticmethod(lambda x: x.linear(lambda x: x.sum(0)))
    mean = staticmethod(lambda x: x.linear(lambda x: x.mean()))
    transpose = staticmethod(lambda x: x.linear(np.transpose))
    matvec = matmul = staticmethod(lambda m, u: Jet.of(m) @ u)
    row = at = staticmethod(lambda x, i: x[i])
    rows = staticmethod(lambda x, i: x[[i, 1, i]])
    float = staticmethod(float)
    length = staticmethod(lambda x: len(x.value))
    floor = staticmethod(lambda x: int(np.floor(x.value * 4.0 + 0.12345)))
    scalar = staticmethod(Jet.of)


# *** programs ***


class Plain(Evaluator):
    """Evaluates programs on jets. Lists are Python's.

    Attributes:
      trips: number of iterations of all loops together.
    """

    ops = _Numbers

    def __init__(self, program: Program, ints: Mapping[str, int], inputs: Mapping[str, Any]) -> None:
        x = {n: Jet.of(v) for n, v in inputs.items()}
        self.functions = program.functions
        self.values = {**ints, "k": 0, **x}
        self.values[LISTS] = [x["T"][i] for i in range(SLOTS)]
        self.values[RAGGED] = [x["w"][: i % N + 1] for i in range(SLOTS)]
        self.slopes = 0
        self.trips = 0

    def read(self, name: str, index: int) -> Jet:
        element: Jet = self.values[name][index]
        return element

    def do_append(self, s: Append) -> None:
        self.values[GROWING] = _stacked([self.values[GROWING], self.value(s.value)[None]], join=np.concatenate)[
            -LENGTH:
        ]

    def do_write(self, s: Write) -> None:
        new = list(self.values[s.name])
        new[self.value(s.index) % SLOTS] = self.value(s.value)
        self.values[s.name] = new

    def holds(self, x: Expr, than: float) -> bool:
        return bool(Jet.of(self.value(x)).value < than)

    def do_if(self, s: If) -> None:
        self.run(s.yes if self.holds(s.x, s.than) else s.no)

    def do_case(self, s: Case) -> None:
        self.run(s.branches[self.value(s.index) % len(s.branches)])

    def do_while(self, s: While) -> None:
        k = self.values["k"]
        for i in range(self.value(s.trips) % TRIPS):
            self.values["k"] = i
            if s.below is not None and not self.holds(*s.below):
                break
            self.run(s.body)
            self.trips += 1
        self.values["k"] = k

    def do_call(self, s: Call) -> None:
        depth, value, before = self.value(s.depth), self.value(s.value), self.values
        self.values = {n: before[n] for n in CONSTANTS} | {"a": depth, "u": value, "k": 0}
        self.run(self.functions[s.function])
        self.values = before | {s.name: self.values["u"]}

    def do_slope(self, s: Slope) -> None:
        before = self.values
        bit = Jet.FIRST << self.slopes
        self.slopes += 1
        parts = []
        for i in range(N):
            at = dict(before[s.by].parts)
            at[bit] = np.eye(N)[i]
            self.values = before | {s.by: Jet(at)}
            self.run(s.block)
            y = Jet.of(self.value(s.of))
            parts.append(Jet({0: np.zeros(())} | {t ^ bit: d for t, d in y.parts.items() if t & bit}))
        self.slopes -= 1
        self.values = before | {s.name: _stacked(parts)}


def evaluate(program: Program, ints: Mapping[str, int], inputs: Mapping[str, Any]) -> Jet:
    """Result of the program, evaluated in plain Python."""
    plain = Plain(program, ints, inputs)
    plain.run(program.block)
    return Jet.of(plain.loss(program))


def derivatives(
    program: Program, ints: Mapping[str, int], at: Mapping[str, np.ndarray], directions: Sequence[Mapping[str, Any]]
) -> list[float]:
    """Returns the value and its nested directional derivatives.

    The second element is the derivative in the first direction, the third the derivative of the second element in the
    second direction, and so on.
    """
    jets = {n: Jet({0: x} | {1 << i: d[n] for i, d in enumerate(directions) if n in d}) for n, x in at.items()}
    parts = evaluate(program, ints, jets).parts
    return [float(parts.get((1 << i) - 1, 0.0)) for i in range(len(directions) + 1)]


def slopes(
    program: Program, ints: Mapping[str, int], at: Mapping[str, np.ndarray], along: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Directional derivatives of the value: one for each input, along its own direction."""
    bits = {n: 1 << i for i, n in enumerate(at)}
    Jet.kept = {0, *bits.values()}
    try:
        parts = evaluate(program, ints, {n: Jet({0: x, bits[n]: along[n]}) for n, x in at.items()}).parts
    finally:
        Jet.kept = None
    return {n: float(parts.get(bit, 0.0)) for n, bit in bits.items()}
