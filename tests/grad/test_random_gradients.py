"""Random programs: their derivatives are exact to the third order in every mode.

A program's derivatives are known exactly without a graph (`exact.Jet`); central differences of its values, which
need nothing but those, check the exact ones. All derivatives are along given directions, d_k the one of order k:

    f_0 = f        f_k(x) = <gradient of f_(k-1) at x, d_k>

Found with a seed: `python -m tests.grad.test_random_gradients SEED` shows the program.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from tests.execute.machine import SeededReady
from tests.grad.exact import derivatives, evaluate, slopes
from tests.grad.programs import (
    CONSTANTS,
    Assign,
    Call,
    Case,
    Generator,
    If,
    Program,
    Slope,
    While,
    Write,
    build,
    direction,
    f64,
    initial,
    statements,
)

pytestmark = pytest.mark.matrix

TOLERANCE = 1e-9  # relative; results are right to rounding
STEP = 1e-5
ORDERS = 3
BLOCKS = 4  # tests of so many programs each; seven more are slow
EACH = 4
PROGRAMS = 42  # that are looked at for what is in them


class Example:
    """A program, where it is differentiated and in which directions."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.seed = seed
        self.program: Program = Generator(rng).program()
        self.ints, self.at = initial(rng)
        self.directions = [direction(rng) for _ in range(3)]
        self.rng = rng

    def __repr__(self) -> str:
        return f"seed {self.seed}: {self.program}"

    def close(self, found: Any, want: Any, what: str, tolerance: float = TOLERANCE) -> None:
        found, want = np.asarray(found), np.asarray(want)
        error = np.abs(found - want).max(initial=0.0) / (1.0 + np.abs(want).max(initial=0.0))
        assert error <= tolerance, f"{what}: got {found}, expected {want}\n{self}"


class Made:
    """Graph of an example: placeholders and a variable.

    One placeholder is for a vector of any length.
    """

    def __init__(self, example: Example, parallel: int = 10) -> None:
        self.example = example
        with hr.Graph() as self.graph:
            self.inputs: dict[str, Any] = {
                n: hr.placeholder(f64, (None,) if n == "g" else x.shape, name=n) for n, x in example.at.items()
            }
            self.inputs["V"] = hr.Variable(example.at["V"], name="V")
            self.ints = {n: hr.constant(i, name=n) for n, i in example.ints.items()}
            self.y = build(example.program, self.ints, self.inputs, parallel)

    def __enter__(self) -> Made:
        self.graph.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.graph.__exit__(*error)

    def gradients(self, y: Any, names: Any = None) -> dict[str, Any]:
        """Of `y` with respect to all inputs, or some."""
        names = list(self.inputs if names is None else names)
        found = hr.gradients(y, [self.inputs[n] for n in names], unconnected="zero")
        return {n: hr.convert_to_tensor(g) for n, g in zip(names, found, strict=True)}

    def session(self) -> hr.Session:
        """A new one, which has the variable."""
        session = hr.Session(graph=self.graph)
        session.run(self.inputs["V"].initializer)
        return session

    def run(self, fetches: Any, session: hr.Session | None = None, **options: Any) -> Any:
        """Runs `fetches` in `session`, or in a new session if it is None."""
        feeds = {self.inputs[n]: x for n, x in self.example.at.items() if n != "V"}
        with contextlib.ExitStack() as stack:
            session = session or stack.enter_context(self.session())
            return session.run(fetches, feeds, hr.RunOptions(timeout_in_ms=60_000, **options))


def _along(gradient: Mapping[str, Any], way: Mapping[str, np.ndarray]) -> Any:
    return sum(hr.reduce_sum(g * way[n]) for n, g in gradient.items())


def _check(seed: int, orders: int = ORDERS) -> None:
    """Checks derivatives of orders up to `orders` in reverse mode.

    The first order is checked with respect to each input by itself.
    """
    e = Example(seed)
    d = e.directions[:orders]
    want = derivatives(e.program, e.ints, e.at, d)
    moved = [{n: x + s * STEP * d[0][n] for n, x in e.at.items()} for s in (1, -1)]
    ends = [float(evaluate(e.program, e.ints, x).value) for x in moved]
    e.close(want[1], (ends[0] - ends[1]) / (2 * STEP), "the jets against differences", 1e-5)
    each = slopes(e.program, e.ints, e.at, d[0])
    with Made(e) as made:
        # first with respect to some inputs, then to all: the loops grow more than once
        some = e.rng.sample(sorted(made.inputs), 2)
        first = made.gradients(made.y, some)
        f = [made.y]
        gradient = made.gradients(f[0])
        for k in range(orders):
            f.append(_along(gradient if k == 0 else made.gradients(f[-1]), d[k]))
    with flags.override(VERIFY=seed % 2 * 2):  # compiled without checks, and with them
        found, grads, early = made.run([f, gradient, first])
    for name, g in grads.items():
        assert g.shape == e.at[name].shape, e
        e.close(np.sum(g * d[0][name]), each[name], f"gradient with respect to {name}")
    for name, g in early.items():
        e.close(g, grads[name], f"gradient with respect to {name}, asked for before")
    for k, (x, w) in enumerate(zip(found, want, strict=True)):
        e.close(x, w, f"order {k}")


