"""Graphs written by headrace, run by TensorFlow: the recorded programs, and random ones.

A recorded program goes through headrace, `import_graph_def` and then `as_graph_def` in either form, and what TensorFlow
makes of that must be what is recorded. Random programs are built in headrace (`tests/interchange/cases.py`), and
TensorFlow must give what headrace gives.

All is done in one process a part of the programs, since TensorFlow takes seconds to import:
`python -m tests.conformance.exports corpus|slow|recovered|random PART PARTS` prints what came out as JSON,
`... programs PROGRAM ...` that of some recorded programs.

With "recovered", the primitives of the recorded programs are made into loops and conditionals first, as gradients do
(`headrace.recover`); these then are written as functions, or taken apart again.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import pb
from headrace.errors import GraphError, HeadraceError
from headrace.ir.opdef import op_registry
from headrace.recover import recover, resolved
from tests.conformance.gradients import CONTROL, CORPUS, _replay, candidates
from tests.interchange import cases

NOTES = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"
FORMS = ("structured", "primitive")
STEP_MS = 30_000
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "TF2_BEHAVIOR": "0"}  # of TensorFlow's import
EVERY = 12  # of the programs without control flow one in so many is taken by default
RANDOM = {"plain": 20, "stateful": 20, "gradients": 24, "by hand": 7}  # programs of each kind

replay: Any = _replay()
corpus = replay.Corpus(str(CORPUS))


# *** the recorded programs ***


def programs() -> list[str]:
    """The recorded programs whose op types are all registered, functions of their own aside."""
    out = []
    for e in corpus.index:
        missing = {t for t in e["ops"] if t not in op_registry}
        if missing and "functions" in e["tags"]:
            library = pb.GraphDef.FromString(corpus.load(e["id"])["graph"]).library
            missing -= {f.signature.name for f in library.function}
        if not missing:
            out.append(e["id"])
    return out


def chosen() -> list[str]:
    """Those with control flow or functions, and a sample of the others."""
    control = {e["id"] for e in corpus.index if CONTROL & set(e["ops"]) or "functions" in e["tags"]}
    rest = [p for p in programs() if p not in control]
    keep = {*control, *rest[::EVERY]}
    return [p for p in programs() if p in keep]


def recovered() -> list[str]:
    """The programs with control flow, but for random numbers: in functions TensorFlow's streams are others."""
    random = {e["id"] for e in corpus.index if "random" in e["tags"]}
    return [p for p in candidates() if p not in random]


def known() -> dict[str, str]:
    """The programs, with the form ("probes/0001 primitive"), below "Export" in docs/reference/conformance.md."""
    text = NOTES.read_text(encoding="utf-8").partition("\n## Export\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`|]+/\d+)` \| (structured|primitive|both) \| (.+?) \|$", text, flags=re.MULTILINE)
    return {f"{p} {form}": why for p, which, why in rows for form in (FORMS if which == "both" else (which,))}


class NotRecovered(Exception):
    """headrace does not know a program's primitives as loops and conditionals."""


def _through_headrace(form: str, fetches: Collection[str], **more: Any) -> Any:
    """An engine for `replay`: TensorFlow, given what headrace wrote of the program.

    Args:
      form: the form that `as_graph_def` takes.
      fetches: names of tensors whose loops and conditionals are recovered before, as gradients recover them.
      more: of the configuration of sessions.
    """

    def opened(data: bytes, config: dict[str, Any]) -> Any:
        try:
            with hr.Graph() as g:
                hr.import_graph_def(data, name="")
            if fetches:
                recover(g, [g.get_tensor_by_name(n) for n in sorted(fetches)])
        except HeadraceError as e:
            if not fetches:
                raise
            raise NotRecovered(str(e)) from e
        instead = {t.name: resolved(t).name for op in g.operations for t in op.outputs if resolved(t) is not t}
        written = g.as_graph_def(form).SerializeToString()
        session = replay.open_tf(written, {"operation_timeout_in_ms": STEP_MS, **config, **more})
        run = session.run

        def run_recovered(fetches: list[str], *rest: Any) -> Any:
            return run([instead.get(n, n) for n in fetches], *rest)

        session.run = run_recovered
        return session

    return opened


def of_corpus(ids: Iterable[str], is_recovered: bool = False) -> dict[str, Any]:
    """Counts of the programs that came out right, in both forms.

    For the others, by "program form", the reason is given.

    Args:
      ids: the programs.
      is_recovered: whether their primitives are made into loops and conditionals first.
    """
    out: dict[str, Any] = {"right": 0, "wrong": {}, "elsewhere": []}
    for program in ids:
        for form in FORMS:
            loaded = corpus.load(program)
            fetches = {n for s in loaded["steps"] for n in s["fetches"]} if is_recovered else set()
            try:
                replay.execute(loaded, _through_headrace(form, fetches), replay.TOL)
                out["right"] += 1
            except replay.Mismatch as e:
                if "NotRecovered" in str(e):
                    out["elsewhere"].append(program)  # it is not well-structured, or a fetch stands inside
                elif _in_one_thread(loaded, form, fetches):
                    out["right"] += 1  # iterations that overlap draw random numbers in the order in which threads come
                elif _fails_by_itself(program):
                    out["elsewhere"].append(program)  # on this processor even TensorFlow's own file gives other results
                else:
                    out["wrong"][f"{program} {form}"] = str(e)
    return out


