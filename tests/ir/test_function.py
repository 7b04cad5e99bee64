"""`ir.function`: walks over nested graphs, and the numbers of inputs and parameters."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest

import headrace as hr
from headrace import dtypes
from headrace.errors import NotFoundError
from headrace.ir.attr_values import Func
from headrace.ir.function import (
    bodies,
    called,
    called_names,
    find_anywhere,
    inside_out,
    known_function,
    nested,
    nested_operations,
    owned,
    owns_all,
    param_offset,
)
from headrace.ir.graph import FuncGraph, Graph, Operation

NAMES = ("f", "g", "h")
SEEDS = range(30)


def random_graph(seed: int) -> Graph:
    """A graph of calls and conditionals that own, share or name graphs, recursive ones too."""
    rng = random.Random(seed)
    root = Graph()
    made: list[FuncGraph] = []

    def fill(graph: Graph, depth: int) -> None:
        for i in range(rng.randint(0, 3)):
            graph.add_op("NoOp", f"n{i}")
        pred = graph.add_op("Placeholder", "pred", attrs={"dtype": dtypes.bool_}).outputs[0]
        for i in range(rng.randint(0, 3)):
            fs = [function(graph, depth), function(graph, depth)]
            if rng.random() < 0.5:
                graph.add_op("PartitionedCall", f"call{i}", [], {"Tin": (), "Tout": (), "f": fs[0]})
            else:
                attrs = {"Tcond": dtypes.bool_, "Tin": (), "Tout": (), "then_branch": fs[0], "else_branch": fs[1]}
                graph.add_op("If", f"if{i}", [pred], attrs)

    def function(graph: Graph, depth: int) -> Func | FuncGraph:
        if depth == 0 or rng.random() < 0.2:
            return Func(rng.choice(NAMES))
        if made and rng.random() < 0.2:
            return rng.choice(made)
        f = FuncGraph("owned", graph)
        fill(f, depth - 1)
        made.append(f)
        return f

    for name in NAMES:
        f = root.functions[name] = FuncGraph(name, root)
        fill(f, 2)
    fill(root, 4)
    return root


def naively(ops: Iterable[Operation], calls: bool, seen: set[FuncGraph]) -> Iterator[FuncGraph]:
    for op in ops:
        for f in [g for _, g in bodies(op)] if calls else owned(op):
            if f not in seen:
                seen.add(f)
                yield f
                yield from naively(f.operations, calls, seen)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("calls", [False, True])
def test_nested_graphs_are_those_of_a_recursion(seed: int, calls: bool) -> None:
    graph = random_graph(seed)
    found = list(nested(graph.operations, calls))
    graphs = [g for _, g in found]
    assert len(set(graphs)) == len(graphs)
    assert set(graphs) == set(naively(graph.operations, calls, set()))
    met: set[Graph] = {graph}
    for owner, g in found:
        assert owner.graph in met
        assert g in [f for _, f in bodies(owner)]
        met.add(g)
    ops = list(nested_operations(graph.operations, calls))
    assert ops[: len(graph)] == graph.operations
    assert ops == [*graph.operations, *(op for g in graphs for op in g.operations)]


@pytest.mark.parametrize("seed", SEEDS)
def test_graphs_inside_out_come_after_those_nested_in_them(seed: int) -> None:
    graph = random_graph(seed)
    order = list(inside_out(graph))
    assert order[-1] is graph
    assert len(set(order)) == len(order)
    assert set(order) == {graph, *naively(graph.operations, False, set())}
    at = {g: i for i, g in enumerate(order)}
    for g in order:
        assert all(at[f] < at[g] for op in g.operations for f in owned(op))


@pytest.mark.parametrize("seed", SEEDS)
def test_called_functions_are_those_named_in_nested_operations(seed: int) -> None:
    graph = random_graph(seed)
    expected = {
        (op, f)
        for g in (graph, *naively(graph.operations, False, set()))
        for op in g.operations
        for v in op.attrs.values()
        for f in (v if isinstance(v, tuple) else (v,))
        if isinstance(f, Func)
    }
    assert set(called(graph.operations)) == expected
    naming = {op for op, _ in expected}
    for op in graph.operations:
        assert owns_all(op) == (op not in naming)


def test_walks_do_not_recurse() -> None:
    root = Graph()
    graph: Graph = root
    for _ in range(900):
        f = FuncGraph("f", graph)
        graph.add_op("PartitionedCall", "call", [], {"Tin": (), "Tout": (), "f": f})
        graph = f
    graph.add_op("NoOp", "last")
    assert len(list(nested(root.operations))) == 900
    assert next(inside_out(root)) is graph
    found = find_anywhere(root, "last")
    assert found is not None
    assert found.graph is graph
    assert find_anywhere(root, "nothing") is None


def test_a_missing_function_is_an_error_only_where_calls_are_followed() -> None:
    graph = Graph()
    graph.add_op("PartitionedCall", "call", [], {"Tin": (), "Tout": (), "f": Func("missing")})
    assert list(nested(graph.operations)) == []
    with pytest.raises(NotFoundError, match="'missing' is not in the library"):
        list(nested(graph.operations, calls=True))


def test_an_input_and_its_parameter_differ_by_the_offset() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (), name="x")
        hr.cond(x > 0, lambda: x + 1, lambda: x - 1)
        hr.switch_case(hr.cast(x, hr.int32), [lambda: x, lambda: x * 2, lambda: -x])
        hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), (0, x))
        hr.Function(lambda a: a * 2)(x)
    kinds = set()
    for op in g.operations:
        for f in owned(op):
            kinds.add(op.opdef.structured)
            assert [t.dtype for t in op.inputs[param_offset(op) :]] == [p.dtype for p in f.params]
    assert {"If", "Case", "While"} <= kinds


def test_a_loop_over_a_range_passes_its_state_behind_its_limits() -> None:
    g = Graph()
    f = g.functions["f"] = FuncGraph("f", g)
    for name, dtype in (("i", dtypes.int32), ("v", dtypes.float32)):
        f.add_param(dtype, (), name)
    f.set_results(f.params[1:])
    ins = [g.add_op("Placeholder", n, attrs={"dtype": dtypes.int32}).outputs[0] for n in ("start", "limit", "delta")]
    v = g.add_op("Placeholder", "v", attrs={"dtype": dtypes.float32}).outputs[0]
    op = g.add_op("For", "for", [*ins, v], {"T": (dtypes.float32,), "body": Func("f")})
    assert op.inputs[1 + param_offset(op)] is v


def test_names_of_functions_are_those_in_attributes() -> None:
    g = Graph()
    f = FuncGraph("mine", g)
    attrs = {"Tcond": dtypes.bool_, "Tin": (), "Tout": (), "then_branch": Func("there"), "else_branch": f}
    pred = g.add_op("Placeholder", "pred", attrs={"dtype": dtypes.bool_})
    op = g.add_op("If", "if", pred.outputs, attrs)
    assert (called_names(op), called_names(pred)) == (["there"], [])
    assert not owns_all(op)


def test_a_known_function_is_looked_up_outwards_and_not_decoded() -> None:
    g = Graph()
    f = g.functions["f"] = FuncGraph("f", g)
    inner = FuncGraph("inner", FuncGraph("outer", g))
    assert known_function(inner, "f") is known_function(g, "f") is f
    assert known_function(inner, "g") is None
    assert known_function(None, "f") is None
