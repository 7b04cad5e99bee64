"""A walk over a graph in topological order that replaces operations.

    walking = Rewriter(graph, context)
    for op in walking:                        # after all operations that it reads; its inputs are up to date
        walking.replace(op, [better], waits)  # later readers of `op` read `better`
    return walking.finish()

The readers of an operation come after it, so one walk suffices for any number of replacements, without an index of
readers. `insert` puts new operations into the order, so that the next pass finds a topological order. `Rewriter.edit`
makes all other changes. Most passes are one such walk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace import shapes
from headrace.ir.edit.editor import Editor
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import forget, infer_more
from headrace.optimize.queries import in_order

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.optimize.base import PassContext


class Rewriter:
    """Walks over one private graph; the head of the module has an example.

    Attributes:
      graph: the graph.
      context: the context of the pass.
      edit: the editor of the graph.
      preserved: operations of the graph that must not be replaced.
      changed: whether the walk changed the graph.
    """

    def __init__(self, graph: Graph, context: PassContext) -> None:
        self.graph = graph
        self.context = context
        self.edit = Editor(graph)
        self.preserved = set(context.preserved_of(graph))
        self.changed = False
        self._moved: dict[Tensor, Tensor] = {}
        self._instead: dict[Operation, Sequence[Operation]] = {}
        self._order: list[Operation] = []
        self._is_new_order = False
        self._news: set[Tensor] = set()  # tensors whose static information became more precise

    def __iter__(self) -> Iterator[Operation]:
        ops = in_order(self.graph)
        if ops is self.graph.operations:
            ops = list(ops)
        else:
            self._is_new_order = True
        for op in ops:
            if self.changed:
                self._update(op)
            yield op
            self._order.append(op)

    def _update(self, op: Operation) -> None:
        moved = self._moved
        if not moved.keys().isdisjoint(op.inputs):
            self.edit.set_inputs(op, [moved.get(t, t) for t in op.inputs])
        if not self._instead.keys().isdisjoint(op.control_inputs):
            self.edit.set_controls(op, self._instead_of(op.control_inputs))
        self._look_again(op)

    def _instead_of(self, ops: Sequence[Operation]) -> list[Operation]:
        out: dict[Operation, None] = {}
        for c in ops:
            out.update(dict.fromkeys(self._instead.get(c, (c,))))
        return list(out)

    def _look_again(self, op: Operation) -> None:
        """Infers `op` again if the static information of its inputs became more precise."""
        if self._news.isdisjoint(op.inputs):
            return
        forget(op)
        self._news.update(op.outputs)
        if all(shapes.is_full(t.shape) for t in op.outputs):
            return
        infer_more(op)

    # *** changing ***

    def knows_more(self, t: Tensor) -> None:
        """Notes that the static information of `t` became more precise."""
        self._news.add(t)
        self.changed = True

    def insert(self, op: Operation) -> None:
        """Puts an operation of the graph before the current one in the order."""
        self._look_again(op)
        self._order.append(op)
        self._is_new_order = self.changed = True

    def replace(self, op: Operation, new: Sequence[Tensor], waits: Sequence[Operation]) -> None:
        """Replaces the outputs of `op` by `new`; `finish` removes `op`.

        Args:
          op: the current operation, or an earlier one that nothing between reads; not one of `preserved`.
          new: a tensor for each output.
          waits: the operations that readers with a control edge from `op` wait for instead.
        """
        for a, b in zip(op.outputs, new, strict=True):
            self.move(a, b)
        self._instead[op] = waits
        self.changed = True

    def dissolve(
        self, op: Operation, new: Sequence[Tensor], ends: Sequence[Operation], must: Sequence[Operation]
    ) -> None:
        """Replaces `op` by several operations, which were inserted.

        Args:
          op: the current operation. If it is one of `preserved`, `ends` are preserved instead.
          new: a tensor for each output.
          ends: the operations that readers with a control edge from `op` wait for instead.
          must: the operations that must run whenever `op` would have run.
        """
        if isinstance(self.graph, FuncGraph):
            # running `op` meant computing all its results, unless effects are explicit
            mine = ends if op in self.graph.control_results and not self.context.explicit else must
            known = [c for c in self.graph.control_results if c is not op]
            # a parameter is available before any operation of the graph runs
            self.graph.set_control_results(dict.fromkeys([*known, *(m for m in mine if m.type != "_Arg")]))
        else:
            mine = ends if op in self.preserved else must
            self.preserved.discard(op)
            preserved = dict.fromkeys(k for k in self.context.preserved if k is not op)
            self.context.preserved = [*preserved, *(m for m in mine if m not in preserved)]
            self.preserved.update(mine)
        self.replace(op, new, ends)

    def move(self, old: Tensor, new: Tensor) -> None:
        """Makes the later readers of `old` read `new`."""
        self._moved[old] = new
        if new.op.type == "Const" or new.shape != old.shape:
            self._news.add(new)
        if new.op.type != "_Arg":
            with contextlib.suppress(ValueError):  # the shapes contradict each other, so the readers fail in any case
                new.refine(old.shape)
        if new.handle is None:
            new.refine(handle=old.handle)
        self.changed = True

    def finish(self) -> bool:
        """Removes the operations that were replaced; returns whether the walk changed the graph."""
        graph, moved = self.graph, self._moved
        if not self.changed:
            return False
        if isinstance(graph, FuncGraph):
            if not moved.keys().isdisjoint(graph.results):
                graph.set_results([moved.get(t, t) for t in graph.results])
            if not self._instead.keys().isdisjoint(graph.control_results):
                graph.set_control_results(self._instead_of(graph.control_results))
        gone = self._instead.keys()
        self.edit.remove(gone)
        if self._is_new_order:
            self.edit.arrange([op for op in self._order if op not in gone])
        return True
