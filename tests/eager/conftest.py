"""An eager builder for each test, so that no test sees the resources of another."""

import dataclasses
from collections.abc import Iterator

import pytest

from headrace.api import scopes
from headrace.eager import EagerBuilder


@pytest.fixture(autouse=True)
def b() -> Iterator[EagerBuilder]:
    made = EagerBuilder()
    with scopes.replaced(dataclasses.replace(scopes.runtime(), eager=made)):
        yield made
