"""Lists the `raise` statements of headrace that no test expects.

    python -m tests.errors.reached tests/api tests/ir     # runs these tests, adds what they reach, lists what is left
    python -m tests.errors.reached --under headrace/ops     # lists what is left, of all runs so far
    python -m tests.errors.reached --forget                 # begins again

A statement is *expected* once it is reached inside `with pytest.raises(...)`, *reached* if only anywhere else (random
tests that accept any error, examples in docstrings); the list marks the latter with "~".

The statements that the tests reach add up over runs (in `.pytest_cache/reached.json`), so a large suite can be run
piece by piece. A statement is known by its file, its function and its text: it stays reached when lines move, and is
to be reached again when its text changes.

There is no tracer, which would slow down every line: while the tests run, headrace is compiled with a call before each
`raise`, so nothing but an error costs anything. Statements reached in another process are not seen. Left out are
`raise` alone (it passes on an error that another statement raised) and, unless `--all` is given, the errors that only a
mistake in headrace can cause: `HeadraceInternalError`, `NotImplementedError` and `AssertionError`.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import collections
import functools
import importlib.machinery
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
DATA = ROOT / ".pytest_cache" / "reached.json"
MARK = "__reached__"
Reached = dict[str, bool]  # by the statement's name: whether a test expects it
OURS = ("HeadraceInternalError", "NotImplementedError", "AssertionError")


class Raise(NamedTuple):
    """A `raise` statement; `name` stays when lines move."""

    file: str
    line: int
    function: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.file}::{self.function}::{self.text}"

    @property
    def is_ours(self) -> bool:
        return self.text.removeprefix("raise ").split("(")[0].split(".")[-1] in OURS


def raises(tree: ast.AST, file: str, function: str = "") -> Iterator[tuple[ast.Raise, Raise]]:
    """The `raise` statements in a tree that name an error, by line."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield node, Raise(file, node.lineno, function, ast.unparse(node))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from raises(node, file, f"{function}.{node.name}".lstrip("."))
        else:
            yield from raises(node, file, function)


class _Marking(ast.NodeTransformer):
    """Puts a call of `MARK` before each `raise` statement."""

    def __init__(self, found: dict[ast.Raise, Raise]) -> None:
        self.found = found

    def visit_Raise(self, node: ast.Raise) -> Any:
        if node not in self.found:
            return node
        call = ast.Call(ast.Name(MARK, ast.Load()), [ast.Constant(self.found[node].name)], [])
        return [ast.fix_missing_locations(ast.copy_location(ast.Expr(call), node)), node]


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a module with the marks; reads and writes no bytecode files."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        marked = _Marking(dict(raises(tree, str(Path(path).relative_to(ROOT))))).visit(tree)
        code: CodeType = compile(marked, path, "exec", dont_inherit=True)
        return code


class _Finder:
    """Has modules of headrace loaded by `_Loader`."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] != "headrace":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path or [str(ROOT)], target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def run(arguments: Sequence[str]) -> tuple[int, Reached]:
    """Runs pytest; returns its exit status and what was reached."""
    import pytest

    if "headrace" in sys.modules:
        raise RuntimeError("headrace is imported already: run the tool by itself, python -m tests.errors.reached")
    reached: Reached = {}
    expecting = 0  # how many `pytest.raises` are open, in whichever thread

    def reach(name: str) -> None:
        reached[name] = expecting > 0 or reached.get(name, False)

    expected: Any = type(pytest.raises(Exception))
    enter, leave = expected.__enter__, expected.__exit__

    def entered(self: Any) -> Any:
        nonlocal expecting
        expecting += 1
        return enter(self)

    def left(self: Any, *error: Any) -> Any:
        nonlocal expecting
        expecting -= 1
        return leave(self, *error)

    expected.__enter__, expected.__exit__ = entered, left
    setattr(builtins, MARK, reach)
    sys.meta_path.insert(0, _Finder)
    return int(pytest.main(["-p", "no:cacheprovider", *arguments])), reached


@functools.cache
def written() -> list[Raise]:
    """The `raise` statements of headrace."""
    files = sorted((ROOT / "headrace").rglob("*.py"))
    return [r for f in files for _, r in raises(ast.parse(f.read_text()), str(f.relative_to(ROOT)))]


def report(reached: Reached, under: str, everything: bool) -> str:
    """The statements not expected, by module, and how many there are."""
    wanted = [r for r in written() if r.file.startswith(under) and (everything or not r.is_ours)]
    left = [r for r in wanted if not reached.get(r.name)]
    lines = []
    for file, count in collections.Counter(r.file for r in left).items():
        lines.append(f"{file}: {count}")
        lines += [
            f"{'~' if r.name in reached else ' '} {r.line:4} {r.function}: {r.text}" for r in left if r.file == file
        ]
    only_reached = sum(r.name in reached for r in left)
    lines.append(
        f"{len(wanted)} raise statements, {len(wanted) - len(left)} expected by a test, {only_reached} only reached, "
        f"{len(left) - only_reached} not reached"
    )
    return "\n".join(lines)


def read(data: Path) -> Reached:
    """The statements that earlier runs reached."""
    return json.loads(data.read_text()) if data.exists() else {}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.errors.reached", description=__doc__.split("\n\n")[0])
    parser.add_argument("--under", default="headrace", metavar="PATH", help="list these files only")
    parser.add_argument("--all", action="store_true", help="also what only a mistake of ours can come to")
    parser.add_argument("--data", type=Path, default=DATA, metavar="FILE", help="where what is reached is kept")
    parser.add_argument("--forget", action="store_true", help="forget what earlier runs reached")
    known, tests = parser.parse_known_args()
    if known.forget:
        known.data.unlink(missing_ok=True)
    status = 0
    if tests:
        status, new = run(tests)
        reached = read(known.data)  # after the run: another piece may have ended meanwhile
        for name, is_expected in new.items():
            reached[name] = is_expected or reached.get(name, False)
        known.data.parent.mkdir(exist_ok=True)
        known.data.write_text(json.dumps(reached, indent=0, sort_keys=True))
    print(report(read(known.data), known.under, known.all))
    return status


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
