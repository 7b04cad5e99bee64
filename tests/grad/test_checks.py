"""`hr.check_gradients`: accepts right gradients and rejects wrong ones, in every order and mode."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from headrace.grad.checks import GradientMismatch


def looped(f, n=2):
    return lambda x: hr.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, f(a)), (0, x))[1]


def test_all_combinations_of_modes_are_checked():
    checks = hr.check_gradients(hr.sin, [0.5], order=2)
    assert [(c.derivative, c.order) for c in checks] == [
        ("rev", 1),
        ("rev of rev", 2),
        ("fwd of rev", 2),
        ("fwd", 1),
        ("rev of fwd", 2),
        ("fwd of fwd", 2),
    ]
    assert all(c.error < 1e-7 for c in checks)


def test_a_loop_to_the_third_order():
    checks = hr.check_gradients(looped(lambda x: hr.sin(x) * x), [np.array([0.5, 0.7])], order=3, modes="rev")
    assert [c.order for c in checks] == [1, 2, 3]


def test_complex_numbers():
    hr.check_gradients(lambda x, y: hr.exp(x) * hr.conj(y) + hr.cast(hr.real(x), hr.complex128), [1 + 2j, [3 - 1j]])


def test_structures_integers_and_shapes_that_are_not_known():
    def f(p, n):
        return {"a": hr.boolean_mask(hr.exp(p["x"]), p["x"] > 0) * hr.cast(n, hr.float64), "n": n}

    hr.check_gradients(f, [{"x": np.float32([0.5, -1.0, 0.7])}, 3])


def test_several_directions_differ():
    first, second = hr.check_gradients(hr.sin, [[0.5, 0.6]], order=1, modes=("fwd",), directions=2)
    assert first.numeric != second.numeric


def wrong(factor):
    """A sine whose first derivative is `factor` times what it is."""
    return hr.custom_gradient(lambda x: (hr.sin(x), lambda dy: dy * hr.cos(x) * factor))


def test_a_wrong_derivative_is_found():
    with pytest.raises(GradientMismatch, match=r"1 of 2 derivatives of .* differ") as e:
        hr.check_gradients(wrong(1.0001), [0.5], modes="rev")
    assert [c.error > 1e-5 for c in e.value.checks] == [True, False]
    assert [line.endswith("<- wrong") for line in str(e.value).splitlines()[2:]] == [True, False]
    hr.check_gradients(wrong(1.0), [0.5], modes="rev")


def test_a_derivative_wrong_in_the_second_order_alone():
    @hr.custom_gradient
    def f(x):
        return hr.sin(x), lambda dy: dy * hr.stop_gradient(hr.cos(x))

    with pytest.raises(GradientMismatch) as e:
        hr.check_gradients(f, [0.5], modes="rev")
    assert [(c.derivative, c.error > 1e-5) for c in e.value.checks] == [("rev", False), ("rev of rev", True)]


def test_not_a_number_is_wrong():
    with pytest.raises(GradientMismatch):
        hr.check_gradients(hr.sqrt, [0.0], order=1, modes="rev")


def test_what_cannot_be_checked():
    with pytest.raises(ValueError, match="none of the arguments is a float"):
        hr.check_gradients(lambda n: n, [3])
    with pytest.raises(ValueError, match="modes are 'rev' and 'fwd'"):
        hr.check_gradients(hr.sin, [0.5], modes=("reverse",))
    with pytest.raises(TypeError, match="must be a list or tuple"):
        hr.check_gradients(hr.sin, 0.5)
    with pytest.raises(ValueError, match="order must be 1 or more"):
        hr.check_gradients(hr.sin, [0.5], order=0)
