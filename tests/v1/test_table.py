"""docs/reference/v1.md and its pages are current, and their remarks hold."""

from __future__ import annotations

import fnmatch

import pytest

from headrace.v1 import absent
from tests.v1 import table

pytestmark = [pytest.mark.one_engine, pytest.mark.system]


def test_the_pages_are_current() -> None:
    wanted = table.pages()
    assert {table.PAGE, *table.FOLDER.glob("*.md")} == set(wanted), "run: python -m tests.v1.table"
    for file, text in wanted.items():
        assert file.read_text(encoding="utf-8") == text, f"{file.name}: run: python -m tests.v1.table"


def test_every_name_has_an_area() -> None:
    known = {entry["area"] for entry in table.recorded().values()}
    assert known == set(table.AREAS)


def test_what_has_no_remark_has_tensorflows_arguments_in_their_places() -> None:
    known = table.recorded()
    for area in table.AREAS:
        for row in table.rows(area):
            for name in row.names if row.state == "has" else ():
                wanted = [a for a in known[name]["arguments"] or () if not a.startswith("**")]
                assert not table.missing_arguments(name, wanted), name
                assert not table.misplaced_arguments(name, wanted), name


def test_reasons_are_of_names_that_are_there() -> None:
    known = table.recorded()
    for name in table.DIFFERS:
        assert name in known, f"{name} is no name of TensorFlow 1's"
        assert table.is_there(name), f"{name} is not in headrace.v1: no reason is needed"


def test_every_reason_is_of_an_absent_name() -> None:
    names = [n for n in table.recorded() if not table.is_there(n)]
    unused = [p for p in absent.REASONS if not any(fnmatch.fnmatchcase(n, p) for n in names)]
    assert not unused, f"remove these from headrace/v1/absent.py: {unused}"
