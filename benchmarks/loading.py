"""Loads of a SavedModel with variables in memory of its files, compared with copies.

    python -m benchmarks.loading --megabytes 512

Each load has a process of its own, which loaded a small model before, and the files are in the cache of the system.
The memory of the process alone cannot be taken back by the system, unlike pages of files that have not changed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import headrace as hr
from benchmarks import threads
from benchmarks.measure import Result, table
from headrace import thresholds

VARIABLES = 8
MAPPED, COPIED = "in the files", "copies"


class _Module:
    """Object whose attributes are saved."""


def loading(megabytes: int = 512, repeats: int = 7) -> list[Result]:
    """Time and memory of a load; both kinds in turns."""
    found: dict[str, list[dict[str, float]]] = {MAPPED: [], COPIED: []}
    with tempfile.TemporaryDirectory() as folder:
        _write(f"{folder}/small", 1)
        _write(f"{folder}/large", megabytes)
        for _ in range(repeats):
            for kind, values in found.items():
                values.append(_measured(folder, kind))
    return [
        Result(f"load of {megabytes} MB, {kind}", unit, [v[field] for v in values], field)
        for field, unit in (("time", "ms"), ("memory of the process", "MB"), ("memory of the process alone", "MB"))
        for kind, values in found.items()
    ]


def _write(path: str, megabytes: int) -> None:
    rng = np.random.default_rng(1)
    module = _Module()
    rows = megabytes * 2**20 // (4 * 256 * VARIABLES)
    vars(module)["layers"] = [hr.Variable(rng.random((rows, 256), np.float32)) for _ in range(VARIABLES)]
    hr.saved_model.save(module, path)


def _measured(folder: str, kind: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.loading", "--load", folder, kind]
    done = subprocess.run(
        command, env=threads.environment(1), cwd=threads.ROOT, text=True, capture_output=True, check=True
    )
    out: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return out


def _load(folder: str, kind: str) -> dict[str, float]:
    """The figures of a load in this process."""
    if kind == COPIED:
        thresholds.MAPPED_BYTES = sys.maxsize  # type: ignore[misc]
    hr.saved_model.load(f"{folder}/small")
    before, start = _memory(), time.perf_counter()
    model = hr.saved_model.load(f"{folder}/large")
    milliseconds = 1e3 * (time.perf_counter() - start)
    after = _memory()
    assert len(model.variables) == VARIABLES
    return {"time": milliseconds} | {field: after[field] - before[field] for field in before}


def _memory() -> dict[str, float]:
    """Resident memory of this process in MB (Linux)."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    sizes = {key: int(lines[key].split()[0]) / 1024 for key in ("VmRSS", "RssAnon")}
    return {"memory of the process": sizes["VmRSS"], "memory of the process alone": sizes["RssAnon"]}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loading", description="Loads of a SavedModel.")
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--load", nargs=2, metavar=("FOLDER", "KIND"), help="the figures of one load")
    args = parser.parse_args()
    if args.load is not None:
        print(json.dumps(_load(*args.load)))
    else:
        print(table(loading(args.megabytes, args.rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
