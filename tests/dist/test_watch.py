"""Watched values of a step on a cluster."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr

pytestmark = [pytest.mark.system, pytest.mark.one_engine]


def test_values_of_loops_and_recursive_functions_come_from_workers() -> None:
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
    with hr.cluster.local(2) as cluster, hr.Session(cluster, graph=g) as session:
        want = session.run([y, z], {n: 3})
        got, watched = session.run([y, z], {n: 3}, watch=specs)
    assert [v.tolist() for v in got] == [v.tolist() for v in want]
    assert [int(r.value) for r in watched["f/m"]] == [30, 20, 10, 10]
    for name in ("w/twice", "w/same"):
        assert [(r.path, r.value.size) for r in watched[name]] == [((("w", 0),), 2), ((("w", 2),), 8)]