def _check_modes(seed: int) -> None:
    """Forward mode is reverse mode, forward over reverse is reverse over reverse."""
    e = Example(seed)
    # a variable is no argument of a function, so V is a tensor here
    d1, d2 = e.directions[:2]
    want = derivatives(e.program, e.ints, e.at, [d1, d2])
    names = list(e.at)

    def f(*xs: Any) -> Any:
        return build(e.program, e.ints, dict(zip(names, xs, strict=True)))

    def slope(*xs: Any) -> Any:
        found = hr.gradients(f(*xs), list(xs), unconnected="zero")
        return _along({n: hr.convert_to_tensor(g) for n, g in zip(names, found, strict=True)}, d1)

    with hr.Graph() as g:
        xs = [hr.placeholder(f64, (None,) if n == "g" else x.shape, name=n) for n, x in e.at.items()]
        y, forward = hr.jvp(f, xs, [hr.constant(d1[n]) for n in names])
        z, over = hr.jvp(slope, xs, [hr.constant(d2[n]) for n in names])
        backward = hr.gradients(forward, xs, unconnected="zero")
        under = _along({n: hr.convert_to_tensor(t) for n, t in zip(names, backward, strict=True)}, d2)
    with hr.Session(graph=g) as session:
        got = session.run([y, forward, z, over, under], dict(zip(xs, e.at.values(), strict=True)))
    what = ["value", "forward mode", "reverse mode", "forward over reverse", "reverse over forward"]
    for label, found, w in zip(what, got, [want[0], want[1], want[1], want[2], want[2]], strict=True):
        e.close(found, w, label)


def _check_order(seed: int) -> None:
    """Checks that gradients are independent of the order of firing and of parallel iterations."""
    e = Example(seed)
    reference: Any = None
    for parallel in (10, 1, 2):
        with Made(e, parallel) as made:
            gradient = made.gradients(made.y)
            second = made.gradients(_along(gradient, e.directions[0]))
        with made.session() as session:
            for order in (None, seed, seed + 1):
                ready = SeededReady(order)
                got = made.run([gradient, second], session, ready=ready)
                ready.check()
                if reference is None:
                    reference = got
                for which, a, b in zip(("first", "second"), got, reference, strict=True):
                    for n in a:
                        what = f"{which} gradient with respect to {n}, {parallel} iterations, order {order}"
                        e.close(a[n], b[n], what, 0.0)


def _all(seeds: Iterable[int], check: Callable[[int], None]) -> None:
    """Checks all, then tells which failed."""
    failed: list[str] = []
    for seed in seeds:
        try:
            check(seed)
        except Exception as e:
            failed.append(f"seed {seed}: {type(e).__name__}: {e}")
    assert not failed, f"{len(failed)} failed\n" + "\n".join(failed)


@pytest.mark.parametrize(
    "block", [*range(BLOCKS), *(pytest.param(b, marks=pytest.mark.nightly) for b in range(BLOCKS, 11))]
)
def test_reverse_mode_to_the_third_order(block: int) -> None:
    """Every other program to the third order, which takes as long as the others together."""
    _all(range(EACH * block, EACH * (block + 1)), lambda seed: _check(seed, ORDERS - seed % 2))


def test_programs_that_found_something() -> None:
    """Loops that choose their residuals and call recursive functions, which keep values too."""
    _all([74, 95, 1428], _check)


@pytest.mark.parametrize("block", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_forward_mode(block: int) -> None:
    _all(range(100 + 5 * block, 105 + 5 * block), _check_modes)


@pytest.mark.one_engine
@pytest.mark.parametrize("block", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_order_of_firing(block: int) -> None:
    _all(range(200 + 3 * block, 203 + 3 * block), _check_order)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(20))
def test_many_programs(block: int) -> None:
    _all(range(10_000 + 150 * block, 10_000 + 150 * (block + 1)), _check)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(10))
def test_many_programs_in_all_manners(block: int) -> None:
    seeds = range(20_000 + 50 * block, 20_000 + 50 * (block + 1))
    _all(seeds, _check_modes)
    _all(seeds, _check_order)


def test_programs_have_everything_in_them() -> None:
    """The generator makes every kind of statement, and its programs use them together.

    At least half of the programs have derivatives other than zero.
    """
    programs = [Example(seed).program for seed in range(PROGRAMS)]
    kinds = [{type(s) for s in statements(p)} for p in programs]
    for kind in (Assign, Write, If, Case, While, Call, Slope):
        assert sum(kind in k for k in kinds) >= 5, kind
    assert sum(bool(p.functions) for p in programs) >= 10
    assert set(CONSTANTS) <= set(Example(0).at)
    values = [derivatives(e.program, e.ints, e.at, e.directions) for e in map(Example, range(PROGRAMS))]
    assert sum(all(abs(v) > 1e-3 for v in order) for order in values) >= PROGRAMS / 2


if __name__ == "__main__":
    print(Example(int(sys.argv[1])))
