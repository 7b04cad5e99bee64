"""Structures of the user's that are deeper than Python's stack: an error that says so."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.api import scopes


def nested(n: int, x: Any) -> Any:
    for _ in range(n):
        x = [x]
    return x


def test_fetches_of_some_levels_come_as_they_were_asked_for() -> None:
    with hr.Graph() as graph:
        y = hr.constant(2.0)
    with hr.Session(graph=graph) as session:
        assert session.run(nested(100, y)) == nested(100, 2.0)


@pytest.mark.parametrize("n", [3_000, 100_000])
def test_fetches_that_are_too_deep(n: int) -> None:
    with hr.Graph() as graph:
        y = hr.constant(2.0)
    with hr.Session(graph=graph) as session, pytest.raises(ValueError, match="nested too deeply"):
        session.run(nested(n, y))


def test_fetches_that_contain_themselves() -> None:
    with hr.Graph() as graph:
        fetches: list[Any] = [hr.constant(2.0)]
    fetches.append(fetches)
    with hr.Session(graph=graph) as session, pytest.raises(ValueError, match="contain themselves"):
        session.run(fetches)


def test_what_a_branch_returns_and_a_loop_takes() -> None:
    deep = nested(3_000, 1.0)
    with hr.Graph():
        p = hr.placeholder(hr.bool, [])
        with pytest.raises(ValueError, match="nested too deeply"):
            hr.cond(p, lambda: deep, lambda: deep)
        with pytest.raises(ValueError, match="nested too deeply"):
            hr.while_loop(lambda v: p, lambda v: (v,), (deep,))


def test_what_is_fed_and_constants() -> None:
    with hr.Graph() as graph:
        x = hr.placeholder(hr.float32, None)
        with pytest.raises(ValueError, match="cannot be a tensor"):
            hr.constant(nested(3_000, 1.0))
    with hr.Session(graph=graph) as session, pytest.raises(hr.errors.FeedError):
        session.run(x, {x: nested(3_000, 1.0)})
    assert hr.constant(nested(20, "a")).shape == (1,) * 20


def test_arguments_outside_of_graphs() -> None:
    cyclic: list[Any] = [1.0]
    cyclic.append(cyclic)
    for x in (nested(3_000, 1.0), cyclic):
        with pytest.raises(ValueError, match="nested too deeply, or contains itself"):
            hr.stack(x)


def test_the_graph_of_a_tensor_in_a_structure_is_found() -> None:
    with hr.Graph() as graph:
        x = hr.constant(2.0)
    for near in (x, [1.0, [x]], {"b": 1.0, "a": (None, x)}, hr.IndexedSlices(x, x)):
        assert scopes.builder(3.0, near).graph is graph
    assert scopes.builder(3.0, {"a": [1.0]}).graph is not graph
