"""Two loops with equal trip counts become one if neither depends on the other."""

# ruff: noqa: E501 - a line of a graph is a line

from __future__ import annotations

import pytest

from tests.optimize.loop_steps import PASSES, agree, loop_text, transformed, untouched

_BEFORE = """
zero = Const[value=int32[]{0}, dtype=int32]
zero2 = Const[value=int32[]{0}, dtype=int32]
one = Const[value=int32[]{1}, dtype=int32]
two = Const[value=int32[]{2}, dtype=int32]
n = Placeholder[dtype=int32, shape=[]]
m = Placeholder[dtype=int32, shape=[]]
x = Placeholder[dtype=float32, shape=[2]]
y = Placeholder[dtype=float32, shape=[2]]
p = Placeholder[dtype=bool, shape=[]]
v = VarHandleOp[dtype=float32, shape=[2]]
"""


def _one(name: str, **more: str) -> str:
    """A loop of so many rounds with an activation in it."""
    given = {"inputs": "zero, n, x", "body": "i1 = AddV2(i, one)\nx1 = Tanh(x)", "results": "i1, n, x1"} | more
    return loop_text(given.pop("variables", "i: int32[], n: int32[], x: float32[2]"), name=name, **given)


def _two(between: str = "", behind: str = "z = AddV2(a:2, b:2)", **more: str) -> str:
    """Two loops, of which something about the second one is special."""
    return f"{_BEFORE}\n{_one('a')}\n{between}\n{_one('b', **more)}\n{behind}"


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"inputs": "zero2, n, y"},
        {"inputs": "zero2, n, y1", "between": "y1 = Neg(y)"},
        {"inputs": "zero2, n, y", "cond": "less = Greater(n, i)"},
    ],
)
def test_loops_of_as_many_rounds(more: dict[str, str]) -> None:
    got = agree(_two(**more), [PASSES["loop_merging"]], {"n": 3, "x": [0.1, 0.2], "y": [0.3, 0.4]}, ["z"])
    assert got.fired() == ["a: fused with 'b'"]


def test_a_number_of_rounds_that_is_written_in_two_ways() -> None:
    text = _two(
        variables="i: int64[], n: int32[], x: float32[2]",
        inputs="start, n, y",
        body="step = Const[value=int64[]{1}, dtype=int64]\ni1 = AddV2(i, step)\nx1 = Tanh(x)",
        cond="most = Const[value=int64[]{5}, dtype=int64]\nless = Less(i, most)",
        between="start = Const[value=int64[]{0}, dtype=int64]",
    ).replace("less = Less(i, n)", "four = Const[value=int32[]{5}, dtype=int32]\nless = Less(i, four)")
    got = agree(text, [PASSES["loop_merging"]], {"n": 3, "x": [0.1, 0.2], "y": [0.3, 0.4]}, ["z", "b"])
    assert got.fired() == ["a: fused with 'b'"]


@pytest.mark.parametrize(
    "more",
    [
        # different trip counts, or unknown ones
        {"inputs": "one, n, x"},
        {"inputs": "m, n, x"},
        {"inputs": "zero, m, x"},
        {"inputs": "zero, two, x"},
        {"cond": "less = LessEqual(i, n)"},
        {"cond": "s = Size(x)\nless = Less(i, s)"},
        {"cond": "axes = Const[value=int32[1]{0}, dtype=int32]\ns = Sum(x, axes)\nz = Sub(s, s)\nless = Less(s, z)"},
        {
            "variables": "i: int32[], n: int32[], x: float32[2], p: bool[]",
            "inputs": "zero, n, x, p",
            "results": "i1, n, x1, p",
            "cond": "below = Less(i, n)\nless = LogicalAnd(below, p)",
        },
        {
            "variables": "i: int32[], n: int32[], x: float32[2], m: int32[]",
            "inputs": "zero, n, x, m",
            "results": "i1, n, x1, m",
            "cond": "below = Less(i, n)\nunder = Less(i, m)\nless = LogicalAnd(below, under)",
        },
        # other things
        {"type": "While"},
        {"behind": "z = AddV2(a:2, b:2)", "body": "i1 = AddV2(i, one)\ns = Shape(x)\nx1 = RandomUniform[dtype=float32](s)"},
    ],
)  # fmt: skip
def test_loops_that_stay_apart(more: dict[str, str]) -> None:
    untouched("loop_merging", _two(**more))


@pytest.mark.parametrize(("old", "new"), [("b_body\"](zero, n, x)", "b_body\"](zero, n, x) ^m"),
                                          ("b_body\"](zero, n, x)", "b_body\"](zero, n, x) @\"/device:CPU:1\""),
                                          ("b_body\"]", "b_body\", parallel_iterations=3]")])  # fmt: skip
def test_loops_of_which_something_else_is_asked(old: str, new: str) -> None:
    assert old in _two()
    untouched("loop_merging", _two().replace(old, new))


def test_both_with_an_effect() -> None:
    effect = {
        "variables": "i: int32[], n: int32[], v: resource[] holds float32[2]",
        "inputs": "zero, n, v",
        "results": "i1, n, v",
        "body": "i1 = AddV2(i, one)\nx = ReadVariableOp[dtype=float32](v)\nadd = AssignAddVariableOp(v, x)",
        "type": "While",
    }
    untouched("loop_merging", f"{_BEFORE}\n{_one('a', **effect)}\n{_one('b', **effect)}")


@pytest.mark.parametrize("preserved", [(), ("b",)])
def test_something_waits_for_the_second(preserved: tuple[str, ...]) -> None:
    text = _two(behind="z = Neg(a:2)" + ("" if preserved else "^b"))
    untouched("loop_merging", text, "it is a target or has outgoing control edges", preserved=preserved)


def test_the_second_needs_the_first() -> None:
    text = _two(inputs="zero, n, y1", between="y1 = Neg(a:2)")
    untouched("loop_merging", text, "it and 'a' depend on one another")


def test_the_first_needs_the_second() -> None:
    text = f"{_BEFORE}\nlate = Neg(x) ^d\n{_one('a', inputs='zero, n, late')}\n{_one('b')}\nd = Neg(b:2)"
    untouched("loop_merging", text, "it and 'a' depend on one another")


def test_large_bodies() -> None:
    more = "\n".join(f"x{k + 1} = Sin(x{k})" for k in range(1, 54))
    text = _two(body=f"i1 = AddV2(i, one)\nx1 = Tanh(x)\n{more}", results="i1, n, x54")
    untouched("loop_merging", text, "fused with 'a' it has 65 operations; the limit is 64")


def test_of_three_loops_the_next_best() -> None:
    text = f"{_BEFORE}\n{_one('a')}\n{_one('b', inputs='zero, m, x')}\n{_one('c')}\nz = AddN(a:2, b:2, c:2)"
    got, context = transformed(text, [PASSES["loop_merging"]])
    assert [f"{n.op}: {n.text}" for n in context.notes] == ["a: fused with 'c'"]
    assert "z = AddN(a:2, b:2, a:5)" in got
