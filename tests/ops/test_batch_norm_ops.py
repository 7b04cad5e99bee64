"""Batch normalisation beyond the cases of the records. The values are TensorFlow 2.21's.

The statistics without training, empty batches, blocks, errors, and the derivatives, which the registry's suite cannot
check because there is no double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from headrace import dtypes, thresholds
from headrace.errors import InvalidArgumentError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from tests.ops.cases import evaluate, gradients, placeholder
from tests.ops.test_math_ops import run

pytestmark = pytest.mark.one_engine

F32 = np.float32
X = np.arange(8, dtype=F32).reshape(1, 2, 2, 2)
ONE, ZERO, TWO = np.ones(2, F32), np.zeros(2, F32), np.array([1, 2], F32)
NOTHING = np.zeros(0, F32)


def norm(x: np.ndarray, *vectors: np.ndarray, version: str = "V3", **attrs: Any) -> Any:
    return run(f"FusedBatchNorm{version}", x, *vectors, **attrs)


def test_given_statistics() -> None:
    mean, variance = np.full(2, 0.5, F32), np.full(2, 2, F32)
    y, *statistics, last = norm(X, ONE, ZERO, mean, variance, is_training=False)
    assert y[0, 0, 0].tolist() == pytest.approx([-0.35354456, 0.35354456])
    for found, want in zip(statistics, (mean, variance, mean, variance), strict=True):
        assert found.tolist() == want.tolist()
    assert last.shape == ()


def test_moving_average() -> None:
    mean, variance = np.full(2, 0.5, F32), np.full(2, 2, F32)
    _, m, v, saved_m, saved_v, _ = norm(X, ONE, ZERO, mean, variance, exponential_avg_factor=0.25)
    assert m.tolist() == [1.125, 1.375]
    assert v.tolist() == pytest.approx([3.1666667, 3.1666667])
    assert (saved_m.tolist(), saved_v.tolist()) == ([3, 4], [5, 5])


def test_one_element_has_no_deviation() -> None:
    y, m, v, *_ = norm(X[:, :1, :1], ONE, ZERO, NOTHING, NOTHING)
    assert (y.ravel().tolist(), m.tolist(), v.tolist()) == ([0, 0], [0, 1], [0, 0])


def test_nothing_has_no_statistics() -> None:
    for training in (True, False):
        y, *statistics, _ = norm(X[:0], ONE, ZERO, ONE, ONE, is_training=training)
        assert y.shape == (0, 2, 2, 2)
        assert all(np.isnan(s).all() for s in statistics)
    dx, *sums = run("FusedBatchNormGradV3", X[:0], X[:0], ONE, ONE, ONE, F32(0))
    assert dx.shape == (0, 2, 2, 2)
    assert [s.tolist() for s in sums] == [[0, 0], [0, 0], [], []]


@pytest.mark.parametrize("shape", [(1, 2, 2, 2, 2), (2, 2, 2, 2)])
def test_the_number_of_axes_is_that_of_the_array(shape: tuple[int, ...]) -> None:
    x = np.arange(16, dtype=F32).reshape(shape)
    assert norm(x, ONE, ZERO, NOTHING, NOTHING)[1].tolist() == [7, 8]
    if len(shape) == 5:
        assert norm(x, ONE, ZERO, NOTHING, NOTHING, data_format="NCHW")[1].tolist() == [3.5, 11.5]


def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (3, 5, 4, 2)).astype(F32)
    for layout in ("NHWC", "NCHW"):
        vectors = [np.ones(x.shape[layout.index("C")], F32)] * 4
        whole = norm(x, *vectors, data_format=layout)
        with monkeypatch.context() as m:
            m.setattr(thresholds, "CACHED_BYTES", 1)
            parts = norm(x, *vectors, data_format=layout)
        for a, b in zip(whole, parts, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("args", "attrs", "match"),
    [
        ((X[0], ONE, ZERO, ONE, ONE), {}, "input must be 4 or 5-dimensional"),
        ((X, ONE[None], ZERO, ONE, ONE), {}, "scale must be 1-dimensional"),
        ((X, np.ones(3, F32), ZERO, ONE, ONE), {}, "scale must have the same number of elements as the channels of x"),
        (
            (X, ONE, ZERO, NOTHING, ONE),
            {"is_training": False},
            "When is_training=false, mean must have the same number",
        ),
        ((X, ONE, ZERO, ONE, NOTHING), {"exponential_avg_factor": 0.5}, "When exponential_avg_factor != 1, variance"),
    ],
)
def test_invalid_batch_norm_inputs_are_refused(args: tuple[Any, ...], attrs: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        norm(*args, **attrs)


def test_errors_of_the_gradient() -> None:
    with pytest.raises(InvalidArgumentError, match="x and y_backprop must have same shape"):
        run("FusedBatchNormGradV3", X[:, :1], X, ONE, ONE, ONE, F32(0))
    with pytest.raises(InvalidArgumentError, match="reserve_space_1 must have the same number"):
        run("FusedBatchNormGradV3", X, X, ONE, np.ones(3, F32), ONE, F32(0))
    attrs = {"variance_epsilon": 0.1, "scale_after_normalization": True}
    with pytest.raises(InvalidArgumentError, match="input must be 4-dimensional"):
        run("BatchNormWithGlobalNormalization", X[0], ONE, ONE, ONE, ONE, **attrs)
    with pytest.raises(InvalidArgumentError, match="var must be 1-dimensional with 2 elements"):
        run("BatchNormWithGlobalNormalization", X, ONE, np.ones(3, F32), ONE, ONE, **attrs)
    with pytest.raises(InvalidArgumentError, match="backprop must have the shape of t"):
        run("BatchNormWithGlobalNormalizationGrad", X, ONE, ONE, ONE, X[:, :1], **attrs)


def test_gradient_with_given_statistics() -> None:
    for layout in ("NHWC", "NCHW"):
        x = X if layout == "NHWC" else np.moveaxis(X, 3, 1)
        attrs = {"is_training": False, "data_format": layout}
        dx, dscale, doffset, *_ = run("FusedBatchNormGradV3", x * x, x, TWO, TWO, TWO, F32(0), **attrs)
        dx = dx if layout == "NHWC" else np.moveaxis(dx, 1, 3)
        np.testing.assert_allclose(dx[0, 1, 1], [35.998203, 69.294731], rtol=1e-5)
        np.testing.assert_allclose(dscale, [231.988418, 231.925232], rtol=1e-5)
        assert doffset.tolist() == [56, 84]


# *** Derivatives, by differences in double precision ***


def normalised(x: Any, scale: Any, offset: Any, mean: Any, variance: Any, axes: Any, training: bool) -> Any:
    m, v = (x.mean(axes, keepdims=True), x.var(axes, keepdims=True)) if training else (mean, variance)
    return (x - m) / np.sqrt(v + 1e-2) * scale + offset


def first(g: Any, x: Any, scale: Any, mean: Any, variance: Any, axes: Any, training: bool) -> Sequence[Any]:
    m, v = (x.mean(axes, keepdims=True), x.var(axes, keepdims=True)) if training else (mean, variance)
    r = 1 / np.sqrt(v + 1e-2)
    h = (x - m) * r
    sums = (g * h).sum(axes, keepdims=True), g.sum(axes, keepdims=True)
    inner = g - g.mean(axes, keepdims=True) - h * (g * h).mean(axes, keepdims=True) if training else g
    return scale * r * inner, *sums


def differences(f: Callable[..., Sequence[Any]], xs: Sequence[Any], weights: Sequence[Any], which: int) -> np.ndarray:
    """The gradient of `Σ weights · f(xs)` by one of the arrays."""
    out, step = np.zeros(xs[which].shape), 1e-5
    for i in np.ndindex(out.shape):
        for sign in (-1, 1):
            moved = [x.astype(float) for x in xs]
            moved[which][i] += sign * step
            out[i] += sign * sum(np.sum(w * y) for w, y in zip(weights, f(*moved), strict=True)) / (2 * step)
    return out


@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "NDHWC"])
@pytest.mark.parametrize("training", [True, False])
def test_first_and_second_derivatives(layout: str, training: bool) -> None:
    rng = np.random.default_rng(7)
    axis = layout.index("C")
    shape = [2, 1, 3, 2, 2][: len(layout)]
    shape[axis] = 2
    wide = [2 if i == axis else 1 for i in range(len(layout))]
    axes = tuple(i for i in range(len(layout)) if i != axis)
    draw: Callable[..., np.ndarray] = lambda *s: rng.uniform(0.5, 1.5, s).astype(F32)
    x, g, u = draw(*shape), draw(*shape), draw(*shape)
    scale, offset, mean, variance, v, w = (draw(2) for _ in range(6))
    b = Builder(Graph())
    arrays = [x, scale, offset, mean, variance]
    tensors = [placeholder(b, a, a.shape) for a in arrays]
    attrs = {"epsilon": 1e-2, "data_format": layout, "is_training": training}
    y, *_ = b.FusedBatchNormV3(*tensors, **attrs)
    seed = placeholder(b, g, g.shape)
    dxs = gradients(b, [y], [seed], tensors[:3])
    assert gradients(b, [y], [seed], tensors[3:]) == [None, None]
    seeds = [placeholder(b, a, a.shape) for a in (u, v, w)]
    seconds = gradients(b, dxs, seeds, [seed, tensors[0], tensors[1]])
    fed = dict(zip([*tensors, seed, *seeds], [*arrays, g, u, v, w], strict=True))
    found = evaluate([*dxs, *seconds], fed)

    s, o, m, q, v, w = (a.astype(float).reshape(wide) for a in (scale, offset, mean, variance, v, w))
    forward: Callable[..., Any] = lambda x, s, o: (normalised(x, s, o, m, q, axes, training),)
    for i, got in enumerate(found[:3]):
        want = differences(forward, [x, s, o], [g], i)
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=2e-3, atol=2e-4, err_msg=f"first, {i}")
    backward: Callable[..., Any] = lambda g, x, s: first(g, x, s, m, q, axes, training)
    for i, got in enumerate(found[3:]):
        want = differences(backward, [g, x, s], [u, v, w], i)
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=2e-3, atol=2e-3, err_msg=f"second, {i}")


def test_half_precision_has_its_derivatives() -> None:
    b = Builder(Graph())
    x = b.Placeholder(dtype=dtypes.bfloat16, shape=(2, 3, 3, 2))
    scale, offset, mean, variance = (b.Placeholder(dtype=dtypes.float32, shape=(2,)) for _ in range(4))
    y = b.FusedBatchNormV2(x, scale, offset, mean, variance)[0]
    dx, dscale = gradients(b, [y], [b.OnesLike(y)], [x, scale])
    again = gradients(b, [dx], [b.OnesLike(dx)], [x, scale])
    assert [t.dtype for t in (dx, dscale, *again)] == [dtypes.bfloat16, dtypes.float32] * 2


def test_no_gradient_goes_through_the_statistics() -> None:
    b = Builder(Graph())
    tensors = [placeholder(b, a, a.shape) for a in (X, ONE, ZERO, ONE, ONE)]
    _, mean, *_ = b.FusedBatchNorm(*tensors)
    found = gradients(b, [mean], [b.OnesLike(mean)], tensors[:2])
    for got in evaluate(found, dict(zip(tensors, (X, ONE, ZERO, ONE, ONE), strict=True))):
        assert not got.any()
