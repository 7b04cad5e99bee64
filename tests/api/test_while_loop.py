"""`api.while_loop`: the operation that it makes, and what loops give when they run."""

import dataclasses
from collections import namedtuple

import numpy as np
import pytest

import headrace as hr
from headrace import nest
from headrace.api import scopes
from headrace.api.cond import cond
from headrace.api.tensor_array import TensorArray
from headrace.api.while_loop import while_loop
from headrace.ir.notes import NoBackProp, SwapMemory
from headrace.ir.order import is_constant
from tests.api.running import run

B = scopes.builder
State = namedtuple("State", "n total")


@dataclasses.dataclass
class Record:
    value: object
    rest: object


def below(n):
    return lambda i, *_: B().Less(i, n)


def plus(x, y):
    return B().AddV2(x, y)


def test_a_loop_is_one_operation_with_two_graphs(g):
    n = B().Placeholder(dtype=hr.int32, shape=(), name="n")
    i, total = while_loop(lambda i, s: B().Less(i, n), lambda i, s: (plus(i, 1), plus(s, i)), (0, 0))
    op = i.op
    assert (op.type, op.name) == ("StatelessWhile", "while")
    assert [t.op.name for t in op.inputs] == ["while/Const", "while/Const_1", "n"]
    assert len(op.outputs) == 3, "the loop constant comes out, too"
    body, condition = op.attrs["body"], op.attrs["cond"]
    assert len(body.params) == len(body.results) == len(condition.params) == 3
    assert [is_constant(body, k) for k in range(3)] == [False, False, True]
    assert condition.results[0].op.name == "while/Less"
    assert [t.op.name for t in body.results[:2]] == ["while/AddV2", "while/AddV2_1"]
    assert [t.op.name for t in body.params] == ["arg.i", "arg.s", "arg.n"]
    assert (condition.name, body.name) == ("while_cond", "while_body")
    assert op.attrs["parallel_iterations"] == 10
    for trips in (0, 1, 10):
        assert run([i, total], {n: trips}) == [trips, sum(range(trips))]


def test_attributes(g):
    a = while_loop(below(3), lambda i: plus(i, 1), [0], parallel_iterations=3, back_prop=False, swap_memory=True)[0]
    assert a.op.attrs["parallel_iterations"] == 3
    assert set(a.op.notes) == {NoBackProp(), SwapMemory()}
    b = while_loop(below(3), lambda i: plus(i, 1), [0], name="mine")[0]
    assert b.op.name == "mine"
    assert not b.op.notes


@pytest.mark.parametrize(
    ("loop_vars", "body"),
    [
        ([0, 1.0], lambda i, x: (plus(i, 1), plus(x, x))),
        ((0, {"a": 1.0, "b": (2, 3)}), lambda i, d: [plus(i, 1), {"b": d["b"], "a": plus(d["a"], 1.0)}]),
        (State(0, 5), lambda n, total: State(plus(n, 1), plus(total, n))),
        ((0, Record(1, State(2, None))), lambda i, r: (plus(i, 1), Record(r.rest.n, State(plus(i, i), None)))),
        ((0, None, [1]), lambda i, none, xs: (plus(i, 1), None, [plus(xs[0], i)])),
        ([0], lambda i: plus(i, 1)),
        ([0], lambda i: [plus(i, 1)]),
        ((0, np.float32([1, 2])), lambda i, v: (plus(i, 1), v)),
    ],
)
def test_results_have_the_structure_of_the_variables(g, loop_vars, body):
    got = while_loop(below(3), body, loop_vars)
    assert type(got) is type(loop_vars)
    assert nest.mismatch(list(loop_vars), list(got)) is None
    values = run(nest.flatten(got))
    assert values[0] == 3


def test_a_single_variable(g):
    i = while_loop(below(3), lambda i: plus(i, 1), B().const(0))
    assert isinstance(i, hr.SymbolicTensor)
    d = while_loop(lambda d: B().Less(d["i"], 3), lambda d: {"i": plus(d["i"], 1)}, {"i": 0})
    s = while_loop(lambda s: B().Less(s[0], 3), lambda s: (plus(s[0], 1), s[1]), [(0, 1)])
    one = while_loop(below(3), lambda i: plus(i, 1), [0], return_same_structure=False)
    assert isinstance(one, hr.SymbolicTensor)
    assert run([i, d["i"], s[0][0], one]) == [3, 3, 3, 3]


@pytest.mark.parametrize(("limit", "want"), [(0, 0), (2, 2), (99, 5)])
def test_maximum_iterations(g, limit, want):
    fed = B().Placeholder(dtype=hr.int64, shape=())
    i = while_loop(below(5), lambda i: plus(i, 1), [0], maximum_iterations=limit)
    j = while_loop(below(5), lambda i: plus(i, 1), [0], maximum_iterations=fed)
    always = while_loop(lambda i: True, lambda i: plus(i, 1), [0], maximum_iterations=limit)
    assert [t.op.name for t in i[0].op.inputs[:2]] == ["while/iteration_counter", "while/Const"]
    assert g.find("while/maximum_iterations") is not None
    assert i[0].op.attrs["cond"].results[0].op.type == "LogicalAnd"
    assert run([i[0], j[0], always[0]], {fed: limit}) == [want, want, limit]


