"""Profiles: times of ops, loops and lines in the runs of a `with` block.

    with hr.profile() as p:
        session.run(y, {x: 1.0})
    print(p)

A step that is compiled runs the same schedule with timers (`schedule.timers`), compiled at its first profiled run and
kept with the step. The token machine sends events (`profile_events`). Runs of other threads are not in the profile.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from headrace import step_events, thresholds
from headrace.execute.compiled_run import CompiledProgram
from headrace.metadata import scoped_options
from headrace.metadata.run import show_seconds
from headrace.observe import profile_rows
from headrace.observe.profile_events import EventTimes
from headrace.observe.profile_rows import Row, Sum, short
from headrace.schedule.timers import Laps
from headrace.targets.python.runtime import RunState

if TYPE_CHECKING:
    from headrace.compile import Compiled
    from headrace.compiled_step import CompiledStep
    from headrace.metadata.run import RunOptions
    from headrace.programs import Programs

SHOWN: Final = 30  # rows, loops and lines in the text
_WIDTHS: Final = {"op": 44, "type": 28}  # longest texts of these columns


def profile(run: Callable[[], Any] | None = None) -> Profile:
    """Measures the time of ops, loops and lines of the user's program.

    All runs of sessions, callables and jitted functions by this thread are in the profile, while it is open. Their
    results are those of runs without a profile. A step is compiled at its first run in a profile, which is no part of
    the times.

    Args:
      run: a function to call in the profile; None: the result is a context manager.

    Returns:
      The profile. `print(p)` shows its table; `p.rows` has the times as data.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     _, y = hr.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, hr.tanh(y)), (0, 1.0))
      >>> session = hr.Session(graph=g)
      >>> with hr.profile() as p:
      ...     value = session.run(y)
      >>> [(loop.name, loop.calls) for loop in p.loops]
      [('while', 5)]
      >>> p = hr.profile(lambda: session.run(y))
      >>> p.runs
      1
    """
    made = Profile()
    if run is not None:
        with made:
            made.result = run()
    return made


class Profile:
    """Times of the runs while it is open; `hr.profile` makes one.

    Args:
      clock: the time in nanoseconds, for tests.

    Attributes:
      runs: the number of runs.
      seconds: the time of all runs, from checking the feeds to packing the fetches; of a partial run, of its
        calls.
      engines: the engines of the runs: "compiled", "interpret".
      result: the result of the function that `hr.profile` called; else None.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.runs = 0
        self.seconds = 0.0
        self.engines: list[str] = []
        self.result: Any = None
        self._clock = clock
        self._sums: dict[Compiled, Laps] = {}
        self._taken: list[tuple[Compiled, Laps]] = []  # of the current run
        self._events = EventTimes()
        self._lap_nanoseconds = 0.0
        self._block: contextlib.ExitStack | None = None

    def __enter__(self) -> Profile:
        if self._block is not None:
            raise RuntimeError("this profile is open; use `hr.profile()` for another one")
        self._block = contextlib.ExitStack()
        self._block.enter_context(scoped_options.changed(self._profiled))
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._block is not None, "`with` calls __enter__ first"
        self._block.close()
        self._block = None
        self._lap_nanoseconds = _lap_nanoseconds()

    # *** runs ***

    def _profiled(self, options: RunOptions) -> RunOptions:
        return dataclasses.replace(options, profile=self)

    def prepared(self, programs: Programs, fed: Sequence[Any], options: RunOptions) -> tuple[CompiledStep, RunOptions]:
        """Returns the program with timers, compiled, and the options of its run; see `Session.run`."""
        found = None if options.is_observed else programs.for_values(fed)
        if found is None or found.compiled is None:
            return programs.observed, self.heard(options)
        self._add_run("compiled")
        code = _TimedCode(found.compiled.timed, self)
        program = found.program
        assert isinstance(program, CompiledProgram)
        made = dataclasses.replace(found, compiled=cast("Compiled", code), program=program.with_code(code))
        return made, options

    def heard(self, options: RunOptions) -> RunOptions:
        """Returns the options of a run whose events the profile receives."""
        self._add_run("interpret")
        return dataclasses.replace(options, listener=step_events.joined(options.listener, self._events))

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Context manager that adds its time, a part of a run's, to the profile."""
        began = self._clock()
        try:
            yield
        finally:
            self.seconds += (self._clock() - began) / 1e9
            taken, self._taken = self._taken, []
            for code, laps in taken:
                self._add(code, laps)

    def start(self, code: Compiled) -> Laps:
        """Returns the times of a run of `code`, all zero."""
        laps = Laps(len(code.sites), self._clock)
        self._taken.append((code, laps))
        return laps

    def _add(self, code: Compiled, laps: Laps) -> None:
        total = self._sums.get(code)
        if total is None:
            self._sums[code] = laps
            return
        total.counts[:] = map(sum, zip(total.counts, laps.counts, strict=True))
        total.times[:] = map(sum, zip(total.times, laps.times, strict=True))
        total.timer_nanoseconds += laps.timer_nanoseconds

    def _add_run(self, name: str) -> None:
        self.runs += 1
        if name not in self.engines:
            self.engines.append(name)

    # *** results ***

    @property
    def rows(self) -> list[Row]:
        """The rows, the longest first.

        Variants of a step for other shapes have rows of their own.
        """
        found = [*self._events.rows()]
        for code, laps in self._sums.items():
            for site, count, nanoseconds in zip(code.sites, laps.counts, laps.times, strict=True):
                if count or nanoseconds:
                    row = Row(
                        tuple([op.name for op in site.ops]),
                        tuple([op.type for op in site.ops]),
                        site.path,
                        profile_rows.distinct(map(profile_rows.line_of, site.ops)),
                        count,
                        nanoseconds / 1e9,
                        is_loop=site.is_loop,
                        is_native=site.is_native,
                        is_timed=site.is_timed,
                        shapes=tuple(map(profile_rows.types_of, site.ops)),
                    )
                    found.append(row)
        return sorted(found, key=lambda row: -row.seconds)

    @property
    def loops(self) -> list[Sum]:
        """The time of each loop with all inside, and its iterations."""
        return profile_rows.by_loop(self.rows)

    @property
    def lines(self) -> list[Sum]:
        """The time of each line of the user's program.

        The time of ops that run together is divided equally among their lines.
        """
        return profile_rows.by_line(self.rows)

    @property
    def timed_seconds(self) -> float:
        """The sum of all rows."""
        return sum(row.seconds for row in self.rows)

    @property
    def timer_seconds(self) -> float:
        """The estimated time of the timers themselves, which is part of the times of rows."""
        nanoseconds = float(self._events.nanoseconds)
        for code, laps in self._sums.items():
            count = sum(n for site, n in zip(code.sites, laps.counts, strict=True) if not site.is_native)
            nanoseconds += laps.timer_nanoseconds + count * self._lap_nanoseconds
        return nanoseconds / 1e9

    def __str__(self) -> str:
        return "\n".join(_text(self))

    def write_chrome(self, path: str) -> None:
        """Writes the sums as a Chrome trace.

        The ops of a loop are inside of its bar. The bars are sums over all executions, so their order in time has no
        meaning.

        Args:
          path: the path of the file, which Perfetto and chrome://tracing open.
        """
        from headrace.observe.profile_files import write_chrome

        write_chrome(self.rows, self.runs, path)

    def write_collapsed(self, path: str) -> None:
        """Writes the sums as collapsed stacks, from which flame graphs are made.

        A line is `loop;inner loop;op;line of the program MICROSECONDS`.

        Args:
          path: the path of the file.
        """
        from headrace.observe.profile_files import write_collapsed

        write_collapsed(self.rows, path)

    def write_html(self, path: str) -> None:
        """Writes a page with nested bars and the table.

        It needs no other file and no network.

        Args:
          path: the path of the file.
        """
        from headrace.observe.profile_files import write_html

        write_html(self.rows, self.seconds, str(self).split("\n")[:2], path)


