"""Colocation: operations that must be on one device, at any cost.

* Requests of the user: `colocate_with` sets the attribute `_class`, whose entries "loc:@name" are names of operations.
  If no operation has the name, it is the name of a group.
* State. A resource handle and a reference are valid only on the device of the state. So the two ends of an edge that
  carries one are colocated. Since this holds for each edge, an operation follows its handle through any number of
  Enters, Switches and Merges.
* Loops, for `partition`. An iteration begins when a Merge has its token, so the Merge, its Enter and its NextIteration
  are on one device. A loop is cut by evaluating its predicate on every device, so a loop without a single LoopCond is
  not cut at all, and neither is anything inside it.
* Functions that are called in frames of their own, because one executor opens the frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace import dtypes
from headrace.errors import NotFoundError
from headrace.ir import walk
from headrace.place.groups import ColocationConstraints

if TYPE_CHECKING:
    from headrace.ir.analysis.frames import Frame, FrameTree
    from headrace.ir.graph import Operation

_COLOCATED: Final = "loc:@"
_CLASS: Final = "_class"


def colocation_groups(
    ops: Sequence[Operation], tree: FrameTree, functions: Mapping[str, Sequence[Operation]]
) -> ColocationConstraints:
    """Returns the groups of operations that must be on one device.

    Args:
      ops: the operations of the root graph.
      tree: the frames of `ops`.
      functions: for each function that is called in frames of its own, its operations; they are in the groups too.

    Raises:
      NotFoundError: a call of a function that is not in `functions`.
    """
    out = ColocationConstraints([*ops, *(op for body in functions.values() for op in body)])
    for graph in (ops, *functions.values()):
        _colocated(out, graph)
        _stateful(out, graph)
        _called(out, graph, functions)
    _back_edges(out, ops)
    for frame in tree.frames[1:]:
        if sum(op.type == "LoopCond" for op in frame.ops) != 1:
            _whole(out, frame, tree)
    for name, body in functions.items():
        out.tie_all(body, f"{{a}} and {{b}} are in the body of the function '{name}'")
    return out


def _colocated(out: ColocationConstraints, ops: Sequence[Operation]) -> None:
    """Ties the operations that `_class` colocates."""
    named = {op.name: op for op in ops}
    first: dict[str, Operation] = {}
    for op in ops:
        for entry in op.attrs.get(_CLASS) or ():
            if not isinstance(entry, str) or not entry.startswith(_COLOCATED):
                continue
            name = entry[len(_COLOCATED) :]
            target = named.get(name)
            if target is not None:
                out.tie(op, target, f"{{a}} is colocated with {{b}} ({entry!r})")
            elif name in first:
                out.tie(op, first[name], f"{{a}} and {{b}} are both colocated with '{name}'")
            else:
                first[name] = op


def _stateful(out: ColocationConstraints, ops: Sequence[Operation]) -> None:
    """Ties the two ends of each edge that carries a handle."""
    for op in ops:
        wants = op.opdef.input_dtypes(op.attrs)
        for t, want in zip(op.inputs, wants, strict=True):
            if t.dtype is dtypes.resource:
                out.tie(op, t.op, f"{{a}} uses the resource '{t.name}' of {{b}}")
            elif want.is_ref:
                out.tie(op, t.op, f"{{a}} uses the reference '{t.name}' of {{b}}")


def _back_edges(out: ColocationConstraints, ops: Sequence[Operation]) -> None:
    """Ties each loop Merge to its Enter and its NextIteration."""
    for op in ops:
        if op.opdef.primitive == "Merge" and any(walk.is_back_edge(t.op, op) for t in op.inputs):
            for t in op.inputs:
                if t.op.opdef.primitive in ("Enter", "NextIteration"):
                    out.tie(t.op, op, "{a} and {b} belong to one loop variable")


def _whole(out: ColocationConstraints, frame: Frame, tree: FrameTree) -> None:
    """Ties all operations of a loop that cannot be cut."""
    inside: list[Operation] = []
    for f in tree.frames:
        around: Frame | None = f
        while around is not None and around is not frame:
            around = around.parent
        if around is frame:
            inside += [*f.enters, *f.ops]
    out.tie_all(
        inside,
        f"{{a}} and {{b}} are in the loop '{frame.name}', which cannot be partitioned: "
        "it does not have exactly one LoopCond",
    )


def _called(out: ColocationConstraints, ops: Sequence[Operation], functions: Mapping[str, Sequence[Operation]]) -> None:
    """Ties calls to the bodies of their functions."""
    for op in ops:
        if op.opdef.structured != "Call":
            continue
        name = op.attrs["f"].name
        body = functions.get(name)
        if body is None:
            raise NotFoundError(f"'{op.name}' ({op.type}) calls function {name!r}, which is not defined", op.name, op)
        if body:
            out.tie(op, body[0], f"{{a}} calls the function '{name}', whose body contains {{b}}")
