"""Calls of jitted functions under a tape: the gradients, random numbers, state, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import FailedPreconditionError, UnimplementedError


def test_gradients_by_arguments_captured_tensors_and_variables() -> None:
    x, y, v = hr.constant([1.0, 2.0]), hr.constant([3.0, 4.0]), hr.Variable([0.5, 0.25])
    f = hr.jit(lambda x: hr.reduce_sum(hr.tanh(x) * y * v))
    with hr.GradientTape() as tape:
        tape.watch([x, y])
        z = f(x) * 2.0
    dx, dy, dv = tape.gradient(z, [x, y, v])
    t = np.tanh([1.0, 2.0])
    np.testing.assert_allclose(dx, 2 * (1 - t**2) * [1.5, 1.0], rtol=1e-6)
    np.testing.assert_allclose(dy, 2 * t * [0.5, 0.25], rtol=1e-6)
    np.testing.assert_allclose(dv, 2 * t * [3.0, 4.0], rtol=1e-6)


def test_a_loop_that_reads_a_variable() -> None:
    v, x = hr.Variable([1.0, 2.0]), hr.constant([1.0, 2.0])
    f = hr.jit(lambda x: hr.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s * hr.reduce_sum(v * x)), (0, 1.0))[1])
    with hr.GradientTape() as tape:
        y = f(x)
    np.testing.assert_allclose(tape.gradient(y, v), [75, 150])
    with hr.GradientTape() as tape:
        y = f(x)
    v.assign([0.0, 0.0])
    with pytest.raises(FailedPreconditionError, match="changed after the call"):
        tape.gradient(y, v)


def test_random_numbers_are_those_of_the_call() -> None:
    v = hr.Variable(hr.ones([100]))
    f = hr.jit(lambda: hr.nn.dropout(v * 1.0, rate=0.5))
    for _ in range(2):
        with hr.GradientTape() as tape:
            y = f()
        np.testing.assert_array_equal(tape.gradient(y, v), y.numpy())


def test_values_before_an_assignment_of_the_function() -> None:
    v = hr.Variable(3.0)

    @hr.jit
    def f(x: Any) -> Any:
        y = v * v * x
        v.assign(100.0)
        return y

    x = hr.constant(2.0)
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    dx, dv = tape.gradient(y, [x, v])
    assert (dx.numpy(), dv.numpy(), v.numpy()) == (9, 12, 100)


def noisy_product(v: Any, x: Any) -> Any:
    """A product whose gradient needs the draws of each iteration."""
    y = x
    for _ in hr.range(3):
        y = y * v * hr.random.normal([])
    return y


def test_random_numbers_in_a_loop_are_those_of_the_call() -> None:
    v = hr.Variable(2.0)
    x = hr.constant(1.5)
    f = hr.jit(lambda x: noisy_product(v, x))
    for _ in range(2):
        with hr.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
            z = y * y
        dv, dx = tape.gradient(z, [v, x])
        want = 2 * y.numpy() ** 2
        np.testing.assert_allclose([dv.numpy() * 2.0 / 3, dx.numpy() * 1.5], [want, want], rtol=1e-5)


def test_random_numbers_of_a_branch_are_those_of_the_call() -> None:
    @hr.jit
    def f(x: Any) -> Any:
        if x[0] > 0:
            x = x * hr.random.uniform([4], 1.0, 2.0)
        return x, hr.shape(x)

    x = hr.constant([1.0, 2.0, -3.0, 4.0])
    with hr.GradientTape() as tape:
        tape.watch(x)
        y, shape = f(x)
    np.testing.assert_allclose(tape.gradient(y, x), y.numpy() / x.numpy(), rtol=1e-6)
    assert shape.numpy().tolist() == [4]


def test_a_tape_does_not_change_the_draws() -> None:
    x = hr.constant(1.0)

    def draws(with_tape: bool) -> list[float]:
        hr.random.set_seed(3)
        f = hr.jit(lambda x: noisy_product(1.0, x))
        before = float(f(x))
        if not with_tape:
            return [before, float(f(x)), float(f(x))]
        with hr.GradientTape() as tape:
            tape.watch(x)
            inside = float(f(x))
        return [before, inside, float(f(x))]

    assert draws(True) == draws(False)
    assert len(set(draws(False))) == 3


def test_the_second_derivative_of_draws_in_a_loop_is_refused() -> None:
    x = hr.constant(1.5)
    f = hr.jit(lambda x: noisy_product(x, x))
    with hr.GradientTape() as outer:
        outer.watch(x)
        with hr.GradientTape() as inner:
            inner.watch(x)
            y = f(x)
        dx = inner.gradient(y, x)
    with pytest.raises(UnimplementedError, match="second derivative of a tape through"):
        outer.gradient(dx, x)


def test_a_print_in_a_loop_runs_once(capfd: pytest.CaptureFixture[str]) -> None:
    @hr.jit
    def f(x: Any) -> Any:
        for i in hr.range(2):
            hr.print("step", i)
            x = x * x
        return x

    x = hr.constant(2.0)
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    assert tape.gradient(y, x).numpy() == 32
    assert capfd.readouterr().err.count("step") == 2


def test_a_loop_that_changes_a_variable() -> None:
    v = hr.Variable(1.0)

    @hr.jit
    def f(x: Any) -> Any:
        for _ in hr.range(3):
            v.assign_add(1.0)
            x = x * v
        return x

    x = hr.constant(5.0)
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    assert (y.numpy(), tape.gradient(y, x).numpy(), v.numpy()) == (120, 24, 4)


def test_higher_orders() -> None:
    f = hr.jit(lambda x: x * x * x)
    x = hr.constant(2.0)
    with hr.GradientTape() as outer:
        outer.watch(x)
        with hr.GradientTape() as inner:
            inner.watch(x)
            y = f(x)
        dy = inner.gradient(y, x)
    assert (dy.numpy(), outer.gradient(dy, x).numpy()) == (12, 12)


def test_a_gradient_inside_of_a_jitted_function() -> None:
    v = hr.Variable(2.0)

    @hr.jit
    def slope(x: Any) -> Any:
        return hr.grad(lambda x: x * x * v)(x)

    with hr.GradientTape() as tape:
        y = slope(hr.constant(3.0))
    assert (y.numpy(), tape.gradient(y, v).numpy()) == (12, 6)
    assert slope(hr.constant(1.0)).numpy() == 4


def test_text_and_structures_under_a_tape() -> None:
    v = hr.Variable(2.0)
    f = hr.jit(lambda s, x: {"s": s, "x": (x * v, None, x)})
    x = hr.constant(3.0)
    with hr.GradientTape() as tape:
        out = f(hr.constant("a"), x)
    assert out["s"].numpy() == b"a"
    assert out["x"][1] is None
    assert tape.gradient(out["x"][0], v).numpy() == 3


def test_calls_of_functions_inside_of_a_recorded_call() -> None:
    inner = hr.jit(lambda x: x * x * x, name="inner")

    @hr.jit
    def fact(x: Any, n: Any) -> Any:
        return hr.cond(n < 1, lambda: x, lambda: x * fact(x, n - 1))

    one = hr.jit(lambda x: inner(x) + fact(x, hr.constant(2)))
    other = hr.jit(lambda x: inner(x) * 2.0)
    x = hr.constant(2.0)
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = one(x) + other(x) + one(x)
    assert tape.gradient(y, x).numpy() == 2 * (12 + 12) + 24
