"""A graph that has been entered, and placeholders in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import headrace as hr
from headrace.api import scopes


@pytest.fixture
def g() -> Iterator[hr.Graph]:
    with hr.Graph() as graph:
        yield graph


@pytest.fixture
def p(g: hr.Graph) -> hr.Tensor:
    t: hr.Tensor = scopes.builder().Placeholder(dtype=hr.bool, shape=(), name="p")
    return t


@pytest.fixture
def x(g: hr.Graph) -> hr.Tensor:
    t: hr.Tensor = scopes.builder().Placeholder(dtype=hr.float32, shape=(), name="x")
    return t
