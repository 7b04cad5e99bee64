"""docs/internals/reliability.md shows the kept counts.

Every family of random tests can be run.
"""

from __future__ import annotations

import pytest

from tests import reliability

PAGE = reliability.ROOT / "docs" / "internals" / "reliability.md"


def test_the_page_has_the_table_of_the_kept_counts() -> None:
    assert reliability.table(reliability.load()) in PAGE.read_text(encoding="utf-8")


def test_kept_counts_have_no_failures() -> None:
    counts = reliability.load()
    assert set(counts) == set(reliability.FAMILIES)
    assert {name: c.failures for name, c in counts.items() if c.failures} == {}


@pytest.mark.matrix
@pytest.mark.rotated(3)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", reliability.FAMILIES)
def test_a_family_counts_its_cases(name: str) -> None:
    count = reliability.measured(reliability.FAMILIES[name], 3)
    assert count.cases >= 3
    assert count.runs >= count.cases
    assert count.failures == []
