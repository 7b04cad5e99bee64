"""Random tests of all families, counted: the table of docs/internals/reliability.md.

    python -m tests.reliability --docs docs/internals/reliability.md    # every family, about an hour of CPU time
    python -m tests.reliability --only "control edges" --cases 20000    # one family; the other rows stay as they are

A case is drawn from its number, so a failing case is run again by its family's command with that number. Counts are
kept in tests/data/reliability.json; `--docs` writes the page from them.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import multiprocessing
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "tests" / "data" / "reliability.json"
CHUNK = 200  # programs that one process checks at a time
BEGIN, END = "<!-- table: python -m tests.reliability -->", "<!-- end of table -->"


@dataclasses.dataclass
class Count:
    """Counts of one family of random tests.

    Attributes:
      cases: programs, graphs or processes.
      runs: executions that were compared.
      failures: cases that fail: their numbers.
      mended: cases that failed in this run and have passed since (`--again`).
      seconds: of CPU time of this process and those it started.
    """

    cases: int = 0
    runs: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    mended: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Family:
    """One row of the table.

    Attributes:
      what: description of a case and of the comparison.
      cases: how many there are by default.
      run: counts the cases with numbers from 0 to below its argument.
      again: the command for one case, `N` its number.
    """

    what: str
    cases: int
    run: Callable[[int], Count]
    again: str


def _each(check: Callable[[int], int]) -> Callable[[int], Count]:
    """Makes a counter of cases from a check of one case.

    The check returns the number of its executions, or raises.
    """

    def run(cases: int) -> Count:
        out = Count()
        for n in range(cases):
            out.cases += 1
            try:
                out.runs += check(n)
            except Exception as e:
                out.failures.append(str(n))
                print(f"case {n}: {type(e).__name__}: {str(e)[:300]}", file=sys.stderr, flush=True)
        return out

    return run


def _sweep(first: int, last: int) -> tuple[int, int, list[str], list[str]]:
    """(programs, executions, failing seeds, failures) of a range of seeds."""
    from tests.order import checking

    tally = checking.sweep(first, last)
    seeds = list(dict.fromkeys(str(f.seed) for f in tally.failures))
    return tally.programs, tally.steps, seeds, [str(f) for f in tally.failures]


def control_edges(cases: int) -> Count:
    out = Count()
    starts = range(0, cases, CHUNK)
    spawn = multiprocessing.get_context("spawn")  # the parent may have threads
    with concurrent.futures.ProcessPoolExecutor(max_workers=2, mp_context=spawn) as pool:
        for programs, runs, seeds, failures in pool.map(_sweep, starts, [min(n + CHUNK, cases) for n in starts]):
            out.cases += programs
            out.runs += runs
            out.failures += seeds
            for text in failures:
                print(text, file=sys.stderr, flush=True)
    return out


def _control_edge(n: int) -> int:
    _, runs, _, failures = _sweep(n, n + 1)
    assert not failures, failures
    return runs


def _structured(stateful: bool) -> Callable[[int], int]:
    def check(n: int) -> int:
        from tests.api import programs
        from tests.api import test_random_programs as t

        rng = random.Random(f"reliability {n}")
        block = t._program(rng, stateful)
        t._check(block, programs.initial(rng), stateful, rng.choice([1, 2, 10]), rng.randrange(1000))
        return t.ORDERS + 2

    return check


def _passes(n: int) -> int:
    from tests.api import test_random_programs as t
    from tests.optimize import test_random_passes

    test_random_passes._check_stateful(random.Random(f"reliability {n}"), bool(n % 2))
    return t.ORDERS + 2


def _gradients(n: int) -> int:
    from tests.grad import test_random_gradients as t

    t._check(n, t.ORDERS - n % 2)
    return t.ORDERS - n % 2 + 1


def _placements(n: int) -> int:
    from tests.multi import test_random_placements as t

    kind = n % 3
    (t.check_values, t.check_gradients, t.check_threads)[kind](n // 3)
    return (1, 1, 2)[kind]


def _arrays(n: int) -> int:
    from tests.v1 import test_random_arrays as t

    wrong = t.differences(10_000 + n)
    assert not wrong, wrong
    return len(t.ROUTES)


def _primitives(n: int) -> int:
    from tests.execute import test_random_graphs as t

    t._check_machine(n)
    t._check_session(n)
    return 6


def kills(cases: int) -> Count:
    """Kills writers of checkpoints and checks the files.

    They are killed at every system call, then at `cases` moments of each format.
    """
    out = Count()
    for format in ("native", "tensorflow", "tensorflow-v1"):
        for way, rounds in (("calls", 0), ("times", cases)):
            with tempfile.TemporaryDirectory() as folder:
                command = ["-m", "tests.files.killing", folder, format, way, "1", str(rounds)]
                done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode:
                out.failures.append(f"{format} {way}")
                print(done.stderr, file=sys.stderr)
            else:
                out.cases += int(done.stdout)
                out.runs += int(done.stdout)
    return out


def damaged(cases: int) -> Count:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.graphdef", "--cases", str(cases), "--minutes", "60"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    failures = [line.split()[1] for line in lines if line.startswith("case ")]
    return Count(cases, cases, failures)


def _workers(n: int) -> int:
    """Runs a program on three processes, which serve all cases and end with this one."""
    import headrace as hr
    from tests.dist import many_programs
    from tests.dist import test_random_programs as t

    warnings.simplefilter("error", hr.errors.CompileWarning)
    kind, optimize = many_programs.kind_of(n)
    t.CHECKS[kind](10_000 + n, optimize)
    return 1


def faults(cases: int) -> Count:
    """Rounds of faults on one cluster, or on a new one after a failure."""
    from tests.dist.faults import check

    out = Count()
    while out.cases < cases:
        try:
            for _ in check(range(1000 + out.cases, 1000 + cases)):
                out.cases += 1
                out.runs += 1
        except AssertionError as e:
            out.failures.append(str(1000 + out.cases))
            out.cases += 1
            print(e, file=sys.stderr, flush=True)
    return out


FAMILIES: dict[str, Family] = {
    "control edges": Family(
        "programs whose effects are ordered by control edges alone, in graphs of `headrace.v1` and `hr`: interpreted, "
        "compiled, without optimizer, one pass off or alone, 2 or 3 devices, a partial run, a random order of firing; "
        "against the primitive graph of TensorFlow 1 in plain Python",
        20_000,
        control_edges,
        "python -m tests.order N --reduce",
    ),
    "values": Family(
        "structured programs of values, lists and loops: 2 random orders of firing, compiled with and without passes; "
        "against plain Python",
        2_000,
        _each(_structured(False)),
        "python -m tests.reliability --case 'values' N",
    ),
    "state": Family(
        "the same with variables, prints, asserts, random streams and queues in automatic order",
        2_000,
        _each(_structured(True)),
        "python -m tests.reliability --case 'state' N",
    ),
    "passes": Family(
        "the same after a random choice of optimizer passes in random order",
        1_000,
        _each(_passes),
        "python -m tests.reliability --case 'passes' N",
    ),
    "gradients": Family(
        "smooth programs with loops, calls, lists and variables: derivatives to order 3; against jets in plain Python "
        "and against differences",
        400,
        _each(_gradients),
        "python -m tests.reliability --case 'gradients' N",
    ),
    "placements": Family(
        "each operation on a random one of 2 or 3 devices: values, gradients to the bit, and sessions with threads; no "
        "token may be left over",
        900,
        _each(_placements),
        "python -m tests.reliability --case 'placements' N",
    ),
    "arrays": Family(
        "reads and writes of one `headrace.v1.TensorArray`, some of them refused: interpreted, compiled, without one "
        "pass or all, with gradients; against the rules of TensorFlow 1 in plain Python",
        2_000,
        _each(_arrays),
        "python -m tests.reliability --case 'arrays' N",
    ),
    "primitives": Family(
        "graphs of Switch, Merge and control edges at random; against an oracle of deadness",
        2_000,
        _each(_primitives),
        "python -m tests.reliability --case 'primitives' N",
    ),
    "kills": Family(
        "processes killed while they write a checkpoint: before and after every system call, and at random moments; "
        "the checkpoint is whole",
        100,
        kills,
        "python -m tests.files.killing FOLDER FORMAT WAY 1 100",
    ),
    "workers": Family(
        "programs of values, gradients and waits for queues, each operation on a random one of three worker processes, "
        "with and without passes: the results of one device",
        2_000,
        _each(_workers),
        "python -m tests.reliability --case 'workers' N",
    ),
    "faults": Family(
        "a worker, the master or a client of a cluster is killed or stopped, or a connection cut or delayed, in any "
        "phase: an error in time that names the process, no wrong result, and work goes on",
        200,
        faults,
        "python -m tests.dist.faults N",
    ),
    "damaged graphs": Family(
        "damaged `GraphDef`s that are imported, printed and run: refused by a `HeadraceError`, or they work",
        10_000,
        damaged,
        "python -m tests.fuzz.graphdef --case N",
    ),
}


def _cpu() -> float:
    import resource

    return sum(
        r.ru_utime + r.ru_stime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        for r in [resource.getrusage(who)]
    )  # fmt: skip


def measured(family: Family, cases: int) -> Count:
    """Counts of a family's cases, with the time that they take."""
    started = _cpu()
    out = family.run(cases)
    out.seconds = round(_cpu() - started, 1)
    return out


