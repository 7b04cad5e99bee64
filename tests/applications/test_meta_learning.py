"""The gradient of adapted parameters in examples/applications."""

from __future__ import annotations

import numpy as np
import pytest

from examples.applications import meta_learning

pytestmark = pytest.mark.system


def test_the_gradient_of_adapted_parameters_is_that_of_differences() -> None:
    assert meta_learning.slope_error(meta_learning.initial(np.random.default_rng(0))) < 1e-4
