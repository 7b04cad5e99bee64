"""Merges loop variables that are always equal.

Two variables are always equal if their initial values are equal, and if equal operations on equal inputs compute their
next values. Two lists to which a loop pushes the same values become one list, and two counters become one counter.
Gradients of gradients contain such variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.ir.attr_values import equal
from headrace.ir.edit.editor import Editor
from headrace.ir.infer import constant_value
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.loop_editor import LoopEditor, loops_of

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class MergeVariables(Pass):
    """Pass that merges equal loop variables."""

    name = "loop_variables"

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph, context, replaces_results=True):
            changed |= _merge(LoopEditor(op, context), context)
        return changed


def _merge(loop: LoopEditor, context: PassContext) -> bool:
    op, changed = loop.op, False
    moving = [k for k in range(len(op.inputs)) if not loop.is_constant(k)]
    for n, k in enumerate(moving):
        for j in moving[:n]:
            if not _are_equal(loop, j, k):
                continue
            p, twin, out = loop.body.params[k], loop.body.params[j], op.outputs[k]
            first, second = loop.cond.params[j], loop.cond.params[k]
            loop.inner.replace(p, twin)
            loop.outer.replace(out, op.outputs[j])
            Editor(loop.cond).replace(second, first)
            loop.inner.set_result(k, p)
            changed = True
            context.fired("loop_variables", op, f"variable {k} is always equal to variable {j}")
            break
    if changed:
        loop.sweep()
    return changed


def _are_equal(loop: LoopEditor, j: int, k: int) -> bool:
    op, body = loop.op, loop.body
    a, b = body.results[j], body.results[k]
    p, q = body.params[j], body.params[k]
    if a.index != b.index or p.shape != q.shape or p.handle != q.handle or not _same(op.inputs[j], op.inputs[k]):
        return False
    if a.op is not b.op:  # else both are the same result of one operation, as the indices are equal
        if not (loop.is_movable(a.op) and loop.is_movable(b.op) and _alike(a.op, b.op)):
            return False
        if not all((x is p and y is q) or _same(x, y) for x, y in zip(a.op.inputs, b.op.inputs, strict=True)):
            return False
    # last, since it walks the whole graph
    return loop.have_equal_waits([op.inputs[j]], [op.inputs[k]])


def _alike(x: Operation, y: Operation) -> bool:
    """Whether two operations compute the same function."""
    if x.type != y.type or x.device != y.device:
        return False
    if x.notes.that_change_values() != y.notes.that_change_values():
        return False
    return all(equal(x.attrs[k], y.attrs[k]) for k in x.opdef.attrs)


def _same(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors of one graph are known to be equal.

    They are if they are the same tensor, equal constants, or empty lists of one kind.
    """
    if x is y:
        return True
    a, b = constant_value(x), constant_value(y)
    if a is not None and b is not None:
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if x.op.opdef.list_kind == "empty" and _alike(x.op, y.op) and not (x.op.control_inputs or y.op.control_inputs):
        return all(_same(s, t) for s, t in zip(x.op.inputs, y.op.inputs, strict=True))
    return False
