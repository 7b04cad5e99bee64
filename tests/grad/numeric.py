"""Derivatives to order n, each compared with differences of the one before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import headrace as hr
from headrace.ir.function import owned
from headrace.ir.graph import Graph, Operation

STEP = 1e-6


def differences(f: Callable[[np.ndarray], float], at: np.ndarray) -> np.ndarray:
    """The gradient of `f` by central differences."""
    out = np.zeros_like(at)
    for i in np.ndindex(at.shape):
        e = np.zeros_like(at)
        e[i] = STEP
        out[i] = (f(at + e) - f(at - e)) / (2 * STEP)
    return out


def check(make: Callable[[Any], Any], at: Any, orders: int = 3, tolerance: float = 1e-5) -> Graph:
    """Sees that the derivatives of the sum of `make(x)` are right at x = `at`.

    Each order differentiates the product of the one before with fixed random numbers. Returns the graph.
    """
    at = np.asarray(at, np.float64)
    rng = np.random.default_rng(7)
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, at.shape)
        f = hr.reduce_sum(make(x))
        with hr.Session(graph=g) as session:
            for order in range(1, orders + 1):
                (df,) = hr.gradients(f, x, unconnected="zero")
                df = hr.convert_to_tensor(df)
                found = session.run(df, {x: at})
                want = differences(lambda v, f=f: float(session.run(f, {x: v})), at)
                scale = 1 + np.abs(want).max(initial=0)
                np.testing.assert_allclose(found / scale, want / scale, atol=tolerance, err_msg=f"order {order}")
                f = hr.reduce_sum(df * rng.normal(size=at.shape))
    return g


def operations(graph: Graph) -> Iterator[Operation]:
    """All operations of a graph and of the graphs that its operations own."""
    for op in graph.operations:
        yield op
        for inner in owned(op):
            yield from operations(inner)


def count(graph: Graph, *types: str) -> int:
    """Number of operations of these types in a graph and its sub-graphs."""
    return sum(op.type in types for op in operations(graph))
