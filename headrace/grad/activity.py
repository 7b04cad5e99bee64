"""Activity analysis: the tensors through which a derivative can flow from inputs to outputs.

A gradient is made only where derivatives can flow. A loop variable needs none if no x reaches it, or if it reaches no
y. The analysis runs before any gradient is made.

Sets of tensors are bits of an integer: each tensor has the set of the sources from which derivatives flow to it. An
operation passes on the union of the sets of its inputs. Through a conditional flows what flows through any of its
branches. Around a loop the sets are propagated until a fixpoint, which takes at most as many steps as the loop has
variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.grad import registered
from headrace.grad.structured import STRUCTURED
from headrace.grad.zeros import carries
from headrace.ir import walk

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Operation, Tensor


class Activity:
    """Queries about the flow of derivatives, with a cache for graphs that do not change."""

    def __init__(self) -> None:
        self._known: dict[FuncGraph, tuple[int, list[int]]] = {}
        self._open: set[FuncGraph] = set()

    def from_sources(self, ops: Iterable[Operation], bits: dict[Tensor, int]) -> None:
        """Propagates sets of sources through `ops`.

        Args:
          ops: operations of one graph, in a topological order.
          bits: the sets of tensors, at first of the sources. The sets of all tensors that they reach are added.
        """
        for op in ops:
            ins = [bits.get(t, 0) if carries(t.dtype) else 0 for t in op.inputs]
            if any(ins):
                for t, out in zip(op.outputs, self.through(op, ins), strict=True):
                    if out and carries(t.dtype):
                        bits[t] = bits.get(t, 0) | out

    def through(self, op: Operation, ins: Sequence[int]) -> list[int]:
        """Sets of the outputs of `op`, if its inputs have the sets `ins`."""
        every = 0
        for b in ins:
            every |= b
        if not op.opdef.structured:
            return [0 if registered.stops(op) else every] * len(op.outputs)
        rules = STRUCTURED.get(op.opdef.structured)
        if rules is None or rules.flow is None:
            return [every] * len(op.outputs)
        return rules.flow(self, op, ins)

    def of(self, graph: FuncGraph) -> list[int]:
        """Parameters on which each result of `graph` may depend: bit k for parameter k."""
        known = self._known.get(graph)
        if known is not None and known[0] == graph.version:
            return known[1]
        if graph in self._open:  # a recursive call; the conservative answer is that each result depends on all
            return [(1 << len(graph.params)) - 1] * len(graph.results)
        self._open.add(graph)
        bits = {p: 1 << k for k, p in enumerate(graph.params)}
        self.from_sources(walk.in_order(walk.reachable([r.op for r in graph.results])), bits)
        self._open.discard(graph)
        out = [bits.get(r, 0) if carries(r.dtype) else 0 for r in graph.results]
        self._known[graph] = (graph.version, out)
        return out

    def through_graph(self, graph: FuncGraph, given: Sequence[int]) -> list[int]:
        """Sets of the results of `graph`, if its parameters have the sets `given`."""
        return [_together(needs, given) for needs in self.of(graph)]

    def active(self, graph: FuncGraph, reached: Iterable[int], seeded: Iterable[int]) -> set[int]:
        """Variables of a loop that need a gradient.

        Args:
          graph: the body of the loop.
          reached: the variables whose initial values depend on an x.
          seeded: the variables whose final values have gradients.
        """
        needs = self.of(graph)
        n = len(needs)
        able = {k for k in range(n) if carries(graph.params[k].dtype)}
        forth, back = set(reached) & able, set(seeded) & able
        for _ in range(n + 1):
            before = len(forth) + len(back)
            forth |= {j for j in able if any(needs[j] >> k & 1 for k in forth)}
            back |= {k for j in back for k in able if needs[j] >> k & 1}
            if len(forth) + len(back) == before:
                return forth & back
        raise AssertionError("the fixpoint iteration over the loop variables did not converge")


def _together(needs: int, given: Sequence[int]) -> int:
    """Union of the sets in `given` at the positions that are bits of `needs`."""
    out = 0
    for k, bits in enumerate(given):
        if bits and needs >> k & 1:
            out |= bits
    return out
