"""Nests and products that a step repeats are calls of shared functions."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.targets.native import engine
from tests.targets.native.random_checks import EVERYWHERE
from tests.targets.native.region_running import run

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine


def source(fetches: Any, feeds: Any) -> str:
    """LLVM's text of a step."""
    with flags.override(NATIVE="on", CACHE="off"), hr.Session(engine="compiled") as session:
        return str(session.explain(fetches, list(feeds)).native_source)


def calls(text: str) -> int:
    """The number of calls of nests."""
    return text.count("call void @core0.nest")


def unrolled(n: int, dtype: Any = hr.float32) -> tuple[Any, Any]:
    """The loss of an unrolled recurrent network with its gradients, and feeds."""
    x, w = hr.placeholder(dtype, [n, 4, 8]), hr.placeholder(dtype, [16, 8])
    h = hr.zeros([4, 8], dtype)
    for row in hr.unstack(x):
        h = hr.tanh(hr.matmul(hr.concat([row, h], 1), w))
    loss = hr.reduce_sum(h * h)
    rng = np.random.default_rng(1)
    feeds = {x: rng.uniform(-1, 1, [n, 4, 8]), w: rng.uniform(-0.3, 0.3, [16, 8])}
    return [loss, *hr.gradients(loss, [x, w])], {t: v.astype(dtype.numpy) for t, v in feeds.items()}


@pytest.mark.parametrize("dtype", [hr.float32, hr.float64])
def test_an_unrolled_loop_has_the_results_of_the_python_target(dtype: Any) -> None:
    with hr.Graph():
        run(*unrolled(6, dtype))


@pytest.mark.system
def test_the_code_of_an_unrolled_loop_does_not_grow_by_its_nests() -> None:
    found = []
    for n in (8, 16):
        with hr.Graph():
            found.append(source(*unrolled(n)))
    assert calls(found[1]) >= calls(found[0]) + 8
    assert found[0].count("define ") == found[1].count("define ")
    assert len(re.findall("llvm.loop.parallel_accesses", found[0])) == len(
        re.findall("llvm.loop.parallel_accesses", found[1])
    )
    estimates = list(map(engine.compile_seconds, found))
    assert estimates[1] < 1.2 * estimates[0]


def test_nests_with_other_constants_layouts_or_dtypes_are_not_shared() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, [4, 8])
        k = hr.placeholder(hr.float32, [])
        others = [x * 2.0, x * 3.0, hr.transpose(x) * 2.0, x[:, :4] * 2.0, hr.cast(x, hr.float64) * 2.0, x * k]
        fetches = [y for other in others for y in (other, hr.matmul(other, other, transpose_b=True))]
        feeds = {x: np.arange(32, dtype=np.float32).reshape(4, 8), k: np.float32(4)}
        run(fetches, feeds)


def test_nests_that_differ_in_a_fed_number_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in EVERYWHERE.items():
        monkeypatch.setattr(thresholds, name, value)
    with hr.Graph():
        x, a, b = hr.placeholder(hr.float32, [4, 4]), hr.placeholder(hr.float32, []), hr.placeholder(hr.float32, [])
        y = hr.matmul(hr.matmul(x * a, x) * b, x) * 2.0
        feeds = {x: np.ones((4, 4), np.float32), a: np.float32(2), b: np.float32(3)}
        with flags.override(OPTIMIZE="off"):
            text = source(y, feeds)
            run(y, feeds)
    assert calls(text) == 1


def test_equal_large_nests_have_one_function_for_their_parts() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, [1024, 1024])
        y = x
        for _ in range(3):
            y = hr.transpose(hr.tanh(y))
        with flags.override(OPTIMIZE="off"):
            text = source([y, hr.transpose(y)], {x: np.ones((1024, 1024), np.float32)})
    assert text.count("call i1 @headrace_parts") > text.count("define internal void @core0.part")


@pytest.mark.parametrize("most", [0, 1, 100])
def test_the_number_of_copies_in_a_loop_is_a_threshold(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(thresholds, "COPIES_IN_LOOPS", most)
    with hr.Graph():
        x, w = hr.placeholder(hr.float32, [2, 8]), hr.placeholder(hr.float32, [8, 8])

        def body(i: Any, v: Any) -> Any:
            for _ in range(3):
                v = hr.tanh(hr.matmul(v, w))
            return i + 1, v

        y = hr.while_loop(lambda i, v: i < 50, body, [0, x])[1]
        feeds = {x: np.ones((2, 8), np.float32), w: np.eye(8, dtype=np.float32)}
        text = source(y, feeds)
        run(y, feeds)
    assert calls(text) == max(0, 3 - most)
    assert len(re.findall(r"call void @product.*noinline", text)) == max(0, 3 - most)
