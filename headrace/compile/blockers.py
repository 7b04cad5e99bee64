"""Reasons why a step, or a part of it, cannot be compiled but only interpreted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace import recursion, thresholds
from headrace.errors import NotFoundError
from headrace.ir.analysis.concurrency import concurrent
from headrace.ir.analysis.graph_size import graph_size
from headrace.ir.function import bodies, called, recursive_functions
from headrace.ir.graph import FuncGraph
from headrace.ir.kernel import find_kernel
from headrace.ir.kernel_errors import place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.ir.graph import Operation
    from headrace.ir.opdef import Primitive

_HARMLESS: Final[tuple[Primitive, ...]] = ("", "ControlTrigger")


def blockers(ops: Iterable[Operation], is_ordered: bool = False) -> list[str]:
    """Reasons against compiling `ops` and the graphs that they own and call, by operation.

    Args:
      ops: The operations of a step.
      is_ordered: Whether the graph of the step was built with ordered stateful operations (`ir.order`).

    Returns:
      One line for each operation that cannot be compiled.
    """
    out: list[str] = []
    seen: set[FuncGraph] = set()
    todo = [list(ops)]
    is_blocking = False
    for some in todo:
        for op in some:
            is_blocking = is_blocking or op.opdef.facts.blocking
            if op.opdef.structured:
                try:
                    graphs = [g for _, g in bodies(op)]
                except NotFoundError as e:
                    out.append(str(e))
                    continue
                todo += [list(g.operations) for g in graphs if g not in seen]
                seen.update(graphs)
                continue
            why = _why(op)
            if why:
                out.append(f"{place(op)} {why}")
    pair = concurrent(todo, is_ordered) if is_blocking and not out else None
    if pair is not None:
        one, other = pair
        which = f"that of {place(other)}" if other is not one else "its own call in the next iteration"
        out.append(f"{place(one)} calls a Python function that may wait for {which}: no edge orders the two calls")
    return out


def too_large(ops: Iterable[Operation]) -> list[str]:
    """Reasons why `ops` together are too large or too deeply nested; [] if none."""
    recursive = _recursive(ops)
    if recursive:
        return recursive
    found = graph_size(ops, reads=True)
    if found.levels > recursion.MOST:
        return [
            f"its structured operations and calls are nested {found.levels:,} deep; the limit is {recursion.MOST:,}"
        ]
    if found.repeated > thresholds.EXPANDED_OPERATIONS:
        return [
            f"expanding its calls gives {found.size:,} operations; a compiled step may have at most "
            f"{thresholds.EXPANDED_OPERATIONS:,} more than its graph"
        ]
    return []


def _recursive(ops: Iterable[Operation]) -> list[str]:
    """Lines for functions that contain themselves as a branch or a part of a loop.

    A call of a function by itself is compiled as a call, but a block cannot be written inside itself.
    """
    if not recursive_functions(ops):
        return []
    inside: dict[str, set[str]] = {}  # functions that a function has as branches and parts of loops, not by calls
    todo: list[tuple[str, Iterable[Operation]]] = [("", ops)]
    while todo:
        name, own = todo.pop()
        if name not in inside:
            inside[name] = set()
            for op, f in called(own):
                todo.append((f.name, op.graph.function(f.name, op).operations))
                if op.opdef.structured not in ("Call", "RemoteCall"):
                    inside[name].add(f.name)
    left = {name: set(others) for name, others in inside.items()}
    while ends := [name for name, others in left.items() if not others & left.keys()]:
        for name in ends:
            del left[name]
    return [f"{name!r} contains itself as a branch, a loop condition or a loop body" for name in left if name]


def _why(op: Operation) -> str:
    if op.opdef.facts.graph_end:
        return ""
    primitive = op.opdef.primitive
    if primitive:
        return "" if primitive in _HARMLESS else "is a control-flow primitive that recovery left in the graph"
    kernel = find_kernel(op)
    if kernel is None:
        return "has no kernel for this device"
    if kernel.form == "async":
        return "may block"
    return ""
