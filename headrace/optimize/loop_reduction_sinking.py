"""Reduction sinking: computes sums over a loop's iterations after the loop, in one operation.

    While(dw, ...)   body: dw + aT @ d, ...          dw is read by nothing else

becomes

    While(...)       body: push a, push d, ...
    dw + stack(a)T @ stack(d)                        one product over iterations and rows together

Gradients of loops accumulate the derivatives of the weights in this way. Each iteration computes a matrix of the size
of the weights from two small ones, and adds it to the running sum. One product after the loop does the same work
without the large matrix of each iteration. Batches of matrices (gradients of each example, under `vmap`) become a
product of batches. `loop_residuals` makes the small matrices of all iterations available after the loop; those that a
forward loop stored need not be stored again. Sums over some dimensions (the gradient of a bias) are sunk in the same
way. The parts of a joined operand, `[x, h]T @ d`, are multiplied one by one: their values are not joined for all
iterations.

The order of the float sums changes, so the last bits may differ. If the loop runs no iteration, the sum is over
nothing.

**Memory.** If the trip count is known, at most `Options.stack_bytes` of one value are stored. If it is unknown, values
are stored only if the loop reads lists that an earlier loop filled: those have as many elements, so the size of the
stored values is of the same order. In both cases the stored values of an iteration must not be much larger than the
term that the iteration adds: a sum of a few numbers over a huge batch stays in the loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import shapes, thresholds
from headrace.ir.infer import constant_value
from headrace.ir.notes import ResidualPop
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.loop_editor import LoopEditor, loops_of, names
from headrace.optimize.loop_residuals import Residuals
from headrace.optimize.loop_row_reads import element_bytes
from headrace.optimize.queries import is_zeros
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor

_RULE: Final = "loop_accumulations"


class SinkReductions(Pass):
    """Pass that sinks reductions out of loops."""

    name = _RULE
    is_exact = False
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph, context, replaces_results=True):
            changed |= _move(op, context)
        return changed


@record(frozen=True, slots=True)
class _Sum:
    """A variable to which the loop only adds, with terms that can be sunk.

    Attributes:
      k: the position of the variable.
      add: the operation that adds.
      terms: the inputs of it that could be added after the loop.
    """

    k: int
    add: Operation
    terms: list[Tensor]


def _move(op: Operation, context: PassContext) -> bool:
    loop = LoopEditor(op, context)
    sums = [s for k in range(len(loop.body.params)) if (s := _sum(loop, k)) is not None]
    if not sums:
        return False
    leaving = {t.op for s in sums for t in s.terms}
    while True:  # a term that stays keeps its inputs in the loop, so other terms may have to stay, too
        residuals = Residuals(loop, leaving)
        refused = {
            t.op: why for s in sums for t in s.terms if t.op in leaving and (why := _why_not(residuals, t, context))
        }
        if not refused:
            break
        for each, why in refused.items():
            context.refused(_RULE, each, why)
        leaving -= refused.keys()
    sums = [dataclasses.replace(s, terms=[t for t in s.terms if t.op in leaving]) for s in sums]
    sums = [s for s in sums if s.terms]
    for s in sums:
        _behind(loop, residuals, s)
    if not sums:
        return False
    loop.sweep()
    moved = [t.op for s in sums for t in s.terms]
    context.fired(_RULE, op, f"summed after the loop, for all iterations at once: {names(moved)}")
    return True


# *** candidates ***


def _sum(loop: LoopEditor, k: int) -> _Sum | None:
    """Returns variable `k` as a `_Sum`, if the loop only adds to it."""
    p, r = loop.body.params[k], loop.body.results[k]
    add = r.op
    if add.type not in ("AddV2", "Add", "AddN") or not loop.is_movable(add):
        return None
    if not (p.dtype.base.is_floating or p.dtype.base.is_complex) or not loop.is_only_for_itself(k):
        return None
    terms = [t for t in add.inputs if _is_term(loop, t) and t.shape == p.shape]
    return _Sum(k, add, terms) if terms else None


def _is_term(loop: LoopEditor, t: Tensor) -> bool:
    """Whether `t` is computed only to be added, by an operation that can be batched."""
    op = t.op
    if not loop.is_movable(op) or len(loop.inner.uses.get(t, ())) != 1 or t in loop.body.results:
        return False
    operands = [x for x in _operands(op) if not loop.is_invariant(x)]
    return len(operands) == len(_operands(op)) > 0


def _operands(op: Operation) -> list[Tensor]:
    """Operands that `op` sums over their rows; empty if it computes no such sum."""
    if op.type == "MatMul":
        return list(op.inputs)
    if op.type == "BatchMatMulV2" and _is_batch(op):
        return list(op.inputs)
    if op.type == "Sum" and constant_value(op.inputs[1]) is not None:
        return [op.inputs[0]]
    if op.type == "BiasAddGrad" and op.attrs["data_format"] == "NHWC":
        return [op.inputs[0]]
    return []


def _is_batch(op: Operation) -> bool:
    """Whether a product of two batches of matrices pairs them, with known shapes."""
    x, y = (t.shape for t in op.inputs)
    if x is None or y is None or op.inputs[0].dtype.is_complex:
        return False
    return len(x) == len(y) == 3 and x[0] == y[0] and shapes.is_full(x) and shapes.is_full(y)


def _why_not(residuals: Residuals, t: Tensor, context: PassContext) -> str:
    """Reason why `t` must be added in the loop; "" if it need not."""
    op, loop = t.op, residuals.loop
    operands = _operands(op)
    pushed = list(dict.fromkeys(x for o in operands for x in residuals.pushed(o)))
    if not all(shapes.is_full(o.shape) for o in operands) and not _joins(op, operands):
        return "the shapes of the residuals are unknown"
    if any(shapes.size(o.shape) == 0 for o in operands):
        return "its operands have no elements"
    n = residuals.count
    if n is None:
        if not any(ResidualPop in x.notes for x in loop.body.operations):
            return "the trip count is unknown, and the loop keeps no residuals of this size yet"
    elif n < 2:
        return "its trip count is at most 1"
    else:
        for x in operands:
            size = element_bytes(x)
            if size is not None and n * size > context.options.stack_bytes:
                return f"{n} values of {size} bytes exceed the limit of {context.options.stack_bytes} bytes"
    others = {x for each in residuals.leaving if each is not op for o in _operands(each) for x in residuals.pushed(o)}
    total = sum(size for x in pushed if x not in others and (size := element_bytes(x)) is not None)
    made = element_bytes(t)
    assert made is not None
    if total > max(thresholds.CALL_BOUND_BYTES, thresholds.GROWTH * made):
        return f"each iteration would keep {total} bytes for a sum of {made} bytes"
    return ""


def _joins(op: Operation, operands: Sequence[Tensor]) -> bool:
    """Whether the values can be joined along their first dimension, of unknown size.

    They can if `op` sums over this dimension.
    """
    if any(o.shape is None or None in o.shape[1:] for o in operands):
        return False
    if op.type == "MatMul":
        return bool(op.attrs["transpose_a"]) and not op.attrs["transpose_b"]
    if op.type == "Sum":
        return 0 in _axes(op)
    return True


def _axes(op: Operation) -> list[int]:
    """Dimensions over which a Sum sums."""
    axes, shape = constant_value(op.inputs[1]), op.inputs[0].shape
    assert axes is not None
    assert shape is not None
    return sorted({int(a) % len(shape) for a in np.ravel(axes)}) if shape else []


# *** the change ***


def _behind(loop: LoopEditor, residuals: Residuals, s: _Sum) -> None:
    """Adds the terms of `s` after the loop instead of in it."""
    op, k = loop.op, s.k
    p = loop.body.params[k]
    parts = [_total(loop, residuals, t) for t in s.terms]
    before = op.outputs[k]
    b = loop.before(s.add)
    rest = [t for t in s.add.inputs if t is not p and t not in s.terms]
    if rest:
        left = loop.within(s.add).AddN([p, *rest], name=s.add.name)
        loop.inner.set_result(k, left)
        parts.append(before)
    else:
        loop.inner.set_result(k, p)
        if not is_zeros(op.inputs[k]):
            parts.append(op.inputs[k])
    total = parts[0] if len(parts) == 1 else b.AddN(parts[::-1], name=f"{op.name}/{p.op.name.removeprefix('arg.')}")
    loop.outer.replace(before, total)
    if rest:
        loop.outer.set_input(total.op, 0, before)


def _total(loop: LoopEditor, residuals: Residuals, t: Tensor) -> Tensor:
    """Returns the sum over all iterations of `t`, a tensor of the body."""
    op = t.op
    operands = _operands(op)
    b = loop.before(op)
    out: Tensor
    if not all(shapes.is_full(o.shape) for o in operands):
        whole = [residuals.joined(o) for o in operands]
        out = b.make(
            op.type, (*whole, *(loop.outside(x) for x in op.inputs[len(whole) :])), dict(op.attrs), op.name, op.notes
        )
    elif op.type in ("MatMul", "BatchMatMulV2"):
        side, parts = _parts(residuals, op)
        if parts:
            made = [_product(residuals, op, (p, operands[1]) if not side else (operands[0], p)) for p in parts]
            out = b.ConcatV2(made, side, name=op.name)
        else:
            out = _product(residuals, op, operands)
    else:
        values = residuals.values(operands[0]).tensor
        assert operands[0].shape is not None
        axes = _axes(op) if op.type == "Sum" else list(range(len(operands[0].shape) - 1))
        out = b.Sum(values, np.array([0, *(a + 1 for a in axes)], np.int32), name=op.name)
        if out.shape != t.shape:
            out = b.Reshape(out, np.array(t.shape, np.int32), name=f"{op.name}/shape")
    out.replace_static(t.shape, out.handle)
    return out


def _product(residuals: Residuals, op: Operation, operands: Sequence[Tensor]) -> Tensor:
    """Returns the sum over all iterations of products, as `op` computes them, of two tensors."""
    x, y = (residuals.values(o) for o in operands)
    # if the orders differ, the smaller operand is reversed
    is_backward = (y if _size(operands[0]) <= _size(operands[1]) else x).is_backward
    is_batch = op.type == "BatchMatMulV2"
    turns = ("adj_x", "adj_y") if is_batch else ("transpose_a", "transpose_b")
    flat = [
        (_flat_batch if is_batch else _flat)(residuals.loop, residuals.turned(v, is_backward), rows_first)
        for v, rows_first in ((x, op.attrs[turns[0]]), (y, not op.attrs[turns[1]]))
    ]
    out: Tensor = residuals.loop.before(op).make(op.type, flat, {turns[0]: True}, op.name)
    return out


def _parts(residuals: Residuals, op: Operation) -> tuple[int, list[Tensor]]:
    """Parts of an operand of a MatMul that need not be joined for all iterations.

    The product of each part is a part of the result.

    Returns:
      The position of the operand, and the parts; no parts if there are none, or if they are too narrow.
    """
    for side, o in enumerate(op.inputs if op.type == "MatMul" else ()):
        summed = side if op.attrs[("transpose_a", "transpose_b")[side]] else 1 - side
        if o.op.type != "ConcatV2" or not residuals.is_available(o):
            continue
        *parts, at = o.op.inputs
        axis = constant_value(at)
        if axis is None or int(axis) % 2 == summed or not all(map(residuals.is_available, parts)):
            continue
        if all(_size(p) >= thresholds.PRODUCT_PART * ((p.shape or ())[summed] or 1) for p in parts):
            return side, parts
    return 0, []


def _size(t: Tensor) -> int:
    n = shapes.size(t.shape)
    assert n is not None
    return n


def _flat(loop: LoopEditor, values: Tensor, rows_first: bool) -> Tensor:
    """Returns stacked matrices as one matrix, whose rows are the ones to sum over.

    Args:
      loop: the loop.
      values: the matrices, of shape [iterations, rows, columns].
      rows_first: whether the rows of each matrix are summed over; else its columns become rows.
    """
    b = loop.before(values.op)
    if not rows_first:
        values = b.Transpose(values, [0, 2, 1], name=f"{values.op.name}/columns")
    assert values.shape is not None
    out: Tensor = b.Reshape(values, [-1, values.shape[2]], name=f"{values.op.name}/flat")
    return out


def _flat_batch(loop: LoopEditor, values: Tensor, rows_first: bool) -> Tensor:
    """Returns stacked batches of matrices as one batch.

    The rows of its matrices are the ones to sum over.

    Args:
      loop: the loop.
      values: the batches, of shape [iterations, examples, rows, columns].
      rows_first: whether the rows of each matrix are summed over; else its columns become rows.
    """
    b = loop.before(values.op)
    turned = b.Transpose(values, [1, 0, 2, 3] if rows_first else [1, 0, 3, 2], name=f"{values.op.name}/examples")
    assert turned.shape is not None
    dims = [turned.shape[0], -1, turned.shape[3]]
    out: Tensor = b.Reshape(turned, dims, name=f"{values.op.name}/flat")
    return out
