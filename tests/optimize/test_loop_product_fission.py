"""Products of parts that are known at different times are made sums of products."""

# ruff: noqa: E501 - a line of a graph is a line

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.optimize.loop_steps import PASSES, agree, loop_of, untouched

_VARIABLES = """
i: int32[] = zero -> i1
n: int32[]
h: float32[2,3] -> h1
w: float32[7,3]
u: float32[2,4]
k: int32[]
items: variant[] holds float32[2,4] = items
ys: variant[] holds float32[2,2] = list
"""
_BEFORE = """
xs = Placeholder[dtype=float32, shape=[5,2,4]]
wide = Const[value=int32[2]{2, 4}, dtype=int32]
any = Const[value=int32[]{-1}, dtype=int32]
items = TensorListFromTensor(xs, wide)
piece = Const[value=int32[2]{2, 2}, dtype=int32]
list = EmptyTensorList[element_dtype=float32](piece, any)
"""
_BODY = """
i1 = AddV2(i, one)
minus = Const[value=int32[]{-1}, dtype=int32]
shape = Const[value=int32[2]{2, 4}, dtype=int32]
begin = Const[value=int32[2]{0, 0}, dtype=int32]
column = Const[value=int32[2]{2, 1}, dtype=int32]
halves = Const[value=int32[2]{2, 2}, dtype=int32]
turn = Const[value=int32[2]{1, 0}, dtype=int32]
x = TensorListGetItem[element_dtype=float32](items, i, shape)
"""
_FEEDS = ("h", (2, 3)), ("u", (2, 4)), ("xs", (5, 2, 4))


def products(step: str, *more: str) -> str:
    """A loop that reads rows `x`, carries `h`, has constants, and fills a list.

    `more` are variables, changed or additional.
    """
    lines = _VARIABLES
    for each in more:
        name = each.split(":")[0]
        lines, found = re.subn(rf"(?m)^{name}:.*$", each, lines)
        lines += "" if found else each + "\n"
    step = step.replace(" | ", "\n")
    behind = "end = Identity(loop:2)\nall = TensorListStack[element_dtype=float32](loop:7, piece)"
    return loop_of(lines, _BODY + step, before=_BEFORE, behind=behind)


def changed(step: str, w: tuple[int, int], *more: str) -> tuple[list[str], int, int]:
    """Reports of the pass, and the numbers of products and splits left in the body.

    The results must be the same as without the pass.
    """
    rng = np.random.default_rng(1)
    feeds = {"n": 4, **{name: rng.standard_normal(shape) for name, shape in (*_FEEDS, ("w", w))}}
    text = products(step, f"w: float32[{w[0]},{w[1]}]", *more)
    got = agree(text, [PASSES["loop_products"]], feeds, ["end", "all"])
    return got.fired(), got.count("loop", "MatMul"), got.count("loop", "Split") + got.count("loop", "SplitV")


# *** of what is joined ***


@pytest.mark.parametrize(
    ("step", "w", "made"),
    [
        ("xh = ConcatV2(x, h, one) | xhw = MatMul(xh, w) | h1 = Tanh(xhw)", (7, 3), 2),
        ("xh = ConcatV2(x, h, minus) | xhw = MatMul(xh, w) | h1 = Tanh(xhw)", (7, 3), 2),
        ("xh = ConcatV2(x, h, one) | xhw = MatMul[transpose_b=true](xh, w) | h1 = Tanh(xhw)", (3, 7), 2),
        ("xh = ConcatV2(h, u, x, one) | xhw = MatMul(xh, w) | h1 = Tanh(xhw)", (11, 3), 2),
        ("xh = ConcatV2(u, h, one) | xhw = MatMul(xh, w) | h1 = Tanh(xhw)", (7, 3), 2),
        ("xh = ConcatV2(x, h, x, x, one) | xhw = MatMul(xh, w) | h1 = Tanh(xhw)", (15, 3), 3),
        ("xh = ConcatV2(x, h, one) | a = MatMul(xh, w) | b = MatMul(xh, w) | ab = Mul(a, b) | h1 = Tanh(ab)", (7, 3), 4),
    ],
)  # fmt: skip
def test_joined(step: str, w: tuple[int, int], made: int) -> None:
    fired, left, _ = changed(step, w)
    assert len(fired) == step.count("MatMul")
    assert all("products of the parts of 'xh', some of which are known before the loop" in each for each in fired)
    assert left == made


_JOINED = "uh = ConcatV2(u, h, one) | uhw = MatMul(uh, w) | h1 = Tanh(uhw)"


