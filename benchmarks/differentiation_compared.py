"""Four methods of differentiation of a function with a loop: manual, numeric, symbolic, automatic.

    python -m benchmarks.differentiation_compared

prints the tables of docs/learn/differentiation_compared.md. The function is a row of coupled logistic maps,

    f(x) = C h_N        h_0 = E x        h_{k+1} = W (3.6 h_k (1 - h_k))

with n_I numbers in x and n_O in f(x); with a single one of everything it is the logistic map. E, W and C average, so
that all numbers stay between 0 and 1. Its derivatives are computed

* manually: the loop that goes backwards, written by hand, for all results at once;
* numerically: by differences of values, one-sided or central;
* symbolically: rules applied to the formula that the loop writes out (`Formula`), as a computer algebra system does;
* automatically: by `hr.jacobian` in its two modes.

All but the symbolic ones run in headrace, so that a difference in time is one of work.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import headrace as hr
from benchmarks.gradient_size import count_operations
from benchmarks.measure import alternating

RATE = 3.6
Array = np.ndarray


# *** the function ***


@dataclasses.dataclass(frozen=True)
class Maps:
    """f for one size.

    Attributes:
      e, w, c: the matrices.
      trips: N.
    """

    e: Array
    w: Array
    c: Array
    trips: int

    @classmethod
    def of(cls, inputs: int, outputs: int, state: int, trips: int) -> Maps:
        random = np.random.default_rng(7)

        def averaging(rows: int, columns: int) -> Array:
            m = random.uniform(0.1, 1.0, (rows, columns))
            return m / m.sum(1, keepdims=True)

        coupled = 0.9 * np.eye(state) + 0.1 * averaging(state, state)
        return cls(averaging(state, inputs), coupled, averaging(outputs, state), trips)

    @property
    def point(self) -> Array:
        """The point at which the derivatives are computed."""
        return np.linspace(0.2, 0.7, self.e.shape[1])

    def step(self, h: Any) -> Any:
        return _times(self.w, RATE * h * (1.0 - h))

    def graph(self, x: Any) -> Any:
        """f(x) in a graph; x is a vector."""
        _, h = hr.while_loop(lambda i, h: i < self.trips, lambda i, h: (i + 1, self.step(h)), (0, _times(self.e, x)))
        return _times(self.c, h)

    def by_hand(self, x: Any) -> Any:
        """The Jacobian by hand, in a graph: a second loop reads all kept h."""
        n = self.trips
        states = hr.TensorArray(hr.float64, n, element_shape=(len(self.w),))
        _, _, states = hr.while_loop(
            lambda i, h, a: i < n, lambda i, h, a: (i + 1, self.step(h), a.write(i, h)), (0, _times(self.e, x), states)
        )

        def back(i: Any, g: Any) -> Any:  # a row of g for each result
            h = states.read(i)
            return i - 1, hr.matmul(g, hr.constant(self.w)) * (RATE - 2 * RATE * h)

        _, g = hr.while_loop(lambda i, g: i >= 0, back, (n - 1, hr.constant(self.c)))
        return hr.matmul(g, hr.constant(self.e))

    def exact(self) -> Array:
        """The Jacobian, computed with more digits where the machine has them."""
        e, w, c, x = (np.asarray(a, np.longdouble) for a in (self.e, self.w, self.c, self.point))
        h, d, rate = e @ x, e, np.longdouble(RATE)
        for _ in range(self.trips):
            d = w @ ((rate - 2 * rate * h)[:, None] * d)
            h = w @ (rate * h * (1 - h))
        return c @ d


def _times(m: Array, v: Any) -> Any:
    """The matrix `m` times the vector `v` of a graph."""
    return hr.linalg.matvec(hr.constant(m), v)


# *** cost and error ***


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to the Jacobian.

    Attributes:
      name: of it.
      passes: how often it goes through the loop, forward or back.
      jacobian: computes it.
    """

    name: str
    passes: str
    jacobian: Callable[[], Array]


