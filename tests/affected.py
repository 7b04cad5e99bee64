"""Test files that a change of the working tree affects, by the imports.

    python -m tests.affected                            # print them
    python -m tests.affected --since HEAD~3             # ... of everything since a revision, not since main
    python -m tests.affected --run -n 2 --tier matrix   # hand them to pytest, with these options

A change in a part of the package (`headrace/grad/...`) affects that part and each part that imports an affected one;
`tests/test_layers.py` has the parts and finds the imports. The folder or file of tests/ named like an affected part is
affected, and those of other names as `EXERCISED` says. A changed test file affects itself; a helper of the tests, the
files that import it; a page, an example or another file, the test files that name it.
"""

from __future__ import annotations

import argparse
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence

from tests.test_layers import MAY_IMPORT, PACKAGE, ROOT, imported_part, imports_of, modules, part_of

TESTS = ROOT / "tests"

#: Entries of tests/ that are not named like a part → the parts they exercise; `""` is the names of `import headrace`.
EXERCISED: dict[str, Sequence[str]] = {
    **dict.fromkeys(("behaviour", "corpus", "errors", "fuzz", "manners", "multi", "order", "stories"), ("session",)),
    **dict.fromkeys(
        ("applications", "benchmarks", "conformance", "test_benchmarks.py", "test_examples.py"), ("train", "v1")
    ),
    **dict.fromkeys(("test_documentation.py", "test_editors.py", "test_flags.py", "test_cli_stats.py"), ("",)),
    **dict.fromkeys(("test_citations.py", "test_glossary.py", "test_pages.py", "test_site.py", "test_tour.py"), ("",)),
    "extending": ("extend", "plugins"),
    "optimize": ("prune",),
    **dict.fromkeys(("test_graph_writes.py", "test_layers.py", "test_op_tables.py"), tuple(MAY_IMPORT)),
    "test_reliability.py": ("session",),
}
#: Files on which every test depends.
EVERYTHING = {"pyproject.toml", "tests/conftest.py", "tests/tiers.py"}


def git(*args: str) -> list[str]:
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def base() -> str:
    """The revision at which this work left the main branch.

    Without such a branch it is the last commit.
    """
    for main in ("main", "origin/main"):
        try:
            return git("merge-base", "HEAD", main)[0]
        except subprocess.CalledProcessError:
            continue
    return "HEAD"


def changed(since: str) -> list[str]:
    """Paths that differ between `since` and the working tree, new files among them."""
    return sorted({*git("diff", "--name-only", since), *git("ls-files", "--others", "--exclude-standard")})


@functools.cache
def importers() -> dict[str, set[str]]:
    """Part → the parts that import it.

    Imports inside functions count; those for type checkers alone do not.
    """
    out: dict[str, set[str]] = {}
    for path in modules():
        for module, _, typing_only in imports_of(path, PACKAGE.joinpath(path).read_text(encoding="utf-8")):
            if module.split(".")[0] == "headrace" and not typing_only:
                out.setdefault(imported_part(module), set()).add(part_of(path))
    return out


def affected_parts(parts: Iterable[str]) -> set[str]:
    """`parts` and all that import them, directly or through others."""
    by, out, todo = importers(), set[str](), list(parts)
    while todo:
        part = todo.pop()
        if part not in out:
            out.add(part)
            todo += by.get(part, ())
    return out


def entries(parts: set[str]) -> set[str]:
    """The entries of tests/ that test `parts`."""
    out = {name for name, exercised in EXERCISED.items() if parts.intersection(exercised)}
    return out | {name for p in parts for name in (p, f"test_{p}.py") if p and (TESTS / name).exists()}


def naming(text: str) -> set[str]:
    """The test files that contain `text` as whole words."""
    pattern = re.compile(rf"(?<![\w.]){re.escape(text)}(?![\w])")
    return {p.relative_to(ROOT).as_posix() for p in TESTS.rglob("test_*.py") if pattern.search(p.read_text("utf-8"))}


def affected(paths: Iterable[str]) -> list[str]:
    """The test files and folders, relative to the root, that changes of `paths` affect."""
    paths = set(paths)
    if paths & EVERYTHING:
        return ["tests"]
    parts = {part_of(p.removeprefix("headrace/")) for p in paths if p.startswith("headrace/")}
    out = {f"tests/{e}" for e in entries(affected_parts(parts))}
    for path in sorted(paths):
        folder, _, name = path.rpartition("/")
        if path.startswith("tests/data/"):
            out |= naming("corpus")
        elif path.startswith("tests/") and name.startswith("test_"):
            out |= {path} if (ROOT / path).exists() else set()
        elif path.startswith("tests/"):  # a helper, a golden file
            out |= {folder} if folder != "tests" else set()
            out |= naming(path.removesuffix(".py").replace("/", "."))
        elif path.startswith("benchmarks/"):
            out |= {"tests/benchmarks", "tests/test_benchmarks.py"}
        elif not path.startswith("headrace/"):
            out |= naming(name) | ({"tests/test_glossary.py", "tests/test_pages.py"} if name.endswith(".md") else set())
    return sorted(p for p in out if not any(p.startswith(f"{q}/") for q in out))


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.affected", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--since", metavar="REVISION", help="where the change began; by default, where main was left")
    parser.add_argument("--run", action="store_true", help="run pytest on them; takes pytest's options")
    options, rest = parser.parse_known_args(args)
    if rest and not options.run:
        parser.error(f"unknown: {' '.join(rest)}")
    since = options.since or base()
    found = affected(changed(since))
    print(f"affected since {since[:12]}:", *found or ["nothing"], flush=True)
    if not options.run or not found:
        return 0
    status = subprocess.run([sys.executable, "-m", "pytest", *rest, *found], cwd=ROOT, check=False).returncode
    return 0 if status == 5 else status  # 5: none of them is in the tiers that were asked for


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
