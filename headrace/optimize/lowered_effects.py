"""Makes effects explicit in a step whose conditionals, loops and calls run part by part.

`effects` lets a structured operation wait, and be waited for, as a whole. A compiled step runs in this way. In the
executor each operation in a branch or body starts when its own inputs are available, and each result is sent on its
own. A control edge that makes more of it wait could delay the operation that ends the wait: the step would hang. So
this module adds only edges that hold already, because a path of edges implies them at any values (`SureInputs`):

* An operation with an effect waits for the operations with effects that it reaches, as in `effects`.
* A result of a conditional, loop or call with effects inside stands for all effects that it reaches. The operation that
  waits for it has a control edge from an Identity of this result, or reads it directly.
* An input of such an operation that reaches effects passes through an Identity with control edges from them. Inside,
  the operations with effects that reach the parameter wait for the parameter. A result that reaches effects or such
  parameters passes through an Identity with control edges from them.

So the order of two iterations is explicit, too: an effect that reaches the value of a loop variable is before the
effects of the next iteration that reach the variable. Order between effects that holds for some values of a predicate
or trip counts only is left to the data edges.

An operation with an effect that a path reaches must run. In the step itself and in the graphs of conditionals and calls
this is stated as in `effects`. In a loop's graphs it follows from the edges, because a control result would wait for
those of the previous iteration.

Passes keep these edges as they keep all control edges, and do not replace results of operations with effects inside
(`PassContext.has_parts`).

Source: TensorFlow 1's executor, and its parallel iterations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from headrace import dtypes
from headrace.ir.analysis.sure_inputs import SureInputs
from headrace.ir.edit.editor import Editor
from headrace.ir.function import owned, owns_all, param_offset
from headrace.ir.graph import FuncGraph, Operation, Tensor
from headrace.ir.order import effects
from headrace.optimize.effect_sets import EffectSets
from headrace.optimize.queries import acts, in_order, is_draw, primitives, references

if TYPE_CHECKING:
    from headrace.ir.graph import Graph
    from headrace.optimize.base import PassContext

# an operation with an effect, a parameter that reaches effects, or a result of a structured operation with effects
_Item: TypeAlias = "Operation | Tensor"


def make_lowered_effects_explicit(graph: Graph, context: PassContext) -> bool:
    """Adds control edges and Identities to `graph` and its nested graphs.

    Returns:
      Whether anything was added.
    """
    changed = False
    todo: list[tuple[Graph, frozenset[Tensor], bool]] = [(graph, frozenset(), False)]
    while todo:
        g, relevant, is_in_loop = todo.pop()
        ordering = _Ordering(g, relevant)
        changed |= ordering.run()
        if not is_in_loop:
            # the step ends when all its operations have run, so nothing waits for a part because of this
            parts = () if isinstance(g, FuncGraph) else ordering.parts
            changed |= _state(g, [*ordering.must, *parts], context)
        for op in ordering.parts:
            if owns_all(op) and not any(map(primitives, owned(op))):
                is_loop = op.opdef.structured not in ("If", "Case", "Call")
                todo += [(f, _relevant(op, f, ordering), is_loop) for f in owned(op)]
    return changed


def _state(graph: Graph, must: Collection[Operation], context: PassContext) -> bool:
    """States that the operations `must` have to run; returns whether this was new."""
    if not isinstance(graph, FuncGraph):
        known = len(context.preserved)
        context.preserved = list(dict.fromkeys([*context.preserved, *must]))
        return len(context.preserved) > known
    known = len(graph.control_results)
    graph.set_control_results(dict.fromkeys([*graph.control_results, *must]))
    return len(graph.control_results) > known


def _relevant(op: Operation, graph: FuncGraph, ordering: _Ordering) -> frozenset[Tensor]:
    """Parameters of `graph`, which `op` owns, whose values come after effects."""
    offset = param_offset(op)
    some = {k for k, t in enumerate(op.inputs[offset:]) if ordering.effects_of(t)}
    if op.opdef.structured == "While":
        body: FuncGraph = op.attrs["body"]
        while True:  # the values of the next iteration
            inner = _Ordering(body, frozenset(body.params[k] for k in some))
            inner.look()
            more = {k for k, r in enumerate(body.results) if inner.effects_of(r)}
            if more <= some:
                break
            some |= more
    return frozenset(p for k, p in enumerate(graph.params) if k in some)


class _Ordering:
    """Adds the edges of one graph.

    Sets of items are those of `EffectSets`.

    Args:
      graph: the graph.
      relevant: parameters whose values come after effects outside of the graph, or in the previous iteration.

    Attributes:
      reached: for each tensor of the graph, the items for which it surely waits.
      parts: structured operations with effects inside.
      must: operations that must run.
    """

    def __init__(self, graph: Graph, relevant: Collection[Tensor]) -> None:
        self.reached: dict[Tensor, int] = {}
        self.parts: list[Operation] = []
        self.must: dict[Operation, None] = {}
        self._graph, self._relevant = graph, relevant
        self._edit = Editor(graph)
        self._sure = SureInputs()
        self._after: dict[Operation, int] = {}  # items for which a control edge from an operation waits
        self._firm: dict[_Item, int] = {}  # items for which edges that no pass removes make it wait
        self._sets: EffectSets[_Item] = EffectSets()
        self._reads = 0
        self._anchors: dict[Tensor, Operation] = {}
        self._wraps: dict[Tensor, Tensor] = {}
        self._order: list[Operation] = []
        self._is_looking = False
        self._changed = False

    def look(self) -> None:
        """Computes `reached` without adding edges."""
        self._is_looking = True
        self.run()

    def effects_of(self, t: Tensor) -> int:
        """Items that `t` reaches, without those that only read state."""
        return self.reached[t] & ~self._reads

    def run(self) -> bool:
        """Adds the missing edges; returns whether there were any."""
        for op in list(in_order(self._graph)):
            if op.opdef.structured:
                self._structured(op)
            elif op.type == "_Arg" and op.outputs[0] in self._relevant:
                self._add_item(op, op, 0, 0)
            else:
                self._plain(op)
            self._order.append(op)  # after the Identities that were added for it
        if isinstance(self._graph, FuncGraph) and not self._is_looking:
            results = [self._settled(r) for r in self._graph.results]
            if results != self._graph.results:
                self._graph.set_results(results)
        if self._changed:
            self._edit.arrange(self._order)
        return self._changed

    # *** operations ***

    def _plain(self, op: Operation) -> None:
        reached = self._union(self.reached[t] for t in op.inputs) | self._union(
            self._after[c] for c in op.control_inputs
        )
        said = self._union(self._firm.get(c, 0) for c in op.control_inputs)
        is_acting = acts(op)
        touched = effects(op) if op.opdef.facts.effect else references(op)
        is_reading = not is_acting and not all(map(is_draw, touched))
        if is_acting or is_reading:
            said |= self._union(self._firm.get(self._source(t), 0) for t in op.inputs if is_acting)
            wanted = reached & ~self._reads
            if is_acting:
                wanted |= self._sets.conflicting(reached & self._reads, touched)
            self._wait(op, wanted & ~said)
            self._sets.touched[op] = touched
            self._add_item(op, op, reached, wanted | said)
            if is_acting:
                self.must[op] = None
            else:
                self._reads |= self._sets.bit(op)
            return
        if op.type == "_Retval" and not self._is_looking:
            firm = self._firm.get(self._source(op.inputs[0]), 0)
            for item in self._sets.members(self.effects_of(op.inputs[0]) & ~firm):
                if isinstance(item, Tensor):
                    self.must[self._end(item)] = None
        self._set(op, reached)
        if op.type == "Identity" and op.inputs[0] in self._sets:
            said |= self._firm[op.inputs[0]]
            if not op.control_inputs:
                self._anchors.setdefault(op.inputs[0], op)
        self._firm[op] = said

    def _structured(self, op: Operation) -> None:
        controls = self._union(self._after[c] for c in op.control_inputs)
        is_part = acts(op)
        if is_part:
            self.parts.append(op)
            if not self._is_looking:
                for i, t in enumerate(op.inputs):
                    self._edit.set_input(op, i, self._settled(t))
        after = controls
        for t, positions in zip(op.outputs, self._sure.of(op), strict=True):
            reached = controls | self._union(self.reached[x] for i, x in enumerate(op.inputs) if positions >> i & 1)
            if is_part:
                self._add_item(t, op, reached, reached)
            self.reached[t] = reached | self._sets.bit(t)
            after |= self.reached[t]
        self._after[op] = after

    def _set(self, op: Operation, reached: int) -> None:
        self._after[op] = reached
        for t in op.outputs:
            self.reached[t] = reached

    def _add_item(self, item: _Item, op: Operation, reached: int, firm: int) -> None:
        self._firm[item] = firm | self._sets.add(item)
        if isinstance(item, Operation):
            self._set(op, reached | self._sets.bit(item))

    @staticmethod
    def _source(t: Tensor) -> _Item:
        """Item or operation that makes `t`."""
        return t if t.op.opdef.structured else t.op

    @staticmethod
    def _union(sets: Iterable[int]) -> int:
        out = 0
        for s in sets:
            out |= s
        return out

    # *** edges ***

    def _wait(self, op: Operation, missing: int) -> None:
        """Adds control edges to `op` from the items `missing`, with as few edges as possible."""
        if missing and not self._is_looking:
            self._edit.add_controls(op, self._edges(missing))
            self._changed = True

    def _edges(self, missing: int) -> list[Operation]:
        edges = []
        while missing:
            last = self._sets.last(missing)
            missing &= ~self._firm[last]
            edges.append(self._end(last))
        return edges

    def _end(self, item: _Item) -> Operation:
        """Returns an operation that has run when `item` is available."""
        if isinstance(item, Operation):
            return item
        found = self._anchors.get(item)
        if found is None:
            name = f"{item.op.name}/effects_{item.index}"
            found = self._anchors[item] = self._identity(item, name, (), item.op)
        return found

    def _settled(self, t: Tensor) -> Tensor:
        """Returns `t` behind an Identity that waits for the effects that `t` reaches.

        It is `t` itself if edges that no pass removes make `t` wait for them, or if `t` is a handle.
        """
        missing = self.effects_of(t) & ~self._firm.get(self._source(t), 0)
        if not missing or t.dtype.is_ref or t.dtype is dtypes.resource:
            return t
        found = self._wraps.get(t)
        if found is None:
            name = f"{t.op.name}/settled"
            op = self._identity(t, name, self._edges(missing), t.op)
            found = self._wraps[t] = op.outputs[0]
            self._set(op, self.reached[t])
            self._firm[op] = self.reached[t]
        return found

    def _identity(self, t: Tensor, name: str, controls: Sequence[Operation], like: Operation) -> Operation:
        graph, attrs = self._graph, {"T": t.dtype.base}
        op = graph.add_op("Identity", graph.unique_name(name), [t], attrs, controls, "", like.source)
        op.outputs[0].copy_static(t)
        self._order.append(op)
        self._changed = True
        return op
