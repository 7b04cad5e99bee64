"""Resident memory over many runs of native steps.

It includes memory that Python does not allocate, such as arenas of machine code.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
import headrace.v1 as v1
from benchmarks.measure import resident_bytes
from headrace import flags, thresholds
from headrace.errors import InvalidArgumentError
from headrace.targets.native import engine

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = [pytest.mark.one_engine, pytest.mark.system]

SIZE = 64  # an array of this many rows and columns of float32 has 16 KiB


def training() -> tuple[Any, dict[Any, Any]]:
    """A training step: a loss behind a recurrence, its gradients and new values of variables."""
    x = hr.placeholder(hr.float32, [20, 8, SIZE])
    w = v1.get_variable("w", [SIZE, SIZE], initializer=v1.random_uniform_initializer(-0.1, 0.1, seed=1))
    b = v1.get_variable("b", [SIZE], initializer=v1.zeros_initializer())
    start = hr.zeros([8, SIZE], hr.float32)
    end = hr.while_loop(lambda i, h: i < 20, lambda i, h: (i + 1, hr.tanh(x[i] + hr.matmul(h, w) + b)), [0, start])[1]
    loss = hr.reduce_mean(hr.square(end - 0.5))
    train = v1.train.AdamOptimizer(0.001).minimize(loss)
    return [loss, train], {x: np.random.default_rng(0).standard_normal((20, 8, SIZE)).astype(np.float32)}


def lists() -> tuple[Any, dict[Any, Any]]:
    """The gradient of a loop of as many iterations as are fed, whose lists grow."""
    n = hr.placeholder(hr.int32, [])
    x = hr.placeholder(hr.float32, [SIZE, SIZE])
    end = hr.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, hr.tanh(v * 0.5 + x)), [0, x])[1]
    return [end, *hr.gradients(end, [x])], {n: 9, x: np.ones([SIZE, SIZE], np.float32)}


def parts() -> tuple[Any, dict[Any, Any]]:
    """Work on two threads."""
    x = hr.placeholder(hr.float32, [SIZE, SIZE])
    e = hr.exp(x - hr.reduce_max(x, 1, keepdims=True))
    return [e / hr.reduce_sum(e, 1, keepdims=True), hr.reduce_sum(x * x)], {x: np.ones([SIZE, SIZE], np.float32)}


def failing() -> tuple[Any, dict[Any, Any]]:
    """The gradient of a loop that divides by zero while its lists have elements."""
    n = hr.placeholder(hr.int32, [])
    x = hr.placeholder(hr.float32, [SIZE, SIZE])

    def body(i: Any, v: Any) -> Any:
        return i + 1, hr.tanh(v * hr.cast(7 // (8 - i), hr.float32) + x)

    end = hr.while_loop(lambda i, v: i < n, body, [0, x])[1]
    return [end, *hr.gradients(end, [x])], {n: 9, x: np.ones([SIZE, SIZE], np.float32)}


def recursion() -> tuple[Any, dict[Any, Any]]:
    """The gradient of a function that calls itself twice, with a loop."""
    n = hr.placeholder(hr.int32, [])
    x = hr.placeholder(hr.float32, [SIZE, SIZE])

    def body(k: Any, v: Any) -> Any:
        def more() -> Any:
            end = hr.while_loop(lambda i, w: i < k, lambda i, w: (i + 1, hr.tanh(w + x)), [0, v])[1]
            return f(k - 1, end) * f(k - 1, v)

        return hr.cond(k < 1, lambda: v, more)

    f = hr.Function(body, results=hr.TensorSpec((SIZE, SIZE), hr.float32), name="f")
    end = f(n, x)
    return [end, *hr.gradients(end, [x])], {n: 3, x: np.ones([SIZE, SIZE], np.float32)}


STEPS = {"training": training, "lists": lists, "parts": parts, "failing": failing, "recursion": recursion}


def growth(work: Callable[[], Any], runs: int) -> int:
    """Growth of resident memory over `runs` calls, in bytes.

    It is the least of three measurements: a leak recurs in each, while caches grow once.
    """
    for _ in range(max(200, runs // 10)):
        work()
    grown = []
    for _ in range(3):
        gc.collect()
        before = resident_bytes()
        for _ in range(runs):
            work()
        gc.collect()
        grown.append(resident_bytes() - before)
    return min(grown)


@pytest.mark.parametrize("runs", [2000, pytest.param(100_000, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize("name", STEPS)
def test_resident_memory_is_flat_over_runs(name: str, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "parts":
        for threshold in ("NATIVE_THREAD_WORK", "NATIVE_PART"):
            monkeypatch.setattr(thresholds, threshold, 100)
    with v1.Graph().as_default() as g:
        fetches, feeds = STEPS[name]()
        with hr.Session(graph=g, engine="compiled", intra_op_threads=2) as session:
            session.run(v1.global_variables_initializer())
            source = session.explain(fetches, list(feeds)).native_source
            assert source
            assert ("headrace_parts" in source) == (name == "parts")
            call = session.make_callable(fetches, list(feeds))

            def work() -> None:
                if name != "failing":
                    call(*feeds.values())
                    return
                with pytest.raises(InvalidArgumentError, match="division by zero"):
                    call(*feeds.values())

            assert growth(work, runs) < 1 << 20
