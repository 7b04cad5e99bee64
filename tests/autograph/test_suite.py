"""Functions of plain Python give equal results in plain Python, eagerly, jitted, compiled and interpreted."""

from __future__ import annotations

import inspect

import pytest

from tests.autograph.suite import collection, matrix, table, ways
from tests.autograph.suite.functions import FUNCTIONS

#: Functions that run in all ways in the unit tier.
SAMPLE = ("nested_returns", "collatz_steps", "first_above", "list_by_append", "object_state", "reversed_in_place")


def test_the_suite_is_large() -> None:
    assert len(FUNCTIONS) >= 100
    assert len(matrix.CONSTRUCTS) >= 30
    assert len(collection.PROGRAMS) >= 20
    for name in collection.PROGRAMS:
        source = inspect.getsource(inspect.getmodule(collection.program(name).function))  # type: ignore[arg-type]
        assert 50 <= len(source.splitlines()) <= 150, name


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample(name: str) -> None:
    ways.check(FUNCTIONS[name], ("eager", "compiled"))


@pytest.mark.matrix
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function(name: str) -> None:
    ways.check(FUNCTIONS[name])


@pytest.mark.matrix
@pytest.mark.rotated(2)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", collection.PROGRAMS)
def test_a_program(name: str) -> None:
    """Each program runs eagerly and in one other way, in turn: tracing is slow."""
    ways.check(collection.program(name), ways.in_turn(collection.PROGRAMS.index(name)))


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", collection.PROGRAMS)
def test_a_program_in_all_ways(name: str) -> None:
    ways.check(collection.program(name))


@pytest.mark.matrix
@pytest.mark.rotated(2)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("outer", matrix.NAMES)
def test_a_row_of_the_matrix(outer: str) -> None:
    """The row of docs/reference/conversion.md is true.

    Each cell runs eagerly and in one of the other ways, in turn.
    """
    assert table.row(outer, matrix.cases(), table.in_turn) == table.lines_of_page()[outer]


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("outer", matrix.NAMES)
def test_a_row_of_the_matrix_in_all_ways(outer: str) -> None:
    assert table.row(outer, matrix.cases()) == table.lines_of_page()[outer]
