"""Values that a loop only collects are computed after it."""

# ruff: noqa: E501 - a line of a graph is a line

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.optimize.loop_steps import PASSES, Optimized, agree, loop_of, transformed, untouched

_RULE = "loop_collections"


def loop(variables: str, body: str, more: str = "", **rest: str) -> str:
    """A loop with `more` variables, changed or additional.

    In `more` and `body`, `|` ends a line.
    """
    lines = variables
    for each in filter(None, more.split("|")):
        name = each.split(":")[0]
        lines, found = re.subn(rf"(?m)^{name}:.*$", each, lines)
        lines += "" if found else each + "\n"
    return loop_of(lines, _CONSTANTS + body.replace(" | ", "\n"), **rest)


def same(text: str, **options: int) -> Optimized:
    """The graph after the pass, with the same results."""
    rng = np.random.default_rng(4)
    feeds = {
        n: rng.standard_normal([5 if d == "?" else int(d) for d in shape.split(",") if d]) for n, shape in _floats(text)
    }
    given = {n: 4 if n in ("n", "last") else 1 for n in re.findall(r"(?m)^(\w+) = Placeholder\[dtype=int", text)}
    return agree(text, [PASSES[_RULE]], {**feeds, **given}, ["all"], **options)


def _floats(text: str) -> list[tuple[str, str]]:
    return re.findall(r"(?m)^(\w+) = Placeholder\[dtype=float32, shape=\[(.*)\]\]", text)


_CONSTANTS = """shape = Const[value=int32[2]{2, 4}, dtype=int32]
short = Const[value=int32[2]{2, 3}, dtype=int32]
"""
_BEFORE = f"""{_CONSTANTS}
five = Const[value=int32[]{{5}}, dtype=int32]
four = Const[value=int32[]{{4}}, dtype=int32]
any = Const[value=int32[]{{-1}}, dtype=int32]
xs = Placeholder[dtype=float32, shape=[5,2,4]]
unknown = Placeholder[dtype=float32, shape=[?,2,4]]
filled = TensorListFromTensor(xs, shape)
long = TensorListFromTensor(unknown, shape)
empty = EmptyTensorList[element_dtype=float32](shape, any)
places = TensorListReserve[element_dtype=float32](shape, five)
unsure = TensorListReserve[element_dtype=float32](shape, n)
zeros = ZerosLike(filled)
"""
_STACK = "all = TensorListStack[element_dtype=float32](loop:4, shape)"

# *** values that are put into a list ***

_COLLECTED = """
i: int32[] = zero -> i1
n: int32[]
h: float32[2,3] -> h1
v: float32[3,4]
"""
_PUSHED = "ys: variant[] holds float32[2,4] = empty -> put"
_SET = "ys: variant[] holds float32[2,4] = places -> put"
_PUSH = "put = TensorListPushBack[element_dtype=float32](ys, y)"
_PUT = "put = TensorListSetItem[element_dtype=float32](ys, i, y)"
_Y = "i1 = AddV2(i, one) | h1 = Tanh(h) | y = MatMul(h1, v) | "
_FIVE = "less = Less(i, five)"


def collected(body: str, more: str, cond: str = _FIVE, behind: str = _STACK) -> str:
    return loop(_COLLECTED, body, more, cond=cond, before=_BEFORE, behind=behind)