def table(counts: dict[str, Count]) -> str:
    """The table of the page."""
    rows = ["| family | what a case is | cases | executions | failures | CPU min | one case again |"]
    rows.append("|---|---|---:|---:|---:|---:|---|")
    for name, family in FAMILIES.items():
        c = counts.get(name)
        if c is None:
            rows.append(f"| {name} | {family.what} | not run | | | | `{family.again}` |")
            continue
        failures = f"{len(c.failures)}" + (f": {', '.join(c.failures[:10])}" if c.failures else "")
        if c.mended:
            failures += f" (mended since: {len(c.mended)})"
        rows.append(
            f"| {name} | {family.what} | {c.cases:,} | {c.runs:,} | {failures} | {c.seconds / 60:.1f} | "
            f"`{family.again}` |"
        )
    return "\n".join(rows)


def write_page(page: Path, counts: dict[str, Count]) -> None:
    """Replaces the table in a page."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table(counts)}\n{END}{after}", encoding="utf-8")


def load() -> dict[str, Count]:
    """The counts of the last runs."""
    if not RESULTS.exists():
        return {}
    return {name: Count(**c) for name, c in json.loads(RESULTS.read_text(encoding="utf-8")).items()}


def again(one: Mapping[str, Callable[[int], int]]) -> int:
    """Runs the kept failing cases and returns the number that still fail.

    Cases that pass count as mended.
    """
    counts = load()
    for name, c in counts.items():
        for n in list(c.failures):
            try:
                one[name](int(n))
            except Exception as e:
                print(f"{name} {n}: {type(e).__name__}: {str(e)[:300]}", file=sys.stderr)
            else:
                c.failures.remove(n)
                c.mended.append(n)
    save(counts)
    return sum(len(c.failures) for c in counts.values())


def save(counts: Mapping[str, Count]) -> None:
    """Keeps the counts."""
    RESULTS.write_text(json.dumps({n: dataclasses.asdict(x) for n, x in counts.items()}, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status, 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", action="append", choices=FAMILIES, help="a family; may be given again")
    parser.add_argument("--cases", type=int, help="how many cases of each family")
    parser.add_argument("--docs", type=Path, help="the page whose table is written")
    parser.add_argument("--again", action="store_true", help="run the cases again that failed")
    parser.add_argument("--case", nargs=2, metavar=("FAMILY", "N"), help="run one case, and let its error through")
    options = parser.parse_args(arguments)
    one = {
        "control edges": _control_edge, "values": _structured(False), "state": _structured(True), "passes": _passes,
        "gradients": _gradients, "placements": _placements, "arrays": _arrays, "primitives": _primitives,
        "workers": _workers,
    }  # fmt: skip
    if options.case:
        print(one[options.case[0]](int(options.case[1])), "executions")
        return 0
    if options.again:
        return again(one)
    counts = load()
    chosen = options.only or list(FAMILIES)
    for name in chosen:
        started = time.perf_counter()
        counts[name] = c = measured(FAMILIES[name], options.cases or FAMILIES[name].cases)
        print(
            f"{name}: {c.cases} cases, {c.runs} executions, {len(c.failures)} failures, "
            f"{time.perf_counter() - started:.0f} s",
            flush=True,
        )
        save(counts)
    if options.docs:
        write_page(options.docs, counts)
    return 1 if any(counts[name].failures for name in chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
