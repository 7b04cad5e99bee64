"""Earliest finish: each group goes to the device where it would be done first.

**The algorithm.** The operations are taken in order of *upward rank*: the length of the longest path from the operation
to the end of the step, including work and crossings. So operations on which everything else waits come first. A group
gets its device, as a whole, when the first of its large operations is reached, or the first one for which another group
waits. This is the device on which its work would be finished earliest, given the other work of the devices and the
arrival of the operands. (Small operations that come before, such as a loop variable's Merge, count as done when their
operands arrive.) In the end single groups are moved to other devices if that shortens the step. Source: HEFT (H.
Topcuoglu, S. Hariri, M.-Y. Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing",
2002).

**Loops.** A loop is not unrolled. Each operation in it is scheduled once, with the work of all its iterations, but its
output has two times: the end of its *first* firing, and the end of its last. A consumer in the same iteration may begin
after the first, and is done no earlier than one firing after the last. So the second stage of a loop, on another
device, begins one iteration after the first stage, and the two run in parallel, as a pipeline. Within a recurrence
(`CostGraph.circle`) the rule differs: there an operation on another device waits in each iteration for its predecessor,
so it is scheduled after all the *work* of the predecessor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace import thresholds
from headrace.place.affinity import large_groups
from headrace.place.cluster import processors
from headrace.place.costs import is_free
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.place.cluster import DeviceModel
    from headrace.place.cost_graph import CostEdge, CostGraph
    from headrace.place.groups import Group, Groups


@record(slots=True)
class _Slot:
    """Times of one operation, in seconds.

    Attributes:
      start: start of its work on its device.
      end: end of its work.
      first: time of its first value.
      last: time of its last value.
    """

    start: float
    end: float
    first: float
    last: float


class Schedule:
    """Operations on devices over time.

    Args:
      flow: the work and the edges of the step.

    Attributes:
      makespan: the end of the last operation scheduled so far, in seconds.
    """

    def __init__(self, flow: CostGraph) -> None:
        self._flow = flow
        self._slots: dict[Operation, _Slot] = {}
        self._at: dict[Operation, str] = {}
        self._processor = processors(flow.cluster)
        self._busy: dict[str, float] = {d.name: 0.0 for d in flow.cluster.devices}  # by processor
        self.makespan = 0.0

    def ready(self, op: Operation, device: str) -> tuple[float, float]:
        """Earliest start of `op` on `device`, and its earliest end, as its operands allow."""
        begin = finish = 0.0
        for e in self._flow.into[op]:
            slot = self._slots.get(e.producer)
            if slot is None:
                continue  # the group was begun in the middle
            at = self._at[e.producer]
            first, last = self._arrival(e, op, slot, at, device)
            begin = max(begin, first)
            finish = max(finish, last)
        return begin, finish

    def _arrival(self, e: CostEdge, op: Operation, slot: _Slot, at: str, device: str) -> tuple[float, float]:
        """Arrival of the first token of `e`, and earliest end of `op` after the last."""
        flow = self._flow
        shared = flow.shared(e.producer, op)
        is_cut = bool(at and device) and at != device
        once = flow.once(e, at, device) if is_cut else 0.0
        if shared <= 1.0:
            there = slot.last + once
            return there, there
        circle = flow.circle.get(op)
        if is_cut and circle is not None and circle == flow.circle.get(e.producer):
            there = slot.end + once * shared
            return there, there
        # number of the producer's firings that belong to the first of the shared iterations
        times, n = flow.times[e.producer], flow.times[e.producer] / shared
        first = slot.first if n <= 1 else slot.first + (slot.last - slot.first) * (n - 1) / (times - 1)
        return first + once, slot.last + once

    def finish(self, group: Group, device: DeviceModel) -> float:
        """Time at which `group` would be done on `device`."""
        begin = finish = 0.0
        work = 0.0
        for op in group.ops:
            work += self._flow.work(op, device)
            first, last = self.ready(op, device.name)
            begin, finish = max(begin, first), max(finish, last)
        return max(max(begin, self._busy[self._processor[device.name]]) + work, finish)

    def add(self, op: Operation, device: DeviceModel | None) -> None:
        """Schedules `op` on `device`; None: not known yet, for a small operation."""
        flow = self._flow
        name = device.name if device is not None else ""
        begin, finish = self.ready(op, name)
        work = flow.work(op, device) if device is not None else 0.0
        processor = self._processor.get(name, "")
        start = max(begin, self._busy[processor]) if work else begin
        times = flow.times[op] or 1.0
        first = start + work / times
        last = max(start + work, finish + work / times)
        if work:
            self._busy[processor] = start + work
        self._slots[op] = _Slot(start, start + work, first, last)
        self._at[op] = name
        self.makespan = max(self.makespan, last)


def assign(groups: Groups, flow: CostGraph) -> dict[Operation, str]:
    """Assigns a device to each operation, the same for all operations of a group."""
    placer = _Placer(groups, flow)
    best = placer.place(placer.names[:1], placer.large)
    if placer.free and len(placer.names) > 1:
        spread = [placer.place(placer.names, at) for at in (placer.large, placer.large | placer.awaited)]
        best = placer.improved(min(best, *spread, key=placer.makespan))
    of = {op: best[g] for g in groups for op in g.ops}
    _put_constants(of, groups, flow)
    return of


class _Placer:
    """Places groups and evaluates placements.

    Args:
      groups: the groups, with the devices on which each may run.
      flow: the work and the edges of the step.

    Attributes:
      names: the devices, the default one first.
      free: the groups with a choice of devices, the heaviest first.
      large: the large operations; a group can be placed when one of them is reached.
      awaited: the operations for which other groups wait; a group can be placed there too.
    """

    def __init__(self, groups: Groups, flow: CostGraph) -> None:
        self._groups = groups
        self._flow = flow
        self._models = {d.name: d for d in flow.cluster.devices}
        home = _home(groups, flow, self._models)
        self.names = [home, *(name for name in self._models if name != home)]
        self._fixed: dict[Group, str] = {}
        is_worth = large_groups(groups, flow)
        for g in groups:
            if len(g.devices) == 1 or g not in is_worth:
                self._fixed[g] = self._first(g)
        self._order = _by_rank(flow)
        work = {op: flow.work(op, self._models[home]) for op in flow.ops}
        heaviest = {g: max((work.get(op, 0.0) for op in g.ops), default=0.0) for g in groups}
        self.free = sorted((g for g in heaviest if g not in self._fixed), key=lambda g: -heaviest[g])
        self.large = {op for op in flow.ops if work[op] >= heaviest[groups.of(op)] / 2}
        self.awaited = {
            e.producer for op in flow.ops for e in flow.into[op] if groups.of(e.producer) is not groups.of(op)
        }

    def _first(self, group: Group) -> str:
        return next(name for name in self.names if name in group.devices)

    def place(self, names: Sequence[str], at: Collection[Operation]) -> dict[Group, str]:
        """Assigns a device to each group when one of its operations in `at` is reached.

        Args:
          names: the devices to prefer.
          at: operations at which groups are placed.
        """
        schedule = Schedule(self._flow)
        out = dict(self._fixed)
        for op in self._order:
            g = self._groups.of(op)
            if g not in out and op in at:
                # the device on which it would be done first; of several equal ones the first
                candidates = [d for d in names if d in g.devices] or [self._first(g)]
                out[g] = min(candidates, key=lambda d: schedule.finish(g, self._models[d]))
            schedule.add(op, self._models[out[g]] if g in out else None)
        return out

    def makespan(self, of: Mapping[Group, str]) -> float:
        """Seconds of the step with the placement `of`."""
        schedule = Schedule(self._flow)
        for op in self._order:
            schedule.add(op, self._models[of[self._groups.of(op)]])
        return schedule.makespan

    def improved(self, of: Mapping[Group, str]) -> dict[Group, str]:
        """Moves single groups, the heaviest first, while that helps and within a limit."""
        best = dict(of)
        least = self.makespan(best)
        tries = thresholds.PLACEMENT_TRIES // max(1, len(self._order))
        helped = True
        while helped:
            helped = False
            for g in self.free:
                for name in self.names:
                    if name == best[g] or name not in g.devices or tries <= 0:
                        continue
                    tries -= 1
                    makespan = self.makespan(best | {g: name})
                    if makespan < least * thresholds.PLACEMENT_GAIN:
                        best[g], least, helped = name, makespan, True
        return best


def _home(groups: Groups, flow: CostGraph, models: Mapping[str, DeviceModel]) -> str:
    """Default device: the one with the most work pinned to it; else the first."""
    work = dict.fromkeys(models, 0.0)
    for g in groups:
        if len(g.devices) == 1:
            (name,) = g.devices
            work[name] += sum(flow.work(op, models[name]) for op in g.ops)
    return max(work, key=lambda name: work[name])


def _put_constants(of: dict[Operation, str], groups: Groups, flow: CostGraph) -> None:
    """Places constants, which cost nothing, on the device of their first reader."""
    reader: dict[Operation, Operation] = {}
    for op in flow.ops:
        for t in op.inputs:
            reader.setdefault(t.op, op)
    for op in reversed(flow.ops):
        group = groups.of(op)
        if is_free(op) and len(group.ops) == 1 and op in reader and of[reader[op]] in group.devices:
            of[op] = of[reader[op]]


def _by_rank(flow: CostGraph) -> list[Operation]:
    """Operations by decreasing length of the longest path to the end of the step."""
    models = flow.cluster.devices
    rank: dict[Operation, float] = dict.fromkeys(flow.ops, 0.0)  # the rank of the operations after it, so far
    for op in reversed(flow.ops):
        rank[op] += sum(flow.work(op, d) for d in models) / len(models)
        for e in flow.into[op]:
            rank[e.producer] = max(rank[e.producer], rank[op] + flow.crossing(e) / 2)
    position = {op: i for i, op in enumerate(flow.ops)}
    return sorted(flow.ops, key=lambda op: (-rank[op], position[op]))
