"""Denormal numbers are zeros in the steps that request it, and nowhere else.

They are zeros in every thread that works for such a step.
"""

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


def seen_by_a_function(timeout: float | None, **how: Any) -> list[bool]:
    """Whether denormals are zeros in the function that a loop calls twice.

    The values of each call are for the function, for a thread that it starts, and for itself after its own steps.
    """
    seen: list[bool] = []

    def look(x: Any) -> Any:
        seen.append(is_flushed())
        thread = threading.Thread(target=lambda: seen.append(is_flushed()))
        thread.start()
        thread.join(10)
        with hr.Graph() as inner, hr.Session(graph=inner) as other:
            other.run(hr.while_loop(lambda i: i < 2, lambda i: i + 1, (0,)))
        seen.append(is_flushed())
        return x

    with hr.Graph() as g:
        tiny = hr.constant(TINY)

        def body(i: Any, x: Any) -> Any:
            y = hr.py_func(look, [x], hr.float32)
            y.set_shape((1,))
            return i + 1, y / 2 + tiny

        x = hr.while_loop(lambda i, x: i < 2, body, (0, tiny))[1]
    with hr.Session(graph=g, **how) as session:
        value = session.run(x, timeout_ms=timeout)
        assert not is_flushed()
    assert value[0] == 0
    return seen


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_a_python_function_has_the_mode_of_the_user(engine: str) -> None:
    for timeout in (None, 60_000):
        assert seen_by_a_function(timeout, engine=engine) == [False] * 6


def test_a_python_function_on_two_devices_has_the_mode_of_the_user() -> None:
    with hr.Graph() as g:
        seen: list[bool] = []
        for i in range(2):
            with hr.device(f"/cpu:{i}"):
                x = hr.while_loop(lambda x: x < 3.0, lambda x: x * 2.0, (1.0,))
                hr.py_func(lambda x: seen.append(is_flushed()), [x], [], name=f"f{i}")
    with hr.Session(graph=g, devices={"CPU": 2}) as session:
        session.run(["f0", "f1"])
    assert seen == [False, False]


def test_a_mode_that_the_user_set_reaches_the_function_in_another_thread() -> None:
    mode = denormals.user_mode()
    assert mode is not None
    with denormals.unflushed(mode | denormals._BITS):
        assert is_flushed()
        seen: list[bool] = []
        with hr.Graph() as g:
            y = hr.py_func(lambda: seen.append(is_flushed()), [], [])
        with hr.Session(graph=g, engine="auto") as session:
            session.run(y)
            session.run(y, timeout_ms=60_000)
        with hr.Session(graph=g, engine="interpret") as session:
            session.run(y, timeout_ms=60_000)
        assert is_flushed()
    assert seen == [True] * 3
    assert not is_flushed()


def test_a_listener_has_the_mode_of_the_user() -> None:
    seen: set[bool] = set()
    with hr.Graph() as g:
        x = hr.while_loop(lambda x: x < 3.0, lambda x: x * 2.0, (1.0,))
    with hr.Session(graph=g) as session:
        session.run(x, options=hr.RunOptions(listener=lambda event: seen.add(is_flushed())))
    assert seen == {False}


def test_the_block_of_the_user_ends_with_the_block() -> None:
    with flushed():
        with denormals.unflushed():
            assert not is_flushed()
            with flushed():
                assert is_flushed()
                with denormals.unflushed():
                    assert not is_flushed()
                assert is_flushed()
            assert not is_flushed()
        assert is_flushed()
    with denormals.unflushed():
        assert not is_flushed()
    assert not is_flushed()
