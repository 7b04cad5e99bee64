"""Writes what is generated: `python -m tests.manners.pages` makes docs/reference/flags.md."""

from __future__ import annotations

from pathlib import Path

from headrace import flags

FLAGS = Path(__file__).parents[2] / "docs" / "reference" / "flags.md"

if __name__ == "__main__":
    FLAGS.write_text(flags.page(), encoding="utf-8")
