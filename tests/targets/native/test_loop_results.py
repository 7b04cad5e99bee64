"""Results of loops in lists, with addends, or left out in the last iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags
from headrace.targets.native import engine

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine

ROWS, SIZE = 3, 40


def compared(make: Callable[[Any, Any, Any], Any], n: int) -> str:
    """Compares machine code with the Python target and returns its text."""
    rng = np.random.default_rng(0)
    feeds = [rng.standard_normal(shape).astype(np.float32) / 8 for shape in ((ROWS, SIZE), (SIZE, SIZE))]
    with hr.Graph() as g:
        x, w = (hr.placeholder(hr.float32, each.shape) for each in feeds)
        times = hr.placeholder(hr.int32, ())
        fetches = make(x, w, times)
    found = []
    for native in ("on", "off"):
        with flags.override(NATIVE=native, CACHE="off"):
            run = hr.Session(graph=g).make_callable(fetches, [x, w, times])
            found.append([run(*feeds, n) for _ in range(2)])
            if native == "on":
                text = hr.explain(run).native_source
    assert "call void @product_" in text
    for one, other, expected in zip(*found[0], found[1][0], strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one, expected, rtol=2e-5, atol=2e-5)
    return text


@pytest.mark.parametrize("n", [0, 1, 2, 70])
def test_results_that_are_pushed_are_read_later_in_the_iteration(n: int) -> None:
    def make(x: Any, w: Any, times: Any) -> Any:
        def body(i: Any, h: Any, a: Any, b: Any, c: Any) -> Any:
            y = hr.tanh(hr.matmul(h, w))
            z = y * y + h
            a, b = a.write(i, y), b.write(i, z)
            return i + 1, hr.tanh(z - y), a, b, c.write(i, y * z)

        lists = [hr.TensorArray(hr.float32, times, element_shape=(ROWS, SIZE)) for _ in range(3)]
        _, h, *lists = hr.while_loop(lambda i, *_: i < times, body, [0, x, *lists])
        return [h, *(each.stack() for each in lists)]

    compared(make, n)


@pytest.mark.matrix
@pytest.mark.parametrize("n", [0, 1, 2, 70])
def test_gradients_of_loops_with_residuals(n: int) -> None:
    def make(x: Any, w: Any, times: Any) -> Any:
        def body(i: Any, h: Any) -> Any:
            return i + 1, hr.tanh(hr.matmul(hr.sigmoid(h), w) + x) * hr.sin(h)

        h = hr.while_loop(lambda i, h: i < times, body, [0, x])[1]
        return [h, *hr.gradients(hr.reduce_sum(h * h), [x, w])]

    compared(make, n)


@pytest.mark.parametrize("n", [0, 1, 2, 70])
def test_a_product_that_no_later_iteration_reads(n: int) -> None:
    def make(x: Any, w: Any, times: Any) -> Any:
        def body(i: Any, h: Any, d: Any, total: Any) -> Any:
            return i + 1, hr.tanh(hr.matmul(h, w)), hr.tanh(hr.matmul(d, w)) - x, total + hr.reduce_sum(d) * h

        _, h, _, total = hr.while_loop(lambda i, *_: i < times, body, [0, x, x, hr.zeros_like(x)])
        return [h, total]

    text = compared(make, n)
    assert text.count("\nneeded") == 1


@pytest.mark.parametrize("n", [0, 1, 2, 70])
def test_sums_of_products_and_other_arrays(n: int) -> None:
    def make(x: Any, w: Any, times: Any) -> Any:
        def body(i: Any, h: Any, g: Any) -> Any:
            y = hr.matmul(h, w) + x[1]
            z = x + hr.matmul(g, w)
            return i + 1, hr.concat([y[:, 20:], z[:, :20]], 1), hr.concat([z[:, 20:], hr.tanh(y[:, :20])], 1)

        _, h, g = hr.while_loop(lambda i, *_: i < times, body, [0, x, x])
        return [h, g]

    text = compared(make, n)
    assert "_plus0_" in text
    assert f"_plus{SIZE}_" in text
