"""Collectives between devices: the operations of each participant and the edges between them.

On several devices, a collective (`ops/collective.py`) cannot stay a single operation, because all inputs would go to
one device, and all outputs would come from there. It is expanded into operations, each of which belongs to a
*participant* and runs on the device of that participant's tensor. This module makes no Send. An operation of one
participant reads an output of another one, and the partitioner cuts that edge like any other. There are two algorithms,
for two resources that may be scarce:

**A tree, for small tensors.** Its cost is the number of messages that follow one another. With eight participants
(arrows are sums; then the same way back):

    0 ◄─ 1    2 ◄─ 3    4 ◄─ 5    6 ◄─ 7
    0 ◄────── 2         4 ◄────── 6
    0 ◄──────────────── 4

After log2(N) successive messages, participant 0 has the sum. After log2(N) more, all participants have it. But
participant 0 has received the whole tensor log2(N) times, and sent it as often.

**A ring, for large tensors.** Its cost is the number of bytes into and out of the busiest device. Each tensor is cut
into N chunks. Chunk c starts at participant c + 1 and moves on to c + 2, c + 3, and so on. Each participant adds its
own chunk c to it. When it arrives at participant c, it contains the chunks of all. All chunks move at the same time, so
each device receives from its left neighbour and sends to its right neighbour all the time. Now each participant has one
chunk of the sum. The chunks then move around the ring a second time, unchanged, until every participant has all of
them. In total, each device has sent 2 (N - 1) / N times the tensor's size, less than twice the size for any N. But
2 (N - 1) messages follow one another.

The first half of the ring is a reduce-scatter and the second half an all-gather, and these two collectives are
implemented by them. A broadcast cuts the tensor at the root, sends one chunk to each participant, and continues as an
all-gather.

**Invariants.** All participants receive the same bits in every run, because the graph determines the order of the
additions, and not the order of arrival. A tree adds in the order of the kernel for one device. A ring adds each chunk
in an order of its own, x[c+1] + x[c+2] + ... + x[c]. So sums of floats may differ from those of one device in the last
bits; integers, maxima and minima do not.

**Frames and deadness.** All operations made here have inputs, and these depend on the inputs of the collective. So they
are in its frame, run once an iteration, and are dead when it would have been dead. Constants would need more care
(`lowering`). So the operations that cut and join, `_Cut` and `_Join`, need no constants as inputs.

Sources: the ring is that of Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations"
(2009); the broadcast that of van de Geijn; the tree is the binomial tree of MPI's implementations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace import dtypes, shapes, thresholds
from headrace.ir import walk
from headrace.ir.builder import Builder
from headrace.ir.device import DeviceSpec
from headrace.ir.edit.editor import Editor
from headrace.ir.function import owned
from headrace.ir.graph import FuncGraph
from headrace.opkit.tree_reduction import tree_reduce

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.shapes import Shape


_REDUCTIONS: Final[Mapping[str, str]] = {"sum": "AddV2", "prod": "Mul", "max": "Maximum", "min": "Minimum"}

# Makes the outputs of a collective, given its participants and their inputs.
_Way: TypeAlias = "Callable[[Operation, Sequence[Builder], Sequence[Tensor]], Sequence[Tensor]]"


def expand_collectives(
    ops: Sequence[Operation], is_ready: Callable[[Operation], bool] = lambda op: True
) -> Sequence[Operation]:
    """Expands each collective into operations of its participants; see the module's text.

    A collective stays as it is if all its participants are known to be on one device, and is placed on that device.

    The operations of participant i run on the first of these devices that is known: the one in the collective's
    attribute `devices`; the one requested for the producer of input i, or for the producer of the value that this one
    forwards; the one requested for the collective. Otherwise they are colocated with the producer of input i. The
    outputs of a broadcast have no inputs of their own; without `devices` they are left to the placer.

    Args:
      ops: All operations to run of a private primitive graph, which is changed. They must not be bodies of functions
        that are called in frames of their own, because each of these is on one device.
      is_ready: Whether a collective is expanded now.

    Returns:
      All operations that run now.
    """
    found = [op for op in walk.in_order(ops) if op.type in _WAYS and is_ready(op)]
    if not found:
        return ops
    ops = list(ops)  # `ops` may be the graph's own list, which changes
    edit = Editor(ops[0].graph)
    parts: dict[Operation, Sequence[Operation]] = {}
    renamed: dict[str, str] = {}
    for op in found:
        since = len(edit.graph)
        outputs = _expanded(edit, op)
        if outputs is None:
            continue
        made = list(edit.graph.operations[since:])
        was_read = [edit.replace(old, new) for old, new in zip(op.outputs, outputs, strict=True)]
        ends = [t.op for t in outputs]
        was_waited_for = edit.replace_control(op, ends)
        edit.remove([op])
        if any(was_read) and not was_waited_for:
            edit.let_go(end for end, is_read in zip(ends, was_read, strict=True) if not is_read)
        parts[op] = [part for part in made if edit.graph.find(part.name) is part]
        renamed[f"loc:@{op.name}"] = f"loc:@{ends[was_read.index(True) if any(was_read) else 0].name}"
    out = [part for op in ops for part in parts.get(op, (op,))]
    for op in out:
        beside = op.attrs.get("_class", ())
        if not renamed.keys().isdisjoint(beside):
            edit.set_attr(op, "_class", tuple(renamed.get(name, name) for name in beside))
    return out


def expand_named_collectives(graph: Graph, preserved: Sequence[Operation] = ()) -> None:
    """Expands the collectives of a structured graph that name the devices of all participants.

    A collective without these names needs the primitive form, in which the producer of each tensor is known.

    Args:
      graph: A private structured graph, which is changed, with the graphs in it.
      preserved: Operations that stay.
    """
    for op in graph.operations:
        for inner in owned(op):
            expand_named_collectives(inner)
    kept = {*preserved, *(graph.control_results if isinstance(graph, FuncGraph) else ())}
    expand_collectives(graph.operations, lambda op: op not in kept and _names_all(op))


def is_collective(op: Operation) -> bool:
    """Whether the operation is a collective."""
    return op.type in _WAYS


def _names_all(op: Operation) -> bool:
    """Whether the devices of all participants of a collective are known without its neighbours."""
    is_rooted = op.type != "_Broadcast" or requested_device(op.inputs[0]) != ""
    return is_rooted and len(op.attrs["devices"]) > 0 and all(op.attrs["devices"])


def _expanded(edit: Editor, op: Operation) -> Sequence[Tensor] | None:
    """The replacements for the outputs of a collective; None if it stays."""
    devices = op.attrs["devices"] or ("",) * len(op.outputs)
    at = [
        _place(op, t, device, f"{op.name}/{i}/")
        for i, (device, t) in enumerate(zip(devices, _handed_in(op), strict=True))
    ]
    if all(b.device == at[0].device for b in at) and DeviceSpec.from_string(at[0].device).index is not None:
        edit.set_device(op, at[0].device)
        return None
    xs = list(op.inputs)
    if op.control_inputs:
        entries = at if op.type != "_Broadcast" else [_root(op, xs[0])]
        xs = [b.after(*op.control_inputs).Identity(x) for b, x in zip(entries, xs, strict=True)]
    if len(at) == 1:
        return [at[0].Identity(*xs)]
    return _WAYS[op.type](op, at, xs)


def _handed_in(op: Operation) -> Sequence[Tensor | None]:
    """For each participant, the tensor that it contributes, if any."""
    return op.inputs if op.type != "_Broadcast" else [None] * len(op.outputs)


def _root(op: Operation, x: Tensor) -> Builder:
    """Builder of operations on the device of `x`, the input of a broadcast."""
    return _place(op, x, "", f"{op.name}/root/")


def _place(op: Operation, t: Tensor | None, device: str, scope: str) -> Builder:
    """Builder of the operations of one participant of a collective.

    Args:
      op: The collective.
      t: The tensor that the participant contributes, if any.
      device: The device in the collective's attribute `devices`; "" if there is none.
      scope: The prefix of names.

    Returns:
      A builder for that device, or one that colocates operations with the producer of `t`.
    """
    b = Builder(op.graph, scope, source=op.source)
    device = device or (requested_device(t) if t is not None else "") or op.device
    if device or t is None:
        return b.on(DeviceSpec.from_string(device).to_string())
    return dataclasses.replace(b, colocate=(t.op.name,))


def requested_device(t: Tensor) -> str:
    """The device requested for the first producer of the value of `t`; "" if none."""
    seen: set[Operation] = set()
    while t.op not in seen:
        op = t.op
        seen.add(op)
        forwards = op.opdef.facts.forwards
        if op.device or not op.inputs or (forwards is None and not op.opdef.primitive):
            return op.device
        t = op.inputs[forwards or 0]
    return ""


def _is_large(t: Tensor) -> bool:
    n = shapes.size(t.shape)
    return n is not None and t.dtype.base not in dtypes.OBJECT and n * t.dtype.size >= thresholds.RING_BYTES


def _cut(b: Builder, x: Tensor, n: int, flat: bool) -> list[Tensor]:
    return list(b.make("_Cut", (x,), {"N": n, "flat": flat}))  # n > 1, so the result is a tuple


def _join(b: Builder, parts: Sequence[Tensor], shape: Shape) -> Tensor:
    out: Tensor = b.make("_Join", (list(parts),), {"shape": shape})
    return out


# *** trees ***


def _collected(at: Sequence[Builder], xs: Sequence[Tensor], type: str) -> Tensor:
    """Reduces `xs` by an op of two arguments, with the result at participant 0."""
    return tree_reduce(lambda i, x, y: at[i].make(type, (x, y), {}), xs)


def _spread(at: Sequence[Builder], x: Tensor) -> list[Tensor]:
    """Copies `x`, which is at participant 0, to each participant."""
    out = [x]
    for i in range(1, len(at)):
        out.append(at[i].Identity(out[i & (i - 1)]))  # from the participant to which it sent in `_collected`
    return out


# *** rings ***


def _reduced_round(at: Sequence[Builder], rows: Sequence[Sequence[Tensor]], type: str) -> list[Tensor]:
    """Reduces chunk c of all participants along the ring, with the result at participant c.

    Args:
      at: The builders of the participants.
      rows: The chunks of each participant.
      type: The op of two arguments.

    Returns:
      The reduced chunks.
    """
    n = len(at)
    out = []
    for c in range(n):
        x = rows[(c + 1) % n][c]
        for i in range(c + 2, c + n + 1):
            x = at[i % n].make(type, (x, rows[i % n][c]), {})
        out.append(x)
    return out


def _gathered_round(at: Sequence[Builder], chunks: Sequence[Tensor]) -> list[list[Tensor]]:
    """Copies chunk c, which is at participant c, along the ring to each participant."""
    n = len(at)
    rows: list[dict[int, Tensor]] = [{} for _ in at]
    for c, x in enumerate(chunks):
        rows[c][c] = x
        for i in range(c + 1, c + n):
            x = rows[i % n][c] = at[i % n].Identity(x)
    return [[row[c] for c in range(n)] for row in rows]


# *** the collectives ***


def _all_reduce(op: Operation, at: Sequence[Builder], xs: Sequence[Tensor]) -> Sequence[Tensor]:
    type = _REDUCTIONS[op.attrs["reduction"]]
    shape = op.outputs[0].shape
    if not _is_large(op.outputs[0]):
        return _spread(at, _collected(at, xs, type))
    chunks = _reduced_round(at, [_cut(b, x, len(at), True) for b, x in zip(at, xs, strict=True)], type)
    return [_join(b, row, shape) for b, row in zip(at, _gathered_round(at, chunks), strict=True)]


def _broadcast(op: Operation, at: Sequence[Builder], xs: Sequence[Tensor]) -> Sequence[Tensor]:
    (x,) = xs
    root = _root(op, x)
    if not all(b.device for b in at):
        return [b.Identity(x) for b in at]  # the best route is unknown without the devices
    far = [b for b in at if b.device != root.device]
    if _is_large(x) and len(far) > 1:
        chunks = [b.Identity(c) for b, c in zip(far, _cut(root, x, len(far), True), strict=True)]
        there = [_join(b, row, x.shape) for b, row in zip(far, _gathered_round(far, chunks), strict=True)]
    else:
        there = _spread([root, *far], x)[1:]
    arrived = iter(there)
    return [next(arrived) if b.device != root.device else b.Identity(x) for b in at]


def _all_gather(op: Operation, at: Sequence[Builder], xs: Sequence[Tensor]) -> Sequence[Tensor]:
    if not _is_large(op.outputs[0]):
        return _spread(at, _join(at[0], xs, None))
    return [_join(b, row, None) for b, row in zip(at, _gathered_round(at, xs), strict=True)]


def _reduce_scatter(op: Operation, at: Sequence[Builder], xs: Sequence[Tensor]) -> Sequence[Tensor]:
    if not _is_large(op.inputs[0]):
        rows = _cut(at[0], _collected(at, xs, "AddV2"), len(at), False)
        return [b.Identity(row) for b, row in zip(at, rows, strict=True)]
    return _reduced_round(at, [_cut(b, x, len(at), False) for b, x in zip(at, xs, strict=True)], "AddV2")


_WAYS: Final[Mapping[str, _Way]] = {
    "_AllReduce": _all_reduce,
    "_Broadcast": _broadcast,
    "_AllGather": _all_gather,
    "_ReduceScatter": _reduce_scatter,
}
