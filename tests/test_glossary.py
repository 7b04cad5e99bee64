"""Check that the glossary and the page of questions lead to the right modules."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.test_pages import DOCS, ROOT

GLOSSARY = DOCS / "learn/glossary.md"
QUESTIONS = DOCS / "internals/where_is_what.md"
LAYOUT = DOCS / "internals/layout.md"
MODULE = r"\[[^\]]+\]\(\.\./\.\./(headrace/[^)]+)\)"


class Term(NamedTuple):
    """A row of the glossary."""

    name: str
    sentence: str
    module: str


class Question(NamedTuple):
    """A row of the page of questions.

    Attributes:
      text: the question.
      through: a term of the glossary, or a part of the layout page.
      page: the page of `through`.
      module: the path of the module that has the answer.
      word: a text that the module has.
    """

    text: str
    through: str
    page: str
    module: str
    word: str


def terms() -> list[Term]:
    rows = re.findall(rf"^\| (.+?) \| (.+?) \| {MODULE} \|$", GLOSSARY.read_text(encoding="utf-8"), flags=re.M)
    return [Term(*r) for r in rows]


def questions() -> list[Question]:
    row = rf"^\| (.+?) \| (?:layout: )?\[(.+?)\]\((.+?)#[\w-]+\) \| {MODULE} \| (.+?) \|$"
    return [Question(*r) for r in re.findall(row, QUESTIONS.read_text(encoding="utf-8"), flags=re.M)]


def tables(page: str) -> list[str]:
    """The rows of a page's tables, without their heads."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [line for line in lines if not line.endswith("| module |") and "| module | search for |" not in line]


def words(module: str) -> str:
    """The path and the text of a module, on one line, in lower case."""
    return module.lower() + " " + " ".join((ROOT / module).read_text(encoding="utf-8").lower().split())


def spellings(term: str) -> set[str]:
    """Spellings of a term in code: `trip count`, `trip_count`, `TripCount`, `trip-count`."""
    return {term.lower().replace(" ", by) for by in (" ", "_", "", "-")}


def test_glossary_rows() -> None:
    """Each row has a term, a sentence and a module; no term is there twice."""
    found = terms()
    assert len(found) == len(tables(GLOSSARY.read_text(encoding="utf-8"))) >= 80
    assert len({t.name.lower() for t in found}) == len(found)
    assert not [t for t in found if not t.sentence.endswith(".") or not 3 <= len(t.sentence.split()) <= 35]


def test_glossary_modules() -> None:
    """The module of a term exists and uses the term."""
    wrong = []
    for term in terms():
        if not (ROOT / term.module).is_file():
            wrong.append(f"{term.name}: {term.module} does not exist")
        elif not all(any(s in words(term.module) for s in spellings(t)) for t in term.name.split(" and ")):
            wrong.append(f"{term.name}: {term.module} does not have the term")
    assert not wrong, "\n".join(wrong)


def test_questions() -> None:
    """Each question's term or layout part names the module of the answer.

    The module has the word to search for.
    """
    found = questions()
    assert len(found) == len(tables(QUESTIONS.read_text(encoding="utf-8"))) >= 40
    glossary = {t.name: t.module for t in terms()}
    layout = LAYOUT.read_text(encoding="utf-8")
    wrong = []
    for q in found:
        if q.page.endswith("glossary.md"):
            if glossary.get(q.through) != q.module:
                wrong.append(
                    f"{q.text} The glossary's {q.through!r} leads to {glossary.get(q.through)}, not {q.module}"
                )
        else:
            part = re.search(rf"\*\*{re.escape(q.through)}\*\*.*?(?=\n\*\*|\n## )", layout, flags=re.S)
            _, first, *rest = q.module.removesuffix("/__init__.py").split("/")
            names = (first,) if first.endswith(".py") else (f"{first}/", *(n.removesuffix(".py") for n in rest))
            if not part or any(f"`{n}`" not in part[0] for n in names):
                wrong.append(f"{q.text} The part {q.through!r} of the layout page does not name {q.module}")
        if not (ROOT / q.module).is_file() or q.word.lower() not in words(q.module):
            wrong.append(f"{q.text} {q.module} does not have {q.word!r}")
    assert not wrong, "\n".join(wrong)
