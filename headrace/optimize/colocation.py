"""Colocation of operations (`_class`) whose anchors a pass replaced.

The attribute `_class` of an operation names the operations with which it is colocated ("loc:@name"). A pass that
replaces the named operation, the anchor, records the entries that stand for it afterwards
(`PassContext.colocated`):

* An operation that was merged with an equal one: the name of the other one.
* An operation that was bypassed: its own name, which is now that of a group, and the groups to which it belonged.

An anchor that is dead leaves the operations that name it colocated with one another, as it does in `prune`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.ir.edit.editor import Editor
from headrace.ir.function import nested_operations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.ir.graph import Graph, Operation

_PREFIX = "loc:@"


def entries_of(op: Operation) -> tuple[str, ...]:
    """Entries of `_class`: the groups of colocated operations to which `op` belongs."""
    return tuple(op.attrs.get("_class") or ())


def anchored(name: str) -> str:
    """Returns the entry of `_class` that names the operation `name`."""
    return _PREFIX + name


def is_colocated(op: Operation, other: Operation) -> bool:
    """Whether `other` is in each group of colocated operations to which `op` belongs."""
    theirs = {*entries_of(other), anchored(other.name)}
    return all(entry in theirs for entry in entries_of(op))


def entries_for_bypassed(op: Operation) -> tuple[str, ...]:
    """Returns the entries that stand for `op`, whose readers read its input instead."""
    return (anchored(op.name), *entries_of(op))


def follow_colocation(graph: Graph, replaced: Mapping[str, tuple[str, ...]]) -> None:
    """Replaces the entries of `_class` that name replaced operations, in `graph` and its nested graphs.

    Args:
      graph: the graph of a step.
      replaced: `PassContext.colocated`.
    """
    if not replaced:
        return
    for op in nested_operations(graph.operations):
        before = entries_of(op)
        after = _followed(before, replaced)
        if after != before:
            Editor(op.graph).set_attr(op, "_class", after)


def _followed(entries: tuple[str, ...], replaced: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    out: dict[str, None] = {}
    todo, seen = [*reversed(entries)], set(entries)
    while todo:
        entry = todo.pop()
        instead = replaced.get(entry.removeprefix(_PREFIX), (entry,))
        if entry in instead:
            out[entry] = None
        todo += [e for e in reversed(instead) if e not in seen]
        seen.update(instead)
    return tuple(out)
