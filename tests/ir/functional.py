"""Graphs with conditionals, loops and calls, made by hand, for tests of the graph layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from headrace import dtypes
from headrace.dtypes import DType
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.function import unify
from headrace.ir.graph import FuncGraph, Graph, Tensor
from headrace.ir.infer import infer_shapes
from headrace.shapes import Shape


def sub_graph(
    b: Builder,
    name: str,
    params: Sequence[tuple[str, DType, Shape]],
    make: Callable[..., Sequence[Any]],
    is_function: bool = False,
) -> FuncGraph:
    """A graph whose parameters are given to `make(builder, *parameters)`, which gives the results."""
    f = FuncGraph(name, b.graph, captures_from_outer=not is_function)
    given = [f.add_param(d, s, n) for n, d, s in params]
    inner = Builder(f, source=b.source)
    f.results = [inner.tensor(r) for r in make(inner, *given)]
    return f


def if_(b: Builder, p: Tensor, then: Callable[..., Any], other: Callable[..., Any], name: str = "cond") -> Any:
    """An `If` of two functions of a builder."""
    branches = [sub_graph(b, f"{name}_{side}", [], f) for side, f in (("true", then), ("false", other))]
    captured = unify(branches, 0)
    attrs = {
        "Tout": tuple(t.dtype for t in branches[0].results),
        "then_branch": branches[0],
        "else_branch": branches[1],
    }
    return b.make("If", [p, captured], attrs, name)


def case_(b: Builder, index: Tensor, branches: Sequence[Callable[..., Any]], name: str = "case") -> Any:
    """A `Case` of functions of a builder."""
    graphs = [sub_graph(b, f"{name}_{i}", [], f) for i, f in enumerate(branches)]
    captured = unify(graphs, 0)
    attrs = {"Tout": tuple(t.dtype for t in graphs[0].results), "branches": tuple(graphs)}
    return b.make("Case", [index, captured], attrs, name)


def while_(
    b: Builder,
    variables: Sequence[Tensor],
    cond: Callable[..., Any],
    body: Callable[..., Sequence[Any]],
    name: str = "while",
    shapes: Sequence[Shape] | None = None,
) -> Any:
    """A `While` of functions of a builder and the loop variables."""
    params = [(f"v{i}", t.dtype, t.shape if shapes is None else shapes[i]) for i, t in enumerate(variables)]
    c = sub_graph(b, f"{name}_cond", params, lambda b, *v: [cond(b, *v)])
    f = sub_graph(b, f"{name}_body", params, body)
    captured = unify([c, f], len(params))
    f.results += f.params[len(params) :]
    return b.make("While", [[*variables, *captured]], {"cond": c, "body": f}, name)


def call(b: Builder, name: str, args: Sequence[Tensor], types: Sequence[DType]) -> Any:
    """A call of a function by its name."""
    return b.make("PartitionedCall", [list(args)], {"Tout": tuple(types), "f": Func(name)}, name)


def program() -> Graph:
    """A graph with all of it.

    x [2], p, n → fetches "out:0" (a vector), "rows:1" (grows by a row a trip), "fact:0" (n!).
    """
    g = Graph()
    b = Builder(g)
    x = b.Placeholder(dtype=dtypes.float32, shape=(2,), name="x")
    p = b.Placeholder(dtype=dtypes.bool_, shape=(), name="p")
    n = b.Placeholder(dtype=dtypes.int32, shape=(), name="n")
    three = b.const(3.0, name="three")

    g.functions["square"] = sub_graph(
        b, "square", [("v", dtypes.float32, (2,))], lambda b, v: [b.Mul(v, v)], is_function=True
    )
    fact = FuncGraph("fact", g, captures_from_outer=False)
    k = fact.add_param(dtypes.int32, (), "k")
    inner = Builder(fact)
    fact.results = [
        if_(
            inner,
            inner.Less(k, 2),
            lambda b: [b.const(1)],
            lambda b: [b.Mul(k, call(b, "fact", [b.Sub(k, 1)], [dtypes.int32]))],
        )
    ]
    g.functions["fact"] = fact
    call(b, "fact", [n], [dtypes.int32])

    squared = call(b, "square", [x], [dtypes.float32])
    y = if_(b, p, lambda b: [b.Mul(squared, three)], lambda b: [b.Identity(x)])

    def body(b: Builder, i: Tensor, v: Tensor) -> Sequence[Any]:
        half = case_(b, b.Mod(i, 3), [lambda b: [b.Sub(v, 1.0)], lambda b: [b.Mul(v, y)], lambda b: [b.Identity(v)]])
        chosen = if_(b, b.Less(i, 2), lambda b: [b.AddV2(half, x)], lambda b: [half])
        return [b.AddV2(i, 1), chosen]

    found = while_(b, [b.const(0), y], lambda b, i, v: b.Less(i, n), body)
    b.Identity(found[1], name="out")

    start = b.Reshape(x, b.const([1, 2]))
    while_(
        b,
        [b.const(0), start],
        lambda b, i, v: b.Less(i, 2),
        lambda b, i, v: [b.AddV2(i, 1), b.ConcatV2([v, v], b.const(0))],
        name="rows",
        shapes=[(), (None, 2)],
    )
    return g


def counting() -> Graph:
    """A variable that a branch changes although no operation reads the branch's output.

    Fetch "after:0", target "init", feed p.
    """
    g = Graph()
    b = Builder(g)
    p = b.Placeholder(dtype=dtypes.bool_, shape=(), name="p")
    v = b.VarHandleOp(dtype=dtypes.float32, shape=(), name="v")
    b.AssignVariableOp(v, b.const(1.0), name="init")

    def then(b: Builder) -> Sequence[Any]:
        b.AssignAddVariableOp(v, b.const(2.0), name="add")
        return [b.const(1.0)]

    c = if_(b, p, then, lambda b: [b.const(0.0)])
    for f in (c.op.attrs["then_branch"], c.op.attrs["else_branch"]):
        f.control_results = [op for op in f.operations if op.type == "AssignAddVariableOp"]
        f.is_ordered = True
    dataclasses.replace(b, control_inputs=(c.op,)).ReadVariableOp(v, dtype=dtypes.float32, name="after")
    infer_shapes(g.find("after"))
    return g
