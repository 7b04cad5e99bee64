"""Checks random programs by seed: `python -m tests.order FROM [TO] [--kind hr] [--many] [--no-reduce]`."""

from __future__ import annotations

import argparse
import collections
import time

from tests.order import checking
from tests.order.generating import generate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, nargs="?")
    parser.add_argument("--kind", choices=["v1", "hr", "both"], default="both")
    parser.add_argument("--many", action="store_true", help="every pass alone and off")
    parser.add_argument("--reduce", action="store_true", help="print each failure reduced")
    options = parser.parse_args()
    kinds = ["v1", "hr"] if options.kind == "both" else [options.kind]
    start, programs, runs, failed = time.perf_counter(), 0, 0, 0
    by: collections.Counter[str] = collections.Counter()
    for seed in range(options.first, options.last or options.first + 1):
        bad: list[checking.Failure] = []
        for kind in kinds:
            p = generate(seed, functions=kind == "hr")
            n, failures = checking.check_all(p, seed, checking.routes_of(kind, seed, options.many))
            runs += n
            bad += failures
        programs += 1
        by.update(str(f.route) for f in bad)
        if bad:
            failed += 1
            for f in bad[:1] if options.reduce else bad:
                print(checking.report(checking.reduced(f)) if options.reduce else f, flush=True)
            if options.reduce:
                print("# routes:", ", ".join(str(f.route) for f in bad), "\n", flush=True)
    seconds = time.perf_counter() - start
    print(f"{programs} programs, {runs} steps, {failed} programs fail ({dict(by)}) in {seconds:.0f} s")


if __name__ == "__main__":
    main()
