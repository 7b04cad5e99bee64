"""Libraries in which each function calls the next one twice: 2ⁿ operations, by n functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import inspect
from headrace.errors import ResourceExhaustedError
from headrace.ir.analysis.graph_size import graph_size
from headrace.ir.text import to_text
from headrace.ir.verify import verify

F32 = hr.float32
ENGINES = ["auto", "interpret", "compiled"]


def library(n: int, is_lazy: bool = False) -> tuple[hr.Tensor, hr.Tensor, dict[hr.Tensor, Any]]:
    """The call of the last of `n` functions, which come to 2ⁿ multiplications.

    If `is_lazy`, all of them are in a branch.
    """
    x, p = hr.placeholder(F32, []), hr.placeholder(hr.bool, [])
    f = hr.Function(lambda y, p: y * 2.0, name="f0")
    for k in range(1, n + 1):

        def both(y: Any, p: Any, g: Any = f) -> Any:
            return g(y, p) + g(y + 1.0, p)

        def one(y: Any, p: Any, both: Any = both) -> Any:
            return hr.cond(p, lambda: both(y, p), lambda: y)

        f = hr.Function(one if is_lazy else both, name=f"f{k}")
    return x, f(x, p), {x: np.float32(1.0), p: np.False_}


@pytest.mark.parametrize("engine", ENGINES)
def test_40_levels_are_refused_at_once(engine: str) -> None:
    with hr.Graph() as graph:
        _, y, feeds = library(40)
    message = "operations, by functions that call functions"
    with hr.Session(graph=graph, engine=engine) as session, pytest.raises(ResourceExhaustedError, match=message):
        session.run(y, feeds)


def test_40_levels_are_counted_written_and_inspected() -> None:
    with hr.Graph() as graph:
        _, y, feeds = library(40)
    assert graph_size(graph.operations).size > 2**40
    verify(graph)
    assert len(to_text(graph)) < 100_000
    assert len(inspect.render(inspect.describe(graph))) < 100_000
    with hr.Graph() as other:
        hr.import_graph_def(graph.as_graph_def(), name="")
    with hr.Session(graph=other) as session, pytest.raises(ResourceExhaustedError):
        session.run(y.name, {t.name: v for t, v in feeds.items()})


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_40_levels_behind_a_condition_that_does_not_hold_run(engine: str) -> None:
    with hr.Graph() as graph:
        _, y, feeds = library(40, is_lazy=True)
    with hr.Session(graph=graph, engine=engine) as session:
        assert session.run(y, feeds) == 1.0
        if engine == "auto":
            (why,) = session.explain(y, list(feeds)).reasons
            assert "operations; a compiled step may have at most 100,000 more" in why


def test_a_branch_that_does_hold_runs_its_calls_alone() -> None:
    with hr.Graph() as graph:
        x, y, feeds = library(3, is_lazy=True)
        p = list(feeds)[1]
    with hr.Session(graph=graph, engine="interpret") as session:
        assert session.run(y, {x: np.float32(1.0), p: np.True_}) == 8 * 2 * 2.5


@pytest.mark.matrix
@pytest.mark.one_engine
@pytest.mark.parametrize("n", [6, 10, pytest.param(11, marks=pytest.mark.nightly)])
def test_gradients_of_small_and_large_libraries(n: int) -> None:
    with hr.Graph() as graph:
        x, y, feeds = library(n)
        made = hr.gradients(y, [x])
    for engine in ("compiled", "interpret"):
        with hr.Session(graph=graph, engine=engine) as session:
            assert session.run(made, feeds) == [2.0 * 2**n]


@pytest.mark.matrix
def test_gradients_of_40_levels() -> None:
    with hr.Graph() as graph:
        x, y, feeds = library(40)
        made = hr.gradients(y, [x])
    with hr.Session(graph=graph) as session, pytest.raises(ResourceExhaustedError):
        session.run(made, feeds)
    with hr.Graph() as graph:
        x, y, feeds = library(40, is_lazy=True)
        made = hr.gradients(y, [x])
    with hr.Session(graph=graph) as session:
        assert session.run(made, feeds) == [1.0]