@pytest.mark.parametrize(
    ("body", "more", "cond", "what"),
    [
        (_Y + _PUSH, _PUSHED, _FIVE, "'y'"),
        (_Y + _PUSH, _PUSHED, "less = Less(i, n)", "'y'"),
        (_Y + _PUT, _SET, _FIVE, "'y'"),
        (_Y + "a = Sin(y) | b = Neg(y) | c = Mul(a, b) | " + _PUSH.replace(", y)", ", c)"), _PUSHED, _FIVE, "'c', 'b', 'a', 'y'"),
        (_Y + "a = Sin(y) | " + _PUSH.replace(", y)", ", a)"), _PUSHED, _FIVE, "'a', 'y'"),
        (_Y + "c = AddV2(y, u) | " + _PUSH.replace(", y)", ", c)"), _PUSHED + "|u: float32[2,4]", _FIVE, "'c', 'y'"),
    ],
)  # fmt: skip
def test_what_is_computed_for_a_list_alone(body: str, more: str, cond: str, what: str) -> None:
    got = same(collected(body, more, cond))
    assert got.fired() == [f"loop: computed after the loop, for all iterations at once: {what}"]
    assert got.count("loop", "MatMul") == 0
    (end,) = (op for op in got.graph.operations if op.type == "_Retval")
    assert end.inputs[0].op.type != "TensorListStack"  # a consumer that stacks the values reads the rows


def test_little_is_kept_of_large_constants() -> None:
    more = "h: float32[2,100] -> h1|v: float32[100,50]|" + _PUSHED.replace("2,4", "2,50")
    text = collected(_Y + _PUSH, more).replace("int32[2]{2, 4}", "int32[2]{2, 50}").replace("2,4", "2,50")
    assert same(text).fired()


def test_a_part_of_which_the_shape_is_not_known_is_done_in_the_loop() -> None:
    body = "i1 = AddV2(i, one) | h1 = Tanh(h) | s = Sum(h1, zero) | y = MatMul(s, v) | " + _PUSH
    got = same(collected(body, "h: float32[?,2,3] -> h1|" + _PUSHED))
    assert got.fired()
    assert got.count("loop", "Sum") == 1
    got = same(collected(body, "h: float32[5,2,3] -> h1|" + _PUSHED))
    assert got.count("loop", "Sum") == 0


_STACKED = "b = TensorListStack[element_dtype=float32, num_elements={}](loop:4, shape)\nall = Identity(b)"


@pytest.mark.parametrize(
    ("count", "cond", "stays"),
    [(5, _FIVE, False), (-1, _FIVE, False), (4, _FIVE, True), (4, "less = Less(i, n)", True)],
)
def test_who_stacks_another_number_of_values(count: int, cond: str, stays: bool) -> None:
    text = collected(_Y + _PUSH, _PUSHED, cond, _STACKED.format(count))
    got, _ = transformed(text, [PASSES[_RULE]])
    assert ("all = Identity(b)" in got) == stays
    assert ("all = Identity(y/rows)" in got) == (not stays)


def test_who_asks_something_else_of_the_list() -> None:
    got = same(
        collected(_Y + _PUSH, _PUSHED, behind="all = TensorListGather[element_dtype=float32](loop:4, short, shape)")
    )
    assert got.graph.get_operation_by_name("all").inputs[0].op.type == "TensorListFromTensor"


@pytest.mark.parametrize(
    ("body", "more"),
    [
        # another consumer reads the value, or a control edge fixes its order
        (_Y + _PUSH + " ^h1", _PUSHED),
        (_Y + _PUSH + " | s = TensorListLength(ys)", _PUSHED),
        (_Y.replace("(h1, v)", "(h1, v) ^i1") + _PUSH, _PUSHED),
        (_Y + _PUSH + " | z = Neg(y)", _PUSHED),
        (_Y + _PUSH, _PUSHED + "|z: float32[2,4] -> y"),
        # another list, or another place
        (_Y + "put = TensorListPopBack[element_dtype=float32](ys, shape)", "ys: variant[] holds float32[2,4] = filled -> put:0"),
        (_Y + "put = TensorListResize(ys, five)", "ys: variant[] holds float32[2,4] = filled -> put"),
        (_Y + _PUSH, "ys: variant[] = empty -> put"),
        (_Y + _PUT.replace("](", ", resize_if_index_out_of_bounds=true]("), _SET),
        (_Y + "at = Mul(i, two) | " + _PUT.replace("i,", "at,"), _SET),
        (_Y + "zs = ZerosLike(ys) | " + _PUT.replace("(ys", "(zs"), _SET),
        # nothing is gained
        (_Y.replace("MatMul(h1, v)", "AddV2(h1, v)") + _PUSH, _PUSHED + "|h: float32[2,4] -> h1|v: float32[2,4]"),
        (_Y.replace("h1, v", "w, v") + _PUSH, _PUSHED + "|w: float32[2,3]"),
    ],
)  # fmt: skip
def test_what_is_not_done_behind_the_loop(body: str, more: str) -> None:
    untouched(_RULE, collected(body, more))


