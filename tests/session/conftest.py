"""`custom`: the ops of `helpers.custom_ops`, for one test."""

from collections.abc import Iterator

import pytest

from tests.session.helpers import custom_ops


@pytest.fixture
def custom() -> Iterator[None]:
    with custom_ops():
        yield
