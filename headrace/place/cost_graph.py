"""Graph of the placer: the work of each operation and each edge's size.

All counts are over the whole step. An operation in a loop works once in each expected iteration, and an edge in the
loop costs a crossing in each. In this view a loop has no back edges. In their place each Exit has an edge from the last
iteration of its variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.ir import walk
from headrace.place.cluster import from_host
from headrace.place.costs import is_free, size

if TYPE_CHECKING:
    from headrace.ir.analysis.frames import FrameTree
    from headrace.ir.graph import Operation, Tensor
    from headrace.place.cluster import Cluster, DeviceModel
    from headrace.place.costs import Costs


class CostEdge(NamedTuple):
    """An input of an operation: `tensor` of `producer`; for None, only its end."""

    producer: Operation
    tensor: Tensor | None


class CostGraph:
    """Work and edges of a step.

    Args:
      ops: primitive operations.
      tree: the frames of `ops`.
      cluster: the devices and links.
      costs: measured and estimated costs.
      bodies: operations of functions that are called in frames of their own. Each counts as one firing, without edges.

    Attributes:
      tree: the frames of `ops`.
      cluster: the devices and links.
      costs: measured and estimated costs.
      ops: the operations in topological order of `into`.
      times: number of firings of each operation.
      into: for each operation the incoming edges that cost time if they are cut; an Exit also waits for the
        NextIteration of its variable.
      back_edges: (NextIteration, Merge) of each back edge.
      circle: for each operation of a recurrence (one that waits for itself through back edges) the number of the
        recurrence.
    """

    def __init__(
        self,
        ops: Sequence[Operation],
        tree: FrameTree,
        cluster: Cluster,
        costs: Costs,
        bodies: Iterable[Operation] = (),
    ) -> None:
        self.tree = tree
        self.cluster = cluster
        self.costs = costs
        alike: dict[tuple[object, ...], dict[Operation, float]] = {}  # devices of equal type and speed share a table
        self._seconds = {
            d.name: alike.setdefault((d.type, d.flops, d.bandwidth, d.overhead), {}) for d in cluster.devices
        }
        self._far = from_host(cluster)
        self._sizes: dict[Tensor, float] = {}
        self._passes = costs.trips_of(tree)
        for frame in tree.frames[1:]:  # parents first
            assert frame.parent is not None, "only the root has none"
            self._passes[frame] *= self._passes[frame.parent]
        self.times = {op: self._passes[tree.of(op)] for op in ops}
        self.back_edges = [(e.next_iteration, e.merge) for f in tree.frames for e in f.back_edges]
        inside = set(ops)
        # a device request of a constant is meant for its readers too
        free = {op for op in ops if is_free(op) and not op.device}
        self.into: dict[Operation, list[CostEdge]] = {}
        for op in ops:
            edges = dict.fromkeys(CostEdge(t.op, t) for t in op.inputs if not walk.is_back_edge(t.op, op))
            data = {e.producer for e in edges}
            edges.update(dict.fromkeys(CostEdge(c, None) for c in op.control_inputs if c not in data))
            self.into[op] = [e for e in edges if e.producer in inside and e.producer not in free]
        self.ops = self._sorted(ops, self._ends(ops))
        for op in bodies:
            self.into[op], self.times[op] = [], 1.0
        self.circle = self._circles()

    def firing(self, op: Operation, device: DeviceModel) -> float:
        """Seconds of one firing of `op` on `device`."""
        known = self._seconds[device.name]
        seconds = known.get(op)
        if seconds is None:
            seconds = self.costs.seconds(op, device)
            if op.opdef.facts.graph_end and device.name in self._far:  # fed and fetched values are on the host
                seconds += sum(self._far[device.name].seconds(self._size(t)) for t in (*op.inputs, *op.outputs))
            known[op] = seconds
        return seconds

    def work(self, op: Operation, device: DeviceModel) -> float:
        """Seconds that `op` works on `device` in the whole step."""
        return self.firing(op, device) * self.times[op]

    def sent(self, op: Operation) -> float:
        """Number of tokens of `op` that would cross; an Exit sends one for each entry."""
        frame = self.tree.of(op)
        if op.opdef.primitive == "Exit" and frame.parent is not None:
            return self._passes[frame.parent]
        return self.times[op]

    def crossing(self, edge: CostEdge, source: str = "", target: str = "") -> float:
        """Seconds that `edge` takes in the step if it is cut."""
        return self.once(edge, source, target) * self.sent(edge.producer)

    def once(self, edge: CostEdge, source: str = "", target: str = "") -> float:
        """Seconds that one token takes along `edge`."""
        return self.cluster.between(source, target).seconds(self._size(edge.tensor))

    def _size(self, t: Tensor | None) -> float:
        if t is None:
            return 0.0
        known = self._sizes.get(t)
        if known is None:
            known = self._sizes[t] = size(t)
        return known

    def shared(self, producer: Operation, consumer: Operation) -> float:
        """Number of iterations shared by producer and consumer that may overlap; else 1."""
        a, b = self.tree.outputs_of(producer), self.tree.of(consumer)
        if consumer.opdef.primitive == "Exit" and b.parent is not None:
            b = b.parent  # it waits for all iterations of its own loop
        while a is not b:
            if a.depth >= b.depth and a.parent is not None:
                a = a.parent
            elif b.parent is not None:
                b = b.parent
        if a.parallel_iterations == 1:  # the iterations do not overlap
            return 1.0
        return max(1.0, self._passes[a])

    def _ends(self, ops: Iterable[Operation]) -> dict[Operation, CostEdge]:
        """Edge from the NextIteration of its variable, for each Exit of a loop variable."""
        last = {merge: last for last, merge in self.back_edges}
        out = {}
        for op in ops:
            if op.opdef.primitive == "Exit" and op.inputs[0].op.inputs:
                merge = op.inputs[0].op.inputs[0].op
                if merge in last:
                    out[op] = CostEdge(last[merge], None)
        return out

    def _sorted(self, ops: Sequence[Operation], ends: Mapping[Operation, CostEdge]) -> list[Operation]:
        """Sorts `ops` topologically, with the edges `ends` added unless they close a cycle."""
        edges = {op: [*self.into[op], ends[op]] if op in ends else self.into[op] for op in ops}
        missing = {op: len(edges[op]) for op in ops}
        after: dict[Operation, list[Operation]] = {op: [] for op in ops}
        for op in ops:
            for e in edges[op]:
                after[e.producer].append(op)
        order = [op for op in ops if not missing[op]]
        for op in order:
            for reader in after[op]:
                missing[reader] -= 1
                if not missing[reader]:
                    order.append(reader)
        if len(order) < len(ops):  # the loop reads its own result; without `ends` there is no cycle
            return self._sorted(ops, {})
        self.into.update(edges)
        return order

    def _circles(self) -> dict[Operation, int]:
        """Numbers the recurrences: strongly connected components with several operations, by Tarjan's algorithm."""
        after: dict[Operation, list[Operation]] = {op: [e.producer for e in self.into[op]] for op in self.ops}
        for last, merge in self.back_edges:
            after[merge].append(last)
        index: dict[Operation, int] = {}
        low: dict[Operation, int] = {}
        stack: list[Operation] = []
        on: set[Operation] = set()
        out: dict[Operation, int] = {}
        found = 0
        for root in self.ops:
            if root in index:
                continue
            todo: list[tuple[Operation, Iterator[Operation]]] = [(root, iter(after[root]))]
            index[root] = low[root] = len(index)
            stack.append(root)
            on.add(root)
            while todo:
                op, rest = todo[-1]
                following = next(rest, None)
                if following is not None:
                    if following not in index:
                        index[following] = low[following] = len(index)
                        stack.append(following)
                        on.add(following)
                        todo.append((following, iter(after[following])))
                    elif following in on:
                        low[op] = min(low[op], index[following])
                    continue
                todo.pop()
                if todo:
                    low[todo[-1][0]] = min(low[todo[-1][0]], low[op])
                if low[op] == index[op]:
                    members = []
                    while True:
                        member = stack.pop()
                        on.discard(member)
                        members.append(member)
                        if member is op:
                            break
                    if len(members) > 1:
                        out.update(dict.fromkeys(members, found))
                        found += 1
        return out
