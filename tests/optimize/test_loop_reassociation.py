"""Factors that are known before a loop are multiplied first (sums: test_loops_text)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.loop_steps import PASSES, agree, transformed, untouched
from tests.optimize.test_loop_popped import YS, popping

_RULE = "loop_factors"


def regrouped(text: str) -> list[str]:
    """What was regrouped; a second time nothing is."""
    got, context = transformed(text, [PASSES[_RULE]])
    assert transformed(text, [PASSES[_RULE]] * 2)[0] == got
    assert got != transformed(text, [])[0] or not context.notes
    return [f"{n.op}: {n.text}" for n in context.notes]


def test_the_slope_of_a_gate_goes_first() -> None:
    text = popping("s = Sigmoid(y:1)\ndc = Mul(d, y:1)\ndy = SigmoidGrad(s, dc)")
    assert regrouped(text) == [
        "dy: multiplied by the derivative of Sigmoid",
        "dy_1: 3 of 4 factors are known before the loop, and multiplied first",
    ]
    got, _ = transformed(text, [PASSES[_RULE], PASSES["loop_fission"]])
    body = got.partition("body of loop")[2]
    assert body.count(" = Mul(") == 1, got
    assert "Sigmoid(" not in body
    agree(text, [PASSES[_RULE], PASSES["loop_fission"]], {"n": 4, "d": YS[0], "ys": YS}, ["loop:2"])


@pytest.mark.parametrize("type", ["Tanh", "Sigmoid"])
def test_a_slope_alone(type: str) -> None:
    text = popping(f"dy = {type}Grad(y:1, d)")
    assert regrouped(text) == [f"dy: multiplied by the derivative of {type}"]
    agree(text, [PASSES[_RULE]], {"n": 4, "d": YS[0], "ys": YS}, ["loop:2"])


@pytest.mark.parametrize(
    "work",
    [
        "dy = TanhGrad(d, y:1)",  # what is carried is the function's result
        "t = Tanh(y:1)\nu = Tanh(t)\ndy = TanhGrad(t, u)",  # all of it is known before
        "dy = SqrtGrad(y:1, d)",  # no slope that is bounded
        "a = Mul(d, y:1)\nb = Mul(d, a)\ndy = AddV2(a, b)",  # read twice
        "a = Mul(d, y:1)\ndy = Mul(a, d)",  # one known factor
        "a = Mul(y:1, s)\ndy = Mul(d, a)",  # they are first already
        "a = Mul(d, y:1)\ndy = Mul(a, s)",  # two that may be huge
        "a = Mul(d, s)\ndy = Mul(a, half)",  # nothing popped
        "t = Tanh(y:1)\na = Mul(d, t)\ndy = Mul(a, t)",  # one known factor, twice
        "t = Tanh(y:1)\nu = Sin(y:1)\na = Mul(t, u)\nb = Mul(a, half)\ndy = AddV2(d, b)",  # all are known
        "t = Tanh(y:1)\nu = Sin(y:1)\na = Mul(d, t)\ndy = Mul(a, u) ^next",
        "t = Tanh(y:1)\nu = Sin(y:1)\na = Mul(d, t)\nb = Mul(a, u)\ndy = AddV2(b, a)",  # a product within is read twice
        "t = Tanh(y:1)\np = Less(d, s)\nq = SelectV2(p, t, y:1)\na = Mul(d, s)\nb = Mul(a, d)\ndy = AddV2(q, b)",
        "u = Sin(d)\ndy = TanhGrad(u, d)",  # nothing is known before
        "dy = TanhGrad(y:1, d) ^next",
    ],
)
def test_what_stays(work: str) -> None:
    text = popping(f"half = Const[value=float32[]{{0.5}}, dtype=float32]\n{work}", "s: float32[2,3]")
    assert regrouped(text) == []


_TWO = "t = Tanh(y:1)\nu = Sin(y:1)"


@pytest.mark.parametrize(
    ("work", "more"),
    [
        (f"{_TWO}\na = Mul(d, t)\ndy = Mul(a, u)", "e: float32[2,3] -> a"),  # the product within is a result
        (f"{_TWO}\na = Mul(e, t)\ne1 = Mul(a, u)\ndy = Neg(d)", "e: float32<unknown> -> e1"),
        ("t = Tanh(y:1)\na = Mul(e, w)\nb = Mul(a, t)\ndy = AddV2(d, b)", "w: float32[1,3]\ne: float32[1,3] -> e"),
        ("e1 = TanhGrad(y:1, e)\ndy = Neg(d)", "e: float32[?,3] -> e1"),
    ],
)
def test_what_stays_by_its_shape_or_its_readers(work: str, more: str) -> None:
    if "-> e" in more and "e1" not in more:
        work, more = f"{work}\ne1 = Neg(e)", f"{more}1"
    assert regrouped(popping(work, more)) == []


def test_once_for_a_product_of_many_whoever_reads_it() -> None:
    text = popping(f"{_TWO}\nv = Cos(y:1)\na = Mul(d, t)\nb = Mul(a, u)\nc = Mul(b, v)\ndy = Tanh(c)")
    assert regrouped(text) == ["c: 3 of 4 factors are known before the loop, and multiplied first"]
    agree(text, [PASSES[_RULE]], {"n": 4, "d": YS[0], "ys": YS}, ["loop:2"])


def test_only_floats() -> None:
    """Of integers no bit would differ, but nothing that differentiates makes such loops."""
    text = popping("u = Neg(y:1)\na = AddV2(d, u)\ndy = AddV2(a, y:1)")
    notes = transformed(text, [PASSES["loop_sums"]])[1].notes
    assert [n.op for n in notes] == ["dy"]
    untouched("loop_sums", text.replace("float32", "int32"))


@pytest.mark.parametrize(
    ("made", "is_small"),
    [
        ("Tanh(y:1)", True),
        ("Exp(y:1)", False),
        ("Neg(y:1)", False),
        ("Neg(w)", True),
        ("AddV2(w, w)", False),  # up to 2
    ],
)
def test_all_but_one_must_be_small(made: str, is_small: bool) -> None:
    """1e30 * 1e30 * 1e-30 is 1e30, but there is no 1e30 * 1e30 in float32."""
    text = popping(f"w = Tanh(y:1)\nt = {made}\na = Mul(d, s)\ndy = Mul(a, t)", "s: float32[2,3]")
    assert bool(regrouped(text)) is is_small
    feeds = {"n": 1, "d": np.full((2, 3), 1e-30), "ys": YS, "s": np.full((2, 3), 1e30)}
    agree(text, [PASSES[_RULE]], feeds, ["loop:2"])


def test_not_in_half_precision() -> None:
    text = popping("t = Tanh(y:1)\na = Mul(d, s)\ndy = Mul(a, t)", "s: float32[2,3]")
    assert regrouped(text)
    assert not regrouped(text.replace("float32", "float16"))
    text = popping("dy = TanhGrad(y:1, d)")
    for type in "float16", "complex64":
        assert not regrouped(text.replace("float32", type))


def test_not_of_what_is_large() -> None:
    assert not regrouped(popping("dy = TanhGrad(y:1, d)", shape="5000"))
