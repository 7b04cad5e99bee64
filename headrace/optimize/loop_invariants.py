"""Loop-invariant code motion: hoists invariant operations in front of the loop.

    While(h)   body: tanh(h @ (w * s))        w, s: loop constants

becomes

    v = w * s
    While(h)   body: tanh(h @ v)              v: a loop constant

An operation of the body is hoisted if it is pure and all its inputs are invariant. It must also be speculatable
(`ir.analysis.speculatable`): a loop may run no iteration, and then the body would not have run, so the hoisted
operation must not fail. If the loop is known to run an iteration, this is not required. The condition runs at least
once, so every pure operation of it may be hoisted.

A result that is much larger than its inputs (a scalar broadcast to a matrix) stays in the loop, because storing it
costs more than computing it. An empty list to which an iteration pushes stays too: compiled code changes it in place,
which it could not do with one list for all iterations. A value that is popped from a list is invariant if another loop
pushed the same value in all iterations (a variable that it read, for the gradient). Nested loops are handled from the
inside out, so an operation is hoisted as far out as possible.

A variable that the loop does not write is read once. The read can fail, because the variable may have no value. So if
the loop may run no iteration, the condition is evaluated on the initial values as well, and the read fails only if it
holds:

    While(i, h)   condition: i < n   body: h @ v.read()

becomes

    x = read v if needed (i < n)                          zeros if v has no value and i >= n
    While(i, h)   condition: i < n   body: h @ x

Reads stay in a loop that may write the variable, and in one that waits for other steps, which may write it meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace import dtypes, shapes, thresholds
from headrace.ir import walk
from headrace.ir.analysis.speculatable import is_speculatable
from headrace.ir.edit.copying import copy_into
from headrace.ir.edit.editor import Editor
from headrace.ir.function import base_name
from headrace.ir.order import ANY, effects, key_of
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.list_flow import ListFlow
from headrace.optimize.loop_editor import LoopEditor, loops_of, names
from headrace.optimize.loop_row_reads import popped_from
from headrace.optimize.queries import is_draw, is_plain, is_silent, only_reads, owns_graphs
from headrace.optimize.waiting import waits

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
    from headrace.ir.order import Key

_GUARDED: Final = "_ReadVariableIfNeeded"


class HoistInvariants(Pass):
    """Pass that hoists loop-invariant operations."""

    name = "loop_invariants"
    grows = True  # by parameters, and by copies of constants on both sides

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph, context):
            changed |= _unlist(op, context)
            changed |= _hoist_condition(op, context)  # first: a copy of it may become the condition of a read
            changed |= _hoist_body(op, context)
        return changed


def _unlist(op: Operation, context: PassContext) -> bool:
    """Replaces values that the loop `op` pops from lists of equal values."""
    pops = [each for each in op.attrs["body"].operations if each.opdef.list_kind == "pop"]
    if not pops:
        return False
    loop = LoopEditor(op, context)
    equal: list[tuple[Tensor, Tensor]] = []
    for each in pops:
        k = popped_from(loop, each.outputs[1]) if loop.inner.is_used(each.outputs[1]) else None
        value = None if k is None else _pushed(loop.op.inputs[k], context)
        if value is not None and shapes.covers(each.outputs[1].shape, value.shape) and loop.is_movable(each):
            equal.append((each.outputs[1], value))
    for popped, value in equal:
        loop.inner.replace(popped, loop.constant(value, base_name(value)))
    if equal:
        context.fired("loop_invariants", op, f"popped, equal in all iterations: {names([t.op for t, _ in equal])}")
    return bool(equal)


def _pushed(values: Tensor, context: PassContext) -> Tensor | None:
    """Returns the value of all elements of a list of equal invariants, or None."""
    maker = values.op
    if maker.opdef.structured != "While" or not owns_graphs(maker) or context.has_parts(maker):
        return None
    k = values.index
    push, p = maker.attrs["body"].results[k].op, maker.attrs["body"].params[k]
    if push.opdef.list_kind != "push" or push.inputs[0] is not p or maker.inputs[k].op.opdef.list_kind != "empty":
        return None
    loop = LoopEditor(maker, context)
    return loop.outside(push.inputs[1]) if loop.is_invariant(push.inputs[1]) else None


def _hoist_body(op: Operation, context: PassContext) -> bool:
    loop = LoopEditor(op, context)
    is_entered = loop.trip_count is not None and bool(loop.trip_count.count)
    written = _written(op, context)
    found: dict[Operation, None] = {}
    for each in walk.in_order(walk.reachable(loop.inner.roots())):
        if not each.inputs or not all(t.op in found or loop.is_invariant(t) for t in each.inputs):
            continue
        if loop.is_movable(each) or _reads(loop, each, written):
            if _starts_a_list(loop, each):
                context.refused("loop_invariants", each, "each iteration changes a list of its own")
            elif is_entered or is_speculatable(each) or (_is_guardable(each) and _can_copy_condition(loop)):
                found[each] = None
            else:
                context.refused("loop_invariants", each, "it may fail, and the trip count may be 0")
    for each in reversed(list(found)):  # a large result that the rest of the loop needs is computed in the loop
        readers = [r for t in each.outputs for r, _ in loop.inner.uses.get(t, ())]
        is_end = any(t in loop.body.results for t in each.outputs) or any(r not in found for r in readers)
        if is_end and _is_stretched(each):
            del found[each]
            context.refused("loop_invariants", each, "its result is much larger than its inputs")
    if not found:
        return False
    moved = {t: loop.outside(t) for each in found for t in each.inputs if t.op not in found}
    reads = [each for each in found if not each.opdef.is_pure]
    is_needed = _copied_condition(loop) if reads and not is_entered else None
    copies = copy_into(op.graph, list(found), moved)
    for each in reads:
        loop.outer.set_controls(copies[each], op.control_inputs)
        if is_needed is not None:
            _guard(loop, copies[each], is_needed)
    for each in found:
        for t in each.outputs:
            if any(r not in found for r, _ in loop.inner.uses.get(t, ())) or t in loop.body.results:
                loop.inner.replace(t, loop.constant(moved[t], base_name(t)))
    loop.sweep()
    context.fired("loop_invariants", op, f"loop-invariant, hoisted: {names(list(found))}")
    return True


# *** reads of variables ***


def _written(op: Operation, context: PassContext) -> list[Key]:
    """State that may be written while the loop `op` runs, except that of random operations."""
    if context.options.is_lowered and waits(op):
        return [ANY]
    return [key for key, writes in effects(op).items() if writes and not is_draw(key)]


def _reads(loop: LoopEditor, op: Operation, written: list[Key]) -> bool:
    """Whether `op`, of the body, reads constant state, and has no control edges."""
    k = loop.position(op.inputs[0])
    if not only_reads(op) or op.control_inputs or k is None or loop.inner.waits.get(op) or not loop.is_free(op):
        return False
    return all(_are_distinct(key_of(loop.op.inputs[k]), key) for key in written)


def _are_distinct(a: Key | None, b: Key) -> bool:
    """Whether two keys denote different state: resources with different names.

    Different parameters may be one resource.
    """
    is_named = all(isinstance(key, tuple) and isinstance(key[-1], str) for key in (a, b))
    return is_named and a[-1] != b[-1]  # type: ignore[index]


def _is_guardable(op: Operation) -> bool:
    """Whether the read `op` has a form with a condition."""
    if op.type == _GUARDED:
        return True
    value = op.outputs[0] if op.type == "ReadVariableOp" else None
    return value is not None and value.dtype.base not in dtypes.OBJECT and shapes.is_full(value.shape)


def _guard(loop: LoopEditor, read: Operation, is_needed: Tensor) -> None:
    """Makes a copy of a read fail only if `is_needed` holds."""
    if read.type == _GUARDED:  # it comes out of an inner loop
        loop.outer.set_input(read, 1, loop.before(read).LogicalAnd(is_needed, read.inputs[1]))
        return
    attrs = {"dtype": read.attrs["dtype"], "shape": read.outputs[0].shape}
    loop.outer.become(read, _GUARDED, [read.inputs[0], is_needed], attrs, read.control_inputs)


def _condition(loop: LoopEditor) -> list[Operation]:
    """The operations that compute the condition, in order."""
    return walk.in_order({op for op in walk.reachable([loop.cond.results[0].op]) if op.type != "_Arg"})


def _can_copy_condition(loop: LoopEditor) -> bool:
    """Whether the condition is pure and cannot fail, as a copy of it must."""
    end = loop.cond.results[0]
    if end.shape != () or end.dtype.base is not dtypes.bool_:
        return False
    return all(is_silent(op) and not op.control_inputs and "_class" not in op.attrs for op in _condition(loop))


def _copied_condition(loop: LoopEditor) -> Tensor:
    """The condition of the initial values, in the graph around the loop."""
    moved = dict(zip(loop.cond.params, loop.op.inputs, strict=True))
    copy_into(loop.op.graph, _condition(loop), moved)
    return moved[loop.cond.results[0]]


def _starts_a_list(loop: LoopEditor, op: Operation) -> bool:
    """Whether `op` makes a list that the body changes.

    A list that one iteration makes can be changed in place. A version that all iterations begin with cannot.
    """
    role = op.opdef.facts.list_role
    if role is None or not role.makes:
        return False
    uses = ListFlow(loop.body).of(op.outputs[0])
    return uses is None or bool(uses.put or uses.pops or uses.is_indexed)


def _hoist_condition(op: Operation, context: PassContext) -> bool:
    loop = LoopEditor(op, context)
    cond: FuncGraph = loop.cond
    at = {p: k for k, p in enumerate(cond.params)}

    def is_invariant(t: Tensor) -> bool:
        return t.op in found or t.op.type == "Const" or (t in at and loop.is_constant(at[t]))

    def reads(each: Operation) -> bool:
        k = at.get(each.inputs[0])
        is_free = only_reads(each) and k is not None and each not in cond.control_results
        return is_free and all(_are_distinct(key_of(op.inputs[at[each.inputs[0]]]), key) for key in written)

    written = _written(op, context)
    found: dict[Operation, None] = {}
    for each in walk.in_order(cond.operations):
        if not each.inputs or each.control_inputs or "_class" in each.attrs:
            continue
        if (is_plain(each) or reads(each)) and all(map(is_invariant, each.inputs)):
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
    copies = copy_into(op.graph, list(found), moved)
    for each in found:
        if not each.opdef.is_pure:
            loop.outer.set_controls(copies[each], op.control_inputs)
    edit = Editor(cond)
    for t, readers in ends.items():
        param = loop.constant(moved[t], base_name(t))
        twin = cond.params[param.op.attrs["index"]]
        for r, i in readers:
            edit.set_input(r, i, twin)
        cond.set_results([twin if x is t else x for x in cond.results])
    edit.sweep()
    context.fired("loop_invariants", op, f"loop-invariant in the condition, hoisted: {names(list(found))}")
    return True


def _is_stretched(op: Operation) -> bool:
    """Whether the result of `op` is much larger than its inputs, and is computed."""
    if op.opdef.facts.forwards is not None or not op.opdef.is_pure:  # a read of a variable computes nothing
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
