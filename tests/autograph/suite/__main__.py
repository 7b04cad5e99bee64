"""Prints the matrix of constructs: `python -m tests.autograph.suite`.

With names, `python -m tests.autograph.suite functions programs "break in while"`, runs these cases instead and prints
those that fail; `functions`, `programs` and `matrix` are all cases of a kind.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys

os.environ.setdefault("HEADRACE_VERIFY", "2")

from tests.autograph.suite import collection, matrix, table, ways
from tests.autograph.suite.cases import Case
from tests.autograph.suite.functions import FUNCTIONS


def described(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def print_matrix() -> int:
    cells = matrix.cases()
    print(table.header(), flush=True)
    counts = {table.CONVERTED: 0, table.REFUSED: 0, "!": 0}
    problems = []
    for outer in matrix.NAMES:
        marks = []
        for inner in matrix.NAMES:
            try:
                mark = table.status(cells[outer, inner], table.all_ways(outer, inner))
            except Exception as error:
                mark = "!"
                problems.append(f"{inner} in {outer}: {described(error)}")
            marks.append(mark)
            counts[mark] += 1
        print(table.line(outer, marks), flush=True)
    print(f"\n{counts['+']} converted (+), {counts['-']} refused (-), {counts['!']} wrong (!)")
    print("\n".join(problems))
    return len(problems)


def named(name: str) -> list[Case]:
    kinds = {
        "functions": lambda: list(FUNCTIONS.values()),
        "programs": lambda: list(map(collection.program, collection.PROGRAMS)),
        "matrix": lambda: list(matrix.cases().values()),
    }
    return kinds[name]() if name in kinds else [c for c in collection.all_cases() if c.name == name]


def run(names: list[str]) -> int:
    """Runs cases in each way and prints the failures; returns their number."""
    failed = ran = 0
    for case in (c for name in names for c in named(name)):
        for way in ways.WAYS:
            ran += 1
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    ways.check(case, (way,))
            except Exception as error:
                failed += 1
                print(f"{case.name} [{way}] {described(error)}", flush=True)
    print(f"{ran - failed} of {ran} agree")
    return failed


if __name__ == "__main__":
    sys.exit(min(1, run(sys.argv[1:]) if sys.argv[1:] else print_matrix()))
