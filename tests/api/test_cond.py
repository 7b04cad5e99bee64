"""`api.cond`: graphs of `cond`, `case` and `switch_case`, and their values in sessions."""

import dataclasses
import itertools
from collections import namedtuple

import numpy as np
import pytest

import headrace as hr
from headrace import nest
from headrace.api import scopes
from headrace.api.cond import case, cond, switch_case
from headrace.api.grouping import group, no_op
from headrace.api.tensor_array import TensorArray
from headrace.errors import InvalidArgumentError
from headrace.ir.graph import Graph, Operation
from tests.api.running import run

B = scopes.builder
Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class Record:
    first: object
    second: object


def names(graph):
    return [op.name for op in graph.operations]


def test_a_conditional_is_one_operation_with_two_graphs(g, p, x):
    y = cond(p, lambda: B().AddV2(x, 1.0), lambda: B().Mul(x, x))
    op = y.op
    assert (op.type, op.name) == ("StatelessIf", "cond")
    assert op.inputs == [p, x]
    yes, no = op.attrs["then_branch"], op.attrs["else_branch"]
    assert [len(f.params) for f in (yes, no)] == [1, 1]
    assert (yes.results[0].op.name, no.results[0].op.name) == ("cond/AddV2", "cond/Mul")
    assert (yes.name, no.name) == ("cond_true", "cond_false")
    assert yes.source.function == "<lambda>"
    assert yes.source.file == __file__
    assert names(g) == ["p", "x", "cond"]
    assert run(y, {p: True, x: 3.0}) == 4
    assert run(y, {p: False, x: 3.0}) == 9


def test_names_are_unique_in_the_whole_tree(g, p, x):
    first = cond(p, lambda: B().AddV2(x, 1.0, name="y"), lambda: B().AddV2(x, 2.0, name="y"))
    second = cond(p, lambda: x, lambda: x, name="cond")
    third = cond(p, lambda: x, lambda: x, name="mine")
    assert [t.op.name for t in (first, second, third)] == ["cond", "cond_1", "mine"]
    assert first.op.attrs["else_branch"].results[0].op.name == "cond/y_1"
    assert B().Identity(x, name="x").op.name == "x_1", "captures take no names"
    with scopes.name_scope("outer"):
        inner = cond(p, lambda: cond(p, lambda: B().Neg(x), lambda: x), lambda: x)
    assert inner.op.name == "outer/cond"
    nested = inner.op.attrs["then_branch"].results[0].op
    assert nested.name == "outer/cond/cond"
    assert nested.attrs["then_branch"].results[0].op.name == "outer/cond/cond/Neg"


def test_captures_of_both_branches_are_parameters_of_both(g, p, x):
    a, b, c = (B().Placeholder(dtype=hr.float32, shape=(), name=n) for n in "abc")
    y = cond(p, lambda: B().AddV2(a, b), lambda: B().AddV2(c, b))
    assert y.op.inputs == [p, a, b, c]
    assert [len(f.params) for f in (y.op.attrs["then_branch"], y.op.attrs["else_branch"])] == [3, 3]
    assert run(y, {p: False, a: 1, b: 10, c: 100}) == 110


def test_a_captured_constant_is_cloned_so_that_its_value_stays_known(g, p):
    k = B().const([2, 3])
    x = B().Placeholder(dtype=hr.float32, shape=None)
    y = cond(p, lambda: B().Reshape(x, k), lambda: B().Reshape(x, k))
    assert y.op.inputs == [p, x]
    assert y.shape == (2, 3)
    assert B().const(1).op.name == "Const_1"


STRUCTURES = [
    lambda t: t,
    lambda t: (t, t),
    lambda t: [t],
    lambda t: {"b": t, "a": (t, [t])},
    lambda t: Point(t, (t, t)),
    lambda t: Record(t, Point(t, None)),
    lambda t: (),
    lambda t: (t, 5, np.float32([1, 2]), None),
]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_results_have_the_structure_of_the_branches(g, p, x, structure):
    y = cond(p, lambda: structure(B().AddV2(x, 1.0)), lambda: structure(x))
    for pred in (True, False):
        want = structure(np.float32(3 + pred))
        got = run(nest.flatten(y), {p: pred, x: 3.0})
        for a, b in zip(got, nest.flatten(want), strict=True):
            np.testing.assert_array_equal(a, b)
        assert nest.mismatch(y, want) is None


