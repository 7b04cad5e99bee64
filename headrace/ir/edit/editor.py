"""Rewiring graphs that nobody else has: the private copies that the passes of a step work on.

A user's graph only grows. What a step is made of is a copy (`prune`, `own_bodies`), and in a copy operations may be
taken out and inputs exchanged. An `Editor` does that for one graph, and knows at any time who reads what:

    edit = Editor(graph)
    edit.replace(old, new)      # whoever read `old` reads `new`
    edit.sweep()                # what nobody needs any more goes

It looks at one graph, not at those that operations of it own; those have editors of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.errors import GraphError
from headrace.ir import walk
from headrace.ir.analysis.graph_size import deepens_recursion
from headrace.ir.edit.copying import copied
from headrace.ir.function import owned
from headrace.ir.graph import FuncGraph

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


@deepens_recursion
def own_bodies(graph: Graph) -> None:
    """Gives the operations of `graph` copies of the graphs they own, so that nobody else's change with these."""
    for op in graph.operations:
        if op.opdef.structured:
            for f in owned(op):
                _free_names(graph, f)
            op.attrs = {
                name: copied(v, graph)
                if isinstance(v, FuncGraph)
                else tuple(copied(f, graph) if isinstance(f, FuncGraph) else f for f in v)
                if isinstance(v, tuple)
                else v
                for name, v in op.attrs.items()
            }


def arrange(graph: Graph, order: Sequence[Operation]) -> None:
    """Makes `order`, which has all operations of `graph`, the order in which they count as made."""
    with graph._lock:
        graph._operations[:] = order
        for i, op in enumerate(order):
            op.id = i
        graph._grew()


def roots(graph: Graph, kept: Collection[Operation] = ()) -> list[Operation]:
    """What `graph` is there for: its ends, what must run, and `kept`."""
    if isinstance(graph, FuncGraph):
        return [*(t.op for t in graph.results), *graph.control_results, *kept]
    return [*(op for op in graph.operations if op.type == "_Retval"), *kept]


def unneeded(graph: Graph, kept: Collection[Operation] = ()) -> list[Operation]:
    """The operations of `graph` that nothing it is there for needs, parameters aside."""
    needed = walk.reachable(roots(graph, kept))
    return [op for op in graph.operations if op not in needed and op.type != "_Arg"]


def _free_names(graph: Graph, f: FuncGraph) -> None:
    """Lets the copy of `f` have the names of its operations, where `graph` knows them as taken."""
    if not f.shares_names:  # then those of that name that `graph` knows are its own
        return
    for op in f.operations:
        graph._taken.pop(op.name.lower(), None)
        for inner in owned(op):
            _free_names(graph, inner)


class Editor:
    """Changes one private graph; see the module's text.

    Args:
      graph: it. Operations may be appended to it meanwhile (by a `Builder`); tell the editor with `note`.
      kept: operations that must stay though nothing may read them. Those with effects that run in any case
        (`control_results`), parameters and ends stay anyway.

    Attributes:
      uses: for each tensor the (operation, input index) pairs that read it.
      waits: for each operation those that wait for it by a control edge.
    """

    def __init__(self, graph: Graph, kept: Collection[Operation] = ()) -> None:
        self.graph = graph
        self.kept = kept
        self.uses: dict[Tensor, list[tuple[Operation, int]]] = {}
        self.waits: dict[Operation, list[Operation]] = {}
        self.note(graph.operations)

    def note(self, ops: Iterable[Operation]) -> None:
        """Takes in operations that were appended."""
        for op in ops:
            for i, t in enumerate(op.inputs):
                self.uses.setdefault(t, []).append((op, i))
            for c in op.control_inputs:
                self.waits.setdefault(c, []).append(op)

    def is_used(self, t: Tensor) -> bool:
        """Whether anything reads `t`: an operation, or the graph's results."""
        return bool(self.uses.get(t)) or (isinstance(self.graph, FuncGraph) and t in self.graph.results)

    def roots(self) -> list[Operation]:
        """What the graph is there for: its ends, and what must run."""
        return roots(self.graph, self.kept)

    # *** changing ***

    def replace(self, old: Tensor, new: Tensor) -> bool:
        """Makes whoever reads `old` read `new`, the graph's results too; returns whether anybody did."""
        if old is new:
            return False
        readers = self.uses.pop(old, [])
        for op, i in readers:
            op.inputs[i] = new
            self.uses.setdefault(new, []).append((op, i))
        changed = bool(readers)
        if isinstance(self.graph, FuncGraph) and old in self.graph.results:
            self.graph.results = [new if t is old else t for t in self.graph.results]
            changed = True
        return changed

    def set_input(self, op: Operation, i: int, t: Tensor) -> None:
        """Makes input `i` of `op` be `t`."""
        self._forget(op, i)
        op.inputs[i] = t
        self.uses.setdefault(t, []).append((op, i))

    def set_controls(self, op: Operation, before: Iterable[Operation]) -> None:
        """Exchanges what `op` waits for by control edges."""
        for c in op.control_inputs:
            self.waits[c].remove(op)
        op.control_inputs = list(dict.fromkeys(before))
        for c in op.control_inputs:
            self.waits.setdefault(c, []).append(op)

    def remove(self, ops: Collection[Operation]) -> None:
        """Takes out operations that nothing else reads or waits for.

        Raises:
          GraphError: something does.
        """
        gone = set(ops)
        for op in gone:
            readers = [r for t in op.outputs for r, _ in self.uses.get(t, ()) if r not in gone]
            readers += [w for w in self.waits.get(op, ()) if w not in gone]
            if readers:
                raise GraphError(f"{op!r} cannot be taken out: {readers[0]!r} needs it")
        # each list once, however many of its readers go
        for t in {t for op in gone for t in op.inputs if t.op not in gone}:
            self.uses[t] = [(op, i) for op, i in self.uses[t] if op not in gone]
        for c in {c for op in gone for c in op.control_inputs if c not in gone}:
            self.waits[c] = [op for op in self.waits[c] if op not in gone]
        for op in gone:
            for t in op.outputs:
                self.uses.pop(t, None)
            self.waits.pop(op, None)
        if gone:
            self.graph.take_back(gone)

    def sweep(self) -> int:
        """Takes out what the roots do not need, parameters aside; returns how many operations that were."""
        gone = unneeded(self.graph, self.kept)
        self.remove(gone)
        return len(gone)

    def let_go(self, ops: Iterable[Operation]) -> int:
        """Takes out those of `ops` that nobody needs any more, and what was there for them alone; returns how many
        that were. What a `sweep` of the whole graph would find, where it is known where to look."""
        stay = set(self.roots())
        gone: set[Operation] = set()
        todo = list(ops)
        while todo:
            op = todo.pop()
            if op in gone or op in stay or op.type == "_Arg":
                continue
            readers = [r for t in op.outputs for r, _ in self.uses.get(t, ())]
            if all(r in gone for r in (*readers, *self.waits.get(op, ()))):
                gone.add(op)
                todo += [t.op for t in op.inputs]
                todo += op.control_inputs
        self.remove(gone)
        return len(gone)

    def _forget(self, op: Operation, i: int) -> None:
        self.uses[op.inputs[i]].remove((op, i))
