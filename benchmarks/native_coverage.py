"""Share of the recorded TensorFlow programs in native code, and reasons against the rest.

    python -m benchmarks --only native_coverage
    python -m benchmarks.native_coverage --sample 300

Every program of the corpus (tests/data/corpus) runs its steps as the tests run them, except that results are not
compared. Of each program of a step that the session compiles in the meantime, `share_of` counts the operations.

A compiled function has its part as attribute `coverage` (`schedule.program.Coverage`). Without the attribute, as in
fused regions of a step that the token machine runs, and where it is None, nothing counts as native.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import io
import random
import re
import sys
import types
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from benchmarks.measure import Result, table
from benchmarks.threads import ROOT
from headrace.compiled_step import CompiledStep
from headrace.ir.function import nested_operations
from headrace.schedule.program import Coverage
from headrace.target import LocalTarget

CORPUS = ROOT / "tests" / "data" / "corpus"
STEP_MS = 20_000  # limit of a step, so that one that hangs ends
MOST = 10  # reasons that are shown
NO_TARGET = "no native target has been asked"


class Share(NamedTuple):
    """The native part of something compiled.

    Attributes:
      native: the operations in native code.
      operations: all operations.
      reasons: reason against native code → the number of operations that have it.
    """

    native: int
    operations: int
    reasons: Counter[str]


@runtime_checkable
class Native(Protocol):
    """Compiled function or region that tells its native share."""

    @property
    def coverage(self) -> Coverage | None:
        """The part in native code; None: nothing is native."""


def share_of(step: CompiledStep) -> Share:
    """Counts the native operations of a step."""
    if step.compiled is not None:
        found = _told(step.compiled)
        return found or _none(nested_operations(step.graph.graph.operations), NO_TARGET)
    shares = [_told(r) or _none(r.members, NO_TARGET) for r in step.fused_regions]
    regions = {r.op.type for r in step.fused_regions}
    reasons = {_general(r) for r in step.reasons} or {"another reason"}
    nodes = [n.op for plan in step.plans.values() for n in plan.nodes]
    outside = [op for op in nodes if op.type not in regions and _is_counted(op)]
    # of several reasons against compiling the step each operation has the first in alphabetical order
    shares.append(Share(0, len(outside), Counter({f"the step is interpreted: {min(reasons)}": len(outside)})))
    return total(shares)


def total(shares: Iterable[Share]) -> Share:
    """The sum of shares."""
    native, operations, reasons = 0, 0, Counter[str]()
    for share in shares:
        native += share.native
        operations += share.operations
        reasons.update(share.reasons)
    return Share(native, operations, reasons)


def _told(compiled: object) -> Share | None:
    found = compiled.coverage if isinstance(compiled, Native) else None
    return None if found is None else Share(found.inside, found.all, Counter(found.reasons))


def _none(ops: Iterable[Any], reason: str) -> Share:
    types = Counter(op.type for op in ops if _is_counted(op))
    return Share(0, types.total(), Counter({f"{reason}: {t}": n for t, n in types.items()}))


def _is_counted(op: Any) -> bool:
    """Whether an operation computes something: neither a constant nor an end of the graph."""
    return not op.opdef.facts.graph_end and op.type != "Const"


def _general(reason: str) -> str:
    """A reason without the names of one graph."""
    return re.sub(r", made at \S+ in \S+", "", re.sub(r"'[^']*'", "'...'", reason))


@dataclasses.dataclass
class Walk:
    """Findings of a walk over programs.

    Attributes:
      steps: the share of each compiled program of a step.
      programs: the number of recorded programs.
    """

    steps: list[Share] = dataclasses.field(default_factory=list)
    programs: int = 0

    def results(self) -> list[Result]:
        """The table: shares of steps and of operations, then the most frequent reasons."""
        all_ = total(self.steps)
        whole = sum(s.native == s.operations > 0 for s in self.steps)
        some = sum(s.native > 0 for s in self.steps)
        of_steps = f"of {len(self.steps):,} steps of {self.programs:,} programs"
        rows = [
            Result("recorded steps with all operations native", "%", [_percent(whole, len(self.steps))], of_steps),
            Result("recorded steps with a native operation", "%", [_percent(some, len(self.steps))], of_steps),
            Result(
                "recorded operations that are native", "%", [_percent(all_.native, all_.operations)],
                f"of {all_.operations:,}",
            ),
        ]  # fmt: skip
        for reason, n in all_.reasons.most_common(MOST):
            share = f"{_percent(n, all_.operations):.1f} % of the operations"
            rows.append(Result(f"not native: {reason}", "operations", [n], share))
        return rows


def native_coverage(sample: int | None = None) -> list[Result]:
    """The shares over the corpus.

    Args:
      sample: the number of programs, chosen at random, the same ones every time; None: all.
    """
    replay = _replay()
    corpus = replay.Corpus(str(CORPUS))
    names = [e["id"] for e in corpus.index if corpus.split.get(e["id"]) == "open"]
    if sample is not None:
        names = sorted(random.Random(0).sample(names, sample))
    return walked(replay, corpus, names).results()


def walked(replay: types.ModuleType, corpus: Any, names: Sequence[str]) -> Walk:
    """Runs recorded programs and counts what is compiled."""
    walk = Walk()
    for name in names:
        with _compiled_steps() as steps, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")  # the output of the programs is not shown
            with contextlib.suppress(replay.Mismatch):  # the tests are about these
                replay.execute(corpus.load(name), functools.partial(_open, replay), replay.TOL)
        walk.steps += map(share_of, steps)
        walk.programs += 1
    return walk


def _open(replay: types.ModuleType, graph: bytes, config: dict[str, Any]) -> Any:
    return replay.open_headrace(graph, {"operation_timeout_in_ms": STEP_MS, **config})


@contextlib.contextmanager
def _compiled_steps() -> Iterator[list[CompiledStep]]:
    """Inside, collects the steps that are compiled, for all shapes that are fed."""
    made: list[CompiledStep] = []
    compile_ = LocalTarget.compile

    def watched(self: LocalTarget, request: Any, stages: Any) -> CompiledStep:
        step = compile_(self, request, stages)
        if request.engine != "interpret":
            made.append(step)
        return step

    LocalTarget.compile = watched  # type: ignore[method-assign]
    try:
        yield made
    finally:
        LocalTarget.compile = compile_  # type: ignore[method-assign]


def _replay() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("headrace_corpus_replay", CORPUS / "replay.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _percent(n: int, of: int) -> float:
    return 100 * n / max(1, of)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.native_coverage", description="Coverage of native code."
    )
    parser.add_argument("--sample", type=int, help="the number of programs; all by default")
    print(table(native_coverage(parser.parse_args().sample)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
