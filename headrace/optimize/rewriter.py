"""One walk over a graph that replaces as it goes: the way most passes work.

    walk = Rewriter(graph, context)
    for op in walk:                      # each after all that it reads; its inputs are up to date
        walk.replace(op, [better])       # whoever reads `op`, further on, reads `better`
    return walk.finish()

Since whoever reads an operation comes after it, one walk suffices, no matter how much is replaced, and nobody needs to
know who reads what. New operations take their place in the order (`insert`), so that the next pass finds one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace import shapes
from headrace.ir.edit.editor import arrange
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import forget, infer_more
from headrace.optimize.queries import in_order

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.optimize.base import PassContext


class Rewriter:
    """See the module's text.

    Attributes:
      graph: what is walked over; private, like all that passes work on.
      context: the pass's.
      kept: operations of it that must stay themselves.
      changed: whether anything was.
    """

    def __init__(self, graph: Graph, context: PassContext) -> None:
        self.graph = graph
        self.context = context
        self.kept = set(context.kept_of(graph))
        self.changed = False
        self._moved: dict[Tensor, Tensor] = {}
        self._instead: dict[Operation, Sequence[Operation]] = {}
        self._order: list[Operation] = []
        self._is_new_order = False
        self._read: set[Tensor] | None = None
        self._waited: set[Operation] | None = None
        self._news: set[Tensor] = set()  # tensors of which more is known than before

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
        op.inputs[:] = [moved.get(t, t) for t in op.inputs]
        if op.control_inputs:
            op.control_inputs = self._instead_of(op.control_inputs)
        self._look_again(op)

    def _instead_of(self, ops: Sequence[Operation]) -> list[Operation]:
        out: dict[Operation, None] = {}
        for c in ops:
            out.update(dict.fromkeys(self._instead.get(c, (c,))))
        return list(out)

    def _look_again(self, op: Operation) -> None:
        """Finds out whether more is known of what `op` gives, if more is of what it reads."""
        if self._news.isdisjoint(op.inputs):
            return
        forget(op)
        self._news.update(op.outputs)
        if all(shapes.is_full(t.shape) for t in op.outputs):
            return
        infer_more(op)

    # *** changing ***

    def knows_more(self, t: Tensor) -> None:
        """Tells that `t` is better known than it was: who reads it is looked at anew."""
        self._news.add(t)
        self.changed = True

    def insert(self, op: Operation) -> None:
        """Takes in an operation that was appended to the graph: it stands before the one that is looked at."""
        self._look_again(op)
        self._order.append(op)
        self._is_new_order = self.changed = True

    def replace(self, op: Operation, new: Sequence[Tensor], waits: Sequence[Operation]) -> None:
        """Puts `new` in the place of the outputs of `op`, which goes.

        Args:
          op: what is being looked at, or was; not one of `kept`.
          new: for each output of it a tensor.
          waits: what those who wait for `op` wait for instead.
        """
        for a, b in zip(op.outputs, new, strict=True):
            self.move(a, b)
        self._instead[op] = waits
        self.changed = True

    def dissolve(
        self, op: Operation, new: Sequence[Tensor], ends: Sequence[Operation], must: Sequence[Operation]
    ) -> None:
        """Puts several operations, which are inserted, in the place of `op`.

        Args:
          op: what is being looked at; it may be one of `kept`, its ends are then in its place.
          new: for each output of it a tensor.
          ends: what those who wait for it wait for instead.
          must: those that have to run whenever it would have.
        """
        if isinstance(self.graph, FuncGraph):
            # to run it meant all its results, unless it is said by now what has to happen
            mine = ends if op in self.graph.control_results and not self.context.explicit else must
            known = dict.fromkeys(c for c in self.graph.control_results if c is not op)
            self.graph.control_results = [*known, *(m for m in mine if m not in known)]
        else:
            mine = ends if op in self.kept else must
            self.kept.discard(op)
            kept = dict.fromkeys(k for k in self.context.kept if k is not op)
            self.context.kept = [*kept, *(m for m in mine if m not in kept)]
            self.kept.update(mine)
        self.replace(op, new, ends)

    def move(self, old: Tensor, new: Tensor) -> None:
        """Whoever reads `old`, further on, reads `new`."""
        self._moved[old] = new
        if new.op.type == "Const" or new.shape != old.shape:
            self._news.add(new)
        if new.op.type != "_Arg":
            with contextlib.suppress(ValueError):  # else whoever reads it fails in any case
                new.refine(old.shape)
        if new.handle is None:
            new.refine(handle=old.handle)
        self.changed = True

    def is_read(self, t: Tensor) -> bool:
        """Whether anybody, further on, reads `t`, an output of what is being looked at; or it is a result."""
        if self._read is None:
            self._read = {t for op in self.graph.operations for t in op.inputs}
            if isinstance(self.graph, FuncGraph):
                self._read.update(self.graph.results)
        return t in self._read

    def is_waited_for(self, op: Operation) -> bool:
        """Whether anybody waits for `op` by a control edge, or it must run."""
        if self._waited is None:
            self._waited = {c for op in self.graph.operations for c in op.control_inputs}
            if isinstance(self.graph, FuncGraph):
                self._waited.update(self.graph.control_results)
        return op in self._waited

    def finish(self) -> bool:
        """Ends the walk; returns whether anything changed."""
        graph, moved = self.graph, self._moved
        if not self.changed:
            return False
        if isinstance(graph, FuncGraph):
            graph.results = [moved.get(t, t) for t in graph.results]
            graph.control_results = self._instead_of(graph.control_results)
        gone = set(self._instead)
        if gone:
            graph.take_back(gone)
        if self._is_new_order:
            arrange(graph, [op for op in self._order if op not in gone])
        return True
