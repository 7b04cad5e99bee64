"""Reassociates sums and products of a loop's body: operands known before the loop go first.

    (x + h) + b        becomes        (x + b) + h             x a row of a known tensor, h carried, b a loop constant
    split(x + h)[1] + 1               split(x + h + [0, 1])[1]
    ((d * h) * o) * p  becomes        d * (h * o * p)         h, o, p popped, d carried

Then `loop_fission` can compute the first part for all iterations at once. Operands that are invariant are joined with
each other, so that `loop_invariants` computes their sum once. The last bits of floats may differ.

Products are regrouped only if no intermediate result can overflow, or lose a small number. For that, all known factors
but one must lie in [-1, 1] (`ir.analysis.value_range`): gates, and derivatives of the functions that compute gates. So
an operation for the derivative of such a function, `TanhGrad(y, d)`, is first replaced by a product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from headrace import dtypes
from headrace.ir import walk
from headrace.ir.analysis.speculatable import is_speculatable
from headrace.ir.analysis.value_range import value_range
from headrace.ir.function import base_name
from headrace.ir.infer import constant_value
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.loop_editor import LoopEditor, loops_of
from headrace.optimize.loop_row_reads import RowReads

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class _Regroup(Pass):
    """Pass that regroups the operands of one type of operation.

    Attributes:
      type: the type of the operations, a sum or a product of two operands.
      what: the end of the report's sentence that begins with numbers of operands.
      joins_invariants: whether operands are regrouped although none of them is a row, only invariant.
    """

    grows = True
    is_exact = False
    type: ClassVar[str]
    what: ClassVar[str]
    joins_invariants: ClassVar[bool]

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph, context):
            loop = LoopEditor(op, context)
            changed |= self._prepare(loop, context)
            # one operation alone cannot be regrouped, and this test is cheap
            if sum(each.type == self.type for each in loop.body.operations) < 2:  # mutate: no
                continue
            rows = RowReads(loop)
            for each in walk.in_order(loop.body.operations):
                if self._is_one(loop, each) and not self._is_part(loop, each):
                    changed |= self._regroup(loop, rows, each, context)
        return changed

    def _prepare(self, loop: LoopEditor, context: PassContext) -> bool:
        return False

    def _is_one(self, loop: LoopEditor, op: Operation) -> bool:
        return op.type == self.type and op.outputs[0].dtype.base.is_floating and loop.is_movable(op)

    def _is_part(self, loop: LoopEditor, op: Operation) -> bool:
        """Whether the only reader of `op` is another such operation of the same shape."""
        y = op.outputs[0]
        uses = loop.inner.uses.get(y, [])
        if len(uses) != 1 or y in loop.body.results or y.shape is None:
            return False
        reader = uses[0][0]
        return self._is_one(loop, reader) and reader.device == op.device and reader.outputs[0].shape == y.shape

    def _parts(self, loop: LoopEditor, t: Tensor) -> Iterator[Tensor]:
        """Yields the operands of `t`, with those of nested operations of the same type."""
        todo = [*reversed(t.op.inputs)]
        while todo:
            x = todo.pop()
            if self._is_one(loop, x.op) and self._is_part(loop, x.op):
                todo += reversed(x.op.inputs)
            else:
                yield x

    def _is_safe(self, loop: LoopEditor, early: Sequence[Tensor]) -> bool:
        """Whether the operands `early` may be joined first."""
        return True

    def _regroup(self, loop: LoopEditor, rows: RowReads, op: Operation, context: PassContext) -> bool:
        parts = list(self._parts(loop, op.outputs[0]))
        early = [t for t in parts if t in rows or loop.is_invariant(t)]
        late = [t for t in parts if t not in early]
        if len(early) < 2 or not late or len(set(parts)) != len(parts):
            return False
        if not self.joins_invariants and not any(t in rows for t in early):
            return False
        if any(set(self._parts(loop, t)) == set(early) for t in op.inputs if t not in parts):
            return False  # the known operands are grouped already
        if not self._is_safe(loop, early):
            return False
        read, invariant = [t for t in early if t in rows], [t for t in early if t not in rows]
        known = [*read, self._joined(loop, op, invariant)] if invariant else read  # the invariant ones can be hoisted
        total = self._joined(loop, op, [self._joined(loop, op, known), self._joined(loop, op, late)])
        loop.inner.replace(op.outputs[0], total)
        loop.sweep()
        context.fired(self.name, op, f"{len(early)} of {len(parts)} {self.what}")
        return True

    def _joined(self, loop: LoopEditor, op: Operation, parts: Sequence[Tensor]) -> Tensor:
        b = loop.within(op)
        total = parts[0]
        for t in parts[1:]:
            total = b.make(self.type, (total, t), {}, op.name)
        return total


class RegroupSums(_Regroup):
    """Pass that adds the terms that are known before the loop first."""

    name = "loop_sums"
    type = "AddV2"
    what = "terms are known before the loop, and added first"
    joins_invariants = True

    def _prepare(self, loop: LoopEditor, context: PassContext) -> bool:
        """Replaces additions of a bias by sums, and moves terms of pieces to the whole."""
        found = [op for op in loop.body.operations if op.type == "BiasAdd" and _is_sum(op) and loop.is_movable(op)]
        for op in found:
            loop.inner.replace(op.outputs[0], loop.within(op).AddV2(*op.inputs, name=op.name))
            context.fired(self.name, op, "the addition of a bias is a sum")
        if found:
            loop.sweep()
        changed = bool(found)
        for cut in [op for op in loop.body.operations if op.opdef.facts.split is not None and loop.is_movable(op)]:
            changed |= self._add_before(loop, cut, context)
        return changed

    def _add_before(self, loop: LoopEditor, cut: Operation, context: PassContext) -> bool:
        """Adds invariant terms of pieces to the whole, if other terms are known."""
        role = cut.opdef.facts.split
        assert role is not None
        whole, axis = cut.inputs[role.value], constant_value(cut.inputs[role.axis])
        shape = whole.shape
        if axis is None or shape is None or int(axis) not in (-1, len(shape) - 1) or not self._is_one(loop, whole.op):
            return False
        sizes = [None if t.shape is None else t.shape[-1] for t in cut.outputs]
        terms = [self._term(loop, t, size) for t, size in zip(cut.outputs, sizes, strict=True)]
        if not any(terms) or None in sizes or whole.op.device != cut.device:
            return False
        rows = RowReads(loop)
        if not any(t in rows or loop.is_invariant(t) for t in self._parts(loop, whole)):
            return False
        b = loop.before(cut)
        dtype = whole.dtype.base
        parts = []
        for size, term in zip(sizes, terms, strict=True):
            part = b.const(np.zeros(size, dtype.numpy), dtype)
            parts.append(part if term is None else b.AddV2(part, loop.outside(term[1]), name=term[0].name))
        vector = loop.constant(b.ConcatV2(parts, 0, name=f"{cut.name}/terms"), f"{base_name(whole)}_terms")
        total = loop.within(whole.op).AddV2(whole, vector, name=whole.op.name)
        loop.inner.set_input(cut, role.value, total)
        for t, term in zip(cut.outputs, terms, strict=True):
            if term is not None:
                loop.inner.replace(term[0].outputs[0], t)
        loop.sweep()
        context.fired(self.name, cut, f"terms of {len(terms) - terms.count(None)} of its pieces are added before it")
        return True

    def _term(self, loop: LoopEditor, piece: Tensor, size: int | None) -> tuple[Operation, Tensor] | None:
        """Returns the reader of `piece` and the invariant that it adds, or None."""
        uses = loop.inner.uses.get(piece, [])
        if len(uses) != 1 or piece in loop.body.results or not self._is_one(loop, uses[0][0]):
            return None
        op = uses[0][0]
        term = op.inputs[1 - uses[0][1]]
        is_one = loop.is_invariant(term) and term.shape in ((), (size,)) and op.device == piece.op.device
        return (op, term) if is_one else None


class RegroupFactors(_Regroup):
    """Pass that multiplies the factors that are known before the loop first."""

    name = "loop_factors"
    type = "Mul"
    what = "factors are known before the loop, and multiplied first"
    joins_invariants = False

    def _prepare(self, loop: LoopEditor, context: PassContext) -> bool:
        """Replaces derivatives by products, if one factor is known before the loop."""
        found = [op for op in loop.body.operations if op.opdef.facts.slope is not None and loop.is_movable(op)]
        if not found:
            return False
        rows = RowReads(loop)
        changed = False
        for op in walk.in_order(found):
            y, dy = op.inputs
            if y not in rows or dy in rows or not rows.is_small(y) or not _is_wide(y) or y.shape != dy.shape:
                continue
            slope = op.opdef.facts.slope
            assert slope is not None
            b = loop.within(op)
            product = b.Mul(dy, slope(b, y), name=op.name)
            loop.inner.replace(op.outputs[0], product)
            context.fired(self.name, op, f"multiplied by the derivative of {op.type.removesuffix('Grad')}")
            changed = True
        if changed:
            loop.sweep()
        return changed

    def _is_safe(self, loop: LoopEditor, early: Sequence[Tensor]) -> bool:
        return all(_is_wide(t) for t in early) and sum(not _is_small(t, loop) for t in early) <= 1


def _is_sum(op: Operation) -> bool:
    """Whether a BiasAdd is the sum of its inputs, with broadcasting, and cannot fail."""
    return op.attrs.get("data_format", "NHWC") == "NHWC" and is_speculatable(op)


def _is_wide(t: Tensor) -> bool:
    """Whether the exponent range of `t` leaves room for products of small factors."""
    return t.dtype.base.is_floating and t.dtype.base is not dtypes.float16


def _is_small(t: Tensor, loop: LoopEditor) -> bool:
    found = value_range(t, loop.op)
    return found is not None and -1 <= found[0] <= found[1] <= 1
