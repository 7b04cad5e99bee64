"""Horizontal fusion: one operation on a small tensor replaces several on its pieces.

    i, j, f, o = split(z)                                s = sigmoid(z)
    sigmoid(i), tanh(j), sigmoid(f), sigmoid(o)          i, _, f, o = split(s)      j = split(z)[1]; tanh(j)

On a few hundred elements a call costs more than the work, even if a piece in between is computed in vain: one sigmoid
of 512 numbers takes half the time of three sigmoids of 128. In this way the gates of an LSTM are computed together. The
pieces of a larger tensor are computed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace import shapes, thresholds
from headrace.ir.analysis.speculatable import is_speculatable
from headrace.ir.builder import Builder
from headrace.ir.edit.editor import Editor
from headrace.ir.opdef import PerElement
from headrace.optimize.base import Pass, PassContext

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.ir.notes import Notes


class FuseHorizontally(Pass):
    """Pass that fuses operations on the pieces of a tensor."""

    name = "pieces"
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        cuts = [op for op in graph.operations if op.opdef.facts.split is not None and not op.control_inputs]
        if not cuts:
            return False
        edit = Editor(graph, context.preserved_of(graph))
        changed = False
        for cut in cuts:
            for same in _alike(edit, cut):
                changed |= _join(edit, cut, same, context)
        if changed:
            edit.sweep()
        return changed


def _alike(edit: Editor, cut: Operation) -> list[list[Operation]]:
    """Groups of equal operations that are applied to several of the pieces that `cut` makes."""
    found: dict[tuple[str, str, Notes], list[Operation]] = {}
    for t in cut.outputs:
        uses = edit.uses.get(t, [])
        if len(uses) != 1:
            continue
        op = uses[0][0]
        is_free = not op.control_inputs and not edit.waits.get(op) and "_class" not in op.attrs
        if is_free and op not in edit.preserved and _is_function(op) and op.device == cut.device:
            found.setdefault((op.type, repr(sorted(op.attrs.items(), key=str)), op.notes), []).append(op)
    return [ops for ops in found.values() if len(ops) > 1]


def _is_function(op: Operation) -> bool:
    """Whether `op` is an elementwise function of one argument, and cannot fail."""
    record = op.opdef
    return (
        isinstance(record.facts.cost, PerElement) and [a.is_list for a in record.ins] == [False] and is_speculatable(op)
    )


def _join(edit: Editor, cut: Operation, same: Sequence[Operation], context: PassContext) -> bool:
    role = cut.opdef.facts.split
    assert role is not None
    whole = cut.inputs[role.value]
    size = shapes.size(whole.shape)
    if size is None:
        return False
    if size * whole.dtype.base.size > thresholds.CALL_BOUND_BYTES:
        context.refused(
            "pieces",
            same[0],
            f"the whole tensor has {size * whole.dtype.base.size} bytes; the limit is {thresholds.CALL_BOUND_BYTES}",
        )
        return False
    wanted = sum(shapes.size(op.outputs[0].shape) or 0 for op in same)
    if 2 * wanted < size:
        context.refused("pieces", same[0], "less than half of the whole tensor is known to have consumers")
        return False
    first = same[0]
    b = Builder(edit.graph, device=first.device, source=first.source)
    done = b.make(first.type, (whole,), dict(first.attrs), first.name, first.notes)
    attrs = {**cut.attrs, cut.opdef.ins[role.value].type_attr or "": done.dtype.base}
    pieces: Any = b.make(cut.type, _with(cut, role.value, done), attrs, cut.name, cut.notes)
    for op in same:
        piece: Tensor = pieces[op.inputs[0].index]
        edit.replace(op.outputs[0], piece)
    context.fired("pieces", cut, f"one {first.type} replaces those of {len(same)} of {len(cut.outputs)} pieces")
    return True


def _with(cut: Operation, position: int, t: Tensor) -> list[Tensor]:
    """Inputs of `cut`, with `t` at `position`."""
    return [t if i == position else x for i, x in enumerate(cut.inputs)]
