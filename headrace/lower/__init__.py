"""Lowering: from structured operations to the primitives that the executor runs.

    lowered = lower(graph)

A structured graph contains `If`, `While`, `Case` and calls that own or name sub-graphs. The executor runs none of
these, but Switch, Merge, Enter, Exit and NextIteration. Lowering replaces the structured operations by these
primitives. `lowering` explains the rules, and `conditionals`, `loops` and `calls` each lower one kind of structure. The
input graph is not changed.

`lower` is for a step, which is run. `lower_whole` is for a file, in which the user's names must be found (`whole`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace import thresholds
from headrace.errors import GraphError
from headrace.ir.analysis.graph_size import deepens_recursion, graph_size
from headrace.ir.function import recursive_functions
from headrace.lower.calls import lower_call, lower_remote_call, lower_symbolic_gradient
from headrace.lower.conditionals import lower_case, lower_if
from headrace.lower.loops import lower_for, lower_while
from headrace.lower.lowering import Lowering, Rule, Shared
from headrace.records import record

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

_TOO_DEEP: Final = "conditionals, loops and gradients are nested too deeply to be lowered"


@record(frozen=True, slots=True)
class Lowered:
    """Primitive graph, and the functions that it calls.

    Attributes:
      graph: The graph, with all operations that the structured graph may compute.
      ops: The operations of `graph` that its ends need, and those that must run.
      functions: The primitive operations of each function that is called in a frame of its own, with `_Arg` and
        `_Retval` ends.
      left: The structured operations that run and were not lowered, each with the operation of which it is a copy.
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
    is_outlined: Callable[[Operation], bool] = lambda op: False,
) -> Lowered:
    """Lowers `graph` to its primitive form.

    Args:
      graph: The structured graph, with `_Arg` and `_Retval` ends (`prune`).
      targets: Operations of the graph that must run although no operation may read their outputs.
      differentiate: Returns the graph of a SymbolicGradient operation.
      is_outlined: Whether a structured operation is not lowered but compiled in a fused region (`compile.outlining`).

    Returns:
      The primitive graph with the functions that it calls.

    Raises:
      GraphError: A called function does not fit, or structures are nested too deeply.
      NotFoundError: A called function does not exist.
    """
    is_inlined = graph_size(graph.operations, reads=True).repeated <= thresholds.EXPANDED_OPERATIONS
    shared = Shared(_RULES, recursive_functions(graph.operations), differentiate, is_outlined, is_inlined)
    top = Lowering(shared)
    functions: dict[str, Sequence[Operation]] = {}
    try:
        done = top.root(graph)
        ends = [op for op in top.graph.operations if op.opdef.facts.graph_end]
        ops = top.needed([*ends, *done.of_all(targets)])
        while len(functions) < len(shared.called):
            for name, body in list(shared.called.items()):
                if name not in functions:
                    functions[name] = Lowering(shared).function(name, body)
    except RecursionError as e:
        raise GraphError(_TOO_DEEP) from e
    run = {*ops, *(op for body in functions.values() for op in body)} if shared.left else ()
    return Lowered(top.graph, ops, functions, {copy: op for copy, op in shared.left.items() if copy in run})


@deepens_recursion
def lower_whole(graph: Graph, differentiate: Callable[[Operation], FuncGraph] | None = None) -> Graph:
    """Lowers all of a user's graph to its primitive form for a file.

    Operations keep their names, and tensors can be found by their previous names (`whole`).

    Args:
      graph: The structured graph.
      differentiate: Returns the graph of a SymbolicGradient operation.

    Returns:
      A new graph, or `graph` if it has no structured operation. Its `functions` contain the recursive functions that it
      calls, in structured form.

    Raises:
      GraphError: A called function does not fit, or structures are nested too deeply.
      NotFoundError: A called function does not exist.
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
    """Whether a structured operation is among `ops`."""
    return any(op.opdef.structured for op in ops)
