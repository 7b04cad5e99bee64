"""Recvs held back: a device begins to wait for a value shortly before it has a use for it.

A Recv outside loops could start when the step does, and one in a loop when its iteration opens. Often the value is not
needed for long: the tensors of a model's last layer arrive while the first is being computed, and lie about. So a Recv
gets a control edge from an operation of its own device, its *gate*, that will be done by the time that the value is
needed. It must cost no time, by the estimates there are, and it must not, whatever the estimates are worth, make two
devices wait for each other.

**When a value is needed.** Take all operations that fire in one frame, on all devices; each edge between them leads
from an earlier to a later one, each cut edge from its Send to its Recv; a loop inside the frame counts as one
operation. With an estimate of how long each takes there is an *earliest* start for each (all before it start as early
as they can) and a *latest* one, with which all of the frame is still done as soon as possible. On the critical path
they are equal. What goes to the next iteration is wanted as early as possible, however much time the rest of the
iteration takes: the latest start of a NextIteration is its earliest. (So iterations go on overlapping as they did.)

**The gate** of a Recv r is an operation g of the same device and frame with

    latest start of g + cost of g <= latest start of r     and     latest start of g < latest start of r

of these the one whose latest end is the greatest, if it ends later than the value is there at the earliest (else the
edge would hold nothing back). Even if g starts as late as it may, r is not late: no critical path becomes longer.

**Why nobody waits for ever.** Along each edge the latest start stays or grows: what comes before must be done by the
time that what comes after has to start. Along an edge from a gate to its Recv it grows. So if there were a cycle of
edges, and some of them were such, the latest start would grow on the way round and be the same at the end: there is
none. This argument takes any number of gates at once, on all devices together, and it needs no good estimates: any
numbers that are not negative will do. That no cycle is among the operations of each frame is all that the argument in
`control_loops` asks. There a loop inside the frame counts as one operation, as here, because what comes out of it may
depend on all that goes in.

A gate fires exactly once an iteration, as any operation does, and a Recv does not ask whether it was dead. Only
operations that compute something serve as gates: no primitives (what comes out of an Exit or a NextIteration is in
another place than what goes in) and no constants (they are no nodes).

Source: the scheduling of Recvs by ALAP times in "TensorFlow: Large-Scale Machine Learning on Heterogeneous Distributed
Systems" (Abadi et al., 2015, section 5.2).
"""

from __future__ import annotations

import bisect
import dataclasses
from typing import TYPE_CHECKING, TypeAlias

from headrace.ir import walk
from headrace.ir.analysis import frames
from headrace.ir.graph import Operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.partition.site import Site

# What has a time in a frame: an operation that fires in it, or, by its name, a loop in it.
Item: TypeAlias = "Operation | str"


@dataclasses.dataclass(slots=True)
class Times:
    """The items of one frame, and when they can and must start. Seconds from the begin of the iteration.

    Attributes:
      before: for each item those that it waits for.
      cost: how long it takes.
      earliest, latest: its start.
      span: how long the frame takes.
    """

    before: dict[Item, list[Item]] = dataclasses.field(default_factory=dict)
    cost: dict[Item, float] = dataclasses.field(default_factory=dict)
    earliest: dict[Item, float] = dataclasses.field(default_factory=dict)
    latest: dict[Item, float] = dataclasses.field(default_factory=dict)
    span: float = 0.0


def hold_back(sites: Sequence[Site], costs: Mapping[Operation, float]) -> int:
    """Gives Recvs their gates.

    Args:
      sites: the parts, complete.
      costs: how long an operation of the whole graph takes, in seconds; 0 for those that are not there.

    Returns:
      How many Recvs have one now.
    """
    trees = [frames.derive(site.graph.operations) for site in sites]
    mine = {copy: max(0.0, costs.get(op, 0.0)) for site in sites for op, copy in site.ops.items()}
    times = _times_of_frames(trees, mine)
    return sum(
        _hold_back(frame.ops, times[frame.name], mine) for tree in trees for frame in tree.frames if frame.name in times
    )


