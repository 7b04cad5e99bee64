"""Gradients through loops, each compared with what mathematics says: `make demo`.

A loop that runs as often as its data says, differentiated three times; Newton's method, differentiated through however
many steps it takes; and a recurrent network trained by gradient descent, whose steps are a loop in the graph, too.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np

import headrace as hr


def squared(x: Any) -> Any:
    """x, squared as long as it is below 100."""
    return hr.while_loop(lambda y: y < 100.0, hr.square, x)


def cube_root(a: Any) -> tuple[Any, Any]:
    """The cube root of a by Newton's method, and the steps that took."""

    def far(y: Any, steps: Any) -> Any:
        return hr.abs(y * y * y - a) > 1e-9 * a

    return hr.while_loop(far, lambda y, steps: ((2.0 * y + a / (y * y)) / 3.0, steps + 1), (a, 0))


def network(parameters: Any, xs: Any) -> Any:
    """Computes one output of a recurrent network for each sequence of `xs`, [time, batch]."""
    into, across, out = parameters

    def step(t: Any, h: Any) -> Any:
        return t + 1, hr.tanh(hr.expand_dims(xs[t], 1) * into + hr.matmul(h, across))

    _, h = hr.while_loop(lambda t, h: t < xs.shape[0], step, (0, hr.zeros((xs.shape[1], across.shape[0]))))
    return hr.reduce_sum(h * out, 1)


def trained(parameters: Any, xs: Any, wanted: Any, steps: Any, rate: float) -> tuple[Any, Any]:
    """Returns parameters after gradient descent, and the error of each step: nested loops."""

    def descend(k: Any, parameters: Any, errors: Any) -> Any:
        error = hr.reduce_mean(hr.square(network(parameters, xs) - wanted))
        slopes = hr.gradients(error, parameters)
        return k + 1, [p - rate * g for p, g in zip(parameters, slopes)], errors.write(k, error)

    errors = hr.TensorArray(hr.float32, steps, element_shape=())
    _, parameters, errors = hr.while_loop(lambda k, p, e: k < steps, descend, (0, parameters, errors))
    return parameters, errors.stack()


def orders() -> bool:
    print("x is squared as long as it is below 100; the derivatives of that, to order 3")
    with hr.Graph() as graph:
        x = hr.placeholder(hr.float64, (), name="x")
        found = [squared(x)]
        for _ in range(3):
            found += hr.gradients(found[-1], x)
    same = True
    for value in (2.0, 5.0, 11.0):
        got = hr.Session(graph=graph).run(found, {x: value})
        n = 1  # the loop computes x**n
        while value**n < 100:
            n *= 2
        want = [math.perm(n, k) * value ** (n - k) for k in range(4)]
        same &= show(f"x = {value:g}: x**{n}", got, want)
    return same


def newton() -> bool:
    print("The cube root of a by Newton's method, and its derivative: through as many steps as it takes")
    with hr.Graph() as graph:
        a = hr.placeholder(hr.float64, (), name="a")
        root, steps = cube_root(a)
        (slope,) = hr.gradients(root, a)
    same = True
    for value in (0.5, 8.0, 1000.0):
        *got, n = hr.Session(graph=graph).run([root, slope, steps], {a: value})
        same &= show(f"a = {value:g}: {n} steps", got, [value ** (1 / 3), value ** (-2 / 3) / 3])
    return same


def training() -> bool:
    print("A network of 8 units learns to say what the mean of the last two of ten numbers is")
    random = np.random.default_rng(1)
    xs = random.uniform(-1, 1, (10, 64)).astype(np.float32)
    with hr.Graph() as graph:
        first = [hr.constant(random.normal(0, 0.3, shape), hr.float32) for shape in ((8,), (8, 8), (8,))]
        steps = hr.placeholder(hr.int32, (), name="steps")
        _, errors = trained(first, hr.constant(xs), hr.constant(xs[-2:].mean(0)), steps, rate=0.3)
    start = time.perf_counter()
    found = hr.Session(graph=graph).run(errors, {steps: 150})
    seconds = time.perf_counter() - start
    print("   squared error: " + ", ".join(f"{found[k]:.4f} at step {k}" for k in (0, 50, 100, 149)))
    print(f"   1500 iterations forward and 1500 back in {seconds:.2f} s")
    return bool(found[-1] < found[0] / 20)


def show(what: str, got: Any, want: Any) -> bool:
    """Prints the numbers that were computed, and whether they are right."""
    same = bool(np.allclose(got, want, rtol=1e-6))
    print(f"   {what:<20} " + "  ".join(f"{x:<12.7g}" for x in got) + f" {'right' if same else f'WRONG: {want}'}")
    return same


def main() -> int:
    print("Gradients through loops, computed in the graph.\n")
    good = True
    for part in (orders, newton, training):
        good &= part()
        print()
    print("All derivatives are right.\n" if good else "Some derivatives are WRONG.\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
