"""Prune: what a step needs of a graph, with its feeds and fetches made explicit.

The result is a new graph: each fed tensor is replaced by an `_Arg`, each fetched one read by a `_Retval`, and of the
rest only what those (and the targets) need is there. An operation whose every output is fed and that has no inputs (a
placeholder) does not run, even where something waits for it by a control edge.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.ir import walk
from headrace.ir.graph import Graph, Operation, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class Pruned:
    """A graph that computes one step.

    Attributes:
      graph: the new graph; operations keep their names, devices and source lines.
      args: the `_Arg` of each feed.
      retvals: the `_Retval` of each fetch.
      depends_on: for each fetch the positions of the feeds it needs (what a partial run has to wait for).
    """

    graph: Graph
    args: tuple[Operation, ...]
    retvals: tuple[Operation, ...]
    depends_on: tuple[frozenset[int], ...]


def prune(feeds: Sequence[Tensor], fetches: Sequence[Tensor], targets: Sequence[Operation]) -> Pruned:
    """The graph of a step that is fed `feeds`, fetches `fetches` and runs `targets`; all are of one graph."""
    fed = {t: i for i, t in enumerate(feeds)}
    roots = [t.op for t in fetches if t not in fed] + list(targets)
    skipped = {t.op for t in feeds if not t.op.inputs and all(o in fed for o in t.op.outputs)}
    kept = walk.reachable([op for op in roots if op not in skipped], set(fed)) - skipped
    order = walk.in_order(kept)

    new = Graph()
    if order:
        user = order[0].graph
        new.outer, new.functions, new.library = user.outer, user.functions, user.library
        new.gradient_functions = user.gradient_functions
    args = tuple(
        new.add_op(
            "_Arg",
            new.unique_name(f"arg.{t.op.name}.{t.index}"),
            attrs={"T": t.dtype.base, "index": i, "shape": t.shape, "of": t.name},
            source=t.op.source,
        )
        for i, t in enumerate(feeds)
    )
    for op, t in zip(args, feeds, strict=True):
        op.outputs[0].shape = t.shape
    moved: dict[Tensor, Tensor] = {t: args[i].outputs[0] for t, i in fed.items()}
    copies: dict[Operation, Operation] = {op: args[fed[op.outputs[0]]] for op in skipped}
    back: list[tuple[Operation, int, Tensor]] = []
    for op in order:
        inputs = [moved.get(t) for t in op.inputs]
        for i, (old, got) in enumerate(zip(op.inputs, inputs, strict=True)):
            if got is None:
                back.append((op, i, old))
        copy = new.copy_op(op, inputs, [copies[c] for c in op.control_inputs if c in copies])
        copies[op] = copy
        for old, t in zip(op.outputs, copy.outputs, strict=True):
            moved.setdefault(old, t)
    for op, i, old in back:
        new.set_back_edge(copies[op], i, moved[old])
    retvals = tuple(
        new.add_op(
            "_Retval",
            new.unique_name(f"ret.{t.op.name}.{t.index}"),
            [moved[t]],
            attrs={"T": t.dtype.base, "index": i},
            source=t.op.source,
        )
        for i, t in enumerate(fetches)
    )
    return Pruned(new, args, retvals, _dependences(retvals, {a: i for i, a in enumerate(args)}))


def _dependences(retvals: Sequence[Operation], args: Mapping[Operation, int]) -> tuple[frozenset[int], ...]:
    if not args:
        return tuple(frozenset() for _ in retvals)
    return tuple(frozenset(args[op] for op in walk.reachable([r]) if op in args) for r in retvals)
