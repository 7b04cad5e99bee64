"""Recovery: structured operations in place of the primitives of a graph.

    recover(graph)

Recovery is the inverse of `lower`: it finds the `If`, `Case` and `While` for Switch, Merge, Enter, Exit and
NextIteration. Imported graphs of TensorFlow 1 contain only the primitives, but gradients, the optimizer and the
compiler work on the structured form. `headrace docs reference/recovery` describes which graphs are recovered and which
are refused. `reading` determines the branch and loop of each operation. `regions` puts operations into graphs and makes
conditionals, `loops` makes loops, and `contexts` contains the classes that both share. `handles` replaces stacks and
arrays by lists.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headrace import recursion
from headrace.errors import GraphError, InvalidArgumentError, OpError
from headrace.ir import walk
from headrace.ir.edit.editor import Editor
from headrace.ir.function import nested
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.recover.contexts import SubgraphDraft
from headrace.recover.handles import is_flow, lists_for_handles
from headrace.recover.loops import put_loop
from headrace.recover.reading import Node, StructureAnalysis, shown
from headrace.recover.regions import FrameRegion


def recover(graph: Graph, tensors: Sequence[Tensor] | None = None, roots: Collection[Operation] = ()) -> None:
    """Adds a structured operation to `graph` for each loop and conditional of primitives.

    The primitives stay, but the readers of their results read the results of the structured operations instead:
    `graph.replaced` maps each Exit and Merge to its replacement, and `prune` uses it. A tensor inside a recovered loop
    or branch can still be fetched; then the step runs the primitives instead of the structured operation.

    Args:
      graph: Any graph; its structured operations stay unchanged.
      tensors: Tensors that must be computable from structured operations alone. The rest of the graph is recovered if
        possible. None means all of the graph.
      roots: Operations that must run whenever their branch or body runs, even without consumers.

    Raises:
      InvalidArgumentError: A part that must be recovered is not well-structured, or one of `tensors` is inside a loop
        or branch, where it has no single value. The text names the operation. The graph is unchanged.

    Example:
      >>> import headrace as hr
      >>> from headrace.lower import lower
      >>> from headrace.prune import prune
      >>> with hr.Graph() as g:
      ...     y, = hr.while_loop(lambda y: y < 100.0, lambda y: (y * y,), (3.0,))
      >>> primitive = lower(prune([], [y], []).graph).graph
      >>> recover(primitive)
      >>> [op.type for op in primitive.operations if op.opdef.structured]
      ['StatelessWhile']
    """
    try:
        _recover(graph, graph.operations, tensors or (), roots)
    except (OpError, GraphError):
        if tensors is None:
            raise
        _recover(graph, _behind(graph, tensors), tensors, roots)


def resolved(t: Tensor) -> Tensor:
    """The replacement of `t` by a structured operation, or `t` itself if there is none."""
    return t.op.graph.replaced.get(t, t)


def _behind(graph: Graph, tensors: Sequence[Tensor]) -> list[Operation]:
    """Operations that `tensors` need outside earlier recovered structures, with all of each loop."""
    readers: dict[Operation, list[Operation]] = {}
    enters: dict[str, list[Operation]] = {}
    for op in graph.operations:
        for before in walk.predecessors(op):
            readers.setdefault(before, []).append(op)
        if op.opdef.primitive == "Enter":
            enters.setdefault(op.attrs["frame_name"], []).append(op)
    seen: set[Operation] = set()
    todo = [resolved(t).op for t in tensors]
    while todo:
        op = todo.pop()
        if op in seen:
            continue
        seen.add(op)
        todo += [resolved(t).op for t in op.inputs]
        todo += op.control_inputs
        if op.opdef.primitive == "Enter":  # all operations of a loop are needed
            inside = enters.pop(op.attrs["frame_name"], [])
            met = set(inside)
            for o in inside:
                if o.opdef.primitive != "Exit":
                    more = [r for r in readers.get(o, ()) if r not in met]
                    met.update(more)
                    inside += more
            todo += inside
    return [op for op in graph.operations if op in seen]


def _effectful(graph: Graph) -> frozenset[str]:
    """Names of the operations with effects inside structured operations of the graph."""
    inside = (op for _, f in nested(graph.operations) for op in f.operations)
    return frozenset(op.name for op in inside if op.opdef.is_effectful)


def _recover(graph: Graph, ops: Sequence[Operation], tensors: Sequence[Tensor], roots: Collection[Operation]) -> None:
    if not any(op.opdef.primitive not in ("", "ControlTrigger") for op in ops):
        return
    edit = Editor(graph)
    try:
        with edit.all_or_nothing(ops), recursion.recursion_room_for_levels(recursion.MOST):
            made = _put(edit, ops, tensors, roots)
    except RecursionError as e:
        raise GraphError("conditionals and loops are nested too deeply to be recovered") from e
    edit.record_replaced(made)
    if isinstance(graph, FuncGraph):
        graph.set_results([resolved(t) for t in graph.results])


def _put(
    edit: Editor, ops: Sequence[Operation], tensors: Sequence[Tensor], roots: Collection[Operation]
) -> dict[Tensor, Tensor]:
    """Adds the structured operations; returns the replacement of each tensor."""
    graph = edit.graph
    count = len(graph)
    reading = StructureAnalysis(list(ops), graph.replaced, _effectful(graph))
    for t in tensors:
        _check_outside(reading, t)
    frame = reading.tree.root
    root = SubgraphDraft(graph, None)
    read = {t for op in graph.operations for t in op.inputs}
    region = FrameRegion(reading, frame, (), root, {}, None, read, frozenset(roots), put_loop, in_place=True)
    nodes, _ = region.needed(_sinks(reading, roots))
    region.run(nodes)
    region.close_all()
    made = {
        t: v for t, (at, v) in region.home.items() if at is root and v is not t and t.op.opdef.primitive in _RESULTS
    }
    for op, inputs, controls in region.rewired:
        edit.set_inputs(op, inputs)
        edit.set_controls(op, controls)

    stay = [n for n in nodes if isinstance(n, Operation) and not n.opdef.primitive and not reading.path[n]]
    members = [*stay, *graph.operations[count:]]
    lists = lists_for_handles(graph, members, reading.ops.difference(stay))
    values = {old: new for old, new in lists.items() if not is_flow(old)}
    for op in members:
        instead = lists if op.opdef.structured else values
        if any(t in instead for t in op.inputs):
            edit.set_inputs(op, [instead.get(t, t) for t in op.inputs])
    return {old: values.get(new, new) for old, new in made.items()} | values


_RESULTS = ("Merge", "Exit")


def _sinks(reading: StructureAnalysis, roots: Collection[Operation]) -> list[Node]:
    """Operations for which a graph is recovered: those in no branch, and the roots."""
    frame = reading.tree.root
    inside = [op for op in roots if op in reading.ops and reading.tree.of(op) is frame]
    return [n for n in reading.nodes[frame] if not reading.path[n]] + [reading.node_of(op) for op in inside]


def _check_outside(reading: StructureAnalysis, t: Tensor) -> None:
    """Raises unless `t` is outside all primitive loops and branches."""
    op = resolved(t).op
    if op not in reading.ops:
        return
    loop = reading.tree.outputs_of(op)
    if loop is reading.tree.root and not reading.path_of(t):
        return
    where = f"the loop {loop.name!r}" if loop is not reading.tree.root else shown(reading.path_of(t))
    made = f" (made at {op.source})" if op.source is not None else ""
    raise InvalidArgumentError(
        f"'{t.name}'{made} is in {where}, which consists of primitives: it has no single value to fetch, "
        "differentiate or differentiate by; use an output or an input of the loop or conditional",
        op.name,
        op,
    )
