"""Loop variables that are always equal become one, and others do not."""

# ruff: noqa: E501 - a line of a graph is a line

from __future__ import annotations

import pytest

from headrace.optimize.loop_editor import LoopEditor
from tests.optimize.loop_steps import PASSES, agree, loop_text, transformed, untouched

_BEFORE = """
zero = Const[value=int32[]{0}, dtype=int32]
zero2 = Const[value=int32[]{0}, dtype=int32]
one = Const[value=int32[]{1}, dtype=int32]
n = Placeholder[dtype=int32, shape=[]]
m = Placeholder[dtype=int32, shape=[]]
x = Placeholder[dtype=float32, shape=[2,2]]
shape = Const[value=int32[1]{2}, dtype=int32]
shape2 = Const[value=int32[2]{1, 2}, dtype=int32]
shape3 = Const[value=int32[2]{2, 1}, dtype=int32]
any = Const[value=int32[]{-1}, dtype=int32]
list = EmptyTensorList[element_dtype=float32](shape, any)
like = EmptyTensorList[element_dtype=float32](shape, any)
far = EmptyTensorList[element_dtype=float32](shape, any) @"/device:CPU:1"
late = EmptyTensorList[element_dtype=float32](shape, any) ^n
other = EmptyTensorList[element_dtype=float32](shape2, any)
drawn = RandomUniform[dtype=float32](shape)
drawn2 = RandomUniform[dtype=float32](shape)
rank2 = ZerosLike(x)
"""


def _pair(dtype: str, first: str, second: str, nexts: str, body: str, behind: str = "") -> str:
    """A loop with a counter, and variables `p` and `q` with given initial values."""
    p, q = dtype.split("|") if "|" in dtype else (dtype, dtype)
    return loop_text(
        f"i: int32[], n: int32[], p: {p}, q: {q}",
        f"zero, n, {first}, {second}",
        f"i1, n, {nexts}",
        f"i1 = AddV2(i, two)\n{body}",
        before=_BEFORE,
        behind=behind,
    )


_COUNTS = "p1 = AddV2(p, one)\nq1 = AddV2(q, one)"
_PUSHES = "a = Const[value=float32[2]{1.0, 2.0}, dtype=float32]\n" + "\n".join(
    f"{v}1 = TensorListPushBack[element_dtype=float32]({v}, a)" for v in "pq"
)
_ANOTHER = "another = Const[value=int32[]{1}, dtype=int32]\n"
_TANH = "p1 = Tanh(p)\nq1 = Tanh(q)"
_LIST, _MATRIX = "variant[] holds float32[2]", "float32[2,2]"


@pytest.mark.parametrize(
    ("dtype", "first", "second", "nexts", "body"),
    [
        ("int32[]", "m", "m", "p1, q1", _COUNTS),
        ("int32[]", "zero", "zero2", "p1, q1", _COUNTS),
        ("int32[]", "m", "m", "p1, q1", _ANOTHER + _COUNTS.replace("(q, one", "(q, another")),
        ("int32[]", "m", "m", "p1, q1", _COUNTS.replace("one", "n")),
        ("int32[]", "m", "m", "p1, p1", "p1 = AddV2(i, one)"),
        (_LIST, "list", "like", "p1, q1", _PUSHES),
        (_MATRIX, "x", "x", "p1, q1", "p1 = MatMul[transpose_b=true](p, p)\nq1 = MatMul[transpose_b=true](q, q)"),
    ],
)  # fmt: skip
def test_equal(dtype: str, first: str, second: str, nexts: str, body: str) -> None:
    got, context = transformed(
        _pair(dtype, first, second, nexts, body, "y = Identity(loop:3)"), [PASSES["loop_variables"]]
    )
    assert [n.text for n in context.notes] == ["variable 3 is always equal to variable 2"]
    assert "-> (i1, n, p1, q) {" in got
    assert "y = Identity(loop:2)" in got


