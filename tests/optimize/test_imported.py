"""Imported programs with state: effects stay in the order of the primitives."""

from __future__ import annotations

import io
import random
import sys
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.errors import InvalidArgumentError
from headrace.optimize.base import PassContext
from tests import tiers
from tests.api.programs import INTS, LISTS, VECTORS, Build, Failed, Python, initial
from tests.api.test_random_programs import _draw, _program
from tests.execute.machine import SeededReady
from tests.grad.test_random_gradients import _all
from tests.optimize.running import optimized

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]


def check_imported(seed: int, is_recovered: bool = True) -> list[PassContext]:
    """A program that was exported with primitives and imported does what Python does."""
    rng = random.Random(f"imported {seed}")
    block, start = _program(rng, True), initial(rng)
    python = Python(start, _draw)
    failure = ""
    try:
        python.run(block)
    except Failed as e:
        failure = str(e)
    with hr.Graph() as g:
        build = Build(start, rng.choice([1, 10]), python.took, True)
        before = set(g.operations)
        build.run(block)
        for name, v in build.values.items():
            scopes.builder().make("Identity", (v.stack() if name in LISTS else v,), {}, f"end/{name}")
        with hr.control_dependencies(
            [op for op in g.operations if op not in before and not op.type.startswith("Const")]
        ):
            hr.no_op(name="done")
    feeds = {t.name: v for t, v in build.feeds.items()}
    first = [v.initializer.name for v in build.variables.values()] + [op.name for op in build.fill]
    ends = {name: t.name for name, t in build.ends.items()}
    with hr.Graph() as imported:
        hr.import_graph_def(g.as_graph_def(), name="")
    seen: list[PassContext] = []
    with optimized(seen=seen, is_recovered=is_recovered), hr.Session(graph=imported, engine="interpret") as session:
        session.run(first)
        err, sys.stderr = sys.stderr, io.StringIO()
        fetches = {name: f"end/{name}:0" for name in build.values}
        options = hr.RunOptions(ready=SeededReady(seed), timeout_in_ms=30_000)
        failed: InvalidArgumentError | None = None
        got: Any = {}
        try:
            got, _ = session.run((fetches, "done"), feeds, options)
        except InvalidArgumentError as e:
            failed = e
        finally:
            shown, sys.stderr = sys.stderr.getvalue().splitlines(), err
        if failure:
            assert failed is not None, f"{failure} should have failed"
            assert f"assertion failed: {failure}" in str(failed)
            return seen
        if failed is not None:
            raise failed
        assert shown == python.shown
        for name in INTS:
            assert got[name] == python.values[name], name
        for name in VECTORS + LISTS:
            np.testing.assert_array_equal(got[name], np.array(python.values[name], np.int32), name)
        assert session.run(ends) == python.variables
    return seen


@pytest.mark.parametrize("is_recovered", [False, True], ids=["primitives", "recovered"])
@pytest.mark.parametrize("block", [*range(2), *(pytest.param(b, marks=pytest.mark.nightly) for b in range(2, 40))])
def test_imported_programs_with_state(block: int, is_recovered: bool) -> None:
    _all(tiers.rotated(range(8 * block, 8 * (block + 1)), 2), lambda seed: check_imported(seed, is_recovered))


def test_passes_fire_on_imported_programs() -> None:
    fired = {n.rule for seed in range(4) for report in check_imported(seed) for n in report.notes if n.fired}
    assert {"fold", "cse", "identities", "controls"} <= fired
