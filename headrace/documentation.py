"""The pages of the documentation, which an installed package contains, and their citations.

An error or a docstring must not name a file of the source tree, which users of an installed package do not have. It
cites a page by the command that prints it, `headrace docs reference/v1`, or `headrace docs reference/errors#names` for
one section. A page has the name of its file in `docs/` without the ending. The wheel has the files in
`headrace/docs/`; in a checkout they are those of `docs/`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FENCE = "```"


def cite(page: str) -> str:
    """Text that refers to a page, for errors.

    Args:
      page: the name of the page, with "#" and a heading's anchor for one section.

    Example:
      >>> cite("reference/v1")
      '`headrace docs reference/v1`'
    """
    return f"`headrace docs {page}`"


def pages() -> list[str]:
    """Names of all pages, the index first."""
    folder = _folder()
    names = sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.md"))
    return sorted(names, key=lambda name: name != "index")


def text(name: str) -> str:
    """Returns the text of a page, or of one section.

    Args:
      name: the name of the page, or its last part, such as "v1"; with "#" and a heading's anchor for the section.

    Raises:
      LookupError: there is no such page or section.

    Example:
      >>> text("glossary").splitlines()[0]
      '# Glossary'
    """
    page, _, anchor = name.partition("#")
    known = pages()
    page = page.removeprefix("docs/").removesuffix(".md")
    found = [p for p in known if p == page] or [p for p in known if p.rpartition("/")[2] == page]
    if len(found) != 1:
        import difflib  # a slow import, needed only here

        near = found or difflib.get_close_matches(page, [*known, *(p.rpartition("/")[2] for p in known)], n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"{cite('index')} lists the pages"
        raise LookupError(f"the documentation has no page {page!r}; {hint}")
    whole = (_folder() / f"{found[0]}.md").read_text(encoding="utf-8")
    return _section(whole, found[0], anchor) if anchor else whole


def anchor_of(heading: str) -> str:
    """The anchor of a heading, in the form that links of the pages have."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def _section(whole: str, page: str, anchor: str) -> str:
    """The lines of one section, with the sections inside of it."""
    out: list[str] = []
    depth, is_code = 0, False
    anchors = []
    for line in whole.splitlines(keepends=True):
        is_code ^= line.startswith(_FENCE)
        marks = 0 if is_code else len(line) - len(line.lstrip("#"))
        if marks:
            anchors.append(anchor_of(line[marks:]))
            if depth and marks <= depth:
                break
            if anchors[-1] == anchor:
                depth = marks
        if depth:
            out.append(line)
    if not out:
        raise LookupError(f"the page {page} has no section {anchor!r}; it has {', '.join(anchors)}")
    return "".join(out)


def _folder() -> Path:
    """Folder of the pages, in the package or next to it."""
    from pathlib import Path  # a slow import: nearly all users import this module for `cite`

    package = Path(__file__).parent
    shipped = package / "docs"
    return shipped if shipped.is_dir() else package.parent / "docs"


__all__ = ["anchor_of", "cite", "pages", "text"]
