"""Prune: copies the part of a graph that a step needs.

The result is a new graph, with explicit feeds and fetches. An `_Arg` replaces each fed tensor, a `_Retval` reads each
fetched one, and the graph has only the operations that these and the targets need. An operation without inputs all of
whose outputs are fed (a placeholder) does not run, even if another operation has a control edge from it. A variable is
fed by its handle: the fed value in the place of the handle reaches every read, also in the graphs that operations own.

**Recovered structures.** If loops and conditionals were recovered from primitives (`recover`), the graph has both
forms, and `Graph.replaced` maps each result of the primitives to the result of the structured operation. A step has one
of the two forms. It has the structured one, unless it names an operation inside the primitive one: for example, it
fetches or feeds a tensor of a loop's body, or feeds a constant of which the body has a copy. Such a step behaves as it
did before the recovery.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from headrace import dtypes
from headrace.errors import InvalidArgumentError
from headrace.ir import tensor_type, walk
from headrace.ir.edit.copying import copy_graph
from headrace.ir.function import nested_operations
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.ir.order import key_of
from headrace.records import record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_HANDLES = (dtypes.resource, dtypes.string)  # a string: TensorFlow's first stacks


@record(frozen=True, slots=True)
class StepGraph:
    """Graph of one step with explicit ends, the input and output of stages before lowering.

    Attributes:
      graph: the graph; operations keep their names, devices and source lines.
      args: the `_Arg` of each feed.
      retvals: the `_Retval` of each fetch.
      targets: the operations that run although no `_Retval` may need them.
    """

    graph: Graph
    args: tuple[Operation, ...]
    retvals: tuple[Operation, ...]
    targets: tuple[Operation, ...] = ()

    def copy(self) -> StepGraph:
        """Returns a copy for a stage that changes its graph; nested graphs are copied, too."""
        graph, copies = copy_graph(self.graph)
        args, retvals, targets = (tuple([copies[op] for op in ops]) for ops in (self.args, self.retvals, self.targets))
        return StepGraph(graph, args, retvals, targets)

    def depends_on(self) -> tuple[frozenset[int], ...]:
        """Positions of the feeds that each fetch needs, for partial runs.

        A set of feeds is an int with a bit for each feed. Each operation has the bits of all operations before it, so
        one traversal serves all fetches. The traversal is repeated while a loop passes further bits from one iteration
        to the next.
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
    """Positions of the ones in `bits`."""
    octets = np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), np.uint8)
    return frozenset(np.flatnonzero(np.unpackbits(octets, bitorder="little")).tolist())


def prune(
    feeds: Sequence[tensor_type.Tensor], fetches: Sequence[tensor_type.Tensor], targets: Sequence[Operation]
) -> StepGraph:
    """Returns the graph of a step.

    Args:
      feeds: the fed tensors.
      fetches: the fetched tensors.
      targets: the operations to run; all are of one graph.
    """
    return _pruned(cast("Sequence[Tensor]", feeds), cast("Sequence[Tensor]", fetches), targets)


def _pruned(feeds: Sequence[Tensor], fetches: Sequence[Tensor], targets: Sequence[Operation]) -> StepGraph:
    fed = {t: i for i, t in enumerate(feeds)}
    skipped = {t.op for t in feeds if not t.op.inputs and all(o in fed for o in t.op.outputs)}
    named = [t.op for t in (*fetches, *feeds)] + list(targets)
    user = named[0].graph if named else None
    if user is not None and user.replaced:
        edges = _Edges(user, feeds, fetches, targets)
        fetches = [edges.given(t) for t in fetches]
        targets = [edges.instead_of(op) for op in targets]
        fed.update((edges.given(t), i) for t, i in list(fed.items()))
        needed = edges.reachable([t.op for t in fetches if t not in fed] + list(targets), set(fed), skipped)
        order = edges.in_order(needed)
    else:
        edges = None
        roots = [t.op for t in fetches if t not in fed] + list(targets)
        needed = walk.reachable([op for op in roots if op not in skipped], set(fed)) - skipped
        order = walk.in_order(needed)

    new = Graph()
    if user is not None and order:
        new.share_functions(user)
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
        op.outputs[0].copy_static(t)
    moved: dict[Tensor, Tensor] = {t: args[i].outputs[0] for t, i in fed.items()}
    copies: dict[Operation, Operation] = {op: args[fed[op.outputs[0]]] for op in skipped}
    if edges is None:
        new.copy_ops(order, moved, copies)
    else:
        _copy(order, edges, new, moved, copies)
    _check_unchanged(new, {moved[t]: t for t in feeds if t.dtype.is_ref or _is_own(t)})
    _check_inside(new, [t for t in feeds if t.dtype.is_ref])
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
    run = [copies[op] for op in dict.fromkeys(targets) if op in copies and op not in skipped]
    return StepGraph(new, args, retvals, tuple(run))


