"""Updates that control edges alone reach.

On every route they happen as in TensorFlow 1, and as often.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import flags
from tests.execute.machine import SeededReady
from tests.multi.scattering import scatter
from tests.order import checking, running
from tests.order.cases import CASES, program
from tests.order.checking import Route

pytestmark = pytest.mark.one_engine


def built(name: str) -> dict[str, Any]:
    """The names of a case's program, with its graph and the initializer of its variables."""
    names: dict[str, Any] = {"tf": tf, "graph": tf.Graph()}
    with names["graph"].as_default():
        exec(program(name), names)
        names["initial"] = tf.global_variables_initializer()
    return names


def run(names: dict[str, Any], route: Route, seed: int = 0) -> Any:
    """Returns the values of a case's reads on a route.

    A route with several devices places the operations of the graph.
    """
    g, initial = names["graph"], names["initial"]
    fetches, targets, feeds = names["fetches"], names["targets"], names["feeds"]
    if route.devices > 1:
        scatter(g, random.Random(seed), route.devices)
    devices = None if route.devices == 1 else {"CPU": route.devices}
    with flags.override(OPTIMIZE=route.optimize), hr.Session(graph=g, engine=route.engine, devices=devices) as session:
        session.run(initial)
        values: Any = []
        for n in range(names["steps"]):
            options = hr.RunOptions(timeout_in_ms=30_000, ready=SeededReady(seed + n) if route.ready else None)
            if route.partial:
                values = running.run_partially(session, fetches, targets, feeds)
            else:
                values, _ = session.run((fetches, targets), feeds, options)
        found = {id(t): x for t, x in zip(fetches, values, strict=True)}
        return [(found[id(t)] if id(t) in found else session.run(t)).tolist() for t in names["reads"]]


def wrong(name: str, routes: list[Route], seeds: int = 1) -> dict[str, Any]:
    """The routes on which a case differs, with what it gives there."""
    whole = built(name)  # for all routes on one device
    got = {
        f"{route} {seed}": run(whole if route.devices == 1 else built(name), route, seed)
        for route in routes
        for seed in range(seeds)
    }
    return {route: x for route, x in got.items() if x != CASES[name].expected}


@pytest.mark.parametrize("name", CASES)
def test_updates_happen_on_every_engine(name: str) -> None:
    assert wrong(name, checking.basic("v1")) == {}


@pytest.mark.matrix
@pytest.mark.parametrize("seeds", [2, pytest.param(4, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", CASES)
def test_updates_happen_wherever_they_are_placed(name: str, seeds: int) -> None:
    assert wrong(name, checking.devices("v1"), seeds) == {}


@pytest.mark.matrix
@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", CASES)
def test_updates_happen_with_each_pass_alone_and_off(name: str) -> None:
    assert wrong(name, checking.passes("v1")) == {}
