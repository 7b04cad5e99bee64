"""Earliest finish: each group goes to the device where it would be done first.

The operations are taken in order of *upward rank*: how long the longest path from one to the end of the step is, work
and crossings counted. So what everything else waits for comes first. When the first large operation of a group is
reached, or the first that another group waits for, the group as a whole gets its device: the one where, given what the
devices are busy with and when the operands arrive, its work would be finished earliest. (The small ones that come
before it, a loop variable's Merge say, are taken to be done as soon as their operands are there.) In the end single
groups are moved to other devices where that makes the whole shorter. Source: HEFT (H. Topcuoglu, S. Hariri, M.-Y. Wu,
"Performance-effective and low-complexity task scheduling for heterogeneous computing", 2002).

**Loops.** A loop is not unrolled. Each operation in it is scheduled once, with the work of all its iterations; but it
has two times of readiness: when its *first* firing is done, and when its last is. Whoever takes its value in the same
iteration may begin after the first, and is done no earlier than one firing after the last. So a second stage of a loop
on another device begins one iteration after the first stage, and the two run side by side: the pipeline that they will
be. Within a recurrence (`Flow.circle`) it is otherwise: there an operation on another device waits, in each iteration,
for what is before it, so it is scheduled after the *work* of that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace.place.affinity import large_groups
from headrace.place.costs import is_free

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.place.cluster import DeviceModel
    from headrace.place.cost_graph import CostEdge, CostGraph
    from headrace.place.groups import Group, Groups

_TRIES: Final = 50_000  # operations scheduled, in all, for the sake of moving groups
_WORTH: Final = 0.99  # what a move has to make of the makespan


@dataclasses.dataclass(slots=True)
class _Slot:
    """When one operation works, in seconds: from `start` to `end` on its device; its first and last value are there at
    `first` and `last`."""

    start: float
    end: float
    first: float
    last: float


class Schedule:
    """Operations on devices over time.

    Attributes:
      makespan: when the last of what is scheduled is done.
    """

    def __init__(self, flow: CostGraph) -> None:
        self._flow = flow
        self._slots: dict[Operation, _Slot] = {}
        self._at: dict[Operation, str] = {}
        self._busy: dict[str, float] = {d.name: 0.0 for d in flow.cluster.devices}
        self.makespan = 0.0

    def ready(self, op: Operation, device: str) -> tuple[float, float]:
        """When `op` could begin on `device`, and when it could be done at the earliest, as to its operands."""
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
        """When the first token of `e` is there, and when `op` could be done with the last."""
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
        # how many of its firings belong to the first of the iterations that the two share
        times, n = flow.times[e.producer], flow.times[e.producer] / shared
        first = slot.first if n <= 1 else slot.first + (slot.last - slot.first) * (n - 1) / (times - 1)
        return first + once, slot.last + once

    def finish(self, group: Group, device: DeviceModel) -> float:
        """When `group` would be done on `device`."""
        begin = finish = 0.0
        work = 0.0
        for op in group.ops:
            work += self._flow.work(op, device)
            first, last = self.ready(op, device.name)
            begin, finish = max(begin, first), max(finish, last)
        return max(max(begin, self._busy[device.name]) + work, finish)

    def add(self, op: Operation, device: DeviceModel | None) -> None:
        """Schedules `op` on `device`; None: that is not known yet, and it is so small that it does not matter."""
        flow = self._flow
        name = device.name if device is not None else ""
        begin, finish = self.ready(op, name)
        work = flow.work(op, device) if device is not None else 0.0
        start = max(begin, self._busy[name]) if work else begin
        times = flow.times[op] or 1.0
        first = start + work / times
        last = max(start + work, finish + work / times)
        if work:
            self._busy[name] = start + work
        self._slots[op] = _Slot(start, start + work, first, last)
        self._at[op] = name
        self.makespan = max(self.makespan, last)


def assign(groups: Groups, flow: CostGraph) -> dict[Operation, str]:
    """A device for each operation, the same for those of one group: one of those that it may stand on."""
    placer = _Placer(groups, flow)
    best = placer.place(placer.names[:1], placer.large)
    if placer.free and len(placer.names) > 1:
        spread = [placer.place(placer.names, at) for at in (placer.large, placer.large | placer.awaited)]
        best = placer.improved(min(best, *spread, key=placer.makespan))
    of = {op: best[g] for g in groups for op in g.ops}
    _put_constants(of, groups, flow)
    return of


class _Placer:
    """Places groups, and says how good a placement is.

    Attributes:
      names: the devices, that one first where things go that may go anywhere.
      free: the groups that have a choice, the heaviest first.
      large, awaited: the operations at which groups can be placed: large ones, and those that other groups wait for.
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
        """A device for each group, of `names` if it may: chosen when one of the operations `at` is reached."""
        schedule = Schedule(self._flow)
        out = dict(self._fixed)
        for op in self._order:
            g = self._groups.of(op)
            if g not in out and op in at:
                # on the device that it would be done on first; of several equal ones on the first
                candidates = [d for d in names if d in g.devices] or [self._first(g)]
                out[g] = min(candidates, key=lambda d: schedule.finish(g, self._models[d]))
            schedule.add(op, self._models[out[g]] if g in out else None)
        return out

    def makespan(self, of: Mapping[Group, str]) -> float:
        """How long the step takes with the groups where `of` says."""
        schedule = Schedule(self._flow)
        for op in self._order:
            schedule.add(op, self._models[of[self._groups.of(op)]])
        return schedule.makespan

    def improved(self, of: Mapping[Group, str]) -> dict[Group, str]:
        """`of`, with single groups moved as long as that helps: the heaviest first, and within reason."""
        best = dict(of)
        least = self.makespan(best)
        tries = _TRIES // max(1, len(self._order))
        helped = True
        while helped:
            helped = False
            for g in self.free:
                for name in self.names:
                    if name == best[g] or name not in g.devices or tries <= 0:
                        continue
                    tries -= 1
                    makespan = self.makespan(best | {g: name})
                    if makespan < least * _WORTH:
                        best[g], least, helped = name, makespan, True
        return best


