"""Solvers that decide themselves when they are done, and gradients through them: `python examples/solvers.py`.

Newton's method takes as many steps as it needs, an adaptive ODE solver makes its steps as long as the tolerance allows
and throws away those that were too bold. Both are loops whose trips only the data knows. The gradient of each is a loop
that goes back over the steps which were really taken: no step count is fixed beforehand, and nothing is unrolled.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from typing import Any

import numpy as np

import headrace as hr

# Bogacki and Shampine's pair of orders 3 and 2 (1989): where each stage stands, what it adds up, and the two results.
STAGES = ((0.5,), (0.0, 0.75))
THIRD = (2 / 9, 1 / 3, 4 / 9)
SECOND = (7 / 24, 1 / 4, 1 / 3, 1 / 8)

FULL = 300  # steps of Adam, after which the rates should be found


def newton(f: Any, x: Any, tolerance: float = 1e-12) -> tuple[Any, Any]:
    """Finds a zero of the vector function f by Newton's method, and counts the steps."""

    def is_far(x: Any, steps: Any) -> Any:
        return hr.reduce_max(hr.abs(f(x))) > tolerance

    def step(x: Any, steps: Any) -> Any:
        y = f(x)
        move = hr.linalg.solve(hr.jacobian(y, x), hr.expand_dims(y, 1))
        return x - hr.squeeze(move, 1), steps + 1

    return hr.while_loop(is_far, step, (x, 0))


def odeint(f: Any, y: Any, start: float, end: float, tolerance: float = 1e-6) -> tuple[Any, Any, Any]:
    """Integrates dy/dt = f(t, y) to `end`, and counts accepted and rejected steps."""

    def is_before_the_end(t: Any, y: Any, h: Any, kept: Any, refused: Any) -> Any:
        return t < end

    def step(t: Any, y: Any, h: Any, kept: Any, refused: Any) -> Any:
        h = hr.minimum(h, end - t)
        slopes = [f(t, y)]
        for weights in STAGES:
            moved = y + h * sum(w * k for w, k in zip(weights, slopes) if w)
            slopes.append(f(t + h * sum(weights), moved))
        third = y + h * sum(w * k for w, k in zip(THIRD, slopes))
        slopes.append(f(t + h, third))
        second = y + h * sum(w * k for w, k in zip(SECOND, slopes))
        # how long the steps are is no part of what is differentiated
        error = hr.stop_gradient(hr.reduce_max(hr.abs(third - second) / (tolerance * (1.0 + hr.abs(third)))))
        factor = hr.clip_by_value(0.9 * hr.pow(hr.maximum(error, 1e-10), -1 / 3), 0.2, 5.0)

        def keep() -> Any:
            # the last step ends at `end` exactly, independent of rounding
            after = hr.where(h < end - t, t + h, hr.constant(end, hr.float64))
            return after, third, h * factor, kept + 1, refused

        return hr.cond(error <= 1.0, keep, lambda: (t, y, h * factor, kept, refused + 1))

    first = (hr.constant(start, hr.float64), y, hr.constant(0.1, hr.float64), 0, 0)
    _, y, _, kept, refused = hr.while_loop(is_before_the_end, step, first)
    return y, kept, refused


def circles() -> bool:
    print("Newton's method in two dimensions: where the circle of radius r meets the hyperbola x y = 1")
    with hr.Graph() as graph:
        r = hr.placeholder(hr.float64, (), name="r")
        near = hr.placeholder(hr.float64, (2,), name="near")
        root, steps = newton(lambda p: hr.stack([p[0] ** 2 + p[1] ** 2 - r * r, p[0] * p[1] - 1.0]), near)
        (slope,) = hr.gradients(root[0], r)
    good = True
    with hr.Session(graph=graph) as session:
        for radius in (1.6, 2.0, 5.0):
            for start in ((2.0, 1.0), (9.0, 0.1)):
                (x, _), n, dx = session.run([root, steps, slope], {r: radius, near: start})
                exact = np.sqrt((radius**2 + np.sqrt(radius**4 - 4)) / 2)
                # x**2 + 1/x**2 = r**2, so (2 x - 2 / x**3) dx = 2 r dr
                good &= shown(f"r = {radius}: {n} steps", (x, dx), (exact, radius / (exact - exact**-3)))
    return good


