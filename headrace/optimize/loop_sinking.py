"""Sinking: moves work whose results a loop only collects to after the loop.

    While(ys, h)   body: push(ys, h @ v)        ys is read by nothing else

becomes

    While(hs, h)   body: push(hs, h)
    TensorListFromTensor(stack(hs) @ v)

This is done if the moved operations contain a matrix product, or join tensors some of which need not be collected: of
`push(ys, [x, h])` only `h` is pushed, if `x` is a row. For less, collecting their inputs would not pay. Rows of
a tensor that a loop reads one by one and pushes to a list for the gradient need not be collected: the tensor itself
becomes the list.

The gradient with respect to inputs that a loop reads row by row is collected at a higher cost: each iteration makes a
list that is zero except for one element, and adds it to the running sum. After the loop one list replaces this sum. If
the loop reads rows of the tensor itself (`xs[t]`), each iteration adds a tensor that is zero except for one row. Then
one tensor replaces this sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace import dtypes, shapes, thresholds
from headrace.ir import walk
from headrace.ir.infer import constant_value
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.batching_rules import can_batch
from headrace.optimize.loop_editor import LoopEditor, loops_of
from headrace.optimize.loop_residuals import Residuals
from headrace.optimize.loop_row_reads import JOINS, Index, as_vector, element_bytes, index_of
from headrace.optimize.loop_rows import out_of_range
from headrace.optimize.queries import is_zeros
from headrace.optimize.selections import Row, row_of
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor

_RULE: Final = "loop_collections"


class SinkCollections(Pass):
    """Pass that sinks the computation of collected values."""

    name = _RULE
    is_exact = False
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph, context, replaces_results=True):
            loop = LoopEditor(op, context)
            for k in range(len(op.inputs)):
                changed |= _move(loop, k, context)
        return changed


@record(frozen=True, slots=True)
class _List:
    """A list variable into which the loop only puts values.

    Attributes:
      value: the value that each iteration puts in.
      put: the operation that puts it in.
      index: the position in the list; None: the end.
      adds: whether `value` is put into a list of zeros, which is then added to the variable.
      row: for a variable that is a tensor, the row of it to which `value` is added; else None.
    """

    value: Tensor
    put: Operation
    index: Index | None
    adds: bool
    row: Row | None = None


def _move(loop: LoopEditor, k: int, context: PassContext) -> bool:
    op = loop.op
    found = _list(loop, k)
    if found is None:
        return False
    value = found.value
    leaving = {found.put, loop.body.results[k].op}
    computed = _computed(loop, value, leaving)
    if not any(each.opdef.facts.blas for each in computed):
        is_copy = found.index is None and Residuals(loop, leaving).is_row(value)
        is_less = found.index is None and _is_less(loop, value, leaving, computed)
        if not found.adds and not is_copy and not is_less:
            return False  # the loop makes a list directly, and there is nothing to compute
        if not is_less:
            computed = {}
    residuals = Residuals(loop, {*leaving, *computed}, computed)
    why = _why_not(residuals, found, k, context)
    if why:
        context.refused(_RULE, found.put, why)
        return False
    rows = residuals.values(value)
    is_backward = found.index is not None and not found.index.is_upward
    tensor = residuals.turned(rows, is_backward)
    made = _as_list(loop, k, found, tensor) if found.row is None else _as_tensor(loop, found, found.row, tensor)
    before = op.outputs[k]
    if found.adds and not (op.inputs[k].op.type == "ZerosLike" or (found.row is not None and is_zeros(op.inputs[k]))):
        made = loop.before(found.put).AddN([op.inputs[k], made], name=f"{op.name}/collected")
    loop.inner.set_result(k, loop.body.params[k])
    made.replace_static(made.shape, before.handle)
    if made.op.opdef.list_kind == "from_tensor":
        _unstack(loop, before, tensor)
    loop.outer.replace(before, made)
    loop.sweep()
    what = ", ".join(f"'{each.name}'" for each in computed) or f"the values that '{found.put.name}' collects"
    context.fired(_RULE, op, f"computed after the loop, for all iterations at once: {what}")
    return True


def _list(loop: LoopEditor, k: int) -> _List | None:
    """Returns variable `k` as a `_List`, if the loop only puts values into it."""
    p, r = loop.body.params[k], loop.body.results[k]
    op = r.op
    if not loop.is_movable(op) or not loop.is_only_for_itself(k):
        return None
    if p.dtype.base is not dtypes.variant:
        return _row(loop, k)
    holds = loop.op.outputs[k].handle
    if holds is None or holds[0] in dtypes.OBJECT:  # not a list, or a list of lists
        return None
    if op.opdef.list_kind == "push":
        return _List(op.inputs[1], op, None, False)
    put, adds = op, op.type == "AddN"
    if adds:
        others = [t.op for t in op.inputs if t is not p]
        if len(others) != 1:
            return None
        put = others[0]
        if not loop.is_movable(put) or len(loop.inner.uses.get(put.outputs[0], ())) != 1:
            return None
    if put.opdef.list_kind != "set" or put.attrs["resize_if_index_out_of_bounds"]:
        return None
    into = loop.position(put.inputs[0])
    index = index_of(loop, put.inputs[1])
    if into is None or index is None:
        return None
    if adds and not (loop.is_constant(into) and loop.op.inputs[into].op.type == "ZerosLike"):
        return None
    return _List(put.inputs[2], put, index, adds)


def _row(loop: LoopEditor, k: int) -> _List | None:
    """Returns variable `k`, a tensor, as a `_List`, if each iteration adds to another row."""
    p, add = loop.body.params[k], loop.body.results[k].op
    others = [t.op for t in add.inputs if t is not p]
    if add.type not in ("AddN", "AddV2") or len(others) != 1 or len(add.inputs) != 2:
        return None
    (put,) = others
    is_free = loop.is_movable(put) and len(loop.inner.uses.get(put.outputs[0], ())) == 1
    shape = put.outputs[0].shape
    if put.type != "StridedSliceGrad" or not is_free or not shapes.is_full(shape) or shape != p.shape:
        return None
    row = row_of(put)
    at = None if row is None or row.keeps else index_of(loop, row.index)
    if row is None or at is None or loop.trip_count is None or loop.trip_count.count != at.bound.count:
        return None
    assert shape is not None
    return None if out_of_range(at, shape[row.axis]) else _List(put.inputs[4], put, at, True, row)


def _computed(loop: LoopEditor, value: Tensor, leaving: set[Operation]) -> dict[Operation, None]:
    """Operations that only `value` needs, and that can be batched."""
    found: dict[Operation, None] = {}
    for op in reversed(walk.in_order(walk.reachable([value.op]))):
        readers = [r for t in op.outputs for r, _ in loop.inner.uses.get(t, ())]
        is_mine = all(r in found or r in leaving for r in readers)
        is_mine = is_mine and not any(t in loop.body.results for t in op.outputs)
        rows = [not loop.is_invariant(t) for t in op.inputs]
        is_known = all(shapes.is_full(t.shape) for t in (*op.inputs, *op.outputs))
        if is_mine and is_known and loop.is_movable(op) and can_batch(op, rows):
            found[op] = None
    return found


def _is_less(loop: LoopEditor, value: Tensor, leaving: set[Operation], computed: dict[Operation, None]) -> bool:
    """Whether `computed` only joins tensors, some of which need not be collected."""
    if not computed or not all(op.type in JOINS for op in computed):
        return False
    residuals = Residuals(loop, {*leaving, *computed}, computed)
    leaves = [t for op in computed for t in op.inputs if t.op not in computed and not loop.is_invariant(t)]
    sizes = [element_bytes(t) for t in dict.fromkeys(x for t in leaves for x in residuals.pushed(t))]
    made = element_bytes(value)
    return made is not None and None not in sizes and sum(n for n in sizes if n is not None) < made


def _why_not(residuals: Residuals, found: _List, k: int, context: PassContext) -> str:
    """Reason why the list must be made in the loop; "" if it need not."""
    loop, value = residuals.loop, found.value
    first = loop.op.inputs[k].op
    if not shapes.is_full(value.shape) or loop.is_invariant(value):
        return "the collected value is loop-invariant, or its shape is unknown"
    if found.index is None and first.opdef.list_kind != "empty":
        return "the list has elements before the loop"
    n = residuals.count
    if found.index is not None and not found.adds:
        size = constant_value(first.inputs[1]) if first.opdef.list_kind == "reserve" else None
        low = constant_value(found.index.bound.first)
        if n is None or size != n or low != 0:
            return "the loop is not known to set every element of the list"
    leaves = [t for op in residuals.computed for t in op.inputs if not loop.is_invariant(t)]
    pushed = dict.fromkeys(x for t in leaves for x in residuals.pushed(t))
    sizes = [n_bytes for t in pushed if (n_bytes := element_bytes(t)) is not None]
    made = element_bytes(value)
    assert made is not None
    if sum(sizes) > thresholds.GROWTH * made:
        return f"each iteration would keep {sum(sizes)} bytes for a result of {made} bytes"
    most = max([made, *sizes])
    if n is not None and n * most > context.options.stack_bytes:
        return f"{n} values of {most} bytes exceed the limit of {context.options.stack_bytes} bytes"
    return ""


def _unstack(loop: LoopEditor, values: Tensor, rows: Tensor) -> None:
    """Makes operations that stack the list `values` after the loop read `rows` instead."""
    assert rows.shape is not None
    for reader, _ in list(loop.outer.uses.get(values, ())):
        if reader.opdef.list_kind == "stack" and reader.attrs["num_elements"] in (-1, rows.shape[0]):
            stacked = reader.outputs[0]
            if shapes.compatible(stacked.shape, rows.shape):
                loop.outer.replace(stacked, rows)


def _as_list(loop: LoopEditor, k: int, found: _List, rows: Tensor) -> Tensor:
    """Returns the list after the loop, from `rows` in the order of its elements."""
    b = loop.before(found.put)
    name = f"{loop.op.name}/{found.put.name.rpartition('/')[2]}_collected"
    shape = as_vector(found.value.shape)
    out: Tensor
    if not found.adds or _is_whole(loop, found, rows):
        out = b.TensorListFromTensor(rows, shape, name=name)
    else:
        into = loop.position(found.put.inputs[0])
        assert into is not None
        assert found.index is not None
        first = loop.op.inputs[found.index.bound.counter] if found.index.is_upward else b.const(0)
        if first.dtype.base is not dtypes.int32:
            first = b.Cast(first, DstT=dtypes.int32)
        n = b.StridedSlice(b.Shape(rows), [0], [1], [1], shrink_axis_mask=1)
        places = b.Range(first, b.AddV2(first, n), 1, name=f"{name}/places")
        out = b.TensorListScatterIntoExistingList(loop.op.inputs[into], rows, places, name=name)
    return out


def _as_tensor(loop: LoopEditor, found: _List, row: Row, rows: Tensor) -> Tensor:
    """Returns the tensor after the loop, from `rows` in the order of its elements."""
    b = loop.before(found.put)
    name = f"{loop.op.name}/{found.put.name.rpartition('/')[2]}_collected"
    whole, shape = found.put.outputs[0].shape, rows.shape
    assert whole is not None
    assert shape is not None
    assert found.index is not None
    low = int(constant_value(found.index.bound.first) or 0) if found.index.is_upward else 0
    after = (whole[row.axis] or 0) - low - (shape[0] or 0)
    if low or after:
        rows = b.Pad(rows, [[low, after], *[[0, 0]] * (len(shape) - 1)], name=f"{name}/all")
    if row.axis:
        rows = b.Transpose(rows, [*range(1, row.axis + 1), 0, *range(row.axis + 1, len(shape))], name=name)
    return rows


def _is_whole(loop: LoopEditor, found: _List, rows: Tensor) -> bool:
    """Whether the differentiated list is known to have as many elements as rows."""
    into = loop.position(found.put.inputs[0])
    assert into is not None
    like = loop.op.inputs[into].op.inputs[0].op
    n = rows.shape[0] if rows.shape is not None else None
    xs = like.inputs[0].shape if like.opdef.list_kind == "from_tensor" else None
    assert found.index is not None
    starts = not found.index.is_upward or constant_value(found.index.bound.first) == 0
    return bool(starts) and n is not None and xs is not None and xs[0] == n
