"""Work on what a loop pops from a list that another loop filled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import thresholds
from tests.optimize.loop_steps import PASSES, agree, check, close, loop_of, optimize, transformed, untouched

_RULE = "loop_fission"
_POP = "TensorListPopBack[element_dtype=float32]{ResidualPop}(acc, shape)"
YS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 2, 3)


def popping(work: str, more: str = "", shape: str = "2,3", **rest: Any) -> str:
    """A loop that pops the elements `y:1` of `ys`.

    The lines `work` compute `dy` from `y:1` and `d`.
    """
    rank = len(shape.split(",")) if shape else 0
    dims = f"shape = Const[value=int32[{rank}]{{{shape.replace(',', ', ')}}}, dtype=int32]"
    return loop_of(
        f"i: int32[] = zero -> next\nn: int32[]\nd: float32[{shape}] -> dy\n"
        f"acc: variant[] holds float32[{shape}] = items -> y\n{more}",
        f"next = AddV2(i, one)\n{dims}\ny = {_POP}\n{work}",
        before=f"ys = Placeholder[dtype=float32, shape=[{','.join(filter(None, ('4', shape)))}]]\n"
        f"{dims}\nitems = TensorListFromTensor(ys, shape)",
        **{"cond": "less = Less(i, n)", **rest},
    )


def test_what_is_made_of_an_element_is_made_of_all() -> None:
    text = popping("square = Mul(y:1, y:1)\ndy = Mul(d, square)")
    check(
        _RULE,
        text,
        """
items = TensorListFromTensor(ys, shape)
loop/y_values = TensorListStack(items, loop/y_values/element_shape)
square = Mul(loop/y_values, loop/y_values)
loop/square_rows = TensorListFromTensor(square, loop/square_rows/element_shape)
loop = StatelessWhile(zero, n, d, items, loop/square_rows)
body of loop (i, n, d, acc, square_rows) -> (next, n, dy, y, square_1) {
  next = AddV2(i, one)
  y = TensorListPopBack(acc, shape)
  square_1 = TensorListPopBack(square_rows, square_1/element_shape)
  dy = Mul(d, square_1:1)
}
""",
        ["loop: computed for all iterations before the loop: square"],
    )
    for n in (0, 1, 4):
        agree(text, [PASSES[_RULE]], {"n": n, "d": YS[0], "ys": YS}, ["loop:2"])


def test_a_variable_that_becomes_what_was_popped_is_one_element_later() -> None:
    text = popping("square = Mul(h, h)\ndy = Mul(d, square)", "h: float32[2,3] -> y:1")
    assert _moved(text) == ["square"]
    for n in (0, 1, 3, 4):
        agree(text, [PASSES[_RULE]], {"n": n, "d": YS[0], "ys": YS, "h": YS[2] + 2}, ["loop:2"])


def test_both_together() -> None:
    text = popping("sum = AddV2(h, y:1)\nt = Tanh(sum)\ndy = Mul(d, t)", "h: float32[2,3] -> y:1")
    assert _moved(text) == ["t"]
    agree(text, [PASSES[_RULE]], {"n": 4, "d": YS[0], "ys": YS, "h": YS[2] + 2}, ["loop:2", "loop:4"])


@pytest.mark.parametrize(
    ("work", "shape"),
    [
        ("v = Reshape(y:1, shape)\ndy = Mul(d, v)", "2,3"),  # only moved about
        ("v = Square(y:1)\ndy = Mul(d, v)", f"{thresholds.CALL_BOUND_BYTES // 4 + 1}"),  # large
        ("v = Square(y:1)\ndy = Mul(d, v)", ""),  # a number
        ("v = AddV2(y:1, d)\ndy = Mul(d, v)", "2,3"),  # of what is carried
        ("dy = Mul(d, y:1)", "2,3"),
    ],
)
def test_what_is_not_worth_while(work: str, shape: str) -> None:
    untouched(_RULE, popping(work, shape=shape))


@pytest.mark.parametrize(
    ("work", "shape"),
    [("v = Square(y:1)\ndy = Mul(d, v)", f"{thresholds.CALL_BOUND_BYTES // 4}"), ("v = Exp(y:1)\ndy = Mul(d, v)", "")],
)
def test_what_is(work: str, shape: str) -> None:
    assert _moved(popping(work, shape=shape)) == ["v"]


def test_a_product_always_is() -> None:
    n = thresholds.CALL_BOUND_BYTES // 4 + 1
    text = popping("v = MatMul(y:1, w)\ndy = Mul(d, v)", "w: float32[1,1]", f"{n},1")
    assert _moved(text) == ["v"]


def test_a_list_that_may_have_other_elements_is_left_alone() -> None:
    work = "square = Mul(y:1, y:1)\ndy = Mul(d, square)"
    untouched(_RULE, popping(work).replace("{ResidualPop}", ""))
    other = popping(work).replace("(next, n, dy, y)", "(next, n, dy, acc)")
    untouched(_RULE, other)


def test_not_both_kinds_of_rows_at_once() -> None:
    work = """\
x = TensorListGetItem[element_dtype=float32](rows, i, shape)
sum = AddV2(x, y:1)
t = Tanh(sum)
dy = Mul(d, t)"""
    untouched(_RULE, popping(work, "rows: variant[] holds float32[2,3] = items"))


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_gradient_has_nothing_left_to_compute_but_what_is_carried(n: int) -> None:
    rng = np.random.default_rng(n)
    values = [rng.standard_normal(s) for s in ((2, 3), (3, 3))]
    with hr.Graph():
        h, w = (hr.placeholder(hr.float64, v.shape) for v in values)
        _, y = hr.while_loop(lambda i, h: i < n, lambda i, h: (i + 1, hr.tanh(hr.matmul(h, w))), (0, h))
        fetches = [y, *hr.gradients(hr.reduce_sum(y * y), [h, w])]
        found = []
        for passes in (), tuple(PASSES.values()):
            moved = optimize([h, w], fetches, passes, rounds=3)
            found.append(moved.run(values))
        close(found[1], found[0], 1e-12)
    types = [op.type for op in moved.graph.get_operation_by_name("gradients/while_grad/While").attrs["body"].operations]
    if n > 1:
        assert types.count("Mul") == types.count("MatMul") == 1
        assert not {"TanhGrad", "Sub", "Square"} & set(types)


def _moved(text: str) -> list[str]:
    _, context = transformed(text, [PASSES[_RULE]])
    assert all(n.fired for n in context.notes), context.notes
    return [name for n in context.notes for name in n.text.partition(": ")[2].split(", ")]
