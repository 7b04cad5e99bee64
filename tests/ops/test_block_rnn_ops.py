"""LSTM and GRU cells: their gradient rules, and errors.

The rules are compared with differences of values in single precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from headrace.errors import InvalidArgumentError
from tests.ops.running import Program, gradients

LSTM = ((2, 3), (2, 2), (2, 2), (5, 8), (2,), (2,), (2,), (8,))
GRU = ((2, 3), (2, 2), (5, 4), (5, 2), (4,), (2,))


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def numbers(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    return [rng.uniform(-1, 1, s).astype(np.float32) for s in shapes]


def check(p: Program, outs: Sequence[Any], xs: Sequence[Any], values: Sequence[np.ndarray]) -> None:
    """Differences along a random direction, of a random sum of the outputs."""
    rng = np.random.default_rng(3)
    feeds = dict(zip(xs, values, strict=True))
    weights = [rng.uniform(-1, 1, np.shape(y)).astype(np.float32) for y in p.run(list(outs), feeds)]
    direction = [rng.uniform(-1, 1, v.shape).astype(np.float32) for v in values]
    dxs = p.run(gradients(p.b, {y: p.b.const(w) for y, w in zip(outs, weights, strict=True)}, list(xs)), feeds)

    def along(step: float) -> float:
        moved = {x: v + np.float32(step) * d for x, v, d in zip(xs, values, direction, strict=True)}
        found = p.run(list(outs), moved)
        return sum(float(np.sum(y.astype(np.float64) * w)) for y, w in zip(found, weights, strict=True))

    numeric = (along(1e-2) - along(-1e-2)) / 2e-2
    exact = sum(float(np.sum(g.astype(np.float64) * d)) for g, d in zip(dxs, direction, strict=True))
    assert abs(exact - numeric) < 2e-3 * max(1.0, abs(numeric))


@pytest.mark.parametrize("peephole", [False, True])
def test_gradients_of_cells(p: Program, peephole: bool) -> None:
    values = numbers(LSTM)
    xs = [p.b.Placeholder(dtype=p.b.const(v).dtype, shape=None) for v in values]
    check(p, list(p.b.LSTMBlockCell(*xs, use_peephole=peephole)), xs, values)
    values = numbers(GRU)
    xs = [p.b.Placeholder(dtype=p.b.const(v).dtype, shape=None) for v in values]
    check(p, list(p.b.GRUBlockCell(*xs)), xs, values)


@pytest.mark.parametrize("op", ["BlockLSTM", "BlockLSTMV2"])
def test_gradients_of_layers(p: Program, op: str) -> None:
    values = numbers(((4, *LSTM[0]), *LSTM[1:]))
    xs = [p.b.Placeholder(dtype=p.b.const(v).dtype, shape=None) for v in values]
    outs = p.b.make(op, [np.int64(3), *xs], {"use_peephole": True})
    check(p, [outs[1], outs[6]], xs, values)
    with pytest.raises(LookupError, match="no gradient of the output 'i'"):
        gradients(p.b, {outs[0]: p.b.OnesLike(outs[0])}, xs)


def test_steps_beyond_the_longest_are_zeros(p: Program) -> None:
    values = numbers(((4, *LSTM[0]), *LSTM[1:]))
    for y in p.run(list(p.b.BlockLSTM(np.int64(2), *values))):
        assert y[:2].all()
        assert not y[2:].any()
    for n in (-1, 5):
        with p.fails(InvalidArgumentError, r"seq_len_max must be in \[0, 4\]"):
            p.run(list(p.b.BlockLSTM(p.feed(np.int64(n)), *values)))
    with p.fails(InvalidArgumentError, "must be rank 0 but is rank 1"):
        p.run(list(p.b.BlockLSTM(p.feed(np.int64([2])), *values)))


def test_shapes_that_do_not_go_together(p: Program) -> None:
    for op, shapes in (("LSTMBlockCell", LSTM), ("GRUBlockCell", GRU)):
        values = numbers(shapes)
        for k, name in ((1, "prev"), (3, "w"), (len(shapes) - 1, "b")):
            for bad in (values[k][:1], values[k][None]):
                args = [p.feed(bad if j == k else v) for j, v in enumerate(values)]
                with p.fails(InvalidArgumentError, name):
                    p.run(list(p.b.make(op, args, {})))
