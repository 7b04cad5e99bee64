"""Schedules: their values at each step, in graphs and outside.

TensorFlow 1's functions of the same names are tested too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.train import schedules
from headrace.train.schedules import Schedule
from headrace.v1 import learning_rates


def polynomial(step: float, cycle: bool) -> float:
    steps = 9.0
    if cycle:
        steps *= max(1, math.ceil(step / steps))
    else:
        step = min(step, steps)
    return 0.49 * (1 - step / steps) ** 0.5 + 0.01


def restarts(step: float, first: float, longer: float, lower: float) -> float:
    turn, length = 0, first
    while step >= length:
        step, length, turn = step - length, length * longer, turn + 1
    return 0.5 * (0.9 * lower**turn * 0.5 * (1 + math.cos(math.pi * step / length)) + 0.1)


def linear_cosine(step: float) -> float:
    part = min(step, 12.0) / 12.0
    return 0.5 * ((0.1 + 1 - part) * 0.5 * (1 + math.cos(math.pi * 4 * part)) + 0.01)


CASES: list[tuple[Schedule, Callable[[float], float]]] = [
    (schedules.ExponentialDecay(0.5, 7, 0.9), lambda n: 0.5 * 0.9 ** (n / 7)),
    (schedules.ExponentialDecay(0.5, 7, 0.9, staircase=True), lambda n: 0.5 * 0.9 ** (n // 7)),
    (schedules.NaturalExponentialDecay(0.5, 7, 0.9), lambda n: 0.5 * math.exp(-0.9 * n / 7)),
    (schedules.InverseTimeDecay(0.5, 7, 0.9, staircase=True), lambda n: 0.5 / (1 + 0.9 * (n // 7))),
    (schedules.PolynomialDecay(0.5, 9, 0.01, 0.5), lambda n: polynomial(n, cycle=False)),
    (schedules.PolynomialDecay(0.5, 9, 0.01, 0.5, cycle=True), lambda n: polynomial(n, cycle=True)),
    (
        schedules.PiecewiseConstantDecay([3, 10], [1.0, 0.5, 0.1]),
        lambda n: 1.0 if n <= 3 else 0.5 if n <= 10 else 0.1,
    ),
    (
        schedules.CosineDecay(0.5, 12, 0.1),
        lambda n: 0.5 * (0.9 * 0.5 * (1 + math.cos(math.pi * min(n, 12) / 12)) + 0.1),
    ),
    (schedules.CosineDecayRestarts(0.5, 5, 1.0, 0.8, 0.1), lambda n: restarts(n, 5, 1.0, 0.8)),
    (schedules.CosineDecayRestarts(0.5, 5, 1.5, 0.8, 0.1), lambda n: restarts(n, 5, 1.5, 0.8)),
    (schedules.LinearCosineDecay(0.5, 12, 2.0, 0.1, 0.01), linear_cosine),
]
AT = (0, 1, 3, 4, 6, 7, 11, 14, 40)


@pytest.mark.parametrize(("schedule", "expected"), CASES)
def test_rates_are_those_of_the_definition(schedule: Schedule, expected: Callable[[float], float]) -> None:
    with hr.Graph() as g:
        n = hr.placeholder(hr.int64, ())
        rate = schedule(n)
    assert rate.dtype is hr.float32
    with hr.Session(graph=g) as session:
        for k in AT:
            want = expected(k)
            assert abs(session.run(rate, {n: k}) - want) < 1e-5, k
            assert abs(float(schedule(k)) - want) < 1e-5, k


def test_rates_have_the_dtype_of_the_first() -> None:
    assert schedules.ExponentialDecay(np.float64(0.5), 7, 0.9)(7).numpy() == 0.5 * 0.9
    assert schedules.CosineDecay(hr.constant(0.5, hr.float64), 12)(hr.constant(6)).dtype is hr.float64
    with pytest.raises(TypeError, match="must be a floating point number, got one of dtype int32"):
        schedules.CosineDecay(1, 12)(0)


def test_noise_becomes_less() -> None:
    schedule = schedules.NoisyLinearCosineDecay(1.0, 1000, initial_variance=0.25, variance_decay=1.0, seed=7)
    with hr.Graph() as g:
        n = hr.placeholder(hr.int64, ())
        noisy = schedule(n) - schedules.LinearCosineDecay(1.0, 1000)(n)
    with hr.Session(graph=g) as session:
        first, later = ([session.run(noisy, {n: k}) for _ in range(300)] for k in (0, 99))
    assert abs(np.std(first) - 0.5) < 0.06  # the root of 0.25
    assert abs(np.std(later) - 0.05) < 0.006  # of a hundredth of it


def test_boundaries_and_values_must_go_together() -> None:
    with pytest.raises(
        ValueError, match="boundaries should be 1 less than the length of values: got 2 boundaries and 2"
    ):
        schedules.PiecewiseConstantDecay([1, 2], [0.1, 0.2])
    with pytest.raises(ValueError, match="boundaries should be 1 less"):
        schedules.PiecewiseConstantDecay([], [0.1])


def test_functions_of_tensorflow_1_give_tensors() -> None:
    makers: list[tuple[Callable[[Any], Any], float]] = [
        (lambda n: learning_rates.exponential_decay(0.5, n, 7, 0.9), 0.45),
        (lambda n: learning_rates.natural_exp_decay(0.5, n, 7, 0.9), 0.5 * math.exp(-0.9)),
        (lambda n: learning_rates.inverse_time_decay(0.5, n, 7, 1.0), 0.25),
        (lambda n: learning_rates.polynomial_decay(0.5, n, 14, 0.0), 0.25),
        (lambda n: learning_rates.piecewise_constant(n, [7, 9], [1.0, 2.0, 3.0]), 1.0),
        (lambda n: learning_rates.cosine_decay(0.5, n, 14), 0.25),
        (lambda n: learning_rates.cosine_decay_restarts(0.5, n, 7), 0.5),
        (lambda n: learning_rates.linear_cosine_decay(0.5, n, 7, beta=0.5), 0.25),
        (lambda n: learning_rates.noisy_linear_cosine_decay(0.5, n, 7, 0.0, beta=0.5), 0.25),
    ]
    with tf.Graph().as_default(), tf.Session() as session:
        n = tf.get_variable("n", initializer=np.int64(7), trainable=False)
        rates = [make(n) for make, _ in makers]
        session.run(tf.global_variables_initializer())
        assert np.allclose(session.run(rates), [want for _, want in makers], atol=1e-6)
        with pytest.raises(ValueError, match="must have the same dtype as x"):
            learning_rates.piecewise_constant(n, [1.5], [1.0, 2.0])
        with pytest.raises(ValueError, match="elements all with the same dtype"):
            learning_rates.piecewise_constant(n, [1], [1.0, 2])
