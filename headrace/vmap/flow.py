"""Analysis of the tensors of a function that differ between the examples of a batch.

The analysis starts with the mapped parameters and follows the operations, into the graphs of conditionals, loops and
calls too, until nothing changes any more. A tensor is *batched* if it may differ between examples.

A tensor list is batched if an element of it is. Lists are marked in both directions: a list into which an operation
puts a batched element was made for batched elements. If a conditional or loop has a batched predicate, all of its
results are batched, except for loop variables that no iteration changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace import dtypes
from headrace.ir.batch_node import Independent, SameForAll
from headrace.ir.edit.copying import copied
from headrace.ir.function import body, functions_of, param_offset, recursive_functions
from headrace.ir.graph import FuncGraph
from headrace.opkit.batch_rules import rule_of

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

    def has_batched_choice(self, op: Operation) -> bool:
        """Whether the predicate of a conditional or loop differs between examples."""
        if op.opdef.structured == "While":
            return self.graphs(op)[0].results[0] in self.batched
        return op.opdef.structured in ("If", "Case") and op.inputs[0] in self.batched

    def _mark(self, t: Tensor) -> None:
        if t not in self.batched:
            self.batched.add(t)
            self._grew = True

    def _visit(self, graph: Graph) -> None:
        for op in graph.operations:
            if op.opdef.structured and not self.is_alone(op):
                self._structured(op)
            else:
                self._plain(op)

    # *** operations ***

    def _plain(self, op: Operation) -> None:
        rule = None if op.opdef.structured else rule_of(op.opdef)
        lists_in = [t for t in op.inputs if t.dtype.base is dtypes.variant]
        lists_out = [t for t in op.outputs if t.dtype.base is dtypes.variant]
        if self.any(op.inputs) and not isinstance(rule, SameForAll):
            for t in op.outputs:
                self._mark(t)
        if isinstance(rule, Independent) or op.opdef.facts.effect == "random":
            for t in op.outputs:
                self._mark(t)
        if lists_in and self.any(lists_out):
            for t in lists_in:
                self._mark(t)

    # *** conditionals, loops, calls ***

    def _structured(self, op: Operation) -> None:
        if op.opdef.structured == "While":
            self._loop(op)
            return
        graphs = self.graphs(op)
        for g in graphs:
            for x, p in zip(op.inputs[param_offset(op) :], g.params, strict=True):
                self._same(x, p)
            self._visit(g)
        chooses = self.has_batched_choice(op)
        for k, y in enumerate(op.outputs):
            ends = [g.results[k] for g in graphs]
            if chooses or self.any(ends):
                self._mark(y)
            if y in self.batched and y.dtype.base is dtypes.variant:
                for t in ends:
                    self._mark(t)

    def _same(self, outer: Tensor, inner: Tensor) -> None:
        """Marks a parameter like the input for it.

        For a list, it marks the input like the parameter, too.
        """
        if outer in self.batched:
            self._mark(inner)
        elif inner in self.batched and inner.dtype.base is dtypes.variant:
            self._mark(outer)

    def _loop(self, op: Operation) -> None:
        cond, step = self.graphs(op)
        chooses = self.has_batched_choice(op)
        for k, (x, y) in enumerate(zip(op.inputs, op.outputs, strict=True)):
            p, end = step.params[k], step.results[k]
            self._same(x, p)
            if end in self.batched or y in self.batched or (chooses and end is not p):
                self._mark(p)
            if p in self.batched:
                self._mark(cond.params[k])
                self._mark(y)
                if p.dtype.base is dtypes.variant:
                    self._mark(end)
                    self._mark(x)
            elif cond.params[k] in self.batched:
                self._mark(p)
        self._visit(cond)
        self._visit(step)
