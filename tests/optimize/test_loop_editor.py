"""Queries of the passes on loops about a loop under change."""

from __future__ import annotations

import pytest

from headrace.ir.text import from_text
from headrace.optimize.base import PassContext
from headrace.optimize.loop_editor import LoopEditor, loops_of, names
from tests.optimize.loop_steps import loop_text

_BEFORE = """
zero = Const[value=int32[]{0}, dtype=int32]
n = Placeholder[dtype=int32, shape=[]]
x = Placeholder[dtype=float32, shape=[2]]
p = Placeholder[dtype=bool, shape=[]]
"""
_VARIABLES = "i: int32[], n: int32[], x: float32[2], y: float32[2], p: bool[]"
_COUNT = "i1 = AddV2(i, one)\n"


def made(results: str = "i1, n, x, y, p", body: str = "", **more: str) -> LoopEditor:
    """A loop with these lines in its body."""
    text = loop_text(_VARIABLES, "zero, n, x, x, p", results, _COUNT + body, before=_BEFORE, **more)
    (op,) = loops_of(from_text(text), PassContext())
    return LoopEditor(op, PassContext())


@pytest.mark.parametrize(
    ("body", "is_movable"),
    [
        ("a = Tanh(x)", True),
        ("s = Shape(x)\na = RandomUniform[dtype=float32](s)", False),
        ("a = Tanh(x) ^i1", False),
        ("a = Tanh(x)\nb = Tanh(y) ^a", False),
    ],
)
def test_what_may_move(body: str, is_movable: bool) -> None:
    loop = made(body=body)
    op = loop.body.get_operation_by_name("a")
    assert loop.is_movable(op) == is_movable


def test_what_runs_in_any_case_may_not_move() -> None:
    loop = made(body="a = Tanh(x)\nb = Tanh(y)\nc = Sin(y)")
    a, b, c = (loop.body.get_operation_by_name(n) for n in "abc")
    loop.body.control_results = [a]
    b.attrs["_class"] = (b"loc:@c",)
    assert [loop.is_free(op) for op in (a, b, c)] == [False, False, True]
    assert [loop.is_movable(op) for op in (a, b, c)] == [False, False, True]


@pytest.mark.parametrize(
    ("results", "body", "cond", "is_so"),
    [
        ("i1, n, x1, y, p", "x1 = Tanh(x)", "less = Less(i, n)", True),
        ("i1, n, x1, y, p", "x1 = Tanh(x)\nz = Sin(x)", "less = Less(i, n)", False),
        ("i1, n, x1, y, p", "x1 = Tanh(x)\nz = Sin(x1)", "less = Less(i, n)", False),
        ("i1, n, x1, y, p", "x1 = AddV2(x, x)", "less = Less(i, n)", False),
        ("i1, n, x1, x1, p", "x1 = Tanh(x)", "less = Less(i, n)", False),
        ("i1, n, x1, x, p", "x1 = Tanh(x)", "less = Less(i, n)", False),
        ("i1, n, x1, y, p", "x1 = Tanh(x)", "s = Size(x)\nless = Less(i, s)", False),
    ],
)
def test_what_nobody_wants_to_know_before_the_loop_ends(results: str, body: str, cond: str, is_so: bool) -> None:
    assert made(results, body, cond=cond).is_only_for_itself(2) == is_so


def test_what_the_condition_returns_is_wanted() -> None:
    body = "p1 = LogicalNot(p)"
    assert made("i1, n, x, y, p1", body).is_only_for_itself(4)
    assert not made("i1, n, x, y, p1", body, cond="q = LogicalAnd(p, p)").is_only_for_itself(4)
    loop = made("i1, n, x, y, p1", body)
    loop.cond.results = [loop.cond.params[4]]
    assert not loop.is_only_for_itself(4)


def test_what_stands_for_the_invariant_outside() -> None:
    loop = made(body="c = Const[value=float32[2]{1.0, 2.0}, dtype=float32]\na = AddV2(x, c)")
    c = loop.body.get_operation_by_name("c").outputs[0]
    copy = loop.outside(c)
    assert copy is loop.outside(c)
    assert copy.op.graph is loop.op.graph
    assert loop.outside(loop.body.params[2]) is loop.op.inputs[2]
    assert loop.constant(loop.op.inputs[2]) is loop.body.params[2]
    assert [loop.is_invariant(t) for t in (c, loop.body.params[2], loop.body.params[0])] == [True, True, False]


def test_a_variable_more() -> None:
    loop = made(body="a = Tanh(x)")
    outer = loop.outer
    param, out = loop.variable(loop.op.inputs[2], "more")
    assert outer.uses[loop.op.inputs[2]] == [(loop.op, 2), (loop.op, 3), (loop.op, 5)]
    value = loop.body.get_operation_by_name("a").outputs[0]
    loop.set_next(5, value)
    assert loop.body.results[5] is value
    loop.set_next(5, param)
    assert loop.is_constant(5)
    assert out.shape == (2,)
    loop.sweep()
    assert not any(op.type == "Tanh" for op in loop.body.operations)


def test_names() -> None:
    loop = made(body="a = Tanh(x)\nb = Tanh(a)\nc = Tanh(b)\nd = Tanh(c)\ne = Tanh(d)")
    ops = [op for op in loop.body.operations if op.type == "Tanh"]
    assert names(ops) == "a, b, c, d and 1 more"
    assert names(ops[:4]) == "a, b, c, d"


def test_where_an_operation_comes_from() -> None:
    loop = made(body="a = Tanh(x)")
    like = loop.body.get_operation_by_name("a")
    made_for = [loop.before(like).Neg(loop.op.inputs[2]).op, loop.within(like).Neg(loop.body.params[2]).op]
    assert [op.source for op in made_for] == [like.source] * 2
    assert like.source != loop.op.source
    like.source = ""
    made_for = [loop.before(like).Neg(loop.op.inputs[2]).op, loop.within(like).Neg(loop.body.params[2]).op]
    assert [op.source for op in made_for] == [loop.op.source] * 2


def test_a_variable_that_changes_stands_for_nothing() -> None:
    loop = made("i1, n, x1, y, p", "x1 = Tanh(x)")
    assert loop.constant(loop.op.inputs[2]) is loop.body.params[3]


def test_loops_that_share_their_graphs_with_others_are_left_out() -> None:
    text = """
    function "less" (i: int32[], n: int32[]) -> (less) {
      less = Less(i, n)
    }
    function "more" (i: int32[], n: int32[]) -> (next, n) {
      one = Const[value=int32[]{1}, dtype=int32]
      next = AddV2(i, one)
    }
    n = Placeholder[dtype=int32, shape=[]]
    loop = StatelessWhile[T=(int32, int32), cond=&"less", body=&"more"](n, n)
    """
    assert not list(loops_of(from_text(text), PassContext()))
