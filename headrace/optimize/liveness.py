"""What the results of conditionals, loops and calls are made of, result by result.

That an operation is needed does not mean that all its inputs are. Of a loop that is read at output 1, only those
variables are needed that the condition, what must run, and the next value of variable 1 are made of, those of which
*their* next values are made, and so on. In the body there may be loops again, of which the same is true. So one asks
for tensors, not for operations; and it is done step by step: each further question costs only what it brings to
light.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.ir.function import FuncGraph, owned
from headrace.optimize.reading import owns_graphs

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor


class Needs:
    """What of one graph is needed so far."""

    def __init__(self, graph: FuncGraph) -> None:
        self._number = {p.op: k for k, p in enumerate(graph.params)}
        self._seen: set[Operation] = set()
        self._parts: dict[Operation, Parts] = {}

    def need(self, tensors: Iterable[Tensor], ops: Iterable[Operation] = ()) -> list[int]:
        """The numbers of the parameters that `tensors`, and all of `ops`, need, and nothing asked for before did."""
        found = []
        values, whole = list(tensors), list(ops)
        while values or whole:
            if whole:
                op = whole.pop()
                values += op.outputs
            else:
                t = values.pop()
                op = t.op
                if owns_graphs(op):
                    parts = self._parts.get(op)
                    if parts is None:
                        parts = self._parts[op] = Parts(op)
                        whole += op.control_inputs
                    values += parts.need(t.index)
                    continue
            if op in self._seen:
                continue
            self._seen.add(op)
            k = self._number.get(op)
            if k is not None:
                found.append(k)
            values += op.inputs
            whole += op.control_inputs
        return found


class Parts:
    """What of a conditional, loop or call is needed so far.

    Attributes:
      live: the numbers of the inputs that are; of a loop those are its variables.
    """

    def __init__(self, op: Operation) -> None:
        self.op = op
        self.live: dict[int, None] = {}
        self._graphs = [(g, Needs(g)) for g in owned(op)]
        self._offset = len(op.inputs) - len(self._graphs[0][0].params)
        self._is_begun = False

    def need(self, k: int | None) -> list[Tensor]:
        """The inputs that output `k` is made of (None: that what must run needs), as far as they are new."""
        before = len(self.live)
        if not self._is_begun:
            self._is_begun = True
            self.live.update(dict.fromkeys(range(self._offset)))
            for graph, needs in self._graphs:
                ends = graph.results if graph is self.op.attrs.get("cond") else ()
                self._add([i + self._offset for i in needs.need(ends, graph.control_results)])
        if k is not None:
            self._add([k] if self.op.opdef.structured == "While" else self._of_result(k))
        return [self.op.inputs[i] for i in list(self.live)[before:]]

    def _of_result(self, k: int) -> list[int]:
        return [i + self._offset for graph, needs in self._graphs for i in needs.need([graph.results[k]])]

    def _add(self, found: list[int]) -> None:
        if self.op.opdef.structured != "While":
            self.live.update(dict.fromkeys(found))
            return
        body: FuncGraph = self.op.attrs["body"]
        needs = next(n for g, n in self._graphs if g is body)
        while found:
            k = found.pop()
            if k not in self.live:
                self.live[k] = None
                found += needs.need([body.results[k]])
