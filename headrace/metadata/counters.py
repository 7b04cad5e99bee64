"""Counters of a running step, which fill a `RunMetadata` from the events of `step_events`.

No event is kept. So the memory of the counters depends on the size of the graph, and not on the trip counts of its
loops. Only two lists have an entry for each firing or for each entry of a loop, `RunMetadata.step_stats` and
`LoopStats.instances`, and both have a limit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace import step_events, thresholds
from headrace.metadata.run import (
    UNFINISHED,
    Device,
    LoopInstance,
    LoopStats,
    Op,
    RunMetadata,
    RunOptions,
    Traffic,
)

if TYPE_CHECKING:
    from headrace.metadata.step_stats import Firing


@contextlib.contextmanager
def measuring(m: RunMetadata, options: RunOptions, device: str) -> Iterator[RunOptions]:
    """Fills `m` from the run in the `with` block; yields the options of this run.

    Args:
      m: the metadata to fill.
      options: the options that the user gave.
      device: the device of events that name none.

    Raises:
      ValueError: an unknown trace level.
    """
    counters = None
    if options.trace_level not in range(4):
        raise ValueError(
            f"trace_level must be one of RunOptions' (NO_TRACE to FULL_TRACE), got {options.trace_level!r}"
        )
    if options.trace_level:
        counters = _Counters(device)
        listener = counters if options.listener is None else step_events.Both(counters, options.listener)
        options = dataclasses.replace(options, listener=listener)
    began = time.perf_counter()
    try:
        yield options
    except BaseException as e:
        m.error = str(e) or type(e).__name__
        raise
    finally:
        m.seconds = time.perf_counter() - began
        if counters is not None:
            counters.fill(m)


class _Running:
    """A loop on one device that was entered and is not over."""

    __slots__ = ("is_live", "loop", "open", "shown")

    def __init__(self, loop: LoopStats, tag: str) -> None:
        self.loop = loop
        self.open = 0
        self.is_live = False
        self.shown = LoopInstance(tag)


def _lives(running: _Running) -> None:
    """Marks a loop as live: a predicate was computed, or there is a second iteration.

    A loop that only dead tokens enter stays dead.
    """
    if not running.is_live:
        running.is_live = True
        if len(running.loop.instances) < thresholds.LISTED_LOOP_FIRINGS:
            running.loop.instances.append(running.shown)


class _OnDevice:
    """Counters of one device.

    Args:
      name: the full name of the device.

    Attributes:
      total: the sums of the device.
      current: the start of the node that fires now or fired last.
      late: starts of nodes that wait, by name and tag.
      last_next: the NextIteration that fired last, by the tag of the iteration.
      full: the loop whose oldest iteration was freed while the limit was reached. If the next event opens an iteration,
        the limit has held it.
      ops: statistics of operations, by name.
      loops: statistics of loops, by name.
      running: loops that were entered and are not over, by tag.
      ending: the loop whose last open iteration was freed. It is over, unless the next event of iterations opens its
        next one, which was held.
      spans: seconds in the stream "compute", by operation.
      listed: the firings for `step_stats`.
    """

    def __init__(self, name: str) -> None:
        self.total = Device(name)
        self.current: step_events.NodeStart | None = None
        self.late: dict[tuple[str, str], step_events.NodeStart] = {}
        self.last_next: dict[str, str] = {}
        self.full: _Running | None = None
        self.ops: dict[str, Op] = {}
        self.loops: dict[str, LoopStats] = {}
        self.running: dict[str, _Running] = {}
        self.ending: _Running | None = None
        self.spans: dict[str, float] = {}
        self.listed: list[Firing] = []

    def start(self, e: step_events.NodeStart) -> None:
        before = self.current
        if before is not None:
            self.late[before.node, before.tag] = before
        self.current = e
        self.full = None
        if e.type == "NextIteration" and not e.dead:
            self.last_next[e.tag] = e.node
        if e.type == "LoopCond" and not e.dead:
            running = self.running.get(e.tag.rpartition("#")[0])
            if running is not None:
                _lives(running)

    def end(self, e: step_events.NodeEnd) -> step_events.NodeStart:
        """Counts a firing; returns its start."""
        start = self.current
        if start is not None and start.node == e.node and start.tag == e.tag:
            self.current = None
        else:
            start = self.late.pop((e.node, e.tag))
        op = self.ops.get(e.node)
        if op is None:
            op = self.ops[e.node] = Op(e.node, e.type, self.total.name)
        seconds = (e.time - start.time) / 1e9
        total = self.total
        if not e.waited:
            total.busy += seconds
        if e.dead:
            op.dead += 1
            total.dead += 1
            if not e.waited:
                total.dead_seconds += seconds
            return start
        op.calls += 1
        total.calls += 1
        if e.sizes:
            n = sum(e.sizes)
            op.bytes += n
            total.bytes += n
        if e.waited:
            op.waited += seconds
        else:
            op.seconds += seconds
            op.longest = max(op.longest, seconds)
        return start

    def span(self, e: step_events.StreamSpan) -> None:
        seconds = (e.end - e.time) / 1e9
        self.total.streams[e.stream] = self.total.streams.get(e.stream, 0.0) + seconds
        if e.stream == "compute":
            self.spans[e.name] = self.spans.get(e.name, 0.0) + seconds

    def opens(self, e: step_events.IterationOpen) -> None:
        tag = e.tag.rpartition("#")[0]
        if self.ending is not None:
            if self.ending.shown.tag != tag:
                self._over(self.ending)
            self.ending = None
        if not e.limit:
            return
        running = self.running.get(tag)
        if running is None:
            loop = self.loops.get(e.frame)
            if loop is None:
                loop = self.loops[e.frame] = LoopStats(e.frame, e.limit, devices=[self.total.name])
            running = self.running[tag] = _Running(loop, tag)
        one = running.shown
        running.open += 1
        if self.full is running:
            running.loop.held += 1
        self.full = None
        one.most_in_flight = max(one.most_in_flight, running.open)
        if e.iteration:
            one.trips = e.iteration
            _lives(running)

    def frees(self, e: step_events.IterationFree) -> None:
        if self.ending is not None:
            self._over(self.ending)
            self.ending = None
        running = self.running.get(e.tag.rpartition("#")[0])
        last = self.last_next.pop(e.tag, None)
        if running is not None:
            if last is not None:
                running.loop.last[last] = running.loop.last.get(last, 0) + 1
            self.full = running if running.open == running.loop.parallel_iterations else None
            running.open -= 1
            if not running.open:
                self.ending = running

    def _over(self, running: _Running) -> None:
        """Adds a loop that is over to the statistics."""
        one, loop = running.shown, running.loop
        del self.running[one.tag]
        if not running.is_live:
            loop.dead += 1
            return
        loop.fewest = min(loop.fewest, one.trips) if loop.entered else one.trips
        loop.entered += 1
        loop.most = max(loop.most, one.trips)
        loop.most_in_flight = max(loop.most_in_flight, one.most_in_flight)
        loop.trips += one.trips

    def close(self) -> list[str]:
        """Ends the loops of a step; returns the nodes that did not end."""
        for running in list(self.running.values()):
            self._over(running)
        for name, seconds in self.spans.items():
            op = self.ops.get(name)
            if op is not None:
                op.seconds += seconds
                op.waited = max(op.waited - seconds, 0.0)
        begun = [*self.late.values(), *([] if self.current is None else [self.current])]
        return [f"{e.node} in {e.tag}" if e.tag else e.node for e in begun]


class _Counters:
    """A listener that counts. It receives one event at a time, see `step_events.OneAtATime`.

    Args:
      device: the device of events that name none.

    Attributes:
      wants_sizes: True, so that events have the bytes of values.
    """

    wants_sizes = True

    def __init__(self, device: str) -> None:
        self._device = device
        self._on: dict[str, _OnDevice] = {}
        self._sent: dict[tuple[str, str], Traffic] = {}
        self._room = thresholds.LISTED_FIRINGS
        self._left_out = 0
        self._step: int | None = None
        self._epoch = time.time_ns() - time.perf_counter_ns()
        self._is_over = False

    def __call__(self, e: step_events.Event) -> None:
        if self._is_over:  # a kernel on another thread, for which the step no longer waits
            return
        if isinstance(e, step_events.StepStart):
            self._step = e.step
        elif isinstance(e, step_events.StepEnd):
            self._is_over = True
        elif isinstance(e, step_events.Crossing):
            if isinstance(e, step_events.TokenSent):
                self._crosses(e)
        else:
            name = e.device or self._device
            on = self._on.get(name)
            if on is None:
                on = self._on[name] = _OnDevice(name)
            if isinstance(e, step_events.NodeStart):
                on.start(e)
            elif isinstance(e, step_events.NodeEnd):
                start = on.end(e)
                if not e.dead:
                    self._list(on, start, e)
            elif isinstance(e, step_events.IterationOpen):
                on.opens(e)
            elif isinstance(e, step_events.IterationFree):
                on.frees(e)
            else:
                on.span(e)

    def _crosses(self, e: step_events.TokenSent) -> None:
        traffic = self._sent.get((e.device, e.to))
        if traffic is None:
            traffic = self._sent[e.device, e.to] = Traffic(e.device, e.to)
        if e.dead:
            traffic.dead += 1
        else:
            traffic.tokens += 1
            traffic.bytes += e.size

    def _list(self, on: _OnDevice, start: step_events.NodeStart, e: step_events.NodeEnd) -> None:
        """Adds a firing to the list for `step_stats`."""
        if not self._room:
            self._left_out += 1
            return
        self._room -= 1
        firing = e.node, e.type, start.time + self._epoch, e.time - start.time, e.sizes or ()
        on.listed.append(firing)

    def fill(self, m: RunMetadata) -> None:
        """Ends the counting of a run that is over, and writes the results to `m`."""
        self._is_over = True
        m.step_id, m.left_out = self._step, self._left_out
        found = [self._on[name] for name in sorted(self._on)]
        m.unfinished = [text for on in found for text in on.close()][:UNFINISHED]
        m._listed = {on.total.name: on.listed for on in found}
        m.devices = [on.total for on in found]
        m.ops = sorted(
            (op for on in found for op in on.ops.values()), key=lambda op: (-op.seconds, -op.waited, op.name)
        )
        m.sent = [self._sent[key] for key in sorted(self._sent)]
        m.loops = _merged([loop for on in found for loop in on.loops.values()])


def _merged(loops: list[LoopStats]) -> list[LoopStats]:
    """Merges the records that each device has of a loop."""
    of: dict[str, list[LoopStats]] = {}
    for loop in loops:
        of.setdefault(loop.name, []).append(loop)
    out = []
    for same in of.values():
        best = max(same, key=lambda loop: (loop.trips, loop.entered))
        best.most_in_flight = max(loop.most_in_flight for loop in same)
        best.held = max(loop.held for loop in same)
        best.devices = [loop.devices[0] for loop in same]
        out.append(best)
    return out
