"""Watched values of a step on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import headrace as hr
from headrace.errors import UnimplementedError
from tests.observe.reading import values_of
from tests.observe.watched import primitives

pytestmark = [pytest.mark.system, pytest.mark.one_engine]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with hr.cluster.local(2) as made:
        yield made


def test_values_of_loops_and_recursive_functions_come_from_workers(cluster: Any) -> None:
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, ())

        @hr.function(converts=False, results=hr.int32)
        def f(k: Any) -> Any:
            m = hr.identity(k * 10, name="m")
            return hr.cond(k < 1, lambda: m, lambda: f(k - 1) + f(k - 2))

        def body(i: Any, x: Any) -> Any:
            with hr.device("/task:1"):
                twice = hr.concat([x, x], 0, name="twice")
            with hr.device("/task:0"):
                return i + 1, hr.identity(twice, name="same")

        with hr.device("/task:1"):
            y = f(n)
        first = (0, hr.constant([1.0]))
        z = hr.while_loop(lambda i, x: i < n, body, first, shape_invariants=((), (None,)), name="w")[1]
    specs = [hr.watch("f/m", when=lambda v: v > 0), hr.watch(["w/twice", "w/same"], [0, -1])]
    with hr.Session(cluster, graph=g) as session:
        want = session.run([y, z], {n: 3})
        got, watched = session.run([y, z], {n: 3}, watch=specs)
    assert [v.tolist() for v in got] == [v.tolist() for v in want]
    assert [int(r.value) for r in watched["f/m"]] == [30, 20, 10, 10]
    for name in ("w/twice", "w/same"):
        assert [(r.path, r.value.size) for r in watched[name]] == [((("w", 0),), 2), ((("w", 2),), 8)]


def test_primitives_that_cannot_be_recovered_are_watched(cluster: Any) -> None:
    g, (p, q, x), y = primitives(["/task:0", "/task:1"])
    spec = hr.watch(["a", "b", "switch:0", "switch:1"])
    for taken in (True, False):
        feeds = {p: taken, q: taken, x: [1.0, 2.0]}
        with hr.Session(graph=g) as session:
            want, here = session.run(y, feeds, watch=spec)
        with hr.Session(cluster, graph=g) as session:
            got, there = session.run(y, feeds, watch=spec)
            handle = session.partial_run_setup(y, [p, q, x], watch=spec)
            partly, seen = session.partial_run(handle, y, feeds)
        assert got.tolist() == want.tolist() == partly.tolist()
        for watched in (there, seen):
            for name in here:
                assert [(r.path, r.value.tolist()) for r in watched[name]] == [
                    (r.path, r.value.tolist()) for r in here[name]
                ]
        assert [len(here[name]) for name in here] == [taken, not taken, not taken, taken]


def test_a_condition_with_effects_on_a_cluster_is_watched_with_its_iterations(cluster: Any) -> None:
    with hr.Graph() as g:
        hr.random.set_seed(3)

        def go(i: Any) -> Any:
            with hr.device("/task:1"):
                return hr.less(hr.random.uniform((), name="draw"), 0.9, name="go")

        i = hr.while_loop(go, lambda i: i + 1, [0], name="loop")[0]
    with hr.Session(cluster, graph=g) as session:
        n, watched = session.run(i, watch=hr.watch("loop/go", [-1]))
        assert [(r.iteration, bool(r.value)) for r in watched["loop/go"]] == [(n - 1, True)][: int(n)]
        n, watched = session.run(i, watch=hr.watch("loop/go"))
        assert [(r.iteration, bool(r.value)) for r in watched["loop/go"]] == [(k, k < n) for k in range(n + 1)]


def test_all_routes_of_a_cluster_return_watched_values(cluster: Any) -> None:
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, ())

        def body(i: Any, x: Any) -> Any:
            with hr.device("/task:1"):
                h = hr.identity(x + i, name="h")
            with hr.device("/task:0"):
                return i + 1, h * 2

        y = hr.while_loop(lambda i, x: i < n, body, (0, 1), name="w")[1]
    spec = hr.watch("w/h", [0, -1])
    with hr.Session(graph=g, engine="interpret") as session:
        want, here = session.run(y, {n: 4}, watch=spec)
    with hr.Session(cluster, graph=g) as session:
        call = session.make_callable(y, [n], watch=spec)
        handle = session.partial_run_setup(y, [n], watch=spec)
        runs = [
            session.run(y, {n: 4}, hr.RunOptions(watch=spec)), call(4), session.partial_run(handle, y, {n: 4})
        ]  # fmt: skip
    for got, watched in runs:
        assert (got, [(r.path, int(r.value)) for r in watched["w/h"]]) == (
            want, [(r.path, int(r.value)) for r in here["w/h"]]
        )  # fmt: skip


def test_a_partial_run_of_a_cluster_is_recorded_and_profiled(cluster: Any) -> None:
    with hr.Graph() as g:
        a, b = hr.placeholder(hr.float32, (), name="a"), hr.placeholder(hr.float32, (), name="b")
        with hr.device("/task:1"):
            x = hr.exp(a, name="x")
        with hr.device("/task:0"):
            y = hr.add(x, b, name="y")
    with hr.Session(cluster, graph=g) as session, hr.profile() as profile, hr.record() as recording:
        handle = session.partial_run_setup([x, y], [a, b])
        session.partial_run(handle, x, {a: 0.0})
        assert session.partial_run(handle, y, {b: 2.0}) == 3.0
    assert values_of(recording.document(), "y") == {"": "3"}
    assert profile.runs == 1
    assert {row.names[0] for row in profile.rows} >= {"x", "y"}


def test_breakpoints_of_a_cluster_are_refused(cluster: Any) -> None:
    g, (p, q, x), y = primitives(["/task:0", "/task:1"])
    options = hr.RunOptions(breakpoints=[hr.breakpoint_when("a", on_pause=print)])
    with hr.Session(cluster, graph=g) as session:
        with pytest.raises(UnimplementedError, match="cannot pause this step: it runs on a cluster"):
            session.run(y, {p: True, q: True, x: [1.0, 2.0]}, options)
        with pytest.raises(UnimplementedError, match="cannot pause this step: it runs on a cluster"):
            session.partial_run_setup(y, [p, q, x], options)