def _home(groups: Groups, flow: CostGraph, models: Mapping[str, DeviceModel]) -> str:
    """Where things go that may go anywhere: the device that most work has been pinned to; else the first."""
    work = dict.fromkeys(models, 0.0)
    for g in groups:
        if len(g.devices) == 1:
            (name,) = g.devices
            work[name] += sum(flow.work(op, models[name]) for op in g.ops)
    return max(work, key=lambda name: work[name])


def _put_constants(of: dict[Operation, str], groups: Groups, flow: CostGraph) -> None:
    """Puts constants, which cost nothing anywhere, beside the first of those that read them."""
    reader: dict[Operation, Operation] = {}
    for op in flow.ops:
        for t in op.inputs:
            reader.setdefault(t.op, op)
    for op in reversed(flow.ops):
        group = groups.of(op)
        if is_free(op) and len(group.ops) == 1 and op in reader and of[reader[op]] in group.devices:
            of[op] = of[reader[op]]


def _by_rank(flow: CostGraph) -> list[Operation]:
    """The operations, those first that the longest path to the end of the step begins with."""
    models = flow.cluster.devices
    rank: dict[Operation, float] = dict.fromkeys(flow.ops, 0.0)  # so far: of what comes after
    for op in reversed(flow.ops):
        rank[op] += sum(flow.work(op, d) for d in models) / len(models)
        for e in flow.into[op]:
            rank[e.producer] = max(rank[e.producer], rank[op] + flow.crossing(e) / 2)
    position = {op: i for i, op in enumerate(flow.ops)}
    return sorted(flow.ops, key=lambda op: (-rank[op], position[op]))
