"""`ir.graph.FuncGraph`: parameters, results and control results."""

from __future__ import annotations

import pytest

from headrace import dtypes
from headrace.errors import GraphError
from headrace.ir.builder import Builder
from headrace.ir.edit.copying import copied
from headrace.ir.function import move_to, unify
from headrace.ir.graph import FuncGraph, Graph
from headrace.ir.order import Order, follow_order


def function(outer: Graph | None = None) -> FuncGraph:
    f = FuncGraph("f", Graph() if outer is None else outer)
    for name in "xyz":
        f.add_param(dtypes.float32, (2,), name)
    return f


def test_a_parameter_knows_the_contents_of_its_handle() -> None:
    p = FuncGraph("f", Graph()).add_param(dtypes.resource, (), "v", handle=(dtypes.float32, (3,)))
    assert (p.shape, p.handle) == ((), (dtypes.float32, (3,)))


def test_results_are_set_and_appended() -> None:
    f = function()
    x, y, z = f.params
    f.set_results((t for t in (x, y)), [x.op], is_ordered=True)
    assert (f.results, f.control_results, f.is_ordered) == ([x, y], [x.op], True)
    f.set_results([z])
    assert (f.results, f.control_results, f.is_ordered) == ([z], [x.op], True)
    f.add_results([x], [y.op])
    assert (f.results, f.control_results) == ([z, x], [x.op, y.op])
    f.set_control_results(())
    assert (f.results, f.control_results, f.is_ordered) == ([z, x], [], True)


def test_results_of_another_graph_are_refused() -> None:
    f, other = function(), function()
    x, strange = f.params[0], other.params[0]
    f.set_results([x])
    for change in (
        lambda: f.set_results([strange]),
        lambda: f.set_results([x], [strange.op]),
        lambda: f.add_results([x, strange]),
        lambda: f.add_results([], [strange.op]),
        lambda: f.set_control_results([strange.op]),
    ):
        with pytest.raises(GraphError, match=r"a result of 'f': 'x.*' belongs to another graph"):
            change()
    assert (f.results, f.control_results) == ([x], [])


def test_results_and_parameters_raise_the_version_of_the_graph_around() -> None:
    home = Graph()
    f = function(home)
    x, y, z = f.params
    for change in (
        lambda: f.set_results([x]),
        lambda: f.add_results([y]),
        lambda: f.set_control_results([z.op]),
        lambda: f.set_params([z, y, x]),
    ):
        before = home.version
        change()
        assert home.version > before


def test_parameters_are_renumbered_and_their_captures_forgotten() -> None:
    home = Graph()
    b = Builder(home)
    kept, gone = (b.Placeholder(dtype=dtypes.float32, name=n) for n in ("kept", "gone"))
    number = b.const(3, dtypes.int32, "number")
    f = FuncGraph("f", home)
    p, q, clone = f.capture(kept), f.capture(gone), f.capture(number)
    x = f.add_param(dtypes.float32, None, "x")
    f.set_params([x, p])
    assert f.params == [x, p]
    assert [t.op.attrs["index"] for t in f.params] == [0, 1]
    assert f.captures == {kept: p, number: clone}
    again = f.capture(gone)
    assert again is not q
    assert f.params == [x, p, again]


def test_new_numbers_of_parameters_are_not_those_of_a_copy() -> None:
    f = function()
    twin = copied(f, f.outer)
    f.set_params(f.params[::-1])
    assert [p.op.attrs["index"] for p in twin.params] == [0, 1, 2]


def test_unified_graphs_have_the_same_parameters() -> None:
    home = Graph()
    b = Builder(home)
    s, t = (b.Placeholder(dtype=dtypes.float32, name=n) for n in "st")
    f, g = function(home), function(home)
    f.capture(s)
    g.capture(t)
    g.capture(s)
    assert unify([f, g], 3) == [s, t]
    for graph in (f, g):
        assert graph.params[3:] == [graph.captures[s], graph.captures[t]]
        assert [p.op.attrs["index"] for p in graph.params] == list(range(5))


def test_a_described_parameter_agrees_with_its_operation() -> None:
    f = function()
    twin = copied(f, f.outer)
    p = f.params[1]
    f.describe_param(p, (None,), (dtypes.float32, ()))
    assert (p.shape, p.handle, p.op.attrs["shape"]) == ((None,), (dtypes.float32, ()), (None,))
    assert (twin.params[1].shape, twin.params[1].op.attrs["shape"]) == ((2,), (2,))


def test_levels_follow_a_graph_that_moves() -> None:
    root, around = Graph(), FuncGraph("around", FuncGraph("outermost", Graph()))
    f = FuncGraph("f", root)
    inner = FuncGraph("inner", f)
    f.add_op("PartitionedCall", "call", [], {"Tin": (), "Tout": (), "f": inner})
    assert (f.level, inner.level) == (0, 1)
    move_to(f, around)
    assert (f.outer, f.level, inner.level) == (around, 2, 3)
    move_to(f, root)
    assert (f.outer, f.level, inner.level) == (root, 0, 1)


def test_a_graph_follows_the_order_of_the_graph_around() -> None:
    ordered, free = Graph(), Graph()
    ordered.order = Order()
    f, g = function(ordered), function(free)
    follow_order(f, ordered)
    follow_order(g, free)
    assert (f.is_ordered, g.is_ordered, g.order) == (True, False, None)
    assert isinstance(f.order, Order)
    assert f.order is not ordered.order


def test_a_copy_forgets_its_captures_on_demand() -> None:
    home = Graph()
    t = Builder(home).Placeholder(dtype=dtypes.float32, name="t")
    f = FuncGraph("f", home)
    f.capture(t)
    assert list(copied(f, home).captures) == [t]
    bare = copied(f, home, captures=False)
    assert bare.captures == {}
    assert len(bare.params) == 1
