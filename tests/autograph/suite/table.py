"""The table of the matrix: which constructs convert inside which others."""

from __future__ import annotations

import contextlib
import io
import string
from collections.abc import Callable
from pathlib import Path

import headrace as hr
from tests.autograph.suite import matrix, ways
from tests.autograph.suite.cases import Case

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "conversion.md"
#: One letter for each construct, in their order.
LETTERS = string.ascii_uppercase + string.ascii_lowercase
CONVERTED, REFUSED = "+", "-"


def all_ways(outer: str, inner: str) -> tuple[str, ...]:
    """All ways, for every cell."""
    return tuple(ways.WAYS)


def in_turn(outer: str, inner: str) -> tuple[str, ...]:
    """Eager execution and one of the ways that trace the cell.

    Each row and each column has all ways.
    """
    return ways.in_turn(matrix.NAMES.index(outer) + matrix.NAMES.index(inner))


def status(case: Case, chosen: tuple[str, ...]) -> str:
    """`CONVERTED` if a cell agrees in the chosen ways, `REFUSED` for an `AutographError`.

    Raises:
      AssertionError: results differ.
      Exception: any other error of the cell.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            ways.check(case, chosen)
    except hr.errors.AutographError:
        return REFUSED
    return CONVERTED


def row(
    outer: str, cells: dict[tuple[str, str], Case], ways_of: Callable[[str, str], tuple[str, ...]] = all_ways
) -> str:
    """The line of a table for one outer construct.

    `ways_of` chooses the ways of each cell.
    """
    return line(outer, [status(cells[outer, inner], ways_of(outer, inner)) for inner in matrix.NAMES])


def line(outer: str, marks: list[str]) -> str:
    letter = LETTERS[matrix.NAMES.index(outer)]
    return f"{letter} {outer:<23} {' '.join(marks)}"


def header() -> str:
    return f"{'':25} {' '.join(LETTERS[: len(matrix.NAMES)])}"


def lines_of_page() -> dict[str, str]:
    """The rows of the table in the documentation by outer construct."""
    text = PAGE.read_text(encoding="utf-8")
    found = text.partition(header())[2].partition("```")[0].strip("\n").splitlines()
    return dict(zip(matrix.NAMES, (x.rstrip() for x in found)))
