"""Counters of a loop become functions of one counter that goes up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.ir.analysis.trip_count import trip_count
from headrace.ir.text import from_text
from headrace.optimize.base import PassContext, run
from tests.optimize.loop_steps import PASSES, agree, check, loop_of, loop_text, untouched

_RULE = "loop_counters"
_FIRST = """
nine = Const[value=int32[]{9}, dtype=int32]
least = Const[value=int32[]{-2147483648}, dtype=int32]
some = Placeholder[dtype=int32, shape=[]]
x = Placeholder[dtype=float32, shape=[]]
"""


def _down(cond: str, first: str = "nine", body: str = "t1 = Sub(t, one)", behind: str = "") -> str:
    """A loop that counts down and reads its counter."""
    lines = f"{body}\nf = Cast[SrcT=int32, DstT=float32](t)\nh1 = AddV2(h, f)"
    behind = behind or "y = Neg(loop)\nz = Neg(loop:1)"
    return loop_text("t: int32[], h: float32[], n: int32[]", f"{first}, x, some", "t1, h1, n", lines,
                     cond=cond, before=_FIRST, behind=behind)  # fmt: skip


def test_a_loop_that_counts_down_counts_up() -> None:
    check(
        _RULE,
        _down("more = GreaterEqual(t, zero)"),
        """
loop = StatelessWhile(nine, x, some, loop/t_up)
body of loop (t, h, n, t_up) -> (t1, h1, n, t_up/next) {
  t1 = Sub(t, one)
  t_by_t_up = Sub(t_by_t_up/x, t_up)
  f = Cast(t_by_t_up)
  h1 = AddV2(h, f)
  t_up/next = AddV2(t_up, Const)
}
y = Neg(loop/last)
z = Neg(loop:1)
""",
        [
            "more: compares variable 3, which goes up, with 10",
            "loop: variable 0 is -1 after the loop",
            "loop: variable 0 is computed from the counter, variable 3",
        ],
    )


@pytest.mark.parametrize(
    ("cond", "trips"),
    [
        ("more = GreaterEqual(t, five)", 5),
        ("more = Greater(t, five)", 4),
        ("more = Less(five, t)", 4),
        ("more = LessEqual(five, t)", 5),
        ("more = NotEqual(t, five)", 4),
    ],
)
@pytest.mark.parametrize(
    "body", ["t1 = Sub(t, one)", "m = Neg(one)\nt1 = AddV2(m, t)", "m = Neg(one)\nt1 = AddV2(t, m)"]
)
def test_the_trip_count_becomes_known(cond: str, trips: int, body: str) -> None:
    text = _down(cond, body=body)
    graph = from_text(text)
    run([PASSES[_RULE]], graph, PassContext())
    found = trip_count(graph.get_operation_by_name("loop"))
    assert found is not None
    assert found.count == trips
    agree(text, [PASSES[_RULE]], {"x": np.float32(0.5)}, ["y", "z"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (_down("more = GreaterEqual(t, zero)", first="some"), []),  # its first value is unknown
        (_down("more = GreaterEqual(t, n)"), []),  # the limit is unknown
        (_down("more = LessEqual(t, zero)"), []),
        (_down("more = Less(t, zero)"), []),
        (_down("more = Equal(t, five)"), []),
        (_down("more = NotEqual(t, five)", first="one_"), []),  # it moves away from the limit
        (_down("more = GreaterEqual(t, least_)"), []),  # always true
        (_down("more = Greater(t, least_)"), ["a counter that goes up would wrap around"]),
        (_down("more = GreaterEqual(t, zero)", body="t1 = Sub(t, two)"), []),
        (_down("more = GreaterEqual(t, zero)", body="t1 = Sub(one, t)"), []),
        (_down("more = GreaterEqual(t, zero)", body="w = NoOp()\nt1 = Sub(t, one) ^w"), []),
    ],
)
def test_another_loop_stays(text: str, why: list[str]) -> None:
    text = text.replace("one_", "two").replace("two, x", "two_, x").replace("(two_", "(few")
    few = "few = Const[value=int32[]{2}, dtype=int32]\n"
    number = "least_ = Const[value=int32[]{-2147483648}, dtype=int32]\n"
    if "least_)" in text:
        text = text.replace("more = Greater", f"{number}more = Greater")
    untouched(_RULE, few + text, *why)


def test_a_comparison_that_waits_stays() -> None:
    untouched(
        _RULE,
        _down("w = NoOp()\nmore = GreaterEqual(t, zero) ^w"),
        "it waits, or asks for another device than the loop",
    )


def test_a_comparison_on_another_device_stays() -> None:
    untouched(
        _RULE,
        _down('more = GreaterEqual(t, zero) @ "/device:CPU:1"'),
        "it waits, or asks for another device than the loop",
    )


def test_a_counter_that_goes_up_already_is_used() -> None:
    check(
        _RULE,
        loop_of(
            """
            k: int32[] = one -> k1
            t: int64[] = nine -> t1
            s: int32[] = zero -> s1
            h: int64[] -> h1
            g: int32[] -> s1
            m: int32[] -> s
            n: int32[]""",
            "k1 = AddV2(k, one)\nlong = Const[value=int64[]{1}, dtype=int64]\nt1 = Sub(t, long)\n"
            "s1 = AddV2(s, one)\nh1 = AddV2(h, t1)",
            before="nine = Const[value=int64[]{9}, dtype=int64]\n",
            behind="y = Neg(loop:1)",
            cond="less = Less(k, n)",
        ),
        """
loop = StatelessWhile(one, nine, zero, h, g, m, n)
body of loop (k, t, s, h, g, m, n) -> (k1, t1, s1, h1, k, s_by_k, n) {
  k1 = AddV2(k, one)
  t1 = Sub(t, long)
  s1 = AddV2(s, one)
  t1_by_k/cast = Cast(k)
  t1_by_k = Sub(t1_by_k/x, t1_by_k/cast)
  h1 = AddV2(h, t1_by_k)
  s_by_k = AddV2(k, s_by_k/y)
}
y = Neg(loop:1)
""",
        [
            "loop: variable 1 is computed from the counter, variable 0",
            "loop: variable 2 is computed from the counter, variable 0",
        ],
    )


@pytest.mark.parametrize("first", [0, 3])
def test_results_of_a_loop_with_several_counters(first: int) -> None:
    text = loop_of(
        """
        k: int32[] = first -> k1
        t: int64[] = nine -> t1
        h: int64[] -> h1
        g: int32[] -> g1
        n: int32[] = seven""",
        "k1 = AddV2(k, one)\nlong = Const[value=int64[]{1}, dtype=int64]\nt1 = Sub(t, long)\n"
        "u = Mul(t, h)\nh1 = AddV2(u, t1)\ns = AddV2(k, k1)\ng1 = Mul(g, s)",
        before=f"nine = Const[value=int64[]{{9}}, dtype=int64]\nseven = Const[value=int32[]{{7}}, dtype=int32]\n"
        f"first = Const[value=int32[]{{{first}}}, dtype=int32]\n",
        behind="y = Neg(loop)\nz = Neg(loop:1)\nv = Neg(loop:2)\nw = Neg(loop:3)",
        cond="less = Less(k, n)",
    )
    feeds: dict[str, Any] = {"h": 3, "g": 2}
    assert agree(text, [PASSES[_RULE]], feeds, ["y", "z", "v", "w"]).fired()
