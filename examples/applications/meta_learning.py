"""Learning to learn sinusoids (MAML): `python -m examples.applications.meta_learning`.

Model-agnostic meta-learning finds parameters from which one step of gradient descent on ten points of a new sinusoid
gives a good fit. The loss to minimize contains a gradient, so its own gradient is of second order: `hr.value_and_grad`
of a jitted function that calls `hr.grad`, in a loop over tasks. The program compares the slope of this loss with
differences of its values, before and after learning.

The comparison are parameters that were learned to fit all sinusoids without a step: one step from them gains nothing.
Source: Finn, Abbeel and Levine, "Model-agnostic meta-learning for fast adaptation of deep networks", 2017.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from typing import Any

import numpy as np

import headrace as hr
from examples.applications import records
from examples.applications.records import Record

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


@hr.jit
def joint_loss(p: Any, x: Any, y: Any, new_x: Any, new_y: Any) -> tuple[Any, Any]:
    """The losses of `meta_loss` in the order for learning without adaptation."""
    after, before = meta_loss(p, x, y, new_x, new_y)
    return before, after


def initial(rng: np.random.Generator) -> dict[str, np.ndarray]:
    sizes = (1, HIDDEN, HIDDEN, 1)
    p = {f"w{k}": rng.standard_normal((n, m)) / np.sqrt(n) for k, (n, m) in enumerate(itertools.pairwise(sizes))}
    return p | {f"b{k}": np.zeros(m) for k, m in enumerate(sizes[1:])}


def tasks(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Points of sinusoids with random amplitudes and phases, [TASKS, POINTS, 1], twice."""
    amplitude, phase = rng.uniform(0.1, 5.0, (TASKS, 1, 1)), rng.uniform(0.0, np.pi, (TASKS, 1, 1))
    x, new_x = (rng.uniform(-5.0, 5.0, (TASKS, POINTS, 1)) for _ in range(2))
    return x, amplitude * np.sin(x - phase), new_x, amplitude * np.sin(new_x - phase)


def slope_error(p: Any) -> float:
    """Relative error of the slope along a direction, against a difference of losses."""
    rng = np.random.default_rng(1)
    batch = tasks(rng)
    _, slope = hr.value_and_grad(meta_loss, has_aux=True)(p, *batch)
    direction = {name: rng.standard_normal(np.shape(x)) for name, x in p.items()}
    up, down = (meta_loss({n: np.asarray(x) + s * direction[n] for n, x in p.items()}, *batch) for s in (1e-5, -1e-5))
    wanted = float(up[0] - down[0]) / 2e-5
    along = sum(float(np.sum(slope[name] * direction[name])) for name in p)
    return abs(along - wanted) / abs(wanted)


def learned(loss: Any, steps: int, seed: int) -> tuple[Any, np.ndarray]:
    """Parameters after steps of Adam, and `loss` of each step."""
    rng = np.random.default_rng(seed)
    p: Any = initial(rng)
    optimizer = hr.train.Adam(1e-3)
    state, step = optimizer.init(p), hr.value_and_grad(loss, has_aux=True)
    losses = np.zeros(steps)
    for k in range(steps):
        (value, _), slope = step(p, *tasks(rng))
        p, state = optimizer.update(slope, state, p)
        losses[k] = float(value)
    return p, losses


def run(options: argparse.Namespace) -> Record:
    record, steps = Record(), records.points(options.steps, 60)
    first = initial(np.random.default_rng(options.seed))
    record.figure("relative error of the slope, before learning", slope_error(first), at_most=1e-4)
    p, losses = learned(meta_loss, options.steps, options.seed)
    record.figure("relative error of the slope, after learning", slope_error(p), at_most=1e-4)
    joint, joint_losses = learned(joint_loss, options.steps, options.seed)
    for name, values in (("after a step (MAML)", losses), ("without a step (joint)", joint_losses)):
        means = values[: steps[-1]].reshape(len(steps), steps.step).mean(1)
        record.curve(name, steps, means, "square error")
    rng = np.random.default_rng(options.seed + 1)
    new = [tasks(rng) for _ in range(50)]
    for name, q, most in (("MAML", p, 1.0), ("joint learning", joint, None)):
        after, before = np.mean([[float(x) for x in meta_loss(q, *batch)] for batch in new], 0)
        record.figure(f"{name}: square error on new sinusoids, before the step", before)
        record.figure(f"{name}: after the step", after, at_most=most)
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=FULL))
