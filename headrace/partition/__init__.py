"""Partition: cuts a placed graph into one graph for each device.

    parts = partition(ops, of)
    parts["/job:localhost/replica:0/task:0/device:CPU:1"].ops

A device runs its part as if there were no other parts: it has its own token machine, its own ready queue and its own
iterations of each loop. Where an edge of the graph leads from one device to another, the first part has a `_Send` and
the second a `_Recv` with the same key (`edges`). The parts have no other connection: no device asks another for its
next action.

For ordinary operations and conditionals this is enough, since a Send ships deadness as it ships a value. For a loop it
is not: a device with some operations of the body must know the number of iterations. Each such device gets a small loop
of its own that opens the same iterations (`control_loops`, which begins with the proof).

Some operations are copied to several devices, because that is cheaper than to send their outputs (`copies`): small
constants, and the Enters of loop constants. A Recv can be delayed until shortly before its value is needed
(`scheduling`).

Source: the partitioning of "Dynamic Control Flow in Large-Scale Machine Learning" (Yu et al., EuroSys 2018), as in
TensorFlow's `graph_partition`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.ir import walk
from headrace.ir.analysis import frames
from headrace.ir.attr_values import Func
from headrace.ir.edit.copying import copied_attrs, copy_graph
from headrace.partition import check
from headrace.partition.control_loops import ControlLoops, devices_of_frames
from headrace.partition.copies import Buffers, standing
from headrace.partition.edges import Edges
from headrace.partition.part import Part, part_of
from headrace.partition.scheduling import hold_back
from headrace.partition.site import Site, labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.ir.graph import Graph, Operation

__all__ = ["Part", "partition"]


def partition(
    ops: Sequence[Operation],
    of: Mapping[Operation, str],
    *,
    functions: Mapping[str, Sequence[Operation]] = MappingProxyType({}),
    bfloat16: bool = False,
    costs: Mapping[Operation, float] | None = None,
) -> dict[str, Part]:
    """Cuts a graph into one for each device.

    Args:
      ops: the operations of a primitive graph in any order, with all their inputs and control inputs. They are not
        changed.
      of: the full name of the device of each operation.
      functions: the operations of functions that are called in frames of their own. Each part gets copies of those that
        it calls.
      bfloat16: whether float32 values are sent as bfloat16: half the bytes, 8 of the 24 bits of the mantissa.
      costs: seconds of a firing, as far as they are known. With them, Recvs are delayed until they are needed
        (`partition.scheduling`). None: Recvs start at once.

    Returns:
      The part of each device with an operation, in the order in which the devices first occur in `ops`.

    Raises:
      InvalidArgumentError: a resource or a reference is used on a device other than its own; a loop on several devices
        has no LoopCond, or two; frames do not fit together (`ir.analysis.frames`).
      GraphError: a cycle that is not a loop.
      HeadraceInternalError: `of` lacks an operation, or separates an Enter or NextIteration from its Merge.

    Example:
      >>> from headrace.ir.text import from_text, to_text
      >>> g = from_text("x = Placeholder[dtype=float32]\\ny = Square(x)")
      >>> cpu = "/job:localhost/replica:0/task:0/device:CPU:"
      >>> parts = partition(g.operations, {g.find("x"): cpu + "0", g.find("y"): cpu + "1"})
      >>> [[op.name for op in part.ops] for part in parts.values()]
      [['x', 'x/to_CPU_1'], ['x/from_CPU_0', 'y']]
    """
    tree = frames.derive(ops)
    order = walk.toposort(ops)
    check.colocation(ops, of)
    where = standing(order, of)
    check.handles(order, where)
    spread = devices_of_frames(tree, where)
    check.loop_conds(spread, where)

    names = labels(dict.fromkeys(of[op] for op in ops))
    sites = {
        device: Site(device, label, [op for op in order if device in where[op]]) for device, label in names.items()
    }
    sites = {device: site for device, site in sites.items() if site.originals}
    loops = ControlLoops(sites, spread)
    edges = Edges(sites, tree, of, where, loops, bfloat16)
    buffers = Buffers()
    for op in order:
        for device in where[op]:
            _copy(op, sites[device], device != of[op], edges, buffers)
    for op in order:
        for i, t in enumerate(op.inputs):
            if walk.is_back_edge(t.op, op):
                for device in where[op]:
                    site = sites[device]
                    site.graph.set_back_edge(site.ops[op], i, site.tensors[t])
    loops.close([edges.tensor(t, sites[device]) for t, device in loops.predicates()])
    if costs is not None:
        hold_back(list(sites.values()), costs)
    return {
        d: part_of(d, site.graph, {f: copy_graph(body[0].graph, body)[0] for f, body in called.items()})
        for d, site in sites.items()
        for called in [_called(site.graph, functions)]
    }


def _called(graph: Graph, functions: Mapping[str, Sequence[Operation]]) -> Mapping[str, Sequence[Operation]]:
    """Returns those of `functions` that operations of `graph` call, directly or through other functions."""
    out: dict[str, Sequence[Operation]] = {}
    todo = [graph.operations]
    while todo:
        for op in todo.pop():
            name = op.attrs["f"].name if op.opdef.structured == "Call" and isinstance(op.attrs["f"], Func) else ""
            if name in functions and name not in out:
                out[name] = functions[name]
                todo.append(functions[name])
    return out


def _copy(op: Operation, site: Site, is_extra: bool, edges: Edges, buffers: Buffers) -> None:
    """Adds a copy of `op` and the edges to its inputs to a part."""
    wants = op.opdef.input_dtypes(op.attrs)
    inputs = [
        None
        if walk.is_back_edge(t.op, op)
        else edges.value(op, i, site)
        if t.dtype.is_ref and not wants[i].is_ref and t not in site.tensors
        else edges.tensor(t, site)
        for i, t in enumerate(op.inputs)
    ]
    controls = list(dict.fromkeys(edges.control(c, site) for c in op.control_inputs))
    name = site.graph.unique_name(f"{op.name}/on_{site.label}") if is_extra else op.name
    attrs = copied_attrs(op, site.graph, site.tensors) if op.opdef.structured else buffers.attrs_on(op, site.device)
    copy = site.graph.copy_op(op, inputs, controls, name, attrs, site.device)
    site.ops[op] = copy
    for old, new in zip(op.outputs, copy.outputs, strict=True):
        site.tensors[old] = new
