"""Runs 20,000 random array programs as native code, and stops at the first failure.

    python -m tests.targets.native.many_programs                            # 20,000 programs, about an hour
    python -m tests.targets.native.many_programs --count 200 --first 5000   # other seeds
    python -m tests.targets.native.many_programs --kind step --first 4711 --count 1

Native code, the Python target and the interpreter must agree on results and errors. Half of the programs run with
VERIFY=3, which compares known bytes around the buffers of native code. A failure prints the command that repeats it.
`make nightly` runs all of them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
import warnings
from collections import Counter

# As for the tests (tests/conftest.py): no files outside of the folders of tests.
os.environ.setdefault("HEADRACE_CACHE", "off")

import headrace as hr
from headrace import flags
from headrace.targets.native import engine
from tests.targets.native.random_checks import CHECKS, SHARES

COUNT = 20_000
EVERY = 500  # programs between two lines of progress
_ORDER = [kind for kind, share in SHARES.items() for _ in range(share)]


def kind_of(seed: int) -> str:
    """The kind of the program of a seed."""
    return _ORDER[seed % len(_ORDER)]


def main() -> int:
    """Returns the number of failures, 0 or 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=COUNT, help="the number of programs")
    parser.add_argument("--first", type=int, default=100_000, help="the first seed")
    parser.add_argument("--kind", choices=CHECKS, help="the kind of all programs; by default each seed has its own")
    given = parser.parse_args()
    with flags.override(NATIVE="on"):
        if reason := engine.available():
            print(f"no native code: {reason}")
            return 1
    warnings.simplefilter("error", hr.errors.CompileWarning)
    ran: Counter[str] = Counter()
    native = 0
    begin = time.monotonic()
    for seed in range(given.first, given.first + given.count):
        kind = given.kind or kind_of(seed)
        try:
            native += CHECKS[kind](seed)
        except Exception:
            traceback.print_exc()
            print(f"failed: python -m tests.targets.native.many_programs --kind {kind} --first {seed} --count 1")
            print(_summary(ran, native, begin))
            return 1
        ran[kind] += 1
        if ran.total() % EVERY == 0:
            print(_summary(ran, native, begin), flush=True)
    print(_summary(ran, native, begin))
    return 0


def _summary(ran: Counter[str], native: int, begin: float) -> str:
    each = ", ".join(f"{kind} {n:,}" for kind, n in ran.items())
    seconds = time.monotonic() - begin
    return f"{ran.total():,} programs passed in {seconds:.0f} s, {native:,} of them native: {each}"


if __name__ == "__main__":
    sys.exit(main())
