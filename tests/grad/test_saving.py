"""Loops that compute again what their gradient needs: same values, same gradients, less memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from tests.grad.numeric import check, count

f64 = hr.float64
V = np.array([0.5, 0.3, 0.7])
STRATEGIES = [hr.recompute(1), hr.recompute(3), hr.recompute(100), hr.recompute(), "auto"]


@pytest.mark.matrix
@pytest.mark.parametrize("save", STRATEGIES, ids=repr)
@pytest.mark.parametrize("trips", [0, 1, 7])
def test_gradients_are_the_same(save, trips: int) -> None:
    def make(x):
        c = x * 2.0

        def body(i, y):
            return i + 1, hr.sin(y) * c + hr.cond(y[0] > 0.0, lambda: 0.2 * hr.tanh(y), lambda: -y)

        return hr.while_loop(lambda i, y: i < trips, body, (0, x), save=save)[1]

    check(make, V, orders=2)


@pytest.mark.matrix
def test_nested_loops_that_both_compute_again() -> None:
    def make(x):
        def body(i, y):
            z = hr.while_loop(lambda j, z: j < 3, lambda j, z: (j + 1, hr.sin(z) * x), (0, y), save=hr.recompute(2))[1]
            return i + 1, z + y

        return hr.while_loop(lambda i, y: i < 4, body, (0, x), save=hr.recompute())[1]

    check(make, V, orders=2)


@pytest.mark.matrix
def test_tensor_arrays_and_maximum_iterations() -> None:
    def make(x):
        ta = hr.TensorArray(f64, 5)
        _, y, ta = hr.while_loop(
            lambda i, y, ta: i < 100,
            lambda i, y, ta: (i + 1, hr.sin(y) * x, ta.write(i, y * y)),
            (0, x, ta),
            maximum_iterations=5,
            save=hr.recompute(2),
        )
        return hr.reduce_sum(ta.stack(), 0) * y

    check(make, V, orders=2)


def _peak(save, trips: int, width: int) -> float:
    """Peak memory of the gradient of a loop of `trips` iterations, in states."""
    with hr.Graph() as g:
        x = hr.placeholder(f64, (width,))
        y = hr.while_loop(lambda i, y: i < trips, lambda i, y: (i + 1, hr.tanh(y) * x), (0, x), save=save)[1]
        (dx,) = hr.gradients(y, x)
    with hr.Session(graph=g) as session:
        at = np.linspace(0.1, 0.9, width)
        session.run(dx, {x: at})
        tracemalloc.start()
        session.run(dx, {x: at})
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak / (8 * width)


@pytest.mark.matrix
def test_memory_goes_with_the_square_root() -> None:
    trips, width = 400, 20_000
    assert trips <= _peak("all", trips, width) <= 1.1 * trips + 10
    least = 2 * np.sqrt(2 * trips)  # as many states as stretches, and the iterations of the longest
    assert _peak(hr.recompute("sqrt"), trips, width) <= 1.1 * least + 12
    assert _peak(hr.recompute(20), trips, width) <= 1.1 * (20 + 20) + 12


def test_auto_computes_again_when_all_would_be_too_much() -> None:
    def grown(limit: int) -> int:
        with hr.Graph() as g, flags.override(ACCUMULATOR_LIMIT=limit):
            x = hr.placeholder(f64, (1000,))
            hr.while_loop(
                lambda i, y: i < 10, lambda i, y: (i + 1, hr.tanh(y)), (0, x), maximum_iterations=10, save="auto"
            )
            return count(g, "While", "StatelessWhile")

    assert grown(10**9) == 1
    assert grown(10_000) == 2


def test_what_cannot_be_done_twice_is_refused() -> None:
    with hr.Graph():
        with pytest.raises(hr.errors.InvalidArgumentError, match=r"RandomUniform.*test_saving\.py.*second time"):
            hr.while_loop(
                lambda i, y: i < 3,
                lambda i, y: (i + 1, y + hr.random.uniform([], dtype=f64)),
                (0, hr.constant(0.0, f64)),
                save=hr.recompute(2),
            )
        v = hr.Variable(0.0)
        with pytest.raises(hr.errors.InvalidArgumentError, match="AssignAddVariableOp"):
            hr.recompute_grad(lambda x: v.assign_add(x))(hr.constant(1.0))


def test_bad_arguments() -> None:
    for every in (0, -1, 2.5, "log", True):
        with pytest.raises(ValueError, match="'every' must be a positive integer or 'sqrt'"):
            hr.recompute(every)
    with hr.Graph(), pytest.raises(ValueError, match="'save' of loop 'while' must be 'all', 'auto' or"):
        hr.while_loop(lambda i: i < 3, lambda i: i + 1, (0,), save="some")


def test_outside_a_graph_it_just_calls() -> None:
    assert float(hr.recompute_grad(lambda x: hr.square(x))(hr.constant(3.0))) == 9.0
