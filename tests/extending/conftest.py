"""Fixtures for extensions.

Registrations of a test are removed after it, and the package `headrace_dlp` can be installed for the length of a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import plugins
from tests.extending.registering import forgotten

PACKAGE = Path(__file__).parent / "headrace_dlp"
ENTRY_POINTS = "[headrace.plugins]\ndlp = headrace_dlp\n"

Install = Callable[..., Path]


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """Puts back what was registered; no plugins are installed, and none are loaded."""
    with forgotten():
        plugins._pending = []
        plugins._loaded.clear()
        plugins._failed.clear()
        yield


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes a package visible as installing it would: its modules next to its metadata."""

    def install(name: str, entry_points: str, modules: dict[str, str] | None = None) -> Path:
        site = tmp_path / f"site-{name}"
        info = site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entry_points)
        for module, text in (modules or {}).items():
            (site / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(site)
        plugins._pending = None
        return site

    return install


@pytest.fixture
def dlp(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package `headrace_dlp` is installed but not imported."""
    install("headrace-dlp", ENTRY_POINTS)
    monkeypatch.syspath_prepend(PACKAGE)
