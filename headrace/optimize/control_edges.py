"""Removes redundant control edges.

    w = AssignVariableOp(v, x) ^NoOp      NoOp = NoOp ^a ^x          becomes      w = AssignVariableOp(v, x) ^a

* A control edge from an operation without an effect is replaced by edges from the operations with effects that this
  operation waits for. The operation must not be able to fail: an edge from a check states that the check must run.
* A control edge from an operation that is waited for in any case, through an input or through others, is removed.
* A constant does not wait. Its readers wait in its place.

The control dependencies of a stateful operation must follow from edges that stay (`effects`): the next pass may remove
a data edge that leads through a pure operation.

An input from a conditional, loop or call implies little. Its results arrive one by one, so the arrival of one result
does not mean that the whole operation is done. Only a control edge from the operation means that.

A call that rematerializes values for its gradient keeps its edges. They delay it, which saves memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace import thresholds
from headrace.ir.edit.editor import Editor
from headrace.ir.graph import FuncGraph
from headrace.ir.notes import RematerializedCall
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.queries import in_order, is_silent

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation


class SimplifyControlEdges(Pass):
    """Pass that removes redundant control edges; see the head of the module."""

    name = "controls"

    def call(self, graph: Graph, context: PassContext) -> bool:
        if not any(op.control_inputs for op in graph.operations):
            return False
        return _Cleaning(graph, context).run()


class _Cleaning:
    def __init__(self, graph: Graph, context: PassContext) -> None:
        self.graph = graph
        self.context = context
        self.edit = Editor(graph)
        self.ops = in_order(graph)
        self.at = {op: i for i, op in enumerate(self.ops)}
        self._instead: dict[Operation, tuple[Operation, ...] | None] = {}

    def run(self) -> bool:
        """Removes redundant edges of the graph; returns whether there were any."""
        changed = self.reduce(self.ops)
        readers = self.free_constants()  # after `reduce`, because then few operations wait for constants themselves
        self.reduce(readers)
        return changed or bool(readers)

    def reduce(self, ops: Iterable[Operation]) -> bool:
        """Removes redundant edges of `ops`; returns whether there were any."""
        changed = False
        for op in ops:
            if RematerializedCall not in op.notes:
                before = op.control_inputs
                after = self.reduced(op)
                if after != before:
                    self.edit.set_controls(op, after)
                    left = (
                        f"has control inputs {', '.join(c.name for c in after)}" if after else "has no control inputs"
                    )
                    self.context.fired("controls", op, f"{left} instead of {', '.join(c.name for c in before)}")
                    changed = True
        return changed

    def free_constants(self) -> list[Operation]:
        """Moves the control inputs of constants to their readers; returns those readers."""
        graph = self.graph
        readers: dict[Operation, list[Operation]] = {}
        for op in self.ops:
            for t in op.inputs:
                if t.op.type == "Const" and t.op.control_inputs:
                    readers.setdefault(t.op, []).append(op)
        preserved = set(self.context.preserved_of(graph))
        if isinstance(graph, FuncGraph):
            preserved.update(t.op for t in graph.results)
            preserved.update(graph.control_results)
        for op in self.ops:
            preserved.update(op.control_inputs)
        found: dict[Operation, None] = {}
        for c, mine in readers.items():
            if (
                c in preserved
                or len(mine) > thresholds.CONSTANT_READERS
                or any(r.type == "_Retval" or r.opdef.structured for r in mine)
            ):
                continue
            for r in mine:
                self.edit.add_controls(r, c.control_inputs)
            self.context.fired("controls", c, "its control inputs were moved to its consumers")
            self.edit.set_controls(c, ())
            found.update(dict.fromkeys(mine))
        return list(found)

    def reduced(self, op: Operation) -> list[Operation]:
        """Control inputs that `op` needs."""
        out: dict[Operation, None] = {}
        for c in op.control_inputs:
            instead = self.instead(c)
            out.update(dict.fromkeys((c,) if instead is None else instead))
        if not out:
            return []
        implied = self.implied(op, out)
        return [c for c in out if c not in implied]

    def instead(self, c: Operation) -> tuple[Operation, ...] | None:
        """Operations to wait for instead of `c`; None: `c` itself."""
        known = self._instead.get(c, ())
        if c in self._instead:
            return known
        todo = [c]
        while todo:  # predecessors first; without recursion, because chains may be long
            op = todo[-1]
            if op in self._instead:
                todo.pop()
                continue
            if not is_silent(op) or (op.type == "_Arg" and self.context.options.is_lowered):
                self._instead[todo.pop()] = None
                continue
            before = self.before(op)
            missing = [p for p in before if p not in self._instead]
            if missing:
                todo += missing
                continue
            self._instead[todo.pop()] = self.joined(op, before)
        return self._instead[c]

    def joined(self, op: Operation, before: Sequence[Operation]) -> tuple[Operation, ...] | None:
        out: dict[Operation, None] = {}
        makers = {t.op for t in op.inputs}
        for p in before:
            instead = self._instead[p]
            if instead is not None:
                out.update(dict.fromkeys(instead))
            elif p.opdef.structured and p in makers:
                return None  # `op` waits for one result of it, not for all
            else:
                out[p] = None
        return (
            tuple(out)
            if len(out) <= max(thresholds.REPLACING_EDGES, len(op.control_inputs) if not op.inputs else 0)
            else None
        )

    @staticmethod
    def before(op: Operation) -> list[Operation]:
        return list(dict.fromkeys([*(t.op for t in op.inputs), *op.control_inputs]))

    def implied(self, op: Operation, wanted: dict[Operation, None]) -> set[Operation]:
        """Operations that `op` comes after in any case, by a bounded search."""
        first = min(self.at[c] for c in wanted)
        firmly = _is_stateful(op) or self.context.options.is_lowered
        makers = _makers(op, firmly)
        found = {c for c in wanted if makers.get(c)}
        todo = list(dict.fromkeys([*makers, *wanted]))
        seen = set(todo)
        for looked_at, each in enumerate(todo):
            if looked_at == thresholds.IMPLIED_EDGE_SEARCH:
                break
            for p, is_all in {**_makers(each, firmly), **dict.fromkeys(each.control_inputs, True)}.items():
                if is_all:
                    found.add(p)
                if p not in seen and self.at[p] >= first:
                    seen.add(p)
                    todo.append(p)
        return found


def _is_stateful(op: Operation) -> bool:
    return not op.opdef.is_pure


def _makers(op: Operation, firmly: bool) -> dict[Operation, bool]:
    """Producers of the inputs of `op`, and whether each is done when its output arrives.

    Args:
      op: an operation.
      firmly: whether to count only the edges that no pass removes: those between two stateful operations that own no
        graphs.
    """
    if op.opdef.structured or (firmly and not _is_stateful(op)):
        return {}
    return {t.op: not t.op.opdef.structured for t in op.inputs if not firmly or _is_stateful(t.op)}