def ways(maps: Maps) -> tuple[Callable[[], Array], list[Way]]:
    """A function that evaluates f, and the ways to its Jacobian."""
    x0 = maps.point
    n_i, n_o = len(x0), len(maps.c)
    with hr.Graph() as graph:
        x = hr.placeholder("float64", x0.shape)
        y = maps.graph(x)
        session = hr.Session(graph=graph)
        fetched = {
            "by hand": maps.by_hand(x),
            "forward": hr.jacobian(y, x, mode="fwd"),
            "reverse": hr.jacobian(y, x, mode="rev"),
        }
    f = session.make_callable(y, [x])
    calls = {name: functools.partial(session.make_callable(t, [x]), x0) for name, t in fetched.items()}

    def one_sided() -> Array:
        return one_sided_differences(f, x0, math.sqrt(np.finfo(float).eps))

    def central() -> Array:
        step = np.finfo(float).eps ** (1 / 3)
        columns = [(f(x0 + d) - f(x0 - d)) / (2 * step) for d in step * np.eye(n_i)]
        return np.stack(columns, 1)

    return lambda: f(x0), [
        Way("manual, backwards for all results at once", "2", calls["by hand"]),
        Way("numeric, one-sided", f"n_I + 1 = {n_i + 1}", one_sided),
        Way("numeric, central", f"2 n_I = {2 * n_i}", central),
        Way("automatic, forward mode", f"n_I + 1 = {n_i + 1}", calls["forward"]),
        Way("automatic, reverse mode", f"n_O + 1 = {n_o + 1}", calls["reverse"]),
    ]


def one_sided_differences(f: Callable[[Array], Array], x0: Array, step: float) -> Array:
    y0 = f(x0)
    return np.stack([(f(x0 + d) - y0) / step for d in step * np.eye(len(x0))], 1)


def cost(
    sizes: Sequence[tuple[int, int]] = ((1, 32), (8, 8), (32, 1)), state: int = 32, trips: int = 20, repeats: int = 7
) -> str:
    """A table of passes, time in evaluations of f, and error, by size and method."""
    rows = ["| n_I | n_O | way | passes | time / time of f | error |", "|---:|---:|---|---|---:|---:|"]
    for n_i, n_o in sizes:
        maps = Maps.of(n_i, n_o, state, trips)
        f, found = ways(maps)
        exact = maps.exact()
        f()
        errors = [float(np.max(np.abs(w.jacobian() - exact)) / np.max(np.abs(exact))) for w in found]
        once, *seconds = alternating([f, *(w.jacobian for w in found)], repeats)
        for way, error, mine in zip(found, errors, seconds):
            times = np.median([a / b for a, b in zip(mine, once)])
            rows.append(f"| {n_i} | {n_o} | {way.name} | {way.passes} | {times:.3g} | {error:.1g} |")
    return "\n".join(rows)


def steps(trips: int = 20) -> str:
    """A table: the error of one-sided differences for smaller and smaller steps."""
    maps = Maps.of(4, 4, 8, trips)
    with hr.Graph() as graph:
        x = hr.placeholder("float64", maps.point.shape)
        f = hr.Session(graph=graph).make_callable(maps.graph(x), [x])
    exact = maps.exact()
    sizes = [10.0**-k for k in range(1, 16, 2)]
    errors = [np.max(np.abs(one_sided_differences(f, maps.point, s) - exact)) / np.max(np.abs(exact)) for s in sizes]
    rows = ["| step " + "".join(f"| {s:.0e} " for s in sizes) + "|", "|---" + "|---:" * len(sizes) + "|"]
    return "\n".join([*rows, "| error " + "".join(f"| {e:.1g} " for e in errors) + "|"])


# *** formulas ***


