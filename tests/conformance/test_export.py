"""Graphs that headrace exports, in either form, run in TensorFlow with the same results.

`exports` describes the comparison. The graphs known not to come through are listed in docs/reference/conformance.md,
below "Export".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from headrace.ir.opdef import op_registry
from tests.conformance import processes
from tests.conformance.exports import ENVIRONMENT, FORMS, RANDOM, chosen, known, programs
from tests.recover.test_corpus import UNSTABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARTS = 6  # of the programs, each in a process of its own
SLOW_PARTS = 12
IMPORTS = "from tests.conformance import exports; import tensorflow"


@pytest.fixture(scope="module")
def run_exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], bytes]]:
    """Runs a program in a process that has imported `exports` and TensorFlow; returns its output.

    TensorFlow reads the settings of `exports.ENVIRONMENT` when it is imported.
    """
    with processes.serving(tmp_path_factory.mktemp("exports"), IMPORTS, **ENVIRONMENT) as run:
        yield run


def _of(run_exports: Callable[[str], bytes], *arguments: object) -> dict[str, Any]:
    program = f"exports.main({list(map(str, arguments))!r})"
    out: dict[str, Any] = json.loads(run_exports(program).splitlines()[-1])
    print({k: v if isinstance(v, int) else len(v) for k, v in out.items()})
    return out


def _check(out: dict[str, Any], ids: list[str]) -> None:
    expected = known()
    assert {p: why for p, why in out["wrong"].items() if p not in expected and p.split()[0] not in UNSTABLE} == {}
    mine = {f"{p} {form}" for p in ids for form in FORMS}
    listed = mine & set(expected) - {f"{p} {form}" for p in out["elsewhere"] for form in FORMS}
    assert listed <= set(out["wrong"]), "these come through by now: take them off docs/reference/conformance.md"
    assert out["right"] + len(out["wrong"]) + len(out["elsewhere"]) == len(mine)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("part", range(PARTS))
def test_recorded_programs(part: int, run_exports: Callable[[str], bytes]) -> None:
    _check(_of(run_exports, "corpus", part, PARTS), chosen()[part::PARTS])


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(SLOW_PARTS))
def test_the_other_recorded_programs(part: int, run_exports: Callable[[str], bytes]) -> None:
    sample = set(chosen())
    rest = [p for p in programs() if p not in sample]
    _check(_of(run_exports, "slow", part, SLOW_PARTS), rest[part::SLOW_PARTS])


@pytest.mark.rotated(2)
@pytest.mark.parametrize("part", range(PARTS))
def test_recovered_programs(part: int, run_exports: Callable[[str], bytes]) -> None:
    """A sixth of them; the others are slow."""
    out = _of(run_exports, "recovered", part * PARTS, PARTS * PARTS)
    assert {p: why for p, why in out["wrong"].items() if p not in known()} == {}
    assert out["right"] >= 20


@pytest.mark.nightly
@pytest.mark.parametrize("part", [i for i in range(PARTS * PARTS) if i % PARTS])
def test_the_other_recovered_programs(part: int, run_exports: Callable[[str], bytes]) -> None:
    out = _of(run_exports, "recovered", part, PARTS * PARTS)
    assert {p: why for p, why in out["wrong"].items() if p not in known()} == {}
    assert out["right"] >= 20


@pytest.mark.rotated(2)
@pytest.mark.parametrize("part", range(4))
def test_random_programs(part: int, run_exports: Callable[[str], bytes]) -> None:
    out = _of(run_exports, "random", part, 4)
    assert out["wrong"] == {}
    assert all("calls itself" in why or "TensorListUnset" in why for why in out["refused"].values())
    assert out["right"] >= sum(RANDOM.values()) // 4  # half of them: each is written in two forms


def test_what_is_known_not_to_come_through_is_there() -> None:
    assert {name.split()[0] for name in known()} <= set(programs())
    assert len(programs()) > 2400


def test_every_operation_that_only_headrace_has_is_known(run_exports: Callable[[str], bytes]) -> None:
    """Those with an underscore: `test_op_records` sees to the others."""
    from headrace.interchange.portable import THEIRS, is_own

    ours = {n for n in op_registry if n.startswith("_")}
    program = f"""
import json
import tensorflow
from tensorflow.python.framework import op_def_registry
print(json.dumps([n for n in {sorted(ours)!r} if op_def_registry.get(n) is not None]))
"""
    theirs = set(json.loads(run_exports(program).splitlines()[-1]))
    assert theirs == ours & THEIRS
    assert {n for n in ours if is_own(n)} == ours - theirs
