"""Shape inference for a whole graph (imported, parsed), with back edges of loops.

The shapes of an operation follow from those of its inputs, so operations are visited in topological order. A loop has
no such order: the output of its Merge depends on the body, and the body depends on the Merge.

`infer_all` starts with the shape in iteration 0, in which the Merge outputs the entered value, and infers the shapes of
the body. If the body passes a less precise shape to the next iteration, the Merge gets a shape that covers both, and
the operations that depend on it are inferred again. A shape that still changes after a few rounds becomes unknown. So
the static shape of a loop variable holds in every iteration, and the work is linear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import shapes, thresholds
from headrace.errors import ShapeError
from headrace.ir import graph as graphs
from headrace.ir import walk
from headrace.ir.infer import infer_shapes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.ir.graph import Operation
    from headrace.shapes import Shape


def infer_all(ops: Sequence[Operation]) -> None:
    """Sets the shapes of the outputs of `ops`.

    Args:
      ops: the operations in an order in which each follows the producers of its inputs, without regard to the back
        edges of loops. Inputs may come from other operations, whose shapes are known already.

    Raises:
      ShapeError: the inputs of an operation do not fit together.
    """
    merges = [op for op in ops if op.opdef.primitive == "Merge" and any(walk.is_back_edge(t.op, op) for t in op.inputs)]
    if not merges:
        for op in ops:
            infer_shapes(op)
        return
    try:
        _settle(ops, merges)
    except ShapeError:
        # The shapes of iteration 0 do not fit an operation. Iteration 0 may never reach this operation (in a branch),
        # so this is not an error yet. With unknown shapes for all loop variables, as in TensorFlow, the shapes must
        # fit.
        for m in merges:
            _set(m, None)
        _infer(ops, merges, everything=True)


def _settle(ops: Sequence[Operation], merges: Sequence[Operation]) -> None:
    loops = set(merges)
    for op in ops:
        if op in loops:
            _set(op, _join([t.shape for t in op.inputs if not walk.is_back_edge(t.op, op)]))
        else:
            infer_shapes(op)
    for _ in range(thresholds.LOOP_SHAPE_ROUNDS):
        changed = [m for m in merges if _relax(m)]
        if not changed:
            return
        _infer(ops, changed)
    if any(_relax(m) for m in merges):
        for m in merges:
            _set(m, None)
        _infer(ops, merges)


def _relax(merge: Operation) -> bool:
    """Makes the Merge's shape cover those of its back edges; returns whether it changed."""
    out = merge.outputs[0]
    covering = _join([out.shape, *(t.shape for t in merge.inputs)])
    if covering == out.shape:
        return False
    _set(merge, covering)
    return True


def _join(several: Sequence[Shape]) -> Shape:
    out = several[0] if several else None
    for s in several[1:]:
        out = shapes.join(out, s)
    return out


def _set(merge: Operation, shape: Shape) -> None:
    value, index = merge.outputs
    value.replace_static(shape, value.handle)
    index.refine(())


def _infer(ops: Sequence[Operation], changed: Sequence[Operation], everything: bool = False) -> None:
    """Infers the operations again that depend on `changed`, Merges with new shapes.

    Args:
      ops: the operations, in the order of `infer_all`.
      changed: the Merges.
      everything: whether all operations but the Merges are inferred again.
    """
    done = frozenset(changed)
    touched = set(changed)
    for op in ops:
        if op not in done and (everything or any(t.op in touched for t in op.inputs)):
            touched.add(op)
            for t in op.outputs:
                t._constant = graphs._unset  # a value such as that of Shape(x) may stem from the old shape
                t.replace_static(t.static_shape, None)
            infer_shapes(op)
