"""Values that a loop only adds up are computed after it."""

# ruff: noqa: E501 - a line of a graph is a line

from __future__ import annotations

import re

import numpy as np
import pytest

from headrace import thresholds
from headrace.optimize.loops import LOOP_PASSES
from tests.optimize.loop_steps import PASSES, Optimized, agree, close, loop_of, optimize, untouched
from tests.optimize.recurrent import Sizes, made

_RULE = "loop_accumulations"
_VARIABLES = """
i: int32[] = zero -> i1
n: int32[]
d: float32[2,4] -> e
total: float32[4,4] -> more
"""
_BODY = """i1 = AddV2(i, one)
e = Tanh(d)
sq = MatMul[transpose_a=true](d, e)
none = Const[value=int32[0]{}, dtype=int32]
first = Const[value=int32[1]{0}, dtype=int32]
last = Const[value=int32[1]{-1}, dtype=int32]
both = Const[value=int32[2]{0, 1}, dtype=int32]
"""
_FIVE = "less = Less(i, five)"
_ADD = "more = AddV2(total, p)"
_FIRED = "summed after the loop, for all iterations at once: "


def loop(step: str, more: str = "", cond: str = _FIVE, before: str = "", body: str = _BODY) -> str:
    """A loop with `more` variables, changed or additional.

    In `more`, `|` separates variables; in `step` it ends a line.
    """
    lines = _VARIABLES
    for each in filter(None, more.split("|")):
        name = each.split(":")[0]
        lines, found = re.subn(rf"(?m)^{name}:.*$", each, lines)
        lines += "" if found else each + "\n"
    return loop_of(lines, body + step.replace(" | ", "\n"), cond=cond, before=before, behind="end = Identity(loop:3)")


def same(text: str, **options: int) -> Optimized:
    """The graph after the pass, with the same results."""
    rng = np.random.default_rng(4)
    placeholders = re.findall(r"(?m)^(\w+) = Placeholder\[dtype=(float32|complex64), shape=\[(.*)\]\]", text)
    feeds = {n: rng.standard_normal([3 if d == "?" else int(d) for d in s.split(",") if d]) for n, _, s in placeholders}
    given = dict.fromkeys(re.findall(r"(?m)^(\w+) = Placeholder\[dtype=int", text), 4)
    return agree(text, [PASSES[_RULE]], {**feeds, **given}, ["end"], **options)


_U = "d: float32[?,4] -> e"


_FIRST = f"""
side = Const[value=int32[2]{{4, 4}}, dtype=int32]
naught = Const[value=float32[]{{0.0}}, dtype=float32]
unit = Const[value=float32[]{{1.0}}, dtype=float32]
nothing = Fill(side, naught)
ones = Fill(side, unit)
eye = Const[value=float32[4,4]{{{", ".join("1.0" if k % 5 == 0 else "0.0" for k in range(16))}}}, dtype=float32]
"""


