"""Blocking operations of a structured step that may run at the same time.

A Python function of the user may wait for another one of the same step. This works if the executor runs the step,
because it starts every ready operation. Compiled code runs one operation after the other, so it is used only for steps
in which edges order any two blocking operations. In a loop this includes operations of different iterations, unless
`parallel_iterations` is 1.

An `hr.Graph` orders its stateful operations itself (`ir.order`), from one iteration of a loop to the next too. A
stateless function in such a graph promises to depend on its arguments alone, so it waits for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.ir import walk
from headrace.ir.function import body, nested_operations
from headrace.ir.graph import FuncGraph

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.ir.graph import Operation


def concurrent(graphs: Iterable[Sequence[Operation]], is_ordered: bool) -> tuple[Operation, Operation] | None:
    """Returns two blocking operations that may run at the same time, or None.

    The two may be the same operation in two iterations.

    Args:
      graphs: the operations of the step, of each graph nested in them and of each function that they call.
      is_ordered: whether the graph of the step was created as one that orders its stateful operations.
    """
    for ops in graphs:
        graph = ops[0].graph if ops else None
        found = _unordered(ops, graph.is_ordered if isinstance(graph, FuncGraph) else is_ordered)
        if found is not None:
            return found
        for op in ops:
            if op.opdef.structured in ("While", "For"):
                again = _over_iterations(op)
                if again is not None:
                    return again, again
    return None


def _blocking_in(op: Operation, is_ordered: bool) -> Operation | None:
    """Returns the first blocking operation in a firing of `op`, which may be nested.

    In an ordered graph only stateful operations count.
    """
    if not op.opdef.structured:
        return op if _is_blocking(op, is_ordered) else None
    return next((each for each in nested_operations([op], calls=True) if _is_blocking(each, is_ordered)), None)


def _is_blocking(op: Operation, is_ordered: bool) -> bool:
    return op.opdef.facts.blocking and (not is_ordered or not op.opdef.is_pure)


def _unordered(ops: Sequence[Operation], is_ordered: bool) -> tuple[Operation, Operation] | None:
    """Returns two blocking operations that no path among `ops` joins, or None."""
    blocking = {op: b for op in ops if (b := _blocking_in(op, is_ordered)) is not None}
    if len(blocking) < 2:
        return None
    before: dict[Operation, int] = {}  # for each operation, as bits, the blocking operations before it
    found: list[Operation] = []
    for op in walk.in_order(ops):
        bits = 0
        for p in walk.predecessors(op):
            bits |= before.get(p, 0)
        if op in blocking:
            missing = ~bits & ((1 << len(found)) - 1)
            if missing:
                return blocking[found[missing.bit_length() - 1]], blocking[op]
            bits |= 1 << len(found)
            found.append(op)
        before[op] = bits
    return None


def _over_iterations(loop: Operation) -> Operation | None:
    """Returns a blocking operation that two iterations of `loop` may run at once, or None.

    The graphs of the loop order their own blocking operations. So it suffices that the last blocking operation of an
    iteration precedes the first one of the next iteration.
    """
    found = _blocking_in(loop, is_ordered=False)
    if found is None or loop.attrs.get("parallel_iterations") == 1:
        return None
    if loop.opdef.structured == "For":
        return None if body(loop, loop.attrs["body"]).is_ordered else found
    cond, repeated = body(loop, loop.attrs["cond"]), body(loop, loop.attrs["body"])
    if repeated.is_ordered:
        return None
    tests = _blocking_in_order(cond)
    works = _blocking_in_order(repeated)
    if not all(op in walk.reachable([cond.results[0].op]) for op in tests):
        return found
    if not works:  # no blocking operation starts before the predicate of the previous iteration is known
        return None
    begins = _params_behind(cond, tests[0] if tests else cond.results[0].op)
    if not tests:
        begins |= _params_behind(repeated, works[0])
    ends = {k for k, t in enumerate(repeated.results) if works[-1] in walk.reachable([t.op])}
    return None if begins & ends else found


def _blocking_in_order(graph: FuncGraph) -> list[Operation]:
    return [op for op in walk.in_order(graph.operations) if _blocking_in(op, is_ordered=False) is not None]


def _params_behind(graph: FuncGraph, op: Operation) -> set[int]:
    """Returns the positions of the parameters on which `op` depends."""
    behind = walk.reachable([op])
    return {k for k, p in enumerate(graph.params) if p.op in behind}
