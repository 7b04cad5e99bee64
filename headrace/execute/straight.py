"""The propagator for graphs without control flow: no frames, no iterations but one, nothing ever dead.

The same interface as `frames.Propagator`, and the same plan; what is left of the rules is a count for each join. Most steps,
and most partitions of larger ones, are of this kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.execute.frames import Propagator

if TYPE_CHECKING:
    from headrace.execute.frames import Iteration
    from headrace.execute.plan import Node


class StraightPropagator(Propagator):
    """See the module's text."""

    __slots__ = ()

    def done(self, node: Node, it: Iteration, value: Any) -> None:
        """`node`, which has one output, has computed `value`."""
        push = self._push
        for dst in node.direct:
            push((dst, it, value))
        if node.joins:
            values, pending = it.values, it.pending
            for slot, i, dst in node.joins:
                values[slot] = value
                p = pending[i] - 1
                pending[i] = p
                if not p:
                    a = dst.start
                    if dst.arity == 1:
                        push((dst, it, values[a]))
                        values[a] = None
                    else:
                        push((dst, it, values[a : dst.stop]))
                        values[a : dst.stop] = dst.blank
        if node.more:
            self._send_controls(node, it)
        left = it.left - 1
        it.left = left
        if not left:
            self.finished = True
