"""The page of a recording as one text of HTML.

The page refers to no other file and no host. Its content security policy names its own script and style by their
hashes, so that no text of a recording can run as code: the document is data in an element that the browser does not
execute, and `<` in it is escaped. The layout runs in a worker that the page makes of a text within itself, or in the
page's own thread if the page around it, that of a notebook, forbids workers; so the policy names that text too.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path
from typing import Final

ASSETS: Final = Path(__file__).parent / "assets"

#: Scripts of the page, in the order in which they are joined.
SCRIPTS: Final = (
    *(
        "elements.js",
        "document.js",
        "graphs.js",
        "model.js",
        "moment.js",
        "layout.js",
        "graph.js",
        "timeline.js",
        "details.js",
    ),
    *("source.js", "stagegraph.js", "stages.js", "search.js", "live.js", "main.js"),
)

#: Style sheets of the page.
STYLES: Final = ("page.css", "live.css")


def assemble(document_json: str | None, is_live: bool = False) -> str:
    """Returns the page with a document in it, or one that fetches its document.

    Args:
        document_json: The document of a recording as JSON, or None for a page that fetches `recording.json` of its
            folder.
        is_live: Whether the page shows a step that is paused at breakpoints (`observe.breakpoint_page`).

    Returns:
        The text of an HTML page that needs no other file.
    """
    before, after = _frame()
    if is_live:
        before = before.replace('<html lang="en">', '<html lang="en" data-live>', 1)
    # In JSON, `<` occurs within strings only, so the escape keeps every value and no string ends the element.
    return before + ("" if document_json is None else document_json.replace("<", "\\u003c")) + after


@functools.cache
def _frame() -> tuple[str, str]:
    """The page before and after the place of the document."""
    style = "\n".join(map(_asset, STYLES))
    script = '"use strict";\n' + "\n".join(_asset(f"js/{name}") for name in SCRIPTS)
    library = _asset("vendor/dagre.min.js").replace("//# sourceMappingURL=dagre.min.js.map", "")
    worker = f"/*! dagre\n{_asset('vendor/dagre.LICENSE.txt')}*/\n(() => {{\n{library}\n{_asset('worker.js')}}})();\n"
    for text in (script, worker):
        if "</script" in text.lower() or "<!--" in text:
            raise AssertionError("a script of the page would end its own element")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}' '{_hash(worker)}' blob:",
            "worker-src blob:",
            f"style-src '{_hash(style)}'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    page = _asset("index.html").replace('Security-Policy" content=""', f'Security-Policy" content="{policy}"')
    before, after = page.split("/*recording*/")
    before = before.replace("/*page.css*/", style).replace("/*worker.js*/", worker)
    return before, after.replace("/*page.js*/", script)


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Source expression of a content security policy for an inline text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"