@dataclasses.dataclass(frozen=True, eq=False)
class Formula:
    """An expression in x: "x", a number, or a sum, difference or product.

    Sub-expressions are shared, as far as the rules share them; `size` counts the formula as one would write it.
    """

    kind: Any
    parts: tuple[Formula, ...] = ()

    def __add__(self, other: Formula) -> Formula:
        if 0 in (self.kind, other.kind):
            return other if self.kind == 0 else self
        return Formula("+", (self, other))

    def __sub__(self, other: Formula) -> Formula:
        return self if other.kind == 0 else Formula("-", (self, other))

    def __mul__(self, other: Formula) -> Formula:
        if 0 in (self.kind, other.kind):
            return Formula(0)
        if 1 in (self.kind, other.kind):
            return other if self.kind == 1 else self
        return Formula("*", (self, other))

    @functools.cached_property
    def size(self) -> int:
        """Operations, numbers and variables in the formula when it is written out."""
        return 1 + sum(p.size for p in self.parts)

    @functools.cached_property
    def derivative(self) -> Formula:
        if not self.parts:
            return Formula(int(self.kind == "x"))
        a, b = self.parts
        if self.kind == "+":
            return a.derivative + b.derivative
        if self.kind == "-":
            return a.derivative - b.derivative
        return a.derivative * b + a * b.derivative

    def shared_size(self) -> int:
        """The same, sub-expressions that are one object counted once."""
        seen: set[int] = set()
        todo: list[Formula] = [self]
        while todo:
            f = todo.pop()
            if id(f) not in seen:
                seen.add(id(f))
                todo += f.parts
        return len(seen)

    def at(self, x: float) -> float:
        """Its value, each sub-expression computed once."""
        known: dict[int, float] = {}

        def value(f: Formula) -> float:
            if id(f) not in known:
                if f.parts:
                    a, b = map(value, f.parts)
                    known[id(f)] = a + b if f.kind == "+" else a - b if f.kind == "-" else a * b
                else:
                    known[id(f)] = x if f.kind == "x" else float(f.kind)
            return known[id(f)]

        return value(self)


def logistic(x: Any, one: Any, rate: Any, trips: int) -> Any:
    """The logistic map, written out."""
    for _ in range(trips):
        x = rate * x * (one - x)
    return x


def swell(most: int = 10) -> str:
    """A table of the sizes of formulas and graphs, by trips of the logistic map."""
    sympy = importlib.util.find_spec("sympy") is not None
    head = ["trips", "f", "f' as formula", "the same, shared", *(["f' by SymPy, multiplied out"] if sympy else [])]
    head += ["f' of the loop written out, headrace", "f' of the loop, headrace", "the two differ by"]
    rows = ["| " + " | ".join(head) + " |", "|---:" * len(head) + "|"]
    for n in range(1, most + 1):
        f = logistic(Formula("x"), Formula(1), Formula(RATE), n)
        d = f.derivative
        rows_out, _ = _graph(n, loop=False)
        loop, value = _graph(n, loop=True)
        cells = [n, f.size, d.size, d.shared_size(), *([_sympy(n) if n <= 6 else "-"] if sympy else []), rows_out, loop]
        rows.append("| " + " | ".join(map(str, cells)) + f" | {abs(d.at(0.3) - value) / abs(value):.1g} |")
    return "\n".join(rows)


def _graph(trips: int, loop: bool) -> tuple[int, float]:
    """The operations of the logistic map and its derivative, and the derivative at 0.3."""
    with hr.Graph() as graph:
        x = hr.placeholder("float64", ())
        if loop:
            _, y = hr.while_loop(lambda i, h: i < trips, lambda i, h: (i + 1, RATE * h * (1.0 - h)), (0, x))
        else:
            y = logistic(x, 1.0, RATE, trips)
        (dx,) = hr.gradients(y, x)
    return count_operations(graph), float(hr.Session(graph=graph).run(dx, {x: 0.3}))


def _sympy(trips: int) -> int:
    import sympy

    x = sympy.Symbol("x")
    formula = sympy.expand(sympy.diff(logistic(x, 1, sympy.Rational(18, 5), trips), x))
    return sum(1 for _ in sympy.preorder_traversal(formula))


def main() -> int:
    print("Cost and error\n")
    print(cost())
    print("\nThe step of differences, n_I = n_O = 4\n")
    print(steps())
    print("\nThe growth of formulas: operations, numbers and variables\n")
    print(swell())
    return 0


if __name__ == "__main__":
    sys.exit(main())
