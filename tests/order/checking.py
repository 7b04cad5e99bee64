"""Checks programs on every route of headrace.

Routes differ in the engine, single passes, devices and the order of firing, and in whether the optimizer is on.

`python -m tests.order 12 --routes all` checks one seed, and prints a reduced program if it fails.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Sequence

import headrace as hr
from headrace import flags
from headrace.optimize.pipeline import names
from tests.execute.machine import SeededReady
from tests.multi.scattering import scatter
from tests.order import running
from tests.order.generating import generate
from tests.order.programs import Program, source
from tests.order.reducing import smaller
from tests.order.reference import Expected, Indeterminate

SECONDS = 30  # for one step


@dataclasses.dataclass(frozen=True)
class Route:
    """One way to run a program.

    Attributes:
      kind: "v1" (headrace.v1, where only edges order) or "hr" (hr.Graph, with automatic order).
      engine: of the session.
      optimize: the flag OPTIMIZE.
      devices: how many; operations request random ones if there are several.
      ready: whether the order of firing is drawn from the seed (it is interpreted then).
      partial: whether it is a partial run, to which the feeds come one by one.
      imported: whether the graph is exported in this form ("primitive" or "structured") and imported first.
    """

    kind: str
    engine: str = "auto"
    optimize: str = "on"
    devices: int = 1
    ready: bool = False
    partial: bool = False
    imported: str = ""

    def __str__(self) -> str:
        more = ", ".join(
            f"{k}={v}"
            for k, v in dataclasses.asdict(self).items()
            if k not in ("kind", "engine") and v != getattr(Route, k)
        )
        return f"{self.kind}/{self.engine}" + (f" ({more})" if more else "")


def basic(kind: str) -> list[Route]:
    return [
        Route(kind, "interpret"),
        Route(kind, ready=True),
        Route(kind),
        Route(kind, optimize="off"),
        Route(kind, partial=True),
    ]


def passes(kind: str) -> list[Route]:
    """Each pass off, and each alone."""
    every = names()
    without = [Route(kind, optimize=f"-{n}") for n in every]
    alone = [Route(kind, optimize=",".join(f"-{m}" for m in every if m != n)) for n in every]
    return without + alone


def devices(kind: str) -> list[Route]:
    return [Route(kind, devices=3), Route(kind, devices=2, optimize="off")]


def imports() -> list[Route]:
    """Graphs that were exported and imported."""
    return [
        Route("v1", engine, imported=form) for form in ("primitive", "structured") for engine in ("auto", "interpret")
    ]


def routes_of(kind: str, seed: int, many: bool = False) -> list[Route]:
    """Routes on which a program is checked.

    With `many` these are all routes; without it, all engines and one of each other kind, in turn.
    """
    files = imports() if kind == "v1" else []
    if many:
        return [*basic(kind), *passes(kind), *devices(kind), *files]
    more = passes(kind)
    return [
        *basic(kind),
        more[seed % len(more)],
        devices(kind)[seed % 2],
        *(files[k] for k in [seed % 4] if files),
    ]


def expected(p: Program, kind: str, lenient: bool = False, whole: bool = True) -> list[Expected]:
    """Expected effects and values of the steps of a program.

    With `lenient`, effects that are not reached may happen or not. Without `whole`, a structured result as a target or
    control input stands for itself only, as in TensorFlow.

    Raises:
      Indeterminate: If the program leaves open which operations run.
    """
    reference = running.reference(p, whole, kind == "hr")
    return [reference.step(lenient) for _ in range(p.steps)]


def _is_more(p: Program, route: Route, got: Sequence[running.Observed]) -> bool:
    """Whether the only differences are effects that need not happen."""
    try:
        want = expected(p, route.kind, lenient=True, whole=not route.imported)
    except Indeterminate:
        return True
    return not any(running.differences(a, b) for a, b in zip(want, got, strict=False))


def check(
    p: Program, route: Route, seed: int, want: Sequence[Expected], built: running.Built | None = None
) -> list[str]:
    """Differences between a program on a route and its expected steps.

    An error counts as a difference.
    """
    try:
        if built is None or route.devices > 1:
            built = (running.in_v1 if route.kind == "v1" else running.in_hr)(p)
        if route.imported:
            built = running.Imported(built, route.imported)
        if route.devices > 1:
            scatter(built.graph, random.Random(seed), route.devices)
        devices = None if route.devices == 1 else {"CPU": route.devices}
        session = hr.Session(graph=built.graph, engine=route.engine, devices=devices)
        with flags.override(OPTIMIZE=route.optimize), session:
            built.start(session)
            seen: list[running.Observed] = []
            for n, step in enumerate(want):
                ready = SeededReady(seed + n) if route.ready else None
                options = hr.RunOptions(timeout_in_ms=SECONDS * 1000, ready=ready)
                seen.append(_step(built, session, route, options))
                wrong = running.differences(step, seen[-1])
                if ready is not None and not wrong:
                    ready.check()
                if wrong:
                    return [] if _is_more(p, route, seen) else [f"step {n}: {w}" for w in wrong]
    except (running.NotThisProgram, NameError, SyntaxError, UnboundLocalError):
        raise
    except Exception as e:
        return [f"{type(e).__name__}: {str(e)[:300]}"]
    return []


def _step(built: running.Built, session: hr.Session, route: Route, options: hr.RunOptions) -> running.Observed:
    return built.step(session, partial=True) if route.partial else built.step(session, options=options)


@dataclasses.dataclass
class Failure:
    seed: int
    route: Route
    program: Program
    wrong: list[str]

    def __str__(self) -> str:
        return f"seed {self.seed} on {self.route}: {'; '.join(self.wrong)}"


def check_all(p: Program, seed: int, on: Iterable[Route]) -> tuple[int, list[Failure]]:
    """Number of executions and failures on all routes.

    They are 0 and [] if the program leaves open which operations run.
    """
    failures, n = [], 0
    want: dict[str, list[Expected]] = {}
    built: dict[str, running.Built] = {}
    for route in on:
        if route.kind not in want:
            try:
                want[route.kind] = expected(p, route.kind)
            except Indeterminate:
                return 0, []
            built[route.kind] = (running.in_v1 if route.kind == "v1" else running.in_hr)(p)
        n += len(want[route.kind])
        wrong = check(p, route, seed, want[route.kind], built[route.kind])
        if wrong:
            failures.append(Failure(seed, route, p, wrong))
    return n, failures


@dataclasses.dataclass
class Tally:
    """Counts of programs and executions.

    Attributes:
      programs: Number of programs checked.
      left_out: Number of programs that leave open which operations run.
      steps: Number of executions.
      failures: The failures, one for each program and route.
    """

    programs: int = 0
    left_out: int = 0
    steps: int = 0
    failures: list[Failure] = dataclasses.field(default_factory=list)


def kind_of(seed: int) -> str:
    """Kind of the graph in which a program is built.

    Two of three programs are built in graphs of headrace.v1, where no order is automatic.
    """
    return "hr" if seed % 3 == 2 else "v1"


def sweep(first: int, last: int, many: bool = False, routes: Sequence[Route] | None = None) -> Tally:
    """Checks the programs with the seeds from `first` to below `last`."""
    tally = Tally()
    for seed in range(first, last):
        kind = kind_of(seed) if routes is None else routes[0].kind
        p = generate(seed, functions=kind == "hr")
        n, failures = check_all(p, seed, routes_of(kind, seed, many) if routes is None else routes)
        tally.programs += bool(n)
        tally.left_out += not n
        tally.steps += n
        tally.failures += failures
    return tally


def reduced(f: Failure, most: int = 3000) -> Failure:
    """A failure of the same route with as small a program as removing things gives."""
    is_error = f.wrong[0].partition(":")[0]

    def wrong(p: Program) -> list[str]:
        try:
            out = check(p, f.route, f.seed, expected(p, f.route.kind))
        except Exception:  # the reference refuses it: a name is not defined, a step leaves open what runs
            return []
        return out if not out or out[0].startswith("step") == is_error.startswith("step") else []

    again = True
    while again and most > 0:
        again = False
        for p in smaller(f.program):
            most -= 1
            if most <= 0:
                break
            if len(source(p)) < len(source(f.program)) and (found := wrong(p)):
                f, again = Failure(f.seed, f.route, p, found), True
                break
    return f


def report(f: Failure) -> str:
    """A failure with its program as source that can be run."""
    prelude = "PRELUDE" if f.route.kind == "v1" else "ORDERED"
    return (
        f"# {f}\n# COUNTERS = {running.COUNTERS}; exec(tests.order.running.{prelude})\n{source(f.program)}"
        f"# {f.program.steps} step(s) of fetches and targets"
    )
