"""Reads rows of a tensor from a list.

    While(i = 0, ...)   condition: i < n      body: x = xs[i] ...         or xs[:, i], gather(xs, i), or slice(xs, ...)

becomes

    items = TensorListFromTensor(xs)
    While(i = 0, ...)   condition: i < n      body: x = TensorListGetItem(items, i) ...

So a loop that reads its input by an index is the same loop as one that reads a `TensorArray`, and the passes that
follow have one kind of rows (`loop_row_reads`). If the rows do not lie along dimension 0, the tensor is transposed
before the loop.

`for t in hr.range(n)` reads the index itself from a list. Such an element is replaced by its index.

An index out of range is an error of the operation that selects the row, with a text of its own. Therefore all indices
must be known to be in range. At least half of the rows must be read, because the list has all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import dtypes
from headrace.ir import walk
from headrace.ir.function import base_name
from headrace.ir.infer import constant_value
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.loop_editor import LoopEditor, loops_of, names
from headrace.optimize.loop_row_reads import Index, as_vector, index_of
from headrace.optimize.selections import row_of

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.shapes import Shape


_SELECTIONS: Final = ("StridedSlice", "Slice", "GatherV2")


class ReadRows(Pass):
    """Pass that reads rows of a tensor from a list."""

    name = "loop_rows"
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph, context, having=lambda op: op.type in _SELECTIONS):  # mutate: no
            loop = LoopEditor(op, context)
            changed |= _count(loop, context)
            changed |= _read(loop, context)
        return changed


def _count(loop: LoopEditor, context: PassContext) -> bool:
    """Replaces rows of `range(n)`, as `for t in hr.range(n)` reads them, by their index."""
    counted: list[Operation] = []
    for op in loop.body.operations:
        at = index_of(loop, op.inputs[1]) if op.opdef.list_kind == "get" and loop.is_movable(op) else None
        if at is None or not _is_range(loop, op, at):
            continue
        dtype = op.outputs[0].dtype.base
        same = at.tensor.dtype.base is dtype
        index = at.tensor if same else loop.within(op).Cast(at.tensor, DstT=dtype, name=f"{op.name}/index")
        loop.inner.replace(op.outputs[0], index)
        counted.append(op)
    if not counted:
        return False
    loop.sweep()
    context.fired("loop_rows", loop.op, f"equal to their index: {names(counted)}")
    return True


def _is_range(loop: LoopEditor, op: Operation, at: Index) -> bool:
    """Whether element i of the list that `op` reads is i, for all indices `at`."""
    k = loop.position(op.inputs[0])
    if k is None or not loop.is_constant(k) or op.outputs[0].dtype.base not in dtypes.INDEX:
        return False
    maker = loop.op.inputs[k].op
    values = constant_value(maker.inputs[0]) if maker.opdef.list_kind == "from_tensor" else None
    if values is None or values.ndim != 1 or out_of_range(at, len(values)):
        return False
    return bool((values == np.arange(len(values))).all())


def _read(loop: LoopEditor, context: PassContext) -> bool:
    lists: dict[tuple[Tensor, int, str], Tensor] = {}
    read: list[Operation] = []
    for op in walk.in_order(loop.body.operations):
        if op.type not in _SELECTIONS or not loop.is_movable(op):
            continue
        x, y = op.inputs[0], op.outputs[0]
        if not loop.is_invariant(x) or x.dtype.base in dtypes.OBJECT or y.shape is None:
            continue
        row = row_of(op)
        at = None if row is None else index_of(loop, row.index)
        if row is None or at is None:
            continue
        assert x.shape is not None
        why = out_of_range(at, x.shape[row.axis])
        if why:
            context.refused("loop_rows", op, why)
            continue
        key = x, row.axis, op.device
        shape = (*y.shape[: row.axis], *y.shape[row.axis + 1 :]) if row.keeps else y.shape
        if key not in lists:
            lists[key] = _list(loop, op, row.axis, shape)
        b = loop.within(op)
        index = row.index
        if index.dtype.base is not dtypes.int32:
            index = b.Cast(index, DstT=dtypes.int32, name=f"{op.name}/index")
        item = b.TensorListGetItem(lists[key], index, as_vector(shape), element_dtype=y.dtype.base, name=op.name)
        if row.keeps:
            item.set_shape(shape)
            item = b.ExpandDims(item, np.int32(row.axis), name=f"{op.name}/expanded")  # its shape may say more than y's
        else:
            item.copy_static(y)
        loop.inner.replace(y, item)
        read.append(op)
    if not read:
        return False
    loop.sweep()
    context.fired("loop_rows", loop.op, f"rows read from a list: {names(read)}")
    return True


def out_of_range(at: Index, size: int | None) -> str:
    """Reason why a dimension cannot be read from a list, or "".

    All indices must be in range, and they must be at least half of the dimension.

    Args:
      at: the index that an iteration reads.
      size: the size of the dimension.
    """
    first, limit, count = constant_value(at.bound.first), constant_value(at.bound.limit), at.bound.count
    if size is None or first is None or limit is None or count is None:
        return "its indices are not known to be in range"
    low = int(first) if at.is_upward else 0
    if low < 0 or low + count > size:
        return "its indices are not known to be in range"
    return "" if 2 * count >= size else "the loop reads less than half of the rows"


def _list(loop: LoopEditor, op: Operation, axis: int, shape: Shape) -> Tensor:
    """Returns the parameter of the body for the list of the rows."""
    x = op.inputs[0]
    b, name = loop.before(op), f"{base_name(x)}_rows"
    outer = loop.outside(x)
    assert x.shape is not None
    if axis:
        order = [axis, *(a for a in range(len(x.shape)) if a != axis)]
        outer = b.Transpose(outer, order, name=f"{loop.op.name}/{name}_first")
    items = b.TensorListFromTensor(outer, as_vector(shape), name=f"{loop.op.name}/{name}")
    return loop.constant(items, name)
