"""Sources of the values that a tensor had in all iterations of a loop.

Values that are already known are not kept again.
"""

# ruff: noqa: E501 - a line of a graph is a line

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.optimize.loop_steps import PASSES, Optimized, agree, loop_of, transformed

_VARIABLES = """
i: int32[] = zero -> i1
n: int32[]
d: float32[2,3] -> e
total: float32[4,3] -> more
items: variant[] holds float32[2,4] = items
"""
_CONSTANTS = """shape = Const[value=int32[2]{2, 4}, dtype=int32]
short = Const[value=int32[2]{2, 3}, dtype=int32]
five = Const[value=int32[]{5}, dtype=int32]
"""
_BEFORE = f"""{_CONSTANTS}
four = Const[value=int32[]{{4}}, dtype=int32]
any = Const[value=int32[]{{-1}}, dtype=int32]
xs = Placeholder[dtype=float32, shape=[5,2,4]]
six = Placeholder[dtype=float32, shape=[6,2,4]]
ys = Placeholder[dtype=float32, shape=[5,2,3]]
items = TensorListFromTensor(xs, shape)
large = TensorListFromTensor(six, shape)
places = Const[value=int32[5]{{1, 0, 2, 4, 3}}, dtype=int32]
scattered = TensorListScatterV2[element_dtype=float32](xs, places, shape, five)
free = Const[value=int32[2]{{-1, 4}}, dtype=int32]
loose = TensorListFromTensor(xs, free)
some = Placeholder[dtype=float32, shape=[?,2,4]]
unknown = TensorListFromTensor(some, shape)
reserved = TensorListReserve[element_dtype=float32](shape, five)
acc = TensorListFromTensor(ys, short)
acc_x = TensorListFromTensor(xs, shape)
empty = EmptyTensorList[element_dtype=float32](short, any)
"""
_READ = "x = TensorListGetItem[element_dtype=float32](items, i, shape) | "
_SUM = "p = MatMul[transpose_a=true](x, e) | more = AddV2(total, p)"
_FIVE = "less = Less(i, five)"
_FOUR = "four = Const[value=int32[]{4}, dtype=int32]\nless = LessEqual(i, four)"


def loop(step: str, more: str = "", cond: str = _FIVE) -> str:
    """A loop that adds up `p`, with `more` variables, changed or additional.

    In `more`, `step` and `cond`, `|` ends a line.
    """
    lines = _VARIABLES
    for each in filter(None, more.split("|")):
        name = each.split(":")[0]
        lines, found = re.subn(rf"(?m)^{name}:.*$", each, lines)
        lines += "" if found else each + "\n"
    begin = _CONSTANTS.replace("five = Const[value=int32[]{5}, dtype=int32]\n", "")
    body = f"{begin}i1 = AddV2(i, one)\ne = Tanh(d)\n{step}".replace(" | ", "\n")
    return loop_of(lines, body, cond=cond, before=_BEFORE, behind="end = Identity(loop:3)")


def kept(text: str, stays: bool = False, **given: int) -> tuple[Optimized, set[str]]:
    """Returns the optimized step and the names of the tensors that its loop keeps.

    The results must be the same as without the pass.
    """
    rng = np.random.default_rng(4)
    found = re.findall(r"(?m)^(\w+) = Placeholder\[dtype=float32, shape=\[(.*)\]\]", text)
    feeds = {n: rng.standard_normal([5 if d == "?" else int(d) for d in s.split(",") if d]) for n, s in found}
    ints = {n: given.get(n, 4) for n in re.findall(r"(?m)^(\w+) = Placeholder\[dtype=int", text)}
    got = agree(text, [PASSES["loop_accumulations"]], {**feeds, **ints}, ["end"])
    assert bool(got.fired()) == (not stays)
    names = {op.name for op in got.graph.operations if op.type == "EmptyTensorList"}
    return got, {n.removeprefix("loop/").removesuffix("_residuals") for n in names if n.endswith("_residuals")}


