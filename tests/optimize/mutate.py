"""Mutation test of the rules' conditions: `python -m tests.optimize.mutate [module ...]`.

Each condition of the modules of `headrace/optimize` (and `ir/edit/remove_values`) is spoiled in turn:

* the condition of an `if`, a conditional expression or a comprehension is negated;
* of `a and b`, `a or b` each part is left out;
* a comparison that is an expression by itself (an argument, the value of a `return`) is negated.

Then the tests of the passes run, those of the module first, and one must fail. A mutant that survives is printed with
its line: a test is missing, or the condition is. A mutant that hangs counts as noticed. A line that ends in
`# mutate: no`, with a reason before that, is left out: to skip work, or to be cautious, changes no result.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import dataclasses
import importlib.abc
import importlib.machinery
import os
import pathlib
import signal
import sys
import time
import types
from collections.abc import Iterator

import pytest

import headrace.session  # noqa: F401 - before a process is copied

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "headrace" / "optimize"
TESTS = ROOT / "tests" / "optimize"
TIMEOUT = 60.0  # seconds for the tests of one mutant
LEFT_OUT = {"__init__", "base", "loops"}  # nothing in them is a rule


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A module with one condition spoiled.

    Attributes:
      path: Path of the module, below the root.
      line: Line of the condition.
      what: Description of the change.
      text: Source of the module after the change.
    """

    path: pathlib.Path
    line: int
    what: str
    text: str

    @property
    def module(self) -> str:
        return ".".join(self.path.with_suffix("").parts)

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
            items: list[tuple[int | None, object]]
            items = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
            for at, each in items:
                if isinstance(each, ast.BoolOp):
                    for part in range(len(each.values)):
                        yield node, field, at, part
                elif isinstance(each, ast.Compare) and id(each) not in asked and not isinstance(node, ast.BoolOp):
                    yield node, field, at, None


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
    found.append(ROOT / "headrace" / "ir" / "edit" / "remove_values.py")
    unknown = sorted(set(names) - {p.stem for p in found})
    if unknown:
        raise SystemExit(f"no module {unknown[0]!r}; there are {', '.join(p.stem for p in found)}")
    return [p for p in found if p.stem in names] if names else found


class _Spoiled(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a mutant in the place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name == self.mutant.module else None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self.mutant.text, str(self.mutant.path), "exec"), module.__dict__)


def begin(mutant: Mutant, quick: bool) -> int:
    """Starts the tests of `mutant` in a copy of this process; returns its id.

    Modules that take long to import are already loaded; the modules of the passes and of the tests are imported again.
    The tests of the module come first, by themselves: the others are not even collected if one of these fails.
    """
    pid = os.fork()
    if pid:
        return pid
    _be_silent()
    for name in list(sys.modules):
        if name.startswith(("headrace.optimize", "tests")) or name == mutant.module:
            del sys.modules[name]
            package, _, last = name.rpartition(".")
            if package in sys.modules:
                vars(sys.modules[package]).pop(last, None)  # `from package import last` asks there first
    sys.meta_path.insert(0, _Spoiled(mutant))
    own = TESTS / f"test_{mutant.path.stem}.py"
    others = [p for p in sorted(TESTS.glob("test_*.py")) if p != own]
    if quick:  # those of its kind: of loops, or not
        others = [p for p in others if "random" not in p.stem and ("loop" in p.stem) == ("loop" in mutant.path.stem)]
    code = 0
    try:
        for tests in ([own] if own.exists() else [], others):
            code = code or (_pytest("-x", *map(str, tests)) if tests else 0)
    except BaseException:  # a mutant that cannot even be imported is noticed
        code = 1
    os._exit(code)


def warm_up() -> None:
    """Imports all that tests import, so that copies of this process need not."""
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
        if _pytest("--collect-only", str(TESTS)):
            raise SystemExit(f"the tests in {TESTS.relative_to(ROOT)} cannot be collected")


def _pytest(*args: str) -> int:
    return int(pytest.main(["-q", "-p", "no:cacheprovider", *args]))


def _be_silent() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)


def main() -> int:
    """Tries all mutants; returns the number of survivors, but at most 100."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("modules", nargs="*", help="names of modules: fold cse ...; none: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument(
        "--quick", action="store_true", help="leave out tests with random programs, and those of other kinds of passes"
    )
    parser.add_argument("--list", action="store_true", help="print the mutants and try none")
    args = parser.parse_args()
    todo = [m for path in modules(args.modules) for m in mutants(path)]
    if args.list:
        print(*todo, sep="\n")
        return 0
    warm_up()
    as_it_is = Mutant(todo[0].path, 0, "nothing", (ROOT / todo[0].path).read_text(encoding="utf-8"))
    if os.waitstatus_to_exitcode(os.waitpid(begin(as_it_is, args.quick), 0)[1]):
        raise SystemExit("tests fail as it is, without any mutant; make them pass first")
    count, alive, done = len(todo), 0, 0
    running: dict[int, tuple[Mutant, float]] = {}
    todo.reverse()
    while todo or running:
        while todo and len(running) < args.jobs:
            mutant = todo.pop()
            running[begin(mutant, args.quick)] = mutant, time.monotonic() + TIMEOUT
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            for each, (_, end) in running.items():
                if time.monotonic() > end:
                    os.kill(each, signal.SIGKILL)
            time.sleep(0.05)
            continue
        mutant, _ = running.pop(pid)
        done += 1
        if os.waitstatus_to_exitcode(status) == 0:
            alive += 1
            print(f"\rSURVIVES {mutant}")
        print(f"\r{done} of {count}, {alive} survive", end="", flush=True)
    print()
    return min(alive, 100)


if __name__ == "__main__":
    sys.exit(main())
