"""Analysis of the tensors of a function that differ between the examples of a batch.

The analysis starts with the mapped parameters and follows the operations, into the graphs of conditionals, loops and
calls too, until nothing changes any more. A tensor is *batched* if it may differ between examples.

If a conditional or loop has a batched predicate, all of its results are batched, except for loop variables that no
iteration changes.

A tensor list is batched if an element of it is. Lists are marked in both directions: a list into which an operation
puts a batched element was made for batched elements. A batched list has batches as its elements, so that all examples
have lists of one length. But if a conditional or loop with a batched predicate pushes to a list or pops from it, the
examples have lists of different lengths; such a *ragged* list is a vector with a list for each example. A vector of
lists (a ragged list of a batch that is batched once more) is ragged too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace import dtypes
from headrace.ir.edit.copying import copied
from headrace.ir.function import body, functions_of, param_offset, recursive_functions
from headrace.ir.graph import FuncGraph
from headrace.opkit.batch_node import SameForAll
from headrace.opkit.batch_rules import draws, rule_of

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class Flow:
    """The batched tensors of a traced function.

    Args:
      graph: the function.
      mapped: its parameters that differ between examples.

    Attributes:
      batched: the batched tensors of `graph` and of the graphs nested in it.
    """

    def __init__(self, graph: FuncGraph, mapped: Iterable[Tensor]) -> None:
        self.batched: set[Tensor] = set(mapped)
        self._chosen: set[Tensor] = set()  # lists that a conditional or loop with a batched predicate changes
        self._stacks: set[Tensor] = set()  # lists to which operations push, or from which they pop
        self._bodies: dict[Operation, list[FuncGraph]] = {}
        self._recursive = recursive_functions(graph.operations)
        self._grew = True
        while self._grew:
            self._grew = False
            self._visit(graph)

    def graphs(self, op: Operation) -> list[FuncGraph]:
        """Returns the graphs of a structured operation.

        A function of the library is replaced by a copy for each call, because its calls may differ in the arguments
        that are batched.
        """
        found = self._bodies.get(op)
        if found is None:
            found = []
            for f in functions_of(op):
                graph = body(op, f)
                found.append(graph if graph is f else copied(graph, op.graph))
            self._bodies[op] = found
        return found

    def is_alone(self, op: Operation) -> bool:
        """Whether `op` is structured and has to be computed for each example alone."""
        kind = op.opdef.structured
        if kind in ("RemoteCall", "SymbolicGradient", "For"):
            return True
        return bool(kind) and any(getattr(f, "name", "") in self._recursive for f in functions_of(op))

    def any(self, ts: Iterable[Tensor]) -> bool:
        """Whether one of the tensors is batched."""
        return not self.batched.isdisjoint(ts)

    def is_ragged(self, t: Tensor) -> bool:
        """Whether `t` is a list whose length differs between examples."""
        return t in self._chosen and t in self._stacks

    def has_rows(self, t: Tensor) -> bool:
        """Whether the replacement of `t` has the examples in dimension 0."""
        return t in self.batched and (t.dtype.base is not dtypes.variant or self.is_ragged(t))

    def has_batched_choice(self, op: Operation) -> bool:
        """Whether the predicate of a conditional or loop differs between examples."""
        if op.opdef.structured == "While":
            return self.graphs(op)[0].results[0] in self.batched
        return op.opdef.structured in ("If", "Case") and op.inputs[0] in self.batched

    def _mark(self, t: Tensor, what: set[Tensor] | None = None) -> None:
        marked = self.batched if what is None else what
        if t not in marked:
            marked.add(t)
            self._grew = True

    def _join(self, ts: Sequence[Tensor]) -> None:
        """Gives lists that are made of one another the same marks."""
        lists = [t for t in ts if t.dtype.base is dtypes.variant]
        for marked in (self._chosen, self._stacks, self.batched):
            if not marked.isdisjoint(lists):
                for t in lists:
                    self._mark(t, marked)
        if any(t.shape and t in self.batched for t in lists):  # vectors of lists, from another batch
            for t in lists:
                self._mark(t, self._chosen)
                self._mark(t, self._stacks)

    def _visit(self, graph: Graph) -> None:
        for op in graph.operations:
            if op.opdef.structured and not self.is_alone(op):
                self._structured(op)
            else:
                self._plain(op)

    # *** operations ***

    def _plain(self, op: Operation) -> None:
        rule = None if op.opdef.structured else rule_of(op.opdef)
        is_same = isinstance(rule, SameForAll) and not any(map(self.is_ragged, op.inputs))
        if draws(op.opdef) or (self.any(op.inputs) and not is_same):
            for t in op.outputs:
                self._mark(t)
        lists = [t for t in (*op.inputs, *op.outputs) if t.dtype.base is dtypes.variant]
        if lists:
            if op.opdef.list_kind in ("push", "pop"):
                self._mark(lists[0], self._stacks)
            self._join(lists)

    # *** conditionals, loops, calls ***

    def _structured(self, op: Operation) -> None:
        if op.opdef.structured == "While":
            self._loop(op)
            return
        graphs = self.graphs(op)
        for g in graphs:
            for x, p in zip(op.inputs[param_offset(op) :], g.params, strict=True):
                if x in self.batched:
                    self._mark(p)
                self._join((x, p))
            self._visit(g)
        chooses = self.has_batched_choice(op)
        for k, y in enumerate(op.outputs):
            ends = [g.results[k] for g in graphs]
            if chooses or self.any(ends):
                self._mark(y)
            if chooses:
                self._mark(y, self._chosen)
            self._join((y, *ends))

    def _loop(self, op: Operation) -> None:
        cond, step = self.graphs(op)
        chooses = self.has_batched_choice(op)
        for k, (x, y) in enumerate(zip(op.inputs, op.outputs, strict=True)):
            p, end = step.params[k], step.results[k]
            every = (x, p, cond.params[k], end, y)
            changes = chooses and end is not p
            if changes or not self.batched.isdisjoint(every):
                for t in (p, cond.params[k], y):
                    self._mark(t)
            if changes:
                self._mark(p, self._chosen)
            self._join(every)
        self._visit(cond)
        self._visit(step)
