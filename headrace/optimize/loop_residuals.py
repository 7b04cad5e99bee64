"""Residuals: the values in all iterations of a tensor of a loop's body.

A pass uses them after the loop. There are four ways to obtain them (`Residuals.values`). The first one that applies is
taken:

* The tensor is a row of a tensor that was known before the loop (`loop_row_reads`). That tensor has the values.
* The tensor is popped from a list that a forward loop filled. That list has the values, the last iteration first.
* The tensor is computed from such tensors, and only for this purpose. Then it is computed after the loop, from all
  values of its inputs.
* Otherwise each iteration pushes it to a list.

The values lie along a new first dimension, in the order of the iterations or in reverse. `Residuals` reverses a tensor
where two of them must have the same order. If only the first dimension of a value is unknown, it may differ from one
iteration to the next. Such values are pushed, and concatenated along that dimension.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from headrace import shapes
from headrace.dtypes import int64
from headrace.ir.function import base_name
from headrace.ir.infer import constant_value
from headrace.optimize.batching_rules import batch, can_batch
from headrace.optimize.loop_row_reads import as_vector, index_of, popped_from, stacked
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor
    from headrace.optimize.loop_editor import LoopEditor


@record(frozen=True, slots=True)
class Values:
    """Values of a tensor of the body in all iterations.

    Attributes:
      tensor: a tensor of the graph around; its first dimension is that of the iterations.
      is_backward: whether the last iteration comes first.
    """

    tensor: Tensor
    is_backward: bool


class Residuals:
    """Values of the tensors of one loop's body in all iterations.

    Args:
      loop: the loop.
      leaving: operations that the body will no longer contain.
      computed: those of them that are computed after the loop, for all iterations at once.
    """

    def __init__(
        self, loop: LoopEditor, leaving: Collection[Operation], computed: Collection[Operation] = frozenset()
    ) -> None:
        self.loop = loop
        self.leaving = leaving
        self.computed = computed
        self._available: dict[Tensor, bool] = {}
        self._values: dict[Tensor, Values] = {}
        self._lists: dict[Tensor, Tensor] = {}
        self._turned: dict[Tensor, Tensor] = {}

    @property
    def count(self) -> int | None:
        """Trip count of the loop, or None."""
        return None if self.loop.trip_count is None else self.loop.trip_count.count

    # *** availability ***

    def is_available(self, t: Tensor) -> bool:
        """Whether the values of `t` are available without pushing `t`."""
        got = self._available.get(t)
        if got is None:
            self._available[t] = False
            got = self._available[t] = shapes.is_full(t.shape) and (
                popped_from(self.loop, t) is not None or self.is_row(t) or self._is_computed(t)
            )
        return got

    def pushed(self, t: Tensor) -> list[Tensor]:
        """Tensors to push for the values of `t`."""
        if self.is_available(t):
            return []
        return [t] if self._list_of(t) is None else []

    def is_row(self, t: Tensor) -> bool:
        """Whether `t` is a row of a tensor with one row for each iteration."""
        op, loop = t.op, self.loop
        if op.opdef.list_kind != "get" or not loop.is_movable(op) or t.shape is None:
            return False
        k, at = loop.position(op.inputs[0]), index_of(loop, op.inputs[1])
        if k is None or not loop.is_constant(k) or at is None or self.count is None:
            return False
        maker = loop.op.inputs[k].op
        if maker.opdef.list_kind != "from_tensor":
            return False
        is_whole = constant_value(at.bound.first) == 0 and at.bound.count == self.count
        return is_whole and maker.inputs[0].shape == (self.count, *t.shape)

    def _is_computed(self, t: Tensor) -> bool:
        """Whether `t` can be computed after the loop, and is not needed in it."""
        op, loop = t.op, self.loop
        if op in self.computed:
            return True
        if not loop.is_movable(op):
            return False
        used = [r for x in op.outputs for r, _ in loop.inner.uses.get(x, ())]
        if any(x in loop.body.results for x in op.outputs) or not all(r in self.leaving for r in used):
            return False
        available = [self.is_available(x) for x in op.inputs]
        if not all(h or loop.is_invariant(x) for x, h in zip(op.inputs, available, strict=True)):
            return False
        return can_batch(op, available)

    def _list_of(self, t: Tensor) -> Tensor | None:
        """A list of the values of `t` that the loop makes already, or None."""
        made = self._lists.get(t)
        if made is not None:
            return made
        body = self.loop.body
        for r, _ in self.loop.inner.uses.get(t, ()):
            if r.opdef.list_kind == "push" and r.outputs[0] in body.results:
                k = body.results.index(r.outputs[0])
                if r.inputs[0] is body.params[k] and self.loop.op.inputs[k].op.opdef.list_kind == "empty":
                    return self.loop.op.outputs[k]
        return None

    # *** values ***

    def values(self, t: Tensor) -> Values:
        """Returns the values of `t`, of known shape, along a new first dimension."""
        got = self._values.get(t)
        if got is None:
            got = self._values[t] = self._make(t)
        return got

    def _make(self, t: Tensor) -> Values:
        loop, op = self.loop, t.op
        b = loop.before(op)
        if not self.is_available(t):
            return Values(stacked(loop, self.list(t), t), False)
        k = popped_from(loop, t)
        if k is not None:
            return Values(stacked(loop, loop.op.inputs[k], t), True)
        if self.is_row(t):
            at = index_of(loop, op.inputs[1])
            position = loop.position(op.inputs[0])
            assert at is not None
            assert position is not None
            return Values(loop.op.inputs[position].op.inputs[0], not at.is_upward)
        rows = [not loop.is_invariant(x) for x in op.inputs]
        parts = [self.values(x) for x, r in zip(op.inputs, rows, strict=True) if r]
        is_backward = parts[0].is_backward
        inputs = [
            self.turned(self.values(x), is_backward) if r else loop.outside(x)
            for x, r in zip(op.inputs, rows, strict=True)
        ]
        made = batch(b, op, inputs, rows)
        for x, y in zip(op.outputs, made, strict=True):
            self._values[x] = Values(y, is_backward)
        return self._values[t]

    def turned(self, values: Values, is_backward: bool) -> Tensor:
        """Returns the values in the order `is_backward`."""
        if values.is_backward is is_backward:
            return values.tensor
        got = self._turned.get(values.tensor)
        if got is None:
            b = self.loop.before(values.tensor.op)
            got = self._turned[values.tensor] = b.ReverseV2(values.tensor, [0], name=f"{values.tensor.op.name}/turned")
        return got

    def joined(self, t: Tensor) -> Tensor:
        """Returns the values of `t` concatenated along their first dimension.

        They are in the order of the iterations.
        """
        values = self.list(t)
        b = self.loop.before(t.op)
        none = b.const([], int64, f"{self.loop.op.name}/leading_dims")
        out, _ = b.TensorListConcatV2(
            values,
            as_vector(t.shape),
            none,
            element_dtype=t.dtype.base,
            name=f"{self.loop.op.name}/{base_name(t)}_values",
        )
        assert t.shape is not None
        out.replace_static((None, *t.shape[1:]), out.handle)
        joined: Tensor = out
        return joined

    def list(self, t: Tensor) -> Tensor:
        """Returns the list of the values of `t`, an output of the loop.

        If the loop makes no such list, it is added.
        """
        got = self._list_of(t)
        if got is None:
            loop = self.loop
            name = f"{base_name(t)}_residuals"
            dtype = t.dtype.base
            first = loop.before(t.op).EmptyTensorList(
                as_vector(t.shape), -1, element_dtype=dtype, name=f"{loop.op.name}/{name}"
            )
            param, got = loop.variable(first, name)
            pushed = loop.within(t.op).TensorListPushBack(param, t, name=f"{t.op.name}/push")
            loop.set_next(len(loop.body.params) - 1, pushed)
            got.refine(handle=first.handle)
        self._lists[t] = got
        return got
