"""Events for which tensors wait, for passes that join independent operations.

In a step that runs in lowered form, an operation may end the wait of another one: the step itself puts into a queue
what it takes from another queue. If a pass makes an operation wait for one more event, the step can hang. So a pass may
make a value depend on a further tensor only if both wait for the same events (`have_equal_waits`).

Events are the ends of operations that wait after the step has begun: dequeues, operations on barriers, Python
functions, the feeds of a partial run. A parameter of a branch or body is an event of its own, and so is a result of a
conditional, loop or call that contains such an operation, or that does not wait for all inputs of its operation at any
values (`SureInputs`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.ir.analysis.sure_inputs import SureInputs
from headrace.ir.function import nested_operations
from headrace.ir.graph import FuncGraph
from headrace.ir.kernel import may_wait
from headrace.optimize.queries import in_order

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.optimize.base import PassContext


def waits(op: Operation) -> bool:
    """Whether `op`, or an operation nested in it, may wait when it runs."""
    if op.opdef.structured:
        return any(not o.opdef.structured and waits(o) for o in nested_operations([op], calls=True))
    return op.opdef.facts.waits or may_wait(op)


def have_equal_waits(graph: Graph, context: PassContext, *groups: Iterable[Tensor]) -> bool:
    """Whether the tensors of each group together wait for the same events.

    Args:
      graph: the graph of the tensors.
      context: the context of the pass. In a step that is not lowered, no operation waits.
      groups: tensors of `graph`.
    """
    if not context.options.is_lowered:
        return True
    each = [set(group) for group in groups]
    if all(group == each[0] for group in each):
        return True
    found = _Waits(graph, context.options.is_partial)
    return len({found.of_all(group) for group in each}) == 1


class _Waits:
    """Sets of events, as integers with one bit for each event."""

    def __init__(self, graph: Graph, is_partial: bool) -> None:
        self._of: dict[Tensor, int] = {}
        self._after: dict[Operation, int] = {}
        self._events = 0
        self._sure = SureInputs()
        is_nested = isinstance(graph, FuncGraph)
        for op in in_order(graph):
            before = self.of_all(op.inputs)
            for c in op.control_inputs:
                before |= self._after[c]
            if op.opdef.structured:
                self._structured(op, before)
                continue
            if waits(op) or (op.type == "_Arg" and (is_nested or is_partial)):
                before |= self._event()
            self._after[op] = before
            self._of.update(dict.fromkeys(op.outputs, before))

    def of_all(self, tensors: Iterable[Tensor]) -> int:
        """Events for which any of the tensors waits."""
        out = 0
        for t in tensors:
            out |= self._of[t]
        return out

    def _event(self) -> int:
        self._events += 1
        return 1 << self._events

    def _structured(self, op: Operation, before: int) -> None:
        inside = waits(op)
        self._after[op] = before
        for t, positions in zip(op.outputs, self._sure.of(op), strict=True):
            surely = self.of_all(x for i, x in enumerate(op.inputs) if positions >> i & 1)
            self._of[t] = surely if surely == before and not inside else surely | self._event()
            self._after[op] |= self._of[t]
