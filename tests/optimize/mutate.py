"""Does the suite notice when a rule's condition is wrong? `python -m tests.optimize.mutate [module ...]`

Each condition of the modules of `headrace/optimize` (and `ir/shrinking`) is spoiled in turn, in a copy of the package:

* what an `if`, a conditional expression or a comprehension asks is negated;
* of `a and b`, `a or b` each part is left out;
* a comparison is negated where it stands by itself (an argument, what a function returns).

Then the tests of the passes run, those of the module first, and one must fail. What survives is printed with its
line: a test is missing, or the condition is. A mutant that hangs counts as noticed. A line that ends in `# mutate: no`,
with a reason before that, is left out: to skip work, or to be cautious, changes no result.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import copy
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "headrace" / "optimize"
TIMEOUT = 180.0  # seconds for the tests of one mutant
LEFT_OUT = {"__init__", "base", "loops"}  # nothing in them is a rule


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A module with one condition spoiled.

    Attributes:
      path: of the module, below the root.
      line: where.
      what: what was done.
      text: its source then.
    """

    path: pathlib.Path
    line: int
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def mutants(path: pathlib.Path) -> Iterator[Mutant]:
    """All mutants of a module."""
    source = path.read_text(encoding="utf-8")
    lines = source.split("\n")
    tree = ast.parse(source)
    count = len(list(_places(tree)))
    for i in range(count):
        new = copy.deepcopy(tree)
        node, field, index, change = list(_places(new))[i]
        old = getattr(node, field) if index is None else getattr(node, field)[index]
        if lines[old.lineno - 1].endswith("# mutate: no"):
            continue
        before = ast.unparse(old)
        mutated = _changed(old, change)
        if index is None:
            setattr(node, field, mutated)
        else:
            getattr(node, field)[index] = mutated
        what = f"{before}  ->  {ast.unparse(mutated)}"
        yield Mutant(path.relative_to(ROOT), old.lineno, what, ast.unparse(ast.fix_missing_locations(new)))


def _places(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, int | None]]:
    """(node, field, index in the field, part to leave out; None: negate) of each condition."""
    asked: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.IfExp)) and not _is_typing(node.test):
            asked.add(id(node.test))
            yield node, "test", None, None
        elif isinstance(node, ast.comprehension):
            for k, test in enumerate(node.ifs):
                asked.add(id(test))
                yield node, "ifs", k, None
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            for k, each in enumerate(value) if isinstance(value, list) else ((None, value),):
                if isinstance(each, ast.BoolOp):
                    for part in range(len(each.values)):
                        yield node, field, k, part
                elif isinstance(each, ast.Compare) and id(each) not in asked and not isinstance(node, ast.BoolOp):
                    yield node, field, k, None


def _is_typing(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _changed(old: ast.expr, part: int | None) -> ast.expr:
    if part is None:
        return ast.UnaryOp(ast.Not(), old)
    assert isinstance(old, ast.BoolOp)
    left = [v for k, v in enumerate(old.values) if k != part]
    return left[0] if len(left) == 1 else ast.BoolOp(old.op, left)


def modules(names: list[str]) -> list[pathlib.Path]:
    """The modules of those names; of none, all that have rules."""
    found = [p for p in sorted(FOLDER.glob("*.py")) if p.stem not in LEFT_OUT]
    found.append(ROOT / "headrace" / "ir" / "shrinking.py")
    unknown = sorted(set(names) - {p.stem for p in found})
    if unknown:
        raise SystemExit(f"no module {unknown[0]!r}; there are {', '.join(p.stem for p in found)}")
    return [p for p in found if p.stem in names] if names else found


def survives(mutant: Mutant, place: pathlib.Path, quick: bool) -> bool:
    """Whether no test notices `mutant`. `place` has a copy of the package, which is put right again."""
    target = place / mutant.path
    own = place / "tests" / "optimize" / f"test_{mutant.path.stem}.py"
    tests = [str(own)] if own.exists() else []
    tests += sorted(str(p) for p in own.parent.glob("test_*.py") if p != own and not (quick and "random" in p.stem))
    target.write_text(mutant.text, encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    finally:
        shutil.copyfile(ROOT / mutant.path, target)
    return done.returncode == 0


def sound(place: pathlib.Path, path: pathlib.Path, quick: bool) -> bool:
    """Whether no test fails as it is; else each mutant would seem to be noticed."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return survives(Mutant(path, 0, "nothing", text), place, quick)


def main() -> int:
    """Tries all mutants; the number of those that survive is what it returns, as far as that goes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("modules", nargs="*", help="names of modules: fold cse ...; none: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time")
    parser.add_argument("--quick", action="store_true", help="leave out the tests with random programs")
    parser.add_argument("--list", action="store_true", help="print the mutants and try none")
    args = parser.parse_args()
    all_mutants = [m for path in modules(args.modules) for m in mutants(path)]
    if args.list:
        print(*all_mutants, sep="\n")
        return 0
    alive: list[Mutant] = []
    with tempfile.TemporaryDirectory() as folder:
        places = []
        for k in range(args.jobs):
            place = pathlib.Path(folder) / str(k)
            shutil.copytree(ROOT / "headrace", place / "headrace", ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copytree(ROOT / "tests", place / "tests", ignore=shutil.ignore_patterns("__pycache__", "data"))
            shutil.copyfile(ROOT / "pyproject.toml", place / "pyproject.toml")
            places.append(place)
        if all_mutants and not sound(places[0], all_mutants[0].path, args.quick):
            raise SystemExit("tests fail as it is, without any mutant; make them pass first")
        free = list(places)

        def attempt(mutant: Mutant) -> tuple[Mutant, bool]:
            place = free.pop()
            try:
                return mutant, survives(mutant, place, args.quick)
            finally:
                free.append(place)

        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for n, (mutant, is_alive) in enumerate(pool.map(attempt, all_mutants), 1):
                if is_alive:
                    alive.append(mutant)
                    print(f"\nSURVIVES {mutant}")
                print(f"\r{n} of {len(all_mutants)}, {len(alive)} survive", end="", flush=True)
    print()
    return min(len(alive), 100)


if __name__ == "__main__":
    sys.exit(main())
