"""Runs 10,000 random programs over random placements, and stops at the first failure.

    python -m tests.multi.many_programs                            # 10,000 programs, about an hour
    python -m tests.multi.many_programs --count 200 --first 5000   # other seeds

A failure prints the command that repeats it. `make nightly` runs all of them.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from tests.multi.test_random_placements import CHECKS

COUNT = 10_000
EVERY = 500  # programs between two lines of progress
# Of 20 programs so many are of each kind: those in one thread are quick, and gradients take longest.
SHARES = {
    "values": 4,
    "values-optimized": 8,
    "gradients": 1,
    "gradients-optimized": 2,
    "threads": 1,
    "threads-optimized": 1,
    "waiting": 1,
    "waiting-optimized": 2,
}
_ORDER = [kind for kind, share in SHARES.items() for _ in range(share)]


def main() -> int:
    """Returns the number of failures, 0 or 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=COUNT, help="the number of programs")
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    given = parser.parse_args()
    ran: Counter[str] = Counter()
    begin = time.monotonic()
    for seed in range(given.first, given.first + given.count):
        kind = _ORDER[seed % len(_ORDER)]
        try:
            CHECKS[kind](seed)
        except Exception:
            traceback.print_exc()
            print(f"failed: python -m tests.multi.test_random_placements {kind} {seed}")
            print(_summary(ran, begin))
            return 1
        ran[kind] += 1
        if ran.total() % EVERY == 0:
            print(_summary(ran, begin), flush=True)
    print(_summary(ran, begin))
    return 0


def _summary(ran: Counter[str], begin: float) -> str:
    each = ", ".join(f"{kind} {n:,}" for kind, n in ran.items())
    return f"{ran.total():,} programs passed in {time.monotonic() - begin:.0f} s: {each}"


if __name__ == "__main__":
    sys.exit(main())