def _in_one_thread(loaded: dict[str, Any], form: str, fetches: Collection[str]) -> bool:
    """Whether a program with random numbers passes when TensorFlow has one thread for operations."""
    drawn = (op_registry.find(n.op) for n in pb.GraphDef.FromString(loaded["graph"]).node)
    if not any(d is not None and d.facts.effect == "random" for d in drawn):
        return False
    try:
        replay.execute(loaded, _through_headrace(form, fetches, inter_op_parallelism_threads=1), replay.TOL)
    except replay.Mismatch:
        return False
    return True


def _fails_by_itself(program: str) -> bool:
    try:
        replay.execute(corpus.load(program), replay.open_tf, replay.TOL)
    except replay.Mismatch:
        return True
    return False


# *** random programs, and some by hand ***


_NAMES = cases.names_of_primitives()  # they are there in primitive form only
_BY_HAND = [*_NAMES, cases.branches(), *map(cases.collectives, (1, 2, 3, 5))]
_MAKERS: dict[str, Callable[[int], cases.Case]] = {
    "plain": lambda seed: cases.structured(seed, stateful=False),
    "stateful": lambda seed: cases.structured(seed, stateful=True),
    "gradients": cases.differentiated,
    "by hand": lambda i: _BY_HAND[i],
}


def of_random(part: int, parts: int) -> dict[str, Any]:
    """Counts of the random programs that passed, in both forms.

    Also the reasons why others did not, and the programs that were refused when written.
    """
    out: dict[str, Any] = {"right": 0, "wrong": {}, "refused": {}}
    for kind, count in RANDOM.items():
        for seed in range(count)[part::parts]:
            made = _MAKERS[kind](seed)
            want, failed, _ = cases.run(made.graph, made.steps)
            for form in FORMS if made not in _NAMES else ("primitive",):
                try:
                    written = made.graph.as_graph_def(form).SerializeToString()
                except GraphError as e:
                    out["refused"][f"{kind} {seed} {form}"] = str(e)
                    continue
                wrong = _differs(written, made.steps, want, failed, 1e-9 if kind == "gradients" else 0.0)
                if wrong and b"TensorListUnset" in written and "shape of dy" in wrong:
                    # an element of a list was replaced by one of another shape, which gradients in TensorFlow cannot
                    out["refused"][f"{kind} {seed} {form}"] = f"TensorListUnset: {wrong}"
                elif wrong:
                    out["wrong"][f"{kind} {seed} {form}"] = wrong
                else:
                    out["right"] += 1
    return out


def _differs(written: bytes, steps: list[cases.Step], want: list[Any], failed: str, rtol: float) -> str:
    """The difference between TensorFlow's results and headrace's; "" if there is none."""
    session = replay.open_tf(written, {"operation_timeout_in_ms": STEP_MS})
    found: list[Any] = []
    try:
        for s in steps:
            found += session.run(s.fetches, s.targets, s.feeds)
    except Exception as e:
        check = re.search(r"assertion failed: \[\S+\]", str(e))
        if failed and check is not None:  # of several checks in one step any may be the first to fail
            return ""
        return f"{type(e).__name__}: {str(e)[:400]}; expected {failed or 'values'}"
    finally:
        session.close()
    if failed:
        return f"gave values; expected {failed}"
    return "" if cases.same(found, want, rtol) else f"got {found}, expected {want}"[:600]


def main(arguments: list[str]) -> None:
    what, *rest = arguments
    os.environ.update(ENVIRONMENT)
    shown, sys.stdout = sys.stdout, sys.stderr
    if what == "programs":
        out = of_corpus(rest)
    elif what == "recovered":
        part, parts = map(int, rest)
        out = of_corpus(recovered()[part::parts], is_recovered=True)
    elif what == "random":
        out = of_random(*map(int, rest))
    else:
        part, parts = map(int, rest)
        of_sample = set(chosen())
        ids = chosen() if what == "corpus" else [p for p in programs() if p not in of_sample]
        out = of_corpus(ids[part::parts])
    sys.stdout = shown
    print(json.dumps(out))
    sys.stdout.flush()
    os._exit(0)  # steps that hang are left behind


if __name__ == "__main__":
    main(sys.argv[1:])
