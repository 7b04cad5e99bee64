"""Traversals of graphs: reachability, topological order, consumers. No function changes a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.ir.graph import Operation, Tensor


def predecessors(op: Operation) -> list[Operation]:
    """Returns the operations that `op` waits for: producers of its inputs, then control inputs."""
    return [t.op for t in op.inputs] + op.control_inputs


def is_back_edge(producer: Operation, consumer: Operation) -> bool:
    """Whether a data edge leads from one loop iteration to the next (NextIteration to Merge)."""
    return producer.opdef.primitive == "NextIteration" and consumer.opdef.primitive == "Merge"


def forward_predecessors(op: Operation) -> list[Operation]:
    """Returns the predecessors of `op` in its own iteration, without sources of back edges."""
    if op.opdef.primitive != "Merge":
        return predecessors(op)
    return [t.op for t in op.inputs if not is_back_edge(t.op, op)] + op.control_inputs


def reachable(roots: Iterable[Operation], stop: frozenset[Tensor] | set[Tensor] = frozenset()) -> set[Operation]:
    """Returns the operations on which `roots` depend, up to the tensors in `stop`."""
    seen: set[Operation] = set()
    todo = list(roots)
    while todo:
        op = todo.pop()
        if op in seen:
            continue
        seen.add(op)
        todo += [t.op for t in op.inputs if t not in stop]
        todo += op.control_inputs
    return seen


def uses(ops: Iterable[Operation]) -> dict[Tensor, list[tuple[Operation, int]]]:
    """Returns the (operation, input index) pairs that read each tensor."""
    out: dict[Tensor, list[tuple[Operation, int]]] = {}
    for op in ops:
        for i, t in enumerate(op.inputs):
            out.setdefault(t, []).append((op, i))
    return out


def ascends(ops: Iterable[Operation]) -> bool:
    """Whether each of `ops` was made after all of its predecessors."""
    for op in ops:
        at = op.id
        for t in op.inputs:
            if t.op.id >= at:
                return False
        for c in op.control_inputs:
            if c.id >= at:
                return False
    return True


def toposort(ops: Sequence[Operation]) -> list[Operation]:
    """Returns `ops` in topological order, without regard to the back edges of loops.

    The order is stable where the edges allow it. Edges from operations outside of `ops` do not count.

    Raises:
      GraphError: there is a cycle that is not a loop; the text names its operations.
    """
    waiting: dict[Operation, int] = {}
    users: dict[Operation, list[Operation]] = {op: [] for op in ops}
    for op in ops:
        n = 0
        for p in forward_predecessors(op):
            known = users.get(p)
            if known is not None:
                known.append(op)
                n += 1
        waiting[op] = n
    order: list[Operation] = []
    ready = [op for op in reversed(ops) if not waiting[op]]
    while ready:
        op = ready.pop()
        order.append(op)
        for u in reversed(users[op]):
            waiting[u] -= 1
            if not waiting[u]:
                ready.append(u)
    if len(order) < len(ops):
        stuck = [op for op in ops if waiting[op]]
        raise GraphError(
            f"{len(stuck)} nodes in a cycle that is no loop (a cycle is legal only through NextIteration and Merge): "
            + ", ".join(f"'{op.name}' ({op.type})" for op in _one_cycle(stuck))
        )
    return order


def in_order(ops: Iterable[Operation]) -> list[Operation]:
    """Returns `ops` of one graph in topological order, as close to creation order as possible."""
    return toposort(sorted(ops, key=lambda op: op.id))


def _one_cycle(stuck: Sequence[Operation]) -> list[Operation]:
    """Returns the operations of one cycle among `stuck`."""
    left = set(stuck)
    op = stuck[0]
    path: list[Operation] = []
    at: dict[Operation, int] = {}
    while op not in at:
        at[op] = len(path)
        path.append(op)
        op = next(p for p in forward_predecessors(op) if p in left)
    return path[at[op] :]


def constant_behind(op: Operation) -> Operation | None:
    """Returns the constant that `op` is, or that it makes a loop constant; otherwise None.

    Neither the constant nor the constant Enters between it and `op` have control inputs.
    """
    while op.opdef.primitive == "Enter" and op.attrs["is_constant"] and not op.control_inputs:
        op = op.inputs[0].op
    return op if op.type == "Const" and not op.control_inputs else None
