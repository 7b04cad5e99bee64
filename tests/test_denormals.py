"""Denormal numbers: zeros in steps that say so, in every thread that works for them, and nowhere else."""

from __future__ import annotations

import queue
import threading
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import denormals
from headrace.denormals import flushed
from headrace.execute.threads import Pool

pytestmark = pytest.mark.skipif(not denormals._is_known, reason="this platform's register is not known")

TINY = np.float32([1e-39])


def is_flushed() -> bool:
    return bool((TINY / 2)[0] == 0 and (TINY + 0)[0] == 0)


def test_a_block_flushes_and_puts_back_what_was() -> None:
    with flushed():
        assert is_flushed()
        with flushed():
            assert is_flushed()
        assert is_flushed()
        with flushed(False):
            assert is_flushed()
    assert not is_flushed()
    with flushed(False):
        assert not is_flushed()
    with pytest.raises(ValueError, match="why not"), flushed():
        raise ValueError("why not")
    assert not is_flushed()


def test_each_thread_has_its_own() -> None:
    seen: list[bool] = []

    def other() -> None:
        denormals.begin_thread()
        seen.append(is_flushed())
        with flushed():
            seen.append(is_flushed())
        seen.append(is_flushed())

    with flushed():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(10)
        assert is_flushed()
    assert seen == [False, True, False]
    assert not is_flushed()


def test_a_pool_made_in_a_block_is_as_any_other() -> None:
    seen: queue.SimpleQueue[bool] = queue.SimpleQueue()
    pool = Pool(1, "test")
    with flushed():
        pool.submit(lambda: seen.put(is_flushed()))
        assert seen.get(timeout=10) is False
    pool.close()


def halved(times: int) -> Any:
    return hr.while_loop(lambda i, x: i < times, lambda i, x: (i + 1, x / 2), (0, hr.constant([1.0])))[1]


@pytest.mark.parametrize("engine", ["interpret", "auto"])
def test_a_step_with_a_loop_flushes(engine: str) -> None:
    with hr.Graph() as g:
        y = halved(140)
    assert hr.Session(graph=g, engine=engine).run(y) == 0
    assert not is_flushed()


@pytest.mark.parametrize("engine", ["interpret", "auto"])
def test_what_was_is_back_after_an_error(engine: str) -> None:
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, ())
        y = hr.while_loop(lambda i: i < 9, lambda i: i + 9 // n, (0,))
    session = hr.Session(graph=g, engine=engine)
    with pytest.raises(hr.errors.InvalidArgumentError):
        session.run(y, {n: 0})
    assert not is_flushed()


@pytest.mark.parametrize("engine", ["interpret", "auto"])
def test_a_step_with_products_flushes_and_others_do_not(engine: str) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (1, 1))
        session = hr.Session(graph=g, engine=engine)
        product, half = x @ hr.constant([[0.5]]), x / 2
        kept = x + 0
    assert session.run(half, {x: [[1e-39]]}) > 0
    assert session.run(kept, {x: [[1e-39]]}) > 0
    assert session.run([product, half], {x: [[1e-39]]})[1] == 0


def test_kernels_in_other_threads_flush() -> None:
    """Each of many heavy products sees it, whichever thread does it."""
    n = 300
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (n, n))
        products = [hr.matmul(x, hr.eye(n)) for _ in range(6)]
    session = hr.Session(graph=g, engine="interpret", inter_op_threads=4)
    for y in session.run(products, {x: np.full((n, n), 1e-39, np.float32)}):
        assert not y.any()


def test_the_parts_of_a_step_over_several_devices_flush() -> None:
    with hr.Graph() as g:
        out = []
        for i in range(2):
            with hr.device(f"/device:CPU:{i}"):
                out.append(halved(140))
    session = hr.Session(graph=g, devices={"CPU": 2})
    assert [y.item() for y in session.run(out)] == [0, 0]
