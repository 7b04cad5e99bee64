"""Citations of pages in errors and docstrings, and `headrace docs`, which prints the pages."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace.v1 as tf
from headrace import cli, documentation
from tests import test_pages

PACKAGE = Path(documentation.__file__).parent
CITED = re.compile(r"`headrace docs ([^`]+)`")
BY_PATH = re.compile(r"\b(?:docs|learn|how-to|reference|internals)/[\w/-]+\.md\b")


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Syntax trees of the package by path, of modules that may have citations."""
    sources = {p.relative_to(PACKAGE).as_posix(): p.read_text(encoding="utf-8") for p in PACKAGE.rglob("*.py")}
    return {name: ast.parse(s) for name, s in sources.items() if re.search(r"headrace docs|\.md\b|cite\(", s)}


def citations(name: str, tree: ast.Module) -> Iterator[str]:
    """Pages that a module cites, in literals and by `cite`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and name != "documentation.py":
            yield from CITED.findall(" ".join(node.value.split()))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "cite":
            (page,) = node.args
            if name != "documentation.py":
                assert isinstance(page, ast.Constant), f"{name}:{node.lineno}: the page is no literal"
                yield str(page.value)


def test_every_cited_page_and_section_exists() -> None:
    found = {name: list(citations(name, tree)) for name, tree in trees().items()}
    assert found["public_names.py"] == ["reference/v1"]
    assert sum(map(len, found.values())) > 15
    for name, pages in found.items():
        for page in pages:
            assert page.partition("#")[0] in documentation.pages(), f"{name} cites {page}"
            assert documentation.text(page)


def test_no_text_of_the_package_names_a_page_by_its_path() -> None:
    wrong = [
        f"{name}:{node.lineno}: {BY_PATH.findall(node.value)}"
        for name, tree in trees().items()
        if name != "documentation.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and BY_PATH.search(node.value)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_command_that_an_error_cites_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AttributeError) as failure:
        tf.no_such_name
    (page,) = CITED.findall(str(failure.value))
    assert cli.main(["docs", page]) == cli.OK
    assert capsys.readouterr().out == (PACKAGE.parent / "docs" / f"{page}.md").read_text(encoding="utf-8")


def test_docs_without_a_page_prints_the_index(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["docs"]) == cli.OK
    assert capsys.readouterr().out.startswith("# Documentation\n")
    assert documentation.pages()[0] == "index"


@pytest.mark.parametrize("name", ["learn/tutorial", "tutorial", "docs/learn/tutorial.md", "tutorial.md"])
def test_a_page_is_found_by_path_and_by_name(name: str) -> None:
    assert documentation.text(name).startswith("# A first model in 15 minutes\n")


def test_a_section_ends_at_the_next_heading_of_its_depth() -> None:
    section = documentation.text("tutorial#save-and-load")
    assert section.startswith("## Save and load\n")
    assert "hr.train.load(path)" in section
    assert len(re.findall("^## ", section, flags=re.M)) == 1
    whole = documentation.text("tutorial#a-first-model-in-15-minutes")
    assert whole == documentation.text("tutorial")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tutorail", "has no page 'tutorail'; did you mean tutorial"),
        ("../README", "has no page '../README'; "),
        ("zzz", "has no page 'zzz'; `headrace docs index` lists the pages"),
        ("glossary#zzz", "the page learn/glossary has no section 'zzz'; it has glossary, "),
    ],
)
def test_a_missing_page_is_an_error_of_one_line(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["docs", name]) == cli.BAD_USAGE
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_the_anchors_of_sections_are_those_of_links() -> None:
    linked = {
        f"{file.relative_to(test_pages.DOCS).with_suffix('').as_posix()}#{heading}"
        for page in sorted(test_pages.DOCS.rglob("*.md"))
        for _, file, heading in test_pages.links(page)
        if heading and file.suffix == ".md"
    }
    assert len(linked) > 5
    for page in linked:
        assert documentation.text(page).startswith("#")
