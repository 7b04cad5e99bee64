"""The recorded TensorFlow programs with loops and conditionals, recovered and run.

The results are the same, or the recovery gives the reason of its refusal.

The refused programs are listed with their reasons in `docs/reference/recovery.md`; a program that is listed there and
is recovered is a failure too.
"""

from __future__ import annotations

import pathlib
import re
import types
from typing import Any

import pytest

import headrace as hr
from headrace.errors import InvalidArgumentError
from headrace.ir import walk
from headrace.ir.function import owned
from headrace.ir.graph import Graph, Operation
from headrace.ir.opdef import op_registry
from headrace.recover import recover
from tests.corpus.test_corpus import KNOWN, corpus, replay

pytestmark = pytest.mark.matrix

NOTES = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "recovery.md"
STEP_MS = 20_000

# The results of these depend on the choice of a seed, and differ from TensorFlow's with the primitives too.
UNSTABLE = {"pfor_control_flow_ops/0003", "pfor_control_flow_ops/0051"}


def able() -> tuple[list[str], list[str]]:
    """The programs with loops, and those with conditionals only, whose op types are all registered."""
    loops, conditionals = [], []
    for e in corpus.index:
        tags = set(e["tags"])
        if "control_flow" not in tags | ({"control_flow"} if "loop" in tags else set()) or "import_error" in tags:
            continue
        if all(t in op_registry for t in e["ops"]) and e["id"] not in KNOWN and e["id"] not in UNSTABLE:
            (loops if "loop" in tags else conditionals).append(e["id"])
    return loops, conditionals


def refused() -> dict[str, str]:
    """Rows `| program | reason |` of the table of what is refused."""
    text = NOTES.read_text(encoding="utf-8").partition("## Recorded programs")[2]
    return dict(re.findall(r"^\| `([^`|]+/\d+)` \| (.+?) \|$", text, flags=re.MULTILINE))


LOOPS, CONDITIONALS = able()
REFUSED = refused()


class Refused(Exception):
    """Recovery refused the program."""


def _open(graph: bytes, config: dict[str, Any]) -> Any:
    g = hr.Graph()
    with g.as_default():
        hr.import_graph_def(graph, name="")
    try:
        recover(g)
    except InvalidArgumentError as e:
        raise Refused(str(e)) from e
    _check_primitives_are_gone(g)
    keys = ("device_count", "operation_timeout_in_ms", "allow_soft_placement")
    chosen = {k: v for k, v in config.items() if k in keys}
    session = hr.Session(graph=g, config={"operation_timeout_in_ms": STEP_MS, **chosen})

    def run(fetches: list[str], targets: list[str], feeds: dict[str, Any], timeout_ms: float | None = None) -> Any:
        return list(session.run([*fetches, *targets], feeds, timeout_ms=timeout_ms))[: len(fetches)]

    def set_up(fetches: list[str], targets: list[str], names: list[str]) -> Any:
        return session.partial_run_setup([*fetches, *targets], list(names))

    def go_on(handle: str, fetches: list[str], feeds: dict[str, Any]) -> Any:
        return list(session.partial_run(handle, list(fetches), feed_dict=dict(feeds)))

    return types.SimpleNamespace(run=run, close=session.close, partial_run_setup=set_up, partial_run=go_on)


def _check_primitives_are_gone(g: Graph) -> None:
    """No result of a structured operation, and nothing that stands outside, needs primitives any more."""
    needed = walk.reachable([t.op for t in g.replaced.values()])
    for op in list(needed):
        needed |= _needs(op)
    assert not [op.name for op in needed if op.opdef.primitive]


def _needs(op: Operation) -> set[Operation]:
    out: set[Operation] = set()
    for f in owned(op):
        mine = walk.reachable([r.op for r in f.results] + f.control_results)
        out |= mine
        for o in mine:
            out |= _needs(o)
    return out


def _replay(program: str) -> None:
    try:
        replay.execute(corpus.load(program), _open, replay.TOL)
    except replay.Mismatch as e:
        if "Refused" not in str(e) or program not in REFUSED:
            raise
        return
    assert program not in REFUSED, "it is recovered, but docs/reference/recovery.md says that it is not"


def _parameters(programs: list[str]) -> list[Any]:
    """Some of them; the others are slow together."""
    fast = {p for i, p in enumerate(programs) if i % 6 == 0 or p in REFUSED}
    return [p if p in fast else pytest.param(p, marks=pytest.mark.nightly) for p in programs]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("program", _parameters(LOOPS))
def test_loops(program: str) -> None:
    _replay(program)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("program", _parameters(CONDITIONALS))
def test_conditionals(program: str) -> None:
    _replay(program)


def test_nearly_all_are_recovered() -> None:
    assert len(LOOPS) > 380
    assert len(REFUSED.keys() & set(LOOPS)) < 0.1 * len(LOOPS)
    assert REFUSED.keys() <= {*LOOPS, *CONDITIONALS}
