"""The result of one branch is added to a running sum in that branch."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimize.loop_steps import PASSES, agree, check, loop_of, transformed, untouched

_RULE = "loop_branches"
_ZEROS = "z = Const[value=float32[2]{0, 0}, dtype=float32]"


def branching(
    then: str = "a = Neg(x)",
    other: str = _ZEROS,
    results: tuple[str, str] = ("a", "z"),
    body: str = "more = AddV2(total, c)",
    variables: str = "total: float32[2] = none -> more\nh: float32[2] -> h1",
    none: str = "Const[value=float32[2]{0, 0}, dtype=float32]",
) -> str:
    """A loop that adds up what a conditional makes of `h`."""
    return loop_of(
        f"i: int32[] = zero -> next\nn: int32[]\n{variables}",
        f"""\
next = AddV2(i, one)
h1 = Sin(h)
even = FloorMod(i, two)
p = Equal(even, zero)
c = StatelessIf[Tcond=bool, Tin=(float32), Tout=(float32), then_branch=@"t", else_branch=@"e"](p, h)
graph "t" of c, then_branch (x: float32[2]) -> ({results[0]}) {{
{then}
}}
graph "e" of c, else_branch (x: float32[2]) -> ({results[1]}) {{
{other}
}}
{body}""",
        before=f"none = {none}",
        cond="less = Less(i, n)",
    )


def test_added_in_one_branch() -> None:
    text = branching()
    check(
        _RULE,
        text,
        """
loop = StatelessWhile(zero, n, none, h)
body of loop (i, n, total, h) -> (next, n, c, h1) {
  next = AddV2(i, one)
  h1 = Sin(h)
  even = FloorMod(i, two)
  p = Equal(even, zero)
  c = StatelessIf(p, h, total)
  graph "t" of c, then_branch (x: float32[2], total: float32[2] of "total:0") -> (more) {
    a = Neg(x)
    more = AddV2(total, a)
  }
  graph "e" of c, else_branch (x: float32[2], total: float32[2] of "total:0") -> (total) {
  }
}
""",
        ["more: added in 1 of 2 branches of 'c'"],
    )
    for n in (0, 1, 5):
        agree(text, [PASSES[_RULE]], {"n": n, "h": [0.5, -1]}, ["loop:2", "loop:3"])


@pytest.mark.parametrize("body", ["more = AddV2(c, total)", "more = Add(total, c)", "more = AddN[N=2](c, total)"])
def test_sums_of_all_kinds(body: str) -> None:
    text = branching(body=body)
    assert _fired(text) == ["added in 1 of 2 branches of 'c'"]
    agree(text, [PASSES[_RULE]], {"n": 4, "h": [0.5, -1]}, ["loop:2"])


@pytest.mark.parametrize(
    "zeros",
    [
        "z = ZerosLike(x)",
        "f = Const[value=float32[]{0}, dtype=float32]\ns = Shape(x)\nz = Fill(s, f)",
        "z = Const[value=float32[2]{-0.0, 0}, dtype=float32]",
    ],
)
def test_nothing_of_all_kinds(zeros: str) -> None:
    text = branching(other=zeros)
    assert _fired(text) == ["added in 1 of 2 branches of 'c'"]
    agree(text, [PASSES[_RULE]], {"n": 4, "h": [0.5, -1]}, ["loop:2"])


def test_the_sum_may_be_read_in_the_branches_already() -> None:
    text = branching().replace("](p, h)", "](p, total)")
    assert _fired(text) == ["added in 1 of 2 branches of 'c'"]
    got, _ = transformed(text, [PASSES[_RULE]])
    assert "c = StatelessIf(p, total)" in got
    agree(text, [PASSES[_RULE]], {"n": 4, "h": [0.5, -1]}, ["loop:2"])


@pytest.mark.parametrize(
    "text",
    [
        branching(other="z = Sin(x)"),  # both make something
        branching(other="z = Const[value=float32[2]{0, 1}, dtype=float32]"),
        branching(body="more = Sub(total, c)"),
        branching(body="more = AddV2(h, c)"),  # no running sum
        branching(body="more = AddN[N=3](total, c, h)"),
        branching(body="more = AddN[N=3](total, total, c)"),
        branching(body="more = AddV2(total, total)"),
        branching(body="more = AddV2(total, h1)"),  # not of a conditional
        branching(body="more = AddV2(total, c) ^h1"),
        branching(variables="total: float32[2] = none -> more\nh: float32[2] -> c"),  # another consumer reads it
        branching(
            body="more = AddV2(total, c)\nk1 = Neg(c)",
            variables="total: float32[2] = none -> more\nh: float32[2] -> k1",
        ),
        branching(variables="total: float32[?] = none -> more\nh: float32[2] -> h1"),  # it may be stretched
        branching(none="Const[value=float32[1]{0}, dtype=float32]").replace("total: float32[2]", "total: float32[?]")
        .replace("h: float32[2]", "h: float32[?]").replace("x: float32[2]", "x: float32[?]")
        .replace(_ZEROS, "z = ZerosLike(x)"),  # equal as far as is known
        branching(
            variables="total: float32[2,2] = none -> more\nh: float32[2] -> h1",
            none="Const[value=float32[2,2]{0, 0, 0, 0}, dtype=float32]",
        ),  # stretched
        branching(body=f"""\
