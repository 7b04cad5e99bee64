"""Timers of compiled code: the places that are timed, and their times in a run.

A *site* is a set of instructions that are timed together. Printers put a *lap* behind each site: it counts an execution
and adds the time since the last lap, so a lap reads the clock once, and the times of nested sites need no subtraction.
The memory of the times depends on the number of sites, and not on the trip counts of loops.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

from headrace.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.ir.graph import Operation
    from headrace.schedule.program import Block, Program

#: Names of the function and the loops around an instruction, outermost first.
Path: TypeAlias = "tuple[str, ...]"


@record(frozen=True, slots=True)
class Site:
    """Instructions that are timed together.

    Attributes:
      ops: Their operations, each once; none for a call of machine code, which has sites of its own.
      path: The function that calls itself, if the instructions are in one, and the loops around them in it. The own
        site of a loop is in the loop: its executions are the iterations, and its time is that of their control.
      is_loop: Whether it is the own site of a loop.
      is_native: Whether machine code executes it.
      is_timed: Whether it has laps. The time of another site is part of the site around it, since it is shorter than
        the clock.
    """

    ops: tuple[Operation, ...]
    path: Path
    is_loop: bool = False
    is_native: bool = False
    is_timed: bool = True


class Timers:
    """Sites of a program, in the order of their numbers.

    Attributes:
      sites: The sites.
    """

    def __init__(self) -> None:
        self.sites: list[Site] = []

    def add(
        self,
        ops: Sequence[Operation],
        path: Path,
        is_loop: bool = False,
        is_native: bool = False,
        is_timed: bool = True,
    ) -> int:
        """Adds a site; returns its number."""
        self.sites.append(Site(tuple(dict.fromkeys(ops)), path, is_loop, is_native, is_timed))
        return len(self.sites) - 1


class Laps:
    """Times of the sites of a program in one run.

    Args:
      count: The number of sites.
      clock: The time in nanoseconds.

    Attributes:
      counts: The executions of each site.
      times: The nanoseconds of each site.
      lap: Counts an execution of a site, given its number, and adds the time since the last lap.
      spend: Adds the time since the last lap to a site.
      skip: Leaves out nanoseconds that other timers have measured since the last lap.
      timer_nanoseconds: The estimated time of laps of machine code.
    """

    __slots__ = ("counts", "lap", "skip", "spend", "timer_nanoseconds", "times")

    def __init__(self, count: int, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        counts = self.counts = [0] * count
        times = self.times = [0] * count
        self.timer_nanoseconds = 0.0
        last = clock()

        # closures, because a lap is as long as the work between two of them
        def lap(site: int) -> None:
            nonlocal last
            now = clock()
            times[site] += now - last
            counts[site] += 1
            last = now

        def spend(site: int) -> None:
            nonlocal last
            now = clock()
            times[site] += now - last
            last = now

        def skip(nanoseconds: int) -> None:
            nonlocal last
            last += nanoseconds

        self.lap, self.spend, self.skip = lap, spend, skip


def block_paths(program: Program, name_of: Callable[[Operation], str]) -> dict[Block, Path]:
    """The path of each block of a program.

    Args:
      program: The program.
      name_of: Returns the name of a loop, given its operation.
    """
    from headrace.schedule.program import Loop  # here: only profiled steps need it

    found: dict[Block, Path] = {}
    waiting: list[tuple[Block, Path]] = [(program.block, ())]
    waiting += [(function.block, (name,)) for name, function in program.functions.items()]
    while waiting:
        block, path = waiting.pop()
        found[block] = path
        for instr in block.instrs:
            inner = (*path, name_of(instr.op)) if isinstance(instr, Loop) else path
            waiting += [(each, inner) for each in instr.blocks]
    return found
