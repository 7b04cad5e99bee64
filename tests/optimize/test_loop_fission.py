"""Work on rows is done before the loop, for all of them at once."""

# ruff: noqa: E501 - a line of a graph is a line

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.optimize.loop_steps import PASSES, Optimized, agree, loop_of, transformed, untouched

_RULE = "loop_fission"
_VARIABLES = """
i: int32[] = zero -> i1
n: int32[]
h: float32[2,3] -> h1
w: float32[4,3]
items: variant[] holds float32[2,4] = items
"""
_CONSTANTS = """shape = Const[value=int32[2]{2, 4}, dtype=int32]
short = Const[value=int32[2]{2, 3}, dtype=int32]
scalar = Const[value=int32[0]{}, dtype=int32]
"""
_BEFORE = f"""{_CONSTANTS}
five = Const[value=int32[]{{5}}, dtype=int32]
two = Const[value=int32[]{{2}}, dtype=int32]
minus = Const[value=int32[]{{-1}}, dtype=int32]
zero8 = Const[value=int64[]{{0}}, dtype=int64]
xs = Placeholder[dtype=float32, shape=[5,2,4]]
items = TensorListFromTensor(xs, shape)
"""
_X = "i1 = AddV2(i, one) | x = TensorListGetItem[element_dtype=float32](items, i, shape) | "
_STEP = "xw = MatMul(x, w) | z = AddV2(xw, h) | h1 = Tanh(z)"
_N = "less = Less(i, n)"
_UNKNOWN = "items: variant[] holds float32[2,4] = unknown"


def loop(step: str, more: str = "", cond: str = _N, before: str = "", end: str = "loop:2", **rest: str) -> str:
    """A loop with `more` variables, changed or additional.

    In `more`, `step` and `cond`, `|` ends a line.
    """
    lines = _VARIABLES
    for each in filter(None, more.split("|")):
        name = each.split(":")[0]
        lines, found = re.subn(rf"(?m)^{name}:.*$", each, lines)
        lines += "" if found else each + "\n"
    body = _CONSTANTS + step.replace(" | ", "\n")
    behind = f"end = Identity({end})"
    return loop_of(lines, body, cond=cond.replace(" | ", "\n"), before=_BEFORE + before, behind=behind, **rest)


def same(text: str, **options: int) -> Optimized:
    """The graph after the pass, with the same results."""
    rng = np.random.default_rng(4)
    found = re.findall(r"(?m)^(\w+) = Placeholder\[dtype=float32, shape=\[(.*)\]\]", text)
    feeds = {n: rng.standard_normal([5 if d == "?" else int(d) for d in s.split(",") if d]) for n, s in found}
    given = dict.fromkeys(re.findall(r"(?m)^(\w+) = Placeholder\[dtype=int", text), 4)
    return agree(text, [PASSES[_RULE]], {**feeds, **given}, ["end"], **options)


def fired(*names: str) -> list[str]:
    return [f"loop: computed for all iterations before the loop: {', '.join(names)}"]


_DOWN = _X.replace("(items, i,", "(items, at,").replace("x =", "at = Sub(n, i) | x =")
_EIGHT = "one8 = Const[value=int64[]{1}, dtype=int64] | i1 = AddV2(i, one8) | at = Cast[SrcT=int64, DstT=int32](i) | "
_EIGHT += "x = TensorListGetItem[element_dtype=float32](items, at, shape) | "
_LAST = "less = LessEqual(i, n)"


@pytest.mark.parametrize(
    ("step", "more", "cond"),
    [
        (_X + _STEP, "", _N),
        (_X + _STEP, "", "less = Less(i, five)"),
        (_X + _STEP, "", "less = Less(i, two)"),
        (_X + _STEP, "", _LAST),
        (_X + _STEP, "", "less = LessEqual(i, two)"),
        (_X + _STEP, "i: int32[] = one -> i1", "less = Less(i, five)"),
        (_X + _STEP, "i: int32[] = two -> i1", "less = Less(i, five)"),
        (_DOWN + _STEP, "", _LAST),
        (_DOWN + _STEP, "n: int32[] = two", _LAST),
        (_DOWN + _STEP, "i: int32[] = one -> i1", _LAST),
        (_DOWN.replace("Sub(n", "Sub(four").replace("at =", "four = Const[value=int32[]{4}, dtype=int32] | at =") + _STEP, "",
         "four = Const[value=int32[]{4}, dtype=int32] | less = LessEqual(i, four)"),
        (_EIGHT + _STEP, "i: int64[] = zero8 -> i1|n: int64[]", _N),
        (_EIGHT + _STEP, "i: int64[] = zero8 -> i1|n: int64[]", _LAST),
        (_X + _STEP, _UNKNOWN, _N),
        (_X + _STEP, _UNKNOWN, "less = Less(i, two)"),
        (_X + _STEP, "p: int32[] = zero -> p1", "a = Less(i, n) | b = Less(p, five) | less = LogicalAnd(a, b)"),
    ],
)  # fmt: skip
def test_rows(step: str, more: str, cond: str) -> None:
    if "p1" in more:
        step = "p1 = AddV2(p, one) | " + step
    before = "unknown_xs = Placeholder[dtype=float32, shape=[?,2,4]]\nunknown = TensorListFromTensor(unknown_xs, shape)"
    got = same(loop(step, more, cond, before))
    assert got.fired() == fired("xw")
    assert got.count("loop", "MatMul") == 0
    sliced = any(op.type == "StridedSlice" and op.name == "x/all" for op in got.graph.operations)
    assert sliced == (cond != "less = Less(i, five)" and "four" not in cond)