_SURE = "the loop is not known to set every element of the list"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (collected(_Y + _PUSH, _PUSHED.replace("empty", "filled")), "the list has elements before the loop"),
        (collected(_Y + _PUT, _SET.replace("places", "filled")), _SURE),
        (collected(_Y + _PUT, _SET.replace("places", "empty")), _SURE),
        (collected(_Y + _PUT, _SET, "less = Less(i, n)"), _SURE),
        (collected(_Y + _PUT, _SET.replace("places", "unsure"), "less = Less(i, n)"), _SURE),
        (collected(_Y + _PUT, _SET, "four = Const[value=int32[]{4}, dtype=int32]\nless = Less(i, four)"), _SURE),
        (collected(_Y + _PUT, _SET + "|i: int32[] = one -> i1", "s = Const[value=int32[]{6}, dtype=int32]\nless = Less(i, s)"), _SURE),
        (collected(_Y + _PUT, _SET + "|i: int32[] -> i1"), _SURE),
        (collected(_Y + _PUSH, _PUSHED.replace("2,4", "2,1") + "|h: float32[2,100] -> h1|v: float32[100,1]").replace("{2, 4}", "{2, 1}").replace("2,4", "2,1"),
         "each iteration would keep 800 bytes for a result of 8 bytes"),
    ],
)  # fmt: skip
def test_why_it_is_not_done_behind_the_loop(text: str, why: str) -> None:
    untouched(_RULE, text, why)


def test_no_more_than_is_allowed() -> None:
    untouched(
        _RULE, collected(_Y + _PUSH, _PUSHED), "5 values of 32 bytes exceed the limit of 159 bytes", stack_bytes=159
    )
    wide = collected(_Y + _PUSH, _PUSHED + "|h: float32[2,9] -> h1|v: float32[9,4]")
    untouched(_RULE, wide, "5 values of 72 bytes exceed the limit of 359 bytes", stack_bytes=359)
    assert same(wide, stack_bytes=360).fired()


# *** values that are added to a list ***

_ADDED = """
i: int32[] = zero -> i1
last: int32[]
h: float32[2,4] -> h1
zs: variant[] holds float32[2,4] = zeros
acc: variant[] holds float32[2,4] = zeros -> sum
"""
_H = "i1 = AddV2(i, one) | h1 = Tanh(h) | "
_DOWN = _H + "at = Sub(last, i) | "
_SUM = "set = TensorListSetItem[element_dtype=float32](zs, at, h1) | sum = AddN[N=2](acc, set)"
_SUM_UP = _SUM.replace("(zs, at", "(zs, i")
_LAST = "less = LessEqual(i, last)"


def added(body: str, more: str = "", cond: str = _FIVE, before: str = "") -> str:
    return loop(_ADDED, body, more, cond=cond, before=_BEFORE.replace("unsure", "# unsure") + before, behind=_STACK)


_LIKE_LONG = "zl = ZerosLike(long)"
_LONG = "zs: variant[] holds float32[2,4] = zl|acc: variant[] holds float32[2,4] = zl -> sum"


