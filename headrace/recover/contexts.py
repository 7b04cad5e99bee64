"""Contexts: the graphs that receive recovered operations, and the conditionals that own them.

A `SubgraphDraft` is a graph under construction: that of a loop's condition or body, or that of one side of a
conditional. A `Conditional` collects the operations of its sides and the Merges that join them, until it is closed and
becomes an operation (`regions`). Afterwards it can still get further results (`export`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from headrace import dtypes
from headrace.ir.edit import add_values
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.recover.reading import Join, Path, ill_structured

if TYPE_CHECKING:
    from headrace.ir.notes import Note
    from headrace.recover.reading import Node, StructureAnalysis


class SubgraphDraft:
    """Graph that receives operations: of a region, or of a side of a conditional.

    Attributes:
      graph: The graph.
      parent: The context around it, in this region, or for the graph of the region, in the region around it.
      conditional: The conditional of which it is a side; None for the graph of the region.
      side: The number of the side; 0 for the graph of the region.
      values: The values in the graph for tensors of the primitive graph.
      open: The open conditionals in it, by predicate.
    """

    def __init__(
        self, graph: Graph, parent: SubgraphDraft | None, conditional: Conditional | None = None, side: int = 0
    ) -> None:
        self.graph = graph
        self.parent = parent
        self.conditional = conditional
        self.side = side
        self.values: dict[Tensor, Tensor] = {}
        self.open: dict[Tensor, Conditional] = {}

    def encloses(self, other: SubgraphDraft) -> bool:
        """Whether `other` is this context or inside it."""
        at: SubgraphDraft | None = other
        while at is not None and at is not self:
            at = at.parent
        return at is self


class Region(Protocol):
    """Region that contains a conditional: a `regions.FrameRegion`.

    Attributes:
      reading: The analysis of the primitive graph.
      read: The tensors that operations of the primitive graph read.
      home: The context and the value of tensors of the primitive graph.
    """

    reading: StructureAnalysis
    read: set[Tensor]
    home: dict[Tensor, tuple[SubgraphDraft, Tensor]]

    def value(self, t: Tensor, context: SubgraphDraft) -> Tensor:
        """The value of `t` in the graph of `context`."""

    def found_within(self, c: Operation, conditional: Conditional) -> tuple[int, Operation | None]:
        """The side of an open conditional with the copy of `c`, and that copy."""

    def is_trivial(self, c: Operation) -> bool:
        """Whether a control edge from `c` only determines the branch or loop of its target."""

    def stands_for(self, c: Operation, context: SubgraphDraft) -> Operation | None:
        """The operation to wait for in `context` instead of `c`; None if there is none."""


class Conditional:
    """Conditional during its construction and afterwards.

    Attributes:
      region: The region that contains it.
      context: The context that contains it.
      key: The predicate in the primitive graph.
      path: The path of the conditional within the region.
      sides: The contexts of its branches.
      merges: The Merges that become its results.
      after: Nodes outside it that wait, dead or alive, for a node inside.
      results: The ends of each result, one for each side.
      made: The tensor of the primitive graph for each result.
      controls: The operations for which it waits.
      op: The operation; None until the conditional is closed.
    """

    def __init__(self, region: Region, context: SubgraphDraft, key: Tensor, path: Path) -> None:
        self.region = region
        self.context = context
        self.key = key
        self.path = path
        self.merges: list[Operation] = []
        self.results: list[list[Tensor]] = []
        self.made: list[Tensor] = []
        self.after: list[Node] = []
        self.controls: dict[Operation, None] = {}
        self.op: Operation | None = None
        n = region.reading.sides[key]
        parts = ["false", "true"] if n == 2 else [f"branch{i}" for i in range(n)]
        self.sides = [
            SubgraphDraft(sub_graph(f"{scope_of(key.op.name)}_{part}", context.graph), context, self, i)
            for i, part in enumerate(parts)
        ]

    def join(self, merge: Operation, join: Join) -> None:
        """Adds the outputs of `merge` to the results of the conditional."""
        region = self.region
        self.merges.append(merge)
        if merge.outputs[0].dtype.is_ref:
            same = {region.reading.canonical(t) for t in join.ends.values()}
            if len(same) == 1 and merge.outputs[1] not in region.read:  # the same reference from every side
                region.home[merge.outputs[0]] = self.context, region.value(same.pop(), self.context)
                self.merges.append(merge)
                return
            raise ill_structured(
                merge, "a conditional to return values", "it returns references", "use a resource variable"
            )
        ends = [region.value(join.ends[i], side) for i, side in enumerate(self.sides)]
        ends = [waiting(t, (), f"{merge.name}/Identity", merge) if t.dtype.is_ref else t for t in ends]  # a read
        for c, _ in region.reading.controls(merge):  # an edge from a branch becomes an edge to the value of that branch
            i, found = region.found_within(c, self)
            if found is not None and found is not ends[i].op:
                ends[i] = waiting(ends[i], [found], f"{merge.name}/Identity", merge)
            elif found is None and not region.is_trivial(c):
                before = region.stands_for(c, self.context)
                if before is not None:
                    self.controls[before] = None
        self.results.append(ends)
        self.made.append(merge.outputs[0])
        if merge.outputs[1] in region.read:
            places = {side: k for k, t in enumerate(merge.inputs) for side, end in join.ends.items() if end is t}
            ends = [_constant(side.graph, places[i], f"{merge.name}/index") for i, side in enumerate(self.sides)]
            self.results.append(ends)
            self.made.append(merge.outputs[1])

    @property
    def is_wanted(self) -> bool:
        """Whether it has a result or an operation that must run."""
        return bool(self.merges or any(g.control_results for g in self.graphs))

    @property
    def graphs(self) -> list[FuncGraph]:
        """Graphs of its sides."""
        return [c.graph for c in self.sides if isinstance(c.graph, FuncGraph)]

    def export(self, side: int, t: Tensor) -> Tensor:
        """Makes `t`, of the graph of one side, a result of the closed conditional."""
        assert self.op is not None
        ends = []
        for i, g in enumerate(self.graphs):
            if i == side:
                ends.append(t)
                continue
            attrs = {"dtype": t.dtype.base, "shape": t.shape}
            fake = g.add_op("FakeParam", g.unique_name(f"{t.op.name}/FakeParam"), (), attrs, source=t.op.source)
            fake.outputs[0].copy_static(t)
            ends.append(fake.outputs[0])
        order = add_values.own_graphs(self.op)
        return add_values.add_result(self.op, [ends[self.graphs.index(g)] for g in order])


def captured(t: Tensor, graph: Graph) -> Tensor:
    """Makes `t` available to operations of `graph`, its own graph or one inside it.

    A reference is not captured, but its variable is copied into `graph` under the same name.
    """
    if t.op.graph is graph or not t.dtype.is_ref:
        return graph.capture(t)
    op = t.op
    if op.inputs or op.control_inputs:
        graph.capture_control(op)
    while op.inputs and op.inputs[0].dtype.is_ref:
        op = op.inputs[0].op
    if op.inputs or "shared_name" not in op.attrs:
        raise ill_structured(
            op,
            "every reference in a loop or branch to be that of a variable",
            "it creates another one",
            "use a resource variable",
        )
    name = op.attrs["shared_name"] or op.name
    copy = graph.copy_op(op, (), (), graph.unique_name(op.name), {**op.attrs, "shared_name": name})
    return copy.outputs[0]


def waiting(t: Tensor, controls: Iterable[Operation], name: str, like: Operation) -> Tensor:
    """Adds an Identity of `t` that waits for `controls`."""
    graph = t.op.graph
    name = graph.unique_name(name)
    new = graph.add_op("Identity", name, [t], {"T": t.dtype.base}, controls, like.device, like.source).outputs[0]
    new.copy_static(t)
    return new


def make(
    type: str,
    graphs: Sequence[FuncGraph],
    outside: Graph,
    name: str,
    inputs: Sequence[Tensor],
    attrs: Mapping[str, Any],
    like: Operation,
    notes: Iterable[Note] = (),
) -> Operation:
    """Makes the operation that owns `graphs`, with the device and source line of `like`."""
    if not any(op.opdef.is_effectful for g in graphs for op in g.operations):
        type = "Stateless" + type
    for g in graphs:
        g.source = like.source
    return outside.add_op(type, name, inputs, attrs, (), like.device, like.source, notes=notes)


def outer_controls(graphs: Sequence[FuncGraph], outside: Graph) -> list[Operation]:
    """Operations of `outside` for which the owner of `graphs` must wait."""
    found = dict.fromkeys(c for g in graphs for c in g.outer_controls)
    lifted = [outside.capture_control(c) for c in found]
    return [c for c in lifted if c is not None]


def sub_graph(name: str, outer: Graph) -> FuncGraph:
    """An empty graph for an operation of `outer`."""
    return FuncGraph(name.replace("/", "_"), outer, shares_names=True)


def scope_of(name: str) -> str:
    """Name of the structure to which a primitive with this name belongs."""
    return name.rpartition("/")[0] or name


def is_effectful_node(node: Node) -> bool:
    """Whether an operation, or one in the loop `node`, has effects."""
    if isinstance(node, Operation):
        return node.opdef.is_effectful
    return any(op.opdef.is_effectful for op in node.frame.ops)


def _constant(graph: Graph, value: int, name: str) -> Tensor:
    array = np.array(value, np.int32)
    array.flags.writeable = False
    attrs = {"value": array, "dtype": dtypes.int32}
    t = graph.add_op("Const", graph.unique_name(name), (), attrs).outputs[0]
    t.refine(())
    return t
