"""Trip counts of loops whose conditions compare a counter with a limit.

    While(i = 0, h)     condition: i < n      body: i + 1, tanh(h)

runs n iterations, independent of `h`. Two conditions must hold: the counter is a number to which the body adds 1, and
the loop's condition compares it with a value that does not change in the loop. Several such comparisons may be joined
by `LogicalAnd`, as `maximum_iterations` does. If other predicates are joined with them, the trip count is only an upper
bound.

Passes that know the trip count can compute the values that iterations read before the loop, keep the results of the
iterations in one array, write the loop as a loop over a range, or merge two such loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.ir.function import body
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import constant_value, scalar_value
from headrace.ir.op_roles import MIRRORED
from headrace.ir.order import counts, is_constant
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor


@record(frozen=True, slots=True)
class Bound:
    """Comparison in the condition of a loop: the loop continues only while `counter < limit`.

    Attributes:
      counter: the position of the loop variable that the body increments by 1, of dtype int32 or int64.
      first: the initial value of the counter, an input of the loop.
      limit: the other operand: an input of the loop, or a constant of its condition.
      position: the position of the loop constant that is the limit; None for a constant of the condition.
      is_inclusive: whether the comparison is `counter <= limit`. If the limit is the greatest number of its dtype, such
        a loop never ends, because the counter wraps around. So a limit known to be this number is no bound, and an
        unknown limit must be compared with it at run time.
    """

    counter: int
    first: Tensor
    limit: Tensor
    position: int | None
    is_inclusive: bool = False

    @property
    def count(self) -> int | None:
        """Number of iterations that the bound allows, if known statically, else None."""
        first, limit = scalar_value(self.first), scalar_value(self.limit)
        return None if first is None or limit is None else max(0, limit - first + self.is_inclusive)


@record(frozen=True, slots=True)
class TripCount:
    """Trip count of a loop: the least number of iterations that its bounds allow.

    Attributes:
      bounds: at least one bound. Bounds may have the same counter or different ones.
      is_exact: whether only the bounds can end the loop; otherwise it may end earlier.
    """

    bounds: tuple[Bound, ...]
    is_exact: bool

    @property
    def most(self) -> int | None:
        """Static upper bound of the number of iterations; None if unknown."""
        return min((b.count for b in self.bounds if b.count is not None), default=None)

    @property
    def count(self) -> int | None:
        """Number of iterations, if known statically, else None."""
        each = [b.count for b in self.bounds]
        if 0 in each:
            return 0
        return self.most if self.is_exact and None not in each else None


def trip_count(op: Operation) -> TripCount | None:
    """Returns the known part of the trip count of the While `op`, or None.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     y = hr.while_loop(lambda i: i < 5, lambda i: i + 1, [0])
      >>> trip_count(next(op for op in g.operations if op.opdef.structured == "While")).count
      5
    """
    cond, loop = body(op, op.attrs["cond"]), body(op, op.attrs["body"])
    at = {p: k for k, p in enumerate(cond.params)}
    bounds: list[Bound] = []
    is_exact, todo = True, [cond.results[0]]
    while todo:
        t = _source(todo.pop())
        if t.op.type == "LogicalAnd":
            todo += reversed(t.op.inputs)
            continue
        bound = _bound(op, loop, at, t)
        if bound is not None:
            bounds.append(bound)
        else:
            is_exact = False
    return TripCount(tuple(bounds), is_exact) if bounds else None


def _bound(op: Operation, loop: FuncGraph, at: dict[Tensor, int], t: Tensor) -> Bound | None:
    """Returns the bound that `t` states as part of the loop's condition, or None.

    Args:
      op: the While.
      loop: its body.
      at: parameter of the condition → its position.
      t: a boolean tensor of the condition.
    """
    relation = t.op.opdef.facts.compares
    if relation is None or relation == "==":
        return None
    x, y = map(_source, t.op.inputs)
    k = at.get(x)
    if k is None or not counts(loop, k):
        x, y, relation = y, x, MIRRORED[relation]
        k = at.get(x)
    if k is None or not counts(loop, k) or y.shape != () or relation in (">", ">="):
        return None
    position = at.get(y)
    if position is not None:
        if not is_constant(loop, position):
            return None
        limit = op.inputs[position]
    elif constant_value(y) is not None:
        limit = y
    else:
        return None
    first, last = op.inputs[k], scalar_value(limit)
    if relation == "<=":
        dtype = y.dtype.base.numpy
        return None if last == np.iinfo(dtype).max else Bound(k, first, limit, position, True)
    if relation == "!=":  # ends only if the counter starts at or below the limit
        start = scalar_value(first)
        if start is None or last is None or start > last:
            return None
    return Bound(k, first, limit, position)


def _source(t: Tensor) -> Tensor:
    while (k := t.op.opdef.facts.forwards) is not None and t.index == 0:
        t = t.op.inputs[k]
    return t