@pytest.mark.parametrize(
    ("body", "more", "cond", "before", "made"),
    [
        (_H + _SUM_UP, "", _FIVE, "", "TensorListFromTensor"),
        (_H + _SUM_UP.replace("(acc, set)", "(set, acc)"), "", _FIVE, "", "TensorListFromTensor"),
        (_DOWN + _SUM, "last: int32[] = four", _LAST, "", "TensorListFromTensor"),
        (_DOWN + _SUM, "last: int32[] = five|i: int32[] = one -> i1", _LAST, "", "TensorListFromTensor"),
        (_DOWN + _SUM, "last: int32[] = four|i: int32[] = one -> i1", _LAST, "", "TensorListScatterIntoExistingList"),
        (_H + _SUM_UP, "i: int32[] = one -> i1", _FIVE, "", "TensorListScatterIntoExistingList"),
        (_H + _SUM_UP, "i: int32[] -> i1", _FIVE, "", "TensorListScatterIntoExistingList"),
        (_H + _SUM_UP, "i: int32[] = one -> i1", "s = Const[value=int32[]{4}, dtype=int32]\nless = Less(i, s)", "", "TensorListScatterIntoExistingList"),
        (_H + _SUM_UP, "", "less = Less(i, last)", "", "TensorListScatterIntoExistingList"),
        (_DOWN + _SUM, "", _LAST, "", "TensorListScatterIntoExistingList"),
        (_H + _SUM_UP, _LONG, _FIVE, _LIKE_LONG, "TensorListScatterIntoExistingList"),
        (_H + _SUM_UP, _LONG, "less = Less(i, last)", _LIKE_LONG, "TensorListScatterIntoExistingList"),
        (_H + _SUM_UP, _LONG, _FIVE, "zl = ZerosLike(places)", "TensorListScatterIntoExistingList"),
    ],
)  # fmt: skip
def test_what_is_added_up(body: str, more: str, cond: str, before: str, made: str) -> None:
    got = same(added(body, more, cond, before))
    assert got.fired() == ["loop: computed after the loop, for all iterations at once: the values that 'set' collects"]
    assert [op.type for op in got.graph.operations if op.name == "loop/set_collected"] == [made]
    assert got.count("loop", "AddN") == got.count("loop", "TensorListSetItem") == 0
    assert not any(op.type == "AddN" for op in got.graph.operations)


def test_rows_that_are_not_there() -> None:
    text = added(_H + _SUM_UP, "i: int32[] = one -> i1", "s = Const[value=int32[]{6}, dtype=int32]\nless = Less(i, s)")
    assert "TensorListScatterIntoExistingList" in transformed(text, [PASSES[_RULE]])[0]


def test_a_row_that_is_counted_in_int64() -> None:
    body = "one8 = Const[value=int64[]{1}, dtype=int64] | i1 = AddV2(i, one8) | h1 = Tanh(h) | j = Cast[SrcT=int64, DstT=int32](i) | "
    text = added(body + _SUM.replace("(zs, at", "(zs, j"), "i: int64[] = start -> i1",
                 "most = Const[value=int64[]{4}, dtype=int64]\nless = Less(i, most)",
                 "start = Const[value=int64[]{1}, dtype=int64]")  # fmt: skip
    assert same(text).fired()


def test_what_is_there_before_is_added_too() -> None:
    got = same(added(_H + _SUM_UP, "acc: variant[] holds float32[2,4] = filled -> sum"))
    assert got.fired()
    assert got.graph.get_operation_by_name("loop/collected").type == "AddN"


_OTHER = "ot: variant[] holds float32[2,4] = zeros"


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (_H + _SUM_UP.replace("N=2](acc, set", "N=3](acc, set, ot"), _OTHER),
        (_H + _SUM_UP.replace("AddN[N=2](acc, set)", "TensorListConcatLists[element_dtype=float32](acc, set)"), ""),
        (_H + _SUM_UP.replace(" | sum", " ^i1 | sum"), ""),
        (_H + _SUM_UP + " | l = TensorListLength(set)", ""),
        (_H + _SUM_UP.replace("(zs", "(z1") .replace("set =", "z1 = ZerosLike(zs) | set ="), ""),
        (_H + _SUM_UP + " | z1 = AddN[N=2](zs, zs)", "zs: variant[] holds float32[2,4] = zeros -> z1"),
        (_H + _SUM_UP, "zs: variant[] holds float32[2,4] = filled"),
        (_H + "sum = AddN[N=2](acc, ot)", _OTHER),
        (_H + "sum = AddN[N=1](acc)", ""),
    ],
)  # fmt: skip
def test_what_is_not_added_up(body: str, more: str) -> None:
    untouched(_RULE, added(body, more))


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("body", "more"),
    [
        (_H + _SUM_UP.replace("h1)", "u)"), "u: float32[2,4]"),
        (_H + _SUM_UP, "h: float32[?,4] -> h1"),
    ],
)
def test_what_need_not_or_cannot_be_kept(body: str, more: str) -> None:
    why = "the collected value is loop-invariant, or its shape is unknown"
    untouched(_RULE, added(body, more), why)


