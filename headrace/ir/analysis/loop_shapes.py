"""Shapes in a graph that was made as a whole (imported, parsed), where loops lead backwards.

An operation's shapes follow from its inputs' shapes, so operations are looked at in the order in which they depend on
one another. In a loop that order has no beginning: what the loop's Merge gives depends on what the body makes of it.
`infer_all` starts with what is known to be true of iteration 0, that the Merge gives what enters, and looks at the
body; if the body then hands a less certain shape to the next iteration, the Merge's shape becomes what covers both, and
what depends on it is looked at again. What has not settled after a few rounds is called unknown. So the shape of a loop
variable never claims more than every iteration delivers, and the work is linear.
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
      ops: in an order in which each comes after those it takes inputs from, but for the back edges of loops. The inputs
        of the first may come from other operations, whose shapes are known already.

    Raises:
      ShapeError: the inputs of an operation cannot go together.
    """
    merges = [op for op in ops if op.opdef.primitive == "Merge" and any(walk.is_back_edge(t.op, op) for t in op.inputs)]
    if not merges:
        for op in ops:
            infer_shapes(op)
        return
    try:
        _settle(ops, merges)
    except ShapeError:
        # The shapes of iteration 0 do not suit some operation. It may be one that iteration 0 never comes to (it stands
        # in a branch), so that says nothing yet. Where nothing is supposed of any loop variable, as TensorFlow does, it
        # must fit.
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
    """Makes the Merge's shape cover what the back edges bring; whether that changed it."""
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
    """Infers again what depends on `changed` (Merges whose shapes were set), or everything but them."""
    done = frozenset(changed)
    touched = set(changed)
    for op in ops:
        if op not in done and (everything or any(t.op in touched for t in op.inputs)):
            touched.add(op)
            for t in op.outputs:
                t._constant = graphs._unset  # the value of Shape(x), say, was found from a shape that no longer holds
                t.replace_static(t.static_shape, None)
            infer_shapes(op)