def _copy(
    order: Sequence[Operation],
    edges: _Edges,
    graph: Graph,
    moved: dict[Tensor, Tensor],
    copies: dict[Operation, Operation],
) -> None:
    """Copies operations with the edges that the step uses; see `Graph.copy_ops`."""
    back: list[tuple[Operation, int, Tensor]] = []
    for op in order:
        reads = [edges.given(t) for t in op.inputs]
        waits = [edges.instead_of(c) for c in op.control_inputs]
        back += [(op, i, t) for i, t in enumerate(reads) if t not in moved]
        controls = list(dict.fromkeys(copies[c] for c in waits if c in copies))
        copies[op] = copy = graph.copy_op(op, [moved.get(t) for t in reads], controls)
        for old, t in zip(op.outputs, copy.outputs, strict=True):
            moved.setdefault(old, t)
    for op, i, old in back:
        graph.set_back_edge(copies[op], i, moved[old])


def _is_own(t: Tensor) -> bool:
    """Whether `t` is the handle of a resource that belongs to the graph."""
    return t.dtype is dtypes.resource and bool(t.op.opdef.facts.effect)


def _check_unchanged(graph: Graph, variables: Mapping[Tensor, Tensor]) -> None:
    """Raises `InvalidArgumentError` if an operation of a step changes a variable that is fed.

    This covers the operations of the graph itself. An operation inside a conditional, loop or function fails when it
    runs.

    Args:
      graph: the graph of the step.
      variables: the tensor fed for a variable → the variable's handle in the user's graph.
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


def _check_inside(graph: Graph, fed: Sequence[Tensor]) -> None:
    """Raises `InvalidArgumentError` if a nested graph uses a reference variable that is fed.

    A branch, loop or function has an operation of its own for the variable, which no feed reaches.
    """
    keys = {key_of(t): t for t in fed}
    for op in nested_operations(graph.operations) if fed else ():
        if op.graph is not graph and op.outputs and op.outputs[0].dtype.is_ref and not op.inputs:
            t = keys.get(key_of(op.outputs[0]))
            if t is not None:
                raise InvalidArgumentError(
                    f"'{op.name}' ({op.type}) in {op.graph.title} uses the reference variable '{t.name}', which is fed "
                    "in this step: feed the tensors that are computed from it, or use a resource variable "
                    "(use_resource=True)",
                    op.name,
                    op,
                )


def _makes_handle(op: Operation) -> bool:
    """Whether `op` makes a stack or tensor array, which lives for a step."""
    return op.opdef.facts.effect == "step" and any(a.dtype in _HANDLES for a in op.opdef.outs)


class _Edges:
    """Edges, as one step uses them, of a graph with recovered structures.

    Args:
      graph: the user's graph.
      feeds: the tensors that the step feeds.
      fetches: the tensors that the step fetches.
      targets: the operations that the step runs.
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
        """Tensor that the step uses for `t`."""
        return self._instead.get(t, t)

    def instead_of(self, op: Operation) -> Operation:
        """Operation for which the step waits in place of `op`."""
        return self._ops.get(op, op)

    def before(self, op: Operation) -> list[Operation]:
        """Operations for which `op` waits."""
        return [self.given(t).op for t in op.inputs] + [self.instead_of(c) for c in op.control_inputs]

    def reachable(
        self, roots: Iterable[Operation], stop: Collection[Tensor], skipped: Collection[Operation]
    ) -> set[Operation]:
        """Operations that `roots` need, without those of `skipped`."""
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
        """Sorts `ops` topologically, without the back edges of loops."""
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
        """Structured operations that the step replaces by their primitives.

        These are the operations whose primitive form contains an operation of `inner`; the operations that depend on
        one of them; and the operations that share a stack or tensor array with one of them. (In the structured form the
        array is a list, which the primitives could not use.)
        """
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
        """Raises `InvalidArgumentError` if the step needs both forms of one structure."""
        roots = [self.given(t).op for t in fetches] + [self.instead_of(op) for op in targets]
        for op in self.reachable(roots, set(feeds), set()):
            if op in apart:
                raise InvalidArgumentError(
                    f"the step names an operation inside the primitives that '{op.name}' was recovered from, and needs "
                    f"'{op.name}' too (for a gradient, it may be); do the one and the other in two steps",
                    op.name,
                    op,
                )
