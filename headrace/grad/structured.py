"""Table of derivatives of structured operations, for both modes and the activity analysis.

A structured operation owns or calls graphs: a conditional, a loop, a call. Its derivatives are made by walks through
these graphs. The rules are in `conditionals`, `loops` and `calls` (reverse mode) and in `forward_loops` (forward mode);
those of calls treat recursive functions, too. A `For` and a `SymbolicGradient` are expanded first: each is replaced by
a call of a graph that computes the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace.grad import calls, conditionals, forward_loops, loops
from headrace.grad.function import gradient_graph
from headrace.ir.edit.for_as_while import counting
from headrace.records import record

if TYPE_CHECKING:
    from headrace.grad.sums import Gradient
    from headrace.grad.walks import Backward, Flow, ForwardWalks, Walks
    from headrace.ir.builder import Builder
    from headrace.ir.graph import FuncGraph, Operation, Tensor


@record(frozen=True, slots=True)
class StructuredRules:
    """Derivatives of a kind of structured operation.

    Attributes:
      grad: the gradients of the inputs; see `conditionals.grad_branches`.
      jvp: the tangents of the outputs; see `forward_loops.of_branches`.
      flow: the sets of sources of the outputs, from those of the inputs; see `conditionals.flow_of_branches`. None:
        each output depends on all inputs.
      expansion: a function of the operation and the reverse walk; it returns a graph that computes the operation. Then
        `grad` and `jvp` are those of a call of that graph. None: no expansion.
    """

    grad: Callable[..., list[Gradient | None]]
    jvp: Callable[..., list[Tensor | None]]
    flow: Callable[[Flow, Operation, Sequence[int]], list[int]] | None
    expansion: Callable[[Operation, Backward], FuncGraph] | None = None

    def gradients(
        self, b: Builder, op: Operation, dys: Sequence[Gradient | None], wanted: Sequence[bool], walks: Walks
    ) -> list[Gradient | None]:
        """Returns the gradients of the inputs of `op`; see `conditionals.grad_branches`."""
        if self.expansion is not None:
            graph = self.expansion(op, walks.backward)
            op = calls.call_of(op, graph, op.graph, "gradient", "Use a while_loop instead")
        return self.grad(b, op, dys, wanted, walks)

    def tangents(
        self, b: Builder, op: Operation, dxs: Sequence[Tensor | None], wanted: Sequence[bool], walks: ForwardWalks
    ) -> list[Tensor | None]:
        """Returns the wanted tangents of the outputs of `op`; see `forward_loops.of_branches`."""
        if self.expansion is not None:
            graph = self.expansion(op, walks.backward)
            op = calls.call_of(op, graph, b.graph, "tangents (forward mode)", "Use a while_loop instead")
        return self.jvp(b, op, dxs, wanted, walks)


def _loop_of(op: Operation, backward: Backward) -> FuncGraph:
    return counting(op)


_BRANCHES = StructuredRules(conditionals.grad_branches, forward_loops.of_branches, conditionals.flow_of_branches)

STRUCTURED: Final[Mapping[str, StructuredRules]] = {
    "If": _BRANCHES,
    "Case": _BRANCHES,
    "RemoteCall": _BRANCHES,
    "Call": dataclasses.replace(_BRANCHES, grad=calls.grad_call, jvp=forward_loops.of_call),
    "While": StructuredRules(loops.grad_loop, forward_loops.of_loop, loops.flow_of_loop),
    "For": dataclasses.replace(_BRANCHES, flow=None, expansion=_loop_of),
    "SymbolicGradient": dataclasses.replace(_BRANCHES, flow=None, expansion=gradient_graph),
}
