"""Factors and terms that are known before a loop are combined first (test_loops_text)."""

# ruff: noqa: E501 - a line of a graph is a line

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.loop_steps import PASSES, Optimized, agree, transformed, untouched
from tests.optimize.test_loop_popped import YS, popping

_RULE = "loop_factors"


def regrouped(text: str) -> list[str]:
    """The notes of the rule, which has no effect a second time."""
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
        "dy = TanhGrad(d, y:1)",  # the carried value is the function's result
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
    """In float32, 1e30 * 1e30 overflows, although 1e30 * 1e30 * 1e-30 is 1e30."""
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


# *** sums of biases, and of pieces ***

_SUMS = "loop_sums"


def _summed(work: str, more: str = "", passes: tuple[str, ...] = (_SUMS,)) -> Optimized:
    """The optimized loop that pops `y`; its results are those of before."""
    feeds = {"n": 4, "d": YS[0], "ys": YS, "b": YS[1, 0], "c": YS[2, 0], "e": YS[1], "s": 0.5}
    text = popping(_ENDS + work, more)
    return agree(
        text, [PASSES[p] for p in passes], {n: v for n, v in feeds.items() if f"\n{n} = Pl" in text}, ["loop:2"]
    )


_ENDS = """last = Const[value=int32[]{1}, dtype=int32]
sizes = Const[value=int32[2]{1, 2}, dtype=int32]
"""
_B = "b: float32[3]"


def test_the_addition_of_a_bias_is_a_sum() -> None:
    made = _summed("a = AddV2(d, y:1)\nf = BiasAdd(a, b)\ndy = Tanh(f)", _B, (_SUMS, "loop_fission"))
    assert made.fired(_SUMS)[0] == "f: the addition of a bias is a sum"
    assert (made.count("loop", "AddV2"), made.count("loop", "BiasAdd")) == (2, 0)  # one of them counts


@pytest.mark.parametrize(
    ("work", "more"),
    [
        ('f = BiasAdd[data_format="NCHW"](d4, b)\ndy = Neg(d)', "b: float32[3]\nd4: float32[2,3,1,1] -> f"),
        ("f = BiasAdd(d2, b2)\ndy = Neg(d)", "b2: float32[?]\nd2: float32[2,?] -> f"),
        ("dy = BiasAdd(d, b) ^next", _B),
    ],
)
def test_a_bias_of_other_dimensions_stays(work: str, more: str) -> None:
    untouched(_SUMS, popping(work, more))


def test_invariant_terms_are_added_to_each_other() -> None:
    made = _summed("a = AddV2(d, b)\nt = AddV2(a, c)\ndy = Tanh(t)", f"{_B}\nc: float32[3]", (_SUMS, "loop_invariants"))
    assert made.fired(_SUMS) == ["t: 2 of 3 terms are known before the loop, and added first"]
    assert made.count("loop", "AddV2") == 2
    work = "a = AddV2(d, b)\nr = AddV2(a, y:1)\nt = AddV2(r, c)\ndy = Tanh(t)"
    made = _summed(work, f"{_B}\nc: float32[3]", (_SUMS, "loop_invariants", "loop_fission"))
    assert made.fired(_SUMS) == ["t: 3 of 4 terms are known before the loop, and added first"]
    assert made.count("loop", "AddV2") == 2


_PIECES = "a = AddV2(d, y:1)\nz = SplitV[num_split=2](a, sizes, last)\nf = AddV2(z:1, s)\n"
_JOIN = "dy = ConcatV2(z, f, last)"


@pytest.mark.parametrize(
    ("work", "more"),
    [
        (_PIECES + _JOIN, "s: float32[]"),
        (_PIECES.replace("(z:1, s)", "(s, z:1)") + _JOIN, "s: float32[]"),
        (_PIECES.replace("s)\n", "half)\n").replace("a =", "half = Const[value=float32[]{0.5}, dtype=float32]\na =") + _JOIN, ""),
        (_PIECES.replace("y:1", "b") + _JOIN, "s: float32[]\nb: float32[3]"),
        (_PIECES.replace("(z:1, s)", "(z:1, s)\ng = AddV2(z, s)") + "dy = ConcatV2(g, f, last)", "s: float32[]"),
    ],
)  # fmt: skip
def test_a_term_of_a_piece_is_added_before_the_split(work: str, more: str) -> None:
    made = _summed(work, more)
    count = 2 if "g = " in work else 1
    assert f"z: terms of {count} of its pieces are added before it" in made.fired()
    body = [op for op in made.graph.get_operation_by_name("loop").attrs["body"].operations if op.type == "AddV2"]
    assert not any(t.op.type == "SplitV" for op in body for t in op.inputs)


@pytest.mark.parametrize(
    ("work", "more"),
    [
        (_PIECES.replace("a = AddV2(d, y:1)", "a = Neg(d)") + _JOIN, "s: float32[]"),
        (_PIECES.replace("y:1", "d") + _JOIN, "s: float32[]"),
        (_PIECES + "dy = ConcatV2(z:1, f, last)", "s: float32[]"),
        (_PIECES + "u = Neg(s)\n" + _JOIN, "s: float32[] -> u"),
        (_PIECES + _JOIN, "s: float32[2,1]"),
        (_PIECES + _JOIN, "s: float32[2,2]"),
        (_PIECES.replace("s)\n", "s) ^next\n") + _JOIN, "s: float32[]"),
        (_PIECES.replace("last)\n", "last) ^next\n") + _JOIN, "s: float32[]"),
        (_PIECES + _JOIN, "s: float32[]\ne: float32[2,2] -> z:1"),
        (_PIECES.replace("sizes, last", "ones, first").replace("a =", "ones = Const[value=int32[2]{1, 1}, dtype=int32]\nfirst = Const[value=int32[]{0}, dtype=int32]\na =")
         + "dy = ConcatV2(z, f, first)", "s: float32[]"),
    ],
)  # fmt: skip
def test_other_terms_of_pieces_stay(work: str, more: str) -> None:
    text = popping(_ENDS + work, more)
    assert not [n for n in transformed(text, [PASSES[_SUMS]])[1].notes if "pieces" in n.text]
