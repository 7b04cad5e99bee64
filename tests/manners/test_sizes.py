"""Packages stay within their budgets of lines of code (tests/manners/sizes.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.manners import sizes

pytestmark = pytest.mark.one_engine


@pytest.mark.system
def test_packages_are_within_their_budgets() -> None:
    found = sizes.complaints(sizes.measure(), sizes.BUDGETS)
    assert not found, "\n".join(found)


def test_prose_and_blank_lines_are_no_lines_of_code() -> None:
    source = '''"""Module.

Text.
"""

# a comment
x = """
a string
"""


def f():
    "Docstring."
    return x  # code
'''
    assert sizes.count_lines(source) == 5


def test_a_package_over_its_budget_is_found(tmp_path: Path) -> None:
    (tmp_path / "ir").mkdir()
    (tmp_path / "ir" / "a.py").write_text("x = 1\ny = 2\n")
    (tmp_path / "ir" / "a_pb2.py").write_text("x = 1\n" * 100)
    (tmp_path / "one.py").write_text("x = 1\n")
    measured = sizes.measure(tmp_path)
    assert measured == {"": sizes.Size(1, 1, "one.py", 1), "ir": sizes.Size(1, 2, "ir/a.py", 2)}
    assert sizes.complaints(measured, {"": 1, "ir": 2}) == []
    assert "2 lines of code, the budget is 1" in sizes.complaints(measured, {"": 1, "ir": 1})[0]
    assert len(sizes.complaints(measured, {"ir": 2, "gone": 5})) == 2
