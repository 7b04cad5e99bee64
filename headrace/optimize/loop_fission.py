"""Work on what a loop reads row by row is done before the loop, for all rows at once.

    inputs = TensorListFromTensor(xs)
    While(i, h)   body: tanh(inputs[i] @ w + h @ u + b)

becomes

    rows = TensorListFromTensor(xs @ w + b)
    While(i, h)   body: tanh(rows[i] + h @ u)

What does not depend on anything that is carried from one iteration to the next need not wait for it: one product of
all rows takes a fraction of what as many products of one row do, and so does all else. `loop_rows` finds what can be
moved; sums are regrouped for that, so the last bits of floats may differ.

Only as many rows are computed as the loop may read. A loop that may end before its counter does, computes nothing in
advance; nor is more kept than `Options.stack_bytes` of one value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.ir import walk
from headrace.optimize.base import Context, Pass
from headrace.optimize.loop_edits import Loop, loops_of, names
from headrace.optimize.loop_rows import Rows, as_vector, element_bytes

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class RegroupSums(Pass):
    """In a sum, adds first what is known before the loop begins."""

    name = "loop_sums"

    def call(self, graph: Graph, context: Context) -> bool:
        changed = False
        for op in loops_of(graph):
            loop = Loop(op, context)
            rows = Rows(loop)
            for each in walk.in_order(loop.body.operations):
                if _is_sum(each) and loop.is_movable(each) and not _is_term(loop, each):
                    changed |= _regroup(loop, rows, each, context)
        return changed


def _is_sum(op: Operation) -> bool:
    return op.type == "AddV2" and op.outputs[0].dtype.base.is_floating


def _is_term(loop: Loop, op: Operation) -> bool:
    """Whether `op` is itself only read by one sum of the same shape."""
    y = op.outputs[0]
    uses = loop.inner.uses.get(y, [])
    if len(uses) != 1 or y in loop.body.results:
        return False
    reader = uses[0][0]
    return _is_sum(reader) and loop.is_movable(reader) and y.shape is not None and reader.outputs[0].shape == y.shape


def _terms(loop: Loop, t: Tensor, top: bool = True) -> Iterator[Tensor]:
    """What the sum `t` is of, sums within it resolved."""
    if top or (_is_sum(t.op) and loop.is_movable(t.op) and _is_term(loop, t.op)):
        for x in t.op.inputs:
            yield from _terms(loop, x, False)
    else:
        yield t


def _regroup(loop: Loop, rows: Rows, op: Operation, context: Context) -> bool:
    terms = list(_terms(loop, op.outputs[0]))
    early = [t for t in terms if t in rows or loop.is_invariant(t)]
    late = [t for t in terms if t not in early]
    if len(early) < 2 or not late or not any(t in rows for t in early) or len(set(terms)) != len(terms):
        return False
    if any(set(_terms(loop, t)) == set(early) for t in op.inputs if t not in terms):
        return False  # they are one side of the sum already
    b = loop.within(op)
    first = early[0]
    for t in early[1:]:
        first = b.AddV2(first, t, name=op.name)
    second = late[0]
    for t in late[1:]:
        second = b.AddV2(second, t, name=op.name)
    total = b.AddV2(first, second, name=op.name)
    loop.note()
    loop.inner.replace(op.outputs[0], total)
    loop.sweep()
    context.fired("loop_sums", op, f"{len(early)} of {len(terms)} terms are known before the loop, and added first")
    return True


class FissionForward(Pass):
    """See the module's text."""

    name = "loop_fission"
    grows = True

    def call(self, graph: Graph, context: Context) -> bool:
        changed = False
        for op in loops_of(graph):
            changed |= _move(op, context)
        return changed


def _move(op: Operation, context: Context) -> bool:
    loop = Loop(op, context)
    rows = Rows(loop)
    ends: list[Tensor] = []
    needed = walk.reachable(loop.inner.roots())
    for each in walk.in_order(needed):
        for t in each.outputs:
            if t not in rows or each.type == "TensorListGetItem":
                continue
            readers = [r for r, _ in loop.inner.uses.get(t, ()) if r in needed]
            if t in loop.body.results or any(not all(x in rows for x in r.outputs) for r in readers):
                ends.append(t)
    if not ends:
        if rows.why and any(each.type == "TensorListGetItem" for each in needed):
            context.refused("loop_fission", op, rows.why)
        return False
    n = loop.trips.most if loop.trips is not None else None
    if n is not None and n < 2:
        context.refused("loop_fission", op, "it goes round once at most")
        return False
    moved = []
    for t in ends:
        size = element_bytes(t)
        if size is not None and n is not None and n * size > context.options.stack_bytes:
            limit = context.options.stack_bytes
            context.refused("loop_fission", t.op, f"{n} rows of {size} bytes are more than {limit}")
            continue
        if n is None and (t.shape is None or None in t.shape[1:]):
            context.refused("loop_fission", t.op, "neither how many rows nor how large they are is known")
            continue
        _read_instead(loop, rows, t)
        moved.append(t.op)
    if not moved:
        return False
    loop.sweep()
    context.fired("loop_fission", op, f"computed for all iterations before the loop: {names(moved)}")
    return True


def _read_instead(loop: Loop, rows: Rows, t: Tensor) -> None:
    """Has the loop read `t`, a row, instead of computing it."""
    index = rows[t].tensor
    short = t.op.name.rpartition("/")[2]
    source = rows.source(t)
    items = loop.before(t.op).TensorListFromTensor(source, as_vector(t.shape), name=f"{loop.op.name}/{short}_rows")
    loop.note()
    param = loop.constant(items, f"{short}_rows")
    b = loop.within(t.op)
    item = b.TensorListGetItem(param, index, as_vector(t.shape), element_dtype=t.dtype.base, name=t.op.name)
    item.shape, item.handle = t.shape, t.handle
    loop.note()
    loop.inner.replace(t, item)
    rows.note(item, t)
