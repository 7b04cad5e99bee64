"""Random recurrent cells: equal results and gradients with the passes and without them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.optimize.pipeline import PASSES
from headrace.resources.manager import ResourceManager
from tests.optimize.loop_steps import Optimized, close, optimize

f64 = hr.float64
UNITS, BATCH = 4, 2


class Cell:
    """A loop with a random body, and the tensors that it is differentiated by.

    Args:
      seed: the seed of all choices.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.values = np.random.default_rng(seed)
        self.feeds: dict[Any, np.ndarray] = {}
        self.initial: list[Any] = []
        self.wrt: list[Any] = []
        self.times = self.rng.choice([0, 1, 3, 5])

    def tensor(self, *shape: int) -> Any:
        """A constant, variable or placeholder; derivatives by it may be wanted."""
        value = self.values.standard_normal(shape) * 0.5
        kind = self.rng.choice(["constant", "variable", "feed"])
        made: Any
        if kind == "constant":
            made = hr.constant(value)
        elif kind == "variable":
            made = hr.Variable(value)
            self.initial.append(made.initializer)
        else:
            made = hr.placeholder(f64, shape)
            self.feeds[made] = value
        self.wrt.append(made)
        return made

    def rows(self) -> Any:
        """A function that reads a row of random inputs, or of those of another time."""
        n = max(self.times, 1) + self.rng.choice([0, 0, 1, 9])
        kind = self.rng.choice(["array", "index", "gather", "batch", "middle", "backward"])
        xs = self.tensor(*((BATCH, n, UNITS) if kind == "batch" else (n, BATCH, UNITS)))
        if kind == "array":
            return hr.TensorArray(f64, n).unstack(xs).read
        if kind == "middle":
            xs = self.tensor(BATCH, UNITS, n)
            return lambda t: xs[..., t]
        reads = {
            "index": lambda t: xs[t],
            "gather": lambda t: hr.gather(xs, t),
            "batch": lambda t: xs[:, t],
            "backward": lambda t: xs[n - 1 - t],
        }
        return reads[kind]

    def linear(self, parts: list[Any], width: int) -> Any:
        """A function of rows and a state: a sum of products and biases."""
        rng = self.rng
        joined = rng.random() < 0.5
        shapes = [(UNITS * len(parts), width)] if joined else [(UNITS, width)] * len(parts)
        turned = rng.random() < 0.3
        weights = [self.tensor(*(s[::-1] if turned else s)) for s in shapes]
        biases = [self.tensor(*rng.choice([(width,), (BATCH, width), ()])) for _ in range(rng.randrange(3))]
        order = rng.random() < 0.5

        def make(xs: list[Any]) -> Any:
            xs = xs[::-1] if order else xs
            ins = [hr.concat(xs, 1)] if joined else xs
            terms = [hr.matmul(x, w, transpose_b=turned) for x, w in zip(ins, weights, strict=True)]
            for b in biases:
                if len(b.shape) == 1 and order and len(terms[-1].shape) == 2:
                    terms[-1] = hr.nn.bias_add(terms[-1], hr.identity(b))
                else:
                    terms.append(b)
            random.Random(width).shuffle(terms)
            total = terms[0]
            for t in terms[1:]:
                total = total + t
            return total + hr.zeros((BATCH, width), f64)

        return make

    def pieces(self, parts: int) -> Any:
        """A function that takes a matrix apart."""
        kind = self.rng.choice(["split", "slices", "some"])
        added = [self.rng.choice([None, None, 1.0, self.tensor(UNITS)]) for _ in range(parts)]

        def make(z: Any) -> list[Any]:
            if kind == "split":
                out = hr.split(z, parts, 1)
            else:
                out = [z[:, k * UNITS : (k + 1) * UNITS] for k in range(parts)]
            if kind == "some":
                out = [out[0], *out[1:-1], out[0]]
            return [p if a is None else p + a for p, a in zip(out, added, strict=True)]

        return make

    def build(self) -> list[Any]:
        """The fetches: a number, and its derivatives by some tensors."""
        rng = self.rng
        reads = [self.rows() for _ in range(rng.choice([1, 1, 2]))]
        gates = rng.choice([1, 2, 4])
        linear = self.linear([*reads, None], gates * UNITS)
        pieces = self.pieces(gates)
        acts = [rng.choice([hr.sigmoid, hr.tanh, hr.sin]) for _ in range(gates)]
        collects = rng.random() < 0.5
        h, c = self.tensor(BATCH, UNITS), self.tensor(BATCH, UNITS)
        start = [0, hr.identity(h), hr.identity(c)]
        if collects:
            start.append(hr.TensorArray(f64, max(self.times, 1)))

        def step(t: Any, h: Any, c: Any, *ys: Any) -> Any:
            z = linear([*(read(t) for read in reads), h])
            parts = [act(p) for act, p in zip(acts, pieces(z) if gates > 1 else [z], strict=True)]
            new = parts[0]
            for p in parts[1:]:
                new = new * p if rng.random() < 0.5 else new + p
            c = new * 0.5 + c * parts[-1]
            h = hr.tanh(c) * parts[0]
            return (t + 1, h, c, *(y.write(t, h) for y in ys))

        _, h, c, *ys = hr.while_loop(lambda t, *_: t < self.times, step, tuple(start))
        loss = hr.reduce_sum(h * h) + hr.reduce_sum(hr.sin(c))
        if ys and self.times:
            loss = loss + hr.reduce_sum(ys[0].stack() * hr.constant(self.values.standard_normal(UNITS)))
        chosen = rng.sample(self.wrt, rng.randrange(min(4, len(self.wrt)) + 1))
        return [loss, *(hr.convert_to_tensor(g) for g in hr.gradients(loss, chosen, unconnected="zero"))]


def _check(seed: int) -> Optimized:
    with hr.Graph():
        cell = Cell(seed)
        fetches = cell.build()
        resources = ResourceManager()
        if cell.initial:
            optimize([], [], (), cell.initial).run([], resources)
        feeds, fed = list(cell.feeds), list(cell.feeds.values())
        made = optimize(feeds, fetches, PASSES)
        close(made.run(fed, resources), optimize(feeds, fetches, ()).run(fed, resources), 1e-11)
        return made


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(s, marks=[pytest.mark.matrix, pytest.mark.rotated(3)]) for s in range(2, 60))]
)
def test_random_cells(seed: int) -> None:
    _check(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_many_random_cells(seed: int) -> None:
    _check(seed)


@pytest.mark.matrix
def test_the_passes_change_the_random_cells() -> None:
    rules = {note.rule for seed in range(40) for note in _check(seed).context.notes if note.fired}
    assert rules >= {"slices", "loop_rows", "loop_writes", "loop_products", "loop_sums", "loop_fission"}
