"""Operations that are placed together, because a cut between them costs too much.

**Plumbing of loops.** A loop variable's Merge, Switch and Exit do no work, they pass a value on. They are placed with
the producer of the variable's next value, so that the value stays on the device where it is computed. The LoopCond is
placed with the predicate. A tensor list is as large as the elements pushed into it, so an accumulator should not cross
in each iteration: lists, pushes and pops are placed together, and with them the producers of the pushed values.

**Contraction.** Two operations on two devices can gain at most the time of the smaller one, since both can work at once
for no longer than that. If this is less than the round trip of an empty token, there is nothing to gain, and the two
are joined, along the edges with the largest tokens first. The size of a group is that of its largest *single*
operation, and not the sum: a thousand additions are no reason for a cut, because each of them would wait longer for its
operands than it works. The result is groups with some large operation each and the small ones around it; a graph of
small operations is one group.

**Recurrences.** Operations that wait for themselves through the next iteration cannot overlap with their own later
iterations. To cut such a cycle gains time only if two of its paths can run in parallel within one iteration. If this
gain is less than the cost of its crossings, the cycle is joined. Different cycles of one loop, of which one feeds the
other, do overlap, as a pipeline: they are not joined.

**Elements of lists.** Operations on lists run on the CPU. But in a step on the CPU and one device of another array
library, the elements of lists may be on the device (`partition.joined`). So in a cluster of two such devices elements
do not hold operations on the CPU: their producers are not placed with pushes, and they have no weight in the
contraction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from headrace import dtypes
from headrace.ir.kernel import CPU, has_namespace

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.place.cost_graph import CostEdge, CostGraph
    from headrace.place.groups import Group, Groups


def join_plumbing(groups: Groups, flow: CostGraph) -> None:
    """Joins the plumbing of loops, and lists with the producers of their elements."""
    moves = _moves_elements(flow)
    for op in flow.ops:
        for t in op.inputs:
            if t.dtype is dtypes.variant:
                groups.join(op, t.op)
        role = op.opdef.facts.list_role
        if role is not None and role.element_input is not None and not moves:
            groups.join(op, op.inputs[role.element_input].op)
    merges = {merge for _, merge in flow.back_edges}
    for last, merge in flow.back_edges:
        groups.join(last, last.inputs[0].op)
        groups.join(last, merge)
    for op in flow.ops:
        is_gate = op.opdef.primitive == "Switch" and op.inputs[0].op in merges
        if is_gate or op.opdef.primitive == "Exit" or op.type == "LoopCond":
            groups.join(op, op.inputs[0].op)


def contract(groups: Groups, flow: CostGraph) -> None:
    """Joins each group without a large operation to the neighbor with the largest tokens."""
    large, moves = large_groups(groups, flow), _moves_elements(flow)
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
                weights[pair] = weights.get(pair, 0.0) + (0.0 if moves and _is_element(e, op) else flow.crossing(e))
        for p, q in sorted(weights, key=lambda pair: -weights[pair]):
            a, b = groups.of(p), groups.of(q)
            if a is b or not _may_join(a, b, large) or not groups.join(p, q):
                continue
            found = True
            if a in large or b in large:
                large.add(groups.of(p))


def _moves_elements(flow: CostGraph) -> bool:
    """Whether elements of lists may be on another device than the operations on the lists."""
    types = sorted(d.type for d in flow.cluster.devices)
    return len(types) == 2 and CPU in types and any(map(has_namespace, types))


def _is_element(e: CostEdge, consumer: Operation) -> bool:
    """Whether an edge carries an element to or from a list."""
    return e.producer.opdef.list_kind is not None or consumer.opdef.list_kind is not None


def _may_join(a: Group, b: Group, large: Collection[Group]) -> bool:
    """Whether joining two groups leaves the large one of them all its devices."""
    if a in large and b in large:
        return False
    if a in large:
        return a.devices <= b.devices
    return b not in large or b.devices <= a.devices


def large_groups(groups: Groups, flow: CostGraph) -> set[Group]:
    """Groups with an operation that takes longer than the round trip of an empty token."""
    least = 2 * flow.cluster.link.latency
    fastest = [max(flow.cluster.devices, key=lambda d: d.flops), max(flow.cluster.devices, key=lambda d: d.bandwidth)]
    return {groups.of(op) for op in flow.ops if min(flow.firing(op, d) for d in fastest) > least}


def join_circles(groups: Groups, flow: CostGraph) -> None:
    """Joins the groups of each recurrence that gains nothing by a cut."""
    circles: dict[int, list[Operation]] = {}
    for op in flow.ops:
        if op in flow.circle:
            circles.setdefault(flow.circle[op], []).append(op)
    for members in circles.values():
        if len({groups.of(op) for op in members}) > 1 and not _gains(members, flow):
            _join_all(groups, members)


def _gains(members: Sequence[Operation], flow: CostGraph) -> bool:
    """Whether a recurrence could be faster on several devices.

    On several devices an iteration takes as long as its longest path and two crossings.
    """
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