class _TimedCode:
    """Profiled code of a step with the profile that takes its times.

    Args:
      code: the code with timers.
      profile: the profile that takes the times.
    """

    is_direct = is_plain = is_whole = False

    def __init__(self, code: Compiled, profile: Profile) -> None:
        self._code, self._profile = code, profile
        self.uses_threads, self.is_threaded = code.uses_threads, code.is_threaded
        self.calls_library, self.flushes, self.blocks = code.calls_library, code.flushes, code.blocks

    def run(self, step: Any, values: Sequence[Any]) -> Sequence[Any]:
        """Runs the code; see `Compiled.run`."""
        return self._code.run(step, values, self._profile.start(self._code))


def _lap_nanoseconds() -> float:
    """The measured duration of a lap of Python code, at this load of the machine."""
    laps = Laps(1)
    state = RunState(None, (), (), laps)  # through which code finds it
    began = time.perf_counter_ns()
    for _ in range(thresholds.PROFILE_TRIALS):
        state.laps.lap(0)
    return (time.perf_counter_ns() - began) / thresholds.PROFILE_TRIALS


# *** text ***


def _text(p: Profile) -> Iterator[str]:
    if not p.runs:
        yield "no run yet"
        return
    rows, whole = p.rows, p.seconds or 1.0
    how = " and ".join({"compiled": "compiled", "interpret": "interpreted"}[e] for e in p.engines)
    native = sum(row.seconds for row in rows if row.is_native)
    part = f", {native / whole:.1%} in machine code" if native else ""
    yield f"profile of {p.runs:,} run{'s' * (p.runs > 1)}: {show_seconds(p.seconds)}, {how}{part}"
    yield (
        f"timed {show_seconds(p.timed_seconds)} ({p.timed_seconds / whole:.1%}), of which the timers took about "
        f"{show_seconds(p.timer_seconds)} ({p.timer_seconds / whole:.1%})"
    )
    waits = any(row.waited for row in rows)
    devices = {row.device: row.device.rpartition("/device:")[2] for row in rows}
    if len(set(devices.values())) < len(devices):  # on several machines
        devices = {device: device for device in devices}
    if len(devices) < 2:
        devices = {}
    heads = ["time", "share", *["waited"] * waits, "calls", "op", "type", "loop", "line", *["device"] * bool(devices)]
    yield from _table(heads, [_cells(row, whole, waits, devices) for row in rows[:SHOWN]])
    if len(rows) > SHOWN:
        rest = sum(row.seconds for row in rows[SHOWN:])
        yield f"  ... and {len(rows) - SHOWN:,} more, together {show_seconds(rest)}"
    for head, calls, sums in (("loop", "iterations", p.loops), ("line", "", p.lines)):
        if sums:
            cells = [
                [
                    show_seconds(s.seconds),
                    f"{s.seconds / whole:.1%}",
                    *([f"{s.calls:,}"] if calls else []),
                    short(s.name),
                ]
                for s in sums[:SHOWN]
            ]
            yield ""
            yield from _table(["time", "share", *([calls] if calls else []), head], cells)


def _cells(row: Row, whole: float, waits: bool, devices: Mapping[str, str]) -> list[str]:
    cells = [show_seconds(row.seconds), f"{row.seconds / whole:.1%}"] if row.is_timed else ["", ""]
    if waits:
        cells.append(show_seconds(row.waited) if row.waited else "")
    cells += [
        f"{row.calls:,}",
        _cut(row.label, "op"),
        _cut("" if row.is_loop else "+".join(dict.fromkeys(row.types)), "type"),
        row.shown_path,
        ", ".join(map(short, row.lines)),
    ]
    return [*cells, devices[row.device]] if devices else cells


def _cut(text: str, column: str) -> str:
    most = _WIDTHS[column]
    return text if len(text) <= most else text[: most - 1] + "…"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Formats columns, aligned to the left from the column "op" on."""
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    numbers = heads.index("op") if "op" in heads else len(heads) - 1
    for row in [heads, *rows]:
        cells = [t.rjust(w) if i < numbers else t.ljust(w) for i, (t, w) in enumerate(zip(row, widths, strict=True))]
        yield ("  " + "  ".join(cells)).rstrip()