# *** rows ***


@pytest.mark.parametrize(
    ("step", "more", "cond"),
    [
        (_READ + _SUM, "", _FIVE),
        ("at = Sub(n, i) | " + _READ.replace("items, i,", "items, at,") + _SUM, "n: int32[] = four", "less = LessEqual(i, n)"),
        (_READ + "y = Mul(x, w) | " + _SUM.replace("(x,", "(y,"), "w: float32[4]", _FIVE),
        (_READ + "j1 = AddV2(j, one) | " + _SUM, "j: int32[] = zero -> j1", "a = Less(i, five)\nb = Less(j, five)\nless = LogicalAnd(a, b)"),
    ],
)  # fmt: skip
def test_what_was_there_before(step: str, more: str, cond: str) -> None:
    assert kept(loop(step, more, cond))[1] == {"e"}


def test_two_pieces_of_what_was_there_before() -> None:
    step = _READ + "y = Split[num_split=2](one, x) | " + _SUM.replace("(x, e)", "(y, y:1)")
    assert not kept(loop(step, "total: float32[2,2] -> more"))[1]


@pytest.mark.parametrize(
    ("step", "more", "cond"),
    [
        (_READ.replace("shape) |", "shape) ^i1 |") + _SUM, "", _FIVE),
        (_READ + _SUM, "items: variant[] holds float32[2,4] = large", _FIVE),
        (_READ + _SUM, "i: int32[] = one -> i1", _FIVE),
        (_READ.replace("items, i,", "items, k,") + "k1 = Neg(k) | " + _SUM, "k: int32[] = zero -> k1", _FIVE),
        (_READ + _SUM, "", "s = Const[value=int32[]{4}, dtype=int32]\nless = Less(i, s)"),
        (_READ + _SUM + " | c = Neg(c0) | set = TensorListSetItem[element_dtype=float32](items, zero, c)", "c0: float32[2,4]|items: variant[] holds float32[2,4] = items -> set", _FIVE),
        (_READ + _SUM, "items: variant[] holds float32[2,4] = reserved", _FIVE),
        (_READ + _SUM, "items: variant[] holds float32[2,4] = scattered", _FIVE),
        ("c = Neg(c0) | " + _READ.replace("x =", "it = TensorListSetItem[element_dtype=float32](items, zero, c) | x =").replace("](items, i", "](it, i") + _SUM,
         "c0: float32[2,4]", _FIVE),
        (_READ + "j1 = AddV2(j, one) | " + _SUM, "j: int32[] = zero -> j1", "a = Less(i, five)\nb = Less(j, two)\nless = LogicalAnd(a, b)"),
    ],
)  # fmt: skip
def test_other_rows_are_kept(step: str, more: str, cond: str) -> None:
    assert kept(loop(step, more, cond))[1] == {"x", "e"}


def test_rows_that_are_not_there_are_read_in_the_loop() -> None:
    text = loop(_READ + _SUM, "i: int32[] = one -> i1", "s = Const[value=int32[]{6}, dtype=int32]\nless = Less(i, s)")
    assert "loop/x_residuals = EmptyTensorList" in transformed(text, [PASSES["loop_accumulations"]])[0]


# *** values computed from rows ***


