"""Native code, the Python target and the interpreter agree on random programs."""

from __future__ import annotations

import pytest

pytest.importorskip("llvmlite")

from headrace import flags
from headrace.targets.native import engine
from tests import tiers
from tests.targets.native.random_checks import CHECKS, PROGRAMS, SHARES

with flags.override(NATIVE="on"):
    reason = engine.available()
if reason:
    pytest.skip(reason, allow_module_level=True)

pytestmark = pytest.mark.one_engine

MANY, MORE = 200, 2000


@pytest.mark.parametrize("kind", CHECKS)
def test_a_random_program(kind: str) -> None:
    assert CHECKS[kind](6)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("region", 313_092),  # LLVM 22 makes an invalid module of it, see `Compiler._optimized`
        ("step-failing", 302_545),  # the padding of the gradient of a slice whose end is out of range
    ],
)
def test_a_program_that_failed(kind: str, seed: int) -> None:
    assert CHECKS[kind](seed)


@pytest.mark.parametrize("kind", CHECKS)
@pytest.mark.parametrize(
    "programs", [pytest.param(MANY, marks=pytest.mark.matrix), pytest.param(MORE, marks=pytest.mark.nightly)]
)
def test_many_random_programs(kind: str, programs: int) -> None:
    seeds = tiers.rotated(range(10_000, 10_000 + programs // PROGRAMS * SHARES[kind]), 3)
    assert sum(CHECKS[kind](seed) for seed in seeds) > 0.8 * len(seeds)
