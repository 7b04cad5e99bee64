"""Why a step, or a part of it, cannot be compiled: what the token machine alone can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import NotFoundError
from headrace.ir.failure import place
from headrace.ir.function import FuncGraph, bodies
from headrace.ir.in_flight import concurrent
from headrace.ir.kernel import find_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.ir.graph import Operation

_HARMLESS = ("", "ControlTrigger")


def blockers(ops: Iterable[Operation], is_ordered: bool = False) -> list[str]:
    """For each operation that cannot be compiled, in `ops` and in what they own and call, a line that says why.

    Args:
      ops: of a step.
      is_ordered: whether the graph of the step was made as one that orders its stateful operations (`ir.order`).
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
        which = f"that of {place(other)}" if other is not one else "its own of the next iteration"
        out.append(f"{place(one)} calls a Python function, which may wait for {which}: no edge orders them")
    return out


def _why(op: Operation) -> str:
    if op.type in ("_Arg", "_Retval"):
        return ""
    primitive = op.opdef.primitive
    if primitive:
        return "" if primitive in _HARMLESS else "is one of the primitives of control flow, not recovered"
    kernel = find_kernel(op)
    if kernel is None:
        return "has no kernel for this device"
    if kernel.form == "async":
        return "may wait for something else"
    return ""
