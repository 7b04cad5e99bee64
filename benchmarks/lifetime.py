"""Measurements of whole processes: time of an import, memory after very many runs.

    python -m benchmarks.lifetime TensorFlow 100000

prints the slope of resident memory, in bytes a run, of the smallest step run so often.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks import contenders, programs, threads
from benchmarks.measure import resident_bytes
from benchmarks.startup import import_seconds

IMPORTS = {"headrace": "headrace", "TensorFlow": "tensorflow", "by hand": "numpy", "JAX": "jax", "PyTorch": "torch"}
V1_IMPORTS = {"headrace": "headrace.v1", "TensorFlow": "tensorflow.compat.v1"}
POINTS = 20  # at which the memory is looked at
WARM = 2_000  # runs before the first look


def import_times(contender: Sequence[str], rounds: int, imports: Mapping[str, str] = IMPORTS) -> dict[str, list[float]]:
    """Seconds of the imports of the installed contenders, in fresh processes in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in imports if name in contender}
    there = [name for name in seconds if importlib.util.find_spec(imports[name].partition(".")[0]) is not None]
    with tempfile.TemporaryDirectory() as cache:
        for name in there:
            import_seconds(imports[name], cache)  # the first one compiles, and reads from a cold disk
        for _ in range(rounds):
            for name in there:
                seconds[name].append(import_seconds(imports[name], cache))
    return seconds


def left_by_runs(contender: str, runs: int, n_threads: int) -> float | None:
    """Bytes that a run leaves behind, measured in a new process.

    Returns:
      None: `contender` is not installed.
    """
    command = [sys.executable, "-m", "benchmarks.lifetime", contender, str(runs), "--threads", str(n_threads)]
    done = subprocess.run(
        command, env=threads.environment(n_threads), cwd=threads.ROOT, text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed with status {done.returncode}:\n{done.stderr}")
    found: float | None = json.loads(done.stdout.splitlines()[-1])
    return found


def here(contender: str, runs: int, n_threads: int) -> float | None:
    """The same, measured in this process."""
    prepared = contenders.prepare(contender, programs.add(), "run", n_threads)
    if prepared is None:
        return None
    for _ in range(min(WARM, runs)):
        prepared.call()
    memory = [resident_bytes()]
    each = max(1, runs // POINTS)
    for _ in range(POINTS):
        for _ in range(each):
            prepared.call()
        memory.append(resident_bytes())
    return float(np.polyfit(np.arange(POINTS + 1) * each, memory, 1)[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lifetime", description="What runs leave in memory.")
    parser.add_argument("who", choices=contenders.CONTENDERS)
    parser.add_argument("runs", type=int)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    print(json.dumps(here(args.who, args.runs, args.threads)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