@pytest.mark.parametrize(
    ("step", "more", "why"),
    [
        ("xu = ConcatV2(x, u, one) | xuw = MatMul(xu, w) | z = AddV2(xuw, h) | h1 = Tanh(z)", "w: float32[8,3]", "none of its parts is loop-carried"),
        ("hh = ConcatV2(h, h, one) | z = MatMul(hh, w) | h1 = Tanh(z)", "w: float32[6,3]", "all its parts are loop-carried"),
        (_JOINED, "w: float32[?,3]", "the widths of its parts are unknown"),
        (_JOINED, "u: float32[2,?]", "the widths of its parts are unknown"),
        (_JOINED, "u: float32<unknown>", "the widths of its parts are unknown"),
        # not joined so, or not a loop constant
        (_JOINED.replace("(uh, w)", "(uh, w) ^i1"), "", ""),
        ("w1 = Neg(w) | " + _JOINED.replace("(uh, w)", "(uh, w1)"), "", ""),
        ("w1 = Neg(w) | " + _JOINED, "w: float32[7,3] -> w1", ""),
        (_JOINED, "w: float32<unknown>", ""),
        ("k1 = Neg(k) | " + _JOINED.replace("one", "k"), "k: int32[] -> k1", ""),
        (_JOINED.replace("one", "zero"), "u: float32[2,3]|h: float32[4,3] -> h1|w: float32[3,3]", ""),
        ("uh = ConcatV2(u, h, one) | uhw = MatMul[transpose_a=true](uh, w) | h1 = Tanh(h)", "w: float32[2,3]", ""),
        ("uh = AddV2(u, x) | uhw = MatMul(uh, w) | h1 = Tanh(uhw)", "w: float32[4,3]", ""),
        (_JOINED.replace("one) |", 'one) @"/device:CPU:1" |'), "", ""),
    ],
)  # fmt: skip
def test_what_is_not_split(step: str, more: str, why: str) -> None:
    if "one" not in step:
        step = step.replace("h1 = Tanh(uhw)", "h1 = Tanh(h)")
    untouched("loop_products", products(step, *more.split("|")) if more else products(step), *filter(None, [why]))


# *** that are cut ***

_CUT = "hw = MatMul(h, w) | ab = Split[num_split=2](one, hw) | "
_CUT_V = "hw = MatMul(h, w) | ab = SplitV[num_split=2](hw, halves, one) | "
_A = "c = Slice(ab, begin, column) | ac = ConcatV2(ab, c, one) | h1 = Tanh(ac)"
_PUSH = "push = TensorListPushBack[element_dtype=float32](ys, ab:1) | "
_YS = "ys: variant[] holds float32[2,2] = list -> push"


@pytest.mark.parametrize(
    ("step", "w"),
    [
        (_CUT + _A, (3, 4)),
        (_CUT.replace("one", "minus") + _A, (3, 4)),
        (_CUT_V + _A, (3, 4)),
        (_CUT.replace("MatMul", "MatMul[transpose_b=true]") + _A, (4, 3)),
        ("ht = Transpose(h, turn) | " + _CUT.replace("MatMul(h", "MatMul[transpose_a=true](ht") + _A, (3, 4)),
        (_CUT + _A.replace("ab,", "ab:1,"), (3, 4)),
    ],
)
def test_what_nobody_wants_is_not_computed(step: str, w: tuple[int, int]) -> None:
    fired, left, cuts = changed(step, w)
    assert fired == ["hw: 1 of 2 pieces without consumers, removed"]
    assert (left, cuts) == (1, 0)


def test_what_is_only_collected_is_computed_apart() -> None:
    fired, left, cuts = changed(_CUT + _PUSH + _A, (3, 4), _YS)
    assert fired == ["hw: the columns that are only collected have a separate product"]
    assert (left, cuts) == (2, 0)


