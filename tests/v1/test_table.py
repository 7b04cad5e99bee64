"""docs/reference/v1.md is up to date with headrace.v1, and its remarks on arguments hold."""

from __future__ import annotations

from tests.v1 import table


def test_the_page_is_current() -> None:
    assert table.PAGE.read_text(encoding="utf-8") == table.page(), "run: python -m tests.v1.table"


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
        assert table.look_up(name) is not None, f"{name} is not in headrace.v1: no reason is needed"
