"""`api.grouping`: control dependencies of groups."""

import pytest

import headrace as hr
from headrace.api import grouping, scopes
from headrace.api.cond import cond

pytestmark = pytest.mark.usefixtures("g")

B = scopes.builder


def test_group():
    a, b = B().const(1), B().NoOp(name="b")
    both = grouping.group(a, [b, {"again": a}])
    assert (both.type, both.name, both.control_inputs) == ("NoOp", "group_deps", [a.op, b])
    assert grouping.group(a, name="mine").name == "mine"
    assert grouping.group().control_inputs == []
    with pytest.raises(TypeError, match="takes operations and tensors"):
        grouping.group(3)


def test_a_group_stands_where_all_of_it_does():
    with scopes.device("/device:CPU:1"):
        a, b = B().const(1), B().const(2)
    assert grouping.group(a, b).device == "/device:CPU:1"
    assert grouping.group(a, B().const(3)).device == ""


def test_tuple():
    a, b, c = B().const(1), B().NoOp(name="b"), B().NoOp(name="c")
    out = grouping.tuple([a, None, b], control_inputs=[c])
    assert out[1:] == [None, b]
    assert out[0].name == "tuple/control_dependency:0"
    (gate,) = out[0].op.control_inputs
    assert gate.control_inputs == [a.op, b, c]
    with pytest.raises(ValueError, match="at least one tensor"):
        grouping.tuple([None])


def test_with_dependencies(g):
    a, b = B().const(1), B().NoOp()
    out = grouping.with_dependencies([b], a, name="held")
    assert (out.op.type, out.op.name, out.op.control_inputs) == ("Identity", "held", [b])
    assert hr.Session(graph=g).run(out) == 1


def test_in_a_branch_the_owner_waits():
    p, outside = B().Placeholder(dtype=hr.bool, shape=()), B().NoOp(name="outside")
    y = cond(p, lambda: grouping.group(outside), grouping.no_op)
    assert y.op.control_inputs == [outside]


def test_outside_a_graph_all_is_done():
    token = scopes._stack.set(())
    try:
        assert grouping.group(1, 2) is grouping.no_op() is None
        assert grouping.tuple([1, 2]) == [1, 2]
        assert grouping.with_dependencies([1], 2) == 2
    finally:
        scopes._stack.reset(token)
