"""The recorded TensorFlow programs on three devices.

An operation that requests no device gets a random one. So the graphs, most of them written for one device, are torn
apart in places that their authors did not consider. The results, and the classes of errors, must be those that
TensorFlow recorded. Every part goes through bytes.
"""

from __future__ import annotations

import random
import types
from typing import Any

import pytest

import headrace as hr
from headrace import flags
from headrace.ir.opdef import op_registry
from tests.corpus.test_corpus import CORE, KNOWN, STEP_MS, STRUCTURED, _open, corpus, replay
from tests.inside import step_of
from tests.multi.scattering import scatter
from tests.partition.plans import partition_through_bytes

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

DEVICES = 3


@pytest.fixture(autouse=True)
def _parts_go_through_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.partition.partition", partition_through_bytes)


def programs() -> tuple[list[str], list[str]]:
    """The programs of the default run, and the rest of the control-flow core.

    The default run has the programs tagged `devices` whose op types are all registered, and a sample of the core.
    Programs about errors of placement are left out.
    """
    tagged = [e["id"] for e in corpus.index if "devices" in e["tags"] and all(t in op_registry for t in e["ops"])]
    core = [p for p in dict.fromkeys([*CORE, *STRUCTURED]) if p not in {*KNOWN, *tagged}]
    some = random.Random(0).sample(core, 100)
    chosen = [p for p in [*tagged, *some] if p not in KNOWN and not _fails_to_be_placed(p)]
    return chosen, [p for p in core if p not in some and not _fails_to_be_placed(p)]


def _fails_to_be_placed(program: str) -> bool:
    errors = [s["error"] for s in corpus.load(program).get("steps", ()) if s.get("error")]
    return any("Cannot assign a device" in e["message"] for e in errors)


PROGRAMS, MORE = programs()


class _Scattered:
    """`open_headrace`, on several devices.

    Attributes:
      divided: how many steps ran on more than one.
    """

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)
        self.divided = 0

    def __call__(self, graph: bytes, config: dict[str, Any]) -> Any:
        g = hr.Graph()
        with g.as_default():
            hr.import_graph_def(graph, name="")
        scatter(g, self.rng, DEVICES)
        # soft, since a random device need not be that of what an operation is colocated with
        there = max(DEVICES, (config.get("device_count") or {}).get("CPU", 1))
        limit = config.get("operation_timeout_in_ms", STEP_MS)
        session = hr.Session(graph=g, config={"operation_timeout_in_ms": limit}, devices={"CPU": there})

        def run(fetches: list[str], targets: list[str], feeds: dict[str, Any], timeout_ms: float | None = None) -> Any:
            names = [*fetches, *targets]
            out = session.run(names, feeds, timeout_ms=timeout_ms)
            self.divided += step_of(session, names, feeds).general.is_divided
            return list(out)[: len(fetches)]

        return types.SimpleNamespace(
            run=run,
            close=session.close,
            partial_run=session.partial_run,
            partial_run_setup=lambda fetches, targets, feeds: session.partial_run_setup([*fetches, *targets], feeds),
        )


def _cases() -> list[Any]:
    """Programs with the flag OPTIMIZE; most runs without passes are nightly."""
    usual = [*((p, "on") for p in PROGRAMS), *((p, "off") for p in PROGRAMS[::4])]
    later = [*((p, "off") for p in PROGRAMS if (p, "off") not in usual), *((p, "on") for p in MORE)]
    return [*usual, *(pytest.param(*case, marks=pytest.mark.nightly) for case in later)]


@pytest.mark.rotated(2)
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("program", "optimize"), _cases())
def test_program(program: str, optimize: str) -> None:
    with flags.override(OPTIMIZE=optimize):
        _check(program)


def _check(program: str) -> None:
    try:
        replay.execute(corpus.load(program), _Scattered(program), replay.TOL)
    except replay.Mismatch:
        try:
            replay.execute(corpus.load(program), _open, replay.TOL)
        except replay.Mismatch as e:
            assert program not in {*CORE, *STRUCTURED}
            pytest.skip(f"not on one device either: {e}")
        raise


def test_programs_are_really_torn_apart() -> None:
    assert len(PROGRAMS) > 400
    assert len(MORE) > 400
    torn = 0
    for program in random.Random(0).sample(CORE, 40):
        scattered = _Scattered(program)
        if program not in KNOWN:
            replay.execute(corpus.load(program), scattered, replay.TOL)
        torn += scattered.divided > 0
    assert torn > 15
