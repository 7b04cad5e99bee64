"""Delayed Recvs: a device starts to wait for a value shortly before its use.

**The problem.** A Recv outside loops could start when the step does, and one in a loop when its iteration opens. Often
the value is not needed for a long time: the tensors of a model's last layer arrive while the first layer is being
computed, and take memory. So a Recv gets a control edge from an operation of its own device, its *gate*, which will be
done by the time the value is needed. The gate must cost no time, according to the estimates, and must never make two
devices wait for each other, even if the estimates are wrong.

**When a value is needed.** Take all operations that fire in one frame, on all devices. Each edge between them leads
from an earlier to a later operation, each cut edge from its Send to its Recv; a loop inside the frame counts as one
operation. With an estimate of each duration, every operation has an *earliest* start (all operations before it start as
early as possible) and a *latest* start, with which the whole frame still ends as early as possible. On the critical
path the two are equal. A value for the next iteration is needed as early as possible, even if the rest of the iteration
takes longer: the latest start of a NextIteration is its earliest. (So iterations overlap as they did before.)

**The gate** of a Recv r is an operation g of the same device and frame with

    latest start of g + cost of g <= latest start of r     and     latest start of g < latest start of r

Of these it is the one with the latest end, counted from its latest start. It is used only if its earliest end is after
the earliest arrival of the value; else the edge would delay nothing. Even if g starts at its latest start, r is not
late: no critical path becomes longer.

**Why there is no deadlock.** Along each edge the latest start grows or stays equal: an operation must be done when the
operation after it has to start. Along an edge from a gate to its Recv it grows. So a cycle of edges that contains a
gate's edge would increase the latest start on its way and reach the initial value again, which is impossible. The
argument holds for any number of gates at once, on all devices together. It needs no good estimates: any numbers that
are not negative will do. The argument in `control_loops` needs only that the operations of each frame have no cycle.
There too, a loop inside the frame counts as one operation, because its outputs may depend on all its inputs.

A gate fires exactly once in an iteration, as any operation does, and a Recv ignores the deadness of its gate. Only
operations that compute serve as gates: primitives do not (the output of an Exit or a NextIteration is in another frame
or iteration than its input), nor do constants (they are not nodes).

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
from headrace.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.partition.site import Site

# Item with a time in a frame: an operation that fires in it, or, by its name, a loop in it.
Item: TypeAlias = "Operation | str"


@record(slots=True)
class Times:
    """Items of one frame, with their earliest and latest starts in seconds of the iteration.

    Attributes:
      before: for each item its predecessors.
      cost: duration of each item.
      earliest: earliest start of each item.
      latest: latest start of each item.
      span: duration of the frame.
    """

    before: dict[Item, list[Item]] = dataclasses.field(default_factory=dict)
    cost: dict[Item, float] = dataclasses.field(default_factory=dict)
    earliest: dict[Item, float] = dataclasses.field(default_factory=dict)
    latest: dict[Item, float] = dataclasses.field(default_factory=dict)
    span: float = 0.0


def hold_back(sites: Sequence[Site], costs: Mapping[Operation, float]) -> int:
    """Adds gates to Recvs.

    Args:
      sites: the parts, complete.
      costs: seconds of each operation of the whole graph; 0 for missing ones.

    Returns:
      The number of Recvs with a gate.
    """
    trees = [frames.derive(site.graph.operations) for site in sites]
    mine = {copy: max(0.0, costs.get(op, 0.0)) for site in sites for op, copy in site.ops.items()}
    times = _times_of_frames(trees, mine)
    return sum(
        _hold_back(frame.ops, times[frame.name], mine) for tree in trees for frame in tree.frames if frame.name in times
    )


def _hold_back(ops: Iterable[Operation], times: Times, mine: Mapping[Operation, float]) -> int:
    """Adds gates to the Recvs among `ops`, the operations of one device in one frame."""
    cost, latest = times.cost, times.latest
    gates = sorted((op for op in ops if mine.get(op) and _can_be_gate(op)), key=lambda op: latest[op] + cost[op])
    ends = [latest[op] + cost[op] for op in gates]
    delayed = 0
    for recv in ops:
        if recv.opdef.primitive != "Recv":
            continue
        i = bisect.bisect_right(ends, latest[recv]) - 1
        while i >= 0 and latest[gates[i]] >= latest[recv]:  # its cost was lost by rounding
            i -= 1
        if i >= 0 and times.earliest[gates[i]] + cost[gates[i]] > times.earliest[recv]:
            recv.graph.add_control_input(recv, gates[i])
            delayed += 1
    return delayed


def _can_be_gate(op: Operation) -> bool:
    return not op.opdef.primitive and not op.opdef.structured and op.type != "Const"


# *** times ***


def _times_of_frames(trees: Sequence[frames.FrameTree], mine: Mapping[Operation, float]) -> dict[str, Times]:
    """Returns the times of each frame, by its name, except for frames with a cycle."""
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
    for name, times in reversed(found.items()):  # inner loops first
        times.cost.update((loop, found[loop].span) for loop in times.before if isinstance(loop, str))
        if _reckon(times):
            out[name] = times
    return out


def _item(p: Operation, frame: frames.Frame, tree: frames.FrameTree) -> Item | None:
    """Item of `frame` that stands for the predecessor `p` of an operation in it.

    It is None if `p` is outside of the frame.
    """
    at = tree.of(p)
    if at is frame:
        return p
    return at.name if at.parent is frame else None


def _reckon(times: Times) -> bool:
    """Computes the starts; returns False if there is a cycle."""
    before, cost, earliest, latest = times.before, times.cost, times.earliest, times.latest
    after: dict[Item, list[Item]] = {x: [] for x in before}
    for x, all_before in before.items():
        for p in all_before:
            after[p].append(x)
    left = {x: len(all_before) for x, all_before in before.items()}
    order = [x for x, n in left.items() if not n]
    for x in order:  # the list grows during the loop
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
