"""Tiers of the suite: the selection of tests and the budget of unit tests.

A test's tier is the last of `TIERS` among its marks; a test without one belongs to the unit tier. `tests/conftest.py`
calls this module from pytest's hooks; docs/internals/testing.md describes the tiers for contributors.
"""

from __future__ import annotations

import functools
import gc
import os
import re
import statistics
import subprocess
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headrace import flags
from headrace.targets.native import engine

T = TypeVar("T")

TIERS = ("unit", "system", "matrix", "nightly")

#: Folders of tests/ whose tests all belong to one tier.
FOLDERS = {"conformance": "system"}

#: CPU-seconds that the call of a unit test may take on the machine on which `REFERENCE_SECONDS` was measured.
UNIT_SECONDS = 0.25
#: CPU-seconds of `reference_work` there. A slower machine takes longer for both, and gets as much more.
REFERENCE_SECONDS = 0.003
#: Budget factor where processes share caches and clock: among the jobs of `.ci/run`, which sets CI, and on a
#: machine whose load is above 1.5 processes a core.
CROWDED = 2.0

#: Functions by which Python code starts a process, where the system has them. `os.spawnv` calls `os.fork`.
STARTERS = (
    (subprocess.Popen, "__init__"),
    *((os, name) for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")),
)

_MODULE_MARK = re.compile(r"^pytestmark = (.*(?:\n    .*)*)", re.M)


def parse_tiers(text: str) -> frozenset[str]:
    """Tiers named in `--tier`, separated by commas; `all` is every one."""
    names = set(TIERS) if text == "all" else set(text.split(","))
    if unknown := names - set(TIERS):
        raise pytest.UsageError(f"--tier: no tier {', '.join(sorted(unknown))}; expected {', '.join(TIERS)} or all")
    return frozenset(names)


def tier_of(item: pytest.Item) -> str:
    """Tier of a collected test."""
    marks = {mark.name for mark in item.iter_markers()}
    return next((t for t in reversed(TIERS) if t in marks), FOLDERS.get(item.path.parent.name, "unit"))


def module_tier(path: Path) -> str:
    """Tier that the `pytestmark` of a test module gives to all of its tests.

    The module is read without an import.
    """
    if path.parent.name in FOLDERS:
        return FOLDERS[path.parent.name]
    found = _MODULE_MARK.search(path.read_text(encoding="utf-8"))
    marks = found.group(1) if found else ""
    return next((t for t in reversed(TIERS) if re.search(rf"\bmark\.{t}\b", marks)), "unit")


def is_left_out(path: Path, selected: frozenset[str]) -> bool:
    """Whether no test of a module can be selected.

    Importing such a module is a waste. Single tests (and the interpreted copies) of a module may belong to a later tier
    than the module, never to an earlier one.
    """
    latest = max(map(TIERS.index, selected))
    return path.name.startswith("test_") and path.suffix == ".py" and TIERS.index(module_tier(path)) > latest


def split(items: Sequence[pytest.Item], selected: frozenset[str]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Items of the selected tiers, and the others."""
    inside: list[pytest.Item] = []
    outside: list[pytest.Item] = []
    for item in items:
        (inside if tier_of(item) in selected else outside).append(item)
    return inside, outside


def parse_part(text: str) -> tuple[int, int]:
    """Number of a part and number of parts, of the text "1/2" of `--part`."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    part, parts = map(int, found.groups()) if found else (0, 0)
    if not 1 <= part <= parts:
        raise pytest.UsageError(f"--part: {text!r} is no part, such as 1/2 and 2/2 of two")
    return part, parts


def in_part(items: Sequence[pytest.Item], part: int, parts: int) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Items of one of several parts of about equal length, and the others.

    Each module is divided into runs of consecutive tests, because neighbors share fixtures and programs. The first run
    of a module belongs to another part than that of the module before, so that small modules are distributed as well.
    """
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    inside: list[pytest.Item] = []
    outside: list[pytest.Item] = []
    for k, tests in enumerate(modules.values()):
        for i, item in enumerate(tests):
            (inside if (i * parts // len(tests) + k) % parts == part - 1 else outside).append(item)
    return inside, outside


def in_turn(items: Sequence[pytest.Item], turn: int | None) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Items of a turn, and the others.

    Without a number of the turn all are inside. A case with the mark `rotated(n)` has its turn once in n. A turn has
    cases with each value of an argument, if another argument has n values.
    """
    inside: list[pytest.Item] = []
    outside: list[pytest.Item] = []
    places: dict[tuple[str, str], dict[int, int]] = {}
    for item in items:
        mark = item.get_closest_marker("rotated")
        is_inside = turn is None or mark is None or (_place(item, places) + turn) % mark.args[0] == 0
        (inside if is_inside else outside).append(item)
    return inside, outside


def _place(item: pytest.Item, places: dict[tuple[str, str], dict[int, int]]) -> int:
    """Place of a case among those of its test.

    It is the sum of the places of its arguments, from a number that the name of the test gives. Of the arguments of one
    `parametrize` the first one counts.

    Args:
      item: the case.
      places: name of a test and of an argument → `id` of a value → its place, completed here.
    """
    lists = (mark.args[0] for mark in item.iter_markers("parametrize") if mark.args)
    names = [names.split(",") if isinstance(names, str) else names for names in lists]
    others = {name.strip() for _, *rest in names for name in rest}
    test = item.nodeid.partition("[")[0]
    place = zlib.crc32(test.encode())
    for name, value in item.callspec.params.items() if hasattr(item, "callspec") else ():
        if name == "engine_of_steps":  # one of both engines has its turn, if the original is rotated too
            place += bool(value)
        elif name not in others:
            known = places.setdefault((test, name), {})
            place += known.setdefault(id(value), len(known))
    return place


#: Number of the turn of this run, the option `--turn`; None: a run of all cases.
turn: int | None = None


def rotated(cases: Sequence[T], n: int) -> Sequence[T]:
    """Cases of this turn, one in n, for a test that runs a series.

    Without a number of the turn these are all cases.
    """
    return cases if turn is None else cases[turn % n :: n]


def reference_work() -> int:
    """Does Python work of a fixed size.

    It consists of calls and of attribute and dictionary look-ups, as the package's own code does.
    """
    table: dict[int, int] = {}
    for i in range(40_000):
        table[i & 1023] = table.get(i & 511, 0) + len((i, i))
    return len(table)


def slowdown() -> float:
    """Present slowdown compared with the reference machine; at least 1."""
    times = []
    for _ in range(5):
        start = time.thread_time()
        reference_work()
        times.append(time.thread_time() - start)
    is_loaded = hasattr(os, "getloadavg") and os.getloadavg()[0] > 1.5 * (os.cpu_count() or 1)
    is_crowded = is_loaded or os.environ.get("CI") == "true"
    return max(1.0, statistics.median(times) / REFERENCE_SECONDS) * (CROWDED if is_crowded else 1.0)


def excess(seconds: float) -> str:
    """Complaint about a unit test whose call took `seconds` of CPU.

    It is "" for a call within the budget.
    """
    if seconds <= UNIT_SECONDS:
        return ""
    limit = UNIT_SECONDS * slowdown()
    return "" if seconds <= limit else f"took {seconds:.2f} s of CPU; a unit test may take {limit:.2f} s"


class CollectionClock:
    """CPU-seconds spent in full collections of garbage.

    A test in which a collection happens has not made that garbage alone.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start = 0.0
        gc.callbacks.append(self._hear)

    def _hear(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 2:
            if phase == "start":
                self._start = time.process_time()
            else:
                self.seconds += time.process_time() - self._start


class CompilationClock:
    """CPU-seconds in which LLVM compiled, if native code is on for all tests.

    The budget is for the same tests without it, so LLVM's time does not count.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._compile = engine.compile_module
        if flags.NATIVE.value == "on":
            engine.compile_module = self._compile_module

    def _compile_module(self, *args: Any) -> engine.Library:
        start = time.process_time()
        try:
            return self._compile(*args)
        finally:
            self.seconds += time.process_time() - start


class ProcessWatch:
    """Collects the starts of processes by Python code.

    It replaces the functions of `STARTERS`. An audit hook would also be called for each `id(x)` and each frame that is
    looked at: tens of thousands of times in a CPU-second of tests.
    """

    def __init__(self) -> None:
        self.events: list[str] = []
        for owner, name in STARTERS:
            if hasattr(owner, name):
                setattr(owner, name, self._heard(owner.__name__, getattr(owner, name)))

    def _heard(self, owner: str, start: Callable[..., Any]) -> Callable[..., Any]:
        event = owner if start.__name__ == "__init__" else f"{owner}.{start.__name__}"

        @functools.wraps(start)
        def heard(*args: Any, **kwargs: Any) -> Any:
            self.events.append(event)
            return start(*args, **kwargs)

        return heard
