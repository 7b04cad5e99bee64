"""Recorded TensorFlow programs with control flow, optimized for the executor.

Their graphs are unordered: no edge joins two stateful operations unless TensorFlow's has it. Each program runs with its
primitives, on which most passes must refuse to run, and with structured operations where recovery finds them.
"""

from __future__ import annotations

import pytest

from headrace.optimize.base import PassContext
from tests.corpus.test_corpus import CORE, KNOWN, STRUCTURED, _open, corpus, replay
from tests.optimize.running import optimized

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

EACH = 30  # programs of a test
NOT_PLACED = {"probes/0131", "probes/0187"}  # errors of placement, a stage that does not run here
PROGRAMS = [p for p in dict.fromkeys([*CORE, *STRUCTURED]) if p not in {*KNOWN, *NOT_PLACED}]
BLOCKS = [PROGRAMS[i : i + EACH] for i in range(0, len(PROGRAMS), EACH)]


def check(programs: list[str], is_recovered: bool) -> list[PassContext]:
    """Runs the programs; returns the reports of their steps."""
    seen: list[PassContext] = []
    failed = []
    for program in programs:
        try:
            with optimized(seen=seen, is_recovered=is_recovered):
                replay.execute(corpus.load(program), _open, replay.TOL)
        except Exception as e:
            failed.append(f"{program}: {type(e).__name__}: {e}")
    assert not failed, f"{len(failed)} of {len(programs)} failed:\n" + "\n".join(failed)
    return seen


@pytest.mark.parametrize("is_recovered", [False, True], ids=["primitives", "recovered"])
@pytest.mark.parametrize(
    "block", [k if k % 4 == 0 else pytest.param(k, marks=pytest.mark.nightly) for k in range(len(BLOCKS))]
)
def test_programs(block: int, is_recovered: bool) -> None:
    check(BLOCKS[block], is_recovered)


def test_primitives_are_refused_with_a_reason() -> None:
    reports = check(BLOCKS[0], False)
    skipped = [name for report in reports for name, _, _ in report.ran if "primitives" in name]
    assert any(name.startswith("cse (skipped: the graph has control-flow primitives") for name in skipped)
    assert not any(name.startswith("prune") for name in skipped)
