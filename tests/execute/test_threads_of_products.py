"""Threads of the BLAS library for a step, by the size of its products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.execute import blas


@pytest.mark.parametrize("engine", ["", "interpret"])
@pytest.mark.parametrize(("n", "wanted"), [(8, 1), (128, 1), (256, 3)])
def test_small_products_have_one_thread(n: int, wanted: int, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    init = blas.threads.__init__

    def recording(self: Any, threads: int) -> None:
        seen.append(threads)
        init(self, 1)  # no test needs more threads than one

    monkeypatch.setattr(blas.threads, "__init__", recording)
    with flags.override(ENGINE=engine) if engine else flags.override(), hr.Graph() as g:
        x = hr.placeholder(hr.float32, (n, n))
        y = hr.matmul(x, x)
    with hr.Session(graph=g, config={"intra_op_parallelism_threads": 3}) as s:
        s.run(y, {x: np.ones((n, n), np.float32)})
    assert set(seen) == {wanted}


@pytest.mark.parametrize(("n", "wanted"), [(4, 1), (256, 1), (512, 3)])
def test_a_batch_of_unknown_size_counts_as_a_small_one(n: int, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    init = blas.threads.__init__

    def recording(self: Any, threads: int) -> None:
        seen.append(threads)
        init(self, 1)

    monkeypatch.setattr(blas.threads, "__init__", recording)
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None, n))
        y = hr.matmul(x, hr.ones((n, n)))
    with hr.Session(graph=g, config={"intra_op_parallelism_threads": 3}) as s:
        s.run(y, {x: np.ones((1, n), np.float32)})
    assert set(seen) == {wanted}
