"""Native code, the Python target and the interpreter agree on random programs."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.targets.native import engine
from tests.targets.native import region_running as running
from tests.targets.native.random_regions import Maker

with flags.override(NATIVE="on"):
    reason = engine.available()
if reason:
    pytest.skip(reason, allow_module_level=True)

pytestmark = pytest.mark.one_engine


def check(seed: int, verify: int) -> int:
    """Compares the engines on a random program; returns the number of comparisons with native code."""
    with hr.Graph(), flags.override(VERIFY=verify):
        fetches, feeds = Maker(random.Random(seed)).program()
        with running.compared(running.close) as seen, hr.Session(engine="compiled") as session:
            got = session.run(fetches, feeds)
        with hr.Session(engine="interpret") as session:
            want = session.run(fetches, feeds)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)
    return seen.compared


@pytest.mark.parametrize("seed", range(4))
def test_a_random_program(seed: int) -> None:
    check(seed, 0)


@pytest.mark.parametrize("seed", range(20, 22))
def test_a_random_program_in_strips(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _make_strips_small(monkeypatch)
    check(seed, 0)


def _make_strips_small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, least in ("STRIPPED_BYTES", 1), ("STRIP_BYTES", 16), ("STRIP_ROWS", 1):
        monkeypatch.setattr(thresholds, name, least)


@pytest.mark.matrix
def test_many_random_programs_in_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    _make_strips_small(monkeypatch)
    assert sum(check(seed, 3 * (seed % 2)) for seed in range(20_000, 20_200)) > 160


@pytest.mark.matrix
def test_many_random_programs() -> None:
    assert sum(check(seed, 3 * (seed % 2)) for seed in range(10_000, 10_500)) > 400
