"""Trip counts of the loops of a primitive graph, where the graph determines them.

A loop that counts from one number to another is found by its form:

    LoopCond(Less(Merge(Enter(start), NextIteration(AddV2(Switch(...), step))), end))

The same with a decreasing counter, or with the operands exchanged. `ir.analysis.trip_count` does this for the
structured form. This module does it for the primitive form, for estimates only, so it need not be exact and looks
farther. The loop of a gradient ends at the final value of the forward loop's counter. In the graph this is the output
of an Exit, or, for an inner loop, an element of a list of counts; the module follows both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace import thresholds
from headrace.ir.infer import scalar_value
from headrace.ir.op_roles import MIRRORED

if TYPE_CHECKING:
    from headrace.ir.analysis.frames import Frame, FrameTree
    from headrace.ir.graph import Operation, Tensor


class PrimitiveTripCounts:
    """Trip counts of the loops of `tree`.

    Args:
      tree: the frames.
      known: frame → measured trip count.
    """

    def __init__(self, tree: FrameTree, known: Mapping[str, float]) -> None:
        self._tree = tree
        self._counts: dict[str, float | None] = dict(known)

    def count(self, frame: Frame) -> float | None:
        """Trip count of the loop of `frame` for each entry, or None."""
        if frame.name not in self._counts:
            self._counts[frame.name] = None  # a loop that waits for its own end has no trip count
            if frame.loop_cond is not None:
                self._counts[frame.name] = self._until(frame.loop_cond.inputs[0])
        return self._counts[frame.name]

    def _until(self, pred: Tensor) -> float | None:
        """Trip count of a loop with this predicate."""
        op = _origin(pred).op
        if op.type == "LogicalAnd":
            return min((n for t in op.inputs if (n := self._until(t)) is not None), default=None)
        relation = op.opdef.facts.compares
        if relation is None or relation in ("==", "!="):
            return None
        x, y = op.inputs
        counter = self._counter(_origin(x).op)
        if counter is None:
            relation, x, y = MIRRORED[relation], y, x
            counter = self._counter(_origin(x).op)
        end = self._value(y)
        if counter is None or end is None:
            return None
        start, step = counter
        distance = end - start
        if relation in (">", ">="):
            step, distance = -step, -distance
        if step <= 0:
            return None
        last = relation in ("<=", ">=") and distance % step == 0
        return max(0.0, -(-distance // step) + last)

    def _counter(self, merge: Operation) -> tuple[float, float] | None:
        """Initial value of the loop variable of `merge`, and its change in each iteration."""
        into = [t for t in merge.inputs if t.op.opdef.primitive == "Enter"]
        again = [t for t in merge.inputs if t.op.opdef.primitive == "NextIteration"]
        if merge.opdef.primitive != "Merge" or len(into) != 1 or len(again) != 1:
            return None
        start, new = self._value(into[0]), _origin(again[0]).op
        sign = new.opdef.facts.sum_sign
        if start is None or not sign:
            return None
        for k in (0, 1) if sign > 0 else (0,):
            step, old = self._value(new.inputs[1 - k]), _origin(new.inputs[k]).op
            if step and old.opdef.primitive == "Switch" and _origin(old.inputs[0]).op is merge:
                return start, sign * step
        return None

    def _value(self, t: Tensor, depth: int = thresholds.PLACED_TRIPS_DEPTH) -> float | None:
        """Value of `t` if it is known; at most `depth` nested additions are followed."""
        t = _origin(t)
        op = t.op
        sign = op.opdef.facts.sum_sign
        if sign:
            x, y = [self._value(i, depth - 1) if depth else None for i in op.inputs]
            return None if x is None or y is None else x + sign * y
        if op.opdef.primitive == "Exit":
            counter, n = self._counter(_merge(op)), self.count(self._tree.of(op))
            return None if counter is None or n is None else counter[0] + counter[1] * n
        if op.opdef.list_kind == "pop" and t.index == 1:
            pushed = _pushed(op.inputs[0])
            return None if pushed is None else self._value(pushed)
        value = scalar_value(t)
        return None if value is None else float(value)


def _origin(t: Tensor) -> Tensor:
    """Tensor that Identities, NextIterations and Enters pass on as `t`."""
    while t.op.opdef.primitive in ("NextIteration", "Enter") or t.op.opdef.facts.forwards == 0:
        t = t.op.inputs[0]
    return t


def _merge(op: Operation) -> Operation:
    """Merge of the loop variable of the Exit `op`; for other values their source."""
    op = _origin(op.inputs[0]).op
    return _origin(op.inputs[0]).op if op.opdef.primitive == "Switch" else op


def _pushed(handle: Tensor) -> Tensor | None:
    """Tensor that a loop pushes into the list `handle`, which another loop pops."""
    seen: set[Tensor] = set()
    while handle not in seen:
        seen.add(handle)
        op = handle.op
        if op.opdef.list_kind == "push":
            return op.inputs[1]
        if op.opdef.primitive == "Exit":
            handle = next((t for t in _merge(op).inputs if t.op.opdef.primitive == "NextIteration"), handle)
        elif op.opdef.primitive == "Merge":
            handle = next((t for t in op.inputs if t.op.opdef.primitive == "Enter"), handle)
        elif op.opdef.primitive in ("Switch", "Enter", "NextIteration") or op.opdef.facts.forwards == 0:
            handle = op.inputs[0]
    return None
