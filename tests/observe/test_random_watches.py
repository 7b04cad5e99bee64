"""Random programs: watched values equal those of events, and fetched values do not change."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import flags
from headrace.ir.function import nested_operations
from tests.grad.test_random_gradients import Example, Made
from tests.multi.drawn import drawn
from tests.multi.scattering import scatter
from tests.observe.watched import Values, compare, expected, inner_tensors, tagged

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

_quiet = (HealthCheck.too_slow, HealthCheck.data_too_large)
some = settings(max_examples=5, suppress_health_check=_quiet)
many = settings(max_examples=500, suppress_health_check=_quiet)
rngs = st.integers(0, 2**48).map(random.Random)

ENGINES = [("interpret", "off", 1), ("compiled", "off", 1), ("compiled", "on", 1), ("auto", "off", 2)]
SELECTIONS: list[list[int] | None] = [None, [0], [1, 3], [-1], [0, -1, -2], [2, -3]]


def _check(graph: hr.Graph, values: Any, feeds: Any, rng: random.Random, devices: bool, start: Any = ()) -> None:
    tensors = inner_tensors(graph, rng)
    if not tensors:
        return
    heard = Values({t.op.name for t in tensors})
    with hr.Session(graph=graph, engine="interpret") as session:
        session.run(start)
        want = session.run(values, feeds, hr.RunOptions(listener=heard))
    tests = {g for op in nested_operations(graph.operations) if op.opdef.structured == "While"
             for g in [op.attrs["cond"]]}  # fmt: skip
    specs, kept = [], []
    for t in tensors:
        iterations = rng.choice(SELECTIONS)
        least = 100 if rng.random() < 0.3 and t.dtype.base is hr.int32 else None
        found = expected(heard, t, iterations, least, t.op.graph in tests)
        if found is not None:
            when = None if least is None else lambda v, least=least: hr.reduce_sum(v) >= least
            specs.append(hr.watch(t, iterations, when))
            kept.append((t, found))
    if not specs:
        return
    for engine, native, n in ENGINES[: len(ENGINES) if devices else 3]:
        if n > 1:
            scatter(graph, rng, n)
        with flags.override(NATIVE=native), hr.Session(graph=graph, engine=engine, devices={"CPU": n}) as session:
            session.run(start)
            got, watched = session.run(values, feeds, watch=specs)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        for t, found in kept:
            compare(tagged(watched, t), found, f"{t.name}, {engine}, native {native}, {n} devices")


def _program(rng: random.Random) -> None:
    program = drawn(rng, stateful=False)
    _check(program.graph, program.values, program.build.feeds, rng, True)


def _gradients(seed: int) -> None:
    with Made(Example(seed)) as made:
        fetches = [made.y, *made.gradients(made.y).values()]
    feeds = {made.inputs[n]: v for n, v in made.example.at.items() if n != "V"}
    _check(made.graph, fetches, feeds, random.Random(seed), False, made.inputs["V"].initializer)


@some
@given(rng=rngs)
def test_watched_values_are_those_of_events(rng: random.Random) -> None:
    _program(rng)


@some
@given(seed=st.integers(0, 2**32))
def test_watched_values_of_gradients_are_those_of_events(seed: int) -> None:
    _gradients(seed)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@many
@given(rng=rngs)
def test_watched_values_of_many_programs(rng: random.Random) -> None:
    _program(rng)