def test_static_shapes_cover_both_branches(g, p):
    a = B().Placeholder(dtype=hr.float32, shape=(2, 3))
    b = B().Placeholder(dtype=hr.float32, shape=(4, 3))
    c = B().Placeholder(dtype=hr.float32, shape=())
    y = cond(p, lambda: (a, a, a), lambda: (a, b, c))
    assert [t.shape for t in y] == [(2, 3), (None, 3), None]


def test_a_python_bool_calls_its_branch(g, x):
    assert cond(True, lambda: "yes", lambda: "no") == "yes"
    assert cond(np.bool_(False), lambda: "yes", lambda: "no") == "no"
    assert names(g) == ["x"]


def test_what_is_stateful_in_a_branch_makes_it_stateful(g, p, x):
    assert cond(p, lambda: B().Neg(x), lambda: x).op.type == "StatelessIf"
    printed = cond(p, lambda: B().Print(x, [x]), lambda: x)
    assert printed.op.type == "If"
    assert [c.name for c in printed.op.attrs["then_branch"].control_results] == ["cond_1/Print"]
    outer = cond(p, lambda: cond(p, lambda: B().Print(x, [x]), lambda: x), lambda: x)
    assert outer.op.type == "If"
    assert [c.name for c in outer.op.attrs["then_branch"].control_results] == ["cond_2/cond"]


def test_in_an_unordered_graph_nothing_has_to_run():
    graph = Graph()
    with scopes.entered(scopes.Builder(graph)):
        x, p = B().Placeholder(dtype=hr.float32), B().Placeholder(dtype=hr.bool)
        y = cond(p, lambda: B().Print(x, [x]), lambda: x)
    branch = y.op.attrs["then_branch"]
    assert (branch.control_results, branch.is_ordered, branch.order) == ([], False, None)


def test_operations_and_none(g, p, x):
    y = cond(p, lambda: group(x), no_op)
    assert (y.dtype, y.shape) == (hr.bool, ())
    assert run(y, {p: True, x: 1})
    op = cond(p, lambda: None, lambda: None)
    assert isinstance(op, Operation)
    assert run(op, {p: False}) is None


def test_none_branches_run_for_what_they_do(capfd):
    """In TensorFlow 1's way of running, too, where nothing else would make them."""
    graph = Graph()
    with scopes.entered(scopes.Builder(graph)):
        p = B().Placeholder(dtype=hr.bool)

        def show():
            B().PrintV2(B().const("shown"), output_stream="stderr")

        op = cond(p, show, lambda: None)
    sess = hr.Session(graph=graph)
    sess.run(op, {p: False})
    assert "shown" not in capfd.readouterr().err
    sess.run(op, {p: True})
    assert "shown" in capfd.readouterr().err


def test_control_inputs_go_to_the_owner(g, p, x):
    before, inside = no_op("before"), no_op("inside")

    def branch():
        with scopes.control_dependencies([inside]):
            return B().Neg(x)

    with scopes.control_dependencies([before]):
        y = cond(p, branch, lambda: x)
    assert set(y.op.control_inputs) == {before, inside}
    assert y.op.attrs["then_branch"].results[0].op.control_inputs == []


def test_device_and_colocation_are_those_around(g, p, x):
    with scopes.device("/device:CPU:1"):
        y = cond(p, lambda: B().Neg(x), lambda: x)
    assert y.op.device == y.op.attrs["then_branch"].results[0].op.device == "/device:CPU:1"


def test_a_failing_branch_leaves_no_operation(g, p, x):
    made = names(g)

    def fails():
        B().Neg(x)
        raise ZeroDivisionError("the user's own")

    for branches in ((fails, lambda: x), (lambda: x, fails)):
        with pytest.raises(ZeroDivisionError, match=r"^the user's own\nin the (true|false) branch of 'cond") as e:
            cond(p, *branches)
        assert e.traceback[-1].name == "fails"
    assert names(g) == made
    assert scopes.current_graph() is g