@pytest.mark.parametrize(
    ("step", "more"),
    [
        ("p = MatMul[transpose_a=true](d, e) | " + _ADD, ""),
        ("p = MatMul[transpose_a=true](d, e) | " + _ADD.replace("AddV2", "Add"), ""),
        ("p = MatMul[transpose_a=true](d, e) | " + _ADD.replace("total, p", "p, total"), ""),
        ("p = MatMul[transpose_b=true](d, e) | " + _ADD, "total: float32[2,2] -> more"),
        ("p = MatMul(d, sq) | " + _ADD, "total: float32[2,4] -> more"),
        ("p = MatMul[transpose_a=true, transpose_b=true](d, r) | r1 = Sin(r) | " + _ADD, "total: float32[4,3] -> more|r: float32[3,2] -> r1"),
        ("g = Sin(f) | p = BatchMatMulV2[adj_x=true](f, g) | f1 = Cos(f) | " + _ADD, "total: float32[3,4,4] -> more|f: float32[3,2,4] -> f1"),
        ("f1 = Cos(f) | p = BatchMatMulV2[adj_y=true](f, f1) | " + _ADD, "total: float32[3,2,2] -> more|f: float32[3,2,4] -> f1"),
        ("f1 = Cos(f) | turn = Const[value=int32[3]{0, 2, 1}, dtype=int32] | g = Transpose(f1, turn) | p = BatchMatMulV2(f, g) | " + _ADD, "total: float32[3,2,2] -> more|f: float32[3,2,4] -> f1"),
        ("p = Sum(e, first) | " + _ADD, "total: float32[4] -> more"),
        ("p = Sum(e, last) | " + _ADD, "total: float32[2] -> more"),
        ("p = Sum(e, both) | " + _ADD, "total: float32[] -> more"),
        ("p = Sum(e, none) | " + _ADD, "total: float32[2,4] -> more"),
        ("s = Sum(e, both) | p = Sum(s, none) | s1 = Neg(s) | " + _ADD, "total: float32[] -> more|s0: float32[] -> s1"),
        ("p = Sum[keep_dims=true](e, last) | " + _ADD, "total: float32[2,1] -> more"),
        ("p = BiasAddGrad(e) | " + _ADD, "total: float32[4] -> more"),
        ("p = BiasAddGrad(r) | r1 = Sin(r) | " + _ADD, "total: float32[4] -> more|r: float32[2,3,1,4] -> r1"),
        ("p = MatMul[transpose_a=true](d, e) | " + _ADD, "total: float32[4,4] = nothing -> more"),
        ("p = MatMul[transpose_a=true](d, e) | " + _ADD, "total: float32[4,4] = ones -> more"),
        ("p = MatMul[transpose_a=true](d, e) | " + _ADD, "total: float32[4,4] = eye -> more"),
        # joined, where it is not known how many rows there are
        ("p = MatMul[transpose_a=true](d, e) | " + _ADD, _U),
        ("p = Sum(e, first) | " + _ADD, _U + "|total: float32[4] -> more"),
        ("p = Sum[keep_dims=true](e, first) | " + _ADD, _U + "|total: float32[1,4] -> more"),
        ("p = Sum(e, both) | " + _ADD, _U + "|total: float32[] -> more"),
        ("p = BiasAddGrad(e) | " + _ADD, _U + "|total: float32[4] -> more"),
        # little enough to be kept for a number
        ("p = Sum(r, both) | r1 = Sin(r) | " + _ADD, "total: float32[] -> more|r: float32[10,400] -> r1"),
    ],
)  # fmt: skip
def test_a_sum(step: str, more: str) -> None:
    got = same(loop(step, more, before=_FIRST))
    assert got.fired() == [f"loop: {_FIRED}p"]
    assert not any(op.name == "p" for op in got.graph.get_operation_by_name("loop").attrs["body"].operations)
    (end,) = (op for op in got.graph.operations if op.type == "_Retval")
    assert (end.inputs[0].op.inputs[0].op.type == "AddN") == ("nothing" not in more)


def test_the_complex() -> None:
    body = _BODY.replace("e = Tanh(d)", "e = Mul(d, d)")
    more = "d: complex64[2,4] -> e|total: complex64[4,4] -> more"
    assert same(loop("p = MatMul[transpose_a=true](d, e) | " + _ADD, more, body=body)).fired()


def test_some_terms_stay() -> None:
    step = "p = MatMul[transpose_a=true](d, e) | q = Tanh(sq) | s = Sum(r, first) | r1 = Sin(r) | more = AddN[N=4](p, total, q, s)"
    got = same(loop(step, "r: float32[2,4,4] -> r1"))
    assert got.fired() == [f"loop: {_FIRED}p, s"]
    (add,) = (op for op in got.graph.get_operation_by_name("loop").attrs["body"].operations if op.type == "AddN")
    assert len(add.inputs) == 2


def test_several_sums() -> None:
    step = "p = MatMul[transpose_a=true](d, e) | s = Sum(e, first) | bias1 = AddV2(bias, s) | " + _ADD
    got = same(loop(step, "bias: float32[4] -> bias1"))
    assert got.fired() == [f"loop: {_FIRED}p, s"]


def test_what_is_kept_for_another_costs_nothing() -> None:
    big, small = "p = MatMul[transpose_b=true](d, e) | " + _ADD, "s = Sum(e, both) | sum1 = AddV2(sum, s) | "
    wide, more = "d: float32[1200,4] -> e", "|sum: float32[] -> sum1"
    got = same(loop(small + big, wide + "|total: float32[1200,1200] -> more" + more))
    assert got.fired() == [f"loop: {_FIRED}p, s"]
    why = "each iteration would keep 19200 bytes for a sum of 4 bytes"
    untouched(_RULE, loop(small + "more = Neg(total)", wide + more), why)


_P = "p = MatMul[transpose_a=true](d, e) | "