@pytest.mark.parametrize(
    ("dtype", "first", "second", "nexts", "body"),
    [
        # begin as they may
        ("int32[]", "m", "zero", "p1, q1", _COUNTS),
        ("int32[]", "zero", "m", "p1, q1", _COUNTS),
        ("int32[]", "zero", "one", "p1, q1", _COUNTS),
        ("int32[?,?]", "shape2", "shape3", "p1, q1", "p1 = Neg(p)\nq1 = Neg(q)"),
        ("float32[?]", "drawn", "drawn2", "p1, q1", _TANH),
        (_LIST, "list", "far", "p1, q1", _PUSHES),
        (_LIST, "list", "late", "p1, q1", _PUSHES),
        (_LIST, "late", "list", "p1, q1", _PUSHES),
        ("variant[]", "list", "other", "p1, q1", _PUSHES),
        # different facts are known of them
        ("float32[?,2]|float32[2,2]", "x", "x", "p1, q1", _TANH),
        ("variant[] holds float32[?]|" + _LIST, "list", "list", "p1, q1", _PUSHES),
        # go on as they may
        (_MATRIX, "x", "x", "p1, q1", "p1 = Tanh(p)\nq1 = Sin(q)"),
        (_MATRIX, "x", "x", "p1, q1", _TANH.replace("(q)", '(q) @"/device:CPU:1"')),
        (_MATRIX, "x", "x", "p1, q1", "p1 = MatMul[transpose_b=true](p, p)\nq1 = MatMul(q, q)"),
        (_MATRIX, "x", "x", "p1, q1", _TANH.replace("(q)", "(q) ^i1")),
        (_MATRIX, "x", "x", "p1, q1", _TANH.replace("(q)", "{JoinedElementShapes}(q)")),
        (_MATRIX, "x", "x", "p1, q1", _TANH.replace("(p)", "(p) ^i1")),
        (_MATRIX, "x", "x", "p1:0, p1:1", "s = ConcatV2(p, q, zero)\np1 = Split[num_split=2](zero, s)"),
        ("float32[2]", "drawn", "drawn", "p1, q1", "s = Shape(p)\np1 = RandomUniform[dtype=float32](s)\nq1 = RandomUniform[dtype=float32](s)"),
        ("int32[]", "m", "m", "p1, q1", _COUNTS.replace("(p,", "(n,")),
        ("int32[]", "m", "m", "p1, q1", _COUNTS.replace("(q,", "(n,")),
        ("int32[]", "m", "m", "p1, q1", _COUNTS.replace("(q, one", "(q, two")),
    ],
)  # fmt: skip
def test_different(dtype: str, first: str, second: str, nexts: str, body: str) -> None:
    untouched("loop_variables", _pair(dtype, first, second, nexts, body, "y = Identity(loop:3)"))


def test_different_variables_are_compared_without_a_walk_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def walk(*_: object) -> bool:
        raise AssertionError("all pairs of variables would need a walk each")

    monkeypatch.setattr(LoopEditor, "have_equal_waits", walk)
    untouched("loop_variables", _pair(_MATRIX, "x", "x", "p1, q1", "p1 = Tanh(p)\nq1 = Sin(q)"))


def test_the_condition_reads_the_one_that_stays() -> None:
    body = "i1 = AddV2(i, two)\nj1 = AddV2(j, two)\nx1 = AddV2(x, x)"
    text = loop_text(
        "i: int32[], n: int32[], j: int32[], x: float32[2,2]", "zero, n, zero2, x", "i1, n, j1, x1", body,
        cond="less = Less(j, n)", before=_BEFORE,
    )  # fmt: skip
    got = agree(text, [PASSES["loop_variables"]], {"n": 5, "x": [[1.0, 2.0], [3.0, 4.0]]}, ["loop:2", "loop:3"])
    assert got.fired() == ["loop: variable 2 is always equal to variable 0"]