@pytest.mark.parametrize(
    ("step", "more", "names"),
    [
        ("y = Neg(x) ^i1 | " + _SUM.replace("(x,", "(y,"), "", {"y", "e"}),
        ("y = Neg(x) | u = Sin(y) | " + _SUM.replace("(x,", "(y,"), "", {"y", "e"}),
        ("y = Neg(x) | " + _SUM.replace("(x,", "(y,"), "last: float32[2,4] -> y", {"y", "e"}),
        ("y = Mul(x, k) | k1 = Neg(k) | " + _SUM.replace("(x,", "(y,"), "k: float32[] -> k1", {"y", "e"}),
        ("y = Mul(x, k) | " + _SUM.replace("(x,", "(y,"), "k: float32[]", {"e"}),
        ("y = Cumsum(x, zero) | " + _SUM.replace("(x,", "(y,"), "", {"y", "e"}),
        ("y = Neg(x) | z = Sin(y) | u = Cos(y) | zu = Mul(z, u) | " + _SUM.replace("(x,", "(zu,"), "", {"zu", "e"}),
        ("y = Neg(x) | z = Sin(y) | " + _SUM.replace("(x,", "(z,"), "", {"z", "e"}),
        (_SUM.replace("(x,", "(c,"), "c: float32[2,4] -> x", {"c", "e"}),
    ],
)  # fmt: skip
def test_what_is_computed(step: str, more: str, names: set[str]) -> None:
    assert kept(loop(_READ + step, more))[1] == names


# *** values that an earlier loop kept ***

_POP = "pop = TensorListPopBack[element_dtype=float32]{ResidualPop}(ax, shape) | "
_AX = "ax: variant[] holds float32[2,4] = acc_x -> pop:0"
_POPPED = _SUM.replace("(x,", "(pop:1,")


@pytest.mark.parametrize(
    ("step", "more", "names"),
    [
        (_POP + _POPPED, _AX, {"e"}),
        (_POP + "y = Tanh(pop:1) | " + _POPPED.replace("(pop:1,", "(y,"), _AX, {"e"}),
        (_POP.replace("{ResidualPop}", "") + _POPPED, _AX, {"pop", "e"}),
        (_POP + "again = TensorListPushBack[element_dtype=float32](pop, pop:1) | " + _POPPED, _AX.replace("pop:0", "again"), {"pop", "e"}),
        (_POP + _READ + "xx = Mul(x, pop:1) | " + _SUM.replace("(x,", "(xx,"), _AX, {"e"}),
    ],
)  # fmt: skip
def test_what_is_popped(step: str, more: str, names: set[str]) -> None:
    assert kept(loop(step, more))[1] == names


def test_what_is_put_into_a_list_is_no_list_of_the_values() -> None:
    put = "TensorListSetItem[element_dtype=float32, resize_if_index_out_of_bounds=true](places, two, e)"
    step = f"{_READ}set = {put} | {_SUM}"
    assert kept(loop(step, "places: variant[] holds float32[2,3] = empty -> set"))[1] == {"e"}


def test_rows_of_which_it_is_not_known_how_many_there_are() -> None:
    more = _AX + "|items: variant[] holds float32[2,4] = unknown"
    step = _POP + "t = MatMul[transpose_a=true](pop:1, e) | t1 = AddV2(s, t) | " + _READ + _SUM
    assert kept(loop(step, more + "|s: float32[4,3] -> t1", "less = Less(i, n)"), n=5)[1] == {"x", "e"}


def test_a_loop_of_which_nothing_is_known() -> None:
    more = _AX + "|b: bool[] -> b1|c: bool[] -> c1"
    step = _POP + "c1 = LogicalNot(c) | b1 = LogicalAnd(b, c1) | " + _READ + _SUM
    text = loop(step, more, "less = LogicalAnd(b, b)")
    got, context = transformed(text, [PASSES["loop_accumulations"]])
    assert any(n.fired for n in context.notes)
    assert "loop/x_residuals = EmptyTensorList" in got


def test_what_is_popped_of_several_shapes_is_not_put_together() -> None:
    step = "free = Const[value=int32[2]{-1, 4}, dtype=int32] | " + _POP.replace("shape)", "free)")
    step += "first = Const[value=int32[1]{0}, dtype=int32] | y = Sum[keep_dims=true](pop:1, first) | " + _SUM.replace(
        "(x,", "(y,"
    )
    more = "ax: variant[] holds float32[?,4] = loose -> pop:0|d: float32[1,3] -> e"
    assert kept(loop(step, more))[1] == {"y", "e"}


