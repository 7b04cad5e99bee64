"""Gradient rules that have no suite of their own.

No case of the registry compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from headrace.dtypes import float32, float64
from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor
from tests.ops.running import Program, check_gradient, gradients

X = np.array([0.5, -1.0, 2.0])


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def through_a_scattered_list(b: Builder, x: Tensor) -> Tensor:
    items = b.TensorListScatter(b.Pack([x, b.Mul(x, x)]), np.int32([2, 0]), np.int32([3]))
    return b.Square(b.TensorListGather(items, np.int32([0, 2, 2]), np.int32([3]), element_dtype=float64))


@pytest.mark.parametrize(
    "make",
    [
        lambda b, x: b.Square(b.PlaceholderWithDefault(b.Square(x), shape=(3,))),
        lambda b, x: b.Square(b.Print(b.Square(x), [], first_n=0)),
        through_a_scattered_list,
    ],
    ids=["PlaceholderWithDefault", "Print", "TensorListScatter"],
)
def test_derivatives_of_operations_that_hand_values_on(p: Program, make: Callable[[Builder, Tensor], Tensor]) -> None:
    x = p.b.Placeholder(dtype=float64, shape=(3,))
    check_gradient(p, make(p.b, x), {x: X})


def test_the_gradient_of_ctc_loss_v2(p: Program) -> None:
    labels = np.int64([[0, 0], [0, 1], [1, 0], [1, 1]]), np.int32([1, 2, 2, 2])  # 0 is the blank here
    x = p.b.Placeholder(dtype=float32, shape=(6, 2, 4))
    loss, _ = p.b.CTCLossV2(x, *labels, np.int32([4, 6]))
    (dx,) = gradients(p.b, {loss: p.b.const(np.float32([1, 2]))}, [x])
    at = np.random.default_rng(1).normal(size=(6, 2, 4)).astype(np.float32)
    found, step = p.run(dx, {x: at}), np.float32(2**-7)
    for i in ((0, 0, 0), (1, 0, 1), (3, 1, 2), (5, 1, 0), (5, 0, 1)):  # the last is past the end of its sequence
        moved = np.zeros_like(at)
        moved[i] = step
        above, below = (p.run(loss, {x: at + m}) for m in (moved, -moved))
        assert found[i] == pytest.approx(np.dot([1, 2], above - below) / (2 * step), abs=1e-3)


def test_gradients_go_through_references(p: Program) -> None:
    v = p.b.VariableV2(shape=(3,), dtype=float64)
    seed = p.b.const(X)
    for y in (p.b.RefIdentity(v), p.b.DebugGradientRefIdentity(v)):
        (dv,) = gradients(p.b, {y: seed}, [v])
        assert p.run(dv).tolist() == X.tolist()


def test_gradients_go_straight_through_levels(p: Program) -> None:
    x, seed = p.b.Placeholder(dtype=float64, shape=(3,)), p.b.const(X)
    for y in (p.b.QuantizeAndDequantize(x), p.b.QuantizeAndDequantizeV3(x, 0.0, 0.0, 8)):
        (dx,) = gradients(p.b, {y: seed}, [x])
        assert p.run(dx, {x: [9.0, 8.0, 7.0]}).tolist() == X.tolist()


def test_no_gradient_goes_through_stop_gradient(p: Program) -> None:
    x = p.b.Placeholder(dtype=float64, shape=(3,))
    (dx,) = gradients(p.b, {p.b.Mul(x, p.b.StopGradient(x)): p.b.const(np.ones(3))}, [x])
    assert p.run(dx, {x: X}).tolist() == X.tolist()


def test_fake_levels_of_channels_have_the_gradients_of_each_channel(p: Program) -> None:
    x = np.float32([[-2, 0.3], [0.4, 5], [1.7, -6]])
    low, high, dy = np.float32([-1, -4]), np.float32([1.5, 3]), np.float32([[1, 2], [3, 4], [5, 6]])

    def found(type: str, *args: Any, dy: np.ndarray) -> list[np.ndarray]:
        inputs = [p.b.const(a) for a in args]
        out: list[np.ndarray] = p.run(gradients(p.b, {p.b.make(type, inputs, {}): p.b.const(dy)}, inputs))
        return out

    got = found("FakeQuantWithMinMaxVarsPerChannel", x, low, high, dy=dy)
    for c in range(2):
        want = found("FakeQuantWithMinMaxVars", x[:, c], low[c], high[c], dy=dy[:, c])
        for g, w in zip(got, want, strict=True):
            assert g[..., c].tolist() == w.tolist()


def test_second_derivatives_of_batch_norm_are_the_same_in_each_version(p: Program) -> None:
    rng = np.random.default_rng(2)
    x, dy, w = (p.b.const(rng.normal(size=(2, 2, 2, 3)).astype(np.float32)) for _ in range(3))
    scale, offset = (p.b.const(rng.uniform(0.5, 2, 3).astype(np.float32)) for _ in range(2))
    empty = p.b.const(np.zeros(0, np.float32))
    results = []
    for version in ("", "V2", "V3"):
        y, *_ = p.b.make(f"FusedBatchNorm{version}", [x, scale, offset, empty, empty], {})
        dx, dscale = gradients(p.b.within(f"first{version}"), {y: dy}, [x, scale])
        assert dx is not None
        results.append(p.run([dx, dscale, *gradients(p.b.within(f"second{version}"), {dx: w}, [x, scale, dy])]))
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(got, want)
