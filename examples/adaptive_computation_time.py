"""A recurrent cell that decides how long it thinks: `python examples/adaptive_computation_time.py`.

Adaptive computation time (Graves, 2016, arXiv:1603.08983): for each input the cell takes steps until its halting
probabilities sum to almost 1. Its output is the mean of the states, weighted by these probabilities. The number of
steps and the remainder are the ponder cost, which is added to the loss. The task is the parity of a few signs.

The cell is ordinary Python: a `while` whose end a tensor decides. `hr.jit` makes one step of it; the gradient goes back
over the steps that each input took.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np

import headrace as hr

INPUTS, UNITS, BATCH = 6, 16, 24
SHORT, MOST = 0.01, 12  # the sum of probabilities that may be missing at the end; the largest number of steps
COST = 0.002  # of a step, in the loss
FULL = 1200


def ponder(p: Any, x: Any) -> tuple[Any, Any, Any]:
    """The mean state for one input, the ponder cost, and the number of steps."""
    state = hr.zeros([1, UNITS], hr.float64)
    mean = hr.zeros([1, UNITS], hr.float64)
    first = x[None] @ p["w"] + p["first"]
    total, remainder, steps = 0.0, 1.0, 0
    while total < 1.0 - SHORT and steps < MOST:
        seen = first if steps == 0 else hr.zeros_like(first)
        state = hr.tanh(seen + state @ p["u"] + p["b"])
        halt = hr.sigmoid((state * p["v"]).sum() + p["c"])
        steps += 1
        if total + halt >= 1.0 - SHORT or steps == MOST:
            remainder = 1.0 - total
            mean = mean + remainder * state
            total = 1.0
        else:
            mean = mean + halt * state
            total = total + halt
    return mean, hr.cast(steps, hr.float64) + remainder, steps


@hr.jit
def loss(p: Any, signs: Any, odd: Any) -> tuple[Any, Any]:
    """The mean loss; the share of right answers and the mean number of steps."""
    total, right, taken = 0.0, 0, 0
    for x, is_odd in zip(signs, odd):
        state, cost, steps = ponder(p, x)
        logit = (state * p["out"]).sum() + p["bias"]
        total += hr.log1p(hr.exp(-logit if is_odd else logit)) + COST * cost
        if (logit > 0.0) == is_odd:
            right += 1
        taken += steps
    return total / BATCH, (right / BATCH, taken / BATCH)


def initial(rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {"w": (INPUTS, UNITS), "u": (UNITS, UNITS), "v": (UNITS,), "out": (UNITS,)}
    p = {name: rng.standard_normal(shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
    return p | {"first": np.zeros(UNITS), "b": np.zeros(UNITS), "c": np.array(-1.0), "bias": np.array(0.0)}


def examples(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of signs with zeros at the end, and the parity of each."""
    signs = rng.choice([-1.0, 1.0], (BATCH, INPUTS))
    signs[np.arange(INPUTS) >= rng.integers(1, INPUTS + 1, (BATCH, 1))] = 0.0
    return signs, (signs == 1.0).sum(1) % 2 == 1


def in_numpy(p: dict[str, np.ndarray], signs: np.ndarray, odd: np.ndarray) -> float:
    """The same loss, written with numpy."""
    losses = []
    for x, is_odd in zip(signs, odd):
        halts, states = [], [np.zeros(UNITS)]
        while sum(halts) < 1.0 - SHORT and len(halts) < MOST:
            seen = x @ p["w"] + p["first"] if not halts else 0.0
            states.append(np.tanh(seen + states[-1] @ p["u"] + p["b"]))
            halts.append(1.0 / (1.0 + np.exp(-states[-1] @ p["v"] - p["c"])))
        halts[-1] = 1.0 - sum(halts[:-1])
        logit = sum(h * s for h, s in zip(halts, states[1:])) @ p["out"] + p["bias"]
        losses.append(np.log1p(np.exp(-logit if is_odd else logit)) + COST * (len(halts) + halts[-1]))
    return float(np.mean(losses))


def checked(p: dict[str, np.ndarray], batch: tuple[np.ndarray, np.ndarray]) -> bool:
    """Compares the loss with numpy, and its slope with a difference of values."""
    rng = np.random.default_rng(1)
    (value, _), slope = hr.value_and_grad(loss, has_aux=True)(p, *batch)
    direction = {name: rng.standard_normal(x.shape) for name, x in p.items()}
    up, down = (in_numpy({n: x + s * direction[n] for n, x in p.items()}, *batch) for s in (1e-6, -1e-6))
    along = sum(float(np.sum(slope[name] * direction[name])) for name in p)
    wanted = (up - down) / 2e-6
    good = bool(np.isclose(value, in_numpy(p, *batch)) and np.isclose(along, wanted, rtol=1e-4))
    print(f"   loss {float(value):.6f}, slope {along:.6f} {'right' if good else f'WRONG: {wanted}'}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--steps", type=int, default=FULL, help="steps of Adam")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    p: Any = initial(rng)
    print("Adaptive computation time on the parity of up to six signs\n")
    good = checked(p, examples(rng))
    optimizer, begun = hr.train.Adam(3e-3), time.perf_counter()
    state, step = optimizer.init(p), hr.value_and_grad(loss, has_aux=True)
    shown = np.zeros(3)
    every = max(1, options.steps // 6)
    for k in range(1, options.steps + 1):
        (value, (right, taken)), slope = step(p, *examples(rng))
        p, state = optimizer.update(slope, state, p)
        shown += [float(value), float(right), float(taken)]
        if k % every == 0:
            mean_loss, accuracy, steps = shown / every
            print(f"   step {k:5}: loss {mean_loss:.4f}, {accuracy:.1%} right, {steps:.2f} steps for an input")
            shown[:] = 0.0
    print(f"   {options.steps} steps in {time.perf_counter() - begun:.1f} s")
    good &= checked({name: np.asarray(x) for name, x in p.items()}, examples(rng))
    print("\nAll results are right.\n" if good else "\nSome results are WRONG.\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
