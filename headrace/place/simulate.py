"""Simulation of a placed step, which predicts its duration.

**The model.** This is the token machine (`execute.frames`) with durations in place of values. A token arrives; an
operation with all its tokens becomes ready; its device works on it for the time that the cost model gives; and its
tokens are delivered, at once on the same device, over a link to another one. Loops are unrolled to their expected
number of trips, with at most `parallel_iterations` iterations open at once. So the prediction contains the overlap of
iterations, across devices too, and the limits of this overlap.

**A device** does one operation at a time, in the order in which they became ready. Small operations, which the executor
does itself, do not wait for a large one, which occupies a thread of its own: so a device has two lanes. **A link** from
one device to another carries one token at a time. The next token follows during the latency of the first. Work and
transfers overlap.

**Branches.** The taken branch of a conditional is not known beforehand. Both are counted, which gives an upper bound.
Measured costs are more exact: an operation that was dead in some of its firings costs proportionally less.

**Cost.** The time is proportional to the number of firings: about 200,000 of them per second.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace import thresholds
from headrace.ir.analysis import frames
from headrace.place.costs import Costs, is_free, size
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.analysis.frames import Frame
    from headrace.ir.graph import Operation, Tensor
    from headrace.place.cluster import Cluster

_COLUMNS: Final = 72  # of a timeline
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@record(frozen=True, slots=True)
class Span:
    """An interval of work of an operation.

    Attributes:
      device: the device.
      op: the name of the operation.
      start: the start in seconds since the begin of the step.
      end: the end in seconds since the begin of the step.
    """

    device: str
    op: str
    start: float
    end: float


@record(frozen=True, slots=True)
class Simulation:
    """A predicted step. Printed, it is a timeline with a row for each device.

    Attributes:
      makespan: duration of the step in seconds.
      timeline: the intervals of work, sorted by their starts.
      busy: device → seconds of work.
      sent: (from, to) → number of tokens that cross.
    """

    makespan: float
    timeline: tuple[Span, ...]
    busy: Mapping[str, float]
    sent: Mapping[tuple[str, str], int]

    def __str__(self) -> str:
        totals: dict[str, float] = {}
        for s in self.timeline:
            totals[s.op] = totals.get(s.op, 0.0) + s.end - s.start
        named = sorted((op for op in totals if totals[op] >= self.makespan / 100), key=lambda op: -totals[op])
        letters = dict(zip(named, _LETTERS, strict=False))
        lines = [f"{_seconds(self.makespan)} in total; a column is {_seconds(self.makespan / _COLUMNS)}"]
        for device, busy in self.busy.items():
            cells: list[dict[str, float]] = [{} for _ in range(_COLUMNS)]
            for s in self.timeline:
                if s.device == device:
                    _fill(cells, letters.get(s.op, "+"), s.start, s.end, self.makespan / _COLUMNS)
            row = "".join(max(c, key=lambda k: c[k]) if c else "." for c in cells)
            share = busy / self.makespan if self.makespan else 0.0
            lines.append(f"{row}  {device}, busy {share:.0%}")
        lines += [f"{letter}  {_seconds(totals[op])}  {op}" for op, letter in letters.items()]
        lines += [f"{n} tokens from {a} to {b}" for (a, b), n in self.sent.items()]
        return "\n".join(lines)


def simulate_step(
    ops: Sequence[Operation],
    of: Mapping[Operation, str],
    cluster: Cluster,
    costs: Costs | None = None,
    trips: Mapping[str, float] | None = None,
) -> Simulation:
    """Predicts the duration of `ops` with the placement `of`.

    Args:
      ops: the operations of a primitive graph that is not partitioned yet.
      of: the device of each operation.
      cluster: the devices and links.
      costs: measured costs; None: estimates alone.
      trips: frame → trip count of its loop; `costs` has those that are missing.

    Raises:
      InvalidArgumentError: the frames of the graph do not fit together.
    """
    return _Simulator(ops, of, cluster, costs or Costs(), trips or {}).run()


class _Iteration:
    """One iteration of one entry of a frame.

    Attributes:
      entry: the entry of the frame.
      number: the number of the iteration, from 0.
      waiting: for operations with some of their tokens, the number of missing ones.
      active: number of operations, tokens under way and inner loops in the iteration.
    """

    __slots__ = ("active", "entry", "number", "waiting")

    def __init__(self, entry: _Entry, number: int) -> None:
        self.entry = entry
        self.number = number
        self.waiting: dict[Operation, int] = {}
        self.active = 0


class _Entry:
    """An entered loop, or the root.

    Attributes:
      frame: the frame.
      outside: the iteration around it; None for the root.
      trip_count: trip count of the loop.
      limit: the largest number of open iterations.
      iterations: the open iterations, the oldest first.
      opened: number of iterations opened so far.
      next_iteration_roots: readers of tokens for the next iteration, which may not be opened yet.
      constants: readers of the loop constants that have arrived.
      missing: number of Enters that have not arrived.
    """

    __slots__ = (
        "constants",
        "frame",
        "iterations",
        "limit",
        "missing",
        "next_iteration_roots",
        "opened",
        "outside",
        "trip_count",
    )

    def __init__(self, frame: Frame, outside: _Iteration | None, trip_count: int, missing: int) -> None:
        self.frame = frame
        self.outside = outside
        self.trip_count = trip_count
        self.limit = frame.parallel_iterations
        self.iterations: list[_Iteration] = []
        self.opened = 0
        self.next_iteration_roots: list[Operation] = []
        self.constants: list[Operation] = []
        self.missing = missing


class _Lane:
    """Thread of a device: its queue of ready operations, and whether it works.

    Attributes:
      queue: the ready operations, a heap by time.
      is_busy: whether the thread works.
    """

    __slots__ = ("is_busy", "queue")

    def __init__(self) -> None:
        self.queue: list[tuple[float, int, Operation, _Iteration]] = []
        self.is_busy = False


class _Simulator:
    def __init__(
        self,
        ops: Sequence[Operation],
        of: Mapping[Operation, str],
        cluster: Cluster,
        costs: Costs,
        trips: Mapping[str, float],
    ) -> None:
        self._of = of
        self._cluster = cluster
        self._tree = tree = frames.derive(ops)
        inside = set(ops)
        models = {d.name: d for d in cluster.devices}
        self._seconds = {op: costs.seconds(op, models[of[op]]) for op in ops}
        self._ops = ops
        self._trip_counts = {f: round(trips.get(f.name, n)) for f, n in costs.trips_of(tree).items()}
        self._enters = {f: sum(e in inside for e in f.enters) for f in tree.frames}
        loop_merges = {e.merge for f in tree.frames for e in f.back_edges}
        self._wants: dict[Operation, int] = {}
        # (output or None, reader) for each edge; several edges from one tensor to one reader count once
        self._readers: dict[Operation, dict[tuple[Tensor | None, Operation], None]] = {op: {} for op in ops}
        for op in ops:
            edges = {(t, t.op) for t in op.inputs if t.op in inside}
            waits = {c for c in op.control_inputs if c in inside}
            for t, maker in edges:
                self._readers[maker][t, op] = None
            for c in waits:
                self._readers[c][None, op] = None
            self._wants[op] = (1 if op in loop_merges else len(edges)) + len(waits)
        self._ending = {op for op in ops if op.opdef.primitive == "Switch" and self._ends_loop(op)}
        self._now = 0.0
        self._count = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._lanes = {(name, large): _Lane() for name in models for large in (False, True)}
        self._link_free: dict[tuple[str, str], float] = {}
        self._entries: dict[tuple[Frame, _Iteration], _Entry] = {}
        self._timeline: list[Span] = []
        self._sent: dict[tuple[str, str], int] = {}

    def _ends_loop(self, switch: Operation) -> bool:
        frame = self._tree.of(switch)
        pred = switch.inputs[1]
        while pred.op.opdef.facts.forwards == 0 and pred.op.type != "LoopCond":
            pred = pred.op.inputs[0]
        if frame.loop_cond is not None:
            return pred.op.type == "LoopCond"
        return any(r.opdef.primitive == "Exit" for _, r in self._readers[switch])

    def run(self) -> Simulation:
        root = _Entry(self._tree.root, None, 1, 0)
        first = self._open(root)
        for op in self._ops:
            if not self._wants[op]:
                self._ready(op, first)
        while self._events or self._push_on():
            self._now, _, happen = heapq.heappop(self._events)
            happen()
        busy = {d.name: 0.0 for d in self._cluster.devices}
        for s in self._timeline:
            busy[s.device] += s.end - s.start
        return Simulation(self._now, tuple(sorted(self._timeline, key=lambda s: s.start)), busy, self._sent)

    # *** operations ***

    def _token(self, op: Operation, at: _Iteration) -> None:
        """Counts the arrival of a token at `op`."""
        left = at.waiting.get(op, self._wants[op]) - 1
        at.waiting[op] = left
        if not left:
            self._ready(op, at)

    def _ready(self, op: Operation, at: _Iteration) -> None:
        at.active += 1
        seconds = self._seconds[op]
        if not seconds:
            self._at(self._now, lambda: self._done(op, at))
            return
        lane = self._lanes[self._of[op], seconds > thresholds.LONG_OPERATION]
        self._count += 1
        heapq.heappush(lane.queue, (self._now, self._count, op, at))
        if not lane.is_busy:
            self._start(lane)

    def _start(self, lane: _Lane) -> None:
        _, _, op, at = heapq.heappop(lane.queue)
        lane.is_busy = True
        end = self._now + self._seconds[op]
        self._timeline.append(Span(self._of[op], op.name, self._now, end))

        def finished() -> None:
            lane.is_busy = False
            self._done(op, at)
            if lane.queue and not lane.is_busy:
                self._start(lane)

        self._at(end, finished)

    def _at(self, time: float, happen: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, happen))

    def _done(self, op: Operation, at: _Iteration) -> None:
        """Delivers or sends the tokens of `op`, which is done."""
        primitive = op.opdef.primitive
        entry = at.entry
        readers: Iterable[tuple[Tensor | None, Operation]] = self._readers[op]
        if op in self._ending:
            side = 0 if at.number >= entry.trip_count else 1
            readers = [(t, r) for t, r in readers if t is None or t.index == side]
        here = self._of[op]
        by_device: dict[str, list[tuple[Tensor | None, Operation]]] = {}
        for t, r in readers:
            by_device.setdefault(self._of[r], []).append((t, r))
        if primitive == "NextIteration" and entry.outside is not None:
            self._next_iteration(entry, [r for _, r in by_device.get(here, ())], at)
            self._left(at)
            return
        into = at
        if primitive == "Enter":
            into = self._entered(op, at)
        elif primitive == "Exit" and entry.outside is not None:
            into = entry.outside
        is_constant = primitive == "Enter" and bool(op.attrs["is_constant"])
        for device, edges in by_device.items():
            if device == here or is_free(op):
                self._deliver(edges, into, is_constant)
            else:
                self._send(edges, here, device, into, is_constant)
        if primitive == "Enter":
            self._left(into)
        self._left(at)

    def _send(
        self,
        edges: Sequence[tuple[Tensor | None, Operation]],
        here: str,
        device: str,
        into: _Iteration,
        is_constant: bool,
    ) -> None:
        """Puts the tokens of `edges` on the link from `here` to `device`: each tensor once."""
        tensors: dict[Tensor | None, list[tuple[Tensor | None, Operation]]] = {}
        for t, r in edges:
            tensors.setdefault(t, []).append((t, r))
        link = self._cluster.between(here, device)
        for t, some in tensors.items():
            begin = max(self._now, self._link_free.get((here, device), 0.0))
            over = begin + (0.0 if t is None else size(t)) / link.bandwidth
            self._link_free[here, device] = over
            self._sent[here, device] = self._sent.get((here, device), 0) + 1
            into.active += 1

            def arrived(some: Sequence[tuple[Tensor | None, Operation]] = some) -> None:
                self._deliver(some, into, is_constant)
                self._left(into)

            self._at(over + link.latency, arrived)

    def _deliver(self, edges: Iterable[tuple[Tensor | None, Operation]], into: _Iteration, is_constant: bool) -> None:
        if not is_constant:
            for _, r in edges:
                self._token(r, into)
            return
        readers = [r for _, r in edges]
        into.entry.constants += readers
        for each in list(into.entry.iterations):
            for r in readers:
                self._token(r, each)

    # *** frames ***

    def _entered(self, enter: Operation, outside: _Iteration) -> _Iteration:
        """First iteration of the frame of `enter`, kept open until a call of `_left`."""
        frame = self._tree.entered_by(enter)
        entry = self._entries.get((frame, outside))
        if entry is None:
            entry = self._entries[frame, outside] = _Entry(
                frame, outside, self._trip_counts[frame], self._enters[frame]
            )
            outside.active += 1
            self._open(entry)
        entry.missing -= 1
        first = entry.iterations[0]  # no iteration is freed while an Enter is missing
        first.active += 1
        return first

    def _open(self, entry: _Entry) -> _Iteration:
        new = _Iteration(entry, entry.opened)
        entry.opened += 1
        entry.iterations.append(new)
        for op in entry.constants:
            self._token(op, new)
        return new

    def _next_iteration(self, entry: _Entry, readers: Sequence[Operation], at: _Iteration) -> None:
        """Delivers tokens from the iteration `at` to the next one."""
        if entry.opened > at.number + 1:
            into = entry.iterations[at.number + 1 - entry.iterations[0].number]
            for r in readers:
                self._token(r, into)
        elif len(entry.iterations) < entry.limit:
            into = self._open(entry)
            for r in readers:
                self._token(r, into)
        else:
            entry.next_iteration_roots += readers

    def _left(self, at: _Iteration) -> None:
        """Counts an end in the iteration `at`, and frees the oldest iterations that are done."""
        at.active -= 1
        if not at.active:
            self._free(at.entry)

    def _free(self, entry: _Entry) -> None:
        while entry.iterations and not entry.iterations[0].active and entry.missing <= 0 and entry.outside is not None:
            entry.iterations.pop(0)
            if entry.next_iteration_roots:
                roots, entry.next_iteration_roots = entry.next_iteration_roots, []
                into = self._open(entry)
                for r in roots:
                    self._token(r, into)
            elif not entry.iterations:
                self._entries.pop((entry.frame, entry.outside), None)
                self._left(entry.outside)
                return

    def _push_on(self) -> bool:
        """Ends an iteration that waits for tokens that never arrive; returns whether there was one."""
        for entry in list(self._entries.values()):
            if entry.next_iteration_roots:
                entry.missing = 0
                entry.iterations[0].active = 0
                self._free(entry)
                if self._events:
                    return True
        return False


def _fill(cells: list[dict[str, float]], letter: str, start: float, end: float, width: float) -> None:
    """Adds to each cell the share of the time between `start` and `end` in it."""
    if not width:
        return
    for k in range(max(0, int(start / width)), min(len(cells) - 1, int(end / width)) + 1):
        part = min(end, (k + 1) * width) - max(start, k * width)
        if part > 0:
            cells[k][letter] = cells[k].get(letter, 0.0) + part


def _seconds(x: float) -> str:
    """Formats a time with a suitable unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if x * factor >= 1:
            return f"{x * factor:.3g} {unit}"
    return f"{x * 1e6:.3g} us"
