"""Tiers of modules and tests, and the tests that a run selects.

A unit test keeps its budget.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import flags
from headrace.targets.native import engine
from tests import tiers

ROOT = Path(__file__).parent.parent

PROGRAM = """
import os
import time

import pytest


def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_short(): busy(0.01)
def test_busy(): busy(20 * {budget})
def test_idle(): time.sleep(2 * {budget})
def test_process(): assert os.system("true") == 0
def test_fork(): os.waitpid(os.fork() or os._exit(0), 0)
@pytest.fixture
def process(): os.system("true")
def test_process_of_a_fixture(process): pass
@pytest.mark.system
def test_marked_process(): assert os.system("true") == 0
@pytest.mark.matrix
def test_marked_busy(): busy(2 * {budget})
@pytest.mark.matrix
@pytest.mark.nightly
def test_nightly(): pass
"""


def run(folder: Path, *options: str) -> dict[str, str]:
    """Name → outcome of each test of `PROGRAM` that a run selects.

    The run has the hooks of `tests/conftest.py`.
    """
    file = folder / "test_program.py"
    file.write_text(PROGRAM.format(budget=tiers.UNIT_SECONDS), encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-v", "-p", "tests.conftest", "-p", "no:cacheprovider"),
            *("-c", str(ROOT / "pyproject.toml"), str(file), *options),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return dict(re.findall(r"::test_(\w+) (PASSED|FAILED|ERROR)", done.stdout))


@pytest.mark.system
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_a_unit_test_over_its_budget_fails(tmp_path: Path) -> None:
    assert run(tmp_path) == {  # a path is named: all tiers but nightly
        "short": "PASSED",
        "busy": "FAILED",
        "idle": "PASSED",
        "process": "FAILED",
        "fork": "FAILED",
        "process_of_a_fixture": "FAILED",
        "marked_process": "PASSED",
        "marked_busy": "PASSED",
    }


@pytest.mark.system
def test_a_run_selects_tiers(tmp_path: Path) -> None:
    assert set(run(tmp_path, "--tier", "system")) == {"marked_process"}
    assert set(run(tmp_path, "--tier", "nightly,matrix")) == {"marked_busy", "nightly"}
    assert set(run(tmp_path, "-m", "nightly")) == {"nightly"}


@pytest.mark.system
def test_a_run_selects_a_part(tmp_path: Path) -> None:
    parts = [run(tmp_path, "--tier", "system,matrix", "--part", f"{k}/2") for k in (1, 2)]
    assert sorted(name for part in parts for name in part) == ["marked_busy", "marked_process"]
    assert all(len(part) == 1 for part in parts)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_parts_have_each_test_once_and_a_share_of_each_module(parts: int) -> None:
    sizes = {Path(f"test_{k}.py"): size for k, size in enumerate((1, 1, 1, 7, 40, 1))}
    items: Any = [SimpleNamespace(path=path, number=i) for path, size in sizes.items() for i in range(size)]
    found = [tiers.in_part(items, k, parts) for k in range(1, parts + 1)]
    assert sorted(id(x) for inside, _ in found for x in inside) == sorted(map(id, items))
    for inside, outside in found:
        assert len(inside) + len(outside) == len(items)
        for path, size in sizes.items():
            mine = [x.number for x in inside if x.path == path]
            assert size // parts <= len(mine) <= size // parts + 1
            assert mine == list(range(mine[0], mine[0] + len(mine))) if mine else size < parts
    assert max(len(inside) for inside, _ in found) - min(len(inside) for inside, _ in found) <= len(sizes)


@pytest.mark.parametrize("n", [2, 3])
def test_turns_have_each_case_once_and_each_value_of_an_argument(n: int) -> None:
    mark, arguments = (
        pytest.mark.rotated(n).mark,
        [pytest.mark.parametrize(("a", "b"), []), pytest.mark.parametrize("c", [])],
    )
    items: Any = [
        SimpleNamespace(
            nodeid=f"tests/test_one.py::test_it[{a}-{c}]",
            callspec=SimpleNamespace(params={"a": a, "b": a, "c": c}),
            get_closest_marker=lambda name: mark,
            iter_markers=lambda name: [m.mark for m in arguments],
        )
        for a in range(4)
        for c in range(3)
    ]
    turns = [tiers.in_turn(items, turn)[0] for turn in range(7, 7 + n)]
    assert sorted(id(x) for inside in turns for x in inside) == sorted(map(id, items))
    for inside in turns:
        assert {x.callspec.params["a"] for x in inside} == set(range(4))
        assert {x.callspec.params["c"] for x in inside} == set(range(3))
    assert tiers.in_turn(items, None) == (items, [])


def test_a_rotated_case_has_its_turn_with_one_engine_or_the_other() -> None:
    items: Any = [
        SimpleNamespace(
            nodeid=f"tests/test_one.py::test_it[{a}-{engine}]",
            callspec=SimpleNamespace(params={"a": a, "engine_of_steps": engine}),
            get_closest_marker=lambda name: pytest.mark.rotated(2).mark,
            iter_markers=lambda name: [pytest.mark.parametrize("a", []).mark],
        )
        for a in range(3)
        for engine in ("", "interpret")
    ]
    for turn in (0, 1):
        assert sorted(x.callspec.params["a"] for x in tiers.in_turn(items, turn)[0]) == [0, 1, 2]


def test_a_series_of_cases_is_divided_between_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tiers.turn is None or len(tiers.rotated(range(9), 3)) == 3
    found = []
    for turn in (5, 6, 7):
        monkeypatch.setattr(tiers, "turn", turn)
        found += tiers.rotated(range(10), 3)
    assert sorted(found) == list(range(10))
    monkeypatch.setattr(tiers, "turn", None)
    assert tiers.rotated([1, 2], 3) == [1, 2]


@pytest.mark.parametrize("text", ["", "2", "0/2", "3/2", "1/0", "a/b", "1/2/3"])
def test_an_impossible_part_is_refused(text: str) -> None:
    assert tiers.parse_part("2/2") == (2, 2)
    with pytest.raises(pytest.UsageError, match="is no part, such as 1/2"):
        tiers.parse_part(text)


@pytest.mark.parametrize(
    ("source", "tier"),
    [
        ("import pytest\n", "unit"),
        ("pytestmark = pytest.mark.one_engine\n", "unit"),
        ("pytestmark = pytest.mark.system\n", "system"),
        ("pytestmark = [pytest.mark.one_engine, pytest.mark.matrix]\n", "matrix"),
        ("pytestmark = [\n    pytest.mark.one_engine,\n    pytest.mark.nightly,\n]\n", "nightly"),
        ("@pytest.mark.matrix\ndef test_one(): pass\n", "unit"),
    ],
)
def test_a_module_of_a_later_tier_is_not_imported(tmp_path: Path, source: str, tier: str) -> None:
    path = tmp_path / "test_module.py"
    path.write_text(source, encoding="utf-8")
    assert tiers.module_tier(path) == tier
    for selected in tiers.TIERS:
        later = tiers.TIERS.index(tier) > tiers.TIERS.index(selected)
        assert tiers.is_left_out(path, frozenset({selected})) == later


def test_an_unknown_tier_is_refused() -> None:
    assert tiers.parse_tiers("unit,matrix") == {"unit", "matrix"}
    assert tiers.parse_tiers("all") == set(tiers.TIERS)
    with pytest.raises(pytest.UsageError, match="no tier slow; expected unit, system, matrix, nightly or all"):
        tiers.parse_tiers("unit,slow")


def test_the_time_of_llvm_does_not_count_where_native_code_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_module(*_: object) -> None:
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass

    for value, least, most in ("off", 0.0, 0.0), ("on", 0.02, 1.0):
        monkeypatch.setattr(engine, "compile_module", compile_module)
        with flags.override(NATIVE=value):
            clock = tiers.CompilationClock()
        engine.compile_module("", [])
        assert least <= clock.seconds <= most


def test_a_slower_machine_has_a_larger_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tiers.slowdown() >= 1.0
    monkeypatch.setattr(tiers, "slowdown", lambda: 2.0)
    assert tiers.excess(1.9 * tiers.UNIT_SECONDS) == ""
    assert "a unit test may take 0.50 s" in tiers.excess(2.1 * tiers.UNIT_SECONDS)
