"""Graphs of stateful ops: build a little, run a little, in one session."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes
from headrace.errors import HeadraceWarning
from headrace.grad.backward import backward
from headrace.grad.sums import dense
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Tensor


class Program:
    """A graph that grows, and a session on it.

    Attributes:
      b: builds into the graph.
      session: runs it.
    """

    def __init__(self) -> None:
        self.graph = Graph()  # in which only edges order operations
        self.b = Builder(self.graph)
        self.session = hr.Session(graph=self.graph)

    def run(self, fetches: Any, feeds: Any = None, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the graph grows", HeadraceWarning)  # it is meant to
            return self.session.run(fetches, feeds, **options)

    def feed(self, value: Any, dtype: dtypes.DType | None = None) -> Tensor:
        """A tensor of unknown static shape with this value.

        A value that a shape rule would refuse reaches the kernel.
        """
        constant = self.b.const(np.asarray(value) if dtype is None else value, dtype)
        out: Tensor = self.b.PlaceholderWithDefault(constant, shape=None)
        return out

    @contextmanager
    def fails(self, error: type[Exception], match: str) -> Iterator[None]:
        """Checks that the body fails with `error` and a text that matches."""
        with pytest.raises(error, match=match):
            yield


def gradients(b: Builder, ys: Mapping[Tensor, Tensor], xs: Sequence[Tensor]) -> list[Tensor | None]:
    """The gradients by `xs` of the sum of `y * dy` over `ys`.

    They are computed by the rules of the records. Lists carry gradients too.
    """
    return [None if g is None else dense(b, g) for g in backward(b, list(ys), list(ys.values()), xs)]


def check_gradient(p: Program, y: Tensor, xs: Mapping[Tensor, np.ndarray], orders: int = 2) -> None:
    """Compares the rules between placeholders `xs` and `y` with differences of values.

    The rules of those rules' own ops are compared too, up to `orders`.
    """
    rng = np.random.default_rng(3)
    feeds: dict[Tensor, np.ndarray] = dict(xs)
    direction = {x: rng.uniform(-1, 1, v.shape) for x, v in xs.items()}
    for order in range(1, orders + 1):
        weight = p.b.const(rng.uniform(-1, 1, np.shape(p.run(y, feeds))))
        dxs = gradients(p.b.within("gradients"), {y: weight}, list(xs))

        def along(step: float, y: Tensor = y, weight: Tensor = weight) -> float:
            moved = {x: v + step * direction[x] for x, v in feeds.items()}
            return float(np.sum(p.run(y, moved) * p.run(weight)))

        numeric = (along(1e-5) - along(-1e-5)) / 2e-5
        there = [(x, dx) for x, dx in zip(xs, dxs, strict=True) if dx is not None]
        values = p.run([dx for _, dx in there], feeds)
        exact = sum(float(np.sum(v * direction[x])) for (x, _), v in zip(there, values, strict=True))
        assert abs(exact - numeric) < 1e-6 * max(1.0, abs(exact)), f"order {order}: {exact}, by differences {numeric}"
        if not there:
            return
        # the next function: a sum of the gradients, weighed so that none cancels another
        y = p.b.AddN(
            [p.b.Sum(p.b.Mul(dx, float(i + 1)), p.b.Range(0, p.b.Rank(dx), 1)) for i, (_, dx) in enumerate(there)]
        )
