"""Merges slices that together are a whole tensor.

    i, j = z[:, :4], z[:, 4:]                             i, j = split(z)

and in the gradient

    dz = AddN(StridedSliceGrad(di), StridedSliceGrad(dj))     dz = ConcatV2(di, dj)

One split is made of slices that take consecutive pieces of one dimension, from its beginning to its end, and one
concatenation of tensors that are put into zeros at such pieces. So an LSTM whose gates are slices becomes one whose
gates are split, and its gradient has no zeros. (A sum with zeros makes 0.0 of -0.0, and the concatenation does not.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.ir.builder import Builder
from headrace.ir.edit.editor import Editor
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.queries import is_plain, other_device
from headrace.optimize.selections import piece_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.optimize.selections import Piece


class MergeSlices(Pass):
    """Pass that makes splits of slices, and concatenations of their gradients."""

    name = "slices"
    is_exact = False
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        taken: dict[tuple[Tensor, str], list[tuple[Piece, Operation]]] = {}
        sums: list[Operation] = []
        for op in graph.operations:
            if op.type in ("StridedSlice", "Slice"):
                piece = _free_piece(op, context)
                if piece is not None:
                    taken.setdefault((op.inputs[0], op.device), []).append((piece, op))
            elif op.type in ("AddN", "AddV2") and any(t.op.type in ("StridedSliceGrad", "Pad") for t in op.inputs):
                sums.append(op)
        if not sums and not any(len(found) > 1 for found in taken.values()):
            return False
        edit = Editor(graph, context.preserved_of(graph))
        changed = False
        for (x, _), found in taken.items():
            changed |= _split(edit, x, found, context)
        for op in sums:
            changed |= _concat(edit, op, context)
        if changed:
            edit.sweep()
        return changed


def _free_piece(op: Operation, context: PassContext) -> Piece | None:
    """Returns the piece of `op` if only its inputs constrain its position."""
    if op.control_inputs or "_class" in op.attrs or not is_plain(op) or op in context.preserved or other_device([op]):
        return None
    return piece_of(op)


def _cover(pieces: Sequence[Piece], shape: Sequence[int | None]) -> list[Piece] | None:
    """Returns the pieces in order if they are a whole dimension, or None."""
    if len({p.axis for p in pieces}) != 1:
        return None
    ordered = sorted(dict.fromkeys(pieces), key=lambda p: p.begin)
    end = 0
    for p in ordered:
        if p.begin != end:
            return None
        end += p.size
    return ordered if len(ordered) > 1 and end == shape[ordered[0].axis] else None


def _split(edit: Editor, x: Tensor, found: Sequence[tuple[Piece, Operation]], context: PassContext) -> bool:
    found = [(p, op) for p, op in found if not edit.is_waited_for(op) and op not in edit.preserved]
    changed = False
    for axis in dict.fromkeys(p.axis for p, _ in found):
        some = [(p, op) for p, op in found if p.axis == axis]
        assert x.shape is not None
        ordered = _cover([p for p, _ in some], x.shape)
        if ordered is None:
            continue
        first = some[0][1]
        b = Builder(edit.graph, device=first.device, source=first.source)
        sizes = [p.size for p in ordered]
        if len(set(sizes)) == 1:
            parts = b.Split(np.array(axis, np.int32), x, num_split=len(sizes), name=first.name)
        else:
            parts = b.SplitV(
                x, np.array(sizes, np.int32), np.array(axis, np.int32), num_split=len(sizes), name=first.name
            )
        for p, op in some:
            edit.replace(op.outputs[0], parts[ordered.index(p)])
        context.fired("slices", first, f"one split replaces {len(some)} slices of '{x.name}'")
        changed = True
    return changed


def _concat(edit: Editor, op: Operation, context: PassContext) -> bool:
    y = op.outputs[0]
    if _is_bound(edit, op) or y.shape is None:
        return False
    grads: list[tuple[Piece, Tensor]] = []
    for t in op.inputs:
        is_mine = t.op.type in ("StridedSliceGrad", "Pad") and t.op.device == op.device and t.shape == y.shape
        piece = _free_piece(t.op, context) if is_mine and len(edit.uses[t]) == 1 and not _is_bound(edit, t.op) else None
        if piece is not None:
            grads.append((piece, t))
    ordered = _cover([p for p, _ in grads], y.shape) if grads else None
    if ordered is None or len(ordered) != len(grads):
        return False
    put = {p: t.op.inputs[4 if t.op.type == "StridedSliceGrad" else 0] for p, t in grads}
    b = Builder(edit.graph, device=op.device, source=op.source)
    whole = b.ConcatV2([put[p] for p in ordered], np.array(ordered[0].axis, np.int32), name=op.name)
    rest = [t for t in op.inputs if all(t is not g for _, g in grads)]
    edit.replace(y, b.AddN([*rest, whole], name=op.name) if rest else whole)
    context.fired("slices", op, f"one concatenation replaces a sum of {len(grads)} gradients of slices")
    return True


def _is_bound(edit: Editor, op: Operation) -> bool:
    """Whether other operations wait for `op`, or it waits, or must stay."""
    return bool(op.control_inputs or edit.is_waited_for(op) or "_class" in op.attrs or op in edit.preserved)
