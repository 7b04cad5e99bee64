"""Loops over strips of rows: their parts and their results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import intra_op, thresholds
from headrace.targets.native.strips import Strips
from tests.targets.native import region_running as running

pytestmark = pytest.mark.one_engine

Function = Callable[[Any], Any]


@pytest.fixture(autouse=True, params=["one", "parts"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Strips of small arrays, on the thread of the caller and in parts on three."""
    monkeypatch.setattr(thresholds, "STRIPPED_BYTES", 1)
    monkeypatch.setattr(thresholds, "STRIP_BYTES", 256)
    if request.param == "parts":
        monkeypatch.setattr(thresholds, "NATIVE_THREAD_WORK", 1)
        monkeypatch.setattr(thresholds, "NATIVE_PART", 1)
        intra_op.set_threads(3)
    yield request.param
    intra_op.set_threads(1)


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    made = np.random.default_rng(0).normal(size=shape) * 4
    return made.astype(dtype)


def strips_of(function: Function, x: np.ndarray) -> list[list[str]]:
    """Compares a function's results; returns the op types of its strips' parts."""
    with hr.Graph():
        fed = hr.placeholder(hr.as_dtype(x.dtype), x.shape)
        seen = running.run(function(fed), {fed: x})
    units = running.printed(running.whole(seen.programs[0].block)).units
    return [[part.made[-1].tensor.op.type for part in u.parts] for u in units if isinstance(u, Strips)]


def reductions(x: Any) -> Any:
    return hr.reduce_sum(x, 1), hr.reduce_max(x, 0), hr.reduce_mean(x)


def softmax(x: Any) -> Any:
    e = hr.exp(x - hr.reduce_max(x, 1, keepdims=True))
    return e / hr.reduce_sum(e, 1, keepdims=True)


def normalized(x: Any) -> Any:
    """Elements less the mean of their column, divided by its deviation."""
    d = x - hr.reduce_mean(x, 0, keepdims=True)
    return d / hr.sqrt(hr.reduce_mean(d * d, 0, keepdims=True))


def test_reductions_of_one_array_read_it_once() -> None:
    assert strips_of(reductions, numbers(24, 8)) == [["Sum", "Max", "Mean"]]


def test_a_reduction_over_rows_ends_the_strips() -> None:
    assert strips_of(normalized, numbers(24, 8)) == [["Mul", "Mean"]]


def test_rows_are_normalized_in_one_loop() -> None:
    assert strips_of(softmax, numbers(24, 8)) == [["Max", "Exp", "Sum", "RealDiv"]]


def test_a_result_that_is_broadcast_along_rows_is_whole() -> None:
    assert strips_of(lambda x: x * hr.reduce_sum(x, 1), numbers(16, 16)) == []


def test_small_arrays_have_no_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "STRIPPED_BYTES", 1 << 12)
    assert strips_of(reductions, numbers(24, 8)) == []


def test_wide_rows_have_no_strips() -> None:
    assert strips_of(reductions, numbers(24, 32)) == []


def test_views_are_cut() -> None:
    def function(x: Any) -> Any:
        y = hr.reshape(hr.tanh(x), (24, 4, 2))
        return hr.reduce_sum(y, 2), y

    assert strips_of(function, numbers(24, 8)) == [["Tanh", "Reshape", "Sum"]]


def test_an_array_in_another_order_is_copied_first() -> None:
    assert strips_of(lambda x: reductions(hr.transpose(x)), numbers(8, 25)) == [["Sum", "Max", "Mean"]]


def test_results_in_between_have_memory_of_a_strip(parts: str) -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, (4096, 8))
        seen = running.run(hr.reduce_sum(hr.tanh(x), 0), {x: numbers(4096, 8)})
    text = running.printed(running.whole(seen.programs[0].block)).module.text()
    if parts == "parts":
        assert re.findall(r"@headrace_allocate\(.*?i64 (\d+)", text) == [str(256 * thresholds.NATIVE_PARTS)]
    else:
        assert "[256 x i8]" in text
        assert "headrace_allocate" not in text


@pytest.mark.parametrize("function", [reductions, softmax, normalized], ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(25, 7), (8, 16), (5, 3, 2), (63,)], ids=str)
def test_the_last_strip_may_have_fewer_rows(function: Function, shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    if len(shape) == 1:
        strips_of(lambda x: (hr.reduce_sum(x * x, 0), hr.reduce_max(x, 0)), x)
    else:
        strips_of(function, x)


def test_nan_in_any_strip_is_found() -> None:
    for row in (0, 9, 24):
        x = numbers(25, 7)
        x[row, 3] = np.nan
        x[3, 2], x[4, 2] = np.inf, -np.inf
        strips_of(reductions, x)


def test_doubles() -> None:
    x = numbers(25, 4, dtype="float64")
    assert strips_of(lambda x: (hr.reduce_max(x + 1, 1), hr.reduce_max(x, 0), hr.reduce_min(x)), x)


def test_strips_in_a_loop() -> None:
    def function(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return i + 1, hr.tanh(y) / hr.reduce_sum(y * y, 1, keepdims=True) + hr.reduce_mean(y, 0)

        return hr.while_loop(lambda i, y: i < 3, body, [0, x])[1]

    strips_of(function, numbers(25, 7))
