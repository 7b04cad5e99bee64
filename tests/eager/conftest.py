"""`b`: the eager builder that is in use during the test; one of its own, so that no test sees another's resources."""

from collections.abc import Iterator

import pytest

from headrace.api import scopes
from headrace.eager import EagerBuilder


@pytest.fixture(autouse=True)
def b(monkeypatch: pytest.MonkeyPatch) -> Iterator[EagerBuilder]:
    made = EagerBuilder()
    monkeypatch.setattr(scopes.outside, "builder", made)
    return made
