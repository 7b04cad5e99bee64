"""Runs 2,000 random programs over worker processes, and stops at the first failure.

    python -m tests.dist.many_programs                            # 2,000 programs, about ten minutes
    python -m tests.dist.many_programs --count 200 --first 5000   # other seeds

A failure prints the command that repeats it. `make nightly` runs all of them.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from collections import Counter

import headrace as hr
from tests.dist import test_random_programs as programs

COUNT = 2_000
EVERY = 200  # programs between two lines of progress
# Of 10 programs so many are of each kind; gradients take longest.
SHARES = {("values", "off"): 2, ("values", "on"): 3, ("gradients", "off"): 1, ("gradients", "on"): 1,
          ("waiting", "off"): 1, ("waiting", "on"): 2}  # fmt: skip
_ORDER = [kind for kind, share in SHARES.items() for _ in range(share)]


def kind_of(seed: int) -> tuple[str, str]:
    """The kind of a program, and whether passes run ("on" or "off")."""
    return _ORDER[seed % len(_ORDER)]


def main() -> int:
    """Returns the number of failures, 0 or 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=COUNT, help="the number of programs")
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    given = parser.parse_args()
    warnings.simplefilter("error", hr.errors.CompileWarning)
    ran: Counter[str] = Counter()
    begin = time.monotonic()
    try:
        for seed in range(given.first, given.first + given.count):
            kind, optimize = kind_of(seed)
            try:
                programs.CHECKS[kind](seed, optimize)
            except Exception:
                traceback.print_exc()
                print(f"failed: python -m tests.dist.test_random_programs {kind} {seed} {optimize}")
                print(_summary(ran, begin))
                return 1
            ran[kind] += 1
            if ran.total() % EVERY == 0:
                print(_summary(ran, begin), flush=True)
    finally:
        programs.cluster().close()
    print(_summary(ran, begin))
    return 0


def _summary(ran: Counter[str], begin: float) -> str:
    each = ", ".join(f"{kind} {n:,}" for kind, n in ran.items())
    return f"{ran.total():,} programs passed in {time.monotonic() - begin:.0f} s: {each}"


if __name__ == "__main__":
    sys.exit(main())
