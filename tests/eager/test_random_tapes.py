"""Random programs outside of graphs: derivatives by tapes and by `hr.grad` are equal."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

SHAPE = (2, 3)
Step = Callable[..., Any]


@hr.custom_gradient
def scaled(x: Any) -> Any:
    y = hr.sin(x)
    return y, lambda dy: dy * y + dy * 0.5


def by_array(x: Any, y: Any) -> Any:
    ta = hr.TensorArray(hr.float64, 3).write(0, x).write(1, y * x)
    ta = ta.write(2, ta.read(0) + ta.read(1))
    return hr.reduce_mean(ta.stack(), 0)


def by_loop(x: Any, y: Any) -> Any:
    return hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, hr.tanh(a + y)), (0, x))[1]


UNARY: list[Step] = [
    hr.sin,
    hr.tanh,
    hr.square,
    lambda x: hr.exp(hr.minimum(x, 1.0)),
    lambda x: hr.sqrt(hr.abs(x) + 1.0),
    lambda x: hr.reverse(x, [1]) * 0.5,
    lambda x: hr.cumsum(x, 1),
    lambda x: x - hr.reduce_mean(x, 0, keepdims=True),
    lambda x: hr.reshape(hr.transpose(x), SHAPE),
    lambda x: hr.gather(x, [1, 0]),
    lambda x: hr.concat([x[:, 1:], x[:, :1]], 1),
    lambda x: hr.stack(hr.unstack(x)[::-1]),
    lambda x: hr.nn.softmax(x),
    lambda x: hr.stop_gradient(x) * 2.0 + x,
    lambda x: hr.recompute_grad(lambda z: hr.tanh(z) * z)(x),
    scaled,
]
BINARY: list[Step] = [
    lambda x, y: x * y,
    lambda x, y: x + 2.0 * y,
    lambda x, y: x / (hr.square(y) + 1.0),
    hr.maximum,
    lambda x, y: hr.matmul(hr.matmul(x, y, transpose_b=True), x) * 0.1,
    lambda x, y: hr.where(x > y, x * x, y),
    lambda x, y: hr.cond(hr.reduce_sum(x) > hr.reduce_sum(y), lambda: x * y, lambda: x - y),
    lambda x, y: hr.pad(x[:1], [[0, 1], [0, 0]]) + y,
    by_array,
    by_loop,
]


def program(seed: int, length: int) -> Callable[..., Any]:
    """A function of three tensors; its operations are chosen by `seed`."""
    rng = random.Random(seed)
    steps = []
    for n in range(3, 3 + length):
        f = rng.choice(UNARY) if rng.random() < 0.5 else rng.choice(BINARY)
        steps.append((f, [rng.randrange(max(0, n - 4), n) for _ in range(1 if f in UNARY else 2)]))

    def run(*given: Any) -> Any:
        values = [g + 0.0 for g in given]
        for f, at in steps:
            values.append(f(*(values[k] for k in at)))
        return hr.reduce_sum(hr.tanh(values[-1]) + 0.1 * values[-2])

    return run


def inputs(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [hr.constant(rng.normal(size=SHAPE)) for _ in range(3)]


@pytest.mark.parametrize("seed", range(40))
def test_first_derivatives(seed: int) -> None:
    f, (x, y, z) = program(seed, 8), inputs(seed)
    v = hr.Variable(z)
    with hr.GradientTape() as tape:
        tape.watch([x, y])
        value = f(x, y, v)
    found = tape.gradient(value, [x, y, v], unconnected_gradients="zero")
    want_value, want = hr.value_and_grad(f, (0, 1, 2))(x, y, z)
    np.testing.assert_allclose(value, want_value, rtol=1e-12)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(hr.convert_to_tensor(a), b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("seed", range(100, 115))
def test_second_derivatives(seed: int) -> None:
    f, (x, y, z) = program(seed, 5), inputs(seed)
    with hr.GradientTape() as outer:
        outer.watch([x, y])
        with hr.GradientTape() as inner:
            inner.watch([x, y])
            value = f(x, y, z)
        dx, dy = inner.gradient(value, [x, y], unconnected_gradients="zero")
        size = hr.reduce_sum(dx * dx) + hr.reduce_sum(dx * dy)
    found = outer.gradient(size, [x, y], unconnected_gradients="zero")

    def sizes(x: Any, y: Any) -> Any:
        dx, dy = hr.grad(f, (0, 1))(x, y, z)
        return hr.reduce_sum(dx * dx) + hr.reduce_sum(dx * dy)

    for a, b in zip(found, hr.grad(sizes, (0, 1))(x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("seed", range(200, 210))
def test_jacobians(seed: int) -> None:
    f, given = program(seed, 4), inputs(seed)

    def rows(*xs: Any) -> Any:
        return hr.stack([f(*xs), f(*(x * 0.5 for x in xs))])

    with hr.GradientTape() as tape:
        tape.watch(given)
        value = rows(*given)
    found = tape.jacobian(value, given, unconnected_gradients="zero")
    for a, b in zip(found, hr.jacobian(rows, (0, 1, 2))(*given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_a_jitted_call_on_a_tape() -> None:
    f, (x, y, z) = program(7, 6), inputs(7)
    jitted = hr.jit(f)
    with hr.GradientTape(persistent=True) as tape:
        tape.watch([x, y])
        value = jitted(x * y, y, z) * f(x, y, z)
    found = tape.gradient(value, [x, y])
    want = hr.grad(lambda x, y: f(x * y, y, z) * f(x, y, z), (0, 1))(x, y)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