def test_tensor_arrays_as_results(g, p):
    array = TensorArray(hr.float32, size=2)
    out = cond(p, lambda: array.write(0, [1.0, 2.0]).write(1, [3.0, 4.0]), lambda: array)
    assert isinstance(out, TensorArray)
    assert out.element_shape == (2,)
    np.testing.assert_array_equal(run(out.stack(), {p: True}), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(run(out.stack(), {p: False}), np.zeros((2, 2)))


def test_outside_a_graph_it_is_pythons_if():
    assert cond(np.array(True), lambda: 1, lambda: 2) == 1
    assert cond(np.array(False), lambda: 1, lambda: 2) == 2
    assert case([(np.array(False), lambda: 1), (np.array(True), lambda: 2)]) == 2
    assert case({np.bool_(False): lambda: 1}, default=lambda: 3) == 3
    with pytest.raises(InvalidArgumentError, match="None of conditions evaluated as True"):
        case([(np.array(False), lambda: 1)])
    with pytest.raises(InvalidArgumentError, match="More than one condition"):
        case([(np.array(True), lambda: 1)] * 2, exclusive=True)
    assert [switch_case(i, [lambda: "a", lambda: "b"], lambda: "c") for i in (0, 1, 2, -1)] == ["a", "b", "c", "c"]


def test_a_symbolic_predicate_finds_its_graph():
    graph = hr.Graph()
    with graph:
        q = B().Placeholder(dtype=hr.bool, shape=())
    y = cond(q, lambda: 1, lambda: 2)
    assert y.graph is graph
    assert hr.Session(graph=graph).run(y, {q: False}) == 2


# *** switch_case ***


@pytest.mark.parametrize(
    "branches",
    [
        [lambda: 10, lambda: 20],
        {1: lambda: 20, 0: lambda: 10},
        [(1, lambda: 20), (0, lambda: 10)],
    ],
)
@pytest.mark.parametrize("default", [None, lambda: 30])
def test_switch_case(g, branches, default):
    i = B().Placeholder(dtype=hr.int32, shape=())
    y = switch_case(i, branches, default)
    assert (y.op.type, y.op.name) == ("StatelessCase", "switch_case/indexed_case")
    last = 20 if default is None else 30
    for index, want in ((0, 10), (1, 20), (2, last), (-1, last), (99, last)):
        assert run(y, {i: index}) == want


def test_switch_case_captures(g, x):
    i = B().Placeholder(dtype=hr.int32, shape=())
    y = switch_case(i, [lambda: {"v": B().Neg(x)}, lambda: {"v": x}, lambda: {"v": B().Mul(x, x)}])
    assert [run(y["v"], {i: k, x: 3.0}) for k in range(3)] == [-3, 3, 9]


@pytest.mark.parametrize(
    ("branches", "error", "says"),
    [
        ({0: int, 3: int}, ValueError, r"contiguous range of \[0 to 2\) but found \{0,3\}"),
        ([], ValueError, "at least one branch"),
        (5, TypeError, "must be a dict, list, or tuple, got the number 5"),
        ([1, 2], TypeError, r"'branch_fns\[0\]' must be callable, got the number 1"),
        ({"a": int}, TypeError, "must be a Python int, got 'a'"),
    ],
)
def test_bad_branches(g, branches, error, says):
    with pytest.raises(error, match=says):
        switch_case(B().const(0), branches)


def test_the_index_is_an_int32_scalar(g, x):
    for bad in (x, B().const([1, 2])):
        with pytest.raises(TypeError, match=r"'branch_index' of 'switch_case.*' must be an int32 scalar, got"):
            switch_case(bad, [lambda: 1])


# *** case ***


@pytest.mark.parametrize("exclusive", [False, True])
def test_case(g, exclusive):
    i = B().Placeholder(dtype=hr.int32, shape=())
    pairs = [(B().Equal(i, k), lambda k=k: k * 10) for k in range(3)]
    y = case(pairs, default=lambda: -1, exclusive=exclusive)
    assert y.op.name in ("case/cond", "case/Identity")
    assert [run(y, {i: k}) for k in (0, 1, 2, 7)] == [0, 10, 20, -1]


def test_case_takes_the_first_that_holds(g):
    a, b = (B().Placeholder(dtype=hr.bool, shape=()) for _ in range(2))
    y = case([(a, lambda: 1), (b, lambda: 2)], default=lambda: 3)
    for p, q in itertools.product((True, False), repeat=2):
        assert run(y, {a: p, b: q}) == (1 if p else 2 if q else 3)


def test_case_checks_when_it_runs(g):
    a, b = (B().Placeholder(dtype=hr.bool, shape=()) for _ in range(2))
    some = case([(a, lambda: 1), (b, lambda: 2)])
    assert [run(some, {a: p, b: not p}) for p in (True, False)] == [1, 2]
    with pytest.raises(InvalidArgumentError, match="None of conditions evaluated as True"):
        run(some, {a: False, b: False})
    one = case([(a, lambda: 1), (b, lambda: 2)], default=lambda: 3, exclusive=True)
    assert run(one, {a: False, b: True}) == 2
    with pytest.raises(InvalidArgumentError, match="More than one condition evaluated as True"):
        run(one, {a: True, b: True})


@pytest.fixture
def flat(monkeypatch):
    """A case of two or more pairs is one choice.

    Otherwise only a case of many pairs is one.
    """
    monkeypatch.setattr("headrace.thresholds.NESTED_CASE_PAIRS", 0)


@pytest.mark.parametrize("exclusive", [False, True])
def test_case_of_many_pairs_is_one_operation(g, exclusive):
    i = B().Placeholder(dtype=hr.int32, shape=())
    y = case([(B().Equal(i, k), lambda k=k: k * 10) for k in range(105)], default=lambda: -1, exclusive=exclusive)
    assert sum(op.opdef.structured in ("If", "Case") for op in g.operations) == 1
    assert [run(y, {i: k}) for k in (0, 1, 104, 105)] == [0, 10, 1040, -1]


def test_case_of_many_pairs_takes_the_first_that_holds(g, flat):
    test_case_takes_the_first_that_holds(g)


def test_case_of_many_pairs_checks_when_it_runs(g, flat):
    test_case_checks_when_it_runs(g)


def test_case_of_many_pairs_with_predicates_of_python(g, flat):
    """A function whose predicate is False is not called, nor one behind a True."""
    a = B().Placeholder(dtype=hr.bool, shape=())
    y = case([(False, lambda: 1 / 0), (a, lambda: 2), (True, lambda: 3), (a, lambda: 1 / 0)], default=lambda: 1 / 0)
    assert (run(y, {a: True}), run(y, {a: False})) == (2, 3)
    assert case([(False, lambda: 1 / 0), (True, lambda: 3), (a, lambda: 1 / 0)], default=lambda: 4) == 3


def test_case_of_many_pairs_has_a_gradient(g, flat):
    x = B().Placeholder(dtype=hr.float32, shape=())
    y = case([(x < 0.0, lambda: x * x), (x < 1.0, lambda: 3.0 * x)], default=lambda: hr.sin(x))
    (dy,) = hr.gradients([y], [x])
    assert [run(dy, {x: v}) for v in (-2.0, 0.5)] == [-4.0, 3.0]
    np.testing.assert_allclose(run(dy, {x: 2.0}), np.cos(np.float32(2.0)))


@pytest.mark.matrix
def test_case_of_more_pairs_than_structures_nest(g):
    i = B().Placeholder(dtype=hr.int32, shape=())
    y = case([(B().Equal(i, k), lambda k=k: k * 10) for k in range(1200)], default=lambda: -1)
    assert [run(y, {i: k}) for k in (0, 1199, 1200)] == [0, 11990, -1]


def test_case_of_one_pair(g):
    a = B().Placeholder(dtype=hr.bool, shape=())
    y = case([(a, lambda: 5)])
    assert run(y, {a: True}) == 5
    with pytest.raises(InvalidArgumentError, match="None of conditions"):
        run(y, {a: False})


@pytest.mark.parametrize(
    ("pairs", "error", "says"),
    [
        ("text", TypeError, "must be a list, tuple, or dict"),
        ([], ValueError, "at least one"),
        ([int], TypeError, r"entry 0 of 'pred_fn_pairs' must be a tuple \(predicate, function\)"),
        ([(True, 3)], TypeError, "'fn of pair 0' must be callable"),
    ],
)
def test_bad_pairs(g, pairs, error, says):
    with pytest.raises(error, match=says):
        case(pairs)
