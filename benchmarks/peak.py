"""Peak memory of a gradient, measured in a process of its own.

    python -m benchmarks.peak TensorFlow 8 200 64

prints it for an LSTM of this batch, time and hidden size. It is measured after all imports and a run of the smallest
LSTM, so that single allocations of libraries do not count. The graph, its compiled form and three runs count.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import resource
import subprocess
import sys
from collections.abc import Sequence

from benchmarks import contenders, programs, threads
from benchmarks.measure import resident_bytes

RUNS = 3


def measured(contender: str, sizes: Sequence[int], n_threads: int) -> dict[str, float] | None:
    """Bytes of the graph ("built") and of all ("peak"), measured in a new process.

    Returns:
      None: `contender` is not installed.
    """
    command = [sys.executable, "-m", "benchmarks.peak", contender, *map(str, sizes), "--threads", str(n_threads)]
    done = subprocess.run(
        command, env=threads.environment(n_threads), cwd=threads.ROOT, text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed with status {done.returncode}:\n{done.stderr}")
    found: dict[str, float] | None = json.loads(done.stdout.splitlines()[-1])
    return found


def here(contender: str, sizes: Sequence[int], n_threads: int) -> dict[str, float] | None:
    """The same, measured in this process, which should not have done much before."""
    small = contenders.prepare(contender, programs.lstm(1, 2, 4), "callable", n_threads)
    if small is None:
        return None
    small.call()
    program = programs.lstm(*sizes)
    before = begin()
    prepared = contenders.prepare(contender, program, "callable", n_threads)
    assert prepared is not None
    built = resident_bytes() - before
    for _ in range(RUNS):
        prepared.call()
    return {"built": built, "peak": most() - before}


def begin() -> int:
    """Resident memory; resets the peak where the system can do that (Linux).

    Freed memory that the C library keeps is returned first, since its reuse would not show.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
            f.write("5")
    except OSError:
        return most()
    return resident_bytes()


def most() -> int:
    """The most bytes that have been resident."""
    try:
        with open("/proc/self/status", encoding="ascii") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM:"))
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peak", description="The memory of an LSTM's gradient.")
    parser.add_argument("who", choices=contenders.CONTENDERS)
    for size in ("batch", "time", "hidden"):
        parser.add_argument(size, type=int)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    print(json.dumps(here(args.who, (args.batch, args.time, args.hidden), args.threads)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
