"""Native code is on in these tests, unlike in others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace import flags


@pytest.fixture(autouse=True)
def _native() -> Iterator[None]:
    with flags.override(NATIVE="on"):
        yield
