"""Removes writes to elements of a list that the loop does not read again.

    While(k, ds, ...)   body: d = ds[i] ...  ds' = set(ds, i, zeros)        i = last - k

becomes

    While(k, ds, ...)   body: d = ds[i] ...                                 ds is a loop constant

The gradient of a loop that writes its results to a list reads the gradient of each element, and replaces it by zeros,
because the element that was there before does not reach the results. Each iteration reads another element, so it makes
no difference unless the list is read after the loop. A list that does not change has rows that are known before the
loop (`loop_row_reads`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.optimize.base import Pass, PassContext
from headrace.optimize.loop_editor import LoopEditor, loops_of
from headrace.optimize.loop_row_reads import index_of

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class DropWrites(Pass):
    """Pass that removes writes to elements of lists that are not read again."""

    name = "loop_writes"

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph, context, having=_is_write, replaces_results=True):
            loop = LoopEditor(op, context)
            writes = [(k, t.op) for k, t in enumerate(loop.body.results) if _is_write(t.op)]
            unread = [(k, write) for k, write in writes if _is_not_read(loop, k, write)]
            for k, write in unread:
                loop.set_next(k, loop.body.params[k])
                context.fired("loop_writes", op, f"no operation reads what '{write.name}' writes")
            if unread:
                loop.sweep()
                changed = True
        return changed


def _is_write(op: Operation) -> bool:
    return op.opdef.list_kind in ("set", "unset")


def _is_not_read(loop: LoopEditor, k: int, write: Operation) -> bool:
    """Whether only the iteration that writes an element of variable `k` reads it."""
    p, r = loop.body.params[k], loop.body.results[k]
    if write.inputs[0] is not p or r is not write.outputs[0] or not loop.is_movable(write):
        return False
    if loop.inner.uses.get(r) or loop.body.results.count(r) != 1 or p in loop.body.results:
        return False
    if loop.outer.is_used(loop.op.outputs[k]) or loop.cond.params[k] in loop.cond.results:
        return False
    if any(loop.cond.params[k] in op.inputs for op in loop.cond.operations):
        return False
    reads = [op for op, _ in loop.inner.uses[p] if op is not write]
    is_read = all(op.opdef.list_kind == "get" and op.inputs[0] is p for op in reads)
    return bool(reads) and is_read and all(_are_equal(loop, op.inputs[1], write.inputs[1]) for op in reads)


def _are_equal(loop: LoopEditor, a: Tensor, b: Tensor) -> bool:
    """Whether two indices are equal in each iteration, and those of different iterations differ."""
    x, y = index_of(loop, a), index_of(loop, b)
    return x is not None and y is not None and x.is_upward is y.is_upward and x.bound is y.bound
