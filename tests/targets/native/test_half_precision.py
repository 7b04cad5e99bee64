"""Loops of half precision are native, and round as the kernels do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags
from headrace.api import scopes
from headrace.targets.native import engine
from tests.targets.native import region_running as running
from tests.targets.native.test_indexing import fed

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine


@pytest.fixture(autouse=True)
def graph() -> Any:
    with hr.Graph():
        yield


def drawn(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * 0.5).astype(hr.as_dtype(dtype).numpy)


def check(fetches: list[Any], feeds: dict[Any, Any], units: float) -> None:
    """Compares native code with the Python target and the interpreter."""
    dtype = fetches[0].dtype.numpy
    eps = float(ml_dtypes.finfo(dtype).eps)

    def near(got: Any, want: Any) -> None:
        got, want = np.asarray(got), np.asarray(want)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        wide = want.astype(np.float64)
        np.testing.assert_allclose(got.astype(np.float64), wide, rtol=units * eps, atol=units * eps)

    with running.compared(near) as seen, hr.Session(engine="compiled") as session:
        got = session.run(fetches, feeds)
    assert not seen.reasons, seen.reasons
    assert seen.compared
    with hr.Session(engine="interpret") as session:
        for x, y in zip(got, session.run(fetches, feeds), strict=True):
            near(x, y)


RESULTS: dict[str, Callable[[Any, Any], Any]] = {
    "products": lambda x, w: [hr.matmul(x, w), hr.matmul(x, x, transpose_a=True), hr.matmul(x[None], w[None])],
    "sums": lambda x, w: [hr.reduce_sum(x), hr.reduce_sum(x, 0), hr.reduce_mean(x, 1, keepdims=True)],
    "extremes": lambda x, w: [hr.reduce_max(x, 0), hr.reduce_min(x, 1), hr.reduce_prod(x, 1)],
    "running": lambda x, w: [hr.cumsum(x, 1), hr.cumprod(x, 0, exclusive=True), hr.cumsum(x, 0, reverse=True)],
    "logarithms": lambda x, w: [hr.cumulative_logsumexp(x, 1)],
    "segments": lambda x, w: [hr.unsorted_segment_sum(x, [1, 0, 1], 2)],
    "scattered": lambda x, w: [
        hr.scatter_nd([[1], [1], [0]], x, [4, 4]),
        hr.tensor_scatter_nd_add(w, [[2], [2], [2]], x),
    ],
    "channels": lambda x, w: [scopes.builder().BiasAddGrad(x)],
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", RESULTS)
def test_results(name: str, dtype: str) -> None:
    feeds: dict[Any, Any] = {}
    x, w = fed(feeds, drawn(dtype, (3, 4))), fed(feeds, drawn(dtype, (4, 4), 1))
    check(RESULTS[name](x + 1.0, w), feeds, 1)


def test_a_product_rounds_once() -> None:
    """The products of float16 alone would overflow or lose the small numbers."""
    feeds: dict[Any, Any] = {}
    x = fed(feeds, np.array([[300.0, 2048.0, 1.0, -2048.0]], np.float16))
    w = fed(feeds, np.array([[300.0], [1.0], [1.0], [1.0]], np.float16))
    z = fed(feeds, np.array([[-300.0]], np.float16))
    fetches = [hr.matmul(hr.concat([x, z], 1), hr.concat([w, -z], 0)), hr.reduce_sum(x[:, 1:])]
    running.run(fetches, feeds)
    with hr.Session(engine="compiled") as session, flags.override(NATIVE="on"):
        product, total = session.run(fetches, feeds)
    assert product.tolist() == [[1.0]]
    assert total == 1.0


def _lstm(x: Any, h: Any, c: Any, w: Any) -> tuple[Any, Any]:
    i, f, o, g = hr.split(hr.matmul(hr.concat([x, h], 1), w), 4, 1)
    c = hr.sigmoid(f) * c + hr.sigmoid(i) * hr.tanh(g)
    return hr.sigmoid(o) * hr.tanh(c), c


LOOPS: dict[str, Callable[[Any, Any], Any]] = {
    "recurrent": lambda h, w: hr.tanh(hr.matmul(h, w[:4, :4])),
    "attention": lambda h, w: hr.tanh(hr.matmul(hr.nn.softmax(hr.matmul(h, h, transpose_b=True)), h)),
    "normalized": lambda h, w: (
        (h - hr.reduce_mean(h, 1, keepdims=True)) * hr.rsqrt(hr.reduce_mean(hr.square(h), 1, keepdims=True) + 1.0)
    ),
    "running": lambda h, w: hr.tanh(hr.cumsum(h, 1) * hr.reduce_max(h, 1, keepdims=True)),
    "gathered": lambda h, w: hr.tanh(hr.gather(h, [0, 2, 2]) + hr.gather(w[:, :4], [1, 3, 3])),
    "scattered": lambda h, w: hr.tanh(hr.tensor_scatter_nd_add(h, [[0], [0]], h[1:])),
    "entropy": lambda h, w: hr.tanh(
        h - hr.nn.softmax_cross_entropy_with_logits(labels=hr.stop_gradient(hr.square(w[:3, :4])), logits=h)[:, None]
    ),
    "convolution": lambda h, w: hr.tanh(
        hr.reshape(hr.nn.conv2d(h[None, :, :, None], w[:3, :3, None, None], strides=1, padding="SAME"), [3, 4])
    ),
    "pooling": lambda h, w: h * 0.5 + hr.nn.avg_pool2d(h[None, :, :, None], 2, 1, "SAME")[0, :, :, 0],
}


@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.matrix)])
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_native_with_its_gradient(name: str, dtype: str) -> None:
    feeds: dict[Any, Any] = {}
    h, w = fed(feeds, drawn(dtype, (3, 4))), fed(feeds, drawn(dtype, (8, 16), 1))
    out = hr.while_loop(lambda t, h: t < 4, lambda t, h: (t + 1, LOOPS[name](h, w)), (0, h))[1]
    loss = hr.reduce_sum(hr.square(out))
    slopes = [hr.convert_to_tensor(g) for g in hr.gradients(loss, [h, w]) if g is not None]
    check([loss, *slopes], feeds, 16)


@pytest.mark.system
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_an_lstm_over_rows_is_one_region_with_its_gradient(dtype: str) -> None:
    feeds: dict[Any, Any] = {}
    xs, w = fed(feeds, drawn(dtype, (5, 2, 4))), fed(feeds, drawn(dtype, (8, 16), 1))
    zeros = hr.zeros([2, 4], xs.dtype)
    body = lambda t, h, c: (t + 1, *_lstm(xs[t], h, c, w))
    h = hr.while_loop(lambda t, h, c: t < 5, body, (0, zeros, zeros))[1]
    loss = hr.reduce_mean(hr.square(h))
    check([loss, *map(hr.convert_to_tensor, hr.gradients(loss, [xs, w]))], feeds, 16)
