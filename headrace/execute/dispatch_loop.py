"""Dispatch loop: the rules of `frames.Propagator` for the commonest nodes, inlined in one function.

A node of a graph over scalars does less work than a Python call costs. So this function calls pure kernels and sends
their tokens without a further call. Each rule in it is also a method of `Propagator` (`done`, `switch`, `merge`,
`dead`), and the method is its definition: a traced step runs by the methods alone, and the tests run every graph both
ways.

If a pure node makes exactly one node ready, that node fires next and skips the queue. This applies to a plain deque
only: another kind of queue chooses the next node itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.execute.blame import raise_blamed
from headrace.execute.plan import (
    COUNT_MASK,
    DEAD,
    LOOP_MERGE,
    MERGE,
    NARY,
    NEXT,
    NULLARY,
    PASS,
    RETVAL,
    SWITCH,
    UNARY,
)

if TYPE_CHECKING:
    from headrace.execute.frames import Propagator
    from headrace.execute.plan import PlanNode
    from headrace.execute.records import Iteration


def dispatch_loop(
    p: Propagator, fire: Callable[[PlanNode, Iteration, Any], object], as_predicate: Callable[[Any], bool], limit: int
) -> bool:
    """Fires up to `limit` ready nodes. Nodes of rarer kinds go to `fire`.

    Args:
      p: the state of the step.
      fire: fires a node of any kind.
      as_predicate: converts the predicate of a Switch to a Python bool, or raises.
      limit: the largest number of nodes to fire.

    Returns:
      Whether the limit was reached. False: no node is ready.

    Raises:
      BaseException: the error of a kernel, with its place in notes (`execute.blame`).
    """
    ready = p.ready
    pop, push = ready.popleft, ready.append
    settle, next_iteration, dead = p._settle, p.next_iteration, p.dead
    send_dead, dead_controls = p._send_dead, p._dead_controls
    bool_ = np.bool_
    is_plain = isinstance(ready, deque)
    node: Any = None
    only: Any = None
    value: Any = None
    it: Any = None
    x: Any = None
    try:
        for _ in repeat(None, limit):
            if only is not None:
                node, x, only = only, value, None
            elif ready:
                node, it, x = pop()
            else:
                return False
            kind = node.kind
            if kind <= NULLARY:
                if kind == PASS:
                    value = x
                elif kind == UNARY:
                    value = node.kernel(x)
                elif kind == NARY:
                    value = node.kernel(*x)
                else:
                    value = node.kernel()
                only = node.only
                if only is None or not is_plain:
                    only = None
                    for dst in node.direct:
                        push((dst, it, value))
                if node.joins:
                    values, pending = it.values, it.pending
                    for slot, i, dst in node.joins:
                        values[slot] = value
                        count = pending[i] - 1
                        pending[i] = count
                        if not count:
                            a = dst.start
                            if dst.arity == 1:
                                push((dst, it, values[a]))
                                values[a] = None
                            else:
                                push((dst, it, values[a : dst.stop]))
                                values[a : dst.stop] = dst.blank
                        elif not count & COUNT_MASK:
                            p._join_dead(dst, it)
                if node.merges:
                    for dst, k in node.merges:
                        p._to_merge(dst, it, k, value)
                if node.more:
                    p._send_controls(node, it)
                left = it.left - 1
                it.left = left
                if not left:
                    settle(it.frame)
            elif kind == SWITCH:
                value, pred = x
                if type(pred) is not bool_:
                    pred = as_predicate(pred)
                outs = node.outs
                if pred:
                    dead_out, live = outs
                else:
                    live, dead_out = outs
                for dst in live.direct:
                    push((dst, it, value))
                if live.joins or live.merges:
                    p._send(live, it, value, direct=False)
                if dead_out.used:
                    origin = (node, it, bool(pred))
                    for twin in dead_out.dead_direct:
                        push((twin, it, origin))
                    if dead_out.joins or dead_out.merges or dead_out.quiet:
                        send_dead(dead_out, it, origin, direct=False)
                if node.more:
                    p._send_all_controls(node, it)
                left = it.left - 1
                it.left = left
                if not left:
                    settle(it.frame)
            elif kind == LOOP_MERGE or kind == MERGE:  # noqa: SIM109 - a tuple would be built and searched each time
                if kind == MERGE:
                    value, k = x
                else:
                    value = x
                for dst in node.direct:
                    push((dst, it, value))
                if node.joins or node.merges:
                    p._send(node.outs[0], it, value, direct=False)
                if node.more:
                    index = np.int32(k) if kind == MERGE else node.value_index[1 if it.index else 0]
                    p._send(node.outs[1], it, index)
                    p._send_controls(node, it)
                left = it.left - 1
                it.left = left
                if not left:
                    settle(it.frame)
            elif kind == NEXT:
                next_iteration(node, it, x)
            elif kind == RETVAL:
                fire(node, it, x)
            elif kind == DEAD and not node.live.acts_dead:
                live = node.live
                if live.crosses:
                    dead(node, it, x)
                    continue
                for out in live.outs:
                    for twin in out.dead_direct:
                        push((twin, it, x))
                    if out.joins or out.merges or out.quiet:
                        send_dead(out, it, x, direct=False)
                if live.gates:
                    dead_controls(live, it, x)
                left = it.left - 1
                it.left = left
                if not left:
                    settle(it.frame)
            else:
                fire(node, it, x)
        if only is not None:
            push((only, it, value))
        return True
    except BaseException as e:
        raise_blamed(e, node, it, x)
        raise
