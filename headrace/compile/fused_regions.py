"""Fused regions: parts of a primitive graph, each compiled into one node.

A step that waits inside (for a queue) cannot become one Python function, but much of it can become a few functions. A
*fused region* is a set of pure operations that the executor runs as one node. When all inputs of the region are
available, a compiled function computes all members, and the executor sends the outputs on. The region must not change
anything else:

* **Alive or dead together.** The members are in one frame, and the same conditions make them dead (`deadness`). So the
  node is dead if and only if each of them would be.
* **No new waiting.** The members wait for the same operations that take time. So no member, and no consumer of one,
  waits for a queue for which it did not wait before. This matters because the step may have to fill that queue itself
  from the value of such a consumer.
* **No cycles.** No path leads out of a region and back. Each operation has a *stage*: the number of steps between
  groups on the longest path to it. Members of a region have one stage, and an edge between two groups leads to a higher
  stage. So the regions form no cycles either.

Primitives, `LoopCond` among them, and operations with effects stay single nodes. Loops and conditionals that were
outlined (`outlining`) are members, too. A region with such members is optimized like a step that is compiled as a
whole. If it has loops, its function is made for each step, so that the loops can check whether the step was cancelled.

    ops, found = fuse_regions(ops, is_heavy, waits, prepare)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from headrace import thresholds
from headrace.compile.deadness import Deadness, deadness_of
from headrace.compile.fused_kernels import FusedReport, Prepare, compute_of, constant
from headrace.compile.outlining import is_outlined
from headrace.ir import walk
from headrace.ir.analysis import frames
from headrace.ir.analysis.flops import flops_of
from headrace.ir.analysis.graph_size import deepens_recursion
from headrace.ir.edit.copying import copy_graph
from headrace.ir.edit.editor import Editor
from headrace.ir.kernel import find_kernel, may_wait
from headrace.ir.notes import FusedKernel, StandsFor
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Operation


@record(frozen=True, slots=True)
class FusedRegion:
    """Fused region and the node that replaces it.

    Attributes:
      members: The operations of the region in the graph before fusion, in topological order.
      op: The operation that replaces them.
      source: The text of the function that computes them.
      report: The report of the passes that ran before compilation; None if they did not run.
    """

    members: tuple[Operation, ...]
    op: Operation
    source: str
    report: FusedReport | None = None


@deepens_recursion
def fuse_regions(
    ops: Sequence[Operation],
    is_heavy: Callable[[Operation], bool],
    is_late: Callable[[Operation], bool],
    prepare: Prepare | None = None,
) -> tuple[Sequence[Operation], list[FusedRegion]]:
    """Replaces each fused region by one operation, in a copy of the primitive graph.

    Args:
      ops: The operations of the graph that run.
      is_heavy: Whether an operation with a pure kernel may be large enough for its own thread.
      is_late: Whether an operation waits after it fires (`waits`).
      prepare: Runs the passes over the graph of a region with loops or conditionals.

    Returns:
      The operations that run now, and the fused regions; `ops` if there are none.

    Raises:
      GraphError, InvalidArgumentError: The graph is not legal (`ir.analysis.frames`).
    """
    groups = regions(ops, is_heavy, is_late)
    if not groups:
        return ops, []
    graph, copies = copy_graph(ops[0].graph, ops)
    edit = Editor(graph)
    stands_for: dict[Operation, Operation] = {}
    found = []
    for members in groups:
        mine = [copies[op] for op in members]
        op, source, report = _contract(edit, mine, prepare)
        found.append(FusedRegion(tuple(members), op, source, report))
        stands_for.update(dict.fromkeys(mine, op))
    edit.remove(stands_for.keys())
    edit.arrange(list(dict.fromkeys(stands_for.get(copies[op], copies[op]) for op in ops)))
    return list(graph.operations), found


def regions(
    ops: Sequence[Operation], is_heavy: Callable[[Operation], bool], is_late: Callable[[Operation], bool]
) -> list[list[Operation]]:
    """Members of each fused region that can be made of `ops`, in topological order.

    The arguments and errors are those of `fuse_regions`.
    """
    tree = frames.derive(ops)
    marks = {f.loop_cond for f in tree.frames}
    deadness = deadness_of(ops, tree, lambda op: is_late(op) or is_heavy(op)).of
    keys: dict[Operation, tuple[frames.Frame, Deadness]] = {}
    for op in ops:
        if _can_be_member(op) and op not in marks and not is_heavy(op):
            keys[op] = (tree.of(op), deadness[op])
    order = walk.toposort(ops)
    drawn = _draw_in(order, keys) if any(map(is_outlined, keys)) else {}
    stages: dict[Operation, int] = {}
    for op in order:
        key, stage = keys.get(op), 0
        for p in walk.forward_predecessors(op):
            if constant(p) is None:
                stage = max(stage, stages[p] + (key is None or key != keys.get(p)))
        stages[op] = stage
    for op, readers in drawn.items():  # the latest stage delays no reader
        stages[op] = min(stages[r] for r in readers)
    groups: dict[tuple[frames.Frame, Deadness, int], list[Operation]] = {}
    for op in order:
        if op in keys:
            groups.setdefault((*keys[op], stages[op]), []).append(op)
    out = [
        g for g in groups.values() if sum(map(_computes, g)) >= thresholds.FUSED_REGION_OPS or any(map(is_outlined, g))
    ]
    return sorted(out, key=lambda g: g[0].id)


def _draw_in(
    order: Sequence[Operation], keys: dict[Operation, tuple[frames.Frame, Deadness]]
) -> dict[Operation, list[Operation]]:
    """Moves operations that start a loop into the group of this loop, by changing `keys`.

    They are operations that wait for no operation and that are read only by one group with loops or conditionals. So no
    other operation depends on the time at which they run.

    Returns:
      These operations, each after its readers, with their readers.
    """
    nested = {key for op, key in keys.items() if is_outlined(op)}
    readers: dict[Operation, list[Operation]] = {}
    drawn: dict[Operation, list[Operation]] = {}
    for op in reversed(order):
        key, mine = keys.get(op), readers.get(op, ())
        if mine and key is not None and not key[1].waits and not is_outlined(op):
            into = keys.get(mine[0])
            if into in nested and all(keys.get(r) == into for r in mine):
                assert into is not None
                if into[0] is key[0] and not key[1].dead & ~into[1].dead:
                    keys[op] = into
                    drawn[op] = list(mine)
        for p in walk.forward_predecessors(op):
            readers.setdefault(p, []).append(op)
    return drawn


def apart(ops: Iterable[Operation], is_heavy: Callable[[Operation], bool]) -> dict[str, list[Operation]]:
    """Operations that run as nodes of their own after fusion, by reason.

    Constants and the ends of a step are omitted, because they cost nothing.

    Args:
      ops: The operations that `fuse_regions` returned.
      is_heavy: Whether an operation with a pure kernel may be large enough for its own thread.

    Returns:
      The operations, by reason.
    """
    few = f"fewer than {thresholds.FUSED_REGION_OPS} computing operations with equal dependencies and deadness"
    out: dict[str, list[Operation]] = {}
    for op in ops:
        is_region = op.type in ("_FusedRegion", "_FusedRegionOfStep")
        if not is_region and not op.opdef.facts.graph_end and constant(op) is None:
            why = _why_not(op) or ("may be large enough for its own thread" if is_heavy(op) else few)
            out.setdefault(why, []).append(op)
    return out


def _can_be_member(op: Operation) -> bool:
    return constant(op) is None and not _why_not(op)


def _why_not(op: Operation) -> str:
    """Reason why `op` cannot be in a fused region; "" if it can."""
    if op.opdef.primitive:
        return "a primitive of control flow"
    if op.opdef.structured:
        return "" if is_outlined(op) else "calls a function that runs in its own frame"
    kernel = find_kernel(op)
    if kernel is None or may_wait(op):
        return "may block"
    if not op.opdef.is_pure or kernel.form != "pure":
        return "has effects, or depends on effects of other operations"
    if any(t.dtype.is_ref for t in (*op.inputs, *op.outputs)):
        return "works on a reference"
    return ""


def waits(op: Operation) -> bool:
    """Whether `op` waits after it fires, or calls a function in another frame."""
    if op.opdef.structured:
        return not is_outlined(op)
    return may_wait(op)


def _computes(op: Operation) -> bool:
    """Whether compiled code contains work for `op`."""
    return bool(op.outputs) and bool(op.inputs) and op.opdef.facts.forwards is None


# *** the operation of a region ***


def _contract(
    edit: Editor, members: Sequence[Operation], prepare: Prepare | None
) -> tuple[Operation, str, FusedReport | None]:
    """Replaces `members` by one operation; afterwards only members read members.

    Returns:
      The operation, the text of the function that computes the members, and the report of the passes.
    """
    graph, inside = edit.graph, set(members)
    read = list(dict.fromkeys(t for op in members for t in op.inputs if t.op not in inside))
    inputs = [t for t in read if constant(t.op) is None]
    before = {c for op in members for c in op.control_inputs if c not in inside and constant(c) is None}
    before -= {t.op for t in inputs if not t.op.opdef.primitive and not t.op.opdef.structured}  # data edges wait for it
    if not inputs and not before:
        inputs = [t for t in read if t.op.type != "Const"]  # an Enter, which determines the frame
    outputs = [
        t for op in members for t in op.outputs if any(reader not in inside for reader, _ in edit.uses.get(t, ()))
    ]
    wanted = [op for op in members if any(after not in inside for after in edit.waits.get(op, ()))]
    compute, report = compute_of(members, inputs, outputs, wanted, prepare)
    attrs = {
        "Tin": tuple(t.dtype for t in inputs),
        "Tout": tuple(t.dtype for t in outputs),
    }
    notes = [FusedKernel(compute, _flops(members)), StandsFor(tuple(t.name for t in outputs))]
    name = graph.unique_name(f"{members[-1].name}/fused_region")
    controls = [c for c in dict.fromkeys(c for op in members for c in op.control_inputs) if c in before]
    type = "_FusedRegionOfStep" if compute.is_of_step else "_FusedRegion"
    op = graph.add_op(type, name, inputs, attrs, controls, members[-1].device, members[-1].source, notes=notes)
    for old, new in zip(outputs, op.outputs, strict=True):
        new.copy_static(old)
        for reader, i in list(edit.uses[old]):
            if reader not in inside:
                edit.set_input(reader, i, new)
    for m in members:
        for after in list(edit.waits.get(m, ())):
            if after not in inside:
                edit.set_controls(after, [op if c is m else c for c in after.control_inputs])
    return op, compute.source, report


def _flops(members: Iterable[Operation]) -> float | None:
    """Cost of one firing of all members; None if it is not static."""
    costs = [None if op.opdef.structured else flops_of(op) for op in members]
    return None if None in costs else sum(c or 0.0 for c in costs)


def show(fused: Iterable[FusedRegion]) -> str:
    """Text with the members of each region on one line."""
    return "\n".join(" ".join(op.name for op in c.members) for c in fused)
