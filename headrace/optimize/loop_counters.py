"""Expresses the counters of a loop by one counter that goes up.

    While(t = 9, h)   t >= 0   body: t - 1, f(xs[t], h)

becomes

    While(t = 9, k = 0, h)   k < 10   body: t - 1, k + 1, f(xs[9 - k], h)

and `prune` removes `t`. The passes that follow know a loop's trip count and its rows by a counter that goes up
(`ir.analysis.trip_count`, `loop_row_reads`). So a loop that counts down (`foldr`, `scan` with `reverse`) is the same
loop as one that counts up. The gradient of such a loop counts up from the last value, while another counter of it
counts the iterations: that value is expressed by the other counter, too.

The first value of a counter must be known, and that of each counter with which it is compared. All values of the new
counter must be numbers of its dtype, so that no number wraps around.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace import dtypes
from headrace.ir import walk
from headrace.ir.analysis.trip_count import trip_count
from headrace.ir.builder import Builder
from headrace.ir.edit.editor import Editor
from headrace.ir.function import base_name
from headrace.ir.infer import scalar_value
from headrace.ir.op_roles import MIRRORED
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.loop_counts import look_again
from headrace.optimize.loop_editor import LoopEditor, loops_of
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor

_RULE = "loop_counters"


class UnifyCounters(Pass):
    """Pass that expresses counters by one counter that goes up."""

    name = _RULE
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        changed = False
        for op in loops_of(graph, context, replaces_results=True):
            if _unify(LoopEditor(op, context), context):
                changed = True
                look_again(graph)  # a result of the loop is a constant now
        return changed


@record(frozen=True, slots=True)
class _Counter:
    """An integer loop variable that changes by 1 or -1 in each iteration.

    Attributes:
      k: its position.
      first: its value in the first iteration.
      step: 1 or -1.
    """

    k: int
    first: int
    step: int


def _unify(loop: LoopEditor, context: PassContext) -> bool:
    counters = {c.k: c for k in range(len(loop.op.inputs)) if (c := _counter(loop, k)) is not None}
    changed = _turn(loop, counters, context)
    known = trip_count(loop.op)
    main = next((counters[b.counter] for b in known.bounds if b.counter in counters), None) if known else None
    if known is None or main is None:
        return changed
    for c in counters.values():
        if c.k in {b.counter for b in known.bounds}:
            continue  # `loop_counts` replaces its last value
        changed |= _replace_last(loop, c, known.count, context)
        if c.k != main.k and _express(loop, c, main):
            context.fired(_RULE, loop.op, f"variable {c.k} is computed from the counter, variable {main.k}")
            changed = True
    return changed


def _replace_last(loop: LoopEditor, c: _Counter, count: int | None, context: PassContext) -> bool:
    """Replaces the value of counter `c` after the loop, of `count` iterations, by a constant."""
    last = loop.op.outputs[c.k]
    if count is None or not loop.outer.is_used(last):
        return False
    dtype = last.dtype.base
    number = np.asarray(c.first + c.step * count).astype(dtype.numpy)
    loop.outer.replace(last, loop.before(loop.op).const(number, dtype, f"{loop.op.name}/last"))
    context.fired(_RULE, loop.op, f"variable {c.k} is {number} after the loop")
    return True


def _counter(loop: LoopEditor, k: int) -> _Counter | None:
    """Returns variable `k` as a counter, or None."""
    p, add = loop.body.params[k], loop.body.results[k].op
    sign = add.opdef.facts.sum_sign
    first = scalar_value(loop.op.inputs[k])
    if p.dtype.base not in (dtypes.int32, dtypes.int64) or p.shape != () or not sign or first is None:
        return None
    if not loop.is_movable(add):
        return None
    x, y = add.inputs
    other = y if x is p else x if sign > 0 and y is p else None
    by = None if other is None else scalar_value(other)
    return _Counter(k, first, sign * by) if by in (1, -1) else None


# *** the condition ***


def _turn(loop: LoopEditor, counters: dict[int, _Counter], context: PassContext) -> bool:
    """Makes the condition compare counters that go up."""
    edit, changed = Editor(loop.cond), False
    for op in walk.in_order(loop.cond.operations):
        found = _compared(loop, counters, op)
        if found is None:
            continue
        down, trips = found
        p = loop.body.params[down.k]
        if op.control_inputs or "_class" in op.attrs or op.device != loop.op.device:
            context.refused(_RULE, op, "it waits, or asks for another device than the loop")
            continue
        up = next((c for c in counters.values() if c.step > 0 and loop.body.params[c.k].dtype is p.dtype), None)
        if (0 if up is None else up.first) + trips > np.iinfo(p.dtype.base.numpy).max:
            context.refused(_RULE, op, "a counter that goes up would wrap around")
            continue
        if up is None:
            up = _added(loop, p)
            counters[up.k] = up
        b = Builder(loop.cond, device=op.device, source=op.source)
        limit = b.const(np.asarray(up.first + trips, p.dtype.base.numpy), p.dtype.base, f"{op.name}/limit")
        less = b.Less(loop.cond.params[up.k], limit, name=op.name)
        edit.replace(op.outputs[0], less)
        context.fired(_RULE, op, f"compares variable {up.k}, which goes up, with {up.first + trips}")
        changed = True
    if changed:
        edit.sweep()
    return changed


def _compared(loop: LoopEditor, counters: dict[int, _Counter], op: Operation) -> tuple[_Counter, int] | None:
    """Returns the downward counter that `op` compares, and its number of iterations, or None."""
    relation = op.opdef.facts.compares
    if relation is None or relation == "==":
        return None
    x, y = op.inputs
    if _position(loop, x) not in counters:
        x, y, relation = y, x, MIRRORED[relation]
    k, limit = _position(loop, x), _number(loop, y)
    down = None if k is None else counters.get(k)
    if down is None or down.step > 0 or limit is None or relation in ("<", "<="):
        return None
    trips = down.first - limit + (relation == ">=")
    if relation == "!=" and trips < 0:  # the counter moves away from the limit
        return None
    if relation == ">=" and limit == np.iinfo(x.dtype.base.numpy).min:  # always true
        return None
    return down, max(0, trips)


def _position(loop: LoopEditor, t: Tensor) -> int | None:
    """Position of the variable whose parameter in the condition is `t`, or None."""
    k: int | None = t.op.attrs["index"] if t.op.type == "_Arg" else None
    return k


def _number(loop: LoopEditor, t: Tensor) -> int | None:
    """Returns the known number that `t`, of the condition, is in all iterations, or None."""
    k = _position(loop, t)
    return scalar_value(t) if k is None else scalar_value(loop.op.inputs[k]) if loop.is_constant(k) else None


def _added(loop: LoopEditor, like: Tensor) -> _Counter:
    """Adds a counter from 0 up, of the dtype of `like`."""
    k, dtype = len(loop.op.inputs), like.dtype.base
    add = loop.body.results[like.op.attrs["index"]].op
    name = f"{base_name(like)}_up"
    first = loop.before(add).const(np.zeros((), dtype.numpy), dtype, f"{loop.op.name}/{name}")
    param, _ = loop.variable(first, name)
    b = loop.within(add)
    loop.set_next(k, b.AddV2(param, b.const(np.ones((), dtype.numpy), dtype), name=f"{name}/next"))
    return _Counter(k, 0, 1)


# *** the body ***


def _express(loop: LoopEditor, c: _Counter, main: _Counter) -> bool:
    """Computes counter `c`, and its next value, from the counter `main`."""
    changed = False
    p, r = loop.body.params[c.k], loop.body.results[c.k]
    for t, first in ((p, c.first), (r, c.first + c.step)):
        readers = dict.fromkeys(op for op, _ in loop.inner.uses.get(t, ()) if op is not r.op)
        results = [k for k, other in enumerate(loop.body.results) if other is t and k != c.k]
        if not readers and not results:
            continue
        value = _value(loop, c, main, first, base_name(t))
        for op in readers:
            loop.inner.set_inputs(op, [value if x is t else x for x in op.inputs])
        for k in results:
            loop.inner.set_result(k, value)
        changed = True
    return changed


def _value(loop: LoopEditor, c: _Counter, main: _Counter, first: int, name: str) -> Tensor:
    """Returns a number that begins with `first` and changes as counter `c` does."""
    up = loop.body.params[main.k]
    dtype = loop.body.params[c.k].dtype.base
    b = loop.within(loop.body.results[c.k].op)
    name = f"{name}_by_{base_name(up)}"
    if up.dtype.base is not dtype:
        up = b.Cast(up, DstT=dtype, name=f"{name}/cast")
    offset = np.asarray(first - c.step * main.first).astype(dtype.numpy)
    made: Tensor = up
    if c.step < 0:
        made = b.Sub(offset, up, name=name)
    elif offset:
        made = b.AddV2(up, offset, name=name)
    return made
