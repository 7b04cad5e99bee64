"""Makes effects explicit: afterwards no data edge implies that, or when, an effect happens.

An operation waits for the producers of its inputs and for its control inputs. Every effect that it reaches along such
edges happens, and happens before it, over a path of any length:

    a = AssignVariableOp(v, x)
    k = Identity(x) ^a
    n = Shape(k)                       # does not depend on the values of k
    w = Print(n, n)                    # prints after the assignment

Passes remove data edges (`n` is a constant if the shape of `x` is known). With the edge the assignment would be removed
too, or its order lost. To spare every pass this question, this pass states the effects once, in each graph of a step:

* *That* an effect happens: after dead code is removed, everything left is reached. So each operation with an effect
  must run: it becomes a `control_result` of its graph, or is added to the preserved operations of the step
  (`PassContext.preserved`). An operation that owns graphs has an effect if any operation in them has one.
* *When* it happens: an operation with an effect gets a control edge from each operation with an effect that it reaches.
  It also gets one from each operation that it reaches and that reads the state which it writes. An operation that reads
  state gets an edge from each operation with an effect that it reaches. An edge that follows from other edges, by way
  of such operations and of NoOps alone, is not added.

Operations that own graphs wait as a whole. Compiled steps run them in this way, one after the other, so the pass is for
steps in which nothing blocks (`compile.blockers`). Within a graph of a loop, the order from one iteration to the next
is that of the iterations.

The state of a random operation is private: no other operation can observe when it draws. It must run, and has no order.

Source: TensorFlow 1's executor, which runs every operation that the fetches reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace import thresholds
from headrace.ir.edit.editor import Editor
from headrace.ir.function import inside_out
from headrace.ir.graph import FuncGraph
from headrace.ir.order import effects
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.dead_code import remove_dead
from headrace.optimize.effect_sets import EffectSets
from headrace.optimize.lowered_effects import make_lowered_effects_explicit
from headrace.optimize.queries import has_effect, in_order, is_draw, primitives, references

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation


class Effects(Pass):
    """Pass that adds control edges and control results for effects."""

    name = "effects"
    whole = True
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        context.explicit = False
        changed = remove_dead(graph, context)
        if context.options.is_lowered:
            return make_lowered_effects_explicit(graph, context) or changed
        for g in inside_out(graph):
            if primitives(g):
                continue
            changed |= _make_explicit(g, context)
        context.explicit = True
        return changed


def _make_explicit(graph: Graph, context: PassContext) -> bool:
    acting = {op for op in graph.operations if has_effect(op)}
    if not acting:
        return False
    must = [op for op in graph.operations if op in acting]
    if isinstance(graph, FuncGraph):
        known = len(graph.control_results)
        graph.set_control_results(dict.fromkeys([*graph.control_results, *must]))
        changed = len(graph.control_results) > known
    else:
        known = len(context.preserved)
        context.preserved = list(dict.fromkeys([*context.preserved, *must]))
        changed = len(context.preserved) > known
    return _Ordering(graph, acting).run() or changed


class _Ordering:
    """Adds the control edges of one graph; sets of operations are those of `EffectSets`."""

    def __init__(self, graph: Graph, acting: set[Operation]) -> None:
        self._graph = graph
        self._edit = Editor(graph)
        self._acting = {op for op in acting if op.opdef.facts.effect != "random"}
        self._sets: EffectSets[Operation] = EffectSets()
        self._joined: dict[int, Operation] = {}
        self._order: list[Operation] = []

    def run(self) -> bool:
        """Adds the missing control edges; returns whether there were any."""
        sets = self._sets
        before: dict[Operation, int] = {}  # for each operation, the operations that it comes after
        explicit: dict[Operation, int] = {}  # those of them that control edges between operations with effects imply
        acts = reads = 0
        changed = False
        for op in list(in_order(self._graph)):
            reached = said = 0
            for t in op.inputs:
                maker = t.op
                reached |= before[maker] | sets.bit(maker)
                if (
                    maker in self._acting and not op.opdef.structured
                ):  # no pass removes either operation, nor the edge between them
                    said |= explicit[maker] | sets.bit(maker)
            for c in op.control_inputs:
                reached |= before[c] | sets.bit(c)
                if c in sets or c.type == "NoOp":
                    said |= explicit[c] | sets.bit(c)
            is_acting = op in self._acting
            touched = effects(op) if op.opdef.structured or op.opdef.facts.effect else references(op)
            if is_acting or not all(map(is_draw, touched)):
                wanted = reached & acts
                if is_acting:
                    wanted |= sets.conflicting(reached & reads, touched)
                missing = wanted & ~said
                if missing:
                    changed = True
                    self._add(op, missing, explicit)
                    said |= wanted
                sets.touched[op] = touched
                if is_acting:
                    acts |= sets.add(op)
                else:
                    reads |= sets.add(op)
            before[op], explicit[op] = reached, said
            self._order.append(op)
        if self._joined:
            self._edit.arrange(self._order)
        return changed

    def _add(self, op: Operation, missing: int, explicit: dict[Operation, int]) -> None:
        """Makes `op` wait for all of `missing`, with as few edges as possible.

        The latest operation gets an edge. Those that it implies need none. The same is repeated for the rest.
        """
        edges = []
        left = missing
        while left:
            last = self._sets.last(left)
            left &= ~(self._sets.bit(last) | explicit[last])
            edges.append(last)
        if len(edges) > thresholds.EFFECT_EDGES:
            edges = [self._join(missing, edges)]
        self._edit.add_controls(op, edges)

    def _join(self, missing: int, edges: Sequence[Operation]) -> Operation:
        """Returns a NoOp that waits for `edges`, the same for equal sets `missing`."""
        join = self._joined.get(missing)
        if join is None:
            name = self._graph.unique_name("effects")
            join = self._joined[missing] = self._graph.add_op("NoOp", name, (), {}, edges)
            self._order.append(join)
        return join
