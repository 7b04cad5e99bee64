"""Gradients of broadcast operands, for shapes that are known in part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr

Dims = tuple[int | None, ...]

#: Static shapes of two operands, shapes that are fed, and whether the graph needs the fed shapes for x and for y.
CASES: tuple[tuple[Dims, Dims, tuple[int, ...], tuple[int, ...], tuple[bool, bool]], ...] = (
    ((None, 4), (4,), (3, 4), (4,), (False, False)),
    ((None, 4), (4,), (1, 4), (4,), (False, False)),
    ((None, 4), (1, 4), (3, 4), (1, 4), (False, False)),
    ((None, 1), (None, 4), (3, 1), (3, 4), (True, True)),
    ((None, 1), (2, 4), (1, 1), (2, 4), (True, False)),
    ((2, None), (None, 4), (2, 4), (2, 4), (True, True)),
    ((5, None, 1), (1, 4), (5, 3, 1), (1, 4), (False, False)),
    ((5, None, 1), (4,), (5, 1, 1), (4,), (False, False)),
    ((1, None), (None,), (1, 4), (4,), (True, True)),
    ((1, None), (1,), (1, 4), (1,), (False, False)),
    ((None,), (), (3,), (), (False, False)),
)


@pytest.mark.parametrize(("sx", "sy", "fx", "fy", "needs"), CASES)
def test_gradients_have_the_shapes_and_sums_of_their_operands(
    sx: Dims, sy: Dims, fx: tuple[int, ...], fy: tuple[int, ...], needs: tuple[bool, bool]
) -> None:
    with hr.Graph() as g:
        x, y = hr.placeholder(hr.float64, sx), hr.placeholder(hr.float64, sy)
        weights = hr.placeholder(hr.float64)
        found = hr.gradients([x + y], [x, y], [weights])
    for t, is_needed in zip(found, needs, strict=True):
        assert ("BroadcastGradientArgs" in ancestors(t)) is is_needed
    rng = np.random.default_rng(0)
    feeds: dict[Any, np.ndarray] = {x: rng.normal(size=fx), y: rng.normal(size=fy)}
    feeds[weights] = rng.normal(size=np.broadcast_shapes(fx, fy))
    for value, shape in zip(hr.Session(graph=g).run(found, feeds), (fx, fy), strict=True):
        padded = (1,) * (feeds[weights].ndim - len(shape)) + shape
        axes = tuple(k for k, d in enumerate(padded) if d == 1)
        np.testing.assert_allclose(value, feeds[weights].sum(axes).reshape(shape))


def ancestors(t: Any) -> set[str]:
    """Types of the operations before a tensor."""
    seen, waiting = set(), [t.op]
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            waiting += [i.op for i in op.inputs]
    return {op.type for op in seen}
