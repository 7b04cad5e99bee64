"""docs/reference/contrib.md is up to date with headrace.v1.contrib."""

from __future__ import annotations

import operator

import headrace.v1 as tf
from tests.v1.contrib import table


def test_the_page_is_current() -> None:
    assert table.PAGE.read_text(encoding="utf-8") == table.page(), "run: python -m tests.v1.contrib.table"


def test_remarks_are_of_names_that_are_there() -> None:
    for path in (*table.DIFFERS, *table.DIFFERS_ALIKE, *table.DIFFERS_ALIKE.values()):
        assert operator.attrgetter(path)(tf.contrib) is not None
