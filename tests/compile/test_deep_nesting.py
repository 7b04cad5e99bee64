"""Structures nested hundreds deep.

They are built, run by both engines, differentiated, written, read and inspected.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import inspect, recursion
from headrace.errors import GraphError
from headrace.ir.analysis.graph_size import graph_size
from headrace.ir.text import from_text, to_text
from headrace.ir.verify import verify

F32 = hr.float32
Made = tuple[hr.Tensor, dict[hr.Tensor, Any]]


def conds(n: int) -> Made:
    x, p = hr.placeholder(F32, []), hr.placeholder(hr.bool, [])

    def nested(k: int, y: hr.Tensor) -> Any:
        return hr.cond(p, lambda: nested(k - 1, y + 1.0), lambda: y) if k else y

    return nested(n, x), {x: np.float32(0.5), p: np.True_}


def loops(n: int) -> Made:
    x = hr.placeholder(F32, [])

    def nested(k: int, y: hr.Tensor) -> Any:
        if not k:
            return y
        return hr.while_loop(lambda i, y: i < 1, lambda i, y: (i + 1, nested(k - 1, y + 1.0)), [0, y])[1]

    return nested(n, x), {x: np.float32(0.5)}


def functions(n: int) -> Made:
    x = hr.placeholder(F32, [])
    f = hr.Function(lambda y: y + 1.0, name="f0")
    for k in range(1, n):
        f = hr.Function(lambda y, g=f: g(y) + 1.0, name=f"f{k}")
    return f(x), {x: np.float32(0.5)}


def cases(n: int) -> Made:
    x = hr.placeholder(F32, [])
    pairs = [(x < float(k), lambda k=k: x + float(k)) for k in range(n)]
    return hr.case(pairs, default=lambda: x), {x: np.float32(n - 1.5)}  # type: ignore[arg-type]


def value(y: Any, feeds: Any, engine: str) -> Any:
    with hr.Session(graph=(y[0] if isinstance(y, list) else y).graph, engine=engine) as session:
        return session.run(y, feeds)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("make", "n", "want"),
    [(conds, 200, 200.5), (loops, 100, 100.5), (functions, 200, 200.5), (cases, 200, 397.5)],
    ids=["conds", "loops", "functions", "cases"],
)
@pytest.mark.parametrize("engine", ["compiled", "interpret", "auto"])
def test_hundreds_of_levels(make: Callable[[int], Made], n: int, want: float, engine: str) -> None:
    before = sys.getrecursionlimit()
    with hr.Graph():
        y, feeds = make(n)
        assert value(y, feeds, engine) == want
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize(
    ("make", "n", "want"),
    [(conds, 30, 30.5), (loops, 15, 15.5), (functions, 60, 60.5), (cases, 25, 47.5)],
    ids=["conds", "loops", "functions", "cases"],
)
def test_dozens_of_levels(make: Callable[[int], Made], n: int, want: float) -> None:
    with hr.Graph():
        y, feeds = make(n)
        assert value(y, feeds, "compiled") == value(y, feeds, "interpret") == want


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("make", "n"), [(conds, 100), (functions, 100), (loops, 12)], ids=["conds", "functions", "loops"]
)
def test_gradients_of_nested_structures(make: Callable[[int], Made], n: int) -> None:
    with hr.Graph():
        y, feeds = make(n)
        made = hr.gradients(y, [next(iter(feeds))])
        assert value(made, feeds, "compiled") == value(made, feeds, "interpret") == [1.0]


@pytest.mark.matrix
@pytest.mark.parametrize("form", ["structured", "primitive"])
def test_200_conditionals_are_written_and_read(form: str) -> None:
    with hr.Graph() as graph:
        y, feeds = conds(200)
    assert graph_size(graph.operations).levels == 200
    verify(graph)
    assert len(from_text(to_text(graph))) == len(graph)
    assert inspect.render_dot(inspect.draw(graph))
    assert inspect.render_page(inspect.document_of_graph(graph, "nested"))
    assert inspect.render(inspect.describe(graph, lowered=True))
    with hr.Graph() as other:
        hr.import_graph_def(graph.as_graph_def(form=form), name="")
        again = {other.get_tensor_by_name(t.name): v for t, v in feeds.items()}
        last = other.get_tensor_by_name(y.name if form == "structured" else f"{y.op.name}:0")
        assert value(last, again, "interpret") == 200.5


def test_levels_beyond_the_limit_are_an_error_with_the_users_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recursion, "MOST", 20)
    with hr.Graph(), pytest.raises(GraphError, match="may be nested 20 deep, not deeper"):
        conds(21)
    with hr.Graph():
        assert value(*conds(20), "interpret") == 20.5


def test_the_recursion_limit_is_put_back_when_a_traced_function_raises() -> None:
    before = sys.getrecursionlimit()

    def fails() -> Any:
        assert sys.getrecursionlimit() > before
        raise RuntimeError("no")

    with hr.Graph(), pytest.raises(RuntimeError, match="no"):
        hr.cond(hr.placeholder(hr.bool, []), fails, lambda: 1.0)
    assert sys.getrecursionlimit() == before


def test_room_adds_up_over_threads_and_goes() -> None:
    before = sys.getrecursionlimit()
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with recursion.recursion_room(1000):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(10)
    with recursion.recursion_room(500):
        assert sys.getrecursionlimit() == before + 1500
    assert sys.getrecursionlimit() == before + 1000
    leave.set()
    thread.join(10)
    assert sys.getrecursionlimit() == before


def test_a_limit_that_the_user_sets_meanwhile_stays() -> None:
    before = sys.getrecursionlimit()
    try:
        with recursion.recursion_room(500):
            sys.setrecursionlimit(before + 5000)
        assert sys.getrecursionlimit() == before + 5000
    finally:
        sys.setrecursionlimit(before)