def test_nested_loops_and_conditionals(g):
    x = B().Placeholder(dtype=hr.int32, shape=(), name="x")

    def outer(i, s):
        _, t = while_loop(lambda j, t: B().Less(j, i), lambda j, t: (plus(j, 1), plus(t, x)), (0, 0))
        odd = B().Equal(B().FloorMod(i, 2), 1)
        return plus(i, 1), plus(s, cond(odd, lambda: t, lambda: B().Neg(t)))

    _, s = while_loop(below(6), outer, (0, 0))
    want = sum(i * 7 * (1 if i % 2 else -1) for i in range(6))
    assert run(s, {x: 7}) == want
    body = s.op.attrs["body"]
    assert {op.name for op in body.operations} >= {"while/while", "while/cond", "while/Equal"}
    inner = body.find("while/while").attrs["body"]
    assert [op.name for op in inner.operations if op.type == "AddV2"] == ["while/while/AddV2", "while/while/AddV2_1"]


def test_shape_invariants(g):
    def double(i, v):
        return plus(i, 1), B().ConcatV2([v, v], 0)

    start = B().const([[1.0, 2.0]])
    _, v = while_loop(below(3), double, (0, start), shape_invariants=((), (None, 2)))
    assert v.shape == (None, 2)
    assert run(v).shape == (8, 2)
    _, w = while_loop(below(3), double, [0, start], shape_invariants=[(), None])
    assert w.shape is None
    seen = []

    def test(i, r):
        seen.append(r["v"].shape)
        return B().Less(i, 3)

    _, r = while_loop(
        test,
        lambda i, r: (plus(i, 1), {"v": seen.append(r["v"].shape) or B().ConcatV2([r["v"], r["v"]], 0)}),
        (0, {"v": start}),
        shape_invariants=((), {"v": (None, None)}),
    )
    assert seen == [(None, None)] * 2, "both graphs see what holds in all iterations"
    assert run(r["v"]).shape == (8, 2)


def test_a_shape_like_object_is_an_invariant(g):
    class Dimension:
        value = None

    class ShapeLike:
        dims = (Dimension(),)

    v = while_loop(
        lambda v: B().Less(B().Size(v), 5),
        lambda v: B().ConcatV2([v, v], 0),
        [B().const([1.0])],
        shape_invariants=[ShapeLike()],
    )
    assert v[0].shape == (None,)
    assert run(v[0]).shape == (8,)


def test_a_shape_may_become_better_known(g):
    x = B().Placeholder(dtype=hr.float32, shape=(None,))
    v = while_loop(lambda v: B().Less(B().Size(v), 0), lambda v: B().Reshape(v, [2]), [x])
    assert v[0].shape == (None,)


def test_tensor_arrays_as_variables(g):
    def body(i, a):
        return plus(i, 1), a.write(i, B().Pack([i, i]))

    _, a = while_loop(below(3), body, (0, TensorArray(hr.int32, size=3)))
    assert isinstance(a, TensorArray)
    assert a.element_shape == (2,)
    rows = a.stack()
    assert rows.shape == (3, 2)
    np.testing.assert_array_equal(run(rows), [[0, 0], [1, 1], [2, 2]])


def test_loop_constants_and_swaps(g):
    x = B().Placeholder(dtype=hr.int32, shape=())
    _, a, b, c = while_loop(below(3), lambda i, a, b, c: (plus(i, 1), b, a, c), (0, 1, x, x))
    assert is_constant(a.op.attrs["body"], 3)
    assert not is_constant(a.op.attrs["body"], 1)
    assert run([a, b, c], {x: 5}) == [5, 1, 5]


def test_a_body_may_return_what_is_outside(g):
    x = B().Placeholder(dtype=hr.int32, shape=())
    _, y = while_loop(below(3), lambda i, y: (plus(i, 1), x), (0, -1))
    assert run(y, {x: 9}) == 9
    _, k = while_loop(below(3), lambda i, k: (plus(i, 1), 4), (0, -1))
    assert run(k) == 4


@pytest.mark.parametrize("parallel", [1, 2, 10])
def test_what_changes_something_does_so_in_order(g, parallel, capfd):
    def body(i):
        text = B().StringFormat([i], template="row {}", placeholder="{}")
        B().PrintV2(text, output_stream="stderr")
        return plus(i, 1)

    i = while_loop(below(4), body, [0], parallel_iterations=parallel)
    assert i[0].op.type == "While"
    assert [op.type for op in i[0].op.attrs["body"].control_results] == ["PrintV2"]
    run(i[0])
    assert capfd.readouterr().err.split("\n")[:-1] == [f"row {k}" for k in range(4)]


def test_a_failing_body_leaves_no_loop(g):
    def fails(i):
        raise ZeroDivisionError("the user's own")

    with pytest.raises(ZeroDivisionError, match=r"^the user's own\nin the body of loop 'while'"):
        while_loop(below(3), fails, [0])
    assert all(op.type == "Const" for op in g.operations)


def test_outside_a_graph_it_is_pythons_while():
    i, s = while_loop(lambda i, s: B().Less(i, 4), lambda i, s: (plus(i, 1), plus(s, i)), (0, 0))
    assert (int(i), int(s)) == (4, 6)
    got = while_loop(lambda i: B().Less(i, 9), lambda i: plus(i, 1), [0], maximum_iterations=2)
    assert int(got[0]) == 2
    with pytest.raises(ValueError, match="returned 1 value"):
        while_loop(lambda i, s: B().Less(i, 4), lambda i, s: (plus(i, 1),), (0, 0))


def test_building_is_not_quadratic(g):
    """A long body is walked a bounded number of times.

    A loop of a thousand ops takes well under a second.
    """
    import time

    def body(x):
        for _ in range(1000):
            x = B().Neg(x)
        return x

    t = time.perf_counter()
    while_loop(lambda x: B().Less(x, 1.0), body, [0.0])
    assert time.perf_counter() - t < 2
