"""Deep nesting: loops and conditionals past Python's limits, and recursion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.errors import InvalidArgumentError, ResourceExhaustedError
from headrace.ir.graph import Tensor
from tests.compile.running import both, failure, run, source

i32 = hr.int32


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with hr.Graph():
        yield


def nested(depth: int, value: Tensor, trips: Any = 1) -> Tensor:
    """Nested loops, `depth` of them, around `value * 3 + 1`."""
    if not depth:
        return value * 3 + 1
    out: Tensor = hr.while_loop(
        lambda i, v: i < trips, lambda i, v: (i + 1, nested(depth - 1, v, 1) + i + depth), [0, value]
    )[1]
    return out


@pytest.mark.matrix
@pytest.mark.parametrize("depth", [15, 16, 25])
def test_nested_loops(depth: int) -> None:
    x, n = hr.placeholder(i32, [], name="x"), hr.placeholder(i32, [], name="n")
    y = nested(depth, x, n)
    for trips in (0, 1, 3):
        both(y, {x: 2, n: trips})
    if depth > 15:
        assert source(y, [x, n]).count("def ") > 1


def test_25_nested_loops_that_ask() -> None:
    """They do not count, and read what is outside all of them."""
    x = hr.placeholder(hr.float32, [], name="x")

    def deep(depth: int, value: Tensor) -> Tensor:
        if not depth:
            return hr.sin(value) + x
        return hr.while_loop(
            lambda d, v: d < 1.5, lambda d, v: (d + 1.0, deep(depth - 1, v) * 0.9), [x * 0.0 + 0.5, value]
        )[1]

    both(deep(25, x), {x: 0.25})


def test_the_gradient_of_nested_loops() -> None:
    x = hr.placeholder(hr.float64, [], name="x")

    def deep(depth: int, value: Tensor) -> Tensor:
        if not depth:
            return hr.sin(value * x)
        return hr.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, deep(depth - 1, v)), [0, value])[1]

    y = deep(4, x)
    both([y, *hr.gradients([y], [x])], {x: 0.7})


def test_an_error_deep_inside_names_loops_at_both_ends() -> None:
    def deep(depth: int, value: Tensor) -> Tensor:
        if not depth:
            return hr.floordiv(10, value, name="bad")
        return hr.while_loop(lambda i, v: i < 1, lambda i, v: (i + 1, deep(depth - 1, v)), [0, value], name="l")[1]

    e = failure(deep(25, hr.placeholder_with_default(0, [])))
    assert type(e) is InvalidArgumentError
    note = e.__notes__[0]
    assert "more calls and loops" in note
    assert note.endswith("iteration 0 of loop 'l'")


@pytest.mark.matrix
@pytest.mark.parametrize("depth", [59, 70])
def test_nested_conditionals(depth: int) -> None:
    x = hr.placeholder(i32, [], name="x")

    def deep(k: int) -> Tensor:
        if not k:
            return x * 100
        return hr.cond(x > k, lambda: x + k, lambda: deep(k - 1))

    y = deep(depth)
    for value in (1000, depth // 2, 1, 0):
        both(y, {x: value})


@pytest.mark.matrix
def test_conditionals_and_loops_in_turn() -> None:
    x = hr.placeholder(i32, [], name="x")

    def deep(k: int, v: Tensor) -> Tensor:
        if not k:
            return v + x
        if k % 2:
            return hr.cond(v > 1000, lambda: v - 7, lambda: deep(k - 1, v))
        return hr.while_loop(lambda i, w: i < 1, lambda i, w: (i + 1, deep(k - 1, w) * 2), [0, v])[1]

    y = deep(40, x)
    for value in (0, 3, 2000):
        both(y, {x: value})


# *** recursion ***


def spec() -> Any:
    return hr.TensorSpec((), i32)


def countdown() -> Any:
    def fn(k: Tensor) -> Tensor:
        out: Tensor = hr.cond(k < 1, lambda: 0, lambda: function(k - 1) + 2)
        return out

    function = hr.Function(fn, results=spec(), name="countdown")
    return function


@pytest.mark.timeout(60)
def test_recursion_5000_deep() -> None:
    n = hr.placeholder(i32, [], name="n")
    y = countdown()(n)
    assert run(y, {n: 5000}) == 10_000
    for k in (0, 1, 20):
        assert both(y, {n: k}) == 2 * k


def test_mutual_recursion() -> None:
    def even(k: Tensor) -> Tensor:
        return hr.cond(k < 1, lambda: 1, lambda: is_odd(k - 1))

    def odd(k: Tensor) -> Tensor:
        return hr.cond(k < 1, lambda: 0, lambda: is_even(k - 1))

    is_even = hr.Function(even, results=spec(), name="even")
    is_odd = hr.Function(odd, results=spec(), name="odd")
    n = hr.placeholder(i32, [], name="n")
    for k in (0, 1, 7, 10):
        assert both([is_even(n), is_odd(n)], {n: k}) == [(k + 1) % 2, k % 2]


def test_two_calls_in_one() -> None:
    def fib(k: Tensor) -> Tensor:
        return hr.cond(k < 2, lambda: k, lambda: function(k - 1) + function(k - 2))

    function = hr.Function(fib, results=spec(), name="fib")
    n = hr.placeholder(i32, [], name="n")
    assert both(function(n), {n: 12}) == 144


def test_recursion_in_a_loop_and_a_loop_in_recursion() -> None:
    def fn(k: Tensor) -> Tensor:
        def more() -> Tensor:
            return hr.while_loop(lambda i, s: i < k, lambda i, s: (i + 1, s + function(i)), [0, 1])[1]

        return hr.cond(k < 1, lambda: 1, more)

    function = hr.Function(fn, results=spec(), name="f")
    n = hr.placeholder(i32, [], name="n")
    assert both(function(n), {n: 6}) == 64
    assert both(hr.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + function(i)), [0, 0])[1], {n: 5}) == 31


def test_calls_nested_too_deeply() -> None:
    n = hr.placeholder(i32, [], name="n")
    y = countdown()(n)
    with flags.override(CALL_DEPTH=50):
        both(y, {n: 40})
        errors = [failure(y, {n: 100}, engine) for engine in ("compiled", "interpret")]
    for e in errors:
        assert type(e) is ResourceExhaustedError
        assert "calls are nested deeper than 50" in str(e)
        assert "HEADRACE_CALL_DEPTH" in str(e)


def test_an_error_in_recursion_names_calls_at_both_ends() -> None:
    def fn(k: Tensor) -> Tensor:
        return hr.cond(k < 1, lambda: hr.floordiv(10, k, name="bad"), lambda: function(k - 1))

    function = hr.Function(fn, results=spec(), name="down")
    e = failure(function(hr.placeholder_with_default(30, [])))
    assert type(e) is InvalidArgumentError
    assert "in function 'down'" in e.__notes__[0]
    assert "more calls and loops" in e.__notes__[0]


def test_recursion_with_arrays_and_several_results() -> None:
    def fn(k: Tensor, x: Tensor) -> Any:
        def more() -> Any:
            u, v = function(k - 1, x * 0.5)
            return hr.tanh(u) + x, v + 1

        return hr.cond(k < 1, lambda: (x, k), more)

    function = hr.Function(fn, results=(hr.TensorSpec((3,), hr.float64), spec()), name="f")
    n, x = hr.placeholder(i32, [], name="n"), hr.placeholder(hr.float64, [3], name="x")
    for k in (0, 5):
        both(list(function(n, x)), {n: k, x: np.arange(3.0)})
