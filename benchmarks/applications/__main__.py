"""Compares training steps a second with TensorFlow 1 and PyTorch: `python -m benchmarks.applications`.

headrace and TensorFlow run the same program (`examples/applications`), whose import alone differs. PyTorch runs a twin
with the same model, initial weights and data (`benchmarks/applications`). Each library has a process of its own, and
they run in turns. A first turn is not timed, since it compiles. The table has the median of the others. All libraries
may use both cores. The column "losses" is the loss after the same number of steps in each library, in the order of the
columns. Only the losses of programs that draw random numbers in the graph differ.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import statistics
import subprocess
import sys
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
    "swapping": (1, True),
    "tree_lstm": (20, True),
    "neural_ode": (20, True),
    "memory": (5, True),
    "learned_optimizer": (20, True),
    "hidden_markov": (20, True),
    "autoencoder": (100, False),
    "adversarial": (100, False),
}
LIBRARIES: Final = ("headrace", "TensorFlow", "PyTorch")


def has(library: str, program: str) -> bool:
    """Whether a library is installed and has the program."""
    modules = {"headrace": ["headrace"], "TensorFlow": ["tensorflow"], "PyTorch": ["torch"]}[library]
    if library == "PyTorch":
        modules.append(f"benchmarks.applications.{program}")
    return all(importlib.util.find_spec(module) for module in modules)


def trainer(library: str, program: str) -> Callable[[int], float]:
    """The function that trains a program with a library."""
    if library == "PyTorch":
        twin: Callable[[], Callable[[int], float]] = importlib.import_module(
            f"benchmarks.applications.{program}"
        ).trainer
        return twin()
    tf: Any
    if library == "TensorFlow":
        tf = importlib.import_module("tensorflow.compat.v1")
        tf.disable_v2_behavior()
    else:
        tf = importlib.import_module("headrace.v1")
    make: Callable[[Any], Callable[[int], float]] = importlib.import_module(f"examples.applications.{program}").trainer
    return make(tf)


class Contender:
    """Process that trains a program with a library, a turn at a time."""

    def __init__(self, library: str, program: str) -> None:
        command = [sys.executable, "-m", "benchmarks.applications", program, "--library", library]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=page.ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )

    def train(self, steps: int) -> tuple[float, float]:
        """Trains for some steps; returns the seconds that they took, and the last loss."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(steps, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with status {self._process.wait()}")
        seconds, loss = map(float, line.split())
        return seconds, loss

    def end(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def serve(train: Callable[[int], float]) -> None:
    """Trains for as many steps as each line of the standard input states."""
    for line in sys.stdin:
        begun = time.perf_counter()
        loss = train(int(line))
        print(time.perf_counter() - begun, loss, flush=True)


def measured(program: str, turns: int, steps: int) -> list[Any]:
    """The row of a program: its steps a second in each library, ratios, and losses."""
    contenders = {library: Contender(library, program) for library in LIBRARIES if has(library, program)}
    seconds: dict[str, list[float]] = {library: [] for library in contenders}
    losses: dict[str, float] = {}
    for turn in range(turns + 1):
        for library, contender in contenders.items():
            taken, losses[library] = contender.train(steps)
            if turn:  # the first one compiles
                seconds[library].append(taken)
    for contender in contenders.values():
        contender.end()
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
    parser.add_argument("--library", choices=LIBRARIES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}
    if options.library:
        serve(trainer(options.library, options.names[0]))
        return 0
    rows = []
    for name in options.names or PROGRAMS:
        rows.append(measured(name, options.turns, options.steps or PROGRAMS[name][0]))
        print("  ".join(map(str, rows[-1])), flush=True)
    record = records.Record()
    columns = ["program", *LIBRARIES, *(f"headrace / {x}" for x in LIBRARIES[1:]), "losses"]
    record.table("Steps a second:", columns, rows, timed=True)
    if options.record is not None:
        record.write(options.record)
    behind = [row[0] for row in rows if row[4] and float(row[4]) < 1 and PROGRAMS[row[0]][1]]
    if behind:
        print(f"slower than TensorFlow: {', '.join(behind)}", file=sys.stderr)
    return int(bool(behind))


if __name__ == "__main__":
    sys.exit(main())
