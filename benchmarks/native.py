"""Workloads of native code with their aims, as one table.

    python -m benchmarks --only native
    python -m benchmarks.native --only rnn --only lstm --rounds 7 --json native.json
    python -m benchmarks.native --before ../earlier              # the tree that must not have been faster

The contenders run in one process with one thread each, in turns, as those of `benchmarks.workloads` do; the C compiler
is called with `-O3 -march=native`. First results, imports and two threads have processes of their own.
A line of the table is one aim, or a contender without one.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import gradients, programs, report, since, threads
from benchmarks.contenders import CONTENDERS, prepare
from benchmarks.measure import in_turns, shown
from benchmarks.programs import Program, kernels, scalars, spellings, training
from benchmarks.report import Row
from benchmarks.workloads import MICROSECONDS, MILLISECONDS, PER_TRIP, Workload, conditions, timed

LOOPED = ("headrace", "TensorFlow", "JAX")
PAIR = ("headrace", "TensorFlow")
FASTEST, ONE_THREAD = "fastest spelling", "one thread"
SPREAD = 1.2  # the slowest spelling to the fastest
TWO_THREADS = 1 / 1.6  # the time by two threads to that by one
PROCESSES = 3  # of each kind, at most, where a round is a process
SAME = 1.05  # "no worse than before": medians of few processes differ by so much without a reason


def _forward(program: Program) -> Program:
    return dataclasses.replace(program, by=())


def _looped(key: str, title: str, program: Program, systems: tuple[str, ...] = LOOPED, **aims: float) -> Workload:
    return Workload(key, title, program, "callable", PER_TRIP, systems, aims)


def _lstm(sizes: tuple[int, int, int], jax: float, torch: float) -> Workload:
    program = programs.lstm(*sizes)
    systems, aims = (*LOOPED, "PyTorch"), {"JAX": jax, "PyTorch": torch}
    return Workload("lstm", f"{program.title}, gradient", program, "callable", MILLISECONDS, systems, aims)


def _scalars() -> Iterator[Workload]:
    for program in scalars.all_of(1000, 10):
        yield _looped("scalars", f"{program.title}, forward", _forward(program), JAX=0.7)
        yield _looped("scalars", f"{program.title}, gradient", program, JAX=0.7)


def _kernel(key: str, program: Program, tensorflow: float, unit: str = MILLISECONDS, title: str = "") -> Workload:
    return Workload(key, title or program.title, program, "callable", unit, PAIR, {"TensorFlow": tensorflow})


def _training(program: Program, tensorflow: float) -> Workload:
    systems, aims = (*PAIR, "PyTorch"), {"TensorFlow": tensorflow, "PyTorch": 0.8}
    return Workload(
        "training", f"{program.title}: a step of training", program, "training", MILLISECONDS, systems, aims
    )


_RNN = programs.rnn(4, 16, 200)
_CONVNET = programs.convnet(32, 32, (32, 64, 64))
WORKLOADS = (
    _looped("loops", "counting loop", programs.counting(20_000), TensorFlow=0.001),
    _looped("loops", "nested scalar loop", programs.nested_scalars(100, 100), TensorFlow=0.002, JAX=0.7),
    _looped("loops", "cond in a loop, gradient", programs.branches(1_000, -0.999), TensorFlow=0.001, JAX=0.7),
    *_scalars(),
    _looped("rnn", "RNN 4x16, forward", _forward(_RNN), (*LOOPED, "C"), TensorFlow=0.03, JAX=0.25, C=1.0),
    _looped("rnn", "RNN 4x16, gradient", _RNN, (*LOOPED, "C"), TensorFlow=0.01, JAX=0.15, C=1.0),
    _lstm((8, 200, 64), jax=0.6, torch=1.0),
    _lstm((1, 500, 128), jax=0.45, torch=1.0),
    _lstm((32, 100, 256), jax=0.8, torch=1.3),
    _training(training.digits_lstm(32, 128), tensorflow=0.4),
    _training(training.digits_vgg(32), tensorflow=0.9),
    Workload(
        "training", "convnet, gradient step", _CONVNET, "callable", MILLISECONDS, (*PAIR, "PyTorch"),
        {"TensorFlow": 1.0, "PyTorch": 0.8},
    ),
    _kernel("conv", kernels.conv2d(32, 32, 3, 64, 64), 1.2),
    _kernel("conv", kernels.conv2d_by_input(32, 32, 3, 64, 64), 1.2),
    _kernel("conv", kernels.conv2d_by_filter(32, 32, 3, 64, 64), 1.2),
    _kernel("conv", kernels.conv2d(8, 224, 7, 3, 64, stride=2), 1.2),
    _kernel("conv", kernels.conv2d(32, 32, 3, 3, 64), 1.2),
    _kernel("conv", kernels.conv2d_by_filter(32, 32, 3, 3, 64), 1.2),
    *(_kernel("pool", kernels.max_pool(32, 32, 64, k, gradient=g), 1.0) for k in (2, 3) for g in (False, True)),
    *(_kernel("norm", kernels.batch_norm(32, 32, 64, gradient=g), 1.0) for g in (False, True)),
    _kernel("elementwise", programs.elementwise(150, 256), 0.25, MICROSECONDS, "150 elementwise on 256x256"),
    _kernel("elementwise", programs.elementwise(30, 2048), 0.3, title="30 elementwise on 2048x2048"),
    _kernel("kernels", kernels.cross_entropy(1024, 1000), 0.6),
    _kernel("kernels", kernels.reductions(2048), 0.5),
    _kernel("kernels", kernels.gather(50_000, 64, 20_000), 0.6),
    _kernel("kernels", kernels.scatter(50_000, 64, 20_000), 0.8),
)  # fmt: skip

# title → the spellings of one program; with the gradient unless the title says "forward"
SPELLINGS: Mapping[str, Mapping[str, Program]] = {
    "RNN 4x16 with inputs, forward": {k: _forward(p) for k, p in spellings.of_rnn(4, 16, 200).items()},
    "RNN 4x16 with inputs, gradient": spellings.of_rnn(4, 16, 200),
    **{
        f"LSTM {'x'.join(map(str, sizes))}, gradient": spellings.of_lstm(*sizes)
        for sizes in ((8, 200, 64), (1, 500, 128), (32, 100, 256))
    },
}

THREADED = (
    kernels.conv2d(32, 32, 3, 64, 64),
    kernels.matmul(1024),
    programs.elementwise(30, 2048),
)

KEYS = (*dict.fromkeys(w.key for w in WORKLOADS), "spellings", "threads", "interpreted", "first", "import")


def spelled(title: str, spelled: Mapping[str, Program], rounds: int, least: float = 0.02) -> Row:
    """Times the spellings of a program: the slowest, compared with the fastest.

    Raises:
      ArithmeticError: their results differ.
    """
    found = {}
    for name, program in spelled.items():
        prepared = prepare("headrace", program, "callable", 1)
        assert prepared is not None
        found[name] = prepared
    program = next(iter(spelled.values()))
    difference = gradients.compare(program, list(found), [p.results() for p in found.values()])
    times = dict(zip(found, in_turns([p.call for p in found.values()], rounds, least), strict=True))
    order = sorted(times, key=lambda name: statistics.median(times[name]))
    ms = {name: [1e3 * s for s in times[name]] for name in order}
    facts = ", ".join(f"{name}: {shown(statistics.median(values))}" for name, values in ms.items())
    facts += f"; results differ by {difference:.1g} at most"
    others = {FASTEST: ms[order[0]]}
    name = f"{title}: the slowest of {len(spelled)} spellings"
    return Row(name, MILLISECONDS, ms[order[-1]], facts, others, key="spellings", aims={FASTEST: SPREAD})


def threaded(program: Program, rounds: int, least: float = 0.02) -> Row:
    """Times a program by two threads, compared with one; this process must be allowed two."""
    two, one = (prepare("headrace", program, "callable", n) for n in (2, 1))
    assert two is not None
    assert one is not None
    gradients.compare(program, ["two threads", "one"], [two.results(), one.results()])
    mine, theirs = ([1e3 * s for s in seconds] for seconds in in_turns([two.call, one.call], rounds, least))
    aims = {ONE_THREAD: TWO_THREADS}
    return Row(f"{program.title}: two threads", MILLISECONDS, mine, "", {ONE_THREAD: theirs}, key="threads", aims=aims)


def unchanged(name: str, key: str, rounds: int, before: Path | None) -> Iterator[Row]:
    """Measures a task of `benchmarks.since`, compared with the same in an earlier tree."""
    ms = {kind: [1e3 * s for s in mine] for kind, mine in since.measured(name, rounds, before).items()}
    then = {since.THEN: ms[since.THEN]}
    if since.WARM in ms:
        yield Row(f"{name}, cold", MILLISECONDS, ms[since.COLD], "", then, key=key, aims={since.THEN: 1.5})
        yield Row(f"{name}, warm", MILLISECONDS, ms[since.WARM], "", then, key=key, aims={since.THEN: 1.0})
    else:
        yield Row(name, MILLISECONDS, ms[since.COLD], "", then, key=key, aims={since.THEN: SAME})


def measured(only: Collection[str], rounds: int, systems: Sequence[str], before: str) -> Iterator[Row]:
    """Measures the rows with the keys `only`, in the order of the table."""
    for w in WORKLOADS:
        if w.key in only and any(name in systems for name in w.systems):
            yield timed(w, rounds, 1, systems)
    if "spellings" in only:
        for title, ways in SPELLINGS.items():
            yield spelled(title, ways, rounds)
    if "threads" in only:
        yield from _in_a_process(["--only", "threads", "--threads", "2", "--rounds", str(rounds)], 2)
    tasks = {
        "interpreted": [name for name in since.TASKS if not since.is_cached(name)],
        "first": [name for name in since.TASKS if since.is_cached(name)],
        "import": ["import"],
    }
    if any(key in only for key in tasks):
        with since.package(before) as folder:
            for key, names in tasks.items():
                for name in names if key in only else ():
                    yield from unchanged(name, key, min(rounds, PROCESSES), folder)


def native() -> list[Row]:
    """Measures all rows in a process with one thread, which prints the table of aims."""
    return [row for row in _in_a_process([], 1, is_shown=True) if row.values]


def _in_a_process(arguments: Sequence[str], n_threads: int, is_shown: bool = False) -> Sequence[Row]:
    """The rows that this module measures in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "benchmarks.native", *arguments, "--json", str(file)]
        out = None if is_shown else subprocess.DEVNULL
        sys.stdout.flush()
        subprocess.run(command, env=threads.environment(n_threads), cwd=threads.ROOT, stdout=out, check=True)
        return report.read(file).rows


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.native", description="Measures native code.")
    parser.add_argument("--only", action="append", choices=KEYS, help="only these (may be repeated)")
    parser.add_argument("--who", action="append", choices=CONTENDERS, help="only these contenders (may be repeated)")
    parser.add_argument("--rounds", type=int, default=5, help="of each row")
    parser.add_argument("--threads", type=int, default=1, choices=(1, 2), help="2: only the rows of two threads")
    parser.add_argument("--before", default=since.BEFORE, help="a folder or commit with the earlier tree")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds of all results")
    args = parser.parse_args(arguments)
    threads.fix(args.threads, "benchmarks.native", arguments)

    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")  # by other processes
    began = time.perf_counter()
    rows = []
    if args.threads == 2:
        found: Iterator[Row] = (threaded(program, args.rounds) for program in THREADED)
    else:
        found = measured(args.only or KEYS, args.rounds, args.who or (*CONTENDERS,), args.before)
    for row in found:
        print(f"  {row.said()}", file=sys.stderr, flush=True)
        rows.append(row)
    run = report.Run(rows, conditions(args.threads, load, time.perf_counter() - began))
    print(run.judgements())
    if args.json is not None:
        run.write(args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
