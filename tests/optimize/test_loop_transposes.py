"""A loop constant that a product turns around is turned around once."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from headrace.ir.notes import ContiguousResult
from tests.optimize.loop_steps import PASSES, agree, check, loop_of, transformed, untouched

_RULE = "loop_transposes"


def loop(
    work: str = "h1 = MatMul[transpose_b=true](h, w)", w: str = "3,3", more: str = "", cond: str = "less = Less(i, n)"
) -> str:
    return loop_of(
        f"i: int32[] = zero -> next\nn: int32[]\nh: float32[2,3] -> h1\nw: float32[{w}]\n{more}",
        f"next = AddV2(i, one)\n{work}",
        cond=cond,
    )


def counted(n: int, size: int) -> str:
    """A loop of `n` iterations with a square matrix."""
    text = loop(cond=f"most = Const[value=int32[]{{{n}}}, dtype=int32]\nless = Less(i, most)")
    return text.replace("[2,3]", f"[2,{size}]").replace("[3,3]", f"[{size},{size}]")


def test_once() -> None:
    text = loop()
    check(
        _RULE,
        text,
        """
loop/w_turned = Transpose(w, loop/w_turned/perm)
loop = StatelessWhile(zero, n, h, w, loop/w_turned)
body of loop (i, n, h, w, w_turned) -> (next, n, h1_1, w, w_turned) {
  next = AddV2(i, one)
  h1_1 = MatMul(h, w_turned)
}
""",
        ["loop: loop-invariant factors transposed before the loop: h1"],
    )
    feeds = {"n": 3, "h": np.eye(2, 3), "w": np.arange(9.0).reshape(3, 3)}
    agree(text, [PASSES[_RULE]], feeds, ["loop:2"])


def test_two_products_share_it() -> None:
    work = "a = MatMul[transpose_b=true](h, w)\nb = Tanh(h)\nc = MatMul[transpose_b=true](b, w)\nh1 = AddV2(a, c)"
    done = agree(loop(work), [PASSES[_RULE]], {"n": 3, "h": np.eye(2, 3), "w": np.eye(3)}, ["loop:2"])
    assert sum(op.type == "Transpose" for op in done.graph.operations) == 1
    assert done.fired() == ["loop: loop-invariant factors transposed before the loop: a, c"]


def test_products_on_two_devices_have_a_transpose_each() -> None:
    both = (
        "a = MatMul[transpose_b=true](h, w)\nb = Tanh(h)\nc = MatMul[transpose_b=true](b, w) DEVICE\nh1 = AddV2(a, c)"
    )
    done = agree(
        loop(both.replace("DEVICE", '@"/cpu:1"')),
        [PASSES[_RULE]],
        {"n": 3, "h": np.eye(2, 3), "w": np.eye(3)},
        ["loop:2"],
    )
    assert [op.device for op in done.graph.operations if op.type == "Transpose"] == ["", "/cpu:1"]


@pytest.mark.parametrize(
    ("work", "w", "more"),
    [
        ("h1 = MatMul(h, w)", "3,3", ""),
        ("h1 = MatMul[transpose_b=true](h, v)", "3,3", "v: float32[3,3] -> w"),  # not the same in each iteration
        ("u = MatMul[transpose_b=true](w, w)\nh1 = MatMul(h, u)", "3,3", ""),  # nothing of it is carried
        ("h1 = MatMul[transpose_b=true](h, w) ^next", "3,3", ""),
        ("h1 = MatMul[transpose_b=true](h, w)", "?,3", ""),
    ],
)
def test_what_stays(work: str, w: str, more: str) -> None:
    text = loop(work, w, more)
    untouched(_RULE, text.replace("h: float32[2,3]", "h: float32[2,?]") if "?" in w else text)


@pytest.mark.parametrize(("n", "size"), [(2, 3), (6, 3), (16, 256), (64, 1024)])
def test_few_iterations_do_not_pay(n: int, size: int) -> None:
    untouched(_RULE, counted(n, size), f"its trip count is at most {n}, too few to pay for the transpose")


@pytest.mark.parametrize(("n", "size"), [(7, 3), (17, 256), (65, 1024)])
def test_many_do(n: int, size: int) -> None:
    _, context = transformed(counted(n, size), [PASSES[_RULE]])
    assert [n.fired for n in context.notes] == [True]


def test_what_is_carried_may_have_any_shape_and_what_is_turned_may_not() -> None:
    _, context = transformed(loop().replace("float32[2,3]", "float32<unknown>"), [PASSES[_RULE]])
    assert [n.fired for n in context.notes] == [True]
    untouched(_RULE, loop().replace("float32[3,3]", "float32<unknown>"))


def test_for_a_single_row_it_is_as_well_either_way() -> None:
    untouched(_RULE, loop().replace("float32[2,3]", "float32[1,3]"))


def test_a_vector_lies_in_order_anyway() -> None:
    untouched(_RULE, loop("a = MatMul[transpose_b=true](h, w)\nh1 = AddV2(h, a)", "1,3"))


def test_it_lies_in_order() -> None:
    from headrace.ir.builder import Builder

    x = np.arange(6.0).reshape(2, 3)
    for engine in "interpret", "compiled":
        with hr.Graph() as g:
            t = hr.placeholder(hr.float64, (2, 3))
            turned = Builder(g).make("Transpose", (t, np.array([1, 0], np.int32)), {}, notes=[ContiguousResult()])
            seen: list[bool] = []
            y = hr.py_func(lambda a, seen=seen: seen.append(a.flags.c_contiguous) or a, [turned], hr.float64)
            with hr.Session(graph=g, engine=engine) as s:
                np.testing.assert_array_equal(s.run(y, {t: x}), x.T)
        assert seen == [True]
