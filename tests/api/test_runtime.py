"""The runtime: functions of higher layers that graph construction calls."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.eager import EagerBuilder

pytestmark = pytest.mark.one_engine


@pytest.fixture
def mine() -> Iterator[scopes.Runtime]:
    """A runtime of the test's own."""
    runtime = dataclasses.replace(scopes.runtime(), eager=EagerBuilder())
    with scopes.replaced(runtime):
        yield runtime


def drawn() -> list[float]:
    return [float(hr.random.uniform(()).numpy()) for _ in range(3)]


@pytest.mark.parametrize("use", ["scopes.builder()", "hr.constant(1.0)", "g.as_graph_def()", "g._repr_html_()"])
def test_a_use_before_the_installation_is_an_error_with_the_remedy(use: str) -> None:
    g = hr.Graph()
    with scopes.replaced(None), pytest.raises(RuntimeError, match=r"no runtime yet.*call `scopes.install\(Runtime"):
        eval(use, {"hr": hr, "scopes": scopes, "g": g})


def test_graphs_are_built_without_a_runtime() -> None:
    with scopes.replaced(None), hr.Graph() as g:
        hr.cond(hr.placeholder(hr.bool, ()), lambda: hr.constant(1), lambda: hr.constant(2))
    assert {"StatelessIf", "Placeholder"} <= {op.type for op in g.operations}


def test_the_runtime_is_immutable_and_restored() -> None:
    before = scopes.runtime()
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.eager = EagerBuilder()  # type: ignore[misc]
    with scopes.replaced(dataclasses.replace(before, eager=EagerBuilder())):
        assert scopes.runtime() is not before
    assert scopes.runtime() is before
    with pytest.raises(ZeroDivisionError), scopes.replaced(None):
        1 / 0
    assert scopes.runtime() is before
    scopes.install(before)
    assert scopes.runtime() is before


def test_each_function_of_a_runtime_is_used(mine: scopes.Runtime) -> None:
    calls: list[Any] = []

    class Runner:
        def value_callable(self, fetches: Any, targets: Any, feeds: Any) -> Any:
            calls.append("compile")
            return lambda values: [np.float32(7.0) for _ in fetches]

    def session(*, graph: Any) -> Any:
        calls.append("session")
        return Runner()

    def exported(graph: Any, form: str, *, add_shapes: bool, portable: bool) -> Any:
        calls.append((form, add_shapes, portable))
        return "message"

    with scopes.replaced(dataclasses.replace(mine, session=session, graph_def=exported, html=lambda g: "<p>")):
        assert hr.grad(lambda x: x * x)(3.0).numpy() == 7.0
        assert calls == ["session", "compile"]
        g = hr.Graph()
        assert g.as_graph_def("primitive", portable=False) == "message"
        assert calls[2:] == [("primitive", False, False)]
        assert g._repr_html_() == "<p>"


def test_resources_and_seeds_belong_to_the_eager_builder_of_the_runtime(mine: scopes.Runtime) -> None:
    hr.random.set_seed(5)
    first = drawn()
    with scopes.replaced(dataclasses.replace(mine, eager=EagerBuilder())):
        assert scopes.runtime().eager.seed is None
        hr.random.set_seed(5)
        assert drawn() == first
        hr.random.set_seed(6)
        assert drawn() != first
    assert mine.eager.seed == 5
    hr.random.set_seed(5)
    assert drawn() == first


def test_the_seed_holds_in_all_threads(mine: scopes.Runtime) -> None:
    hr.random.set_seed(5)
    first = drawn()
    hr.random.set_seed(5)
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.extend(drawn()))
    thread.start()
    thread.join(20)
    assert found == first


def test_a_graph_seed_alone_needs_no_earlier_set_seed(mine: scopes.Runtime) -> None:
    first = [hr.random.uniform((), graph_seed=3).numpy() for _ in range(2)]
    with scopes.replaced(dataclasses.replace(mine, eager=EagerBuilder())):
        assert [hr.random.uniform((), graph_seed=3).numpy() for _ in range(2)] == first


def test_names_and_graphs_are_of_one_context_and_no_part_of_the_runtime(mine: scopes.Runtime) -> None:
    seen: list[Any] = []
    with hr.Graph() as g, hr.name_scope("layer"):
        thread = threading.Thread(target=lambda: seen.append((scopes.current_graph(), scopes.builder())))
        thread.start()
        thread.join(20)
        assert scopes.current_graph() is g
    assert seen == [(None, mine.eager)]
