"""Loop fission: computes functions of the rows that a loop reads before the loop.

All rows are computed at once.

    inputs = TensorListFromTensor(xs)
    While(i, h)   body: tanh(inputs[i] @ w + h @ u + b)

becomes

    rows = TensorListFromTensor(xs @ w + b)
    While(i, h)   body: tanh(rows[i] + h @ u)

An operation that does not depend on values carried from one iteration to the next need not run in the loop. One matrix
product of all rows takes a fraction of the time of one product for each row, and the same holds for other operations.
`loop_row_reads` finds the operations that can be moved. Sums are regrouped first (`loop_reassociation`), so the last
bits of floats may differ.

Only as many rows are computed as the loop may read. If a loop may end before its counter does, nothing is moved. No
value is moved that would need more than `Options.stack_bytes` for all iterations. Rows that are computed from a list of
another loop are as many as its elements, in any number; of those, only small values are worth moving
(`RowReads.pays`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.ir import walk
from headrace.ir.function import base_name
from headrace.ir.notes import ResidualPop
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.loop_editor import LoopEditor, loops_of, names
from headrace.optimize.loop_row_reads import Popped, RowReads, as_vector, element_bytes

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class FissionForward(Pass):
    """Pass that computes rows for all iterations before the loop."""

    name = "loop_fission"
    is_exact = False
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph, context):
            changed |= _move(op, context)
        return changed


def _move(op: Operation, context: PassContext) -> bool:
    loop = LoopEditor(op, context)
    rows = RowReads(loop)
    ends: list[Tensor] = []
    needed = walk.reachable(loop.inner.roots())
    for each in walk.in_order(needed):
        for t in each.outputs:
            if t not in rows or each.opdef.list_kind in ("get", "pop") or each.type == "_Arg":
                continue
            readers = [r for r, _ in loop.inner.uses.get(t, ()) if r in needed]
            is_end = t in loop.body.results or any(not all(x in rows for x in r.outputs) for r in readers)
            if is_end and rows.pays(t):
                ends.append(t)
    if not ends:
        if rows.why and any(each.opdef.list_kind == "get" for each in needed):
            context.refused("loop_fission", op, rows.why)
        return False
    n = loop.trip_count.most if loop.trip_count is not None else None
    if n is not None and n < 2:
        context.refused("loop_fission", op, "its trip count is at most 1")
        return False
    moved = []
    for t in ends:
        size = element_bytes(t)
        if size is not None and n is not None and n * size > context.options.stack_bytes:
            limit = context.options.stack_bytes
            context.refused("loop_fission", t.op, f"{n} rows of {size} bytes exceed the limit of {limit} bytes")
            continue
        assert t.shape is not None  # a row has a known rank
        # The first dimension is mostly the batch. If it is unknown here, it is unknown in the rows that the loop reads.
        if n is None and not isinstance(rows[t], Popped) and None in t.shape[1:]:
            context.refused("loop_fission", t.op, "the number and the size of its rows are unknown")
            continue
        _read_instead(loop, rows, t)
        moved.append(t.op)
    if not moved:
        return False
    loop.sweep()
    context.fired("loop_fission", op, f"computed for all iterations before the loop: {names(moved)}")
    return True


def _read_instead(loop: LoopEditor, rows: RowReads, t: Tensor) -> None:
    """Makes the loop read the row `t` instead of computing it."""
    at = rows[t]
    short = base_name(t)
    source = rows.source(t)
    items = loop.before(t.op).TensorListFromTensor(source, as_vector(t.shape), name=f"{loop.op.name}/{short}_rows")
    b = loop.within(t.op)
    if isinstance(at, Popped):
        param, _ = loop.variable(items, f"{short}_rows")
        args, attrs = (param, as_vector(t.shape)), {"element_dtype": t.dtype.base}
        rest, item = b.make("TensorListPopBack", args, attrs, t.op.name, [ResidualPop()])
        loop.set_next(len(loop.body.params) - 1, rest)
    else:
        param = loop.constant(items, f"{short}_rows")
        item = b.TensorListGetItem(param, at.tensor, as_vector(t.shape), element_dtype=t.dtype.base, name=t.op.name)
    item.copy_static(t)
    loop.inner.replace(t, item)
    rows.note(item, t)
