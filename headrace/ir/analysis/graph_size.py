"""Sizes and depths of nested graphs, computed before anything is expanded.

A function may be called in many places, and so may its callers: forty functions of which each calls the next one twice
amount to 2⁴⁰ operations. Here each graph is counted once, independent of the number of calls, and the sums follow
without an expansion.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from headrace import recursion, thresholds
from headrace.errors import HeadraceError, ResourceExhaustedError
from headrace.ir import walk
from headrace.ir.function import bodies, functions_of, known_function
from headrace.ir.graph import FuncGraph, Graph
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Operation

P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G", bound="Graph | Iterable[Operation]")

_CALLS: Final = ("Call", "RemoteCall", "SymbolicGradient")


@record(frozen=True, slots=True)
class GraphSize:
    """Size and depth of a graph, including the graphs that its operations own or call.

    A recursive function counts once, because the number of its calls is unknown.

    Attributes:
      levels: the nesting depth of structured operations.
      size: the number of operations.
      surely: the number of operations that run whenever the graph does: those outside of branches and loops.
      repeated: the part of `size` that exists because functions are called more than once.
    """

    levels: int = 0
    size: int = 0
    surely: int = 0
    repeated: int = 0


def graph_size(ops: Iterable[Operation], reads: bool = False) -> GraphSize:
    """Returns the size and depth of `ops`, which are operations of one graph.

    Args:
      ops: the operations.
      reads: whether functions of a file that are not decoded yet are decoded and counted; otherwise they count as
        empty.
    """
    needed: dict[FuncGraph, set[Operation]] = {}
    known: dict[FuncGraph, GraphSize] = {}  # a graph that is only in `needed` is being counted
    top = list(ops)
    graphs = functools.partial(_graphs, reads=reads)
    todo = [g for op in _structured(top) for g in graphs(op)]
    while todo:
        graph = todo[-1]
        if graph not in needed:
            needed[graph] = walk.reachable([*(t.op for t in graph.results), *graph.control_results])
            todo += [g for op in _structured(needed[graph]) for g in graphs(op) if g not in needed]
        else:
            todo.pop()
            if graph not in known:
                known[graph] = _sum(needed[graph], graphs, known)
    out = _sum(top, graphs, known)
    return dataclasses.replace(out, repeated=out.size - len(top) - sum(map(len, needed.values())))


def check_expansion(ops: Sequence[Operation]) -> None:
    """Checks that the calls in `ops`, of one graph, expand to few enough operations.

    Raises:
      ResourceExhaustedError: they expand to more than `thresholds.STEP_OPERATIONS` operations.
    """
    calls = [op for op in ops if op.opdef.structured in _CALLS]
    if not calls or graph_size(ops, reads=True).surely <= thresholds.STEP_OPERATIONS:
        return
    worst = max(calls, key=lambda op: graph_size([op], reads=True).surely)
    name, n = getattr(worst.attrs["f"], "name", worst.name), graph_size([worst], reads=True).surely
    made = f", made at {worst.source}" if worst.source is not None else ""
    raise ResourceExhaustedError(
        f"the call '{worst.name}' ({worst.type}{made}) of {name!r} comes to {n:,} operations, by functions that call "
        f"functions; at most {thresholds.STEP_OPERATIONS:,} can be run in a step. Call them in a loop "
        "(hr.while_loop), or under a condition",
        worst.name,
        worst,
    )


def _sum(
    ops: Collection[Operation],
    graphs: Callable[[Operation], list[FuncGraph]],
    known: dict[FuncGraph, GraphSize],
) -> GraphSize:
    levels = 0
    size = surely = len(ops)
    for op in _structured(ops):
        for graph in graphs(op):
            inner = known.get(graph) or GraphSize()
            levels = max(levels, inner.levels + 1)
            size += inner.size
            surely += inner.surely if op.opdef.structured in _CALLS else 0
    return GraphSize(levels, size, surely)


def _structured(ops: Iterable[Operation]) -> list[Operation]:
    return [op for op in ops if op.opdef.structured]


def _graphs(op: Operation, reads: bool) -> list[FuncGraph]:
    """Returns the graphs that the structured operation `op` owns or calls, without missing ones.

    Args:
      op: the operation.
      reads: whether functions of a file that are not decoded yet are decoded.
    """
    if reads:
        try:
            return [g for _, g in bodies(op)]
        except HeadraceError:  # raised again where the function is used
            return []
    found = [f if isinstance(f, FuncGraph) else known_function(op.graph, f.name) for f in functions_of(op)]
    return [g for g in found if g is not None]


def deepens_recursion(walk: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    """Decorates a function that recurses over nested graphs: raises the recursion limit for it.

    The function's first argument is a graph or the operations of one. The limit depends on the depth of the graphs
    nested in it.

    Source: `recursion`.
    """

    @functools.wraps(walk)
    def wrapper(graph: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
        ops = graph.operations if isinstance(graph, Graph) else graph
        if not any(op.opdef.structured for op in ops):
            return walk(graph, *args, **kwargs)
        with recursion.recursion_room_for_levels(graph_size(ops).levels):
            return walk(graph, *args, **kwargs)

    return wrapper


def room_around(graph: Graph) -> contextlib.AbstractContextManager[None]:
    """Returns a context with a recursion limit for the graphs nested in and around `graph`."""
    top, levels = graph, 0
    while top.outer is not None:
        top, levels = top.outer, levels + 1
    for each in {graph, top}:
        levels += graph_size(each.operations).levels
    return recursion.recursion_room_for_levels(levels)
