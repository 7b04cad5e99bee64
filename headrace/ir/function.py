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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

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


def owned(op: Operation) -> list[FuncGraph]:
    """The graphs that an operation owns; none if it is not structured."""
    return [f for f in functions_of(op) if isinstance(f, FuncGraph)] if op.opdef.structured else []


def with_owned(ops: Iterable[Operation]) -> Iterator[Operation]:
    """`ops`, then those of the graphs that they own, then those of the graphs in these, and so on."""
    todo = [ops]
    for some in todo:
        for op in some:
            yield op
            todo += [f.operations for f in owned(op)]


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
    todo = [graph]
    for g in todo:
        found = g.find(name)
        if found is not None:
            return found
        for op in g.operations:
            todo.extend(owned(op))
    return None


def recursive_functions(ops: Iterable[Operation]) -> frozenset[str]:
    """The names of the functions, among those that `ops` come to call, that come to call themselves."""
    calls: dict[str, set[str]] = {}

    pending: list[tuple[str, FuncGraph]] = []

    def callees(ops: Iterable[Operation]) -> set[str]:
        out: set[str] = set()
        todo = [ops]
        while todo:
            for op in todo.pop():
                for f in functions_of(op) if op.opdef.structured else ():
                    if isinstance(f, FuncGraph):
                        todo.append(f.operations)
                        continue
                    out.add(f.name)
                    if f.name not in calls:
                        calls[f.name] = set()
                        pending.append((f.name, op.graph.function(f.name, op)))
        return out

    callees(ops)
    while pending:
        name, graph = pending.pop()
        calls[name] = callees(graph.operations)
    called: dict[str, set[str]] = {name: set() for name in calls}
    for name, others in calls.items():
        for other in others:
            called[other].add(name)
    # who calls nobody that is left, or is called by nobody, calls not itself; of most libraries nothing is left
    for edges, back in ((calls, called), (called, calls)):
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
