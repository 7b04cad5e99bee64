"""Inputs for which results of conditionals, loops and calls wait at any values.

In the executor the results of a structured operation are sent one by one. A result of a conditional needs no inputs of
the branches that are not taken, and a loop without iterations does not read the inputs of its body. So a result surely
waits only for

* the inputs of each branch on which it depends, if all branches have them in common, and the predicate;
* the inputs of the loop's condition, and those on which its value depends after any number of iterations; at least one
  iteration if the trip count is known to be positive;
* the inputs on which the result of the function depends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace import thresholds
from headrace.ir import walk
from headrace.ir.analysis.trip_count import trip_count
from headrace.ir.function import owned, owns_all
from headrace.ir.infer import constant_value
from headrace.ir.order import is_constant

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Operation, Tensor

_KINDS: Final = frozenset({"If", "Case", "While", "Call"})


class SureInputs:
    """Inputs that the results of structured operations surely wait for, in lowered form.

    Sets of inputs are integers; bit i is input i. The answers stay valid as long as the graphs do not change.
    """

    def __init__(self) -> None:
        self._known: dict[FuncGraph, list[int]] = {}
        self._numbers: dict[Tensor, int | None] = {}
        self._depth = 0  # additions around the current one

    def of(self, op: Operation) -> list[int]:
        """For each output of `op`, the inputs that it waits for at any values.

        Nothing is known of an operation that names functions, or of another kind than If, Case, While and Call.
        """
        if op.opdef.structured not in _KINDS or not owns_all(op):
            return [0] * len(op.outputs)
        graphs = owned(op)
        if op.opdef.structured == "While":
            return self._loop(op)
        if op.opdef.structured == "Call":
            return self._results(graphs[0])
        out = []
        for each in zip(*map(self._results, graphs), strict=True):
            both = each[0]
            for other in each[1:]:
                both &= other
            out.append(1 | both << 1)
        return out

    def _loop(self, op: Operation) -> list[int]:
        cond: FuncGraph = op.attrs["cond"]
        loop: FuncGraph = op.attrs["body"]
        (asked,) = self._results(cond)
        made = self._results(loop)
        fixed = sum(1 << k for k in range(len(made)) if is_constant(loop, k))
        once = [asked | m for m in made]  # after one iteration; below, the common part of any number of iterations
        while True:
            more = [m & (asked | made[k] & fixed | _union(once, made[k] & ~fixed)) for k, m in enumerate(once)]
            if more == once:
                break
            once = more
        is_entered = bool(self._trip_count(op))
        out = []
        for k, m in enumerate(once):
            if fixed >> k & 1:
                out.append(1 << k)
            else:
                out.append(m if is_entered else asked | m & 1 << k)
        return out

    def _trip_count(self, op: Operation) -> int | None:
        """Number of iterations of the loop `op`, if it is known."""
        counted = trip_count(op)
        if counted is None or not counted.is_exact:
            return None
        least: list[int] = []
        for bound in counted.bounds:
            first, limit = self._number(bound.first), self._number(bound.limit)
            if first is None or limit is None:
                return None
            least.append(max(0, limit - first + bound.is_inclusive))
        return min(least)

    def _number(self, t: Tensor) -> int | None:
        """Value of the integer scalar `t`, if known, as a constant or a loop's counter."""
        if t not in self._numbers:
            self._numbers[t] = None
            self._numbers[t] = self._found(t)
        return self._numbers[t]

    def _found(self, t: Tensor) -> int | None:
        op, value = t.op, constant_value(t)
        if value is not None:
            return int(value) if value.shape == () and value.dtype.kind == "i" else None
        if op.opdef.structured == "While":
            counted, n = trip_count(op), self._trip_count(op)
            first = self._number(op.inputs[t.index])
            counts = counted is not None and any(b.counter == t.index for b in counted.bounds)
            return first + n if counts and first is not None and n is not None else None
        sign = op.opdef.facts.sum_sign
        if not sign or t.shape != () or self._depth >= thresholds.OUTLINED_TRIPS_DEPTH:
            return None
        self._depth += 1
        x, y = map(self._number, op.inputs)
        self._depth -= 1
        return None if x is None or y is None else x + sign * y

    def _results(self, graph: FuncGraph) -> list[int]:
        """For each result of `graph`, the parameters that it waits for."""
        known = self._known.get(graph)
        if known is not None:
            return known
        at: dict[Tensor, int] = {p: 1 << i for i, p in enumerate(graph.params)}
        after: dict[Operation, int] = {}
        for op in walk.in_order(walk.reachable([t.op for t in graph.results])):
            controls = 0
            for c in op.control_inputs:
                controls |= after[c]
            each = [at[t] for t in op.inputs]
            made = self.of(op) if op.opdef.structured else [(1 << len(each)) - 1] * len(op.outputs)
            after[op] = controls
            for t, inputs in zip(op.outputs, made, strict=True):
                at.setdefault(t, controls | _union(each, inputs))
                after[op] |= at[t]
        known = self._known[graph] = [at[r] for r in graph.results]
        return known


def _union(sets: Sequence[int], which: int) -> int:
    """Union of those of `sets` whose bits are set in `which`."""
    out = 0
    for i, s in enumerate(sets):
        if which >> i & 1:
            out |= s
    return out
