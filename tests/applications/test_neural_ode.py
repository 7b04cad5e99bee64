"""The gradient through the adaptive solver in examples/applications."""

from __future__ import annotations

import pytest

import headrace.v1
from examples.applications import neural_ode

pytestmark = pytest.mark.system


def test_the_gradient_through_the_solver_is_that_of_differences() -> None:
    assert neural_ode.Network(headrace.v1, seed=0).slope_error() < 1e-4
