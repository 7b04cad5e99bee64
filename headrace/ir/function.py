"""Graphs that operations own: branches of an `If`, condition and body of a `While`, functions.

A `FuncGraph` (`ir.graph`) is a graph with an ordered list of *parameters*, its inputs, and an ordered list of
*results*, its outputs. The inputs of the operation that owns the graph supply the parameters, and its outputs are the
results. A function of the library has no owner and is called by name. This module has the functions that read such
graphs and unify their parameters.

**Captures.** A branch may use values from outside. If an operation in a FuncGraph receives a tensor of a surrounding
graph, the FuncGraph gets another parameter, which represents that tensor, and records the pair. So no edge leads out of
an owned graph: every value enters by a parameter, and lowering, gradients and the compiler need not read the
surrounding graph. If one operation owns several graphs, all of them get the same parameters (`unify`).

A captured constant is cloned instead, so that its static value (a size, an axis) stays known. Float constants are not
cloned (`is_cloned`): their static values are never requested, but their gradients may be.

**Control inputs** from outside of an owned graph are collected in `outer_controls`. The operation that will own the
graph waits for them.

**Execution.** When the owner runs, the operations run that the needed results depend on, and those that
`control_results` depend on, which have effects.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from headrace.ir.attr_values import Func
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor


def base_name(t: Tensor) -> str:
    """Returns the last part of the name of `t.op`, without the prefix of parameters."""
    return t.op.name.rpartition("/")[2].removeprefix("arg.")


def unify(graphs: Sequence[FuncGraph], own: int) -> list[Tensor]:
    """Gives the graphs of one operation the same parameters: the common ones, then all captures.

    Args:
      graphs: the graphs of one operation.
      own: the number of parameters that they have in common already: loop variables and earlier captures.

    Returns:
      The captured tensors without a common parameter before, in the order of the new parameters.
    """
    union: dict[Tensor, None] = {}
    for g in graphs:
        fixed = set(g.params[:own])
        union.update((t, None) for t, p in g.captured if p not in fixed)
    for g in graphs:
        g.set_params([*g.params[:own], *[g.add_captured(t) for t in union]])
    return list(union)


def functions_of(op: Operation) -> list[Func | FuncGraph]:
    """Returns the `func` attributes of a structured operation: library names and owned graphs.

    The order is that of `bodies`. (Decoded operations have their attributes in another order.)
    """
    attrs = op.attrs
    values = [attrs[name] for name, spec in op.opdef.attrs.items() if spec.kind == "func" and name in attrs]
    return [f for v in values for f in (v if isinstance(v, tuple) else (v,))]


def called_names(op: Operation) -> list[str]:
    """Names of the library functions that the attributes of `op` name."""
    return [f.name for f in functions_of(op) if isinstance(f, Func)]


def free_function_name(graph: Graph, name: str) -> str:
    """Returns a name like `name` that is free in a graph's library."""
    made, n = name, 0
    while made in graph.functions or made in graph.library:
        n += 1
        made = f"{name}_{n}"
    return made


def known_function(graph: Graph | None, name: str) -> FuncGraph | None:
    """Returns the decoded library function `name` for callers in `graph`, or None.

    It is None if the function is missing or not decoded yet.
    """
    while graph is not None and name not in graph.functions:
        graph = graph.outer
    return None if graph is None else graph.functions[name]


def owned(op: Operation) -> list[FuncGraph]:
    """Returns the graphs that an operation owns; none if it is not structured."""
    return [f for f in functions_of(op) if isinstance(f, FuncGraph)] if op.opdef.structured else []


def owns_all(op: Operation) -> bool:
    """Whether `op` owns all its graphs: it names no library function."""
    return len(owned(op)) == len(functions_of(op))


def param_offset(op: Operation) -> int:
    """Returns the number of an input of `op` minus the number of its parameter.

    This is the number of inputs, such as a predicate, that `op` does not pass to its graphs. A For has three own inputs
    (start, limit, delta), and its body has the counter as parameter 0, which corresponds to no input; so its offset is
    2.
    """
    return _OFFSETS.get(op.opdef.structured, 0)


_OFFSETS: Final = {"If": 1, "Case": 1, "RemoteCall": 1, "For": 2}


def connect(op: Operation, graph: FuncGraph) -> None:
    """Records the inputs of the owner `op` that the captures of `graph` represent.

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

    Callers are `ops` and the operations of the graphs that they own, but not operations of library functions.
    """
    for op in nested_operations(ops):
        if op.opdef.structured:
            for f in functions_of(op):
                if isinstance(f, Func):
                    yield op, f


def bodies(op: Operation) -> list[tuple[str, FuncGraph]]:
    """Returns (name, graph) for the graphs that a structured operation owns or calls.

    The graphs of a list attribute are called "name.0", "name.1".

    Raises:
      NotFoundError: the operation calls a function that the library does not have.
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
    """Returns the graph that the value `f` of a `func` attribute of `op` denotes."""
    if isinstance(f, FuncGraph):
        return f
    return op.graph.function(f.name, op)


def find_anywhere(graph: Graph, name: str) -> Operation | None:
    """Returns the operation called `name` in `graph` or a graph nested in it, or None."""
    graphs = itertools.chain([graph], (g for _, g in nested(graph.operations)))
    return next((op for g in graphs if (op := g.find(name)) is not None), None)


def recursive_functions(ops: Iterable[Operation]) -> frozenset[str]:
    """Returns the names of recursive functions among those that `ops` call, directly or not."""
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
    # A function without remaining callees or callers is not recursive. In most libraries no function remains.
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
