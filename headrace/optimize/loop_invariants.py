"""Work that is the same in all iterations is done once, before the loop.

    While(h)   body: tanh(h @ (w * s))        w, s: loop constants

becomes

    v = w * s
    While(h)   body: tanh(h @ v)              v: a loop constant

An operation of the body moves if it is pure and all that it reads is invariant, and if doing it once too often hurts
nobody: a loop may go round no time at all, and then the body would not have run. So it must be one that cannot fail
(`ir.analysis.speculatable`), unless the loop is known to go round. The condition runs once at least, so there every
pure operation may move. What is much larger than what it is made of (a number stretched to a matrix) stays: to keep it
costs more than to make it. A variable that the loop only reads is read once, if the loop is known to go round (to read
it can fail, it may have no value yet). Loops in loops are done from the inside out, so work moves as far out as it can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import shapes, thresholds
from headrace.ir import walk
from headrace.ir.analysis.speculatable import is_speculatable
from headrace.ir.edit.copying import copy_into
from headrace.ir.edit.editor import Editor
from headrace.ir.function import base_name
from headrace.ir.order import effects
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.loop_editor import LoopEditor, loops_of, names

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor


class HoistInvariants(Pass):
    """See the module's text."""

    name = "loop_invariants"
    grows = True  # parameters, and constants on both sides

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph):
            changed |= _hoist_body(op, context)
            changed |= _hoist_condition(op, context)
        return changed


def _hoist_body(op: Operation, context: PassContext) -> bool:
    loop = LoopEditor(op, context)
    goes_round = loop.trip_count is not None and bool(loop.trip_count.count)
    only_reads = not any(effects(op).values())
    found: dict[Operation, None] = {}
    for each in walk.in_order(walk.reachable(loop.inner.roots())):
        if not each.inputs or not all(t.op in found or loop.is_invariant(t) for t in each.inputs):
            continue
        if loop.is_movable(each) or (only_reads and _reads(loop, each)):
            if goes_round or is_speculatable(each):
                found[each] = None
            else:
                context.refused("loop_invariants", each, "it may fail, and the loop may not go round at all")
    for each in reversed(list(found)):  # what nobody would read outside but those that stay, stays
        readers = [r for t in each.outputs for r, _ in loop.inner.uses.get(t, ())]
        is_end = any(t in loop.body.results for t in each.outputs) or any(r not in found for r in readers)
        if is_end and _is_stretched(each):
            del found[each]
            context.refused("loop_invariants", each, "its result is much larger than what it is made of")
    # an Identity of a constant alone, or a number made of numbers, is the business of others
    if not found:
        return False
    moved = {t: loop.outside(t) for each in found for t in each.inputs if t.op not in found}
    copies = copy_into(op.graph, list(found), moved)
    for each, copy in copies.items():
        if not each.opdef.is_pure:  # it reads what the loop would have read, so after what the loop waits for
            loop.outer.set_controls(copy, op.control_inputs)
    for each in found:
        for t in each.outputs:
            if any(r not in found for r, _ in loop.inner.uses.get(t, ())) or t in loop.body.results:
                loop.inner.replace(t, loop.constant(moved[t], base_name(t)))
    loop.sweep()
    context.fired("loop_invariants", op, f"computed once, before the loop: {names(list(found))}")
    return True


def _reads(loop: LoopEditor, op: Operation) -> bool:
    """Whether `op`, of a loop that writes nothing, reads a resource, and nothing else says when."""
    facts = op.opdef.facts
    if facts.effect != "resource" or facts.waits:
        return False
    return not op.control_inputs and not loop.inner.waits.get(op) and loop.is_free(op)


def _hoist_condition(op: Operation, context: PassContext) -> bool:
    loop = LoopEditor(op, context)
    cond: FuncGraph = loop.cond
    at = {p: k for k, p in enumerate(cond.params)}

    def is_invariant(t: Tensor) -> bool:
        return t.op in found or t.op.type == "Const" or (t in at and loop.is_constant(at[t]))

    found: dict[Operation, None] = {}
    for each in walk.in_order(cond.operations):
        free = each.opdef.is_pure and not each.control_inputs and "_class" not in each.attrs
        if free and each.inputs and all(map(is_invariant, each.inputs)):
            found[each] = None
    needed = walk.reachable([t.op for t in cond.results])
    ends = {
        t: [(r, i) for r in cond.operations if r not in found for i, x in enumerate(r.inputs) if x is t]
        for each in found
        if each in needed
        for t in each.outputs
    }
    ends = {t: readers for t, readers in ends.items() if readers or t in cond.results}
    if not ends or any(c in found for each in cond.operations for c in each.control_inputs):
        return False
    moved: dict[Tensor, Tensor] = {}
    for each in found:
        for t in each.inputs:
            if t in at:
                moved[t] = op.inputs[at[t]]
            elif t.op.type == "Const" and t not in moved:
                copy_into(op.graph, [t.op], moved)
    copy_into(op.graph, list(found), moved)
    edit = Editor(cond)
    for t, readers in ends.items():
        param = loop.constant(moved[t], base_name(t))
        twin = cond.params[param.op.attrs["index"]]
        for r, i in readers:
            edit.set_input(r, i, twin)
        cond.set_results([twin if x is t else x for x in cond.results])
    edit.sweep()
    context.fired("loop_invariants", op, f"of the condition, computed once: {names(list(found))}")
    return True


def _is_stretched(op: Operation) -> bool:
    """Whether what `op` makes is much larger than what it makes it of."""
    if op.opdef.facts.forwards is not None:
        return False
    made, read = _bytes(op.outputs), _bytes(op.inputs)
    if made is not None:
        return made > thresholds.GROWN_BYTES and (read is None or made > thresholds.GROWTH * read)
    ranks = [len(t.shape) for t in op.inputs if t.shape is not None]
    out = op.outputs[0].shape
    return out is None or len(out) > max(ranks, default=0)


def _bytes(tensors: list[Tensor] | tuple[Tensor, ...]) -> int | None:
    total = 0
    for t in tensors:
        n = shapes.size(t.shape)
        if n is None:
            return None
        total += n * t.dtype.size
    return total
