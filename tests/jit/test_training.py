"""Training steps under `hr.jit`: a tape or an optimizer inside of the function, slots, layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 3)).astype(np.float32)
Y = (X @ [1.0, -2.0, 3.0] + 0.5).astype(np.float32)


class Model:
    def __init__(self) -> None:
        self.w = hr.Variable(np.zeros(3, np.float32))
        self.b = hr.Variable(0.0)

    def loss(self, x: Any, y: Any) -> Any:
        return hr.reduce_mean(hr.square(hr.linalg.matvec(x, self.w) + self.b - y))


def taped(m: Model, opt: Any) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        with hr.GradientTape() as tape:
            loss = m.loss(x, y)
        opt.apply_gradients(zip(tape.gradient(loss, [m.w, m.b]), [m.w, m.b], strict=True))
        return loss

    return step


def minimized(m: Model, opt: Any) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        loss = m.loss(x, y)
        opt.minimize(lambda: m.loss(x, y))
        return loss

    return step


def differentiated(m: Model, opt: Any) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        def loss(w: Any, b: Any) -> Any:
            return hr.reduce_mean(hr.square(hr.linalg.matvec(x, w) + b - y))

        value, grads = hr.value_and_grad(loss, (0, 1))(m.w, m.b)
        opt.apply_gradients([(grads[0], m.w), (grads[1], m.b)])
        return value

    return step


@pytest.mark.parametrize("way", [taped, minimized, differentiated])
@pytest.mark.parametrize("make", [lambda: hr.train.Adam(0.1), lambda: hr.train.Momentum(0.05, 0.9)])
def test_a_jitted_step_trains_as_an_eager_one(way: Any, make: Any) -> None:
    one, other = Model(), Model()
    eager, step = way(one, make()), hr.jit(way(other, make()))
    for _ in range(4):
        expected, got = eager(hr.constant(X), hr.constant(Y)), step(X, Y)
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    np.testing.assert_allclose(other.w.numpy(), one.w.numpy(), rtol=1e-5)
    np.testing.assert_allclose(other.b.numpy(), one.b.numpy(), rtol=1e-4)


def test_layers_create_their_variables_in_the_first_call() -> None:
    layer = hr.layers.Dense(4)
    f = hr.jit(lambda x: layer(x))
    first = f(X)
    assert first.shape == (16, 4)
    assert len(layer.variables) == 2
    np.testing.assert_array_equal(f(X), first)
    np.testing.assert_allclose(first, layer(hr.constant(X)), rtol=1e-6)
