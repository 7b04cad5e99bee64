"""The workloads of headrace: the same scripts under TensorFlow, and numpy by hand.

    python -m benchmarks.workloads                      # prints the tables
    python -m benchmarks.workloads --only lstm --rounds 5 --json lstm.json
    python -m benchmarks.compare before.json lstm.json

`make bench` also writes the tables into docs/reference/benchmarks.md.

How a figure comes about. All contenders (`benchmarks.contenders`) are imported into one process, with one thread each
unless `--threads` says otherwise. A workload is made ready for each of them, and their results are compared: where
they differ there are no figures. Then come the rounds. In each, every contender runs for at least 20 ms, one after the
other; a ratio is taken within a round, so that both its sides saw the same machine a fraction of a second apart, and
what is printed is the median of the rounds' ratios with the least and the greatest. That is why there is one process
and not one for each: processes in turns are seconds apart, in which a shared machine changes its speed by half. Threads
that the others leave running could disturb; with one thread each there are none. `--who headrace` runs one alone.

Memory, imports and whole programs are measured in processes of their own (`benchmarks.peak`, `benchmarks.lifetime`,
`benchmarks.whole_programs`), as they must be.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

import headrace as hr
from benchmarks import gradients, lifetime, peak, programs, report, threads, whole_programs
from benchmarks.contenders import CONTENDERS, prepare
from benchmarks.measure import in_turns
from benchmarks.programs import Program, in_v1, kernels, training
from benchmarks.report import Row
from headrace import flags

MiB = 2**20
MICROSECONDS = "µs"
PER_TRIP = "µs an iteration"
PER_RUN = "µs a run"
MILLISECONDS = "ms"

V1 = ("headrace", "interpreter", "TensorFlow")
PAIRS = (*V1, "by hand")
INTERPRETED = ("interpreter", "TensorFlow")
ON_TORCH = ("TORCH", "PyTorch")


@dataclasses.dataclass(frozen=True)
class Workload:
    """One line of the table.

    Attributes:
      key: its name for `--only`; several may share one.
      title: as the table shows it.
      program: the program, with its gradient if it names arguments for that.
      how: by a callable of a session, by its `run`, from nothing to the first result, the graph alone, by several
        threads in one session, or as steps of training (see `programs.in_v1`).
      unit: of the figures.
      systems: the contenders; the others are compared with the first one: headrace, or its interpreter.
      aims: contender → the greatest ratio of times that is aimed at; a unit → the greatest time. They are those of the
        plan and are not changed.
      least: how long a contender runs in a round, in seconds.
    """

    key: str
    title: str
    program: Program
    how: str
    unit: str
    systems: tuple[str, ...]
    aims: Mapping[str, float]
    least: float = 0.02


def _forward(program: Program) -> Program:
    return dataclasses.replace(program, by=())


def _lstm(batch: int, time: int, hidden: int, tensorflow: float, jax: float) -> Workload:
    aims = {"TensorFlow": tensorflow, "by hand": 1.2, "JAX": jax}
    program = programs.lstm(batch, time, hidden)
    title = f"{program.title}, gradient"
    return Workload("lstm", title, program, "callable", MILLISECONDS, (*PAIRS, "JAX", "PyTorch"), aims)


def _looped(key: str, title: str, program: Program, tensorflow: float, hand: float) -> Workload:
    return Workload(key, title, program, "callable", PER_TRIP, PAIRS, {"TensorFlow": tensorflow, "by hand": hand})


def _shared(title: str, program: Program) -> Workload:
    title = f"{title}, {in_v1.SHARERS} threads in one session"
    return Workload("shared", title, program, "shared", PER_RUN, V1, {})


def _kernel(program: Program, tensorflow: float | None = None) -> Workload:
    aims = {} if tensorflow is None else {"TensorFlow": tensorflow}
    return Workload("kernels", program.title, program, "callable", MILLISECONDS, V1, aims)


def _training(program: Program, *systems: str, **aims: float) -> Workload:
    return Workload(
        "training", f"{program.title}: a step of training", program, "training", MILLISECONDS, (*V1, *systems), aims
    )


_RNN = programs.rnn(4, 16, 200)

WORKLOADS = (
    _looped("counting", "counting loop", programs.counting(20_000), 0.04, 1.3),
    _looped("nested", "nested scalar loop", programs.nested_scalars(100, 100), 0.05, 1.3),
    _looped("cond", "cond in a loop, gradient", programs.branches(1_000, -0.999), 0.04, 1.3),
    _looped("rnn", "RNN 4x16, forward", _forward(_RNN), 0.4, 1.1),
    _looped("rnn", "RNN 4x16, gradient", _RNN, 0.2, 1.3),
    _lstm(8, 200, 64, tensorflow=0.6, jax=1.5),
    _lstm(1, 500, 128, tensorflow=0.15, jax=0.9),
    _lstm(32, 100, 256, tensorflow=0.75, jax=1.0),
    Workload("trivial", "trivial run", programs.add(), "run", MICROSECONDS, V1, {MICROSECONDS: 6.0}),
    Workload("trivial", "trivial callable", programs.add(), "callable", MICROSECONDS, V1, {MICROSECONDS: 3.0}),
    Workload(
        "trivial", "trivial run, interpreted", programs.add(), "run", MICROSECONDS, INTERPRETED, {MICROSECONDS: 15.0}
    ),
    Workload("trivial", "trivial callable, interpreted", programs.add(), "callable", MICROSECONDS, INTERPRETED, {}),
    _shared("trivial callable", programs.add()),
    _shared("30 elementwise on 256x256", programs.elementwise(30, 256)),
    Workload(
        "chain", "1,000 scalar operations in a chain", programs.chain(1000), "callable", MICROSECONDS, PAIRS,
        {"TensorFlow": 1.0, "by hand": 1.5},
    ),
    Workload(
        "wide", "1,000 scalar operations side by side", programs.wide(1000), "callable", MICROSECONDS, PAIRS,
        {"TensorFlow": 0.3, "by hand": 1.5},
    ),
    Workload(
        "elementwise", "150 elementwise on 256x256", programs.elementwise(150, 256), "callable", MICROSECONDS, PAIRS,
        {"TensorFlow": 0.45},
    ),
    Workload(
        "build", "RNN 4x16, gradient: build and first result", _RNN, "first", MILLISECONDS, V1, {"TensorFlow": 0.5}
    ),
    Workload(
        "build", "RNN 4x16, gradient: build and first result, interpreted", _RNN, "first", MILLISECONDS, INTERPRETED,
        {"TensorFlow": 0.5},
    ),
    Workload("build", "RNN 4x16, gradient: build", _RNN, "graph", MILLISECONDS, ("headrace", "TensorFlow"), {}),
    Workload(
        "build", "1,000 scalar operations in a chain: build", programs.chain(1000), "graph", MILLISECONDS,
        ("headrace", "TensorFlow"), {"TensorFlow": 0.2},
    ),
    Workload(
        "convnet", "convnet, gradient step", programs.convnet(32, 32, (32, 64, 64)), "callable", MILLISECONDS, PAIRS,
        {"TensorFlow": 3.0},
    ),
    Workload(
        "torch", "convnet on TORCH, gradient step", programs.convnet(32, 32, (32, 64, 64)), "callable", MILLISECONDS,
        ON_TORCH, {"PyTorch": 1.2},
    ),
    Workload(
        "torch", "VGG on digits, 32x8x8, on TORCH: a step of training", training.digits_vgg(32), "training",
        MILLISECONDS, ON_TORCH, {"PyTorch": 1.2},
    ),
    Workload(
        "torch", "VGG on digits, 128x8x8, on TORCH: a step of training", training.digits_vgg(128), "training",
        MILLISECONDS, ON_TORCH, {"PyTorch": 1.2},
    ),
    Workload(
        "torch", "VGG on digits, 32x8x8, twice as wide, on TORCH: a step of training",
        training.digits_vgg(32, (64, 128), 256), "training", MILLISECONDS, ON_TORCH, {"PyTorch": 1.2},
    ),
    Workload(
        "torch", "convnet on TORCH, 16 images of 48x48, gradient step", programs.convnet(16, 48, (32, 64, 64)),
        "callable", MILLISECONDS, ON_TORCH, {"PyTorch": 1.2},
    ),
    Workload(
        "elementwise", "150 elementwise on 256x256, interpreted", programs.elementwise(150, 256), "callable",
        MICROSECONDS, INTERPRETED, {"TensorFlow": 1.0},
    ),
    Workload(
        "elementwise", "30 elementwise on 2048x2048", programs.elementwise(30, 2048), "callable", MILLISECONDS, V1, {}
    ),
    _kernel(kernels.conv2d(32, 32, 3, 64, 64), 2.5),
    _kernel(kernels.conv2d_by_input(32, 32, 3, 64, 64), 2.5),
    _kernel(kernels.conv2d_by_filter(32, 32, 3, 64, 64), 2.5),
    _kernel(kernels.conv2d(32, 32, 3, 3, 64), 2.5),
    _kernel(kernels.conv2d_by_filter(32, 32, 3, 3, 64), 2.5),
    _kernel(kernels.conv2d(8, 224, 7, 3, 64, stride=2), 2.5),
    _kernel(kernels.max_pool(32, 32, 64, 2, gradient=False), 4.0),
    _kernel(kernels.max_pool(32, 32, 64, 2, gradient=True), 4.0),
    _kernel(kernels.max_pool(32, 32, 64, 3, gradient=False), 4.0),
    _kernel(kernels.max_pool(32, 32, 64, 3, gradient=True), 4.0),
    _kernel(kernels.batch_norm(32, 32, 64, gradient=False)),
    _kernel(kernels.batch_norm(32, 32, 64, gradient=True)),
    _kernel(kernels.cross_entropy(1024, 1000)),
    _kernel(kernels.matmul(1024), 1.2),
    _kernel(kernels.reductions(2048)),
    _kernel(kernels.gather(50_000, 64, 20_000)),
    _kernel(kernels.scatter(50_000, 64, 20_000)),
    _training(training.digits_lstm(32, 128), "PyTorch", TensorFlow=1.0),
    _training(training.digits_lstm(32, 128, leaves_batch_open=True)),
    _training(training.digits_vgg(32), "PyTorch", TensorFlow=2.5),  # 0.4 times as many steps a second
)  # fmt: skip

# LSTMs whose gradients' memory is measured: batch, time, hidden
MEMORY = ((8, 200, 64), (1, 500, 128), (32, 100, 256))
MEMORY_AIMS = {"TensorFlow": 1.0}
V1_IMPORT_AIMS = {"TensorFlow": 0.12}
WHOLE_PROGRAM_AIMS = {"TensorFlow": 2.0}


def timed(w: Workload, rounds: int, n_threads: int, systems: Sequence[str] = tuple(CONTENDERS)) -> Row:
    """Times one workload.

    Raises:
      ArithmeticError: the results of two contenders differ.
    """
    found = {name: prepare(name, w.program, w.how, n_threads) for name in w.systems if name in systems}
    here = {name: p for name, p in found.items() if p is not None}
    if not here:  # nothing that could run it is installed
        return Row(w.title, w.unit, [], "", {name: [] for name in w.systems[1:]}, key=w.key, aims=w.aims)
    compared = _forward(w.program) if w.how == "training" else w.program
    difference = gradients.compare(compared, list(here), [p.results() for p in here.values()])
    seconds = in_turns([p.call for p in here.values()], rounds, w.least)
    runs = in_v1.SHARERS * in_v1.SHARED_RUNS
    scale = {MICROSECONDS: 1e6, PER_TRIP: 1e6 / w.program.trips, PER_RUN: 1e6 / runs, MILLISECONDS: 1e3}[w.unit]
    values: dict[str, list[float]] = {name: [] for name in found}
    for name, mine in zip(here, seconds):
        values[name] += [scale * s for s in mine]
    facts = f"results differ by {difference:.1g} at most" if len(here) > 1 else ""
    return Row(w.title, w.unit, values.pop(w.systems[0], []), facts, values, key=w.key, aims=w.aims)


def remembered(
    sizes: tuple[int, int, int], rounds: int, n_threads: int, systems: Sequence[str] = tuple(CONTENDERS)
) -> Row:
    """Measures the memory of one LSTM's gradient, a process for each contender and round."""
    peaks: dict[str, list[float]] = {name: [] for name in ("headrace", "TensorFlow", "by hand") if name in systems}
    built: dict[str, float] = {}
    for _ in range(rounds):
        for name, values in peaks.items():
            found = peak.measured(name, sizes, n_threads)
            if found is not None:
                values.append(found["peak"] / MiB)
                built[name] = found["built"] / MiB
    graphs = ", ".join(f"{name} {built[name]:.1f}" for name in built if name != "by hand")
    title = f"LSTM {'x'.join(map(str, sizes))}, gradient: peak memory"
    facts = f"of that the graph before it first runs: {graphs}"
    return Row(title, "MiB", peaks.pop("headrace", []), facts, peaks, key="memory", aims=MEMORY_AIMS)


