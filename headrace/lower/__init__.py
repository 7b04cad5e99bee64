"""Lowering: from structured operations to the primitives that the token machine runs.

    lowered = lower(graph)

A structured graph has `If`, `While`, `Case` and calls that own or name sub-graphs. The machine knows none of these: it
knows Switch, Merge, Enter, Exit and NextIteration. Lowering writes the one in terms of the other; `lowering` tells the
rules, `conditionals`, `loops` and `calls` have one of the structures each. The graph it is given is not changed.

`lower` is for a step, which is run. `lower_whole` is for a file, in which all has to be found again (`whole`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace.errors import GraphError
from headrace.ir.analysis.graph_size import deepens_recursion, graph_size
from headrace.ir.function import recursive_functions
from headrace.lower.calls import lower_call, lower_remote_call, lower_symbolic_gradient
from headrace.lower.conditionals import lower_case, lower_if
from headrace.lower.loops import lower_for, lower_while
from headrace.lower.lowering import INLINE_LIMIT, Lowering, Rule, Shared

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Graph, Operation

_RULES: Final[Mapping[str, Rule]] = {
    "If": lower_if,
    "Case": lower_case,
    "While": lower_while,
    "For": lower_for,
    "Call": lower_call,
    "RemoteCall": lower_remote_call,
    "SymbolicGradient": lower_symbolic_gradient,
}

_TOO_DEEP: Final = "conditionals, loops and gradients are nested too deeply in one another to be lowered"


@dataclasses.dataclass(frozen=True, slots=True)
class Lowered:
    """A primitive graph, and what it calls.

    Attributes:
      graph: it, with everything that the structured graph may compute; `ops` is what has to be there.
      ops: the operations that the ends of the graph need, and those that must run.
      functions: for each function that is called in a frame of its own its primitive operations, with `_Arg` and
        `_Retval` ends.
      left: the structured operations that are left in it; for each what it is a copy of.
    """

    graph: Graph
    ops: Sequence[Operation]
    functions: Mapping[str, Sequence[Operation]]
    left: Mapping[Operation, Operation] = dataclasses.field(default_factory=dict)


@deepens_recursion
def lower(
    graph: Graph,
    targets: Sequence[Operation] = (),
    differentiate: Callable[[Operation], FuncGraph] | None = None,
    stays: Callable[[Operation], bool] = lambda op: False,
) -> Lowered:
    """The primitive form of `graph`.

    Args:
      graph: structured, with `_Arg` and `_Retval` ends (`prune`).
      targets: operations of it that must run, though nothing may read them.
      differentiate: gives the graph of a SymbolicGradient operation.
      stays: whether a structured operation is left as it is, for somebody else to compute (`compile.outlining`).

    Raises:
      GraphError, NotFoundError: a function that is called is not there or does not fit.
    """
    is_inlined = graph_size(graph.operations, reads=True).repeated <= INLINE_LIMIT
    shared = Shared(_RULES, recursive_functions(graph.operations), differentiate, stays, is_inlined)
    top = Lowering(shared)
    functions: dict[str, Sequence[Operation]] = {}
    try:
        done = top.root(graph)
        ends = [op for op in top.graph.operations if op.type in ("_Arg", "_Retval")]
        ops = top.needed([*ends, *done.of_all(targets)])
        while len(functions) < len(shared.called):
            for name, body in list(shared.called.items()):
                if name not in functions:
                    functions[name] = Lowering(shared).function(name, body)
    except RecursionError as e:
        raise GraphError(_TOO_DEEP) from e
    return Lowered(top.graph, ops, functions, shared.left)


@deepens_recursion
def lower_whole(graph: Graph, differentiate: Callable[[Operation], FuncGraph] | None = None) -> Graph:
    """All of a user's graph in its primitive form, to be written to a file: its operations keep their names, and its
    tensors can be found by the names they had. See `whole`.

    Args:
      graph: structured.
      differentiate: gives the graph of a SymbolicGradient operation.

    Returns:
      A new graph (the same, if there is nothing to lower in it). What it calls, which is recursive, is among its
      `functions`, structured as it was.

    Raises:
      GraphError, NotFoundError: a function that is called is not there or does not fit.
    """
    from headrace.lower.whole import Whole

    if not is_structured(graph.operations):
        return graph
    shared = Shared(_RULES, recursive_functions(graph.operations), differentiate)
    low = Whole(shared, graph)
    try:
        low.root(graph)
    except RecursionError as e:
        raise GraphError(_TOO_DEEP) from e
    return low.finish()


def is_structured(ops: Sequence[Operation]) -> bool:
    """Whether there is anything to lower."""
    return any(op.opdef.structured for op in ops)
