"""The editor of a private graph, through which every change of such a graph goes.

A user's graph only grows, through the methods of `ir.graph`. A step works on a private copy (`prune`, `own_bodies`),
where operations may also be removed, and inputs, attributes, devices, types and results replaced:

    edit = Editor(graph)
    edit.replace(old, new)      # readers of `old` read `new`
    edit.sweep()                # removes the operations that the results do not need

An editor changes one graph; the graphs that its operations own have editors of their own. Each method keeps three
invariants: edges join operations of the graph, the index of readers (`uses`, `waits`) agrees with the edges, and every
change increments `Graph.version`. `HEADRACE_VERIFY=3` checks the index before operations are removed.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import flags
from headrace.errors import GraphError
from headrace.ir import walk
from headrace.ir.analysis.graph_size import deepens_recursion
from headrace.ir.edit.copying import copied_attrs
from headrace.ir.function import owned
from headrace.ir.graph import FuncGraph, foreign
from headrace.ir.infer import forget
from headrace.ir.notes import NO_NOTES
from headrace.ir.opdef import op_registry

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.ir.notes import Note


@deepens_recursion
def own_bodies(graph: Graph) -> None:
    """Gives the operations of `graph` private copies of the graphs that they own."""
    for op in graph.operations:
        if op.opdef.structured:
            for f in owned(op):
                _free_names(graph, f)
            op.attrs = copied_attrs(op, graph)


def roots(graph: Graph, preserved: Collection[Operation] = ()) -> list[Operation]:
    """Returns the operations for which `graph` is run: results, control results and `preserved`."""
    if isinstance(graph, FuncGraph):
        return [*(t.op for t in graph.results), *graph.control_results, *preserved]
    return [*(op for op in graph.operations if op.type == "_Retval"), *preserved]


def _free_names(graph: Graph, f: FuncGraph) -> None:
    """Frees the names of the operations of `f` for a copy of `f`."""
    if not f.shares_names:  # otherwise these names belong to the graph's own operations
        return
    for op in f.operations:
        graph._taken.pop(op.name.lower(), None)
        for inner in owned(op):
            _free_names(graph, inner)


def _compare(what: str, mine: Mapping[Any, Sequence[Any]], found: Mapping[Any, Sequence[Any]]) -> None:
    for key in (*mine, *found):
        if set(mine.get(key, ())) != set(found.get(key, ())):
            raise GraphError(f"the editor's index of {what} does not agree with the graph at {key!r}")


class Editor:
    """Editor of one private graph; see the module's docstring.

    The index is built when it is first read and kept up to date from then on. Operations that a `Builder` appends to
    the graph meanwhile are found at the next access. No other editor may change the graph in that time. A caller of
    `ir.edit.add_values` reports the change by `extended`.

    Args:
      graph: the graph.
      preserved: operations that must stay even if no operation reads them. Control results, parameters and results
        always stay.
    """

    def __init__(self, graph: Graph, preserved: Collection[Operation] = ()) -> None:
        self.graph = graph
        self.preserved = preserved
        self._uses: defaultdict[Tensor, list[tuple[Operation, int]]] = defaultdict(list)
        self._waits: defaultdict[Operation, list[Operation]] = defaultdict(list)
        self._noted = -1  # number of operations in the index, the first of the graph; -1: there is no index

    # *** the index ***

    @property
    def uses(self) -> Mapping[Tensor, Sequence[tuple[Operation, int]]]:
        """Pairs (operation, input index) that read each tensor."""
        self._look()
        return self._uses

    @property
    def waits(self) -> Mapping[Operation, Sequence[Operation]]:
        """Operations that wait for each operation by a control edge."""
        self._look()
        return self._waits

    def is_used(self, t: Tensor) -> bool:
        """Whether an operation reads `t`, or the graph returns it."""
        return bool(self.uses.get(t)) or (isinstance(self.graph, FuncGraph) and t in self.graph.results)

    def is_waited_for(self, op: Operation) -> bool:
        """Whether `op` is a control input of an operation, or a control result."""
        return bool(self.waits.get(op)) or (isinstance(self.graph, FuncGraph) and op in self.graph.control_results)

    def roots(self) -> list[Operation]:
        """Returns the operations for which the graph is run."""
        return roots(self.graph, self.preserved)

    def check(self) -> None:
        """Compares the index with the graph.

        Raises:
          GraphError: they differ, because an edge was changed without the editor.
        """
        if self._noted < 0:
            return
        fresh = Editor(self.graph)
        _compare("readers", self.uses, fresh.uses)
        _compare("waiting operations", self.waits, fresh.waits)

    def extended(self, op: Operation) -> None:
        """Adds new last inputs of `op` to the index (`ir.edit.add_values`)."""
        if self._noted > op.id:  # otherwise `op` is not in the index yet
            for i in reversed(range(len(op.inputs))):
                readers = self._uses[op.inputs[i]]
                if (op, i) in readers:
                    break
                readers.append((op, i))

    def _look(self) -> None:
        """Adds appended operations to the index."""
        ops = self.graph.operations
        if self._noted == len(ops):
            return
        uses, waits = self._uses, self._waits
        for op in ops[max(self._noted, 0) :]:
            for i, t in enumerate(op.inputs):
                uses[t].append((op, i))
            for c in op.control_inputs:
                waits[c].append(op)
        self._noted = len(ops)

    def _is_noted(self, op: Operation) -> bool:
        return self._noted > op.id

    # *** edges ***

    def replace(self, old: Tensor, new: Tensor, results: bool = True) -> bool:
        """Makes the readers of `old` read `new`.

        Args:
          old: a tensor of the graph.
          new: another tensor of the graph, of the same dtype.
          results: whether `new` also replaces `old` among the results of the graph.

        Returns:
          Whether there were readers or results to change.
        """
        if old is new:
            return False
        self._own(new.op)
        self._look()
        readers = self._uses.pop(old, [])
        for op, i in readers:
            op.inputs[i] = new
        if readers:
            self._uses[new] += readers
        changed = bool(readers)
        if results and isinstance(self.graph, FuncGraph) and old in self.graph.results:
            self.graph.set_results([new if t is old else t for t in self.graph.results])
            changed = True
        if changed:
            self.graph._grew()
        return changed

    def replace_control(self, old: Operation, new: Sequence[Operation]) -> bool:
        """Makes the operations that wait for `old` wait for `new`.

        Returns:
          Whether there were any.
        """
        waiting = list(self.waits.get(old, ()))
        for op in waiting:
            self.set_controls(op, [e for c in op.control_inputs for e in (new if c is old else (c,))])
        return bool(waiting)

    def set_input(self, op: Operation, i: int, t: Tensor) -> None:
        """Replaces input `i` of `op` by `t`."""
        self._own(op)
        self._own(t.op)
        if self._is_noted(op):
            self._uses[op.inputs[i]].remove((op, i))
            self._uses[t].append((op, i))
        op.inputs[i] = t
        self.graph._grew()

    def set_inputs(self, op: Operation, inputs: Sequence[Tensor]) -> None:
        """Replaces all inputs of `op` by `inputs`."""
        self._own(op)
        for t in inputs:
            self._own(t.op)
        if self._is_noted(op):
            for i, t in enumerate(op.inputs):
                self._uses[t].remove((op, i))
            for i, t in enumerate(inputs):
                self._uses[t].append((op, i))
        op.inputs = list(inputs)
        self.graph._grew()

    def set_controls(self, op: Operation, before: Iterable[Operation]) -> None:
        """Replaces the control inputs of `op` by `before`, without duplicates."""
        controls = list(dict.fromkeys(before))
        for c in (op, *controls):
            self._own(c)
        if self._is_noted(op):
            for c in op.control_inputs:
                self._waits[c].remove(op)
            for c in controls:
                self._waits[c].append(op)
        op.control_inputs = controls
        self.graph._grew()

    def add_controls(self, op: Operation, more: Iterable[Operation]) -> None:
        """Adds control inputs to `op`."""
        self.set_controls(op, [*op.control_inputs, *more])

    # *** one operation ***

    def set_attrs(self, op: Operation, attrs: Mapping[str, Any]) -> None:
        """Replaces all attributes of `op`. Copies of `op` keep theirs."""
        self._own(op)
        op.attrs = dict(attrs)
        self.graph._grew()

    def set_attr(self, op: Operation, name: str, value: Any) -> None:
        """Sets an attribute of `op`. Copies that share its attributes keep theirs."""
        self.set_attrs(op, {**op.attrs, name: value})

    def add_note(self, op: Operation, note: Note) -> None:
        """Adds a note to `op`, or replaces that of its class.

        Copies of `op` keep theirs.
        """
        self._own(op)
        op.notes = op.notes.added(note)
        self.graph._grew()

    def set_device(self, op: Operation, device: str) -> None:
        """Sets the requested device of `op` ("" for none)."""
        self._own(op)
        op.device = device
        self.graph._grew()

    def become(
        self, op: Operation, type: str, inputs: Sequence[Tensor], attrs: Mapping[str, Any], before: Iterable[Operation]
    ) -> None:
        """Changes `op` into an operation of another type in place.

        Its name, device, source line, outputs and readers stay. Its notes are dropped.

        Args:
          op: the operation.
          type: a registered op type with outputs of the same dtypes.
          inputs: all inputs.
          attrs: the attributes, completed by the defaults of the type.
          before: all control inputs.

        Raises:
          GraphError: the outputs have other dtypes, the inputs do not fit, or an operation is in another graph. Then
            `op` is unchanged.
        """
        before = list(before)
        record = op_registry.get(type)
        complete = record.complete_attrs(attrs)
        record.check_inputs(complete, [t.dtype for t in inputs])
        made = record.output_dtypes(complete)
        if made != [t.dtype for t in op.outputs]:
            raise GraphError(f"{op!r} cannot become {type}, which makes {[d.name for d in made]}")
        for other in (op, *(t.op for t in inputs), *before):
            self._own(other)
        self.set_inputs(op, inputs)
        self.set_controls(op, before)
        op.opdef, op.type, op.attrs, op.notes = record, record.type, complete, NO_NOTES
        forget(op)

    # *** the ends of a graph with parameters and results ***

    def set_result(self, k: int, t: Tensor) -> None:
        """Replaces result `k` by `t`; `FuncGraph.set_results` changes all results."""
        ends = self._ends
        ends.set_results([t if i == k else r for i, r in enumerate(ends.results)])

    def forget_captures(self) -> None:
        """Removes the records of captured tensors and of the originals of a copy."""
        self._ends.captures, self._ends.originals = {}, {}

    @property
    def _ends(self) -> FuncGraph:
        if not isinstance(self.graph, FuncGraph):
            raise GraphError(f"{self.graph!r} has no results; only the graph of a function, branch or loop has")
        return self.graph

    # *** all operations ***

    def record_replaced(self, made: Mapping[Tensor, Tensor]) -> None:
        """Records the replacements of results of primitives (`Graph.replaced`)."""
        self.graph.replaced.update(made)
        self.graph._grew()

    def arrange(self, order: Sequence[Operation]) -> None:
        """Makes `order`, a permutation of the graph's operations, their creation order.

        Raises:
          GraphError: `order` has fewer or more operations than the graph.
        """
        graph = self.graph
        if len(order) != len(graph):
            raise GraphError(f"the order of {graph.title} has {len(order)} operations of {len(graph)}")
        if self._noted >= 0:
            self._look()
        with graph._lock:
            graph._operations[:] = order
            for i, op in enumerate(order):
                op.id = i
            graph._grew()

    def put_first(self, op: Operation) -> None:
        """Moves `op`, which has no inputs, before all other operations."""
        self.arrange([op, *(other for other in self.graph.operations if other is not op)])

    def remove(self, ops: Collection[Operation]) -> None:
        """Removes operations that no remaining operation reads or waits for.

        Raises:
          GraphError: a remaining operation does, or the graph returns one of the results.
        """
        gone = ops if isinstance(ops, (set, frozenset)) else set(ops)
        if not gone:
            return
        for op in self.graph.operations:
            if op in gone:
                continue
            for t in op.inputs:
                if t.op in gone:
                    raise GraphError(f"{t.op!r} cannot be removed: {op!r} needs it")
            if not gone.isdisjoint(op.control_inputs):
                raise GraphError(f"an operation that {op!r} waits for cannot be removed")
        if isinstance(self.graph, FuncGraph):
            for end in (*(t.op for t in self.graph.results), *self.graph.control_results):
                if end in gone:
                    raise GraphError(f"{end!r} cannot be removed: {self.graph.title} returns it")
        self._drop(gone)

    def sweep(self, needed: Collection[Operation] | None = None) -> int:
        """Removes the operations that are not needed, except parameters.

        Args:
          needed: all needed operations, if the caller knows them; None: those on which the roots of the graph depend.

        Returns:
          The number of removed operations.
        """
        if needed is None:
            needed = walk.reachable(self.roots())
        gone = {op for op in self.graph.operations if op not in needed and op.type != "_Arg"}
        if gone:
            self._drop(gone)
        return len(gone)

    def supersede(self, made: Mapping[Operation, Operation]) -> None:
        """Removes operations, and gives the name of each to the operation in its place.

        Args:
          made: operation that no other one reads or waits for → operation in its place.
        """
        names = {new: old.name for old, new in made.items()}
        self.remove(made.keys())
        graph = self.graph
        with graph._lock:
            for op in names:
                del graph._by_name[op.name]
            for op, name in names.items():
                op.name = name
                graph._by_name[name] = op
            graph._grew()

    def let_go(self, ops: Iterable[Operation]) -> int:
        """Removes those of `ops` that are not needed, and operations that only they needed.

        It is a `sweep` that starts at given operations.

        Returns:
          The number of removed operations.
        """
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
        if gone:
            self._drop(gone)
        return len(gone)

    @contextlib.contextmanager
    def all_or_nothing(self, ops: Iterable[Operation]) -> Iterator[None]:
        """Returns the context of `Graph.all_or_nothing`, which also restores the edges of `ops`."""
        before = [(op, list(op.inputs), list(op.control_inputs)) for op in ops]
        try:
            with self.graph.all_or_nothing():
                yield
        except BaseException:
            for op, inputs, controls in before:
                op.inputs, op.control_inputs = inputs, controls
            self._forget_index()
            raise

    def _drop(self, gone: Collection[Operation]) -> None:
        """Removes `gone`, which no remaining operation reads or waits for."""
        if flags.VERIFY.value > 2:
            self.check()
        if self._noted >= 0:
            self._look()
            # each list is rebuilt once, for any number of removed readers
            for t in {t for op in gone for t in op.inputs if t.op not in gone}:
                self._uses[t] = [(op, i) for op, i in self._uses[t] if op not in gone]
            for c in {c for op in gone for c in op.control_inputs if c not in gone}:
                self._waits[c] = [op for op in self._waits[c] if op not in gone]
            for op in gone:
                for t in op.outputs:
                    self._uses.pop(t, None)
                self._waits.pop(op, None)
        if isinstance(self.graph, FuncGraph):
            for known in (self.graph.captures, self.graph.originals):
                for t in [t for t, mine in known.items() if mine.op in gone]:
                    del known[t]
        self.graph.take_back(set(gone))
        if self._noted >= 0:
            self._noted = len(self.graph)

    def _forget_index(self) -> None:
        self._uses.clear()
        self._waits.clear()
        self._noted = -1

    def _own(self, op: Operation) -> None:
        """Raises `GraphError` unless `op` is in the graph."""
        if op.graph is not self.graph:
            raise GraphError(foreign(op, self.graph))
