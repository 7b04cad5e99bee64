"""Timers of native code: laps behind nests and other units.

    %time = clock                 ; by `clock_gettime` of the C library
    times[site] += %time - last
    counts[site] += 1
    last = %time

The table of times is outside of the code. A read of the clock takes longer than many units. Units of a block that are
estimated to be shorter than `thresholds.PROFILED_WORK` share a lap with their neighbors. In a loop, conditional or
function that is shorter than that, executions are counted and no clock is read: its time is part of the lap behind it.

A table serves one call at a time. The function of a section (`TimedFunction`) holds a lock meanwhile, and adds the
table to the `Laps` of its run.
"""

from __future__ import annotations

import ctypes
import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import forking, thresholds
from headrace.records import record
from headrace.schedule.program import Branches, Call, Loop
from headrace.targets.native.fusion import Nest
from headrace.targets.native.strips import Strips
from headrace.targets.python.source import loop_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace.ir.graph import Operation
    from headrace.schedule.program import Instr
    from headrace.schedule.timers import Laps, Path, Timers
    from headrace.targets.native.costs import Costs
    from headrace.targets.native.engine import Library
    from headrace.targets.native.llvm_text import Function, Module
    from headrace.targets.native.strips import Unit

#: Function of a module that runs a number of laps, for `Table.lap_nanoseconds`.
TRIAL: Final = "headrace.trial"
_TABLE: Final = "headrace_times"
_HEAD: Final = len(("the time of the last lap", "the number of laps"))  # i64s before those of the sites


@record(slots=True)
class _OpenLoop:
    """Loop around the open block.

    Attributes:
      site: Its site.
      is_in_short: Whether the block around the loop has no laps.
      timed: The site of its body, if the body has no laps and so gets the time of the whole loop; else -1.
    """

    site: int
    is_in_short: bool
    timed: int = -1


class UnitTimers:
    """Timers of the code of one region or function in construction.

    Args:
      timers: Takes the sites.
      path: The path of the region or function.
      costs: The estimates of its blocks.
    """

    def __init__(self, timers: Timers, path: Path, costs: Costs) -> None:
        self._timers = timers
        self._costs = costs
        self._path = path
        self._loops: list[_OpenLoop] = []
        self._is_short = False  # whether the open block has no laps
        self._last = -1  # the site of the last block without laps
        self._f: Function

    def begin(self, f: Function, instrs: Sequence[Instr], is_function: bool = False) -> None:
        """Prints the first read of the clock.

        Args:
          f: The function of the region, or the function that calls itself.
          instrs: Its instructions.
          is_function: Whether it is a function that calls itself, which continues the time of its caller.
        """
        self._f = f
        _define(f.module)
        if is_function:
            self._is_short = self._sum(instrs) < thresholds.PROFILED_WORK and not any(map(_has_loop, instrs))
        else:
            f.line(f"store i64 {f.op('call i64 @headrace.clock()', 'now')}, ptr @{_TABLE}, align 8")

    def units(self, found: Sequence[Unit], write: Callable[[Unit], None]) -> None:
        """Prints the units of a block, given the function that prints one."""
        if self._is_short:
            for unit in found:
                write(unit)
            self._last = self._site(found, is_timed=False) if found else -1
            if found:
                self._count(self._last)
            return
        waiting: list[Unit] = []
        for unit in found:
            if self._is_long(unit):
                self._lap_behind(waiting)
                waiting = []
                write(unit)
                if not isinstance(unit, Loop):
                    self._lap_behind([unit])
            else:
                waiting.append(unit)
                self._is_short = isinstance(unit, Loop | Branches)
                write(unit)
                self._is_short = False
        self._lap_behind(waiting)

    def _lap_behind(self, found: Sequence[Unit]) -> None:
        if found:
            self._lap("lap", self._site(found))

    # *** loops ***

    def enter(self, loop: Loop) -> None:
        """Prints the time behind the initial values of a loop, and opens its site."""
        self._path = (*self._path, loop_name(loop.op))
        site = self._timers.add([loop.op], self._path, is_loop=True, is_native=True, is_timed=not self._is_short)
        self._loops.append(_OpenLoop(site, self._is_short))
        if not self._is_short:
            self._lap("spend", site)
            cost = sum(map(self._costs.block, loop.blocks))
            self._is_short = cost < thresholds.PROFILED_WORK and not any(map(self._costs.has_long_loops, loop.blocks))

    def iterated(self) -> None:
        """Prints the end of an iteration of the innermost open loop."""
        loop = self._loops[-1]
        if not self._is_short:
            self._lap("lap", loop.site)
            return
        self._count(loop.site)
        if not loop.is_in_short and self._last >= 0:
            loop.timed = self._last
            self._timers.sites[loop.timed] = dataclasses.replace(self._timers.sites[loop.timed], is_timed=True)

    def leave(self) -> None:
        """Prints the time since the last lap in a loop, and closes its site."""
        loop = self._loops.pop()
        self._path, self._is_short = self._path[:-1], loop.is_in_short
        if not self._is_short:
            self._lap("spend", loop.timed if loop.timed >= 0 else loop.site)

    # *** sites ***

    def _site(self, found: Sequence[Unit], is_timed: bool = True) -> int:
        return self._timers.add([op for u in found for op in _ops(u)], self._path, is_native=True, is_timed=is_timed)

    def _is_long(self, unit: Unit) -> bool:
        """Whether a unit, or one in it, is likely to take longer than a lap."""
        if isinstance(unit, Call):
            return True
        if isinstance(unit, Nest | Strips):
            return any(not v.is_static for v in unit.made) or self._cost(unit) >= thresholds.PROFILED_WORK
        is_open = isinstance(unit, Loop) and not self._costs.is_short(unit)
        if is_open or any(map(self._costs.has_long_loops, unit.blocks)):
            return True
        return any(not v.is_static for v in unit.made) or self._cost(unit) >= thresholds.PROFILED_WORK

    def _cost(self, unit: Unit) -> float:
        if isinstance(unit, Strips):
            return unit.cost
        return self._sum(unit.maps) if isinstance(unit, Nest) else self._costs.instr(unit)

    def _sum(self, instrs: Iterable[Instr]) -> float:
        return sum(map(self._costs.instr, instrs))

    def _lap(self, kind: str, site: int) -> None:
        self._f.line(f"call void @headrace.{kind}(i64 {site})")

    def _count(self, site: int) -> None:
        _add(self._f, str(_HEAD + 2 * site), "1")


