"""Figures of this tree and of an earlier one, in processes of their own.

    python -m benchmarks.since "first result: RNN 4x16, gradient"

prints, for the headrace that is imported, the seconds that the task takes. `measured` starts such processes in turns,
for both trees and, where a task compiles, with an empty folder for caches and with one that an earlier process filled.
Only the package `headrace` is taken from the earlier tree; the programs are those of this one.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks import programs, threads
from benchmarks.contenders import prepare
from benchmarks.measure import in_turns
from benchmarks.programs import Program, training
from benchmarks.startup import import_seconds

BEFORE = "6a68247f"  # the last commit before there was native code
CACHES = "XDG_CACHE_HOME"  # the variable that names the folder in which processes keep what later ones may use
COLD, WARM, THEN = "cold", "warm", "before"


@dataclasses.dataclass(frozen=True)
class Task:
    """A program that is measured in a process of its own.

    Attributes:
      program: the program.
      how: as `contenders.prepare` has it.
      contender: "headrace" or "interpreter".
    """

    program: Program
    how: str
    contender: str = "headrace"


TASKS: Mapping[str, Callable[[], Task]] = {
    "first result: RNN 4x16, gradient": lambda: Task(programs.rnn(4, 16, 200), "first"),
    "first result: LSTM on digits, 32x8x128": lambda: Task(training.digits_lstm(32, 128), "training"),
    "1,000 scalar operations in a chain, interpreted": lambda: Task(programs.chain(1000), "callable", "interpreter"),
    "trivial run, interpreted": lambda: Task(programs.add(), "run", "interpreter"),
}


def is_cached(name: str) -> bool:
    """Whether a task is a first result, which may come from a cache."""
    return name.startswith("first result")


@contextlib.contextmanager
def package(before: str) -> Iterator[Path | None]:
    """A folder with the package `headrace` of an earlier tree, and nothing else.

    Args:
      before: a folder with that tree, or a commit of this one's repository.

    Returns:
      None: there is neither; the reason is printed.
    """
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if (Path(before) / "headrace").is_dir():
            (folder / "headrace").symlink_to((Path(before) / "headrace").resolve())
            yield folder
            return
        archive = folder / "headrace.tar"
        command = ["git", "archive", "--output", str(archive), before, "headrace"]
        try:
            done = subprocess.run(command, cwd=threads.ROOT, capture_output=True, text=True, check=False)
            reason = done.stderr.strip() if done.returncode else ""
        except FileNotFoundError:
            reason = "there is no git"
        if reason:
            print(f"  before: {before!r} is no folder with headrace, and no commit: {reason}", file=sys.stderr)
            yield None
            return
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        yield folder


def measured(name: str, rounds: int, before: Path | None) -> dict[str, list[float]]:
    """Seconds that a task takes in new processes, taken in turns.

    Args:
      name: of the task, or "import".
      rounds: processes of each kind.
      before: a folder with the package of the earlier tree; None: there is none.

    Returns:
      `COLD`, `THEN` and, for a task that is cached, `WARM` → the values; none of `THEN` if there is no earlier tree.
    """
    kinds = [COLD, *([WARM] if is_cached(name) else []), THEN]
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as made:
        shared, code = Path(made) / "shared", str(Path(made) / "code")

        def once(kind: str) -> float:
            root = threads.ROOT if kind != THEN else before
            assert root is not None
            with tempfile.TemporaryDirectory() as empty:
                if name == "import":
                    return import_seconds("headrace", code, root)
                return _process(name, root, shared if kind == WARM else Path(empty), code)

        there = [kind for kind in kinds if kind != THEN or before is not None]
        for kind in there:
            once(kind)  # byte code and the warm cache are made
        for _ in range(rounds):
            for kind in there:
                found[kind].append(once(kind))
    return found


def _process(name: str, root: Path, caches: Path, code: str) -> float:
    caches.mkdir(exist_ok=True)
    path = os.pathsep.join([str(root), str(threads.ROOT)])
    settings = {"PYTHONPATH": path, CACHES: str(caches), "PYTHONPYCACHEPREFIX": code}
    env = {**threads.environment(1), **settings}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "benchmarks.since", name]
    # the folder in which a process starts comes first in its path
    done = subprocess.run(command, env=env, cwd=root, text=True, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed with status {done.returncode}:\n{done.stderr}")
    seconds: float = json.loads(done.stdout.splitlines()[-1])
    return seconds


def here(name: str) -> float:
    """Seconds that a task takes in this process."""
    task = TASKS[name]()
    began = time.perf_counter()
    prepared = prepare(task.contender, task.program, task.how, 1)
    assert prepared is not None
    prepared.call()
    if is_cached(name):
        return time.perf_counter() - began
    return statistics.median(in_turns([prepared.call], 9)[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.since", description="A task in this process.")
    parser.add_argument("task", choices=TASKS)
    print(json.dumps(here(parser.parse_args().task)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
