"""Functions of several areas of `headrace.v1`, compared with values that TensorFlow 2.21 computed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.function_cases import AREAS, VALUES, plain


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()


@pytest.mark.system
@pytest.mark.parametrize("area", AREAS, ids=lambda f: f.__name__)
def test_functions_have_tensorflows_values(area: Any) -> None:
    wanted = json.loads(VALUES.read_text(encoding="utf-8"))
    built = area(tf)
    with tf.Session() as session:
        for name, value in session.run(built).items():
            found = plain(value)
            try:
                np.testing.assert_allclose(np.array(found), np.array(wanted[name]), 1e-4, 1e-5, err_msg=name)
            except (TypeError, ValueError):  # of strings and of rows of different lengths
                assert found == wanted[name], name