def _hold_back(ops: Iterable[Operation], times: Times, mine: Mapping[Operation, float]) -> int:
    """Gives the Recvs among `ops`, those of one device and frame, their gates."""
    cost, latest = times.cost, times.latest
    gates = sorted((op for op in ops if mine.get(op) and _can_be_gate(op)), key=lambda op: latest[op] + cost[op])
    ends = [latest[op] + cost[op] for op in gates]
    held = 0
    for recv in ops:
        if recv.opdef.primitive != "Recv":
            continue
        i = bisect.bisect_right(ends, latest[recv]) - 1
        while i >= 0 and latest[gates[i]] >= latest[recv]:  # a cost that was lost in rounding
            i -= 1
        if i >= 0 and times.earliest[gates[i]] + cost[gates[i]] > times.earliest[recv]:
            recv.graph.add_control_input(recv, gates[i])
            held += 1
    return held


def _can_be_gate(op: Operation) -> bool:
    return not op.opdef.primitive and not op.opdef.structured and op.type != "Const"


# *** times ***


def _times_of_frames(trees: Sequence[frames.FrameTree], mine: Mapping[Operation, float]) -> dict[str, Times]:
    """The times of each frame, by its name; without frames of which it cannot be said what comes first."""
    sends = {
        op.attrs["tensor_name"]: op
        for tree in trees
        for f in tree.frames
        for op in f.ops
        if op.opdef.primitive == "Send"
    }
    found: dict[str, Times] = {}
    pieces = [(frame, tree) for tree in trees for frame in tree.frames]
    for frame, tree in sorted(pieces, key=lambda piece: piece[0].depth):
        times = found.setdefault(frame.name, Times())
        for op in frame.ops:
            before = [_item(p, frame, tree) for p in walk.forward_predecessors(op)]
            if op.opdef.primitive == "Recv":
                before.append(sends[op.attrs["tensor_name"]])
            times.before[op] = [p for p in before if p is not None]
            times.cost[op] = mine.get(op, 0.0)
        if frame.parent is not None:
            found[frame.parent.name].before.setdefault(frame.name, []).extend(frame.enters)
    out: dict[str, Times] = {}
    for name, times in reversed(found.items()):  # loops inside others first
        times.cost.update((loop, found[loop].span) for loop in times.before if isinstance(loop, str))
        if _reckon(times):
            out[name] = times
    return out


def _item(p: Operation, frame: frames.Frame, tree: frames.FrameTree) -> Item | None:
    """What stands in `frame` for `p`, from which an edge leads to an operation of it; None: it comes from outside."""
    at = tree.of(p)
    if at is frame:
        return p
    return at.name if at.parent is frame else None


def _reckon(times: Times) -> bool:
    """Fills in the starts; False if there is a cycle, and so nothing that comes first."""
    before, cost, earliest, latest = times.before, times.cost, times.earliest, times.latest
    after: dict[Item, list[Item]] = {x: [] for x in before}
    for x, all_before in before.items():
        for p in all_before:
            after[p].append(x)
    left = {x: len(all_before) for x, all_before in before.items()}
    order = [x for x, n in left.items() if not n]
    for x in order:  # which grows meanwhile
        earliest[x] = max((earliest[p] + cost[p] for p in before[x]), default=0.0)
        for y in after[x]:
            left[y] -= 1
            if not left[y]:
                order.append(y)
    times.span = max((earliest[x] + cost[x] for x in order), default=0.0)
    if len(order) < len(before):
        return False
    for x in reversed(order):
        latest[x] = min((latest[y] for y in after[x]), default=times.span) - cost[x]
        if isinstance(x, Operation) and x.opdef.primitive == "NextIteration":
            latest[x] = min(latest[x], earliest[x])
    return True
