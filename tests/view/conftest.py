"""A headless Chromium for the tests of the page.

Where there is none, they skip with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.view.browser import Browser, missing


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    with Browser() as started:
        yield started


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the pages of documents, each written when a test first opens it."""
    return tmp_path_factory.mktemp("pages")
