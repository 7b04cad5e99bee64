"""The memory that a gradient needs: how much more is resident at the worst moment than before, in a process of its own.

    python -m benchmarks.peak TensorFlow 8 200 64

prints it for an LSTM of this batch, time and hidden size. "Before" is when all is imported and an LSTM of the smallest
size has been run, so that what libraries load and allocate once is not counted. What is counted: the graph, whatever
it is compiled to, and three runs.
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


def measured(who: str, sizes: Sequence[int], n_threads: int) -> dict[str, float] | None:
    """Runs this module in a new process: bytes that the graph took ("built") and all in all ("peak").

    Returns:
      None: `who` is not installed.
    """
    command = [sys.executable, "-m", "benchmarks.peak", who, *map(str, sizes), "--threads", str(n_threads)]
    done = subprocess.run(
        command, env=threads.environment(n_threads), cwd=threads.ROOT, text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed with status {done.returncode}:\n{done.stderr}")
    found: dict[str, float] | None = json.loads(done.stdout.splitlines()[-1])
    return found


def here(who: str, sizes: Sequence[int], n_threads: int) -> dict[str, float] | None:
    """The same, measured in this process, which should not have done much before."""
    small = contenders.prepare(who, programs.lstm(1, 2, 4), "callable", n_threads)
    if small is None:
        return None
    small.call()
    program = programs.lstm(*sizes)
    before = begin()
    prepared = contenders.prepare(who, program, "callable", n_threads)
    assert prepared is not None
    built = resident_bytes() - before
    for _ in range(RUNS):
        prepared.call()
    return {"built": built, "peak": most() - before}


def begin() -> int:
    """What is resident now; from here on the most is counted anew, where the system can do that (Linux).

    What has been freed, but is kept by the C library for later, is given back before: it would be used without a trace.
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
