"""Rotated loops: the device computes the next predicate while the host still enqueues the iteration.

    while error > eps:          # the device computes `error`, and the host asks for the predicate
        x, error = improve(x)

A kernel of a GPU is *enqueued*: the call returns at once and the device computes later, so that the host is ahead of
the device. A predicate that depends on values of the device ends this, because the host must know it to go on. Computed
at the top of an iteration, it makes the host wait until the device has done all work of the iteration before. The
device then has nothing to do while the host enqueues the next iteration.

But the next predicate depends on the loop variables alone, and is known as soon as the device has those that it reads,
which is often long before the end of the iteration. So `rotate_loops` lets the iteration compute it:

    p = begin copy of (error > eps)
    while end copy of p:
        x, error = improve(x)
        p = begin copy of (error > eps)

The copy in flight is a further loop variable. The schedule puts the operations that `p` depends on first
(`schedule.regions`), so that the copy goes on while the host enqueues the rest of the iteration. The host waits for it
at the top of the next one, where the device may still compute the rest of this one.

The condition is evaluated as often as before, for the same values: once before the loop, and once after each iteration.
So loops without iterations, limits of iterations and nested loops have the same results. Parts of a condition that the
host computes (`i < n`) stay where they are, and so do

* a condition with effects, or in which the host waits in between,
* one that may fail, if the body has effects: the iteration would fail before some of them.

An error in the condition names the operation and the iteration to which it belongs (the note `OfCondition`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.ir import walk
from headrace.ir.analysis.speculatable import is_speculatable
from headrace.ir.edit.add_values import add_variable, set_result
from headrace.ir.edit.copying import copied_attrs
from headrace.ir.edit.editor import Editor
from headrace.ir.function import inside_out, nested_operations
from headrace.ir.notes import FrameName, OfCondition, OnDevice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor


def rotate_loops(graph: Graph) -> None:
    """Rotates the loops of a joined step whose predicates a device computes, in place.

    Args:
      graph: A private graph with the copies of a far memory (`partition.joined`). Its operations own their graphs.
    """
    for g in inside_out(graph):
        for op in g.operations:
            if op.opdef.structured == "While":
                _rotate(op)


def _rotate(op: Operation) -> None:
    cond: FuncGraph = op.attrs["cond"]
    body: FuncGraph = op.attrs["body"]
    begun = [o for o in cond.operations if o.type == "_BeginToHost" and not _waits(o)]
    if not begun or cond.control_results or not _has_no_effects(cond):
        return
    moved = [o for o in walk.in_order(walk.reachable(begun)) if o.type != "_Arg"]
    if not (all(map(is_speculatable, moved)) or (not body.control_results and _has_no_effects(body))):
        return
    first = _copied(moved, op.graph, dict(zip(cond.params, op.inputs, strict=True)), op, 0)
    following = _copied(moved, body, dict(zip(cond.params, body.results, strict=True)), op, 1)
    for o in begun:
        _carry(op, o.outputs[0], first[o.outputs[0]], following[o.outputs[0]])
    Editor(cond).sweep()


def _copied(
    moved: Sequence[Operation], graph: Graph, at: dict[Tensor, Tensor], loop: Operation, ahead: int
) -> dict[Tensor, Tensor]:
    """Appends copies of operations of a condition to a graph.

    Args:
      moved: The operations, in order.
      graph: The graph.
      at: The tensors in place of the parameters of the condition.
      loop: The loop.
      ahead: The number of iterations by which the condition is evaluated before its own.

    Returns:
      `at`, with the tensors of the copies.
    """
    edit, name = Editor(graph), loop.notes.get(FrameName)
    for o in moved:
        free = graph.unique_name(o.name) if o.name in graph else o.name
        copy = graph.copy_op(o, [at[t] for t in o.inputs], (), free)
        edit.set_attrs(copy, copied_attrs(o, graph, at))
        edit.add_note(copy, OfCondition(loop.name if name is None else name.name, ahead))
        at.update(zip(o.outputs, copy.outputs, strict=True))
    return at


def _carry(op: Operation, begun: Tensor, first: Tensor, following: Tensor) -> None:
    """Makes a copy in flight a loop variable.

    Args:
      op: The loop.
      begun: The tensor in the condition in whose place the variable is.
      first: Its initial value.
      following: Its next value, a tensor of the body.
    """
    add_variable(op, first, begun.op.name)
    k = len(op.inputs) - 1
    set_result(op, k, following)
    cond: FuncGraph = op.attrs["cond"]
    Editor(cond).replace(begun, cond.params[k])
    device = begun.op.attrs["device"]
    for graph in (cond, op.attrs["body"]):
        Editor(graph).add_note(graph.params[k].op, OnDevice(device, (0,)))
    there = op.notes.get(OnDevice)
    Editor(op.graph).add_note(op, OnDevice(device, (*(() if there is None else there.outputs), k)))


def _waits(op: Operation) -> bool:
    """Whether an operation depends on a wait of the host."""
    return any(o.opdef.facts.awaits for o in nested_operations(walk.reachable([op])))


def _has_no_effects(graph: FuncGraph) -> bool:
    """Whether the operations of a graph have no effects and no control inputs."""
    return all(
        (o.opdef.is_pure or o.opdef.structured or o.opdef.facts.awaits or o.type == "_Arg") and not o.control_inputs
        for o in nested_operations(graph.operations)
    )