@pytest.mark.parametrize(
    ("step", "more", "cond"),
    [
        (_P + "more = Sub(total, p)", "", _FIVE),
        (_P + _ADD + " ^i1", "", _FIVE),
        (_P.replace(" |", " ^i1 |") + _ADD, "", _FIVE),
        (_P + _ADD + " | q = Neg(p)", "", _FIVE),
        (_P + _ADD, "q: float32[4,4] -> p", _FIVE),
        (_P + _ADD + " | q = Neg(total)", "", _FIVE),
        (_P + _ADD, "total: float32[?,4] -> more", _FIVE),
        ("p = Sum(e, first) | " + _ADD, "", _FIVE),
        ("p = MatMul[transpose_a=true](w, e) | " + _ADD, "w: float32[2,4]", _FIVE),
        ("p = Max(e, first) | " + _ADD, "total: float32[4] -> more", _FIVE),
        ("k1 = Neg(k) | p = Sum[keep_dims=true](e, k) | " + _ADD, "total: float32[?,?] -> more|k: int32[1] -> k1", _FIVE),
        ("p = BiasAddGrad[data_format=\"NCHW\"](r) | r1 = Sin(r) | " + _ADD, "total: float32[4] -> more|r: float32[2,4,4,4] -> r1", _FIVE),
        ("j1 = AddV2(j, j) | p = MatMul[transpose_a=true](j, j1) | " + _ADD, "j: int32[2,4] -> j1|total: int32[4,4] -> more", _FIVE),
    ],
)  # fmt: skip
def test_what_is_no_such_sum(step: str, more: str, cond: str) -> None:
    untouched(_RULE, loop(step, more, cond))


_SHAPE = "the shapes of the residuals are unknown"


@pytest.mark.parametrize(
    ("step", "more", "cond", "why"),
    [
        ("p = MatMul(d, sq) | " + _ADD, _U + "|total: float32[?,4] -> more", _FIVE, _SHAPE),
        ("p = MatMul[transpose_a=true, transpose_b=true](d, r) | r1 = Sin(r) | " + _ADD, "total: float32[4,?] -> more|r: float32[?,2] -> r1", _FIVE, _SHAPE),
        ("p = MatMul[transpose_a=true](r, e) | r1 = Sin(r) | " + _ADD, _U + "|total: float32[?,4] -> more|r: float32[2,?] -> r1", _FIVE, _SHAPE),
        ("p = MatMul[transpose_a=true](r, e) | r1 = Sin(r) | " + _ADD, "total: float32[?,4] -> more|r: float32<unknown> -> r1", _FIVE, _SHAPE),
        ("p = Sum(e, last) | " + _ADD, _U + "|total: float32[?] -> more", _FIVE, _SHAPE),
        ("p = Sum(r, first) | r1 = Sin(r) | " + _ADD, "total: float32[?] -> more|r: float32[?,?] -> r1", _FIVE, _SHAPE),
        ("p = MatMul[transpose_a=true](d, e) | " + _ADD, "d: float32[2,0] -> e|total: float32[0,0] -> more", _FIVE, "its operands have no elements"),
        (_P + _ADD, "", "less = Less(i, n)", "the trip count is unknown, and the loop keeps no residuals of this size yet"),
        (_P + _ADD, "", "less = Less(i, one)", "its trip count is at most 1"),
    ],
)  # fmt: skip
def test_what_stays_in_the_loop(step: str, more: str, cond: str, why: str) -> None:
    untouched(_RULE, loop(step, more, cond), why)


def test_no_more_than_is_allowed() -> None:
    untouched(_RULE, loop(_P + _ADD), "5 values of 32 bytes exceed the limit of 159 bytes", stack_bytes=159)
    assert same(loop(_P + _ADD), stack_bytes=160).fired()
    assert same(loop(_P + _ADD, _U), stack_bytes=1).fired()


@pytest.mark.parametrize("name", ["concat_split", "state_first", "turned", "rnn_concat"])
@pytest.mark.parametrize(("width", "products"), [(thresholds.PRODUCT_PART, 2), (thresholds.PRODUCT_PART - 1, 1)])
def test_parts_of_a_joined_operand_are_multiplied_one_by_one(name: str, width: int, products: int) -> None:
    step = made(name, "feeds", True, Sizes(2, 4, width, 8))
    graph, _ = step.optimized()
    assert sum(op.type == "MatMul" and op.attrs["transpose_a"] for op in graph.operations) == products
    feeds, fed = list(step.feeds), list(step.feeds.values())
    passes = optimize(feeds, step.fetches, LOOP_PASSES)
    close(passes.run(fed), optimize(feeds, step.fetches, ()).run(fed), 1e-6)