def test_a_row_that_is_a_result() -> None:
    got = same(loop(_X + "u = Tanh(x) | h1 = Tanh(h)", "last: float32[2,4] -> u", end="loop:5"))
    assert got.fired() == fired("u")


def test_rows_of_both_directions_are_no_rows() -> None:
    step = _X + "at = Sub(n, i) | y = TensorListGetItem[element_dtype=float32](items, at, shape) | xy = Mul(x, y) | "
    got = same(loop(step + "xyw = MatMul(xy, w) | z = AddV2(xyw, h) | h1 = Tanh(z)", "", _LAST))
    assert not got.fired()
    got = same(
        loop(
            step.replace("Mul(x, y)", "Mul(x, x) | yy = Neg(y) | xyy = Mul(xy, yy)")
            + "xyw = MatMul(xyy, w) | z = AddV2(xyw, h) | h1 = Tanh(z)",
            "",
            _LAST,
        )
    )
    assert got.fired() == fired("xy", "yy")


def test_what_nobody_needs_is_not_looked_at() -> None:
    step = _X + "u = Neg(x) | v = Neg(u) | t = AddV2(u, k) | h1 = Tanh(h)"
    untouched(_RULE, loop(step, "k: float32[2,4]"))


def test_no_more_than_is_allowed() -> None:
    text = loop(_X + _STEP, "", "less = Less(i, five)")
    untouched(_RULE, text, "5 rows of 24 bytes exceed the limit of 119 bytes", stack_bytes=119)
    assert same(text, stack_bytes=120).fired()
    assert same(loop(_X + _STEP), stack_bytes=1).fired()
    text = loop(
        _X
        + "u = Neg(x) | uw = MatMul(u, w) | s = Sum(u, zero) | s2 = Sum(s, zero) | a = AddV2(uw, h) | h1 = AddV2(a, s2)",
        "",
        "less = Less(i, five)",
    )
    got = same(text, stack_bytes=119)
    assert got.fired() == fired("s2")
    assert got.refused() == ["uw: 5 rows of 24 bytes exceed the limit of 119 bytes"]


_WIDE_BEFORE = """ms = Placeholder[dtype=float32, shape=[5,2,?]]
free2 = Const[value=int32[2]{2, -1}, dtype=int32]
more = TensorListFromTensor(ms, free2)
places = Const[value=int32[5]{1, 0, 2, 4, 3}, dtype=int32]
scattered = TensorListScatterV2[element_dtype=float32](xs, places, shape, five)
strange_xs = Placeholder[dtype=float32]
strange = TensorListFromTensor(strange_xs, shape)
"""


@pytest.mark.parametrize(
    ("step", "more", "cond", "why"),
    [
        (_X + _STEP, "", "less = Less(i, one)", "its trip count is at most 1"),
        (_X + _STEP, "", "a = Less(i, n) | s = Size(h) | b = Less(s, n) | less = LogicalAnd(a, b)", "the loop may end before its counter reaches the bound"),
        (_X + _STEP, "i: int32[] -> i1", _N, "the index of the first row is unknown"),
        (_X + _STEP, "i: int32[] = one -> i1", _N, "most rows precede the first that the loop reads"),
        (_X + _STEP, "i: int32[] = two -> i1", "four = Const[value=int32[]{3}, dtype=int32] | less = Less(i, four)", "most rows precede the first that the loop reads"),
        (_X + _STEP, "i: int32[] = minus -> i1", _N, "its first row index is negative"),
    ],
)  # fmt: skip
def test_why_not(step: str, more: str, cond: str, why: str) -> None:
    untouched(_RULE, loop(step, more, cond, _WIDE_BEFORE), why)