def imported(rounds: int, systems: Sequence[str] = tuple(CONTENDERS)) -> Row:
    """Measures imports, in fresh processes taken in turns; "by hand" is numpy."""
    seconds = lifetime.import_times(systems, rounds)
    values = {name: [1e3 * s for s in mine] for name, mine in seconds.items()}
    facts = "fresh processes, the interpreter's start not counted; by hand: numpy"
    return Row("import", MILLISECONDS, values.pop("headrace", []), facts, values, key="import")


def imported_v1(rounds: int, systems: Sequence[str] = tuple(CONTENDERS)) -> Row:
    """Measures imports of TensorFlow 1's interface, in fresh processes taken in turns."""
    seconds = lifetime.import_times(systems, rounds, lifetime.V1_IMPORTS)
    values = {name: [1e3 * s for s in mine] for name, mine in seconds.items()}
    facts = f"as import, of {' and '.join(lifetime.V1_IMPORTS.values())}"
    title = "import of TensorFlow 1's interface"
    return Row(title, MILLISECONDS, values.pop("headrace", []), facts, values, key="import", aims=V1_IMPORT_AIMS)


def whole(rounds: int, n_threads: int, systems: Sequence[str] = tuple(CONTENDERS)) -> Iterator[Row]:
    """Measures the processor time of short programs, each in fresh processes taken in turns."""
    facts = "processor time of a fresh process after the import"
    for program, seconds in whole_programs.seconds(systems, rounds, n_threads).items():
        values = {name: [1e3 * s for s in mine] for name, mine in seconds.items()}
        mine, title = values.pop("headrace", []), f"program {program}"
        yield Row(title, MILLISECONDS, mine, facts, values, key="whole", aims=WHOLE_PROGRAM_AIMS)


