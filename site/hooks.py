"""Hooks of mkdocs: navigation, links to source files, pages of the public interface."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parent))

import stubs

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parent.parent
#: Headings of docs/index.md -> tabs of the site.
TABS: Final = {"learn": "Learn", "how-to": "How-to", "reference": "Reference", "internals": "Internals"}
_ROW: Final = re.compile(r"^\| \[(.+?)\]\((.+?)\) \|", re.M)
_OUT_OF_DOCS: Final = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+(?:headrace|tests|benchmarks|examples|site|\.ci|[A-Z]+\.md)[^)]*\)"
)


def navigation(index: str) -> list[Any]:
    """The navigation that the text of docs/index.md describes: a tab for each of its tables.

    The pages of a folder with the name of a page stand below that page.
    """
    head, *sections = re.split(r"^## ", index, flags=re.M)
    found = dict(section.split("\n", 1) for section in sections)
    if found.keys() != TABS.keys():
        raise ValueError(f"docs/index.md has the sections {list(found)}; expected {list(TABS)}")
    first = [{text: page} for text, page in re.findall(r"\[(.+?)\]\(([\w.-]+\.md)\)", head)]  # in no folder
    tabs = {TABS[name]: [{text: _below(page)} for text, page in _ROW.findall(body)] for name, body in found.items()}
    tabs["Reference"].append({"Python interface": [{title: path} for path, title, _ in interface_pages()]})
    return [{"Home": ["index.md", *first]}, *({tab: pages} for tab, pages in tabs.items())]


def _below(page: str) -> str | list[str]:
    """A page, or the list of the page and those of its folder."""
    folder = (ROOT / "docs" / page).with_suffix("")
    inside = sorted(path.relative_to(ROOT / "docs").as_posix() for path in folder.glob("*.md"))
    return [page, *inside] if inside else page


def interface_pages() -> list[tuple[str, str, str]]:
    """Path, title and text of each page of the public interface."""
    names: dict[tuple[str, str], list[str]] = {}
    for e in stubs.entries():
        names.setdefault((e.module, "" if e.module else stubs.group(e)), []).append(e.name)
    order = {("", g): i for i, g in enumerate(stubs.GROUPS)}
    pages = []
    for (module, group), found in sorted(names.items(), key=lambda x: order.get(x[0], len(order))):
        prefix = stubs.title(module)
        path = f"api/{group.lower().replace(' ', '_') if group else module}.md"
        text = [f"# {group or f'`{prefix}`'}", *(f"::: {prefix}.{name}" for name in found)]
        pages.append((path, group or prefix, "\n\n".join(text) + "\n"))
    return pages


def github_slug(text: str, separator: str) -> str:
    """The anchor of a heading in GitHub's form, which the links of the pages use."""
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", separator)


def on_startup(command: str, dirty: bool) -> None:
    """Writes the stubs of the public interface, before mkdocstrings looks for them."""
    stubs.write(ROOT / "build" / "api")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Sets the navigation and the form of anchors."""
    config.nav = navigation((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    config.mdx_configs["toc"]["slugify"] = github_slug
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the public interface."""
    from mkdocs.structure.files import File

    for path, _, text in interface_pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leaves the text of links to files that are not part of the site."""
    return _OUT_OF_DOCS.sub(r"\1", markdown)