def test_rows_of_which_little_is_known() -> None:
    step = (
        "free = Const[value=int32[2]{2, -1}, dtype=int32] | "
        + _X.replace("shape)", "free)")
        + "u = Tanh(x) | v = Mul(u, k) | h1 = Tanh(h)"
    )
    more = "items: variant[] holds float32[2,?] = more|k: float32[] -> k1|t: float32[2,?] = t -> v"
    before = _WIDE_BEFORE + "t = Placeholder[dtype=float32, shape=[2,?]]"
    text = loop("k1 = Neg(k) | " + step, more, _N, before)
    untouched(_RULE, text, "the number and the size of its rows are unknown")
    assert same(loop("k1 = Neg(k) | " + step, more, "less = Less(i, five)", before)).fired() == fired("u")


def test_neither_how_many_rows_nor_the_batch_is_known() -> None:
    step = "free = Const[value=int32[2]{-1, 4}, dtype=int32] | " + _X.replace("shape)", "free)") + _STEP
    before = "bs = Placeholder[dtype=float32, shape=[5,?,4]]\nfree = Const[value=int32[2]{-1, 4}, dtype=int32]\n"
    before += "batches = TensorListFromTensor(bs, free)"
    more = "items: variant[] holds float32[?,4] = batches|h: float32[5,3] -> h1"
    assert same(loop(step, more, _N, before)).fired() == fired("xw")


@pytest.mark.parametrize(
    ("step", "more", "cond"),
    [
        (_X.replace("shape) |", "shape) ^i1 |") + _STEP, "", _N),
        (_X.replace("(items, i,", "(items, k,") + _STEP, "k: int32[]", _N),
        (_X.replace("x =", "at = Sub(i, n) | x =").replace("items, i,", "items, at,") + _STEP, "", _LAST),
        (_DOWN + _STEP, "", _N),
        (_DOWN.replace("Sub(n,", "Sub(k,") + _STEP, "k: int32[]", _LAST),
        (_DOWN.replace("Sub(n,", "Sub(five,") + _STEP, "", "four = Const[value=int32[]{4}, dtype=int32] | less = LessEqual(i, four)"),
        (_X.replace("(items, i,", "(copy, i,").replace("x =", "copy = TensorListSetItem[element_dtype=float32](items, i, k) | x =") + _STEP, "k: float32[2,4]", _N),
        (_X + _STEP + " | it = TensorListSetItem[element_dtype=float32](items, i, x)", "items: variant[] holds float32[2,4] = items -> it", _N),
        (_X + _STEP, "items: variant[] holds float32[2,4] = reserved", _N),
        (_X + _STEP, "items: variant[] holds float32[2,4] = strange", _N),
        (_X.replace(", shape)", ", sh)").replace("x =", "sh = Shape(k) | x =") + _STEP, "k: float32[2,4] -> k1", _N),
        (_X + "u = Cumsum(x, zero) | " + _STEP.replace("(x,", "(u,"), "", _N),
        (_X + _STEP, "items: variant[] holds float32[2,4] = scattered", _N),
        ("free = Const[value=int32[2]{-1, 4}, dtype=int32] | " + _X.replace("shape)", "free)") + "u = Neg(x) | s = Sum(u, zero) | s2 = Sum(s, zero) | h1 = AddV2(h, s2)", "items: variant[] = items", _N),
        ("i1 = AddV2(i, one) | x = Neg(k) | " + _STEP, "k: float32[2,4]", _N),
        (_X + "z = AddV2(x, k) | k1 = Tanh(z) | h1 = Neg(h)", "k: float32[2,4] -> k1", _N),
        (_X + "xw = MatMul(x, w) ^i1 | z = AddV2(xw, h) | h1 = Tanh(z)", "", _N),
        (_X + _STEP, "", "s = Sum(h, zero) | t = Sum(s, zero) | less = Less(t, t)"),
    ],
)  # fmt: skip
def test_what_is_no_row(step: str, more: str, cond: str) -> None:
    if "k1" in more and "k1 =" not in step:
        step = "k1 = Neg(k) | " + step
    before = _WIDE_BEFORE + "reserved = TensorListReserve[element_dtype=float32](shape, five)"
    untouched(_RULE, loop(step, more, cond, before))


def test_a_loop_that_may_end_early_and_reads_nothing() -> None:
    untouched(
        _RULE,
        loop(
            "i1 = AddV2(i, one) | h1 = Tanh(h)",
            "",
            "a = Less(i, n) | s = Size(h) | b = Less(s, n) | less = LogicalAnd(a, b)",
        ),
    )


# *** values that another loop kept ***

_POPPED = "acc: variant[] holds float32[2,3] = acc -> pop:0"
_POP = "i1 = AddV2(i, one) | pop = TensorListPopBack[element_dtype=float32]{ResidualPop}(acc, short) | "
_ACC = "ys = Placeholder[dtype=float32, shape=[5,2,3]]\nacc = TensorListFromTensor(ys, short)\n"
_FIVE = "less = Less(i, five)"


