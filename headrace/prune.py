"""Prune: what a step needs of a graph, with its feeds and fetches made explicit.

The result is a new graph: each fed tensor is replaced by an `_Arg`, each fetched one read by a `_Retval`, and of the
rest only what those (and the targets) need is there. An operation whose every output is fed and that has no inputs (a
placeholder) does not run, even where something waits for it by a control edge. A variable is fed as its handle: what
stands in the handle's place reaches every read, also in the graphs that operations own.

**Recovered structures.** Where loops and conditionals of primitives were recovered (`recover`), the graph has both
forms, and `Graph.replaced` says which result of the structured one stands for which of the primitives. A step has one
of the two: the structured one, unless it names an operation inside the primitive one: it fetches or feeds a tensor of a
loop's body, say, or feeds a constant that the body has a copy of. So a step that does behaves as it did before.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace import dtypes
from headrace.errors import InvalidArgumentError
from headrace.ir import walk
from headrace.ir.graph import Graph, Operation, Tensor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_HANDLES = (dtypes.resource, dtypes.string)  # a string: TensorFlow's first stacks


@dataclasses.dataclass(frozen=True, slots=True)
class Pruned:
    """A graph that computes one step.

    Attributes:
      graph: the new graph; operations keep their names, devices and source lines.
      args: the `_Arg` of each feed.
      retvals: the `_Retval` of each fetch.
    """

    graph: Graph
    args: tuple[Operation, ...]
    retvals: tuple[Operation, ...]

    def depends_on(self) -> tuple[frozenset[int], ...]:
        """For each fetch the positions of the feeds it needs: what a partial run has to wait for.

        A set of feeds is the bits of an int: each operation has those of the operations that it waits for, so that one
        walk serves all fetches. Another follows as long as a loop hands on more from one iteration to the next.
        """
        if not self.args:
            return tuple(frozenset() for _ in self.retvals)
        bits = {a: 1 << i for i, a in enumerate(self.args)}
        order = walk.in_order(walk.reachable(self.retvals))
        has_loops = any(op.opdef.primitive == "NextIteration" for op in order)
        is_new = True
        while is_new:
            is_new = False
            for op in order:
                old = bits.get(op, 0)
                new = functools.reduce(operator.or_, [bits.get(p, 0) for p in walk.predecessors(op)], old)
                if new != old:
                    bits[op], is_new = new, has_loops
        needed = [bits.get(r, 0) for r in self.retvals]
        sets = {n: _positions(n) for n in set(needed)}
        return tuple(sets[n] for n in needed)


def _positions(bits: int) -> frozenset[int]:
    """The positions of the ones in `bits`."""
    octets = np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), np.uint8)
    return frozenset(np.flatnonzero(np.unpackbits(octets, bitorder="little")).tolist())


def prune(feeds: Sequence[Tensor], fetches: Sequence[Tensor], targets: Sequence[Operation]) -> Pruned:
    """The graph of a step that is fed `feeds`, fetches `fetches` and runs `targets`; all are of one graph."""
    fed = {t: i for i, t in enumerate(feeds)}
    skipped = {t.op for t in feeds if not t.op.inputs and all(o in fed for o in t.op.outputs)}
    named = [t.op for t in (*fetches, *feeds)] + list(targets)
    user = named[0].graph if named else None
    if user is not None and user.replaced:
        edges = _Edges(user, feeds, fetches, targets)
        fetches = [edges.given(t) for t in fetches]
        targets = [edges.instead_of(op) for op in targets]
        fed.update((edges.given(t), i) for t, i in list(fed.items()))
        kept = edges.reachable([t.op for t in fetches if t not in fed] + list(targets), set(fed), skipped)
        order = edges.in_order(kept)
    else:
        edges = None
        roots = [t.op for t in fetches if t not in fed] + list(targets)
        kept = walk.reachable([op for op in roots if op not in skipped], set(fed)) - skipped
        order = walk.in_order(kept)

    new = Graph()
    if user is not None and order:
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
        op.outputs[0].shape, op.outputs[0].handle = t.shape, t.handle
    moved: dict[Tensor, Tensor] = {t: args[i].outputs[0] for t, i in fed.items()}
    copies: dict[Operation, Operation] = {op: args[fed[op.outputs[0]]] for op in skipped}
    back: list[tuple[Operation, int, Tensor]] = []
    for op in order:
        reads = op.inputs if edges is None else [edges.given(t) for t in op.inputs]
        waits = op.control_inputs if edges is None else [edges.instead_of(c) for c in op.control_inputs]
        inputs = [moved.get(t) for t in reads]
        for i, (old, got) in enumerate(zip(reads, inputs, strict=True)):
            if got is None:
                back.append((op, i, old))
        copy = new.copy_op(op, inputs, list(dict.fromkeys(copies[c] for c in waits if c in copies)))
        copies[op] = copy
        for old, t in zip(op.outputs, copy.outputs, strict=True):
            moved.setdefault(old, t)
    for op, i, old in back:
        new.set_back_edge(copies[op], i, moved[old])
    _check_unchanged(new, {moved[t]: t for t in feeds if t.dtype.is_ref or t.dtype is dtypes.resource})
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
    return Pruned(new, args, retvals)


def _check_unchanged(graph: Graph, variables: Mapping[Tensor, Tensor]) -> None:
    """Raises `InvalidArgumentError` if an operation of a step's graph changes a variable that is fed.

    (An operation inside a conditional, loop or function that does is refused when it runs.)

    Args:
      graph: the step's.
      variables: in it, what is fed for a variable → the variable's handle in the user's graph.
    """
    for op in graph.operations if variables else ():
        for t, want in zip(op.inputs, op.opdef.input_dtypes(op.attrs), strict=True):
            if t in variables and (want.is_ref or (op.opdef.facts.writes and not op.opdef.structured)):
                made = f" (made at {op.source})" if op.source is not None else ""
                raise InvalidArgumentError(
                    f"'{op.name}' ({op.type}){made} changes the variable '{variables[t].name}', which is fed in this "
                    "step: leave the operation, or the feed, out of the step",
                    op.name,
                    op,
                )


def _makes_handle(op: Operation) -> bool:
    """Whether `op` makes something that lives for a step (a stack, a tensor array), not what it holds."""
    return op.opdef.facts.effect == "step" and any(a.dtype in _HANDLES for a in op.opdef.outs)


class _Edges:
    """The edges of a graph in which structures were recovered, as one step sees them.

    Args:
      graph: it.
      feeds, fetches, targets: what the step names.
    """

    def __init__(
        self, graph: Graph, feeds: Sequence[Tensor], fetches: Sequence[Tensor], targets: Sequence[Operation]
    ) -> None:
        self._instead: dict[Tensor, Tensor] = dict(graph.replaced)
        self._ops: dict[Operation, Operation] = {}
        self._settle(graph)
        fetched = [self.given(t).op for t in fetches]
        named = [*fetched, *(self.instead_of(op) for op in targets), *(self.given(t).op for t in feeds)]
        inner = {op for op in self.reachable(named, set(), set()) if op.opdef.primitive}
        inner.update(t.op for t in feeds if t.op.type == "Const")
        if not inner:
            return
        apart = self._apart(graph, inner)
        self._instead = {old: new for old, new in graph.replaced.items() if new.op not in apart}
        self._instead.update((new, old) for old, new in graph.replaced.items() if new.op in apart)
        self._settle(graph)
        self._check(graph, apart, feeds, fetches, targets)

    def _settle(self, graph: Graph) -> None:
        self._ops = {}
        for old, new in self._instead.items():
            self._ops.setdefault(old.op, new.op)

    def given(self, t: Tensor) -> Tensor:
        """What the step has for `t`."""
        return self._instead.get(t, t)

    def instead_of(self, op: Operation) -> Operation:
        """What the step waits for instead of `op`."""
        return self._ops.get(op, op)

    def before(self, op: Operation) -> list[Operation]:
        """What `op` waits for."""
        return [self.given(t).op for t in op.inputs] + [self.instead_of(c) for c in op.control_inputs]

    def reachable(
        self, roots: Iterable[Operation], stop: Collection[Tensor], skipped: Collection[Operation]
    ) -> set[Operation]:
        """All operations that `roots` need, without those `skipped`."""
        seen: set[Operation] = set()
        todo = [op for op in roots if op not in skipped]
        while todo:
            op = todo.pop()
            if op in seen or op in skipped:
                continue
            seen.add(op)
            todo += [self.given(t).op for t in op.inputs if t not in stop and self.given(t) not in stop]
            todo += [self.instead_of(c) for c in op.control_inputs]
        return seen

    def in_order(self, ops: Iterable[Operation]) -> list[Operation]:
        """`ops`, each after what it waits for, back edges of loops aside."""
        left = sorted(ops, key=lambda op: op.id)
        inside = set(left)
        waiting: dict[Operation, int] = {}
        after: dict[Operation, list[Operation]] = {op: [] for op in left}
        for op in left:
            before = [p for p in self.before(op) if p in inside and not walk.is_back_edge(p, op)]
            waiting[op] = len(before)
            for p in before:
                after[p].append(op)
        ready = [op for op in reversed(left) if not waiting[op]]
        order: list[Operation] = []
        while ready:
            op = ready.pop()
            order.append(op)
            for u in reversed(after[op]):
                waiting[u] -= 1
                if not waiting[u]:
                    ready.append(u)
        return order if len(order) == len(left) else walk.toposort(left)

    def _apart(self, graph: Graph, inner: set[Operation]) -> set[Operation]:
        """The structured operations in place of which a step runs primitives: those whose primitive form has to do with
        any of `inner`, what depends on one, and what shares a stack or tensor array with one (in the structured form
        that is a list, which the others would look for in vain)."""
        results: dict[Operation, list[Operation]] = {}
        for old, new in graph.replaced.items():
            results.setdefault(new.op, []).append(old.op)
        primitives = {
            op: self.reachable([p for e in ends for p in self.before(e)], set(), set()) for op, ends in results.items()
        }
        shared = {op: {p for p in before if _makes_handle(p)} for op, before in primitives.items()}
        apart = {op for op, before in primitives.items() if not inner.isdisjoint(before)}
        while True:
            handles = {h for op in apart for h in shared[op]}
            more = {op for op in results if not apart.isdisjoint(self.reachable([op], set(), set()))}
            more |= {op for op in results if not handles.isdisjoint(shared[op])}
            if more <= apart:
                return apart
            apart |= more

    def _check(
        self,
        graph: Graph,
        apart: Collection[Operation],
        feeds: Sequence[Tensor],
        fetches: Sequence[Tensor],
        targets: Sequence[Operation],
    ) -> None:
        """Raises `InvalidArgumentError` if the step needs both forms of one structure (one is its gradient's)."""
        roots = [self.given(t).op for t in fetches] + [self.instead_of(op) for op in targets]
        for op in self.reachable(roots, set(feeds), set()):
            if op in apart:
                raise InvalidArgumentError(
                    f"the step names an operation inside the primitives that '{op.name}' was recovered from, and needs "
                    f"'{op.name}' too (for a gradient, it may be); do the one and the other in two steps",
                    op.name,
                    op,
                )
