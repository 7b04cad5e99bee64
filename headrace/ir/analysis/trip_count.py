"""How often a loop goes round, where its condition says so: loops that count.

    While(i = 0, h)     condition: i < n      body: i + 1, tanh(h)

goes round n times, whatever `h` becomes; for that its counter must be a number to which the body adds 1 and the
condition must be a comparison of it with something that does not change meanwhile, or several such comparisons joined
by `LogicalAnd`, as `maximum_iterations` makes them. If other things are joined with it the loop goes round *at most* so
often.

Who knows this can compute before the loop what each iteration will read, keep what each one leaves in one array, write
the loop as one over a range, or run two such loops as one.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from headrace.ir.function import body
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import constant_value, scalar_value
from headrace.ir.op_roles import MIRRORED
from headrace.ir.order import counts, is_constant

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """One comparison that the condition of a loop makes: the loop goes round while `counter < limit`.

    Attributes:
      counter: the position of the variable that counts, by 1, in int32 or int64.
      first: what it begins with, an input of the loop.
      limit: what it is compared with: an input of the loop, or a constant of its condition.
      position: the position of the loop constant that is the limit; None: a constant of the condition.
      is_inclusive: it is `counter <= limit`. Of the greatest number of its dtype such a loop would never end, the
        counter wraps around; a limit known to be that is no bound, one that is not known must be looked at.
    """

    counter: int
    first: Tensor
    limit: Tensor
    position: int | None
    is_inclusive: bool = False

    @property
    def count(self) -> int | None:
        """How many iterations it allows, if that is known while the graph is built."""
        first, limit = scalar_value(self.first), scalar_value(self.limit)
        return None if first is None or limit is None else max(0, limit - first + self.is_inclusive)


@dataclasses.dataclass(frozen=True, slots=True)
class TripCount:
    """How often a loop goes round: as often as the least of its bounds allows.

    Attributes:
      bounds: at least one, each by a counter of its own or by the same.
      is_exact: nothing else can end it; else it may end before.
    """

    bounds: tuple[Bound, ...]
    is_exact: bool

    @property
    def most(self) -> int | None:
        """More often it does not go round, as far as that is known while the graph is built."""
        return min((b.count for b in self.bounds if b.count is not None), default=None)

    @property
    def count(self) -> int | None:
        """How often it goes round, if that is known while the graph is built."""
        each = [b.count for b in self.bounds]
        if 0 in each:
            return 0
        return self.most if self.is_exact and None not in each else None


def trip_count(op: Operation) -> TripCount | None:
    """What is known of how often the While `op` goes round; None: nothing.

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
    """The bound that `t`, a tensor of the condition of `op`, states if it is to hold."""
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
    if relation == "!=":  # it ends if it begins below
        start = scalar_value(first)
        if start is None or last is None or start > last:
            return None
    return Bound(k, first, limit, position)


def _source(t: Tensor) -> Tensor:
    while (k := t.op.opdef.facts.forwards) is not None and t.index == 0:
        t = t.op.inputs[k]
    return t
