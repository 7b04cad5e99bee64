"""Fixtures that run the programs of this folder, and their deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance import processes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test may take as long as its program."""
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(processes.SECONDS + 20))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], bytes]]:
    """Runs a program in a copy of the process with TensorFlow; returns its output."""
    with processes.serving(tmp_path_factory.mktemp("programs"), "import tensorflow") as run:
        yield run


@pytest.fixture
def run_python(server: Callable[[str], bytes]) -> Callable[[str], bytes]:
    """Runs a program in a process that has imported TensorFlow; returns its output.

    The process has done nothing else.
    """
    return server


@pytest.fixture
def run_anew() -> Callable[[str], bytes]:
    """Runs a program in a new interpreter without imports; returns its output."""
    return processes.run_anew