def test_lists_of_lists_stay() -> None:
    before = "none = Const[value=int32[0]{}, dtype=int32]\n"
    before += "elements = TensorListReserve[element_dtype=variant](none, five)\nzl = ZerosLike(elements)"
    more = "zs: variant[] holds variant[] = zl|acc: variant[] holds variant[] = zl -> sum|li: variant[] holds float32[2,4] = empty -> lj"
    body = _H + "lj = TensorListPushBack[element_dtype=float32](li, h1) | "
    body += _SUM_UP.replace("float32](zs, i, h1)", "variant](zs, i, lj)")
    text = added(body, more, before=before).replace(_STACK, "")
    untouched(_RULE, text)


# *** joined values ***

_JOINED = "i1 = AddV2(i, one) | h1 = Tanh(h) | x = TensorListGetItem[element_dtype=float32](xs_, i, shape) | "
_XH = "y = ConcatV2(x, h, one) | put = TensorListPushBack[element_dtype=float32](ys, y)"
_ROWS = "ys: variant[] holds float32[2,7] = empty -> put|xs_: variant[] holds float32[2,4] = filled"
_STACK_7 = (
    "seven = Const[value=int32[2]{2, 7}, dtype=int32]\nall = TensorListStack[element_dtype=float32](loop:4, seven)"
)


def joined(body: str, more: str = _ROWS, cond: str = _FIVE) -> str:
    before = _BEFORE.replace(
        "empty = EmptyTensorList[element_dtype=float32](shape",
        "wide = Const[value=int32[2]{2, 7}, dtype=int32]\nempty = EmptyTensorList[element_dtype=float32](wide",
    )
    return loop(_COLLECTED, body, more, cond=cond, before=before, behind=_STACK_7)


def test_of_joined_values_only_those_are_collected_that_are_not_rows() -> None:
    made = same(joined(_JOINED + _XH))
    assert made.fired(_RULE) == ["loop: computed after the loop, for all iterations at once: 'y'"]
    assert (made.count("loop", "ConcatV2"), made.count("loop", "TensorListPushBack")) == (0, 1)


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (_JOINED + _XH.replace("(x, h, one)", "(k, h, one)"), _ROWS + "|k: float32[2,4] -> k1"),
        (_JOINED + _XH + " | h2 = Tanh(y)", _ROWS + "|g: float32[2,7] -> h2"),
        (_JOINED + "a = ConcatV2(x, h, one) | y = Tanh(a) | " + _XH.partition(" | ")[2], _ROWS),
    ],
)
def test_other_joined_values_are_collected_as_they_are(body: str, more: str) -> None:
    body = body + " | k1 = Neg(k)" if "k: " in more else body
    untouched(_RULE, joined(body, more))


def test_rows_of_a_loop_with_two_bounds_are_not_collected() -> None:
    two = "less = Less(i, five)\nten = Const[value=int32[]{10}, dtype=int32]\nmore = Less(i, ten)\nboth = LogicalAnd(less, more)"
    made = same(joined(_JOINED + _XH, cond=two))
    assert made.count("loop", "ConcatV2") == 0
    short = two.replace("less = Less(i, five)", "less = Less(i, two)")
    untouched(_RULE, joined(_JOINED + _XH, cond=short))
