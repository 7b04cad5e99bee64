"""Checks that graphs fit the operations that own or call them.

A graph fits if it has as many parameters as it receives values, and as many results as are expected. Operations of the
builder fit. A file may contain others, and its functions are decoded only on use, so the user of such a function calls
these checks first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.errors import InvalidArgumentError
from headrace.ir.function import bodies, nested_operations

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.graph import FuncGraph, Operation


def interface(op: Operation, path: str) -> tuple[Sequence[DType], Sequence[DType] | None]:
    """Returns the dtypes that `op` passes to one of its graphs and expects back.

    Args:
      op: the operation.
      path: the attribute with the graph, such as "body" or "branches.0".

    Returns:
      The dtypes of the parameters and of the results. For the results None means one value of any dtype (a condition).
    """
    takes, gives = [t.dtype for t in op.inputs], [t.dtype for t in op.outputs]
    kind = op.opdef.structured
    if kind in ("If", "Case", "RemoteCall"):
        return takes[1:], gives
    if kind == "For":
        return [takes[0], *takes[3:]], gives
    if kind == "SymbolicGradient":
        return takes[: len(gives)], takes[len(gives) :]
    return takes, None if kind == "While" and path == "cond" else gives


def check_signature(op: Operation, graph: FuncGraph, params: int, results: int) -> None:
    """Raises an error unless `graph` has as many parameters and results as `op` requires.

    Raises:
      InvalidArgumentError: a number differs.
    """
    if (len(graph.params), len(graph.results)) != (params, results):
        raise InvalidArgumentError(
            f"'{op.name}' ({op.type}) gives {params} values to {graph.name!r} and expects {results} back, but it takes "
            f"{len(graph.params)} and returns {len(graph.results)}",
            op.name,
            op,
        )


def check_fit(op: Operation) -> None:
    """Raises an error unless the graphs that `op` owns or calls fit it.

    The graphs of a SymbolicGradient are not checked, because they are not what it runs.

    Raises:
      InvalidArgumentError: a graph does not fit.
    """
    if op.opdef.structured == "SymbolicGradient":
        return
    for path, graph in bodies(op):
        takes, gives = interface(op, path)
        if gives is None and len(graph.results) != 1:
            raise InvalidArgumentError(
                f"Expected a single scalar return value from WhileOp cond, got {len(graph.results)} tensors: "
                f"{graph.name!r}, the condition of '{op.name}'",
                op.name,
                op,
            )
        check_signature(op, graph, len(takes), 1 if gives is None else len(gives))


def check_fits(ops: Iterable[Operation]) -> None:
    """Checks the structured operations among `ops` and in the graphs that they own or call."""
    for op in nested_operations(ops, calls=True):
        if op.opdef.structured:
            check_fit(op)