def foxes_and_hares() -> bool:
    print("Hares and foxes (Lotka and Volterra): the adaptive solver, and what the outcome owes to each rate")
    with hr.Graph() as graph:
        rates = hr.placeholder(hr.float64, (4,), name="rates")
        first = hr.constant([10.0, 5.0], hr.float64)
        y, kept, refused = odeint(lambda t, y: population(rates, y), first, 0.0, 10.0, tolerance=1e-9)
        (by_rates,) = hr.gradients(y[0], rates)
    point = np.array([1.1, 0.4, 0.1, 0.4])
    with hr.Session(graph=graph) as session:
        value, slopes, n, again = session.run([y, by_rates, kept, refused], {rates: point})
        print(f"   {n} steps were kept and {again} refused; hares {value[0]:.6f}, foxes {value[1]:.6f}")
        numeric = []
        for k in range(4):
            move = np.eye(4)[k] * 1e-5
            up, down = (session.run(y, {rates: point + s * move})[0] for s in (1, -1))
            numeric.append((up - down) / 2e-5)
    return shown("d hares / d rates", slopes, numeric, 1e-4)


def population(rates: Any, y: Any) -> Any:
    hares, foxes = y[0], y[1]
    met = hares * foxes
    return hr.stack([rates[0] * hares - rates[1] * met, rates[2] * met - rates[3] * foxes])


def fitted(steps_of_adam: int) -> bool:
    print("The rates, found again from ten counts: gradient descent (Adam) through the solver, in one graph")
    times = np.linspace(1.0, 10.0, 10)
    truth = np.array([1.1, 0.4, 0.1, 0.4])
    with hr.Graph() as graph:
        rates = hr.placeholder(hr.float64, (4,), name="rates")
        counts, y, steps = [], hr.constant([10.0, 5.0], hr.float64), 0
        for begin, end in zip([0.0, *times], times):
            y, kept, _ = odeint(lambda t, y: population(rates, y), y, begin, end)
            counts.append(y)
            steps += kept
        observed = hr.placeholder(hr.float64, (10, 2), name="observed")
        error = hr.reduce_mean(hr.square(hr.log(hr.stack(counts)) - hr.log(observed)))
        (slope,) = hr.gradients(error, rates)
    session = hr.Session(graph=graph)
    seen = np.array(session.run(counts, {rates: truth}))
    optimizer, guess = hr.train.Adam(0.02), np.array([0.8, 0.3, 0.15, 0.5])
    state, begun, taken = optimizer.init(guess), time.perf_counter(), 0
    for k in range(steps_of_adam + 1):
        value, by, n = session.run([error, slope, steps], {rates: guess, observed: seen})
        taken += n
        if k % 100 == 0:
            print(f"   after {k:3} steps of Adam: error {value:.2e}, rates {np.round(guess, 4)}")
        new, state = optimizer.update(by, state, guess)
        guess = np.asarray(new)
    print(f"   {taken} steps of the solver, forward and back, in {time.perf_counter() - begun:.1f} s")
    return shown("the rates", guess, truth, 2e-2) or steps_of_adam < FULL


def shown(what: str, got: Any, want: Any, tolerance: float = 1e-7) -> bool:
    """Prints the numbers that were computed, and whether they are right."""
    same = bool(np.allclose(got, want, rtol=tolerance))
    verdict = "right" if same else f"WRONG: {np.asarray(want)}"
    print(f"   {what:<20} " + "  ".join(f"{x:<11.6g}" for x in got) + f" {verdict}")
    return same


def main() -> int:
    print("Solvers that decide themselves when they are done, and gradients through them.\n")
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--fit", type=int, default=FULL, help="steps of Adam in the last part")
    options = parser.parse_args()
    good = True
    for part in (circles, foxes_and_hares, functools.partial(fitted, options.fit)):
        good &= part()
        print()
    print("All results are right.\n" if good else "Some results are WRONG.\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
