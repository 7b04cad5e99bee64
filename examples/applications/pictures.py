"""Pictures as SVG files: the same data give the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def save(figure: Any, path: Path) -> None:
    """Writes a figure of matplotlib as an SVG file."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "headrace"}):
        figure.savefig(path, metadata={"Date": None})
