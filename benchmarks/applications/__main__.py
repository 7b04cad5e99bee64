"""Compares training steps a second with TensorFlow 1 and PyTorch: `python -m benchmarks.applications`.

headrace and TensorFlow run the same program (`examples/applications`), whose import alone differs; PyTorch runs a
twin with the same model, initial weights and data (`benchmarks/applications`). All run in one process, in turns: a
first turn that is not timed, since it compiles, then the median of several turns. Both cores are available to each
library. The column "losses" is the loss after the same number of steps in each library, in the order of the columns.
Programs that draw random numbers in the graph differ there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from examples.applications import page, records

TURNS: Final = 5
#: Program -> steps of a turn, and whether it is recurrent, conditional or reinforcement learning.
PROGRAMS: Final[dict[str, tuple[int, bool]]] = {
    "dqn": (1000, True),
    "experts": (50, True),
    "translation": (10, True),
    "language_model": (5, False),
    "lstm_devices": (2, True),
    "tree_lstm": (20, True),
    "neural_ode": (20, True),
    "memory": (5, True),
    "learned_optimizer": (20, True),
    "hidden_markov": (20, True),
    "autoencoder": (100, False),
    "adversarial": (100, False),
}
LIBRARIES: Final = ("headrace", "TensorFlow", "PyTorch")
LONGEST: Final = 600  # seconds of one program


def trainer(library: str, program: str) -> Callable[[int], float] | None:
    """The function that trains; None without the library or a program for it."""
    if library == "PyTorch":
        module = f"benchmarks.applications.{program}"
        if not (importlib.util.find_spec("torch") and importlib.util.find_spec(module)):
            return None
        make: Callable[[], Callable[[int], float]] = importlib.import_module(module).trainer
        return make()
    tf: Any
    if library == "TensorFlow":
        if not importlib.util.find_spec("tensorflow"):
            return None
        tf = importlib.import_module("tensorflow.compat.v1")
        tf.disable_v2_behavior()
    else:
        tf = importlib.import_module("headrace.v1")
    application = importlib.import_module(f"examples.applications.{program}")
    made: Callable[[int], float] = application.trainer(tf)
    return made


def measured(program: str, turns: int, steps: int) -> list[Any]:
    """The row of a program: its steps a second in each library, ratios, and losses."""
    trainers = {library: train for library in LIBRARIES if (train := trainer(library, program)) is not None}
    seconds: dict[str, list[float]] = {library: [] for library in trainers}
    losses = {library: train(steps) for library, train in trainers.items()}
    for _ in range(turns):
        for library, train in trainers.items():
            begun = time.perf_counter()
            losses[library] = train(steps)
            seconds[library].append(time.perf_counter() - begun)
    speeds = {library: steps / statistics.median(s) for library, s in seconds.items()}
    ratios = [f"{speeds['headrace'] / speeds[x]:.2f}" if x in speeds else "" for x in LIBRARIES[1:]]
    shown = [f"{speeds[x]:.4g}" if x in speeds else "" for x in LIBRARIES]
    return [program, *shown, *ratios, ", ".join(f"{losses[x]:.4g}" for x in LIBRARIES if x in losses)]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"default: all of {', '.join(PROGRAMS)}")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--steps", type=int, help="of a turn; default: a number for each program")
    parser.add_argument("--record", type=Path, help="JSON file to write the table to")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    record, names = records.Record(), options.names or list(PROGRAMS)
    rows = []
    if len(names) == 1:
        rows.append(measured(names[0], options.turns, options.steps or PROGRAMS[names[0]][0]))
        print("  ".join(map(str, rows[0])), flush=True)
    else:
        rows = [_in_process(name, options) for name in names]
    columns = ["program", *LIBRARIES, *(f"headrace / {x}" for x in LIBRARIES[1:]), "losses"]
    record.table("Steps a second:", columns, rows, timed=True)
    if options.record is not None:
        record.write(options.record)
    behind = [row[0] for row in rows if row[4] and float(row[4]) < 1 and PROGRAMS[row[0]][1]]
    if behind:
        print(f"slower than TensorFlow: {', '.join(behind)}", file=sys.stderr)
    return int(bool(behind))


def _in_process(name: str, options: argparse.Namespace) -> list[Any]:
    """The row of a program that is measured in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "row.json")
        command = [sys.executable, "-m", "benchmarks.applications", name, "--turns", str(options.turns)]
        command += ["--record", str(path)] + (["--steps", str(options.steps)] if options.steps else [])
        subprocess.run(command, cwd=page.ROOT, timeout=LONGEST, check=False)
        return records.read(path).tables[0].rows[0]


if __name__ == "__main__":
    sys.exit(main())
