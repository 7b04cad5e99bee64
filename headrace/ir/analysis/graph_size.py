"""How much there is in nested graphs, and how deep: known before anything is expanded.

A function may be called in many places, and so may one that calls it: forty functions that each call the next one twice
come to 2⁴⁰ operations. Here each graph is counted once, whatever calls it, so the sums are there at once.
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

if TYPE_CHECKING:
    from headrace.ir.graph import Operation

P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G", bound="Graph | Iterable[Operation]")

_CALLS: Final = ("Call", "RemoteCall", "SymbolicGradient")


@dataclasses.dataclass(frozen=True, slots=True)
class GraphSize:
    """Size and depth of a graph, including the graphs that its operations own or call.

    A function that calls itself counts once, as what it comes to do is not known.

    Attributes:
      levels: how deep its structures are nested.
      size: how many operations there are.
      surely: how many of them run whenever it does: those in no branch and no loop.
      repeated: how many there are more than in the graphs themselves, because functions are called more than once.
    """

    levels: int = 0
    size: int = 0
    surely: int = 0
    repeated: int = 0


def graph_size(ops: Iterable[Operation], reads: bool = False) -> GraphSize:
    """The extent of `ops`, which are of one graph.

    Args:
      ops: the operations.
      reads: whether functions of a file that nothing has asked for yet are read and counted; else they count as empty.
    """
    needed: dict[FuncGraph, set[Operation]] = {}
    known: dict[FuncGraph, GraphSize] = {}  # a graph that is in `needed` only is being counted
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
    """Checks that the calls of functions in `ops`, of one graph, come to no more operations than can be run.

    Raises:
      ResourceExhaustedError: they come to more than `thresholds.STEP_OPERATIONS`.
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
    """The graphs that `op`, a structured one, owns or calls, as far as they are there."""
    if reads:
        try:
            return [g for _, g in bodies(op)]
        except HeadraceError:  # raised again where the function is wanted
            return []
    found = [f if isinstance(f, FuncGraph) else known_function(op.graph, f.name) for f in functions_of(op)]
    return [g for g in found if g is not None]


def deepens_recursion(walk: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    """Decorates a function of a graph, or of operations, that recurses with what is nested in it: it has room for it.

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
    """Room for what recurses with the structures in `graph`, and with the graphs around it."""
    top, levels = graph, 0
    while top.outer is not None:
        top, levels = top.outer, levels + 1
    for each in {graph, top}:
        levels += graph_size(each.operations).levels
    return recursion.recursion_room_for_levels(levels)
