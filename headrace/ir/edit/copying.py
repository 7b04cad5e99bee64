"""Copies of operations, and of the graphs that operations own.

An owned graph has one owner, which may make it grow. So a copy of a conditional or loop includes copies of its graphs.
The graph of a shared function is copied too, if only some of its calls are to change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace.ir import walk
from headrace.ir.graph import FuncGraph, Graph

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor


def copy_into(
    graph: Graph,
    ops: Sequence[Operation],
    moved: dict[Tensor, Tensor],
    instead: Mapping[Operation, Operation] = MappingProxyType({}),
) -> dict[Operation, Operation]:
    """Appends copies of `ops` to `graph`.

    Args:
      graph: the graph for the copies, which get names that are free there.
      ops: operations of another graph or of the same one, in topological order without regard to back edges.
      moved: outside tensor that `ops` read → its replacement in `graph`; the outputs of the copies are added.
      instead: outside operation that `ops` wait for → its replacement in `graph`.

    Returns:
      Operation → its copy. Other control inputs from outside of `ops` are dropped.
    """
    copies: dict[Operation, Operation] = dict(instead)
    back: list[tuple[Operation, int]] = []
    for op in ops:
        inputs = [moved.get(t) for t in op.inputs]
        back += [(op, i) for i, t in enumerate(inputs) if t is None]
        controls = [copies[c] for c in op.control_inputs if c in copies]
        copies[op] = copy = graph.copy_op(op, inputs, controls, graph.unique_name(op.name))
        copy.attrs = copied_attrs(op, graph, moved)
        for old, new in zip(op.outputs, copy.outputs, strict=True):
            moved.setdefault(old, new)
    for op, i in back:
        graph.set_back_edge(copies[op], i, moved[op.inputs[i]])
    return copies


def copy_graph(graph: Graph, ops: Sequence[Operation] | None = None) -> tuple[Graph, dict[Operation, Operation]]:
    """Returns a copy of `graph`, with copies of the graphs that its operations own.

    Args:
      graph: a graph that is not the graph of an operation.
      ops: the operations to copy, in any order, with all their inputs and control inputs; None: all.

    Returns:
      The copy, whose operations have the same names and order, and operation → its copy.
    """
    out = Graph()
    out.share_functions(graph)
    copies: dict[Operation, Operation] = {}
    moved: dict[Tensor, Tensor] = {}
    out.copy_ops(graph.operations if ops is None else ops, moved, copies)
    for op, copy in copies.items():
        if op.opdef.structured:
            copy.attrs = copied_attrs(op, out, moved)
    return out, copies


def copied(
    f: FuncGraph,
    outer: Graph | None,
    moved: dict[Tensor, Tensor] | None = None,
    name: str = "",
    captures: bool = True,
) -> FuncGraph:
    """Returns a copy of `f` whose owner is in `outer`.

    Args:
      f: the graph to copy, with all graphs nested in it.
      outer: the graph around the copy.
      moved: captured tensor of `f` → its replacement in `outer`, needed if `outer` is not the graph around `f`; the
        tensors of the copy are added.
      name: the name of the copy; "": that of `f`.
      captures: whether its parameters represent captured tensors; False if the owner of the copy passes them.

    Returns:
      The copy.
    """
    moved = {} if moved is None else moved
    out = FuncGraph(name or f.name, outer, f.captures_from_outer, f.shares_names and outer is not None)
    out.source, out.role, out.attrs = f.source, f.role, dict(f.attrs)
    for p in f.params:
        a = p.op.attrs
        name = p.op.name.removeprefix("arg.") if out.shares_names else p.op.name
        moved[p] = out.add_param(p.dtype, p.static_shape, name, a.get("of", ""), p.op.source, p.handle)
    params = {p.op for p in f.params}
    copies = copy_into(
        out,
        walk.in_order({op for op in f.operations if op not in params}),
        moved,
        {p.op: moved[p].op for p in f.params},
    )
    out.set_results([moved[r] for r in f.results], [copies[op] for op in f.control_results], f.is_ordered)
    if captures:
        out.captures = {moved.get(t, t): moved[p] for t, p in f.captures.items()}
    mine = {p: moved[p] for p in f.params} | {t: moved[t] for op in copies for t in op.outputs}
    out.originals = {t: mine[u] for t, u in f.originals.items() if u in mine} | mine
    return out


def copied_attrs(op: Operation, outer: Graph, moved: dict[Tensor, Tensor] | None = None) -> dict[str, Any]:
    """Returns the attributes of a copy of `op` in `outer`, with copies of its graphs.

    Args:
      op: the original.
      outer: the graph of the copy.
      moved: as in `copied`; None: the graphs lie in the same graph as the originals.
    """

    def copied_value(value: Any) -> Any:
        if isinstance(value, FuncGraph):
            return copied(value, outer, moved)
        return tuple(map(copied_value, value)) if isinstance(value, tuple) else value

    return {name: copied_value(v) for name, v in op.attrs.items()} if op.opdef.structured else op.attrs