@pytest.mark.parametrize(
    ("step", "more", "names"),
    [
        ("y = Tanh(pop:1) | h1 = AddV2(h, y)", "", ["y"]),
        ("y = Mul(pop:1, pop:1) | z = Mul(y, y) | h1 = AddV2(h, z)", "", ["z"]),
        ("y = MatMul(pop:1, v) | h1 = AddV2(h, y)", "v: float32[3,3]", ["y"]),
        ("y = MatMul(pop:1, v) | z = Reshape(y, short) | h1 = AddV2(h, z)", "v: float32[3,3]", ["z"]),
        ("y = Mul(p, pop:1) | z = Tanh(y) | h1 = AddV2(h, z)", "p: float32[2,3] -> pop:1", ["z"]),
        ("y = Sub(p, pop:1) | z = MatMul(p, v) | yz = AddV2(y, h) | h1 = AddV2(yz, z)", "p: float32[2,3] -> pop:1|v: float32[3,3]", ["z", "y"]),
    ],
)  # fmt: skip
def test_popped(step: str, more: str, names: list[str]) -> None:
    text = loop(_POP + step, "|".join(filter(None, [_POPPED, more])), _FIVE, _ACC)
    got = same(text)
    assert got.fired() == fired(*names)


@pytest.mark.parametrize(
    ("step", "more"),
    [
        ("flip = Const[value=int32[2]{3, 2}, dtype=int32] | y = Reshape(pop:1, flip) | t = Sum(y, zero) ^i1 | h1 = Tanh(h)", ""),
        ("h1 = AddV2(h, pop:1)", ""),
        ("p1 = Neg(pop:1) ^i1 | q = Neg(p) | h1 = AddV2(h, q)", "p: float32[2,3] -> p1"),
        ("q = AddV2(p, w2) | h1 = AddV2(h, q)", "p: float32[?,3] -> pop:1|w2: float32[3]"),
    ],
)  # fmt: skip
def test_popped_otherwise(step: str, more: str) -> None:
    text = loop(_POP + step, "|".join(filter(None, [_POPPED, more])), _FIVE, _ACC)
    untouched(_RULE, text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{ResidualPop}", ""),
        ("-> pop:0", "-> acc1"),
    ],
)
def test_what_is_not_popped_for_each_iteration(old: str, new: str) -> None:
    step = "acc1 = TensorListPushBack[element_dtype=float32](pop, h) | y = Tanh(pop:1) | h1 = AddV2(h, y)"
    text = loop(_POP.replace(old, new) + step, _POPPED.replace(old, new), _FIVE, _ACC)
    untouched(_RULE, text)


def test_as_much_is_popped_as_was_kept() -> None:
    step = "y = MatMul(pop:1, v) | z = AddV2(y, u) | k1 = AddV2(k, z) | h1 = Tanh(h)"
    more = _POPPED + "|v: float32[3,1]|u: float32[2,?]|k: float32[2,?] -> k1"
    _, context = transformed(loop(_POP + step, more, _N, _ACC), [PASSES[_RULE]])
    assert [n.text for n in context.notes] == ["computed for all iterations before the loop: z"]


@pytest.mark.parametrize(
    ("work", "shape", "moves"),
    [
        ("t = Reshape(pop:1, turned)", "[2,3]", False),
        ("t = Neg(pop:1)", "[2,3]", True),
        ("t = Neg(pop:1)", "[]", False),
        ("t = Tanh(pop:1)", "[]", True),
        ("t = Tanh(pop:1)", "[100,100]", False),
        ("t = Tanh(pop:1)", "[64,64]", True),
        ("t = MatMul(pop:1, y2)", "[100,100]", True),
    ],
)
def test_what_pays(work: str, shape: str, moves: bool) -> None:
    more = "" if "Reshape" not in work else "turned = Const[value=int32[2]{2, 3}, dtype=int32]\n"
    inner = shape.strip("[]")
    dims = [d for d in inner.split(",") if d]
    sizes = f"sizes = Const[value=int32[{len(dims)}]{{{', '.join(dims)}}}, dtype=int32]\n"
    pop = "i1 = AddV2(i, one) | pop = TensorListPopBack[element_dtype=float32]{ResidualPop}(acc, sizes) | "
    acc = f"ys = Placeholder[dtype=float32, shape=[5{',' * bool(inner)}{inner}]]\n{sizes}acc = TensorListFromTensor(ys, sizes)\n"
    lines = f"acc: variant[] holds float32{shape} = acc -> pop:0|k: float32{shape} -> k1|y2: float32{shape}"
    step = f"{sizes}{more}{pop}{work} | k1 = AddV2(k, t) | h1 = Neg(h)"
    _, context = transformed(loop(step, lines, _FIVE, acc), [PASSES[_RULE]])
    assert any(n.fired for n in context.notes) == moves