@pytest.mark.parametrize(
    ("step", "more"),
    [
        ("hw = MatMul(h, w) | h1 = Neg(h)", ""),
        (_CUT + "h1 = Neg(h)", ""),
        (_CUT + _A, "r: float32[2,4] -> hw"),
        (_CUT + _A + " | t = Tanh(hw)", ""),
        ("hw = MatMul(h, w) | t = Tanh(hw) | h1 = Neg(h)", ""),
        (_CUT.replace("hw) |", "hw) ^i1 |") + _A, ""),
        (_CUT.replace("hw) |", 'hw) @"/device:CPU:1" |') + _A, ""),
        ("k1 = Neg(k) | " + _CUT.replace("one", "k") + "t = Neg(ab) | h1 = Neg(h)", "k: int32[] -> k1"),
        (_CUT.replace("one", "zero") + "t = Neg(ab) | h1 = Neg(h)", ""),
        (_CUT.replace("one", "zero") + "t = Neg(ab) | h1 = Neg(h)", "w: float32[3,0]"),
        ("s = Shape(h) | sizes = Mul(s, k) | " + _CUT_V.replace("halves", "sizes") + "t = Neg(ab) | h1 = Neg(h)", ""),
        (_CUT_V + _A, "w: float32[3,?]"),
        (_CUT + _A + " | t = Neg(ab:1)", ""),
        (_CUT + _PUSH + _A + " | t = Neg(ab:1)", _YS),
        (_CUT + _PUSH + _A, _YS + "|r: float32[2,2] -> ab:1"),
        (_CUT + _PUSH.replace("ab:1", "ab") + "h1 = Neg(h) | zs1 = TensorListPushBack[element_dtype=float32](zs, ab:1)",
         _YS + "|zs: variant[] holds float32[2,2] = list -> zs1"),
    ],
)  # fmt: skip
def test_what_is_not_cut(step: str, more: str) -> None:
    untouched("loop_products", products(step, "w: float32[3,4]", *filter(None, more.split("|"))))


# *** of constants, and sums ***


@pytest.mark.parametrize(
    ("step", "more"),
    [
        ("xh = ConcatV2(x, h, one) | xhc = MatMul(xh, cc) | h1 = Tanh(xhc)", "cc = Const[value=float32[7,3]{%s}, dtype=float32] | "),
        (_CUT.replace("(h, w)", "(h, cc)") + _A, "cc = Const[value=float32[3,4]{%s}, dtype=float32] | "),
    ],
)  # fmt: skip
def test_a_constant_is_a_fixed_factor(step: str, more: str) -> None:
    n = 21 if "7,3" in more else 12
    fired, left, _ = changed(more % ", ".join(str(i / 10) for i in range(n)) + step, (3, 4))
    assert len(fired) == 1
    assert left == (2 if n == 21 else 1)


_SUM = "k2 = Neg(h) | a = MatMul(h, w) | b = MatMul[transpose_b=true](k2, v) | hw = AddN[N=2](a, b) | "
_CUT_SUM = "ab = Split[num_split=2](one, hw) | "


@pytest.mark.parametrize("kind", ["AddN[N=2]", "AddV2"])
def test_a_sum_of_products_is_narrowed(kind: str) -> None:
    rng = np.random.default_rng(1)
    feeds = {"n": 4, "h": rng.standard_normal((2, 3)), "u": np.ones((2, 4)), "xs": np.ones((5, 2, 4))}
    feeds |= {"w": rng.standard_normal((3, 4)), "v": rng.standard_normal((4, 3))}
    text = products(_SUM.replace("AddN[N=2]", kind) + _CUT_SUM + _A, "w: float32[3,4]", "v: float32[4,3]")
    got = agree(text, [PASSES["loop_products"]], feeds, ["end", "all"])
    assert got.fired() == ["hw: 1 of 2 pieces without consumers, removed"]
    assert (got.count("loop", "MatMul"), got.count("loop", "Split"), got.count("loop", "AddN")) == (2, 0, 1)


@pytest.mark.parametrize(
    ("step", "more"),
    [
        (_SUM.replace("(a, b)", "(a, a)"), ""),
        (_SUM.replace("(a, b)", "(a, k)"), "k: float32[2,4]"),
        (_SUM + "c2 = Neg(a) | ", ""),
        (_SUM.replace("(h, w)", "(h, w) ^i1"), ""),
        (_SUM.replace("(a, b)", "(a, b) ^i1"), ""),
        (_SUM.replace("(h, w)", '(h, w) @"/device:CPU:1"'), ""),
        ("w1 = Neg(w) | " + _SUM, "w: float32[3,4] -> w1"),
        (_SUM, "r: float32[2,4] -> a"),
        (_SUM.replace("MatMul(h, w)", "MatMul(lone, w)").replace("AddN[N=2]", "AddV2"), "lone: float32[1,3]"),
    ],
)  # fmt: skip
def test_other_sums_stay(step: str, more: str) -> None:
    changes = ["v: float32[4,3]", *filter(None, [more])]
    if "w:" not in more:
        changes.append("w: float32[3,4]")
    untouched("loop_products", products(step + _CUT_SUM + _A, *changes))
