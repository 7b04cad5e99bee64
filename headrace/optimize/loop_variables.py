"""Two variables of a loop that are always equal become one.

They are if they begin equal, and if what makes the next value of the one makes that of the other, of the same values
besides. So two lists to which a loop pushes the same values are one list, two counters one counter; gradients of
gradients make such.
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
    """See the module's text."""

    name = "loop_variables"

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph):
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
    if a.op is b.op:  # such as two results of one operation: of the same index they are one
        return True
    if not (loop.is_movable(a.op) and loop.is_movable(b.op) and _alike(a.op, b.op)):
        return False
    return all((x is p and y is q) or _same(x, y) for x, y in zip(a.op.inputs, b.op.inputs, strict=True))


def _alike(x: Operation, y: Operation) -> bool:
    """Whether two operations do the same to what they are given."""
    if x.type != y.type or x.device != y.device:
        return False
    return all(equal(x.attrs[k], y.attrs[k]) for k in x.opdef.attrs)


def _same(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors of one graph have the same value: they are one, or constants, or new lists alike."""
    if x is y:
        return True
    a, b = constant_value(x), constant_value(y)
    if a is not None and b is not None:
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if x.op.opdef.list_kind == "empty" and _alike(x.op, y.op) and not (x.op.control_inputs or y.op.control_inputs):
        return all(_same(s, t) for s, t in zip(x.op.inputs, y.op.inputs, strict=True))
    return False
