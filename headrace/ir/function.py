"""Graphs that operations own: the branches of an `If`, the condition and body of a `While`, functions.

A `FuncGraph` (`ir.graph`) is a graph with an order among its ends: *parameters*, what it is given, and *results*, what
it gives back. The operation that owns it supplies the parameters by its inputs and has the results as its outputs; a
function of the library is not owned but called by name. This module holds the functions that read and unify them.

**Captures.** What happens in a branch may use values from outside. When an operation in a FuncGraph is given a tensor
of the graph around it, the FuncGraph gets one parameter more, which stands for that tensor, and remembers the pair. So
a sub-graph never has an edge that leads out of it: all comes in by parameters, and whoever reads it (lowering,
gradients, a compiler) need not look around. With several sub-graphs in one operation all get the same parameters
(`unify`). A captured constant is cloned instead, so that what is known about its value stays known: a size, an axis.
Not one of floats (`is_cloned`): of those no static value is asked for, but a gradient may be.

**Control inputs** that point out of a sub-graph are collected in `outer_controls`; the operation that comes to own it
waits for them.

**What runs.** When its owner runs, what the wanted results need does, and what `control_results` need: operations that
change something.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from headrace.ir.attr_values import Func
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor


def base_name(t: Tensor) -> str:
    """Return the last part of the name of the operation of `t`, without the prefix of parameters."""
    return t.op.name.rpartition("/")[2].removeprefix("arg.")


def unify(graphs: Sequence[FuncGraph], own: int) -> list[Tensor]:
    """Gives all `graphs`, which one operation owns, the same parameters: the first `own`, then what any captured.

    Args:
      graphs: of one operation.
      own: how many parameters they have in common already: variables, and what they captured before.

    Returns:
      The captured tensors that are new, in the order of the parameters.
    """
    union: dict[Tensor, None] = {}
    for g in graphs:
        fixed = set(g.params[:own])
        union.update((t, None) for t, p in g.captured if p not in fixed)
    for g in graphs:
        g.set_params([*g.params[:own], *[g.add_captured(t) for t in union]])
    return list(union)


def functions_of(op: Operation) -> list[Func | FuncGraph]:
    """What the `func` attributes of a structured operation hold: names of functions, and graphs that it owns."""
    values = [f for v in op.attrs.values() for f in (v if isinstance(v, tuple) else (v,))]
    return [f for f in values if isinstance(f, (Func, FuncGraph))]


def called_names(op: Operation) -> list[str]:
    """Names of the library functions that the attributes of `op` name."""
    return [f.name for f in functions_of(op) if isinstance(f, Func)]


def known_function(graph: Graph | None, name: str) -> FuncGraph | None:
    """Library function that operations of `graph` call by `name`; None if it is missing or not decoded yet."""
    while graph is not None and name not in graph.functions:
        graph = graph.outer
    return None if graph is None else graph.functions[name]


def owned(op: Operation) -> list[FuncGraph]:
    """The graphs that an operation owns; none if it is not structured."""
    return [f for f in functions_of(op) if isinstance(f, FuncGraph)] if op.opdef.structured else []


def owns_all(op: Operation) -> bool:
    """Whether `op` owns all its graphs: it names no library function."""
    return len(owned(op)) == len(functions_of(op))


def param_offset(op: Operation) -> int:
    """Number of an input of `op` minus the number of its parameter.

    It is the number of inputs that `op` does not pass to its graphs, such as a predicate. (For passes its first input,
    which has no number in the body, as parameter 0.)
    """
    return _OFFSETS.get(op.opdef.structured, 0)


_OFFSETS: Final = {"If": 1, "Case": 1, "RemoteCall": 1, "For": 2}


def connect(op: Operation, graph: FuncGraph) -> None:
    """Records which inputs of `op`, its owner, the captures of `graph` stand for.

    A parameter is a capture if its operation names an outer tensor (its attribute `of`).
    """
    for k, p in enumerate(graph.params, param_offset(op)):
        if p.op.attrs["of"] and k < len(op.inputs):
            graph.captures.setdefault(op.inputs[k], p)


# *** nested graphs ***


def nested(ops: Iterable[Operation], calls: bool = False) -> Iterator[tuple[Operation, FuncGraph]]:
    """Iterates over (owner, graph) for the graphs nested in `ops`.

    Each graph comes once, outer graphs first. The iteration needs no recursion, so the depth of the graphs does not
    matter. The operations of a graph are read after the graph has been yielded.

    Args:
      ops: the operations.
      calls: whether the graphs include the library functions that operations call, with one of the callers as owner.

    Raises:
      NotFoundError: a library function is missing.
    """
    seen: set[FuncGraph] = set()
    todo: list[Iterable[Operation]] = [ops]
    for some in todo:
        for op in some:
            if op.opdef.structured:
                for graph in [g for _, g in bodies(op)] if calls else owned(op):
                    if graph not in seen:
                        seen.add(graph)
                        yield op, graph
                        todo.append(graph.operations)


def nested_operations(ops: Iterable[Operation], calls: bool = False) -> Iterator[Operation]:
    """Iterates over `ops`, then over the operations of the graphs nested in them (`nested`)."""
    ops = list(ops)
    yield from ops
    for _, graph in nested(ops, calls):
        yield from graph.operations


def inside_out(graph: Graph) -> Iterator[Graph]:
    """Iterates over the graphs owned in `graph`, innermost first, and `graph` itself.

    A graph comes after all graphs nested in it. A graph's operations are read before the first graph nested in it is
    yielded, so the caller may change graphs.
    """
    seen: set[Graph] = {graph}
    todo: list[tuple[Graph, Iterator[FuncGraph]]] = [(graph, iter(_directly_owned(graph)))]
    while todo:
        inner = next(todo[-1][1], None)
        if inner is None:
            yield todo.pop()[0]
        elif inner not in seen:
            seen.add(inner)
            todo.append((inner, iter(_directly_owned(inner))))


def _directly_owned(graph: Graph) -> list[FuncGraph]:
    return [f for op in graph.operations if op.opdef.structured for f in owned(op)]


def move_to(graph: FuncGraph, outer: Graph) -> None:
    """Makes `outer` the graph around `graph`."""
    graph.outer = outer
    for g in (graph, *(g for _, g in nested(graph.operations))):
        g.level = 1 + g.outer.level if isinstance(g.outer, FuncGraph) else 0


def called(ops: Iterable[Operation]) -> Iterator[tuple[Operation, Func]]:
    """Iterates over (caller, function) for the library functions named in `ops`.

    Callers are `ops` and the operations of the graphs that they own, not those of library functions.
    """
    for op in nested_operations(ops):
        if op.opdef.structured:
            for f in functions_of(op):
                if isinstance(f, Func):
                    yield op, f


def bodies(op: Operation) -> list[tuple[str, FuncGraph]]:
    """(name, graph) of the graphs that a structured operation owns or calls; of a list attribute "name.0", "name.1".

    Raises:
      NotFoundError: it calls a function that its graph's library does not have.
    """
    out = []
    for name, spec in op.opdef.attrs.items():
        if spec.kind == "func":
            value = op.attrs[name]
            many = value if spec.is_list else (value,)
            for i, f in enumerate(many):
                out.append((f"{name}.{i}" if spec.is_list else name, body(op, f)))
    return out


def body(op: Operation, f: Func | FuncGraph | Any) -> FuncGraph:
    """The graph that the value `f` of a `func` attribute of `op` means."""
    if isinstance(f, FuncGraph):
        return f
    return op.graph.function(f.name, op)


def find_anywhere(graph: Graph, name: str) -> Operation | None:
    """The operation of that name in `graph`, or in one of the graphs that its operations own."""
    graphs = itertools.chain([graph], (g for _, g in nested(graph.operations)))
    return next((op for g in graphs if (op := g.find(name)) is not None), None)


def recursive_functions(ops: Iterable[Operation]) -> frozenset[str]:
    """The names of the functions, among those that `ops` come to call, that come to call themselves."""
    calls: dict[str, set[str]] = {}

    pending: list[tuple[str, FuncGraph]] = []

    def callees(ops: Iterable[Operation]) -> set[str]:
        out: set[str] = set()
        for op, f in called(ops):
            out.add(f.name)
            if f.name not in calls:
                calls[f.name] = set()
                pending.append((f.name, op.graph.function(f.name, op)))
        return out

    callees(ops)
    while pending:
        name, graph = pending.pop()
        calls[name] = callees(graph.operations)
    callers: dict[str, set[str]] = {name: set() for name in calls}
    for name, others in calls.items():
        for other in others:
            callers[other].add(name)
    # who calls nobody that is left, or is called by nobody, calls not itself; of most libraries nothing is left
    for edges, back in ((calls, callers), (callers, calls)):
        done = [name for name, others in edges.items() if not others]
        while done:
            name = done.pop()
            for other in back.pop(name):
                edges[other].discard(name)
                if not edges[other]:
                    done.append(other)
            del edges[name]
    return frozenset(name for name in calls if _reaches(calls, name))


def _reaches(calls: Mapping[str, set[str]], name: str) -> bool:
    seen: set[str] = set()
    todo = list(calls[name])
    while todo:
        n = todo.pop()
        if n == name:
            return True
        if n not in seen:
            seen.add(n)
            todo.extend(calls.get(n, ()))
    return False
