"""Check links and paths in README, CHANGELOG, docs/ and the code."""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
#: The folders of docs/ for users, in the order of the index; internals is for contributors.
FOR_USERS = ("learn", "how-to", "reference")
FOLDERS = (*FOR_USERS, "internals")
#: Pages in no folder, which the head of the index describes.
AT_THE_TOP = ("applications.md", "distributed.md", "migrating.md", "tour.md")
#: Folders at the root whose files are named in prose.
CODE = ("headrace", "tests", "docs", "benchmarks", "examples", "site", ".ci")

#: Files of others that pages name: one that HEADRACE_DUMP writes, one of TensorFlow's.
ELSEWHERE = {"fused_regions.py", "control_flow_ops.py"}

LINK = re.compile(r"\]\(([^()\s]+)\)")
FENCE = re.compile(r"^```.*?^```", flags=re.M | re.S)
IN_CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
DOTTED = re.compile(r"([a-z]\w*)(?:\.(?!(?:py|pb|pbtxt|cpb)$)\w+)+")  # not the names of files
MENTION = re.compile(r"\bdocs/[\w/-]+\\?\.md\b")


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def text(page: Path) -> str:
    """The page without its programs and drawings."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    """Anchors of a page's headings, as GitHub writes them."""
    headings = re.findall(r"^#+ +(.*)$", text(page), flags=re.M)
    return frozenset(re.sub(r"[^\w\- ]", "", h.lower().replace("`", "")).strip().replace(" ", "-") for h in headings)


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """Each link to a file: as written, its file, its heading."""
    for target in LINK.findall(IN_CODE.sub(lambda m: "" if "](" in m[1] else m[0], text(page))):
        if "://" not in target:
            file, _, heading = target.partition("#")
            yield target, Path(os.path.normpath(page.parent / file)) if file else page, heading


@functools.cache
def files() -> frozenset[str]:
    """Endings of all paths: `headrace/ir/graph.py`, `ir/graph.py`, `graph.py`."""
    out = {"README.md", "CHANGELOG.md", "Makefile", "pyproject.toml"}
    for top in CODE:
        for folder, inner, found in os.walk(ROOT / top):
            inner[:] = [f for f in inner if f != "__pycache__"]
            parts = Path(folder).relative_to(ROOT).parts
            for start in range(len(parts)):
                out.add("/".join(parts[start:]))
                out.update("/".join((*parts[start:], f)) for f in found)
            out.update(found)
    return frozenset(out)


def code_paths(page: Path) -> Iterator[str]:
    """The paths of modules, pages and folders that a page has in backticks."""
    for token in IN_CODE.findall(text(page)):
        top = token.partition("/")[0]
        if PATH.fullmatch(token) and (token.endswith(".py") or ("/" in token and top in CODE)):
            yield token


def test_links() -> None:
    """Each link leads to a file, and to a heading of it if named."""
    wrong = []
    for page in pages():
        for target, file, heading in links(page):
            if not file.exists():
                wrong.append(f"{name(page)}: {target} does not exist")
            elif heading and file.suffix == ".md" and heading not in anchors(file):
                wrong.append(f"{name(page)}: {target} names a heading that {name(file)} does not have")
    assert not wrong, "\n".join(wrong)


def test_paths_in_backticks() -> None:
    """Each path of a module or folder in a page exists.

    CHANGELOG is left out: it names modules of past versions.
    """
    wrong = [
        f"{name(page)}: `{path}`"
        for page in pages()
        if page.name != "CHANGELOG.md"
        for path in code_paths(page)
        if path.rstrip("/") not in files() | ELSEWHERE
    ]
    assert not wrong, "\n".join(wrong)


def resolves(dotted: str) -> bool:
    """Return whether a dotted name is a module or an attribute below one."""
    names = dotted.split(".")
    for length in range(len(names), 0, -1):
        try:
            found: object = importlib.import_module(".".join(names[:length]))
        except ModuleNotFoundError as e:
            if e.name == "torch":  # an extra; the module that needs it is there
                return True
            continue
        try:
            for attribute in names[length:]:
                found = getattr(found, attribute)
        except AttributeError:
            return False
        return True
    return False


@pytest.mark.system
def test_dotted_names_in_backticks() -> None:
    """Each dotted name that begins with a package of headrace resolves: `ir.graph.Graph`."""
    packages = {p.name for p in (ROOT / "headrace").iterdir() if p.is_dir()} - {"train", "__pycache__"}
    wrong = [
        f"{name(page)}: `{token}`"
        for page in pages()
        if page.name not in ("CHANGELOG.md", "v1.md")
        if page.parent.name != "v1"  # names of TensorFlow, which tests/v1/test_table.py checks
        for token in IN_CODE.findall(text(page))
        if (dotted := DOTTED.fullmatch(token.partition("(")[0]))
        if dotted[1] in packages and not resolves(f"headrace.{dotted[0]}")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.system
def test_pages_named_in_code() -> None:
    """Each path of a page in code, messages and tools exists."""
    sources = [p for top in CODE if top != "docs" for p in (ROOT / top).rglob("*.py")]
    sources += [ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / ".ci/run", *pages()]
    wrong = [
        f"{name(source)}: {mention}"
        for source in sources
        for mention in MENTION.findall(source.read_text(encoding="utf-8"))
        if not (ROOT / mention.replace("\\", "")).exists()
    ]
    assert not wrong, "\n".join(wrong)


def test_user_pages_need_no_internals() -> None:
    """A page of learn/, how-to/ or reference/ links to none of internals/."""
    internals = DOCS / "internals"
    wrong = [
        f"{name(page)}: {target}"
        for folder in FOR_USERS
        for page in sorted((DOCS / folder).glob("*.md"))
        for target, file, _ in links(page)
        if internals in file.parents
    ]
    assert not wrong, "\n".join(wrong)


def test_index_has_every_page() -> None:
    """docs/index.md has each page once, below the heading of its folder, with a sentence."""
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    for folder in FOLDERS:
        section = index.partition(f"\n## {folder}")[2].partition("\n## ")[0]
        rows = re.findall(rf"^\| \[[^\]]+\]\({folder}/([\w-]+\.md)\) \| .+\. \|$", section, flags=re.M)
        assert sorted(rows) == sorted(p.name for p in (DOCS / folder).glob("*.md")), folder
    head = index.partition("\n## ")[0]
    assert all(len(re.findall(rf"\[[^\]]+\]\({page}\)", head)) == 1 for page in AT_THE_TOP)
    assert {p.name for p in DOCS.iterdir()} == {*FOLDERS, *AT_THE_TOP, "images", "index.md"}
