"""Hook of the build: a wheel contains the pages of the documentation, as `headrace/docs/`.

An editable installation reads them where they are (`headrace/documentation.py`), so it gets no copy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PagesHook(BuildHookInterface):
    """Adds the pages to wheels."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See `BuildHookInterface.initialize`; `version` is "standard" or "editable"."""
        if version == "standard":
            docs = Path(self.root) / "docs"
            for page in sorted(docs.rglob("*.md")):
                build_data["force_include"][str(page)] = f"headrace/docs/{page.relative_to(docs).as_posix()}"