d = PartitionedCall[f=@"f", Tin=(float32), Tout=(float32)](h)
graph "f" of d, f (x: float32[2]) -> (z) {{
{_ZEROS}
}}
more = AddV2(total, d)"""),
        branching(body='more = AddV2(total, c) @"/cpu:1"'),
    ],
)  # fmt: skip
def test_what_stays(text: str) -> None:
    untouched(_RULE, text)


@pytest.mark.parametrize(
    "none",
    ["Const[value=float32[2]{0, -0.0}, dtype=float32]", "Const[value=float32[2]{0, 1}, dtype=float32]", "Identity(h)"],
)
def test_a_sum_that_may_be_minus_zero_stays(none: str) -> None:
    """-0 + 0 is 0, so this addition may not be removed."""
    text = branching(none=none)
    if "Identity" in none:
        text = text.replace("none = Identity(h)", "").replace(", none, h)", ", h, h)")
    untouched(_RULE, text, "the initial value of the sum is not known to be 0")


@pytest.mark.parametrize("role", ["then_branch", "else_branch"])
def test_what_names_a_function_of_the_library_stays(role: str) -> None:
    """Others may call that."""
    zeros = _ZEROS.replace("z = ", "a = ")
    text = branching() if role == "then_branch" else branching(then=zeros, other="z = Neg(x)")
    head, tail = text.split(f'graph "{role[0]}" of c, {role} ')
    block, rest = tail.split("\n}\n", 1)
    untouched(_RULE, f'function "{role[0]}" {block}\n}}\n' + head.replace(f"{role}=@", f"{role}=&") + rest)


def test_integers_begin_with_anything() -> None:
    text = branching(
        other="z = Const[value=int32[2]{0, 0}, dtype=int32]",
        variables="total: int32[2] -> more\nh: int32[2] -> h1",
        none="Const[value=int32[2]{0, 0}, dtype=int32]",
    )
    text = text.replace("float32", "int32").replace("h1 = Sin(h)", "h1 = Neg(h)")
    assert _fired(text) == ["added in 1 of 2 branches of 'c'"]
    agree(text, [PASSES[_RULE]], {"n": 4, "h": [3, -1], "total": [2**31 - 2, 5]}, ["loop:2"])


def test_bits_are_the_same() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        agree(branching(), [PASSES[_RULE]], {"n": 6, "h": rng.standard_normal(2)}, ["loop:2"])


def _fired(text: str) -> list[str]:
    _, context = transformed(text, [PASSES[_RULE]])
    assert all(n.fired for n in context.notes)
    return [n.text for n in context.notes]
