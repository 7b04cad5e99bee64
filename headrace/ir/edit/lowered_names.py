"""Names of nested operations as lowering assigns them.

Lowering calls an operation `y` in the then branch of `c` "c/then_branch/y". Errors use this name, and random operations
keep the state of their streams under it: two conditionals that name the same function have separate streams. So code
that is generated from the structured graph needs the same names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from headrace import thresholds
from headrace.ir.analysis.graph_size import deepens_recursion
from headrace.ir.edit import add_values
from headrace.ir.function import bodies, called_names, move_to, owned, recursive_functions
from headrace.ir.graph import FuncGraph

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation


@deepens_recursion
def name_as_lowered(graph: Graph) -> None:
    """Gives operations nested in `graph`, the graph of a step, their names in lowered form.

    Library functions that operations name are replaced by owned copies. Recursive functions are excepted; their
    operations keep their names, in frames of their own.
    """
    recursive = recursive_functions(graph.operations)
    made = 0
    todo: list[tuple[Graph, int]] = [(graph, 0)]
    while todo:
        outer, depth = todo.pop()
        for op in [op for op in outer.operations if op.opdef.structured in _PARTS]:
            called = called_names(op)
            if called:
                size = sum(len(g) for _, g in bodies(op))
                if (
                    depth == thresholds.EXPANDED_DEPTH
                    or made + size > thresholds.RENAMED_OPERATIONS
                    or not recursive.isdisjoint(called)
                ):
                    continue
                made += size
                add_values.own_graphs(op)
            for part, f in _parts(op):
                if not f.shares_names:
                    prefix(f, f"{op.name}/{part}")
                    f.shares_names = True
                todo.append((f, depth + bool(called)))


def adopt(op: Operation, text: str) -> None:
    """Moves the graphs that the copy `op` owns into the graph of `op`.

    Args:
      op: the copy.
      text: the prefix of the names of their operations; see `prefix`.
    """
    for f in owned(op):
        move_to(f, op.graph)
        if f.shares_names:
            prefix(f, text)


def prefix(graph: FuncGraph, text: str) -> None:
    """Puts `text` before the names of all operations of `graph`, and of nested operations.

    Nested graphs that do not share names with `graph` are excepted.
    """
    ops = list(graph.operations)
    for op in ops:
        for f in owned(op):
            if f.shares_names:
                prefix(f, text)
        op.name = text + op.name
    graph._by_name.clear()
    graph._by_name.update((op.name, op) for op in ops)


# Text between the name of a structured operation and the names of nested operations. Other kinds (For, the gradient of
# a function) are compiled from a graph that is built at compile time.
_PARTS: Final[dict[str, dict[str, str]]] = {
    "If": {"then_branch": "then_branch/", "else_branch": "else_branch/"},
    "Case": {},
    "While": {"cond": "cond/", "body": "body/"},
    "Call": {"f": ""},
    "RemoteCall": {"f": ""},
}


def _parts(op: Operation) -> Iterator[tuple[str, FuncGraph]]:
    kind = op.opdef.structured
    for i, (name, f) in enumerate(bodies(op)):
        yield f"branch{i}/" if kind == "Case" else _PARTS[kind][name], f
