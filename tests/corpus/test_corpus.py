"""The recorded TensorFlow programs, one test each; those with control flow in random orders too.

By default one in `SHARE` of the programs about what kernels compute is taken; all are in the nightly tier.

Known failures, and programs that cannot run in a random order, are listed with their reasons in
`docs/reference/conformance.md`; a program that is listed there and passes is a failure too.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import pathlib
import re
import types
from typing import Any

import pytest

import headrace as hr
from headrace import pb
from headrace.ir.opdef import op_registry
from tests.execute.machine import SeededReady

pytestmark = pytest.mark.matrix

ROOT = pathlib.Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "data" / "corpus"
NOTES = ROOT / "docs" / "reference" / "conformance.md"
STEP_MS = 20_000  # no step of these programs takes a tenth of it


def _replay() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("headrace_corpus_replay", CORPUS / "replay.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


replay = _replay()
corpus = replay.Corpus(str(CORPUS))


def core() -> list[str]:
    """The ids that `replay.py --core` selects."""
    args = argparse.Namespace(
        module=list(replay.CORE), program=None, split="all", tag=None, skip_tag=["functions"], only_ops=None, op=None,
        test=None, sample=None, seed=0,
    )  # fmt: skip
    ids: list[str] = replay.select(corpus, args)
    return ids


# Programs with functions, and the modules of TensorFlow's suite that are about what functions and variables do.
MODULES = (
    *("functional_ops", "list_ops", "cond_v2", "while_v2*", "critical_section", "framework_*"),
    *("variables", "resource_variable*", "variable_scope"),
)

SHARE = 4  # of the programs of all other modules one in so many is taken by default


def structured() -> list[str]:
    """The ids of the programs with functions or of `MODULES`, the core aside."""
    return [
        e["id"]
        for e in corpus.index
        if "functions" in e["tags"] or any(fnmatch.fnmatch(e["module"], m) for m in MODULES)
        if e["id"] not in CORE
    ]


def missing_types(entry: dict[str, Any]) -> set[str]:
    """The op types of a program that headrace does not have.

    Functions of the program are no op types.
    """
    missing = {t for t in entry["ops"] if t not in op_registry}
    if missing:
        graph = pb.GraphDef.FromString(corpus.load(entry["id"])["graph"])
        missing -= {f.signature.name for f in graph.library.function}
    return missing


def table(heading: str) -> dict[str, str]:
    """Rows `| program | reason |` of the table below a heading of `docs/reference/conformance.md`."""
    text = NOTES.read_text(encoding="utf-8")
    parts = re.split(r"^##+ (.*)$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    rows = re.findall(r"^\| `([^`|]+/\d+)` \| (.+?) \|$", sections[heading], flags=re.MULTILINE)
    found = dict(rows)
    assert len(found) == len(rows), f"a program stands twice below {heading!r}"
    return found


CORE = core()
STRUCTURED = structured()
OF_KERNELS = [e["id"] for e in corpus.index if e["id"] not in {*CORE, *STRUCTURED}]  # results of kernels
KNOWN = table("Known differences")
UNORDERED = table("Programs that depend on timing")


def _parameters(programs: list[str]) -> list[Any]:
    return [
        pytest.param(p, marks=pytest.mark.xfail(reason=KNOWN[p], raises=replay.Mismatch, strict=True))
        if p in KNOWN
        else p
        for p in programs
    ]


def _open(graph: bytes, config: dict[str, Any]) -> Any:
    """Opens a session by `open_headrace` with a time limit on every step.

    A step that hangs fails, and the run of the tests goes on.
    """
    return replay.open_headrace(graph, {"operation_timeout_in_ms": STEP_MS, **config})


class _Seeded:
    """`_open`, with every run in a random order.

    The machine's invariant is checked after each run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.runs = 0

    def __call__(self, graph: bytes, config: dict[str, Any]) -> Any:
        g = hr.Graph()
        with g.as_default():
            hr.import_graph_def(graph, name="")
        keys = ("device_count", "operation_timeout_in_ms", "allow_soft_placement")
        session = hr.Session(graph=g, config={k: v for k, v in config.items() if k in keys}, engine="interpret")

        def run(
            fetches: list[str], targets: list[str], feeds: dict[str, Any], timeout_ms: float | None = None
        ) -> list[Any]:
            self.runs += 1
            queues: list[SeededReady] = []

            def ready(device: str) -> SeededReady:
                queues.append(SeededReady(self.seed * 1000 + self.runs))
                return queues[-1]

            limit = timeout_ms or config.get("operation_timeout_in_ms") or STEP_MS
            options = hr.RunOptions(timeout_in_ms=int(limit), ready=ready)
            out = session.run([*fetches, *targets], feeds, options)
            for q in queues:
                q.check()
            return list(out)[: len(fetches)]

        return types.SimpleNamespace(run=run, close=session.close)


def _random_orders() -> list[str]:
    """The programs that can run in any order: no partial runs, no steps that overlap."""
    cannot = {"partial_run", "concurrent", "import_error"}
    able = {e["id"] for e in corpus.index if not cannot & set(e["tags"])}
    return [p for p in CORE + STRUCTURED if p in able and p not in KNOWN and p not in UNORDERED]


def _replay_in_random_order(program: str, seeds: range) -> None:
    loaded = corpus.load(program)
    if loaded.get("events"):
        pytest.skip("its steps overlap")
    for seed in seeds:
        try:
            replay.execute(loaded, _Seeded(seed), replay.TOL)
        except Exception as e:
            e.add_note(f"seed {seed}")
            raise


@pytest.mark.timeout(60)
@pytest.mark.parametrize("program", _parameters(CORE + STRUCTURED + OF_KERNELS[::SHARE]))
def test_program(program: str) -> None:
    replay.execute(corpus.load(program), _open, replay.TOL)


@pytest.mark.nightly
@pytest.mark.timeout(60)
@pytest.mark.parametrize("program", _parameters([p for i, p in enumerate(OF_KERNELS) if i % SHARE]))
def test_another_program(program: str) -> None:
    replay.execute(corpus.load(program), _open, replay.TOL)


@pytest.mark.one_engine
@pytest.mark.rotated(2)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("program", _random_orders())
def test_program_in_random_orders(program: str) -> None:
    _replay_in_random_order(program, range(1))


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", _random_orders())
def test_program_in_many_random_orders(program: str) -> None:
    _replay_in_random_order(program, range(1, 22))


def test_the_notes_name_programs() -> None:
    assert set(KNOWN) <= {*CORE, *STRUCTURED, *OF_KERNELS}
    assert set(UNORDERED) <= {*CORE, *STRUCTURED}
    assert not set(KNOWN) & set(UNORDERED)
    assert len(CORE) > 500
    assert len(STRUCTURED) > 150


def test_every_op_type_is_there() -> None:
    assert not {e["id"]: types for e in corpus.index if (types := missing_types(e))}


def test_the_aims_are_met_by_what_the_notes_say() -> None:
    """At most one program in twenty fails.

    Of a module at most one in five fails, but for two modules with few programs.
    """
    failing = set(KNOWN)
    assert len(failing) <= 0.05 * len(corpus.index)
    modules: dict[str, list[bool]] = {}
    for e in corpus.index:
        modules.setdefault(e["module"], []).append(e["id"] in failing)
    below = {m for m, v in modules.items() if sum(v) > 0.2 * len(v)}
    assert below == {"inplace_ops", "ops_rnn_grad"}  # one program of four, and one of one
