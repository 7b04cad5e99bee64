"""What had better stand together: where a cut would cost more than it could gain.

**The plumbing of loops.** A loop variable's Merge, Switch and Exit do no work, they hand a value on. They stand with
the producer of the variable's next value, so that what goes round stays where it is made; the LoopCond stands with the
predicate. A tensor list is as large as what was pushed into it, and an accumulator that is pushed to in each iteration
had better not cross in each: lists, pushes and pops stay together, and with them what is pushed.

**Contraction.** Whoever puts two operations on two devices hopes to gain time: at most what the smaller of the two
takes, for so long both can work at once. Where that is less than an empty token takes there and back, nothing is to be
gained, and they are joined, along the edges with the largest tokens first. The largest *single* operation of a group
counts, not their sum: a thousand additions are no reason to cut anything, for each of them would wait longer for its
operands than it works. So what is left to be distributed is groups with some large operation in each, with all the
small ones around it; a graph of small operations is one group.

**Recurrences.** Operations that wait for themselves by way of the next iteration cannot overlap with their own later
iterations. Cutting such a circle gains only where in one iteration two of its paths can run side by side; if that is
less than its crossings cost, it is joined. Different circles of one loop, one feeding the other, do overlap, as a
pipeline: those stay apart.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from headrace import dtypes

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.place.cost_graph import CostEdge, CostGraph
    from headrace.place.groups import Group, Groups

_PUSHED: Final = {"TensorListPushBack": 1, "TensorListSetItem": 2}  # which input goes into the list


def join_plumbing(groups: Groups, flow: CostGraph) -> None:
    """Joins the plumbing of loops with what makes the values, and lists with what is pushed into them."""
    for op in flow.ops:
        for t in op.inputs:
            if t.dtype is dtypes.variant:
                groups.join(op, t.op)
        pushed = _PUSHED.get(op.type)
        if pushed is not None:
            groups.join(op, op.inputs[pushed].op)
    merges = {merge for _, merge in flow.rounds}
    for last, merge in flow.rounds:
        groups.join(last, last.inputs[0].op)
        groups.join(last, merge)
    for op in flow.ops:
        is_gate = op.opdef.primitive == "Switch" and op.inputs[0].op in merges
        if is_gate or op.opdef.primitive == "Exit" or op.type == "LoopCond":
            groups.join(op, op.inputs[0].op)


def contract(groups: Groups, flow: CostGraph) -> None:
    """Joins the groups without a large operation to those that their largest tokens come from or go to."""
    large = large_groups(groups, flow)
    found = True
    while found:
        found = False
        weights: dict[tuple[Operation, Operation], float] = {}
        pairs: dict[tuple[Group, Group], tuple[Operation, Operation]] = {}
        crossed: set[tuple[CostEdge, Group]] = set()
        for op in flow.ops:
            b = groups.of(op)
            for e in flow.into[op]:
                a = groups.of(e.producer)
                if a is b or (a in large and b in large) or (e, b) in crossed:
                    continue
                crossed.add((e, b))
                pair = pairs.get((a, b)) or pairs.get((b, a)) or pairs.setdefault((a, b), (e.producer, op))
                weights[pair] = weights.get(pair, 0.0) + flow.crossing(e)
        for p, q in sorted(weights, key=lambda pair: -weights[pair]):
            a, b = groups.of(p), groups.of(q)
            if a is b or not _may_join(a, b, large) or not groups.join(p, q):
                continue
            found = True
            if a in large or b in large:
                large.add(groups.of(p))


def _may_join(a: Group, b: Group, large: Collection[Group]) -> bool:
    """Whether two groups, of which at least one is small, may become one: the small one must not bind the large one."""
    if a in large and b in large:
        return False
    if a in large:
        return a.devices <= b.devices
    return b not in large or b.devices <= a.devices


def large_groups(groups: Groups, flow: CostGraph) -> set[Group]:
    """The groups with an operation of which one firing takes longer than an empty token takes there and back."""
    least = 2 * flow.cluster.link.latency
    fastest = [max(flow.cluster.devices, key=lambda d: d.flops), max(flow.cluster.devices, key=lambda d: d.bandwidth)]
    return {groups.of(op) for op in flow.ops if min(flow.firing(op, d) for d in fastest) > least}


def join_circles(groups: Groups, flow: CostGraph) -> None:
    """Joins the groups of each recurrence that does not gain by being cut."""
    circles: dict[int, list[Operation]] = {}
    for op in flow.ops:
        if op in flow.circle:
            circles.setdefault(flow.circle[op], []).append(op)
    for members in circles.values():
        if len({groups.of(op) for op in members}) > 1 and not _gains(members, flow):
            _join_all(groups, members)


def _gains(members: Sequence[Operation], flow: CostGraph) -> bool:
    """Whether a recurrence could be faster on several devices: by its longest path, and two crossings an iteration."""
    device = flow.cluster.devices[0]
    inside = set(members)
    longest: dict[Operation, float] = {}
    total = 0.0
    for op in members:  # in topological order
        work = flow.work(op, device)
        total += work
        longest[op] = work + max((longest[e.producer] for e in flow.into[op] if e.producer in inside), default=0.0)
    crossings = 2 * flow.cluster.link.latency * max(flow.times[op] for op in members)
    return total - max(longest.values()) > crossings


def _join_all(groups: Groups, members: Sequence[Operation]) -> None:
    devices = groups.of(members[0]).devices
    for op in members:
        devices &= groups.of(op).devices
    if devices:
        for op in members[1:]:
            groups.join(members[0], op)
