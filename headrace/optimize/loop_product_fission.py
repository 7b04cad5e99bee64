"""Splits a matrix product of a concatenation into a sum of products.

    z = [x, h] @ w        becomes        z = x @ w[:m] + h @ w[m:]

Here `x` is a loop constant, or a row of a tensor that is known before the loop, and `h` is carried from one iteration
to the next. Then the first product can be computed for all iterations at once (`loop_fission`). In the backward loop
the counterpart is

    dx, dh = split(dz @ wT)        becomes        dx = dz @ w[:m]T        dh = dz @ w[m:]T

This is done if one of the two products is not needed, so it is not computed, or if it is only collected in a list, so
it is computed after the loop. The slices of `w`, which is invariant, are made before the loop. If `w` is a constant,
`fold` makes constants of them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.ir import walk
from headrace.ir.function import base_name
from headrace.ir.infer import constant_value
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.loop_editor import LoopEditor, loops_of
from headrace.optimize.loop_row_reads import RowReads

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Graph, Operation, Tensor


class FissionProducts(Pass):
    """Pass that splits products whose parts are known at different times."""

    name = "loop_products"
    is_exact = False
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph, context, having=lambda op: op.type == "MatMul"):  # mutate: no
            changed |= _Products(op, context).split()
        return changed


class _Products:
    """Matrix products of one loop."""

    def __init__(self, op: Operation, context: PassContext) -> None:
        self.loop = LoopEditor(op, context)
        self.context = context
        self._slices: dict[tuple[Tensor, int, int, int, str], Tensor] = {}

    @functools.cached_property
    def rows(self) -> RowReads:
        return RowReads(self.loop)

    def split(self) -> bool:
        changed = False
        for op in walk.in_order(self.loop.body.operations):
            if op.type in ("AddN", "AddV2"):
                changed |= self._is_sum(op) and self._narrow(op, [t.op for t in op.inputs])
            if op.type != "MatMul" or not self.loop.is_movable(op) or not self._has_fixed_factor(op):
                continue
            joined = op.inputs[0].op
            if self._narrow(op, [op]):
                changed = True
            elif joined.type == "ConcatV2" and joined.device == op.device and not op.attrs["transpose_a"]:
                changed |= self._split_joined(op, joined)
        if changed:
            self.loop.sweep()
        return changed

    def _is_sum(self, op: Operation) -> bool:
        """Whether `op` adds products of invariant factors, which only it reads."""
        return self.loop.is_movable(op) and all(
            t.op.type == "MatMul"
            and t.op.device == op.device
            and t.shape == op.outputs[0].shape
            and self.loop.is_movable(t.op)
            and self._has_fixed_factor(t.op)
            and len(self.loop.inner.uses[t]) == 1
            and t not in self.loop.body.results
            for t in op.inputs
        )

    def _has_fixed_factor(self, op: Operation) -> bool:
        w = op.inputs[1]
        return self.loop.is_invariant(w) and w.shape is not None

    def _refused(self, op: Operation, why: str) -> bool:
        self.context.refused("loop_products", op, why)
        return False

    def _part(self, w: Tensor, axis: int, begin: int, size: int, like: Operation) -> Tensor:
        """Returns `size` rows (axis 0) or columns of the invariant `w`, sliced before the loop.

        The result is a loop constant.
        """
        key = (w, axis, begin, size, like.device)
        got = self._slices.get(key)
        if got is None:
            at, sizes = ([begin, 0], [size, -1]) if axis == 0 else ([0, begin], [-1, size])
            name = f"{base_name(w)}_part"
            sliced = self.loop.before(like).Slice(self.loop.outside(w), at, sizes, name=f"{self.loop.op.name}/{name}")
            got = self._slices[key] = self.loop.constant(sliced, name)
        return got

    def _split_joined(self, op: Operation, joined: Operation) -> bool:
        parts, axis = joined.inputs[:-1], constant_value(joined.inputs[-1])
        w = op.inputs[1]
        if axis is None or int(axis) not in (1, -1):
            return False
        known = [t in self.rows or self.loop.is_invariant(t) for t in parts]
        if all(known) or not any(known):
            return self._refused(
                op, "all its parts are loop-carried" if not any(known) else "none of its parts is loop-carried"
            )
        inner = 1 if op.attrs["transpose_b"] else 0
        sizes = [None if t.shape is None else t.shape[1] for t in parts]
        assert w.shape is not None
        if None in (*sizes, w.shape[inner]):
            return self._refused(op, "the widths of its parts are unknown")
        b = self.loop.within(op)
        products, at = [], 0
        for (first, last), same in _runs(known):
            wide = [int(s) for s in sizes[first:last] if s is not None]
            x = parts[first] if last - first == 1 else b.ConcatV2(list(parts[first:last]), joined.inputs[-1])
            part = self._part(w, inner, at, sum(wide), op)
            products.append((same, _product(b, op, x, part)))
            at += sum(wide)
        # the products that are known before the loop come first, so that their sum can be moved as a whole
        total = None
        for _, y in sorted(products, key=lambda p: not p[0]):
            total = y if total is None else b.AddV2(total, y, name=op.name)
        assert total is not None
        self.loop.inner.replace(op.outputs[0], total)
        many = f"{len(products)} products of the parts of '{joined.name}'"
        self.context.fired("loop_products", op, f"split into {many}, some of which are known before the loop")
        return True

    def _narrow(self, op: Operation, products: Sequence[Operation]) -> bool:
        """Splits a product whose result is split into columns, if the columns have different uses.

        Columns without readers are not computed. Columns that are only collected get a product of their own.

        Args:
          op: the operation whose result is split into columns.
          products: the product, `op` itself, or the products that `op` adds.
        """
        loop, y = self.loop, op.outputs[0]
        cuts = list(dict.fromkeys(r for r, _ in loop.inner.uses.get(y, [])))
        if len(cuts) != 1 or y in loop.body.results or not loop.is_movable(cuts[0]) or cuts[0].device != op.device:
            return False
        pieces = _columns(cuts[0], y)
        wanted = [t for t in cuts[0].outputs if loop.inner.is_used(t)]
        if not pieces or not wanted:
            return False
        if len(wanted) == len(pieces) and len({self._is_collected(t) for t in wanted}) == 1:
            return False  # all columns have the same use
        b = loop.within(op)
        at = 0
        made: list[tuple[Tensor, Tensor]] = []
        for t, size in zip(cuts[0].outputs, pieces, strict=True):
            if t in wanted:
                parts = []
                for each in products:
                    outer = 0 if each.attrs["transpose_b"] else 1
                    part = self._part(each.inputs[1], outer, at, size, each)
                    parts.append(_product(loop.within(each), each, each.inputs[0], part))
                made.append((t, parts[0] if op is products[0] else b.AddN(parts, name=op.name)))
            at += size
        for old, new in made:
            loop.inner.replace(old, new)
        gone = len(pieces) - len(wanted)
        what = (
            f"{gone} of {len(pieces)} pieces without consumers, removed"
            if gone
            else "the columns that are only collected have a separate product"
        )
        self.context.fired("loop_products", op, what)
        return True

    def _is_collected(self, t: Tensor) -> bool:
        """Whether the only use of `t` is to be put into a list."""
        uses = self.loop.inner.uses.get(t, [])
        return len(uses) == 1 and t not in self.loop.body.results and uses[0][0].opdef.list_kind in ("push", "set")


def _runs(flags: Sequence[bool]) -> list[tuple[tuple[int, int], bool]]:
    """Returns ((first, end), value) for each run of equal values."""
    out: list[tuple[tuple[int, int], bool]] = []
    for i, value in enumerate(flags):
        if out and out[-1][1] == value:
            out[-1] = ((out[-1][0][0], i + 1), value)
        else:
            out.append(((i, i + 1), value))
    return out


def _product(b: Builder, op: Operation, x: Tensor, w: Tensor) -> Tensor:
    turned = {name: op.attrs[name] for name in ("transpose_a", "transpose_b")}
    out: Tensor = b.MatMul(x, w, **turned, name=op.name)
    return out


def _columns(cut: Operation, y: Tensor) -> list[int] | None:
    """Widths of the pieces into which `cut` splits the columns of `y`, or None."""
    role = cut.opdef.facts.split
    if role is None:
        return None
    axis = constant_value(cut.inputs[role.axis])
    if axis is None or int(axis) not in (1, -1):
        return None
    sizes = [t.shape[1] or 0 for t in cut.outputs if t.shape is not None]
    assert y.shape is not None
    return sizes if sum(sizes) == y.shape[1] else None  # else some widths are unknown
