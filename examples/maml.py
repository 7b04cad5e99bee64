"""Learning to learn sinusoids (MAML): `python examples/maml.py`.

Model-agnostic meta-learning (Finn, Abbeel and Levine, 2017, arXiv:1703.03400) finds parameters from which one step of
gradient descent on ten points of a new sinusoid gives a good fit. The loss to minimize contains a gradient, so its own
gradient is of second order: `hr.value_and_grad` of a function that calls `hr.grad`, in a loop over tasks.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from typing import Any

import numpy as np

import headrace as hr

HIDDEN, TASKS, POINTS, RATE = 40, 10, 10, 0.02
FULL = 4000


def network(p: Any, x: Any) -> Any:
    for k in range(2):
        x = hr.tanh(x @ p[f"w{k}"] + p[f"b{k}"])
    return x @ p["w2"] + p["b2"]


def error(p: Any, x: Any, y: Any) -> Any:
    return hr.reduce_mean(hr.square(network(p, x) - y))


def adapted(p: Any, x: Any, y: Any) -> Any:
    """The parameters after one step of gradient descent on a task."""
    slope = hr.grad(error)(p, x, y)
    return {name: p[name] - RATE * slope[name] for name in p}


@hr.jit
def meta_loss(p: Any, x: Any, y: Any, new_x: Any, new_y: Any) -> tuple[Any, Any]:
    """The mean error on new points after the step, and before it."""
    after, before = 0.0, 0.0
    for task in range(TASKS):
        before += error(p, new_x[task], new_y[task])
        after += error(adapted(p, x[task], y[task]), new_x[task], new_y[task])
    return after / TASKS, before / TASKS


def initial(rng: np.random.Generator) -> dict[str, np.ndarray]:
    sizes = (1, HIDDEN, HIDDEN, 1)
    p = {f"w{k}": rng.standard_normal((n, m)) / np.sqrt(n) for k, (n, m) in enumerate(itertools.pairwise(sizes))}
    return p | {f"b{k}": np.zeros(m) for k, m in enumerate(sizes[1:])}


def tasks(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Points of sinusoids with random amplitudes and phases, [TASKS, POINTS, 1], twice."""
    amplitude, phase = rng.uniform(0.1, 5.0, (TASKS, 1, 1)), rng.uniform(0.0, np.pi, (TASKS, 1, 1))
    x, new_x = (rng.uniform(-5.0, 5.0, (TASKS, POINTS, 1)) for _ in range(2))
    return x, amplitude * np.sin(x - phase), new_x, amplitude * np.sin(new_x - phase)


def checked(p: Any, batch: tuple[np.ndarray, ...]) -> bool:
    """Compares the slope of the loss along a direction with a difference of values."""
    rng = np.random.default_rng(1)
    _, slope = hr.value_and_grad(meta_loss, has_aux=True)(p, *batch)
    direction = {name: rng.standard_normal(np.shape(x)) for name, x in p.items()}
    up, down = (meta_loss({n: np.asarray(x) + s * direction[n] for n, x in p.items()}, *batch) for s in (1e-5, -1e-5))
    wanted = float(up[0] - down[0]) / 2e-5
    along = sum(float(np.sum(slope[name] * direction[name])) for name in p)
    good = bool(np.isclose(along, wanted, rtol=1e-4))
    print(f"   slope {along:.6f} {'right' if good else f'WRONG: {wanted}'}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--steps", type=int, default=FULL, help="steps of Adam")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    p: Any = initial(rng)
    print(f"Sinusoids from {POINTS} points: the mean square error before and after one step of gradient descent\n")
    good = checked(p, tasks(rng))
    optimizer, begun = hr.train.Adam(1e-3), time.perf_counter()
    state, step = optimizer.init(p), hr.value_and_grad(meta_loss, has_aux=True)
    shown = np.zeros(2)
    every = max(1, options.steps // 6)
    for k in range(1, options.steps + 1):
        (after, before), slope = step(p, *tasks(rng))
        p, state = optimizer.update(slope, state, p)
        shown += [float(before), float(after)]
        if k % every == 0:
            print("   step {:5}: {:.3f} before, {:.3f} after".format(k, *(shown / every)))
            shown[:] = 0.0
    print(f"   {options.steps} steps in {time.perf_counter() - begun:.1f} s")
    good &= checked(p, tasks(rng))
    print("\nAll results are right.\n" if good else "\nSome results are WRONG.\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
