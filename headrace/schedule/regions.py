"""Regions: the operations of a structured graph that must run, in order.

A `Region` is a graph, or a graph that an operation owns, reduced to what is needed of it. It contains the needed
operations in topological order. An operation that owns graphs becomes an item with regions of its own. These regions
are reduced, too: results without a reader are left out, and so are loop variables that affect no needed result (a
liveness fixpoint). A code generator needs one walk over the regions and no further knowledge of order.

This module is independent of the code that is generated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from headrace import dtypes
from headrace.errors import HeadraceInternalError
from headrace.ir import walk
from headrace.ir.analysis.signature_check import check_fit
from headrace.ir.analysis.trip_count import Bound, TripCount, trip_count
from headrace.ir.attr_values import Func
from headrace.ir.edit.for_as_while import counting
from headrace.ir.function import bodies, body, nested, recursive_functions
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import constant_value
from headrace.ir.order import is_constant
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


@record(eq=False, slots=True)
class Item:
    """Operation that runs.

    Attributes:
      op: The operation.
      kind: "" if a kernel computes it, else "If", "Case", "While", "Call" (the function is inlined) or "Recursive" (the
        function is called by name).
      live: The positions of the outputs that are read.
      regions: The regions of its graphs: the branches (of an If: else, then), the condition and the body, or the
        function.
      variables: The positions of the needed loop variables of a While that are not loop-invariant.
      trip_count: The trip count of a While that only counts, else None.
      counter: The position of the counter of a While that only counts, which no item of the body computes; else -1.
      offset: The position of the input that is parameter 0 of its graphs.
      reads: The tensors of the surrounding graph that the operation or its regions read.
    """

    op: Operation
    live: tuple[int, ...]
    kind: str = ""
    regions: tuple[Region, ...] = ()
    variables: tuple[int, ...] = ()
    trip_count: TripCount | None = None
    counter: int = -1
    offset: int = 0
    reads: tuple[Tensor, ...] = ()


@record(eq=False, slots=True)
class Region:
    """Needed part of one graph.

    Attributes:
      graph: The graph.
      items: The operations that run, in order.
      results: The needed results.
      params: The positions of the parameters that are read, waited for, or among the results.
    """

    graph: Graph
    items: tuple[Item, ...]
    results: tuple[Tensor, ...]
    params: tuple[int, ...]


class Regions:
    """Regions of a step.

    Args:
      graph: The graph of the step, with `_Arg` and `_Retval` ends.
      targets: Operations of the graph that must run.
      expand: Returns the graph of an operation that stands for the gradient of a function.

    Attributes:
      root: The region of the graph itself.
      functions: The regions of recursive functions, with all their results, by name.
    """

    def __init__(
        self, graph: Graph, targets: Sequence[Operation] = (), expand: Callable[[Operation], FuncGraph] | None = None
    ) -> None:
        self._known: dict[tuple[Graph, tuple[Tensor, ...]], Region] = {}
        self._expand = expand
        self._graphs: dict[Operation, FuncGraph] = {}
        self.recursive = recursive_functions(graph.operations)
        self.functions: dict[str, Region] = {}
        ends = [op for op in graph.operations if op.type == "_Retval"]
        self.root = self._region(graph, (), [*ends, *targets])

    def _region(self, graph: Graph, results: tuple[Tensor, ...], must: Iterable[Operation]) -> Region:
        """The region of `graph` that computes `results` and runs the operations `must`."""
        known = self._known.get((graph, results))
        if known is not None:
            return known
        wanted: set[Tensor] = set(results)
        needed: set[Operation] = set(must)
        order = walk.in_order(walk.reachable([*needed, *(t.op for t in results)]))
        order = _looks_first(_overlapping(order))
        items: list[Item] = []
        for op in reversed(order):
            live = tuple([i for i, t in enumerate(op.outputs) if t in wanted])
            if (not live and op not in needed) or op.type == "_Arg":
                continue
            if op in needed and op.opdef.structured:  # a control edge waits for all its results
                live = tuple(range(len(op.outputs)))
            item = self._item(op, live)
            wanted.update(item.reads)
            needed.update(op.control_inputs)
            items.append(item)
        items.reverse()
        params: Sequence[Tensor] = graph.params if isinstance(graph, FuncGraph) else ()
        used = tuple(k for k, p in enumerate(params) if p in wanted or p.op in needed)
        region = Region(graph, tuple(items), results, used)
        self._known[graph, results] = region
        return region

    def _item(self, op: Operation, live: tuple[int, ...]) -> Item:
        kind = op.opdef.structured
        if not kind:
            return Item(op, live, reads=tuple(op.inputs))
        check_fit(op)
        if kind in ("If", "Case"):
            graphs = [g for _, g in bodies(op)]
            if kind == "If":
                graphs = [body(op, op.attrs["else_branch"]), body(op, op.attrs["then_branch"])]
            regions = tuple(self._region(g, tuple(g.results[i] for i in live), g.control_results) for g in graphs)
            reads = dict.fromkeys(op.inputs[1 + k] for b in regions for k in b.params)
            return Item(op, live, kind, regions, offset=1, reads=(op.inputs[0], *reads))
        if kind == "While":
            return self._loop(op, live)
        if kind in ("Call", "RemoteCall") and self._is_recursive(op):
            return self._recursive(op, live)
        return self._call(op, live, kind)

    def _loop(self, op: Operation, live: tuple[int, ...]) -> Item:
        cond, loop = body(op, op.attrs["cond"]), body(op, op.attrs["body"])
        n = len(op.inputs)
        counted = trip_count(op)
        test = self._region(cond, (cond.results[0],), cond.control_results)
        only_counts = counted is not None and counted.is_exact and _is_quiet(test) and all(map(_ends, counted.bounds))
        if counted is not None and only_counts:
            only_counts = all(_waits_for_nothing(loop.results[b.counter]) for b in counted.bounds)
        counter = counted.bounds[0].counter if counted is not None and only_counts else -1
        varying = {k for k in range(n) if not is_constant(loop, k)}
        going = {k for k in (*live, *(() if only_counts else test.params)) if k in varying}
        if counted is not None and only_counts:
            going.update(b.counter for b in counted.bounds)
        while True:
            results = tuple(loop.results[k] for k in sorted(going) if k != counter)
            inner = self._region(loop, results, loop.control_results)
            more = {k for k in inner.params if k in varying} - going
            if not more:
                break
            going |= more
        used = {*going, *inner.params, *(() if only_counts else test.params)}
        if counted is not None and only_counts:
            used.update(b.position for b in counted.bounds if b.position is not None)
        reads = dict.fromkeys(op.inputs[k] for k in sorted(used))
        reads.update(dict.fromkeys(op.inputs[k] for k in live if k not in varying))
        return Item(
            op,
            live,
            "While",
            (test, inner),
            tuple(sorted(going)),
            counted if only_counts else None,
            counter,
            reads=tuple(reads),
        )

    def _call(self, op: Operation, live: tuple[int, ...], kind: str) -> Item:
        graph = self._graphs.get(op)
        if graph is None:
            if kind == "For":
                graph = counting(op)
            elif kind == "SymbolicGradient":
                if self._expand is None:
                    raise HeadraceInternalError(f"SymbolicGradient '{op.name}' cannot be compiled without gradients")
                graph = self._expand(op)
            else:
                graph = body(op, op.attrs["f"])
            self._graphs[op] = graph
        offset = 1 if kind == "RemoteCall" else 0
        inner = self._region(graph, tuple(graph.results[i] for i in live), graph.control_results)
        return Item(op, live, "Call", (inner,), offset=offset, reads=tuple(dict.fromkeys(op.inputs)))

    def _is_recursive(self, op: Operation) -> bool:
        f = op.attrs["f"]
        return isinstance(f, Func) and f.name in self.recursive

    def _recursive(self, op: Operation, live: tuple[int, ...]) -> Item:
        f = op.attrs["f"]
        graph = body(op, f)
        offset = 1 if op.opdef.structured == "RemoteCall" else 0
        if f.name not in self.functions:
            self.functions[f.name] = Region(graph, (), (), ())  # ends the recursion: a placeholder until it is built
            self.functions[f.name] = self._region(graph, tuple(graph.results), graph.control_results)
        return Item(op, live, "Recursive", offset=offset, reads=tuple(op.inputs[offset:]))


def _overlapping(order: list[Operation]) -> list[Operation]:
    """Operations in an order in which work that was begun overlaps with other work.

    The order is that of *stages*: between two of them the host waits. So all operations that need no wait run before
    the first wait, those that need one before the second, and so on. In a stage, the operations on which a beginning
    depends precede the others. A beginning follows its last input at once, and a wait precedes its first reader.

    Args:
      order: The operations in topological order.
    """
    if not any(op.opdef.facts.begins or op.opdef.facts.awaits for op in order):
        return order
    stage: dict[Operation, int] = {}
    at: dict[Operation, float] = {}
    first_reader: dict[Operation, float] = {}
    for i, op in enumerate(order):
        before = walk.predecessors(op)
        stage[op] = max((stage[p] for p in before), default=0) + _waits(op)
        at[op] = max((at[p] for p in before), default=-1.0) + 0.5 if op.opdef.facts.begins else float(i)
        for p in before:
            first_reader[p] = min(first_reader.get(p, math.inf), at[op])
    early: set[Operation] = set()
    for op in reversed(order):
        if op.opdef.facts.awaits:
            at[op] = first_reader.get(op, math.inf) - 0.5
        if op.opdef.facts.begins or op in early:
            early.add(op)
            early.update(p for p in walk.predecessors(op) if stage[p] == stage[op])
    return sorted(order, key=lambda op: (stage[op], op not in early, at[op]))


def _waits(op: Operation) -> bool:
    """Whether the host waits in an operation, or in a graph that it owns."""
    return op.opdef.facts.awaits or any(o.opdef.facts.awaits for _, g in nested([op]) for o in g.operations)


def _looks_first(order: list[Operation]) -> list[Operation]:
    """Operations in an order in which looks at a list precede its changes, where possible.

    A list that is looked at after a change cannot be changed in place (`schedule.lists`).

    Args:
      order: The operations in topological order.
    """
    looks = [op for op in order if (role := op.opdef.facts.list_role) and not role.makes and not role.changes]
    if not looks:
        return order
    at = {op: float(i) for i, op in enumerate(order)}
    changed: dict[Tensor, float] = {}
    for op in reversed(order):
        if op.opdef.structured or (op.opdef.facts.list_role and op.opdef.facts.list_role.changes):
            changed.update((t, at[op]) for t in op.inputs if t.dtype.base is dtypes.variant)
    for op in looks:
        first = changed.get(op.inputs[0], at[op])
        if first < at[op] and all(at[p] < first for p in (*(t.op for t in op.inputs), *op.control_inputs)):
            at[op] = first - 0.5
    return sorted(order, key=at.__getitem__)


def _is_quiet(region: Region) -> bool:
    """Whether the items of a region have no effects and no control inputs."""
    return all(i.op.opdef.is_pure and not i.op.control_inputs for i in region.items)


def _ends(bound: Bound) -> bool:
    """Whether the counter certainly passes the limit.

    The counter never passes an inclusive limit that is the greatest number of its dtype, but wraps around. A limit that
    a positive constant was subtracted from, such as the count of a loop in its gradient, is not that number.
    """
    limit = bound.limit
    less = constant_value(limit.op.inputs[1]) if limit.op.opdef.facts.sum_sign < 0 else None
    is_less = less is not None and int(less) > 0
    return not bound.is_inclusive or is_less or constant_value(limit) is not None


def _waits_for_nothing(t: Tensor) -> bool:
    """Whether no operation in the computation of `t` has control inputs."""
    return not any(op.control_inputs for op in walk.reachable([t.op]))
