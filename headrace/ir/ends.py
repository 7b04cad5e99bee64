"""Whether a graph that an operation owns or calls fits it: as many parameters as it is given values, as many results as
are expected back.

What the builder makes fits. A file may say anything, and a function of its library is read only when somebody needs it,
so whoever does looks here first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.errors import InvalidArgumentError
from headrace.ir.function import bodies

if TYPE_CHECKING:
    from headrace.ir.function import FuncGraph
    from headrace.ir.graph import Operation


def check_ends(op: Operation, graph: FuncGraph, params: int, results: int) -> None:
    """Raises `InvalidArgumentError` unless `graph`, as `op` uses it, has so many parameters and results."""
    if (len(graph.params), len(graph.results)) != (params, results):
        raise InvalidArgumentError(
            f"'{op.name}' ({op.type}) gives {params} values to {graph.name!r} and expects {results} back, but it takes "
            f"{len(graph.params)} and returns {len(graph.results)}",
            op.name,
            op,
        )


def check_loop(op: Operation, cond: FuncGraph, body: FuncGraph) -> None:
    """Raises `InvalidArgumentError` unless the condition and body of the While `op` fit it."""
    if len(cond.results) != 1:
        raise InvalidArgumentError(
            f"Expected a single scalar return value from WhileOp cond, got {len(cond.results)} tensors: "
            f"{cond.name!r}, the condition of '{op.name}'",
            op.name,
            op,
        )
    n = len(op.inputs)
    check_ends(op, cond, n, 1)
    check_ends(op, body, n, n)


def check_fits(ops: Iterable[Operation]) -> None:
    """Raises `InvalidArgumentError` unless what `ops` own or call fits them, and what is in that, and so on."""
    todo, seen = [ops], set()
    while todo:
        for op in todo.pop():
            kind = op.opdef.structured
            if not kind:
                continue
            graphs = dict(bodies(op))
            if kind == "While":
                check_loop(op, graphs["cond"], graphs["body"])
            elif kind != "SymbolicGradient":  # it calls the gradient of what it names
                given = len(op.inputs) - {"If": 1, "Case": 1, "RemoteCall": 1, "For": 2}.get(kind, 0)
                for graph in graphs.values():
                    check_ends(op, graph, given, len(op.outputs))
            new = [g for g in graphs.values() if g not in seen]
            seen.update(new)
            todo += [g.operations for g in new]