def left_behind(rounds: int, n_threads: int, systems: Sequence[str] = tuple(CONTENDERS)) -> Row:
    """Measures what very many runs leave in memory, a process for each contender and round."""
    values: dict[str, list[float]] = {name: [] for name in V1 if name in systems}
    for _ in range(rounds):
        for name, mine in values.items():
            found = lifetime.left_by_runs(name, RUNS, n_threads)
            mine += [] if found is None else [found]
    facts = "the slope of resident memory; x + 1 by session.run"
    title = f"memory left by a run, over {RUNS:,} runs"
    return Row(title, "bytes", values.pop("headrace", []), facts, values, key="left", is_compared=False)


RUNS = 100_000
KEYS = tuple(dict.fromkeys([*(w.key for w in WORKLOADS), "memory", "import", "whole", "left"]))


def measured(
    only: Collection[str], rounds: int, memory_rounds: int, n_threads: int, systems: Sequence[str]
) -> Iterator[Row]:
    """Measures the workloads with the keys `only`, in the order of the table.

    A workload without a contender in `systems` is left out.
    """
    for w in WORKLOADS:
        if w.key in only and any(name in systems for name in w.systems):
            row = timed(w, rounds, n_threads, systems)
            if row.values or any(row.others.values()):
                yield row
    if "memory" in only:
        for sizes in MEMORY:
            yield remembered(sizes, memory_rounds, n_threads, systems)
    if "import" in only:
        yield imported(memory_rounds, systems)
        yield imported_v1(memory_rounds, systems)
    if "whole" in only:
        yield from whole(memory_rounds, n_threads, systems)
    if "left" in only:
        yield left_behind(1, n_threads, systems)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workloads", description="Measures the workloads.")
    parser.add_argument("--only", action="append", choices=KEYS, help="only these (may be repeated)")
    parser.add_argument("--who", action="append", choices=CONTENDERS, help="only these contenders (may be repeated)")
    parser.add_argument("--rounds", type=int, default=7, help="of each workload; docs have at least 5")
    parser.add_argument("--memory-rounds", type=int, default=3, help="processes for each peak and contender")
    parser.add_argument("--threads", type=int, default=1, help="that each contender may use")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds of all results")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write the tables of a whole run into this page")
    args = parser.parse_args(arguments)
    threads.fix(args.threads, "benchmarks.workloads", arguments)

    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")  # other work of the machine
    began = time.perf_counter()
    rows = []
    for row in measured(args.only or KEYS, args.rounds, args.memory_rounds, args.threads, args.who or (*CONTENDERS,)):
        print(f"  {row.said()}", file=sys.stderr, flush=True)
        rows.append(row)
    run = report.Run(rows, conditions(args.threads, load, time.perf_counter() - began))
    print(run.text())
    if args.json is not None:
        run.write(args.json)
    if args.docs is not None:
        if args.only or args.who or args.rounds < 5:
            print(f"\n{args.docs} stays as it was: it is for whole runs of at least 5 rounds.")
        else:
            report.insert(args.docs, run.text())
    return 0


def conditions(n_threads: int, load: float, seconds: float) -> dict[str, str]:
    """Conditions of the figures besides the code."""
    found = {"headrace": hr.__version__, "python": platform.python_version(), "numpy": np.__version__}
    found |= {name: sys.modules[name].__version__ for name in ("tensorflow", "jax", "torch") if name in sys.modules}
    found |= {
        "engine": flags.ENGINE.value,
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
        "threads": str(n_threads),
    }
    return found | {"load before": f"{load:.1f}", "seconds": f"{seconds:.0f}"}


if __name__ == "__main__":
    sys.exit(main())
