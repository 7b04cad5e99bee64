"""Lowering of calls: the function is inlined or runs in a frame of its own.

An inlined call leaves no operation of its own: each operation of the function starts as soon as its own inputs are
available. If the call waits for a control input, or for an argument that the function does not use, all of the function
must wait. Then the arguments pass through Identities with a control edge from a NoOp that waits, and operations without
arguments wait for that NoOp.

A recursive function cannot be inlined. It is lowered once, to a primitive graph of its own, and the call stays: the
executor opens a frame for each call as it happens. The same is done if functions call functions so often that inlining
would make the graph huge, or so deeply that the recursion of the lowering would fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import dtypes
from headrace.errors import HeadraceInternalError, UnimplementedError
from headrace.ir.analysis.signature_check import check_signature
from headrace.ir.attr_values import Func
from headrace.ir.function import body as body_of
from headrace.ir.walk import constant_behind
from headrace.lower.lowering import LoweringScope, Made, Values, prefix_for, used_params

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Operation, Tensor
    from headrace.lower.lowering import Lowering


def lower_call(
    low: Lowering, op: Operation, inputs: list[Tensor], controls: list[Operation], place: LoweringScope
) -> Made:
    """Lowers a call by inlining, or keeps it; see the module's text."""
    f = op.attrs["f"]
    graph = body_of(op, f)
    shared = low.shared
    if shared.is_called(f):
        shared.called[f.name] = graph
        call = low.copy(place, op, inputs, controls)
        return list(call.outputs), lambda: [call]
    return inline(low, op, graph, inputs, controls, place)


def lower_remote_call(
    low: Lowering, op: Operation, inputs: list[Tensor], controls: list[Operation], place: LoweringScope
) -> Made:
    """Lowers a RemoteCall, whose device is a tensor; a step on one device ignores it."""
    return inline(low, op, body_of(op, op.attrs["f"]), inputs[1:], controls, place)


def lower_symbolic_gradient(
    low: Lowering, op: Operation, inputs: list[Tensor], controls: list[Operation], place: LoweringScope
) -> Made:
    """Lowers a call of a function's gradient, whose graph `Shared.differentiate` makes."""
    shared, f = low.shared, op.attrs["f"]
    if shared.differentiate is None:
        raise HeadraceInternalError(f"SymbolicGradient '{op.name}' cannot be lowered without gradients")
    name = f.name if isinstance(f, Func) else ""
    if name in shared.differentiated:
        raise UnimplementedError(
            f"SymbolicGradient '{op.name}' needs the gradient of {name!r}, which is recursive", op.name, op
        )
    shared.differentiated.update([name] if name else ())
    try:
        return inline(low, op, shared.differentiate(op), inputs, controls, place)
    finally:
        shared.differentiated.discard(name)


def inline(
    low: Lowering,
    op: Operation,
    graph: FuncGraph,
    inputs: list[Tensor],
    controls: list[Operation],
    place: LoweringScope,
) -> Made:
    """Puts the operations of `graph`, which `op` calls, in place of the call."""
    check_signature(op, graph, len(inputs), len(op.outputs))
    prefix = prefix_for(place, op, graph)
    schedule = low.shared.schedule(graph)
    low.shared.copied += len(schedule)
    used = list(used_params(graph, schedule))
    controls = list(dict.fromkeys([*controls, *_unused(inputs, set(used))]))
    at = place.below(prefix)
    entry = None
    if controls:
        entry = low.emit(place, "NoOp", [], {}, f"{prefix}entry", controls, op)
        at = LoweringScope(place.loop, entry, (), prefix, place.anchor)
    values: Values = {}
    for k in used:
        t = inputs[k]
        if entry is not None:
            name = f"{prefix}{graph.params[k].op.name}"
            t = low.emit(at, "Identity", [t], {"T": t.dtype.base}, name, [entry], op).outputs[0]
        values[graph.params[k]] = t
    done = low.sub_graph(graph, values, at)
    results = [values[r] for r in graph.results]
    if entry is not None:
        results = [low.settled(r, at, op, f"{prefix}Identity") for r in results]
        place.gated.update(results)

    def ends() -> list[Operation]:
        waits = done.of_all([*(r.op for r in graph.results), *graph.control_results])
        return waits if entry is None else [*waits, entry]

    return results, ends


def _unused(inputs: list[Tensor], used: set[int]) -> list[Operation]:
    """Producers of arguments that the function does not use, for which the call must wait."""
    some = [t for k, t in enumerate(inputs) if k not in used]
    return [t.op for t in some if t.dtype is not dtypes.resource and constant_behind(t.op) is None]
