"""Dtypes and shapes of the variables that numbers of Python become."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from headrace.ir.weak_numbers import is_weak
from tests.autograph.programs import in_graph


def _total(v):
    total = 0.0
    for x in v:
        total += x
    return total


def test_a_total_takes_the_dtype_of_its_terms():
    for dtype in (np.float32, np.float64):
        got = in_graph(_total, np.array([0.1, 0.2], dtype))
        assert got.dtype == dtype
        assert got == dtype(0.1) + dtype(0.2)


def test_a_step_keeps_the_precision_of_a_double():
    def f(x, n):
        step = 0.1
        for _ in range(n):
            step = step * 0.5
        return x * step

    got = in_graph(f, np.float64(1.0), 3)
    assert got.dtype == np.float64
    assert got == 0.1 * 0.5 * 0.5 * 0.5


def test_an_integer_becomes_a_float_where_python_makes_one():
    def f(x, n):
        mean = 0
        for i in range(n):
            mean = (mean + i) / 2
        return mean * x

    got = in_graph(f, np.float32(3.0), 4)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, f(3.0, 4), rtol=1e-6)


def test_counters_meet_integers_of_64_bits():
    def f(n):
        i = 0
        while i < n:
            i += 1
        return i * n

    assert in_graph(f, np.int64(5)) == 25


def test_the_index_of_a_range_meets_floats():
    def f(x, n):
        total = 0.0
        for i in range(1, n):
            total += x * i
        return total

    got = in_graph(f, np.float64(2.0), np.int32(5))
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, f(2.0, 5))


def test_branches_join_numbers_and_tensors():
    def f(x):
        y = 0
        if x > 1:
            y = x
        return y

    for x, y in ((2.0, 2.0), (0.5, 0.0)):
        got = in_graph(f, np.float64(x))
        assert got.dtype == np.float64
        assert got == y


def test_shapes_that_drift_are_widened():
    def f(n):
        x = hr.zeros([1])
        for _ in range(n):
            x = hr.concat([x, [1.0]], 0)
        return x

    np.testing.assert_array_equal(in_graph(f, 2), [0, 1, 1])
    assert in_graph(_total, np.float32([[1, 2], [3, 4]])).tolist() == [4, 6]


def test_equality_compares_values():
    def f(x, y):
        return x == y, x != y, x in [3, y], x is y

    assert in_graph(f, 3, 4) == (False, True, True, False)


def test_a_constant_is_not_weak():
    with hr.Graph():
        x = hr.constant(1.0)
        assert not is_weak(x * 2.0)
        with pytest.raises(TypeError):
            x + hr.constant(1.0, hr.float64)