def _ops(unit: Unit) -> Iterable[Operation]:
    """The operations of a unit, without those in its blocks."""
    if isinstance(unit, Nest):
        return [m.op for m in unit.maps]
    return [op for part in unit.parts for op in _ops(part)] if isinstance(unit, Strips) else [unit.op]


def _has_loop(instr: Instr) -> bool:
    return isinstance(instr, Loop) or any(_has_loop(i) for block in instr.blocks for i in block.instrs)


# *** The text ***


def _define(module: Module) -> None:
    """Defines the functions of laps, once for a module."""
    if module.has("headrace.clock"):
        return
    module.add_global(_TABLE, "external global i64")
    f = module.function("headrace.clock", "i64", [], "nounwind noinline", "internal")
    read = module.declare("clock_gettime", "i32", ["i32", "ptr"], "nounwind")
    slot = f.alloca("{ i64, i64 }", 8)
    f.line(f"call i32 {read}(i32 {time.CLOCK_MONOTONIC}, ptr {slot})")
    seconds = f.op(f"load i64, ptr {slot}, align 8", "seconds")
    at = f.op(f"getelementptr inbounds i8, ptr {slot}, i64 8", "at")
    rest = f.op(f"load i64, ptr {at}, align 8", "rest")
    whole = f.op(f"mul i64 {seconds}, 1000000000", "whole")
    f.line(f"ret i64 {f.op(f'add i64 {whole}, {rest}')}")
    for kind in ("spend", "lap"):
        f = module.function(f"headrace.{kind}", "void", [("i64", "site")], "nounwind noinline", "internal")
        now = f.op("call i64 @headrace.clock()", "now")
        last = f.op(f"load i64, ptr @{_TABLE}, align 8", "last")
        spent = f.op(f"sub i64 {now}, {last}", "spent")
        f.line(f"store i64 {now}, ptr @{_TABLE}, align 8")
        _add(f, "1", "1")
        at = f.op(f"add i64 {f.op('shl i64 %site, 1')}, {_HEAD}", "at")
        if kind == "lap":
            _add(f, at, "1")
        _add(f, f.op(f"add i64 {at}, 1"), spent)
        f.line("ret void")
    f = module.function(TRIAL, "void", [("i64", "n")], "nounwind")
    with f.loop("0", "%n"):
        f.line("call void @headrace.lap(i64 0)")
    f.line("ret void")


def _add(f: Function, at: str, number: str) -> None:
    """Prints an addition to an i64 of the table."""
    slot = f.op(f"getelementptr inbounds i64, ptr @{_TABLE}, i64 {at}", "slot")
    before = f.op(f"load i64, ptr {slot}, align 8", "before")
    f.line(f"store i64 {f.op(f'add i64 {before}, {number}')}, ptr {slot}, align 8")


# *** Run time ***


class Table:
    """Times of the sites of a module in one call.

    Args:
      count: The number of sites.

    Attributes:
      symbols: The addresses of external symbols of the module.
      lock: Held during a call.
      lap_nanoseconds: The measured duration of a lap.
    """

    def __init__(self, count: int) -> None:
        self._table = np.zeros(_HEAD + 2 * max(count, 1), np.int64)
        self.symbols = {_TABLE: self._table.ctypes.data}
        self.lock = threading.Lock()
        self.lap_nanoseconds = 0.0
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock in a forked process, see `forking`."""
        self.lock = threading.Lock()

    def measure(self, library: Library) -> None:
        """Measures the duration of a lap, given the module's code."""
        run = ctypes.CFUNCTYPE(None, ctypes.c_int64)(library.address(TRIAL))
        run(thresholds.PROFILE_TRIALS)
        began = time.perf_counter_ns()
        run(thresholds.PROFILE_TRIALS)
        self.lap_nanoseconds = (time.perf_counter_ns() - began) / thresholds.PROFILE_TRIALS

    def clear(self) -> None:
        """Sets all times and counts to zero."""
        self._table[:] = 0

    def add_to(self, laps: Laps) -> None:
        """Adds the times of the call to those of its run."""
        counts, times = self._table[_HEAD::2], self._table[_HEAD + 1 :: 2]
        for site in np.flatnonzero(counts | times).tolist():
            laps.counts[site] += int(counts[site])
            laps.times[site] += int(times[site])
        laps.skip(int(times.sum()))
        laps.timer_nanoseconds += int(self._table[1]) * self.lap_nanoseconds


class TimedFunction:
    """Function of a section of a profiled program.

    Args:
      function: The function of the section.
      table: The times of its module.
    """

    __slots__ = ("_function", "_table")

    def __init__(self, function: Callable[..., Any], table: Table) -> None:
        self._function, self._table = function, table

    def __call__(self, laps: Laps, *args: Any) -> Any:
        """Calls the function, and adds the times of the call to those of the run."""
        with self._table.lock:  # native code waits for no other step, so this ends
            self._table.clear()
            try:
                return self._function(*args)
            finally:
                self._table.add_to(laps)