def test_values_that_lie_the_other_way_are_turned() -> None:
    got, _ = kept(loop(_POP + _POPPED, _AX))
    assert sum(op.type == "ReverseV2" for op in got.graph.operations) == 1
    both = "q = TensorListPopBack[element_dtype=float32]{ResidualPop}(bx, short) | "
    more = _AX + "|bx: variant[] holds float32[2,3] = acc -> q:0"
    got, names = kept(loop(_POP + both + _POPPED.replace("e)", "q:1)"), more))
    assert not names
    assert not any(op.type == "ReverseV2" for op in got.graph.operations)
    twice = (
        "s = Sum(pop:1, zero) | bias1 = AddV2(bias, s) | p2 = MatMul[transpose_a=true](pop:1, d) | t1 = AddV2(t, p2) | "
    )
    got, names = kept(loop(_POP + twice + _POPPED, _AX + "|bias: float32[4] -> bias1|t: float32[4,3] -> t1"))
    assert names == {"d", "e"}
    assert sum(op.type == "ReverseV2" for op in got.graph.operations) == 2


# *** values that the loop already keeps ***

_PUSH = "put = TensorListPushBack[element_dtype=float32](es, e) | "
_ES = "es: variant[] holds float32[2,3] = empty -> put"


@pytest.mark.parametrize(
    ("step", "more", "names"),
    [
        (_READ + _PUSH + _SUM, _ES, set()),
        (_READ + _PUSH + _SUM, _ES.replace("empty", "acc"), {"e"}),
        (_READ + _PUSH.replace("(es, e)", "(es, d)") + _SUM, _ES, {"e"}),
        (_READ + _PUSH + "two2 = TensorListPushBack[element_dtype=float32](put, e) | " + _SUM, _ES.replace("-> put", "-> two2"), {"e"}),
        (_READ + _PUSH.replace("(es, e)", "(fs, e)") + _SUM, _ES + "|fs: variant[] holds float32[2,3] = empty", {"e"}),
        (_READ + "set = TensorListSetItem[element_dtype=float32](es, i, e) | " + _SUM, _ES.replace("-> put", "-> set").replace("empty", "acc"), {"e"}),
        (_READ + "s = Sum(e, zero) | bias1 = AddV2(bias, s) | " + _SUM, "bias: float32[3] -> bias1", {"e"}),
    ],
)  # fmt: skip
def test_what_is_kept_already(step: str, more: str, names: set[str]) -> None:
    assert kept(loop(step, more))[1] == names


def test_what_is_kept_already_costs_nothing() -> None:
    step = "both = Const[value=int32[2]{0, 1}, dtype=int32] | p = Sum(e, both) | more = AddV2(total, p)"
    more = "d: float32[2000,3] -> e|total: float32[] -> more"
    kept(loop(step, more), stays=True)
    text = loop(_PUSH + step, more + "|" + _ES.replace("2,3", "2000,3"))
    assert not kept(
        text.replace("short = Const[value=int32[2]{2, 3}", "short = Const[value=int32[2]{2000, 3}").replace(
            "[5,2,3]", "[5,2000,3]"
        )
    )[1]


def test_what_is_kept_already_where_it_is_joined() -> None:
    wide = "d: float32[?,3] -> e|c: float32[?,4] -> c1"
    step = "c1 = Sin(c) | " + _SUM.replace("(x,", "(c,")
    assert kept(loop(step, wide))[1] == {"c", "e"}
    more = wide + "|cs: variant[] holds float32[?,4] = joins -> put"
    text = loop("put = TensorListPushBack[element_dtype=float32](cs, c) | " + step, more)
    text = text.replace("empty =", "joins = EmptyTensorList[element_dtype=float32](free, any)\nempty =")
    assert kept(text)[1] == {"e"}
