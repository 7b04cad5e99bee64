"""Plans as plain data, so that plans of two processes can be compared.

Two plans are equal if they have equal nodes (operation with its attributes, notes, shapes and source line; kind; slots;
pending counts), equal edges between the numbers of nodes, and equal frames with equal templates and constants. Kernels
are functions of the operation, and so not part of the comparison.

`python -m tests.partition.plans FILE...` reads encoded parts and prints the digests of their plans, with and without
fused regions.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from headrace.compile.fused_regions import fuse_regions, waits
from headrace.execute.plan import FramePlan, Out, Plan, PlanNode, make_plan, may_be_heavy
from headrace.ir.text import show_op
from headrace.partition import partition
from headrace.partition.codec import decode, encode
from headrace.partition.part import Part

_NUMBERS = (
    *("id", "kind", "real", "arity", "n_outputs", "start", "stop", "index", "bound", "position", "edge", "more"),
    *("gates", "stops_dead", "crosses", "acts_dead", "is_constant"),
)


def plan_of(part: Part, is_fused: bool) -> Plan:
    """Returns the plan of a part, as its receiver makes it."""
    ops, called = part.ops, part.called
    if is_fused:
        ops = fuse_regions(ops, may_be_heavy, waits)[0]
        called = {name: fuse_regions(body, may_be_heavy, waits)[0] for name, body in called.items()}
    return make_plan(ops, called, part.device)


def described(plan: Plan) -> dict[str, Any]:
    """Returns a plan as values of JSON."""
    frames = {id(f): i for i, f in enumerate(plan.frames)}
    return {
        "device": plan.device,
        "is_acyclic": plan.is_acyclic,
        "nodes": [_node(n, frames) for n in plan.nodes],
        "frames": [_frame(f, frames) for f in plan.frames],
        "args": _ids(plan.args),
        "retvals": _ids(plan.retvals),
        "binders": [show_op(op) for op, _ in plan.binders],
    }


def digest(plan: Plan) -> str:
    """Returns a digest of everything that `described` returns."""
    return hashlib.sha256(json.dumps(described(plan), sort_keys=True).encode()).hexdigest()


def through_bytes(part: Part) -> Part:
    """Returns a part that was encoded and decoded, with an equal plan and equal edges.

    If operations of the part own graphs, the plans are those with fused regions, which compute these operations.
    """
    data = encode(part)
    again = decode(data)
    assert encode(again) == data
    assert (again.device, again.edges) == (part.device, part.edges)
    ops = [op for some in (part.ops, *part.called.values()) for op in some]
    is_fused = any(op.opdef.structured not in ("", "Call") for op in ops)
    assert described(plan_of(again, is_fused)) == described(plan_of(part, is_fused))
    return again


def partition_through_bytes(*args: Any, **options: Any) -> dict[str, Part]:
    """Calls `partition`; the parts of the result were encoded and decoded."""
    return {device: through_bytes(part) for device, part in partition(*args, **options).items()}


def _ids(nodes: Iterable[PlanNode]) -> list[int]:
    return [n.id for n in nodes]


def _node(n: PlanNode, frames: dict[int, int]) -> dict[str, Any]:
    out: dict[str, Any] = {name: getattr(n, name) for name in _NUMBERS}
    out["op"] = show_op(n.op)
    out["source"] = str(n.op.source)
    out["handles"] = [str(t.handle) for t in n.op.outputs]
    out["frame"] = frames[id(n.frame)]
    out["child"] = None if n.child is None else frames[id(n.child)]
    out["reads"] = list(n.reads)
    out["outs"] = [_out(o) for o in n.outs]
    out["direct"], out["joins"], out["merges"] = _ids(n.direct), _joins(n.joins), _merges(n.merges)
    out["only"] = None if n.only is None else n.only.id
    out["controls"] = [[at, to.id] for at, to in n.controls]
    out["control_merges"], out["control_direct"] = _ids(n.control_merges), _ids(n.control_direct)
    out["value_index"] = [int(i) for i in n.value_index]
    out["has_kernel"] = n.kernel is not None
    return out


def _out(o: Out) -> list[Any]:
    return [_ids(o.direct), _ids(o.dead_direct), _ids(o.quiet), o.used, _joins(o.joins), _merges(o.merges)]


def _joins(joins: Iterable[tuple[int, int, PlanNode]]) -> list[Any]:
    return [[slot, at, n.id] for slot, at, n in joins]


def _merges(merges: Iterable[tuple[PlanNode, int]]) -> list[Any]:
    return [[n.id, i] for n, i in merges]


def _frame(f: FramePlan, frames: dict[int, int]) -> dict[str, Any]:
    return {
        "name": f.name,
        "parent": None if f.parent is None else frames[id(f.parent)],
        "limit": f.limit,
        "nodes": _ids(f.nodes),
        "values": [_value(v) for v in f.values],
        "first": list(f.first),
        "later": list(f.later),
        "count": f.count,
        "enters": f.enters,
        "exits": _ids(f.exits),
        "sources": [[n.id, _value(x)] for n, x in f.sources],
    }


def _value(x: Any) -> Any:
    """Returns a constant, or a list of constants, as text."""
    if isinstance(x, (list, tuple)):
        return [_value(v) for v in x]
    if isinstance(x, (np.ndarray, np.generic)):
        a = np.asarray(x)
        return [str(a.dtype), list(a.shape), [v.hex() for v in a.flat] if a.dtype == object else a.tobytes().hex()]
    return repr(x)


if __name__ == "__main__":
    for file in sys.argv[1:]:
        data = pathlib.Path(file).read_bytes()
        print(*[digest(plan_of(decode(data), is_fused)) for is_fused in (False, True)])
