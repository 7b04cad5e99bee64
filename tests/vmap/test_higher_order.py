"""Derivatives of mapped functions, and maps of derivatives, against numerical derivatives in numpy.

The loops end at another iteration for each example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from tests.vmap.alone import as_array

X = np.array([1.3, 2.1, 0.9, 11.0])


def growth(x: Any) -> Any:
    y = x
    while y < 10.0:
        y = y * y * 0.5 + x
    return y


def derivative(f: Callable[[float], float], eps: float) -> Callable[[float], float]:
    return lambda x: (f(x + eps) - f(x - eps)) / (2 * eps)


FIRST = np.array([derivative(growth, 1e-6)(x) for x in X])
SECOND = np.array([derivative(derivative(growth, 1e-5), 1e-5)(x) for x in X])


def total(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: hr.reduce_sum(f(x))


def tangent(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: hr.jvp(f, (x,), (hr.ones_like(x),))[1]


COMPOSITIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "grad of vmap of grad": (hr.grad(total(hr.vmap(hr.grad(growth)))), SECOND),
    "vmap of grad of grad": (hr.vmap(hr.grad(hr.grad(growth))), SECOND),
    "vmap of hessian": (hr.vmap(hr.hessian(growth)), SECOND),
    "vmap of jvp": (hr.vmap(tangent(growth)), FIRST),
    "jvp of vmap": (tangent(hr.vmap(growth)), FIRST),
    "jvp of vmap of grad": (tangent(hr.vmap(hr.grad(growth))), SECOND),
    "jacobian of vmap": (hr.jacobian(hr.vmap(growth)), np.diag(FIRST)),
    "jacobian of vmap of grad": (hr.jacobian(hr.vmap(hr.grad(growth))), np.diag(SECOND)),
}


@pytest.mark.system
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_derivatives_of_a_loop_that_ends_apart(name: str) -> None:
    f, want = COMPOSITIONS[name]
    np.testing.assert_allclose(as_array(f(X)), want, rtol=1e-3, atol=1e-6)


def test_the_gradient_of_per_example_gradients() -> None:
    f, want = COMPOSITIONS["grad of vmap of grad"]
    np.testing.assert_allclose(as_array(f(X)), want, rtol=1e-3, atol=1e-6)


@pytest.mark.system
def test_third_derivatives() -> None:
    alone = [as_array(hr.grad(hr.grad(hr.grad(growth)))(hr.constant(x))) for x in X]
    got = hr.grad(total(hr.grad(total(hr.vmap(hr.grad(growth))))))(X)
    np.testing.assert_allclose(as_array(got), alone, rtol=1e-9)


@pytest.mark.system
@pytest.mark.parametrize("order", [1, 2])
def test_a_map_of_a_map_of_a_loop_that_ends_apart(order: int) -> None:
    f = hr.grad(growth) if order == 1 else hr.grad(hr.grad(growth))
    want = (FIRST, SECOND)[order - 1].reshape(2, 2)
    np.testing.assert_allclose(as_array(hr.vmap(hr.vmap(f))(X.reshape(2, 2))), want, rtol=1e-3)


@pytest.mark.system
def test_the_gradient_of_a_map_of_a_map() -> None:
    got = hr.grad(total(hr.vmap(hr.vmap(hr.grad(growth)))))(X.reshape(2, 2))
    np.testing.assert_allclose(as_array(got), SECOND.reshape(2, 2), rtol=1e-3, atol=1e-6)


def weighted(x: Any) -> Any:
    """A sum with a break, whose elements are read from a list in the gradient."""
    s = x * 0
    for v in x:
        if v > 0:
            s = s + v * x
        elif v > -0.5:
            s = s - v
        else:
            break
    return hr.reduce_sum(hr.sin(s))


@pytest.mark.system
def test_the_gradient_of_a_loop_with_a_break_over_elements() -> None:
    x = np.array([[0.2, -0.3, 1.1], [0.4, -0.7, 2.0], [-0.1, 0.5, 0.3]])
    alone = [as_array(hr.grad(weighted)(row)) for row in x]
    np.testing.assert_allclose(as_array(hr.vmap(hr.grad(weighted))(x)), alone, rtol=1e-9)


def collected(x: Any) -> Any:
    """A sum of the values that a loop collected."""
    values = []
    y = x
    while hr.reduce_max(y) < 3.0:
        y = y * 1.3 + hr.abs(x) + 0.1
        values.append(y)
    for v in values:
        y = y + v * v
    return hr.reduce_sum(hr.sin(y * 0.1))


@pytest.mark.system
def test_second_order_gradients_of_collected_values() -> None:
    x = np.array([[0.2, -0.3, 0.5], [0.9, 1.2, 0.1]])
    inner = lambda x: hr.reduce_sum(hr.sin(hr.grad(collected)(x)))
    got = hr.grad(total(hr.vmap(inner)))(x)
    np.testing.assert_allclose(as_array(got), [as_array(hr.grad(inner)(row)) for row in x], rtol=1e-9)
