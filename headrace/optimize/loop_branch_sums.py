"""Moves the addition of a conditional's result to a running sum into the branches.

    While(total)   body: total + If(p, then: d, else: zeros)

becomes

    While(total)   body: If(p, then: total + d, else: total)

Gradients of conditionals in loops contain many such sums. The derivative with respect to a tensor that a branch does
not read is zeros of the tensor's size. Without this pass, an iteration that takes the branch makes and adds them.

A sum that begins with +0 never becomes -0 by additions, so leaving out `+ 0` changes no bit of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import shapes
from headrace.ir.builder import Builder
from headrace.ir.edit import add_values
from headrace.ir.edit.editor import Editor
from headrace.ir.function import owned
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.loop_editor import LoopEditor, loops_of
from headrace.optimize.queries import is_zeros, owns_graphs

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor

_RULE = "loop_branches"


class AddInBranches(Pass):
    """Pass that adds to running sums in the branches of conditionals."""

    name = _RULE
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph, context, having=lambda op: op.opdef.structured in ("If", "Case")):  # mutate: no
            loop = LoopEditor(op, context)
            for k in range(len(loop.body.params)):
                changed |= _move(loop, k, context)
        return changed


def _move(loop: LoopEditor, k: int, context: PassContext) -> bool:
    found = _added(loop, k)
    if found is None:
        return False
    add, made = found
    choice = made.op
    if context.has_parts(choice):
        context.refused(_RULE, choice, "its results stand for effects inside, because it runs part by part")
        return False
    branches = owned(choice)
    empty = [is_zeros(g.results[made.index]) for g in branches]
    if not any(empty):
        return False
    if not _begins_with_zeros(loop, k):
        context.refused(_RULE, add, "the initial value of the sum is not known to be 0")
        return False
    total = loop.body.params[k]
    for g, p, is_nothing in zip(branches, _params(loop, choice, total), empty, strict=True):
        end = g.results[made.index]
        b = Builder(g, device=add.device, source=add.source)
        Editor(g).set_result(made.index, p if is_nothing else b.AddV2(p, end, name=add.name))
    loop.inner.replace(add.outputs[0], made)
    loop.sweep()
    context.fired(_RULE, add, f"added in {empty.count(False)} of {len(empty)} branches of '{choice.name}'")
    return True


def _added(loop: LoopEditor, k: int) -> tuple[Operation, Tensor] | None:
    """Returns the addition to variable `k` and the addend, a result of a conditional.

    None if there is no such addition, or the addend has other readers.
    """
    total, add = loop.body.params[k], loop.body.results[k].op
    if add.type not in ("AddV2", "Add", "AddN") or len(add.inputs) != 2 or not loop.is_movable(add):
        return None
    others = [t for t in add.inputs if t is not total]
    if len(others) != 1:
        return None
    made = others[0]
    if made.op.opdef.structured not in ("If", "Case") or not owns_graphs(made.op):
        return None
    if len(loop.inner.uses.get(made, ())) != 1 or made in loop.body.results or made.op.device != add.device:
        return None
    if not shapes.is_full(total.shape) or total.shape != made.shape:
        return None
    return add, made


def _begins_with_zeros(loop: LoopEditor, k: int) -> bool:
    init = loop.op.inputs[k]
    if init.dtype.base.is_integer:
        return True
    return is_zeros(init, may_be_negative=False)


def _params(loop: LoopEditor, choice: Operation, t: Tensor) -> list[Tensor]:
    """Parameters of the branches of `choice` for the tensor `t` of the body."""
    for i, given in enumerate(choice.inputs[1:]):
        if given is t:
            return [g.params[i] for g in owned(choice)]
    params = add_values.add_input(choice, t)
    loop.inner.extended(choice)
    return params
